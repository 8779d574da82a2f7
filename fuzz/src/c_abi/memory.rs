//! Hostile calls that allocate, ask, fill and copy.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};

use pagewise_driver::{
    cuMemAlloc_v2, cuMemAllocAsync, cuMemAllocHost_v2, cuMemAllocManaged, cuMemAllocPitch_v2,
    cuMemFree_v2, cuMemFreeHost, cuMemGetAddressRange_v2, cuMemGetInfo_v2, cuMemHostAlloc,
    cuMemHostGetDevicePointer_v2, cuMemHostGetFlags, cuMemRangeGetAttribute,
    cuMemRangeGetAttributes, cuMemcpyAsync, cuMemcpyDtoDAsync_v2, cuMemcpyDtoHAsync_v2,
    cuMemcpyHtoDAsync_v2, cuMemsetD8Async, cuPointerGetAttribute, cuPointerGetAttributes,
};

use super::world::{Attempt, LONGEST, World};

pub(super) const ENTRY_POINTS: &[(&str, Attempt)] = &[
    ("cuMemGetInfo_v2", |world| {
        let (free, total) = (world.place(), world.place());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuMemGetInfo_v2(free, total) }
    }),
    ("cuMemAllocManaged", |world| {
        let (place, bytes) = (world.place(), world.size());
        let flags = if world.choices.chance(1, 2) { 1 } else { world.small(5) as u32 };
        // SAFETY: the place is null or has room for the result.
        let code = unsafe { cuMemAllocManaged(place, bytes, flags) };
        allocated(world, code, place, bytes, true)
    }),
    ("cuMemAlloc_v2", |world| {
        let (place, bytes) = (world.place(), world.size());
        // SAFETY: the place is null or has room for the result.
        let code = unsafe { cuMemAlloc_v2(place, bytes) };
        allocated(world, code, place, bytes, false)
    }),
    ("cuMemHostAlloc", |world| {
        let (place, bytes) = (world.place::<*mut c_void>(), world.size());
        // SAFETY: the place is null or has room for the result.
        let code = unsafe { cuMemHostAlloc(place, bytes, world.small(8) as u32) };
        allocated(world, code, place.cast(), bytes, false)
    }),
    ("cuMemFree_v2", |world| {
        let ptr = world.address();
        // SAFETY: this program does not use memory again that it freed.
        freed(world, unsafe { cuMemFree_v2(ptr) }, ptr)
    }),
    ("cuMemFreeHost", |world| {
        let ptr = world.address();
        // SAFETY: this program does not use memory again that it freed.
        let code = unsafe { cuMemFreeHost(without_provenance_mut(ptr as usize)) };
        freed(world, code, ptr)
    }),
    ("cuMemRangeGetAttribute", |world| {
        let mut list = [0_i32; 40];
        let data = if world.choices.chance(1, 16) { null_mut() } else { list.as_mut_ptr() };
        let data_bytes = match world.choices.below(4) {
            0 => world.choices.below(161) as usize,
            1 => 8,
            _ => 4,
        };
        let (attribute, (ptr, bytes)) = (world.small(10) as c_int, world.range());
        // SAFETY: the place is null or has room for `data_bytes` bytes.
        unsafe { cuMemRangeGetAttribute(data, data_bytes, attribute, ptr, bytes) }
    }),
    ("cuPointerGetAttribute", |world| {
        let mut guarded = [GUARD; 32];
        let data = if world.choices.chance(1, 16) { null_mut() } else { guarded.as_mut_ptr() };
        let (attribute, ptr) = (world.small(24) as c_int, world.address());
        // SAFETY: the place is null or has room for the longest attribute.
        let code = unsafe { cuPointerGetAttribute(data.cast(), attribute, ptr) };
        check_guard(&guarded, if code == 0 { width(attribute) } else { 0 });
        code
    }),
    ("cuPointerGetAttributes", pointer_attributes),
    ("cuMemsetD8Async", |world| {
        let ((ptr, bytes), stream) = (world.range(), world.stream());
        // SAFETY: no other code uses this program's memory.
        unsafe { cuMemsetD8Async(ptr, world.choices.byte(), bytes, stream) }
    }),
    ("cuMemcpyAsync", |world| {
        let (to, from, bytes) = two_ranges(world);
        let stream = world.stream();
        // SAFETY: no other code uses this program's memory, and the ranges do not overlap.
        unsafe { cuMemcpyAsync(to, from, bytes, stream) }
    }),
    ("cuMemcpyDtoDAsync_v2", |world| {
        let (to, from, bytes) = two_ranges(world);
        let stream = world.stream();
        // SAFETY: no other code uses this program's memory, and the ranges do not overlap.
        unsafe { cuMemcpyDtoDAsync_v2(to, from, bytes, stream) }
    }),
    ("cuMemcpyHtoDAsync_v2", |world| {
        let ((ptr, bytes), stream, host) = (world.range(), world.stream(), host(world));
        // SAFETY: the host's range is null or longer than any allocation; the driver refuses such a
        // length before it reads the range.
        unsafe { cuMemcpyHtoDAsync_v2(ptr, host, bytes, stream) }
    }),
    ("cuMemcpyDtoHAsync_v2", |world| {
        let ((ptr, bytes), stream, host) = (world.range(), world.stream(), host(world));
        // SAFETY: the host's range is null or longer than any allocation; the driver refuses such a
        // length before it writes the range. No other code uses the buffer.
        unsafe { cuMemcpyDtoHAsync_v2(host, ptr, bytes, stream) }
    }),
    ("cuMemAllocHost_v2", |world| {
        let (place, bytes) = (world.place::<*mut c_void>(), world.size());
        // SAFETY: each place is null or has room for its result.
        let code = unsafe { cuMemAllocHost_v2(place, bytes) };
        allocated(world, code, place.cast(), bytes, false)
    }),
    ("cuMemAllocPitch_v2", |world| {
        let (place, mut pitch) = (world.place(), 0);
        let (width, height) =
            (world.choices.below(5000) as usize, world.choices.below(64) as usize);
        // Rows of a TiB and more fit nowhere. Those that fit are short: copies write all of them.
        let is_wide = world.choices.chance(1, 8);
        let width = if is_wide { 1 << (40 + world.choices.below(24)) } else { width };
        let element = [4, 8, 16, world.small(20) as u32][world.choices.below(4) as usize];
        // SAFETY: the place is null or has room for the result, and the pitch is a local.
        let code = unsafe { cuMemAllocPitch_v2(place, &raw mut pitch, width, height, element) };
        allocated(world, code, place, pitch.wrapping_mul(height), false)
    }),
    ("cuMemAllocAsync", |world| {
        let (place, bytes, stream) = (world.place(), world.size(), world.stream());
        // SAFETY: each place is null or has room for its result.
        let code = unsafe { cuMemAllocAsync(place, bytes, stream) };
        allocated(world, code, place, bytes, false)
    }),
    ("cuMemGetAddressRange_v2", |world| {
        let (base, size, ptr) = (world.place(), world.place(), world.address());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuMemGetAddressRange_v2(base, size, ptr) }
    }),
    ("cuMemHostGetFlags", |world| {
        let (place, ptr) = (world.place(), world.address());
        // SAFETY: each place is null or has room for its result.
        unsafe { cuMemHostGetFlags(place, without_provenance_mut(ptr as usize)) }
    }),
    ("cuMemHostGetDevicePointer_v2", |world| {
        let (place, ptr) = (world.place(), world.address());
        let flags = if world.choices.chance(7, 8) { 0 } else { 1 };
        // SAFETY: each place is null or has room for its result.
        unsafe { cuMemHostGetDevicePointer_v2(place, without_provenance_mut(ptr as usize), flags) }
    }),
    ("cuMemRangeGetAttributes", |world| {
        let mut lists = [[0_i32; 40]; 3];
        let mut data = lists.each_mut().map(|list| list.as_mut_ptr().cast::<c_void>());
        let mut sizes = [4, 4, 8];
        let mut attributes = [world.small(10) as c_int, 1, 3];
        let count = world.choices.below(4) as usize;
        let (ptr, bytes) = world.managed_range();
        let sizes = if world.choices.chance(1, 8) { null_mut() } else { sizes.as_mut_ptr() };
        // SAFETY: each array is null or has three items, each place has more room than its size says.
        unsafe {
            cuMemRangeGetAttributes(
                data.as_mut_ptr(),
                sizes,
                attributes.as_mut_ptr(),
                count,
                ptr,
                bytes,
            )
        }
    }),
];

