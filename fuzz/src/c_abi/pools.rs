//! Hostile calls of memory pools and stream-ordered allocation.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use pagewise_driver::{
    MemAccessDesc, MemPoolProps, cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuDeviceSetMemPool,
    cuMemAllocFromPoolAsync, cuMemFreeAsync, cuMemGetDefaultMemPool, cuMemGetMemPool,
    cuMemPoolCreate, cuMemPoolDestroy, cuMemPoolGetAccess, cuMemPoolGetAttribute,
    cuMemPoolSetAccess, cuMemPoolSetAttribute, cuMemPoolTrimTo, cuMemSetMemPool,
};

use super::streams::{gone, made};
use super::world::{Attempt, World};

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuMemPoolCreate", |world| {
        let place = world.place::<*mut c_void>();
        let mut props = MemPoolProps {
            allocation_type: world.small(4) as c_int,
            handle_types: if world.choices.chance(1, 2) { 0 } else { world.small(9) as u32 },
            location: world.location(),
            win32_security_attributes: null_mut(),
            max_bytes: if world.choices.chance(3, 4) { 0 } else { world.size() },
            reserved: [0; 56],
        };
        if world.choices.chance(1, 16) {
            props.reserved[world.choices.below(56) as usize] = 1;
        }
        let absent = world.choices.chance(1, 16);
        let props = if absent { null() } else { &raw const props };
        // SAFETY: each pointer is null or points to a live value of its type.
        let code = unsafe { cuMemPoolCreate(place, props) };
        made(code, place, &mut world.pools)
    }),
    ("cuMemPoolDestroy", |world| {
        let pool = world.pool();
        // SAFETY: the simulator looks handles up and refuses those of destroyed pools, so this
        // program may pass such a handle again.
        let code = unsafe { cuMemPoolDestroy(pool) };
        gone(world, code, pool, |world| &mut world.pools)
    }),
    ("cuMemPoolGetAttribute", |world| {
        let (pool, place) = (world.pool(), world.place::<u64>());
        // SAFETY: the place is null or has room for the longest attribute.
        unsafe { cuMemPoolGetAttribute(pool, world.small(16) as c_int, place.cast()) }
    }),
    ("cuMemPoolSetAttribute", |world| {
        let pool = world.pool();
        let mut value = if world.choices.chance(1, 2) { 0 } else { world.choices.edge() };
        let absent = world.choices.chance(1, 16);
        let place = if absent { null_mut() } else { (&raw mut value).cast() };
        // SAFETY: the place is null or points to a live value as wide as the longest attribute.
        unsafe { cuMemPoolSetAttribute(pool, world.small(16) as c_int, place) }
    }),
    ("cuMemPoolTrimTo", |world| {
        let pool = world.pool();
        cuMemPoolTrimTo(pool, world.size())
    }),
    ("cuMemPoolSetAccess", |world| {
        let pool = world.pool();
        let wanted: Vec<MemAccessDesc> = (0..world.choices.below(4))
            .map(|_| MemAccessDesc { location: world.location(), flags: access(world) })
            .collect();
        let absent = world.choices.chance(1, 16);
        // Without an array, any count may be announced.
        let count = if absent { world.choices.edge() as usize } else { wanted.len() };
        let array = if absent { null() } else { wanted.as_ptr() };
        // SAFETY: the array is null or has as many items as announced.
        unsafe { cuMemPoolSetAccess(pool, array, count) }
    }),
    ("cuMemPoolGetAccess", |world| {
        let (place, pool, location) = (world.place(), world.pool(), world.location());
        let location = if world.choices.chance(1, 16) { null() } else { &raw const location };
        // SAFETY: each pointer is null or points to a live value of its type.
        unsafe { cuMemPoolGetAccess(place, pool, location) }
    }),
    ("cuDeviceGetDefaultMemPool", |world| {
        let (place, ordinal) = (world.place(), world.ordinal());
        // SAFETY: the place is null or has room for the result.
        unsafe { cuDeviceGetDefaultMemPool(place, ordinal) }
    }),
    ("cuDeviceGetMemPool", |world| {
        let (place, ordinal) = (world.place(), world.ordinal());
        // SAFETY: the place is null or has room for the result.
        unsafe { cuDeviceGetMemPool(place, ordinal) }
    }),
    ("cuDeviceSetMemPool", |world| cuDeviceSetMemPool(world.ordinal(), world.pool())),
    ("cuMemGetDefaultMemPool", |world| {
        let (place, location, kind) = at_place(world);
        let location = location.as_ref().map_or(null(), |location| &raw const *location);
        // SAFETY: each pointer is null or points to a live value of its type.
        unsafe { cuMemGetDefaultMemPool(place, location, kind) }
    }),
    ("cuMemGetMemPool", |world| {
        let (place, location, kind) = at_place(world);
        let location = location.as_ref().map_or(null(), |location| &raw const *location);
        // SAFETY: each pointer is null or points to a live value of its type.
        unsafe { cuMemGetMemPool(place, location, kind) }
    }),
    ("cuMemSetMemPool", |world| {
        let (_, mut location, mut kind) = at_place(world);
        if world.choices.chance(1, 2) {
            // The place of most pools of this program.
            (location, kind) = (Some(pagewise_driver::MemLocation { kind: 1, id: 0 }), 1);
        }
        let location = location.as_ref().map_or(null(), |location| &raw const *location);
        // SAFETY: each pointer is null or points to a live value of its type.
        unsafe { cuMemSetMemPool(location, kind, world.pool()) }
    }),
    ("cuMemAllocFromPoolAsync", |world| {
        let (place, bytes, pool) = (world.place::<u64>(), world.size(), world.pool());
        let stream = world.stream();
        // SAFETY: the place is null or has room for the result.
        let code = unsafe { cuMemAllocFromPoolAsync(place, bytes, pool, stream) };
        if code == 0 {
            // SAFETY: the call succeeded, so the place is not null, has room and holds an address.
            let ptr = unsafe { place.read_unaligned() };
            world.appeared(ptr, bytes, false);
        }
        code
    }),
    ("cuMemFreeAsync", |world| {
        let (ptr, stream) = (world.address(), world.stream());
        // SAFETY: this program does not use memory again that it freed.
        let code = unsafe { cuMemFreeAsync(ptr, stream) };
        match world.imports.iter().position(|&import| import == ptr) {
            _ if code != 0 => {}
            // The import is over, the memory is still there.
            Some(at) => drop(world.imports.remove(at)),
            None => world.gone(ptr),
        }
        code
    }),
];

/// Access: none, reading and writing, or anything.
fn access(world: &mut World<'_, '_>) -> c_int {
    match world.choices.below(4) {
        0 => world.choices.edge() as c_int,
        1 => 0,
        _ => 3,
    }
}

/// A place for a pool, a location or none, and a kind of memory.
fn at_place(
    world: &mut World<'_, '_>,
) -> (*mut *mut c_void, Option<pagewise_driver::MemLocation>, c_int) {
    let location = world.location();
    let location = (!world.choices.chance(1, 16)).then_some(location);
    (world.place(), location, world.small(4) as c_int)
}
