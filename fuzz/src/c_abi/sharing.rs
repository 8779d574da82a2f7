//! Hostile calls about registered host memory and memory of other processes.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use pagewise_driver::{
    Blob, cuIpcCloseMemHandle, cuIpcGetMemHandle, cuIpcOpenMemHandle_v2, cuMemHostRegister_v2,
    cuMemHostUnregister, cuMemPoolExportPointer, cuMemPoolExportToShareableHandle,
    cuMemPoolImportFromShareableHandle, cuMemPoolImportPointer,
};

use super::streams::made;
use super::world::{Attempt, LONGEST, Memory, World};

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuMemHostRegister_v2", |world| {
        let start = world.choices.below(LONGEST as u64) as usize;
        let bytes = world.choices.below((LONGEST - start) as u64 + 1) as usize;
        let flags = if world.choices.chance(1, 2) { 0 } else { world.small(9) as u32 };
        let (ptr, bytes) = match world.choices.below(16) {
            0 => (null_mut(), bytes),
            1 => (world.buffer.wrapping_add(start), usize::MAX),
            _ => (world.buffer.wrapping_add(start), bytes),
        };
        // SAFETY: the range is null, longer than any memory, or part of the buffer, which lives
        // until all of it is unregistered.
        let code = unsafe { cuMemHostRegister_v2(ptr.cast(), bytes, flags) };
        if code == 0 {
            let memory = Memory { ptr: ptr.addr() as u64, bytes, managed: false };
            world.registered.push(memory);
            world.live.push(memory);
        }
        code
    }),
    ("cuMemHostUnregister", |world| {
        let ptr = world.address();
        // SAFETY: the simulator has no device that works by itself, so none uses the memory.
        let code = unsafe { cuMemHostUnregister(without_provenance_mut(ptr as usize)) };
        if code == 0 {
            world.registered.retain(|memory| memory.ptr != ptr);
            world.gone(ptr);
        }
        code
    }),
    ("cuMemPoolExportToShareableHandle", |world| {
        let (place, pool) = (world.place::<c_int>(), world.pool());
        let kind = if world.choices.chance(3, 4) { 1 } else { world.small(9) as c_int };
        let flags = if world.choices.chance(7, 8) { 0 } else { world.choices.edge() };
        // SAFETY: the place is null or has room for a descriptor.
        let code = unsafe { cuMemPoolExportToShareableHandle(place.cast(), pool, kind, flags) };
        if code == 0 {
            // SAFETY: the call succeeded, so the place is not null, has room and holds a
            // descriptor.
            world.descriptors.push(unsafe { place.read_unaligned() });
        }
        code
    }),
    ("cuMemPoolImportFromShareableHandle", |world| {
        let place = world.place::<*mut c_void>();
        let descriptor = match world.choices.below(3) {
            0 => world.choices.edge() as usize,
            _ => world.descriptors.last().map_or(usize::MAX, |known| *known as usize),
        };
        let kind = if world.choices.chance(3, 4) { 1 } else { world.small(9) as c_int };
        let flags = if world.choices.chance(7, 8) { 0 } else { world.choices.edge() };
        let shared = without_provenance_mut(descriptor);
        // SAFETY: the place is null or has room for the result, and the simulator takes handles of
        // its own process.
        let code = unsafe { cuMemPoolImportFromShareableHandle(place, shared, kind, flags) };
        made(code, place, &mut world.pools)
    }),
    ("cuMemPoolExportPointer", |world| {
        let (place, ptr) = (room_for_blob(world), world.address());
        let mut blob = Blob([0; 64]);
        let place = if place { &raw mut blob } else { null_mut() };
        // SAFETY: each pointer is null or points to a live value of its type.
        let code = unsafe { cuMemPoolExportPointer(place, ptr) };
        if code == 0 {
            world.blobs.push(blob);
        }
        code
    }),
    ("cuMemPoolImportPointer", |world| {
        let (place, pool, blob) = (world.place::<u64>(), world.pool(), world.blob());
        let absent = world.choices.chance(1, 16);
        let blob = if absent { null() } else { &raw const blob };
        // SAFETY: each pointer is null or points to a live value of its type.
        let code = unsafe { cuMemPoolImportPointer(place, pool, blob) };
        if code == 0 {
            // SAFETY: the call succeeded, so the place is not null, has room and holds an address.
            world.imports.push(unsafe { place.read_unaligned() });
        }
        code
    }),
    ("cuIpcGetMemHandle", |world| {
        let (place, ptr) = (room_for_blob(world), world.address());
        let mut blob = Blob([0; 64]);
        let place = if place { &raw mut blob } else { null_mut() };
        // SAFETY: each pointer is null or points to a live value of its type.
        let code = unsafe { cuIpcGetMemHandle(place, ptr) };
        if code == 0 {
            world.blobs.push(blob);
        }
        code
    }),
    ("cuIpcOpenMemHandle_v2", |world| {
        let (place, blob) = (world.place(), world.blob());
        // SAFETY: the place is null or has room for the result.
        unsafe { cuIpcOpenMemHandle_v2(place, blob, world.small(3) as u32) }
    }),
    ("cuIpcCloseMemHandle", |world| {
        let ptr = world.address();
        // SAFETY: the simulator opens no handle, because each is of its own process, so there is no
        // memory to close.
        unsafe { cuIpcCloseMemHandle(ptr) }
    }),
];

/// Mostly.
fn room_for_blob(world: &mut World<'_, '_>) -> bool {
    !world.choices.chance(1, 16)
}