/// The byte that fills places, to see which bytes a call writes.
const GUARD: u8 = 0xA5;

/// How many bytes an attribute takes, by the types of `cuda.h` and by probes on driver 580.
fn width(attribute: c_int) -> usize {
    match attribute {
        2 | 6 | 8 | 9 | 10 | 13 | 15 | 16 | 21 => 4,
        1..=20 => 8,
        _ => 0,
    }
}

/// Bytes after the first `written` are as they were.
fn check_guard(guarded: &[u8], written: usize) {
    let behind = &guarded[written..];
    assert!(behind.iter().all(|byte| *byte == GUARD), "more than {written} bytes: {guarded:x?}");
}

/// Several attributes at once, each with a guarded place.
fn pointer_attributes(world: &mut World<'_, '_>) -> c_int {
    let count = world.choices.below(4) as usize;
    let mut attributes = [0; 3].map(|_: c_int| world.small(24) as c_int);
    let mut guarded = [[GUARD; 32]; 3];
    let mut places = guarded.each_mut().map(|place| place.as_mut_ptr().cast::<c_void>());
    if world.choices.chance(1, 16) {
        places[1] = null_mut();
    }
    let arrays = match world.choices.below(16) {
        0 => (null_mut(), places.as_mut_ptr()),
        1 => (attributes.as_mut_ptr(), null_mut()),
        _ => (attributes.as_mut_ptr(), places.as_mut_ptr()),
    };
    let ptr = world.address();
    // SAFETY: each array is null or has as many items as announced, and each place has room for the
    // longest attribute.
    let code = unsafe { cuPointerGetAttributes(count as u32, arrays.0, arrays.1, ptr) };
    for (index, (place, attribute)) in guarded.iter().zip(attributes).enumerate() {
        // Those before one that does not exist are written.
        check_guard(place, if index < count { width(attribute) } else { 0 });
    }
    code
}

