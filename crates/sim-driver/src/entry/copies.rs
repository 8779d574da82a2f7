//! Fills and copies.
//!
//! Memory of the host that the simulator did not allocate goes through a page-locked allocation of
//! its own, so that the device side pays and moves as it does for any copy.

use std::ffi::{c_int, c_void};

use pagewise::{Backend, DevicePtr, HostAllocFlags, StreamHandle};

use crate::entry::span;
use crate::machine::{Machine, Outcome, answer, has_place, in_context, stream};

/// `cuMemsetD8Async`
///
/// # Safety
/// Nobody else may use the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    ptr: u64,
    value: u8,
    bytes: usize,
    on: *mut c_void,
) -> c_int {
    in_context(|machine, _| {
        let on = machine.working_stream(stream(on))?;
        // SAFETY: the caller's duty is the same.
        answer(unsafe { machine.sim.memset(span(ptr, bytes), value, on) })
    })
}

/// `cuMemcpyAsync`, between simulated allocations
///
/// # Safety
/// Nobody else may use the ranges.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyAsync(
    destination: u64,
    source: u64,
    bytes: usize,
    on: *mut c_void,
) -> c_int {
    in_context(|machine, _| {
        let on = machine.working_stream(stream(on))?;
        // SAFETY: the caller's duty is the same.
        unsafe { copy(machine, destination, source, bytes, on) }
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
    // SAFETY: the caller's duty is the same.
    unsafe { cuMemcpyAsync(destination, source, bytes, on) }
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
    in_context(|machine, _| {
        has_place(source.cast_mut())?;
        let on = machine.working_stream(stream(on))?;
        let staging = Staging::new(machine, bytes)?;
        // SAFETY: both sides have `bytes` bytes, and the staging memory is new.
        unsafe { staging.place().copy_from_nonoverlapping(source.cast(), bytes) };
        // SAFETY: the caller's duty is the same.
        unsafe { copy(machine, destination, staging.ptr.0, bytes, on) }
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
    in_context(|machine, _| {
        has_place(destination)?;
        let on = machine.working_stream(stream(on))?;
        let staging = Staging::new(machine, bytes)?;
        // SAFETY: the caller's duty is the same.
        unsafe { copy(machine, staging.ptr.0, source, bytes, on) }?;
        // SAFETY: both sides have `bytes` bytes, and the staging memory is ours alone.
        unsafe { destination.cast::<u8>().copy_from_nonoverlapping(staging.place(), bytes) };
        Ok(())
    })
}

/// # Safety
/// As [`cuMemcpyAsync`].
unsafe fn copy(
    machine: &Machine,
    destination: u64,
    source: u64,
    bytes: usize,
    on: StreamHandle,
) -> Outcome {
    let (to, from) = (DevicePtr(destination), DevicePtr(source));
    // SAFETY: the caller's duty is the same.
    answer(unsafe { machine.sim.memcpy(to, from, bytes as u64, on) })
}

/// Page-locked memory for one copy.
struct Staging<'a> {
    machine: &'a Machine,
    ptr: DevicePtr,
}

impl<'a> Staging<'a> {
    fn new(machine: &'a Machine, bytes: usize) -> Outcome<Self> {
        let flags = HostAllocFlags::empty();
        let ptr = answer(machine.sim.alloc_pinned(bytes as u64, flags))?;
        Ok(Self { machine, ptr })
    }

    /// The memory: a simulated address is the address of the bytes.
    fn place(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.ptr.0 as usize)
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        // SAFETY: the copy is complete, and nobody else knows the memory.
        _ = unsafe { self.machine.sim.free_pinned(self.ptr) };
    }
}
