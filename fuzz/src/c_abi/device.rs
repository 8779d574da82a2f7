//! Hostile calls for start-up, devices, contexts and look-ups.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use pagewise_driver::{
    cuCtxGetCurrent, cuCtxGetDevice, cuCtxSetCurrent, cuCtxSynchronize, cuDeviceCanAccessPeer,
    cuDeviceComputeCapability, cuDeviceGet, cuDeviceGetAttribute, cuDeviceGetByPCIBusId,
    cuDeviceGetCount, cuDeviceGetName, cuDeviceGetP2PAttribute, cuDeviceGetPCIBusId,
    cuDeviceGetUuid, cuDeviceGetUuid_v2, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxRelease_v2,
    cuDevicePrimaryCtxRetain, cuDeviceTotalMem_v2, cuDriverGetVersion, cuGetErrorName,
    cuGetErrorString, cuGetProcAddress, cuGetProcAddress_v2, cuInit,
};

use super::world::{Attempt, World};

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuInit", |world| cuInit(world.small(2) as u32)),
    ("cuDriverGetVersion", |world| {
        let place = world.place();
        // SAFETY: the place is null or has room for the result.
        unsafe { cuDriverGetVersion(place) }
    }),
    ("cuGetProcAddress", |world| {
        let (name, place, version) = look_up(world);
        // SAFETY: the name is null or NUL-terminated, and the place is null or has room for the
        // result.
        unsafe { cuGetProcAddress(name, place, version, world.choices.edge()) }
    }),
    ("cuGetProcAddress_v2", |world| {
        let (name, place, version) = look_up(world);
        let mut found = 0;
        let status = if world.choices.chance(1, 4) { null_mut() } else { &raw mut found };
        // SAFETY: the name is null or NUL-terminated, the place is null or has room for the result,
        // and the status is null or a local that outlives the call.
        unsafe { cuGetProcAddress_v2(name, place, version, world.choices.edge(), status) }
    }),
    ("cuGetErrorName", |world| {
        let (code, place) = (world.small(1000) as c_int, world.place());
        // SAFETY: the place is null or has room for the result.
        unsafe { cuGetErrorName(code, place) }
    }),
    ("cuGetErrorString", |world| {
        let (code, place) = (world.small(1000) as c_int, world.place());
        // SAFETY: the place is null or has room for the result.
        unsafe { cuGetErrorString(code, place) }
    }),
    ("cuDeviceGetCount", |world| {
        let place = world.place();
        // SAFETY: the place is null or has room for the result.
        unsafe { cuDeviceGetCount(place) }
    }),
    ("cuDeviceGet", |world| {
        let (place, ordinal) = (world.place(), world.ordinal());
        // SAFETY: the place is null or has room for the result.
        unsafe { cuDeviceGet(place, ordinal) }
    }),
    ("cuDeviceGetName", |world| {
        let (place, ordinal) = (world.place::<c_char>(), world.ordinal());
        // Places have at least 32 bytes behind them.
        let bytes = match world.choices.below(4) {
            0 => -(world.small(100) as c_int & 0xffff),
            _ => world.choices.below(33) as c_int,
        };
        // SAFETY: the place is null or has room for `bytes` bytes.
        unsafe { cuDeviceGetName(place, bytes, ordinal) }
    }),
    ("cuDeviceTotalMem_v2", |world| {
        let (place, ordinal) = (world.place(), world.ordinal());
        // SAFETY: the place is null or has room for the result.
        unsafe { cuDeviceTotalMem_v2(place, ordinal) }
    }),
    ("cuDeviceGetAttribute", |world| {
        let (place, ordinal) = (world.place(), world.ordinal());
        let attribute = world.small(160) as c_int;
        // SAFETY: the place is null or has room for the result.
        unsafe { cuDeviceGetAttribute(place, attribute, ordinal) }
    }),
    ("cuDeviceCanAccessPeer", |world| {
        let (place, device, peer) = (world.place(), world.ordinal(), world.ordinal());
        // SAFETY: the place is null or has room for the result.
        unsafe { cuDeviceCanAccessPeer(place, device, peer) }
    }),
    ("cuDevicePrimaryCtxRetain", |world| {
        let (place, ordinal) = (world.place::<*mut c_void>(), world.ordinal());
        // SAFETY: the place is null or has room for the result.
        let code = unsafe { cuDevicePrimaryCtxRetain(place, ordinal) };
        if code == 0 {
            world.retained += 1;
        }
        code
    }),
    ("cuDevicePrimaryCtxGetState", |world| {
        let (flags, active, ordinal) = (world.place(), world.place(), world.ordinal());
        // SAFETY: the places are null or have room for the results.
        unsafe { cuDevicePrimaryCtxGetState(ordinal, flags, active) }
    }),
    ("cuDevicePrimaryCtxRelease_v2", |world| {
        let ordinal = world.ordinal();
        // It releases only what it retained itself, or what does not exist: other threads of the
        // process have contexts, too.
        if ordinal == 0 && world.retained < 2 {
            return cuDevicePrimaryCtxRelease_v2(7);
        }
        let code = cuDevicePrimaryCtxRelease_v2(ordinal);
        if code == 0 {
            world.retained -= 1;
        }
        code
    }),
    ("cuCtxSetCurrent", |world| cuCtxSetCurrent(world.context())),
    ("cuCtxGetCurrent", |world| {
        let place = world.place();
        // SAFETY: the place is null or has room for the result.
        unsafe { cuCtxGetCurrent(place) }
    }),
    ("cuCtxGetDevice", |world| {
        let place = world.place();
        // SAFETY: the place is null or has room for the result.
        unsafe { cuCtxGetDevice(place) }
    }),
    ("cuCtxSynchronize", |_| cuCtxSynchronize()),
    ("cuDeviceGetPCIBusId", |world| {
        let (place, ordinal) = (world.place::<c_char>(), world.ordinal());
        // Places have at least 32 bytes behind them.
        let bytes = world.choices.below(33) as c_int;
        // SAFETY: the place is null or has room for `bytes` bytes.
        unsafe { cuDeviceGetPCIBusId(place, bytes, ordinal) }
    }),
    ("cuDeviceGetByPCIBusId", |world| {
        const NAMES: [&CStr; 6] =
            [c"0000:01:00.0", c"0:1:0", c"1:0.0", c"", c"x:y:z", c"ffff:ff:ff.f"];
        let (place, name) = (world.place(), world.choices.one_of(&NAMES).as_ptr());
        let name = if world.choices.chance(1, 16) { null() } else { name };
        // SAFETY: the place is null or has room for the result; the name is null or NUL-terminated.
        unsafe { cuDeviceGetByPCIBusId(place, name) }
    }),
    ("cuDeviceGetUuid", |world| {
        let (place, ordinal) = (world.place(), world.ordinal());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuDeviceGetUuid(place, ordinal) }
    }),
    ("cuDeviceGetUuid_v2", |world| {
        let (place, ordinal) = (world.place(), world.ordinal());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuDeviceGetUuid_v2(place, ordinal) }
    }),
    ("cuDeviceComputeCapability", |world| {
        let (major, minor, ordinal) = (world.place(), world.place(), world.ordinal());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuDeviceComputeCapability(major, minor, ordinal) }
    }),
    ("cuDeviceGetP2PAttribute", |world| {
        let (place, device, peer) = (world.place(), world.ordinal(), world.ordinal());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuDeviceGetP2PAttribute(place, world.small(6) as c_int, device, peer) }
    }),
];

/// A name, a place and a version.
fn look_up(world: &mut World<'_, '_>) -> (*const c_char, *mut *mut c_void, c_int) {
    const NAMES: [&CStr; 6] =
        [c"cuInit", c"cuMemAdvise", c"cuMemDiscardBatchAsync", c"", c"cuMemAdvise_v2", c"\xff"];
    let name = world.choices.one_of(&NAMES).as_ptr();
    let name = if world.choices.chance(1, 16) { null() } else { name };
    (name, world.place(), world.small(14000) as c_int)
}
