//! Hostile calls of virtual memory management.

use std::ffi::c_int;
use std::ptr::{null, null_mut, without_provenance_mut};

use pagewise_driver::{
    MemAccessDesc, MemAllocationProp, cuMemAddressFree, cuMemAddressReserve, cuMemCreate,
    cuMemExportToShareableHandle, cuMemGetAccess, cuMemGetAllocationGranularity,
    cuMemImportFromShareableHandle, cuMemMap, cuMemRelease, cuMemSetAccess, cuMemUnmap,
};

use super::mappings::{OF_DEVICE, UNIT, VirtualMemory};
use super::world::{Attempt, LONGEST, World};

fn props(world: &mut World<'_, '_>) -> MemAllocationProp {
    if world.choices.chance(3, 4) {
        let handle_types = i32::from(world.choices.chance(1, 2));
        return MemAllocationProp { handle_types, ..OF_DEVICE };
    }
    MemAllocationProp {
        allocation_type: world.small(4) as i32,
        handle_types: world.small(16) as i32,
        location: world.location(),
        win32_handle_meta_data: null_mut(),
        alloc_flags: if world.choices.chance(3, 4) { [0; 8] } else { [1; 8] },
    }
}

/// One or two units, or anything small or absurd.
fn size(world: &mut World<'_, '_>) -> usize {
    match world.choices.below(8) {
        0 => 0,
        1 => world.choices.below(LONGEST as u64) as usize,
        2 => usize::MAX,
        _ => UNIT * (1 + world.choices.below(2) as usize),
    }
}

/// One of these ranges, a part of one, or a wild one.
fn range(world: &mut World<'_, '_>, known: fn(&VirtualMemory) -> &[(u64, usize)]) -> (u64, usize) {
    let known = known(&world.virtual_memory).to_vec();
    if known.is_empty() || world.choices.chance(1, 8) {
        return (world.choices.edge(), size(world));
    }
    let (ptr, bytes) = world.choices.one_of(&known);
    match world.choices.below(6) {
        0 => (ptr, UNIT),
        1 => (ptr.wrapping_add(UNIT as u64), UNIT),
        _ => (ptr, bytes),
    }
}

