//! Entry points of page-locked host memory.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{Backend, Code, DevicePtr, HostAllocFlags, PointerAttribute};

use crate::contexts::Kind;
use crate::driver::{Driver, Outcome, answer, has_place, in_context, started, store};

/// `CU_MEMHOSTALLOC_DEVICEMAP`, which all page-locked memory has.
pub(crate) const DEVICE_MAP: c_uint = 2;

/// Allocates page-locked memory in the current context.
///
/// # Safety
/// `ptr` must be null or valid for writing.
unsafe fn allocate(symbol: &str, ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    in_context(symbol, |driver, _| {
        driver.check_unsafe()?;
        has_place(ptr)?;
        let wanted = HostAllocFlags::from_bits_retain(flags);
        let made = answer(driver.sim.alloc_pinned(bytes as u64, wanted))?;
        driver.own(made, Kind::Pinned(flags | DEVICE_MAP));
        // SAFETY: by this function's contract `ptr` is null or valid for writing.
        unsafe { store(ptr, std::ptr::with_exposed_provenance_mut(made.0 as usize)) }
    })
}

/// `cuMemHostAlloc`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    ptr: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { allocate("cuMemHostAlloc", ptr, bytes, flags) }
}

/// `cuMemAllocHost`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(ptr: *mut *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { allocate("cuMemAllocHost_v2", ptr, bytes, 0) }
}

/// `cuMemFreeHost`
///
/// # Safety
/// No thread, and no work of a device, may use the allocation any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(ptr: *mut c_void) -> c_int {
    let ptr = DevicePtr(ptr.addr() as u64);
    started("cuMemFreeHost", |driver| {
        driver.check_unsafe()?;
        driver.deferred.wait()?;
        // SAFETY: `free_pinned` asks that no code uses the allocation any more; the caller of this
        // function promised that.
        answer(unsafe { driver.sim.free_pinned(ptr) })?;
        driver.disown(ptr);
        Ok(())
    })
}

/// The first address of the allocation that an address lies in.
fn start_of(driver: &Driver, ptr: u64) -> Outcome<u64> {
    let start = PointerAttribute::RANGE_START_ADDR;
    answer(driver.sim.pointer_attribute(DevicePtr(ptr), start))
}

/// `cuMemHostGetFlags`: of page-locked and registered memory, and 2 of managed memory.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetFlags(flags: *mut c_uint, ptr: *mut c_void) -> c_int {
    in_context("cuMemHostGetFlags", |driver, _| {
        has_place(flags)?;
        let ptr = ptr.addr() as u64;
        let start = start_of(driver, ptr)?;
        let kind = driver.contexts().memory.get(&start).copied();
        let managed = driver.sim.pointer_attribute(DevicePtr(ptr), PointerAttribute::IS_MANAGED);
        let found = match (kind, managed) {
            (Some((_, Kind::Pinned(flags) | Kind::Registered(flags))), _) => flags,
            (_, Ok(1)) => DEVICE_MAP,
            _ => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(flags, found) }
    })
}

/// `CU_MEMORYTYPE_HOST`
const TYPE_HOST: u64 = 1;

/// `cuMemHostGetDevicePointer`: the same address. Flags do not exist.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    out: *mut u64,
    ptr: *mut c_void,
    flags: c_uint,
) -> c_int {
    in_context("cuMemHostGetDevicePointer_v2", |driver, _| {
        has_place(out)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let address = ptr.addr() as u64;
        let kind = PointerAttribute::MEMORY_TYPE;
        match answer(driver.sim.pointer_attribute(DevicePtr(address), kind)) {
            // SAFETY: the caller promises that the place is null or valid for writing.
            Ok(TYPE_HOST) => unsafe { store(out, address) },
            _ => Err(Code::INVALID_VALUE),
        }
    })
}
