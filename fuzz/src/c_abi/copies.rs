//! Hostile calls that fill by elements and copy in batches.

use std::ffi::{c_int, c_uint, c_ushort};
use std::ptr::null_mut;

use pagewise_driver::{
    MemcpyAttributes, cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, cuMemsetD16Async, cuMemsetD32Async,
};

use super::arrays::{Absent, length, start};
use super::memory::two_ranges;
use super::world::{Attempt, World};

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuMemsetD16Async", |world| {
        let ((ptr, bytes), stream) = (elements(world, 2), world.stream());
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD16Async(ptr, c_ushort::from(world.choices.byte()), bytes, stream) }
    }),
    ("cuMemsetD32Async", |world| {
        let ((ptr, bytes), stream) = (elements(world, 4), world.stream());
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD32Async(ptr, c_uint::from(world.choices.byte()), bytes, stream) }
    }),
    ("cuMemcpyBatchAsync", |world| {
        let (batch, stream) = (Batch::new(world), world.stream());
        let (to, from, sizes, count, attributes, starts, kinds) = batch.arguments();
        let mut failed = 7;
        let place = if batch.absent.is(5) { null_mut() } else { &raw mut failed };
        // SAFETY: each array is null or has as many items as announced, the place is null or a
        // local, and no other code uses this program's memory.
        let code = unsafe {
            cuMemcpyBatchAsync(to, from, sizes, count, attributes, starts, kinds, place, stream)
        };
        let none = failed == 7 || failed == usize::MAX;
        assert!(none || (code != 0 && failed < count), "{failed} with {code}");
        code
    }),
    ("cuMemcpyBatchAsync_v2", |world| {
        let (batch, stream) = (Batch::new(world), world.stream());
        let (to, from, sizes, count, attributes, starts, kinds) = batch.arguments();
        // SAFETY: each array is null or has as many items as announced, and no other code uses this
        // program's memory.
        unsafe { cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, starts, kinds, stream) }
    }),
];

/// An address, often a multiple of the width, and a number of elements that often fits.
pub(super) fn elements(world: &mut World<'_, '_>, width: usize) -> (u64, usize) {
    let (ptr, bytes) = world.range();
    if world.choices.chance(1, 8) { (ptr, bytes) } else { (ptr & !3, bytes / width) }
}

/// The arguments of a batch.
struct Batch {
    destinations: Vec<u64>,
    sources: Vec<u64>,
    sizes: Vec<usize>,
    attributes: Vec<MemcpyAttributes>,
    starts: Vec<usize>,
    /// One of five.
    absent: Absent,
}

impl Batch {
    /// At most one copy has bytes, so that no two overlap.
    fn new(world: &mut World<'_, '_>) -> Self {
        let (count, kinds) = (length(world, 5), length(world, 3));
        let mut batch = Self {
            destinations: Vec::new(),
            sources: Vec::new(),
            sizes: Vec::new(),
            attributes: Vec::new(),
            starts: Vec::new(),
            absent: Absent::choose(world),
        };
        for item in 0..count {
            let (to, from, bytes) = two_ranges(world);
            batch.destinations.push(to);
            batch.sources.push(from);
            batch.sizes.push(if item == 0 { bytes } else { 0 });
        }
        for index in 0..kinds as usize {
            batch.attributes.push(MemcpyAttributes {
                source_order: if world.choices.chance(7, 8) { 1 } else { world.small(6) as c_int },
                source_hint: world.location(),
                destination_hint: world.location(),
                flags: if world.choices.chance(7, 8) { 0 } else { world.small(4) as u32 },
            });
            batch.starts.push(start(world, index));
        }
        batch
    }

    /// The arguments that both forms of the call begin with, in their order.
    fn arguments(&self) -> Arguments {
        let Self { destinations, sources, sizes, attributes, starts, absent } = self;
        (
            absent.or_null(0, destinations),
            absent.or_null(1, sources),
            absent.or_null(2, sizes),
            sizes.len(),
            absent.or_null(3, attributes),
            absent.or_null(4, starts),
            starts.len(),
        )
    }
}

type Arguments =
    (*const u64, *const u64, *const usize, usize, *const MemcpyAttributes, *const usize, usize);
