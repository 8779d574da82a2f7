//! Entry points that copy, alone and in batches.
//!
//! Memory of the host that the simulator did not allocate goes through a page-locked allocation of
//! its own, so that the device side pays and moves as it does for any copy.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{CopyAttributes, CopyFlags, DevicePtr, SourceOrder, SpanCopy, StreamHandle};
use pagewise_sim::Submission;

use crate::deferring;
use crate::driver::{Driver, Outcome, answer, has_place, in_context, started_after, stream};
use crate::entry::MemLocation;
use crate::entry::movement::{gather, not_legacy};
use crate::graphs::STREAM_CAPTURE_UNSUPPORTED;
use crate::running::submit;
use crate::work::{Range, Use, Work};

/// `CUmemcpyAttributes` as the driver takes it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemcpyAttributes {
    /// When the source may be read.
    pub source_order: c_int,
    /// Where a managed source had better be read.
    pub source_hint: MemLocation,
    /// Where a managed destination had better be written.
    pub destination_hint: MemLocation,
    /// Hints about the way of the copy.
    pub flags: c_uint,
}

impl From<MemcpyAttributes> for CopyAttributes {
    fn from(attributes: MemcpyAttributes) -> Self {
        Self {
            source_order: SourceOrder(attributes.source_order),
            source_hint: attributes.source_hint.into(),
            destination_hint: attributes.destination_hint.into(),
            flags: CopyFlags::from_bits_retain(attributes.flags),
        }
    }
}

/// The arrays of a batch of copies, as the caller passes them.
#[derive(Debug, Clone, Copy)]
struct Batch {
    destinations: *const u64,
    sources: *const u64,
    sizes: *const usize,
    count: usize,
    attributes: *const MemcpyAttributes,
    starts: *const usize,
    kinds: usize,
}

impl Batch {
    /// Carries the copies out. `failed` is set to the copy that a refusal is about.
    ///
    /// # Safety
    /// The arrays must be null or have as many items as are announced; otherwise as
    /// [`cuMemcpyAsync`] for each copy.
    unsafe fn copy(self, driver: &Driver, on: StreamHandle, failed: &mut Option<usize>) -> Outcome {
        let Self { destinations, sources, sizes, count, attributes, starts, kinds } = self;
        has_place(destinations)?;
        has_place(sources)?;
        has_place(sizes)?;
        has_place(attributes)?;
        has_place(starts)?;
        let copies = gather(count, |item| {
            // SAFETY: no array is null, so by this function's contract each has `count` items, and
            // `item` is below `count`. Items are integers, of which every bit pattern is a value.
            unsafe {
                let to = destinations.wrapping_add(item).read_unaligned();
                let from = sources.wrapping_add(item).read_unaligned();
                let bytes = sizes.wrapping_add(item).read_unaligned() as u64;
                SpanCopy::new(DevicePtr(to), DevicePtr(from), bytes)
            }
        })?;
        let both = gather(kinds, |item| {
            // SAFETY: neither array is null, so by this function's contract each has `kinds` items,
            // and `item` is below `kinds`. Items consist of integers, of which every bit pattern is
            // a value.
            unsafe {
                let attributes = attributes.wrapping_add(item).read_unaligned();
                let start = starts.wrapping_add(item).read_unaligned();
                (CopyAttributes::from(attributes), start)
            }
        })?;
        let (attributes, starts): (Vec<_>, Vec<_>) = both.into_iter().unzip();
        let batch = Submission::CopyBatch { copies, attributes, starts };
        // SAFETY: `memcpy_batch` asks that no other code uses the ranges and that they do not
        // overlap; the caller of this function promised that. The simulator refuses ranges outside
        // of live allocations.
        let copied = unsafe { deferring::call_on(driver, on, batch) }?;
        answer(copied.inspect_err(|error| *failed = error.item()))
    }
}

/// The stream of a batch. One that captures refuses the batch and goes on, as driver 580 does.
fn batch_stream(driver: &Driver, on: *mut c_void) -> Outcome<StreamHandle> {
    if driver.capturing(stream(on)).is_some() {
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    }
    let on = driver.stream(on)?;
    driver.working(on, driver.device_of_stream(on)?)
}

