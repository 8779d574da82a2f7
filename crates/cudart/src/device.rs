//! Devices: how many, which one a thread uses, reset, versions.

use std::ffi::{c_int, c_uint};

use crate::contexts::{check, choose, count, current, device, primary_context, reset};
use crate::driver::{cu, initialise, version};
use crate::outcome::{Error, api, write};

/// The release of libcudart.so.12 with the functions of this library, as 1000 × major + 10 × minor.
pub(crate) const RELEASE_12: c_int = 12_090;

/// The release of libcudart.so.13 with the functions of this library.
pub(crate) const RELEASE_13: c_int = 13_050;

/// The flags that `cudaSetDeviceFlags` takes: the schedule, mapped host memory, the size of local
/// memory, and synchronous memory operations.
const DEVICE_FLAGS: c_uint = 0x9f;

/// The flag of a primary context that maps host memory, which every context does.
const MAP_HOST: c_uint = 0x08;

/// Writes the number of devices. Returns 100 (`cudaErrorNoDevice`) if there is none.
pub unsafe extern "C" fn cudaGetDeviceCount(to: *mut c_int) -> c_int {
    api(|| {
        let count = count()?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, count) }
    })
}

/// Writes the device of the current context, or else the one that the thread chose.
pub unsafe extern "C" fn cudaGetDevice(to: *mut c_int) -> c_int {
    api(|| {
        let device = device()?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, device) }
    })
}

/// Makes a device this thread's, and its primary context current. Returns 101
/// (`cudaErrorInvalidDevice`) if there is no such device.
pub extern "C" fn cudaSetDevice(device: c_int) -> c_int {
    api(|| choose(device))
}

/// Makes the primary context of a device without making it current. `set` is 0, or 1 to apply the
/// flags of `cudaSetDeviceFlags`.
pub extern "C" fn cudaInitDevice(device: c_int, flags: c_uint, set: c_uint) -> c_int {
    api(|| {
        check(device)?;
        match set {
            0 => {}
            1 if flags & !DEVICE_FLAGS == 0 => {
                // SAFETY: the entry point takes a device and flags.
                unsafe { cu!("cuDevicePrimaryCtxSetFlags" @ 11000, device, flags & !MAP_HOST) }?;
            }
            _ => return Err(Error::INVALID_VALUE),
        }
        primary_context(device).map(drop)
    })
}

/// Chooses from several devices: takes the first of a list that exists. An empty list allows all.
pub unsafe extern "C" fn cudaSetValidDevices(devices: *mut c_int, length: c_int) -> c_int {
    api(|| {
        let count = count()?;
        let length = usize::try_from(length).map_err(|_| Error::INVALID_VALUE)?;
        if length == 0 {
            return Ok(());
        }
        if devices.is_null() || length > usize::try_from(count).unwrap_or(0) {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the caller promises that many ordinals.
        let devices = unsafe { std::slice::from_raw_parts(devices, length) };
        devices.iter().try_for_each(|device| check(*device))?;
        choose(devices[0])
    })
}

/// Sets the flags of the thread's device: how the host waits, and what contexts allow.
pub extern "C" fn cudaSetDeviceFlags(flags: c_uint) -> c_int {
    api(|| {
        if flags & !DEVICE_FLAGS != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let device = device()?;
        // SAFETY: the entry point takes a device and flags.
        unsafe { cu!("cuDevicePrimaryCtxSetFlags" @ 11000, device, flags & !MAP_HOST) }
    })
}

/// Writes the flags of the thread's device. Host memory is always mapped.
pub unsafe extern "C" fn cudaGetDeviceFlags(to: *mut c_uint) -> c_int {
    api(|| {
        let (mut flags, mut active): (c_uint, c_int) = (0, 0);
        if current()?.is_null() {
            let device = device()?;
            // SAFETY: the places are writable.
            unsafe {
                cu!("cuDevicePrimaryCtxGetState" @ 7000, device, &raw mut flags, &raw mut active)
            }?;
        } else {
            // SAFETY: the place is writable.
            unsafe { cu!("cuCtxGetFlags" @ 7000, &raw mut flags) }?;
        }
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, flags | MAP_HOST) }
    })
}

/// Destroys all that the thread's device holds for this process: memory, streams, events. Handles
/// and addresses from before are invalid.
pub extern "C" fn cudaDeviceReset() -> c_int {
    api(|| reset(device()?))
}

/// Does what `cudaDeviceReset` does.
pub extern "C" fn cudaThreadExit() -> c_int {
    cudaDeviceReset()
}

/// Writes an attribute of a device.
pub unsafe extern "C" fn cudaDeviceGetAttribute(
    to: *mut c_int,
    attribute: c_int,
    device: c_int,
) -> c_int {
    api(|| {
        initialise()?;
        // SAFETY: the driver refuses a null place; the caller promises that others are writable.
        unsafe { cu!("cuDeviceGetAttribute" @ 2000, to, attribute, device) }
    })
}

/// Writes the newest version of CUDA that the driver has, as 1000 × major + 10 × minor, or 0 if
/// there is no driver.
pub unsafe extern "C" fn cudaDriverGetVersion(to: *mut c_int) -> c_int {
    api(|| {
        let found = match version() {
            Err(Error::INSUFFICIENT_DRIVER) => 0,
            found => found?,
        };
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, found) }
    })
}

/// Writes the version of this runtime: 13050.
pub unsafe extern "C" fn cudaRuntimeGetVersion(to: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is writable.
    api(|| unsafe { write(to, RELEASE_13) })
}

/// Writes the version of libcudart.so.12: 12090.
pub unsafe extern "C" fn cudaRuntimeGetVersion_12(to: *mut c_int) -> c_int {
    // SAFETY: the caller promises that the place is writable.
    api(|| unsafe { write(to, RELEASE_12) })
}
