//! Hostile calls of contexts.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use pagewise_driver::{
    CtxCreateParams, cuCtxCreate_v2, cuCtxCreate_v3, cuCtxCreate_v4, cuCtxDestroy_v2,
    cuCtxDisablePeerAccess, cuCtxEnablePeerAccess, cuCtxGetApiVersion, cuCtxGetCacheConfig,
    cuCtxGetDevice_v2, cuCtxGetFlags, cuCtxGetId, cuCtxGetLimit, cuCtxGetSharedMemConfig,
    cuCtxGetStreamPriorityRange, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2,
    cuCtxResetPersistingL2Cache, cuCtxSetCacheConfig, cuCtxSetFlags, cuCtxSetLimit,
    cuCtxSetSharedMemConfig, cuCtxSynchronize_v2, cuDevicePrimaryCtxReset_v2,
    cuDevicePrimaryCtxSetFlags_v2,
};

use super::world::{Attempt, World};

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuCtxCreate_v2", |world| {
        let (place, flags, device) = creation(world);
        // SAFETY: each place is null or has room for its result.
        let code = unsafe { cuCtxCreate_v2(place, flags, device) };
        created(world, code, place)
    }),
    ("cuCtxCreate_v3", |world| {
        let (place, flags, device) = creation(world);
        let count = if world.choices.chance(7, 8) { 0 } else { world.small(3) as c_int };
        // SAFETY: each place is null or has room for its result.
        let code = unsafe { cuCtxCreate_v3(place, null_mut(), count, flags, device) };
        created(world, code, place)
    }),
    ("cuCtxCreate_v4", |world| {
        let (place, flags, device) = creation(world);
        let mut parameters = CtxCreateParams {
            affinities: null_mut(),
            count: c_int::from(world.choices.chance(1, 8)),
            graphics: null_mut(),
        };
        let given = world.choices.chance(1, 2);
        let given = if given { &raw mut parameters } else { null_mut() };
        // SAFETY: the place is null or has room for the result; the parameters are null or a local.
        let code = unsafe { cuCtxCreate_v4(place, given, flags, device) };
        created(world, code, place)
    }),
    ("cuCtxDestroy_v2", |world| {
        let context = world.context();
        // SAFETY: the simulator looks handles up; this program uses no memory of a destroyed context.
        let code = unsafe { cuCtxDestroy_v2(context) };
        if code == 0 {
            world.contexts.retain(|known| *known != context.addr());
            world.stale.push(context.addr() as u64);
        }
        code
    }),
    ("cuCtxPushCurrent_v2", |world| {
        let context = world.context();
        cuCtxPushCurrent_v2(context)
    }),
    ("cuCtxPopCurrent_v2", |world| {
        let place = world.place();
        // SAFETY: each place is null or has room for its result.
        unsafe { cuCtxPopCurrent_v2(place) }
    }),
    ("cuCtxGetDevice_v2", |world| {
        let (place, context) = (world.place(), world.context());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuCtxGetDevice_v2(place, context) }
    }),
    ("cuCtxSynchronize_v2", |world| {
        let context = world.context();
        cuCtxSynchronize_v2(context)
    }),
    ("cuCtxGetFlags", |world| {
        let place = world.place();
        // SAFETY: each place is null or has room for its result.
        unsafe { cuCtxGetFlags(place) }
    }),
    ("cuCtxGetCacheConfig", |world| {
        let place = world.place();
        // SAFETY: each place is null or has room for its result.
        unsafe { cuCtxGetCacheConfig(place) }
    }),
    ("cuCtxGetSharedMemConfig", |world| {
        let place = world.place();
        // SAFETY: each place is null or has room for its result.
        unsafe { cuCtxGetSharedMemConfig(place) }
    }),
    ("cuCtxSetFlags", |world| cuCtxSetFlags(world.small(32) as u32)),
    ("cuCtxSetCacheConfig", |world| cuCtxSetCacheConfig(world.small(4) as c_int)),
    ("cuCtxSetSharedMemConfig", |world| cuCtxSetSharedMemConfig(world.small(3) as c_int)),
    ("cuCtxGetId", |world| {
        let (context, place) = (world.context(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuCtxGetId(context, place) }
    }),
    ("cuCtxGetApiVersion", |world| {
        let (context, place) = (world.context(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuCtxGetApiVersion(context, place) }
    }),
    ("cuCtxGetLimit", |world| {
        let (place, limit) = (world.place(), world.small(12) as c_int);
        // SAFETY: each place is null or has room for its result.
        unsafe { cuCtxGetLimit(place, limit) }
    }),
    ("cuCtxSetLimit", |world| {
        let limit = world.small(12) as c_int;
        cuCtxSetLimit(limit, world.choices.edge() as usize)
    }),
    ("cuCtxGetStreamPriorityRange", |world| {
        let (least, greatest) = (world.place(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuCtxGetStreamPriorityRange(least, greatest) }
    }),
    ("cuCtxResetPersistingL2Cache", |_| cuCtxResetPersistingL2Cache()),
    ("cuCtxEnablePeerAccess", |world| {
        let context = world.context();
        cuCtxEnablePeerAccess(context, world.small(2) as u32)
    }),
    ("cuCtxDisablePeerAccess", |world| cuCtxDisablePeerAccess(world.context())),
    ("cuDevicePrimaryCtxSetFlags_v2", |world| {
        let ordinal = world.ordinal();
        cuDevicePrimaryCtxSetFlags_v2(ordinal, world.small(32) as u32)
    }),
    ("cuDevicePrimaryCtxReset_v2", |world| {
        // Other threads of the process use the context of device 0.
        let ordinal = world.ordinal();
        let ordinal = if ordinal == 0 { 1 } else { ordinal };
        // SAFETY: this program has no memory of other devices.
        unsafe { cuDevicePrimaryCtxReset_v2(ordinal) }
    }),
];

/// A place for a context, its flags and its device.
fn creation(world: &mut World<'_, '_>) -> (*mut *mut c_void, u32, c_int) {
    let flags = if world.choices.chance(1, 2) { 0 } else { world.small(0x200) as u32 };
    (world.place(), flags, world.ordinal())
}

/// Notes a context that a call made, and leaves the stack as it was.
fn created(world: &mut World<'_, '_>, code: c_int, place: *mut *mut c_void) -> c_int {
    if code == 0 {
        // SAFETY: the call succeeded, so the place is not null, has room and holds a handle. The
        // result of the second call goes nowhere.
        unsafe {
            world.contexts.push(place.read_unaligned().addr());
            cuCtxPopCurrent_v2(null_mut());
        }
    }
    code
}