/// `cuMemcpyBatchAsync`, the form of CUDA 12.8
///
/// # Safety
/// The arrays must be null or have as many items as are announced, and `fail_index` must be null or
/// valid for writing; otherwise as [`cuMemcpyAsync`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyBatchAsync(
    destinations: *const u64,
    sources: *const u64,
    sizes: *const usize,
    count: usize,
    attributes: *const MemcpyAttributes,
    starts: *const usize,
    kinds: usize,
    fail_index: *mut usize,
    on: *mut c_void,
) -> c_int {
    let batch = Batch { destinations, sources, sizes, count, attributes, starts, kinds };
    started_after("cuMemcpyBatchAsync", not_legacy(on), |driver| {
        let on = batch_stream(driver, on)?;
        let mut failed = None;
        // SAFETY: the caller promises of the arrays and the ranges what `copy` asks for.
        let copied = unsafe { batch.copy(driver, on, &mut failed) };
        if !fail_index.is_null() {
            // SAFETY: `fail_index` is not null, so the caller promises that it can be written.
            unsafe { fail_index.write_unaligned(failed.unwrap_or(usize::MAX)) };
        }
        copied
    })
}

/// `cuMemcpyBatchAsync`, the form of CUDA 13.0
///
/// # Safety
/// The arrays must be null or have as many items as are announced; otherwise as [`cuMemcpyAsync`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyBatchAsync_v2(
    destinations: *const u64,
    sources: *const u64,
    sizes: *const usize,
    count: usize,
    attributes: *const MemcpyAttributes,
    starts: *const usize,
    kinds: usize,
    on: *mut c_void,
) -> c_int {
    let batch = Batch { destinations, sources, sizes, count, attributes, starts, kinds };
    started_after("cuMemcpyBatchAsync_v2", not_legacy(on), |driver| {
        let on = batch_stream(driver, on)?;
        // SAFETY: the caller promises of the arrays and the ranges what `copy` asks for.
        unsafe { batch.copy(driver, on, &mut None) }
    })
}

/// Runs a copy between places that the caller promised nothing about, in a stream or at once.
///
/// # Safety
/// No other code may use the ranges.
unsafe fn copy_any(
    symbol: &str,
    destination: u64,
    source: u64,
    bytes: usize,
    on: Option<*mut c_void>,
) -> c_int {
    in_context(symbol, |driver, _| {
        let (to, from) = ((destination, Use::Write), (source, Use::Read));
        // SAFETY: `submit` asks of the ranges what this function asks of them.
        unsafe { submit(driver, on, Work::Copy(Range { to, from, bytes })) }
    })
}

/// Runs a copy from memory of the host.
///
/// # Safety
/// `source` must be null or valid for reading `bytes` bytes; no other code may use the ranges.
unsafe fn copy_from_host(
    symbol: &str,
    destination: u64,
    source: *const c_void,
    bytes: usize,
    on: Option<*mut c_void>,
) -> c_int {
    let source = source.expose_provenance() as u64;
    in_context(symbol, |driver, _| {
        let (to, from) = ((destination, Use::Write), (source, Use::Promised));
        // SAFETY: `submit` asks of the ranges what this function asks of them.
        unsafe { submit(driver, on, Work::Copy(Range { to, from, bytes })) }
    })
}

/// Runs a copy to memory of the host.
///
/// # Safety
/// `destination` must be null or valid for writing `bytes` bytes; no other code may use the ranges.
unsafe fn copy_to_host(
    symbol: &str,
    destination: *mut c_void,
    source: u64,
    bytes: usize,
    on: Option<*mut c_void>,
) -> c_int {
    let destination = destination.expose_provenance() as u64;
    in_context(symbol, |driver, _| {
        let (to, from) = ((destination, Use::Promised), (source, Use::Read));
        // SAFETY: `submit` asks of the ranges what this function asks of them.
        unsafe { submit(driver, on, Work::Copy(Range { to, from, bytes })) }
    })
}

/// `cuMemcpyAsync`: between memory of the simulator and any memory of the process.
///
/// # Safety
/// No thread, and no other work of a device, may use the ranges.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyAsync(
    destination: u64,
    source: u64,
    bytes: usize,
    on: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises that no other code uses the ranges.
    unsafe { copy_any("cuMemcpyAsync", destination, source, bytes, Some(on)) }
}

