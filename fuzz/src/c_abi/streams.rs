//! Hostile calls of streams and events.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use pagewise_driver::{
    Blob, HostFunction, StreamCallback, cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime,
    cuEventElapsedTime_v2, cuEventQuery, cuEventRecord, cuEventRecordWithFlags, cuEventSynchronize,
    cuIpcGetEventHandle, cuIpcOpenEventHandle, cuLaunchHostFunc, cuStreamAddCallback,
    cuStreamAttachMemAsync, cuStreamCopyAttributes, cuStreamCreate, cuStreamCreateWithPriority,
    cuStreamDestroy_v2, cuStreamGetAttribute, cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2,
    cuStreamGetCaptureInfo_v3, cuStreamGetCtx, cuStreamGetCtx_v2, cuStreamGetDevice,
    cuStreamGetFlags, cuStreamGetId, cuStreamGetPriority, cuStreamIsCapturing, cuStreamQuery,
    cuStreamSetAttribute, cuStreamSynchronize, cuStreamWaitEvent,
    cuThreadExchangeStreamCaptureMode,
};

use super::world::{Attempt, World};

/// The flags of an event that other processes may open: it has no time (CUDA).
const OF_PROCESSES: u32 = 6;

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuStreamCreate", |world| {
        let place = world.place::<*mut c_void>();
        // SAFETY: the place is null or has room for the result.
        let code = unsafe { cuStreamCreate(place, world.small(3) as u32) };
        made(code, place, &mut world.streams)
    }),
    ("cuStreamDestroy_v2", |world| {
        let stream = world.stream();
        // SAFETY: the simulator looks handles up and refuses those of destroyed streams, so this
        // program may pass such a handle again.
        let code = unsafe { cuStreamDestroy_v2(stream) };
        gone(world, code, stream, |world| &mut world.streams)
    }),
    ("cuStreamSynchronize", |world| cuStreamSynchronize(world.stream())),
    ("cuStreamQuery", |world| cuStreamQuery(world.stream())),
    ("cuStreamWaitEvent", |world| {
        let (stream, event) = (world.stream(), world.event());
        cuStreamWaitEvent(stream, event, world.small(2) as u32)
    }),
    ("cuStreamAttachMemAsync", |world| {
        let (stream, (ptr, bytes)) = (world.stream(), world.range());
        let bytes = if world.choices.chance(1, 2) { 0 } else { bytes };
        // SAFETY: this program accesses managed memory through the driver only, which refuses what
        // an attachment does not allow.
        unsafe { cuStreamAttachMemAsync(stream, ptr, bytes, world.small(6) as u32) }
    }),
    ("cuStreamGetCtx", |world| {
        let (stream, place) = (world.stream(), world.place());
        // SAFETY: the place is null or has room for the result.
        unsafe { cuStreamGetCtx(stream, place) }
    }),
    ("cuEventCreate", |world| {
        let place = world.place::<*mut c_void>();
        let flags = if world.choices.chance(1, 2) { OF_PROCESSES } else { world.small(8) as u32 };
        // SAFETY: the place is null or has room for the result.
        let code = unsafe { cuEventCreate(place, flags) };
        made(code, place, &mut world.events)
    }),
    ("cuEventDestroy_v2", |world| {
        let event = world.event();
        // SAFETY: the simulator looks handles up and refuses those of destroyed events, so this
        // program may pass such a handle again.
        let code = unsafe { cuEventDestroy_v2(event) };
        gone(world, code, event, |world| &mut world.events)
    }),
    ("cuEventRecord", |world| {
        let event = world.event();
        cuEventRecord(event, world.stream())
    }),
    ("cuEventQuery", |world| cuEventQuery(world.event())),
    ("cuEventSynchronize", |world| cuEventSynchronize(world.event())),
    ("cuEventElapsedTime", |world| {
        let (place, start, end) = (world.place(), world.event(), world.event());
        // SAFETY: the place is null or has room for the result.
        unsafe { cuEventElapsedTime(place, start, end) }
    }),
    ("cuStreamCreateWithPriority", |world| {
        let place = world.place::<*mut c_void>();
        let (flags, priority) = (world.small(3) as u32, world.choices.edge() as c_int);
        // SAFETY: each place is null or has room for its result.
        let code = unsafe { cuStreamCreateWithPriority(place, flags, priority) };
        made(code, place, &mut world.streams)
    }),
    ("cuStreamGetFlags", |world| {
        let (stream, place) = (world.stream(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuStreamGetFlags(stream, place) }
    }),
    ("cuStreamGetPriority", |world| {
        let (stream, place) = (world.stream(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuStreamGetPriority(stream, place) }
    }),
    ("cuStreamGetId", |world| {
        let (stream, place) = (world.stream(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuStreamGetId(stream, place) }
    }),
    ("cuStreamGetDevice", |world| {
        let (stream, place) = (world.stream(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuStreamGetDevice(stream, place) }
    }),
    ("cuStreamIsCapturing", |world| {
        let (stream, place) = (world.stream(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuStreamIsCapturing(stream, place) }
    }),
    ("cuStreamGetCtx_v2", |world| {
        let (stream, place, green) = (world.stream(), world.place(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuStreamGetCtx_v2(stream, place, green) }
    }),
    ("cuStreamGetCaptureInfo", |world| {
        let (stream, state, id) = (world.stream(), world.place(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuStreamGetCaptureInfo(stream, state, id) }
    }),
    ("cuStreamGetCaptureInfo_v2", |world| {
        let (stream, state) = (world.stream(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe {
            cuStreamGetCaptureInfo_v2(stream, state, null_mut(), null_mut(), null_mut(), null_mut())
        }
    }),
    ("cuStreamGetCaptureInfo_v3", |world| {
        let (stream, state) = (world.stream(), world.place());
        let none = null_mut::<c_void>;
        // SAFETY: each place is null or has room for its result.
        unsafe {
            cuStreamGetCaptureInfo_v3(
                stream,
                state,
                none().cast(),
                none().cast(),
                none().cast(),
                none().cast(),
                none().cast(),
            )
        }
    }),
    ("cuThreadExchangeStreamCaptureMode", |world| {
        let mut mode = world.small(4) as c_int;
        let place = world.choices.chance(7, 8);
        let place = if place { &raw mut mode } else { null_mut() };
        // SAFETY: the place is null or a local.
        unsafe { cuThreadExchangeStreamCaptureMode(place) }
    }),
    ("cuStreamGetAttribute", |world| {
        let (stream, place) = (world.stream(), world.place());
        let attribute = [3, 8, world.small(12) as c_int][world.choices.below(3) as usize];
        // SAFETY: each place is null or has room for its result.
        unsafe { cuStreamGetAttribute(stream, attribute, place) }
    }),
    ("cuStreamSetAttribute", |world| {
        let (stream, value) = (world.stream(), world.small(6) as c_int);
        let attribute = [3, 8, world.small(12) as c_int][world.choices.below(3) as usize];
        // SAFETY: the value is a local.
        unsafe { cuStreamSetAttribute(stream, attribute, (&raw const value).cast()) }
    }),
    ("cuStreamCopyAttributes", |world| {
        let (to, from) = (world.stream(), world.stream());
        cuStreamCopyAttributes(to, from)
    }),
    ("cuEventRecordWithFlags", |world| {
        let (event, stream) = (world.event(), world.stream());
        cuEventRecordWithFlags(event, stream, world.small(3) as u32)
    }),
    ("cuEventElapsedTime_v2", |world| {
        let (place, start, end) = (world.place(), world.event(), world.event());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuEventElapsedTime_v2(place, start, end) }
    }),
    ("cuIpcGetEventHandle", |world| {
        let (place, event) = (world.place::<Blob>(), world.event());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuIpcGetEventHandle(place, event) }
    }),
    ("cuIpcOpenEventHandle", |world| {
        let (place, blob) = (world.place(), world.blob());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuIpcOpenEventHandle(place, blob) }
    }),
    ("cuLaunchHostFunc", |world| {
        let stream = world.stream();
        let function: HostFunction = if world.choices.chance(1, 8) { None } else { Some(called) };
        // SAFETY: the functions use none of their arguments.
        unsafe { cuLaunchHostFunc(stream, function, null_mut()) }
    }),
    ("cuStreamAddCallback", |world| {
        let (stream, flags) = (world.stream(), world.small(2) as u32);
        let function: StreamCallback =
            if world.choices.chance(1, 8) { None } else { Some(called_with_stream) };
        // SAFETY: the functions use none of their arguments.
        unsafe { cuStreamAddCallback(stream, function, null_mut(), flags) }
    }),
];

/// Notes a handle that a call made.
pub(super) fn made(code: c_int, place: *mut *mut c_void, handles: &mut Vec<usize>) -> c_int {
    if code == 0 {
        // SAFETY: the call succeeded, so the place is not null, has room and holds a handle.
        handles.push(unsafe { place.read_unaligned() }.addr());
    }
    code
}

/// Notes that a handle is gone.
pub(super) fn gone(
    world: &mut World<'_, '_>,
    code: c_int,
    handle: *mut c_void,
    of: for<'w> fn(&'w mut World<'_, '_>) -> &'w mut Vec<usize>,
) -> c_int {
    if code == 0 {
        of(world).retain(|known| *known != handle.addr());
        world.stale.push(handle.addr() as u64);
    }
    code
}

/// A function of the host that does nothing.
unsafe extern "C" fn called(_: *mut c_void) {}

/// A callback that does nothing.
unsafe extern "C" fn called_with_stream(_: *mut c_void, _: c_int, _: *mut c_void) {}
