//! Hostile calls that advise, prefetch and discard.

use std::ffi::{c_int, c_void};

use pagewise_driver::{
    MemLocation, cuMemAdvise, cuMemAdvise_v2, cuMemDiscardAndPrefetchBatchAsync,
    cuMemDiscardBatchAsync, cuMemPrefetchAsync, cuMemPrefetchAsync_v2, cuMemPrefetchBatchAsync,
};

use super::arrays::{Absent, length, start};
use super::world::{Attempt, World};

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuMemAdvise", |world| {
        let (ptr, bytes) = world.managed_range();
        cuMemAdvise(ptr, bytes, world.small(8) as c_int, world.ordinal())
    }),
    ("cuMemAdvise_v2", |world| {
        let (ptr, bytes) = world.managed_range();
        cuMemAdvise_v2(ptr, bytes, world.small(8) as c_int, world.location())
    }),
    ("cuMemPrefetchAsync", |world| {
        let (ptr, bytes) = world.managed_range();
        cuMemPrefetchAsync(ptr, bytes, world.ordinal(), world.stream())
    }),
    ("cuMemPrefetchAsync_v2", |world| {
        let (ptr, bytes) = world.managed_range();
        let (location, flags) = (world.location(), flags(world) as u32);
        cuMemPrefetchAsync_v2(ptr, bytes, location, flags, world.stream())
    }),
    ("cuMemPrefetchBatchAsync", |world| batch_with_places(world, cuMemPrefetchBatchAsync)),
    ("cuMemDiscardBatchAsync", |world| {
        let batch = Batch::new(world);
        let (flags, stream) = (flags(world), world.stream());
        let (ptrs, bytes) =
            (batch.absent.or_null(0, &batch.ptrs), batch.absent.or_null(1, &batch.bytes));
        // A count that no list has, where there is no list.
        let absent = ptrs.is_null() || bytes.is_null();
        let count = if absent { world.choices.edge() as usize } else { batch.ptrs.len() };
        // SAFETY: each array is null or has as many items as announced, and this program does not
        // read the contents of its ranges.
        unsafe { cuMemDiscardBatchAsync(ptrs, bytes, count, flags, stream) }
    }),
    ("cuMemDiscardAndPrefetchBatchAsync", |world| {
        batch_with_places(world, cuMemDiscardAndPrefetchBatchAsync)
    }),
];

/// The arguments of a batch.
struct Batch {
    ptrs: Vec<u64>,
    bytes: Vec<usize>,
    locations: Vec<MemLocation>,
    starts: Vec<usize>,
    /// One of four.
    absent: Absent,
}

impl Batch {
    fn new(world: &mut World<'_, '_>) -> Self {
        let (count, places) = (length(world, 5), length(world, 3));
        let (ptrs, bytes) = (0..count).map(|_| world.managed_range()).unzip();
        let locations = (0..places).map(|_| world.location()).collect();
        let starts = (0..places as usize).map(|place| start(world, place)).collect();
        Self { ptrs, bytes, locations, starts, absent: Absent::choose(world) }
    }
}

/// The signature that both batch calls with places have.
type BatchWithPlaces = unsafe extern "C" fn(
    *const u64,
    *const usize,
    usize,
    *const MemLocation,
    *const usize,
    usize,
    u64,
    *mut c_void,
) -> c_int;

/// Makes a batch call that takes ranges and places.
fn batch_with_places(world: &mut World<'_, '_>, call: BatchWithPlaces) -> c_int {
    let batch = Batch::new(world);
    let (flags, stream) = (flags(world), world.stream());
    let Batch { ptrs, bytes, locations, starts, .. } = &batch;
    // SAFETY: each array is null or has as many items as announced, and this program does not read
    // the contents of its ranges, which one of the calls discards.
    unsafe {
        call(
            batch.absent.or_null(0, ptrs),
            batch.absent.or_null(1, bytes),
            ptrs.len(),
            batch.absent.or_null(2, locations),
            batch.absent.or_null(3, starts),
            starts.len(),
            flags,
            stream,
        )
    }
}

/// Mostly none.
fn flags(world: &mut World<'_, '_>) -> u64 {
    if world.choices.chance(1, 8) { world.choices.edge() } else { 0 }
}