/// `cuMemcpy`
///
/// # Safety
/// As [`cuMemcpyAsync`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy(destination: u64, source: u64, bytes: usize) -> c_int {
    // SAFETY: the caller promises that no other code uses the ranges.
    unsafe { copy_any("cuMemcpy", destination, source, bytes, None) }
}

/// `cuMemcpyDtoDAsync`
///
/// # Safety
/// As [`cuMemcpyAsync`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    destination: u64,
    source: u64,
    bytes: usize,
    on: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises that no other code uses the ranges.
    unsafe { copy_any("cuMemcpyDtoDAsync_v2", destination, source, bytes, Some(on)) }
}

/// `cuMemcpyDtoD`
///
/// # Safety
/// As [`cuMemcpyAsync`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoD_v2(destination: u64, source: u64, bytes: usize) -> c_int {
    // SAFETY: the caller promises that no other code uses the ranges.
    unsafe { copy_any("cuMemcpyDtoD_v2", destination, source, bytes, None) }
}

/// Copies between contexts: addresses say where memory is, so the contexts have to exist only.
///
/// # Safety
/// No other code may use the ranges.
unsafe fn copy_between(
    symbol: &str,
    (destination, to): (u64, *mut c_void),
    (source, from): (u64, *mut c_void),
    bytes: usize,
    on: Option<*mut c_void>,
) -> c_int {
    in_context(symbol, |driver, _| {
        driver.live(to.addr())?;
        driver.live(from.addr())?;
        let (to, from) = ((destination, Use::Write), (source, Use::Read));
        // SAFETY: `submit` asks of the ranges what this function asks of them.
        unsafe { submit(driver, on, Work::Copy(Range { to, from, bytes })) }
    })
}

/// `cuMemcpyPeer`
///
/// # Safety
/// As [`cuMemcpyAsync`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyPeer(
    destination: u64,
    to: *mut c_void,
    source: u64,
    from: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller promises that no other code uses the ranges.
    unsafe { copy_between("cuMemcpyPeer", (destination, to), (source, from), bytes, None) }
}

/// `cuMemcpyPeerAsync`
///
/// # Safety
/// As [`cuMemcpyAsync`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyPeerAsync(
    destination: u64,
    to: *mut c_void,
    source: u64,
    from: *mut c_void,
    bytes: usize,
    on: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises that no other code uses the ranges.
    unsafe { copy_between("cuMemcpyPeerAsync", (destination, to), (source, from), bytes, Some(on)) }
}

/// `cuMemcpyHtoDAsync`
///
/// # Safety
/// `source` must be null or valid for reading `bytes` bytes; otherwise as [`cuMemcpyAsync`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    destination: u64,
    source: *const c_void,
    bytes: usize,
    on: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises of the ranges what `copy_from_host` asks for.
    unsafe { copy_from_host("cuMemcpyHtoDAsync_v2", destination, source, bytes, Some(on)) }
}

/// `cuMemcpyHtoD`
///
/// # Safety
/// As [`cuMemcpyHtoDAsync_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(
    destination: u64,
    source: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller promises of the ranges what `copy_from_host` asks for.
    unsafe { copy_from_host("cuMemcpyHtoD_v2", destination, source, bytes, None) }
}

/// `cuMemcpyDtoHAsync`
///
/// # Safety
/// `destination` must be null or valid for writing `bytes` bytes; otherwise as [`cuMemcpyAsync`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    destination: *mut c_void,
    source: u64,
    bytes: usize,
    on: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises of the ranges what `copy_to_host` asks for.
    unsafe { copy_to_host("cuMemcpyDtoHAsync_v2", destination, source, bytes, Some(on)) }
}

/// `cuMemcpyDtoH`
///
/// # Safety
/// As [`cuMemcpyDtoHAsync_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(
    destination: *mut c_void,
    source: u64,
    bytes: usize,
) -> c_int {
    // SAFETY: the caller promises of the ranges what `copy_to_host` asks for.
    unsafe { copy_to_host("cuMemcpyDtoH_v2", destination, source, bytes, None) }
}
