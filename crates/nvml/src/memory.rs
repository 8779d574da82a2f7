//! Memory of devices.

use std::ffi::{c_int, c_uint};

use crate::device::{Device, ordinal};
use crate::library::started;
use crate::outcome::{Error, api, write};

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All of the device's memory.
    pub total: u64,
    /// The free part.
    pub free: u64,
    /// The part in use.
    pub used: u64,
}

/// `nvmlMemory_v2_t`, in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryV2 {
    /// The structure's version and size: the caller's word on what it has room for.
    pub version: c_uint,
    /// All of the device's memory.
    pub total: u64,
    /// The part that the driver keeps for itself: 0.
    pub reserved: u64,
    /// The free part.
    pub free: u64,
    /// The part in use.
    pub used: u64,
}

/// The version of [`MemoryV2`]: 2, above the structure's size.
const VERSION_2: c_uint = 0x0200_0028;

/// Writes the memory of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Device, to: *mut Memory) -> c_int {
    api(|| {
        let driver = started()?;
        let device = ordinal(driver, device)?;
        if to.is_null() {
            return Err(Error::INVALID_ARGUMENT);
        }
        let (free, total) = driver.memory(device)?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, Memory { total, free, used: total.saturating_sub(free) }) }
    })
}

/// Writes the memory of a device. The caller has set `version`; 25
/// (`NVML_ERROR_ARGUMENT_VERSION_MISMATCH`) is returned for versions but 2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, to: *mut MemoryV2) -> c_int {
    api(|| {
        let driver = started()?;
        let device = ordinal(driver, device)?;
        if to.is_null() {
            return Err(Error::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises that the version can be read.
        let version = unsafe { (&raw const (*to).version).read_unaligned() };
        if version != VERSION_2 {
            return Err(Error::ARGUMENT_VERSION_MISMATCH);
        }
        let (free, total) = driver.memory(device)?;
        let used = total.saturating_sub(free);
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, MemoryV2 { version, total, reserved: 0, free, used }) }
    })
}
