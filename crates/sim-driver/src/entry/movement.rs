//! Entry points that advise, prefetch and discard.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{Advice, Backend, Code, Location, Span};
use pagewise_sim::{Submission, Targets};

use crate::deferring::call;
use crate::driver::{Outcome, answer, has_place, in_context, started, started_after, stream};
use crate::entry::{MemLocation, span};

/// `cuMemAdvise`, the form of CUDA 8.0
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAdvise(ptr: u64, bytes: usize, advice: c_int, device: c_int) -> c_int {
    in_context("cuMemAdvise", |driver, _| {
        driver.check_unsafe()?;
        answer(driver.sim.advise_ordinal(span(ptr, bytes), Advice(advice), device))
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
    in_context("cuMemAdvise_v2", |driver, _| {
        driver.check_unsafe()?;
        answer(driver.sim.advise(span(ptr, bytes), Advice(advice), location.into()))
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
    started("cuMemPrefetchAsync", |driver| {
        let on = driver.stream(on)?;
        let prefetch = Submission::PrefetchOrdinal(span(ptr, bytes), device);
        // SAFETY: a prefetch asks nothing.
        unsafe { call(driver, on, prefetch) }
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
    started("cuMemPrefetchAsync_v2", |driver| {
        let on = driver.stream(on)?;
        let (span, location) = (span(ptr, bytes), location.into());
        // SAFETY: a prefetch asks nothing.
        unsafe { call(driver, on, Submission::Prefetch { span, location, flags }) }
    })
}

/// Batch calls refuse the legacy default streams before all else, `cuInit` included.
pub(super) fn not_legacy(on: *mut c_void) -> Outcome {
    if stream(on).is_legacy() { Err(Code::INVALID_VALUE) } else { Ok(()) }
}

/// Longer batches are out of memory: their ranges are gathered before any is looked at.
const BATCH_MAX: usize = 1 << 24;

/// Gathers an array of the caller, or what is refused before its items are looked at.
pub(super) fn gather<T>(count: usize, item: impl FnMut(usize) -> T) -> Outcome<Vec<T>> {
    if count > BATCH_MAX {
        return Err(Code::OUT_OF_MEMORY);
    }
    Ok((0..count).map(item).collect())
}

/// The ranges of a batch.
///
/// # Safety
/// Both arrays must be null or have `count` items.
unsafe fn spans(ptrs: *const u64, bytes: *const usize, count: usize) -> Outcome<Vec<Span>> {
    has_place(ptrs)?;
    has_place(bytes)?;
    gather(count, |index| {
        // SAFETY: neither array is null, so by this function's contract each has `count` items, and
        // `index` is below `count`. Items are integers, of which every bit pattern is a value.
        unsafe {
            let ptr = ptrs.wrapping_add(index).read_unaligned();
            span(ptr, bytes.wrapping_add(index).read_unaligned())
        }
    })
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
    has_place(locations)?;
    has_place(starts)?;
    let both = gather(count, |index| {
        // SAFETY: neither array is null, so by this function's contract each has `count` items, and
        // `index` is below `count`. Items are integers, of which every bit pattern is a value.
        unsafe {
            let location = locations.wrapping_add(index).read_unaligned();
            (Location::from(location), starts.wrapping_add(index).read_unaligned())
        }
    })?;
    Ok(both.into_iter().unzip())
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
    started_after("cuMemPrefetchBatchAsync", not_legacy(on), |driver| {
        let on = driver.stream(on)?;
        // SAFETY: the caller promises that both arrays are null or have `count` items.
        let spans = unsafe { spans(ptrs, bytes, count) }?;
        // SAFETY: the caller promises that both arrays are null or have `locations_count` items.
        let (locations, starts) = unsafe { targets(locations, starts, locations_count) }?;
        let targets = Targets { spans, locations, starts, flags };
        // SAFETY: a prefetch asks nothing.
        unsafe { call(driver, on, Submission::PrefetchBatch(targets)) }
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
    started_after("cuMemDiscardBatchAsync", not_legacy(on), |driver| {
        let on = driver.stream(on)?;
        // SAFETY: the caller promises that both arrays are null or have `count` items.
        let spans = unsafe { spans(ptrs, bytes, count) }?;
        // SAFETY: `discard_batch` asks that no code reads the contents until they are written
        // again; the caller of this function promised that.
        unsafe { call(driver, on, Submission::DiscardBatch { spans, flags }) }
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
    started_after("cuMemDiscardAndPrefetchBatchAsync", not_legacy(on), |driver| {
        let on = driver.stream(on)?;
        // SAFETY: the caller promises that both arrays are null or have `count` items.
        let spans = unsafe { spans(ptrs, bytes, count) }?;
        // SAFETY: the caller promises that both arrays are null or have `locations_count` items.
        let (locations, starts) = unsafe { targets(locations, starts, locations_count) }?;
        let targets = Targets { spans, locations, starts, flags };
        // SAFETY: `discard_prefetch_batch` asks that no code reads the contents until they are
        // written again; the caller of this function promised that.
        unsafe { call(driver, on, Submission::DiscardPrefetchBatch(targets)) }
    })
}