/// Two ranges of the same length that do not overlap, as far as they can be valid.
pub(super) fn two_ranges(world: &mut World<'_, '_>) -> (u64, u64, usize) {
    let ((to, first), (from, second)) = (world.range(), world.range());
    let bytes = first.min(second);
    let overlaps = to < from.saturating_add(bytes as u64) && from < to.saturating_add(bytes as u64);
    (to, from, if overlaps { 0 } else { bytes })
}

/// Memory of the host: none, or the buffer.
pub(super) fn host(world: &mut World<'_, '_>) -> *mut c_void {
    const { assert!(LONGEST.is_power_of_two()) };
    if world.choices.chance(1, 16) { null_mut() } else { world.buffer.cast() }
}

/// Notes an allocation.
fn allocated(
    world: &mut World<'_, '_>,
    code: c_int,
    place: *mut u64,
    bytes: usize,
    managed: bool,
) -> c_int {
    if code == 0 {
        // SAFETY: the call succeeded, so the place is not null, has room and holds an address.
        let ptr = unsafe { place.read_unaligned() };
        world.appeared(ptr, bytes, managed);
    }
    code
}

/// Notes that memory is gone.
fn freed(world: &mut World<'_, '_>, code: c_int, ptr: u64) -> c_int {
    if code == 0 {
        world.gone(ptr);
    }
    code
}