fn handle(world: &mut World<'_, '_>) -> u64 {
    let known = world.virtual_memory.handles.clone();
    if known.is_empty() || world.choices.chance(1, 8) {
        return world.choices.edge();
    }
    world.choices.one_of(&known)
}

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuMemGetAllocationGranularity", |world| {
        let (place, props, which) = (world.place::<usize>(), props(world), world.small(3) as i32);
        let props = if world.choices.chance(1, 16) { null() } else { &raw const props };
        // SAFETY: the place is null or has room for the result, and the properties are null or a
        // local.
        unsafe { cuMemGetAllocationGranularity(place, props, which) }
    }),
    ("cuMemAddressReserve", |world| {
        let (place, bytes) = (world.place::<u64>(), size(world));
        let alignment = world.choices.one_of(&[0, 0, 4096, UNIT, 2 * UNIT, 3, 1 << 40]);
        let hint = if world.choices.chance(3, 4) { 0 } else { world.address() };
        let flags = u64::from(world.choices.chance(1, 16));
        // SAFETY: the place is null or has room for the result.
        let code = unsafe { cuMemAddressReserve(place, bytes, alignment, hint, flags) };
        if code == 0 {
            // SAFETY: the call succeeded, so the place is not null, has room and holds an address.
            let ptr = unsafe { place.read_unaligned() };
            world.virtual_memory.reserved.push((ptr, bytes));
        }
        code
    }),
    ("cuMemAddressFree", |world| {
        let (ptr, bytes) = range(world, |known| &known.reserved);
        // SAFETY: only this program knows the addresses, and it does not use them again.
        let code = unsafe { cuMemAddressFree(ptr, bytes) };
        if code == 0 {
            world.virtual_memory.reserved.retain(|known| known.0 != ptr);
        }
        code
    }),
    ("cuMemCreate", |world| {
        let (place, bytes, props) = (world.place::<u64>(), size(world), props(world));
        let props = if world.choices.chance(1, 16) { null() } else { &raw const props };
        let flags = u64::from(world.choices.chance(1, 16));
        // SAFETY: the place is null or has room for the result, and the properties are null or a
        // local.
        let code = unsafe { cuMemCreate(place, bytes, props, flags) };
        if code == 0 {
            // SAFETY: the call succeeded, so the place is not null, has room and holds a handle.
            world.virtual_memory.handles.push(unsafe { place.read_unaligned() });
        }
        code
    }),
    ("cuMemRelease", |world| {
        let handle = handle(world);
        // SAFETY: the simulator looks every handle up.
        let code = unsafe { cuMemRelease(handle) };
        if code == 0 {
            world.virtual_memory.handles.retain(|known| *known != handle);
        }
        code
    }),
    ("cuMemExportToShareableHandle", |world| {
        let (place, handle) = (world.place::<c_int>(), handle(world));
        let kind = if world.choices.chance(3, 4) { 1 } else { world.small(9) as c_int };
        let flags = if world.choices.chance(7, 8) { 0 } else { world.choices.edge() };
        // SAFETY: the place is null or has room for a descriptor.
        let code = unsafe { cuMemExportToShareableHandle(place.cast(), handle, kind, flags) };
        if code == 0 {
            // SAFETY: the call succeeded, so the place is not null, has room and holds a
            // descriptor.
            world.descriptors.push(unsafe { place.read_unaligned() });
        }
        code
    }),
    ("cuMemImportFromShareableHandle", |world| {
        let place = world.place::<u64>();
        let descriptor = match world.choices.below(3) {
            0 => world.choices.edge() as usize,
            _ => world.descriptors.last().map_or(usize::MAX, |known| *known as usize),
        };
        let kind = if world.choices.chance(3, 4) { 1 } else { world.small(9) as c_int };
        let shared = without_provenance_mut(descriptor);
        // SAFETY: the place is null or has room for the result.
        let code = unsafe { cuMemImportFromShareableHandle(place, shared, kind) };
        if code == 0 {
            // SAFETY: the call succeeded, so the place is not null, has room and holds a handle.
            world.virtual_memory.handles.push(unsafe { place.read_unaligned() });
        }
        code
    }),
    ("cuMemMap", |world| {
        let ((ptr, bytes), handle) = (range(world, |known| &known.reserved), handle(world));
        let offset = if world.choices.chance(15, 16) { 0 } else { UNIT };
        let flags = u64::from(world.choices.chance(1, 16));
        // SAFETY: only this program knows the memory, from one thread.
        let code = unsafe { cuMemMap(ptr, bytes, offset, handle, flags) };
        if code == 0 {
            world.virtual_memory.mapped.push((ptr, bytes));
        }
        code
    }),
    ("cuMemUnmap", |world| {
        let (ptr, bytes) = range(world, |known| &known.mapped);
        // SAFETY: the simulator has no device that works by itself, so no work uses the range.
        let code = unsafe { cuMemUnmap(ptr, bytes) };
        if code == 0 {
            let gone = ptr..ptr.wrapping_add(bytes as u64);
            world.virtual_memory.mapped.retain(|known| !gone.contains(&known.0));
        }
        code
    }),
    ("cuMemSetAccess", |world| {
        let (ptr, bytes) = range(world, |known| &known.mapped);
        let flags = world.choices.one_of(&[3, 3, 3, 1, 0, 2]);
        let wanted = [(); 2].map(|()| {
            // Most memory is the first device's, which takes no other place without peers.
            let is_own = world.choices.chance(3, 4);
            let location = if is_own { OF_DEVICE.location } else { world.location() };
            MemAccessDesc { location, flags }
        });
        let count = world.choices.one_of(&[1, 1, 2, 0]);
        let place = if world.choices.chance(1, 16) { null() } else { wanted.as_ptr() };
        // SAFETY: the descriptors are null or an array of at least as many. Only this program uses
        // the memory.
        unsafe { cuMemSetAccess(ptr, bytes, place, count) }
    }),
    ("cuMemGetAccess", |world| {
        let (place, location) = (world.place::<u64>(), world.location());
        let (ptr, _) = range(world, |known| &known.mapped);
        let location = if world.choices.chance(1, 16) { null() } else { &raw const location };
        // SAFETY: the place is null or has room for the result, and the location is null or a
        // local.
        unsafe { cuMemGetAccess(place, location, ptr) }
    }),
];
