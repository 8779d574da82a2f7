//! Entry points that fill and copy.
//!
//! Memory of the host that the simulator did not allocate goes through a page-locked allocation of
//! its own, so that the device side pays and moves as it does for any copy.

use std::ffi::{c_int, c_void};

use pagewise_hal::{Backend, Code, DevicePtr, HostAllocFlags, StreamHandle};

use crate::driver::{Driver, Outcome, answer, has_place, in_context, stream};
use crate::entry::{span, span_is_live};

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
    in_context("cuMemsetD8Async", |driver, _| {
        let on = driver.working_stream(stream(on))?;
        // SAFETY: `memset` asks that no other code uses the range; the caller of this function
        // promised that. The simulator refuses ranges outside of live allocations.
        answer(unsafe { driver.sim.memset(span(ptr, bytes), value, on) })
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
    in_context("cuMemcpyAsync", |driver, _| {
        let on = driver.working_stream(stream(on))?;
        // SAFETY: `copy` asks that no other code uses the ranges; the caller of this function
        // promised that.
        unsafe { copy(driver, destination, source, bytes, on) }
    })
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
    in_context("cuMemcpyDtoDAsync_v2", |driver, _| {
        let on = driver.working_stream(stream(on))?;
        // SAFETY: `copy` asks that no other code uses the ranges; the caller of this function
        // promised that.
        unsafe { copy(driver, destination, source, bytes, on) }
    })
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
