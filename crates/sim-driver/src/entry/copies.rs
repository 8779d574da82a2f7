//! Entry points that fill and copy, alone and in batches.
//!
//! Memory of the host that the simulator did not allocate goes through a page-locked allocation of
//! its own, so that the device side pays and moves as it does for any copy.

use std::ffi::{c_int, c_uint, c_ushort, c_void};

use pagewise_hal::{
    Backend, Code, CopyAttributes, CopyFlags, DevicePtr, HostAllocFlags, Result, SourceOrder, Span,
    SpanCopy, StreamHandle,
};
use pagewise_sim::SimBackend;

use crate::driver::{Driver, Outcome, answer, has_place, in_context, started_after, stream};
use crate::entry::movement::{gather, not_legacy};
use crate::entry::{MemLocation, span, span_is_live};

/// The range of a fill of `count` elements. Too many for an address space wrap (CONTRACT-107).
const fn elements(ptr: u64, count: usize, width: usize) -> Span {
    span(ptr, count.wrapping_mul(width))
}

/// Carries a fill out, by the simulator's call.
fn fill(
    symbol: &str,
    range: Span,
    on: *mut c_void,
    call: impl FnOnce(&SimBackend, Span, StreamHandle) -> Result<()>,
) -> c_int {
    in_context(symbol, |driver, _| {
        let on = driver.working_stream(stream(on))?;
        answer(call(&driver.sim, range, on))
    })
}

/// `cuMemsetD8Async`
///
/// # Safety
/// No thread, and no other work of a device, may use the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    ptr: u64,
    value: u8,
    bytes: usize,
    on: *mut c_void,
) -> c_int {
    fill("cuMemsetD8Async", elements(ptr, bytes, 1), on, |sim, range, on| {
        // SAFETY: `memset` asks that no other code uses the range; the caller of this function
        // promised that. The simulator refuses ranges outside of live allocations.
        unsafe { sim.memset(range, value, on) }
    })
}

/// `cuMemsetD16Async`
///
/// # Safety
/// As [`cuMemsetD8Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD16Async(
    ptr: u64,
    value: c_ushort,
    count: usize,
    on: *mut c_void,
) -> c_int {
    fill("cuMemsetD16Async", elements(ptr, count, 2), on, |sim, range, on| {
        // SAFETY: `memset_d16` asks that no other code uses the range; the caller of this function
        // promised that. The simulator refuses ranges outside of live allocations.
        unsafe { sim.memset_d16(range, value, on) }
    })
}

/// `cuMemsetD32Async`
///
/// # Safety
/// As [`cuMemsetD8Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32Async(
    ptr: u64,
    value: c_uint,
    count: usize,
    on: *mut c_void,
) -> c_int {
    fill("cuMemsetD32Async", elements(ptr, count, 4), on, |sim, range, on| {
        // SAFETY: `memset_d32` asks that no other code uses the range; the caller of this function
        // promised that. The simulator refuses ranges outside of live allocations.
        unsafe { sim.memset_d32(range, value, on) }
    })
}

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
        // SAFETY: `memcpy_batch` asks that no other code uses the ranges and that they do not
        // overlap; the caller of this function promised that. The simulator refuses ranges outside
        // of live allocations.
        let copied = unsafe { driver.sim.memcpy_batch(&copies, &attributes, &starts, on) };
        answer(copied.inspect_err(|error| *failed = error.item()))
    }
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
        let on = driver.working_stream(driver.stream(on)?)?;
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
        let on = driver.working_stream(driver.stream(on)?)?;
        // SAFETY: the caller promises of the arrays and the ranges what `copy` asks for.
        unsafe { batch.copy(driver, on, &mut None) }
    })
}

