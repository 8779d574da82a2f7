//! The driver's entry points for programs that ask for them by name.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::device::{RELEASE_12, RELEASE_13};
use crate::driver::{initialise, is_per_thread, proc_address};
use crate::outcome::{Error, Outcome, api, write};

/// The flags of a look-up: the legacy or the per-thread default stream.
const FLAGS: u64 = 3;

/// Writes the driver's entry point of a name, in its newest form that release 13.5 knows, or null.
/// `status` gets 0 (found), 1 (no such name) or 2 (the driver is too old); it may be null.
pub unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    to: *mut *mut c_void,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    // SAFETY: the caller promises a C string and writable places.
    api(|| unsafe { entry_point(name, to, RELEASE_13, flags, status) })
}

/// The same for libcudart.so.12, which is of release 12.9.
pub unsafe extern "C" fn cudaGetDriverEntryPoint_12(
    name: *const c_char,
    to: *mut *mut c_void,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    // SAFETY: the caller promises a C string and writable places.
    api(|| unsafe { entry_point(name, to, RELEASE_12, flags, status) })
}

/// Writes the driver's entry point of a name in its newest form that a version of CUDA has.
pub unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_uint,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    api(|| {
        let version = c_int::try_from(version).map_err(|_| Error::INVALID_VALUE)?;
        // SAFETY: the caller promises a C string and writable places.
        unsafe { entry_point(name, to, version, flags, status) }
    })
}

/// # Safety
/// The name is a C string or null; places that are not null are writable.
unsafe fn entry_point(
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> Outcome {
    initialise()?;
    if name.is_null() || to.is_null() || flags & !FLAGS != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let flags = if flags == 0 && is_per_thread() { 2 } else { flags };
    // SAFETY: the caller promises a C string.
    let (address, found) = match unsafe { proc_address(name, version, flags) } {
        // The driver's answer for a name that it lacks.
        Err(Error::SYMBOL_NOT_FOUND) => (std::ptr::null_mut(), 1),
        found => found?,
    };
    if !status.is_null() {
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(status, found) }?;
    } else if address.is_null() {
        return Err(Error::SYMBOL_NOT_FOUND);
    }
    // SAFETY: the caller promises that the place is writable.
    unsafe { write(to, address) }
}
