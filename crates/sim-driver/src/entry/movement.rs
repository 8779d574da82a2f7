//! Advice, prefetch, the batch calls.

use std::ffi::{c_int, c_uint, c_void};

use pagewise::{Advice, Backend, Code, Location, Span, StreamHandle};

use crate::entry::{MemLocation, span};
use crate::machine::{Machine, Outcome, answer, in_context, started, stream};

/// `cuMemAdvise`, the form of CUDA 8.0
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise(ptr: u64, bytes: usize, advice: c_int, device: c_int) -> c_int {
    in_context(|machine, _| {
        answer(machine.sim.advise_ordinal(span(ptr, bytes), Advice(advice), device))
    })
}

/// `cuMemAdvise`, the form of CUDA 12.2
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise_v2(
    ptr: u64,
    bytes: usize,
    advice: c_int,
    location: MemLocation,
) -> c_int {
    in_context(|machine, _| {
        answer(machine.sim.advise(span(ptr, bytes), Advice(advice), location.into()))
    })
}

/// `cuMemPrefetchAsync`, the form of CUDA 8.0
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync(
    ptr: u64,
    bytes: usize,
    device: c_int,
    on: *mut c_void,
) -> c_int {
    started(|machine| {
        machine.count_prefetch()?;
        answer(machine.sim.prefetch_ordinal(span(ptr, bytes), device, machine.stream(on)?))
    })
}

/// `cuMemPrefetchAsync`, the form of CUDA 12.2
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPrefetchAsync_v2(
    ptr: u64,
    bytes: usize,
    location: MemLocation,
    flags: c_uint,
    on: *mut c_void,
) -> c_int {
    started(|machine| {
        machine.count_prefetch()?;
        answer(machine.sim.prefetch(span(ptr, bytes), location.into(), flags, machine.stream(on)?))
    })
}

/// The stream of a batch. Legacy default streams are refused as such, context or not.
fn batch_stream(machine: &Machine, raw: *mut c_void) -> Outcome<StreamHandle> {
    let on = stream(raw);
    if on.is_legacy() { Ok(on) } else { machine.stream(raw) }
}

/// The ranges of a batch.
///
/// # Safety
/// Both arrays must be null or have `count` items.
unsafe fn spans(ptrs: *const u64, bytes: *const usize, count: usize) -> Outcome<Vec<Span>> {
    if ptrs.is_null() || bytes.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the length.
    let one = |index| unsafe { span(*ptrs.add(index), *bytes.add(index)) };
    Ok((0..count).map(one).collect())
}

/// The locations of a batch, and the range that each is for first.
///
/// # Safety
/// Both arrays must be null or have `count` items.
unsafe fn targets(
    locations: *const MemLocation,
    starts: *const usize,
    count: usize,
) -> Outcome<(Vec<Location>, Vec<usize>)> {
    if locations.is_null() || starts.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the length.
    let one = |index| unsafe { (Location::from(*locations.add(index)), *starts.add(index)) };
    Ok((0..count).map(one).unzip())
}

/// `cuMemPrefetchBatchAsync`
///
/// # Safety
/// The arrays must be null or have as many items as are announced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPrefetchBatchAsync(
    ptrs: *const u64,
    bytes: *const usize,
    count: usize,
    locations: *const MemLocation,
    starts: *const usize,
    locations_count: usize,
    flags: u64,
    on: *mut c_void,
) -> c_int {
    started(|machine| {
        // SAFETY: the caller's duty is the same.
        let spans = unsafe { spans(ptrs, bytes, count) }?;
        // SAFETY: likewise.
        let (locations, starts) = unsafe { targets(locations, starts, locations_count) }?;
        answer(machine.sim.prefetch_batch(
            &spans,
            &locations,
            &starts,
            flags,
            batch_stream(machine, on)?,
        ))
    })
}

/// `cuMemDiscardBatchAsync`
///
/// # Safety
/// As [`cuMemPrefetchBatchAsync`]; contents are indeterminate until written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemDiscardBatchAsync(
    ptrs: *const u64,
    bytes: *const usize,
    count: usize,
    flags: u64,
    on: *mut c_void,
) -> c_int {
    started(|machine| {
        // SAFETY: the caller's duty is the same.
        let spans = unsafe { spans(ptrs, bytes, count) }?;
        // SAFETY: likewise.
        answer(unsafe { machine.sim.discard_batch(&spans, flags, batch_stream(machine, on)?) })
    })
}

/// `cuMemDiscardAndPrefetchBatchAsync`
///
/// # Safety
/// As [`cuMemDiscardBatchAsync`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemDiscardAndPrefetchBatchAsync(
    ptrs: *const u64,
    bytes: *const usize,
    count: usize,
    locations: *const MemLocation,
    starts: *const usize,
    locations_count: usize,
    flags: u64,
    on: *mut c_void,
) -> c_int {
    started(|machine| {
        // SAFETY: the caller's duty is the same.
        let spans = unsafe { spans(ptrs, bytes, count) }?;
        // SAFETY: likewise.
        let (locations, starts) = unsafe { targets(locations, starts, locations_count) }?;
        let (sim, on) = (&machine.sim, batch_stream(machine, on)?);
        // SAFETY: likewise.
        answer(unsafe { sim.discard_prefetch_batch(&spans, &locations, &starts, flags, on) })
    })
}