/// `cuMemcpyAsync`, between simulated allocations
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
    // SAFETY: the caller promises of the ranges what `copy_between` asks for.
    unsafe { copy_between("cuMemcpyAsync", destination, source, bytes, on) }
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
    // SAFETY: the caller promises of the ranges what `copy_between` asks for.
    unsafe { copy_between("cuMemcpyDtoDAsync_v2", destination, source, bytes, on) }
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
    in_context("cuMemcpyHtoDAsync_v2", |driver, _| {
        let on = driver.working_stream(stream(on))?;
        if bytes == 0 {
            return Ok(());
        }
        has_place(source)?;
        check_live(driver, destination, bytes)?;
        let staging = Staging::new(driver, bytes)?;
        // SAFETY: `source` is not null, so the caller promises that `bytes` bytes of it can be
        // read; the staging memory has so many and is new, so the two do not overlap.
        unsafe { staging.place().copy_from_nonoverlapping(source.cast(), bytes) };
        // SAFETY: `copy` asks that no other code uses the ranges: the caller promises that of the
        // destination, and only this function knows the staging memory.
        unsafe { copy(driver, destination, staging.ptr.0, bytes, on) }
    })
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
    in_context("cuMemcpyDtoHAsync_v2", |driver, _| {
        let on = driver.working_stream(stream(on))?;
        if bytes == 0 {
            return Ok(());
        }
        has_place(destination)?;
        check_live(driver, source, bytes)?;
        let staging = Staging::new(driver, bytes)?;
        // SAFETY: `copy` asks that no other code uses the ranges: the caller promises that of the
        // source, and only this function knows the staging memory.
        unsafe { copy(driver, staging.ptr.0, source, bytes, on) }?;
        // SAFETY: `destination` is not null, so the caller promises that `bytes` bytes of it can be
        // written. The staging memory has so many, and only this function knows it, so the two do
        // not overlap.
        unsafe { destination.cast::<u8>().copy_from_nonoverlapping(staging.place(), bytes) };
        Ok(())
    })
}

/// Refuses a range that is not within one live allocation before memory of the caller is read, of
/// which there may be less than a wrong size says.
fn check_live(driver: &Driver, ptr: u64, bytes: usize) -> Outcome {
    if span_is_live(driver, ptr, bytes as u64) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// An entry point that copies between simulated allocations.
///
/// # Safety
/// As [`cuMemcpyAsync`].
unsafe fn copy_between(
    symbol: &str,
    destination: u64,
    source: u64,
    bytes: usize,
    on: *mut c_void,
) -> c_int {
    in_context(symbol, |driver, _| {
        let on = driver.working_stream(stream(on))?;
        // SAFETY: `copy` asks that no other code uses the ranges; the caller of this function
        // promised that.
        unsafe { copy(driver, destination, source, bytes, on) }
    })
}

/// # Safety
/// As [`cuMemcpyAsync`].
unsafe fn copy(
    driver: &Driver,
    destination: u64,
    source: u64,
    bytes: usize,
    on: StreamHandle,
) -> Outcome {
    let (to, from) = (DevicePtr(destination), DevicePtr(source));
    // SAFETY: `memcpy` asks that no other code uses the ranges; the caller of this function
    // promised that. The simulator refuses ranges outside of live allocations.
    answer(unsafe { driver.sim.memcpy(to, from, bytes as u64, on) })
}

/// Page-locked memory for one copy.
struct Staging<'a> {
    driver: &'a Driver,
    ptr: DevicePtr,
}

impl<'a> Staging<'a> {
    fn new(driver: &'a Driver, bytes: usize) -> Outcome<Self> {
        let flags = HostAllocFlags::empty();
        let ptr = answer(driver.sim.alloc_pinned(bytes as u64, flags))?;
        Ok(Self { driver, ptr })
    }

    /// The memory: a simulated address is the address of the bytes.
    fn place(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.ptr.0 as usize)
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        // SAFETY: `free_pinned` asks that no code uses the memory any more: the copy is complete
        // when the simulator returns from it, and only this value knows the address.
        _ = unsafe { self.driver.sim.free_pinned(self.ptr) };
    }
}
