//! Hostile calls of streams and events.

use std::ffi::{c_int, c_void};

use pagewise_driver::{
    cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime, cuEventQuery, cuEventRecord,
    cuEventSynchronize, cuStreamAttachMemAsync, cuStreamCreate, cuStreamDestroy_v2, cuStreamGetCtx,
    cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent,
};

use super::world::{Attempt, World};

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
        // SAFETY: the place is null or has room for the result.
        let code = unsafe { cuEventCreate(place, world.small(6) as u32) };
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
