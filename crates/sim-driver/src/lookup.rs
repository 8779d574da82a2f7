//! `cuGetProcAddress`: the function that a name and a version stand for.

use std::ffi::{CStr, c_char, c_int, c_void};

use pagewise_hal::{Code, DriverVersion};

use crate::driver::{Driver, Outcome, beside, has_place, store};
use crate::forms::{FORMS, Form};

/// The outcome of a look-up.
enum Found {
    /// The newest form that is not newer than the version asked for.
    Function(*mut c_void),
    /// The driver has no function of this name.
    NoSuchName,
    /// The driver has newer forms only.
    VersionTooOld,
}

impl Found {
    fn address(&self) -> *mut c_void {
        match self {
            Self::Function(address) => *address,
            Self::NoSuchName | Self::VersionTooOld => std::ptr::null_mut(),
        }
    }
}

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`
const LEGACY_STREAM: u64 = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD_STREAM: u64 = 2;

/// Finds the newest form that is not newer than the version asked for. With the flag for the
/// per-thread default stream it is one of the per-thread forms, if the function has any, however
/// old the legacy forms are (all names of driver 580 were looked up with 39 versions and the flags
/// 0, 1 and 2).
///
/// Drivers from 13.0 on refuse to look for a version newer than their own; those before give the
/// newest form that they have (looked up in drivers 535, 550, 580 and 595).
fn find(driver: &Driver, name: &CStr, version: c_int, flags: u64) -> Outcome<Found> {
    if flags & !(LEGACY_STREAM | PER_THREAD_STREAM) != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let own = driver.options.version();
    if version > own.0 && own >= DriverVersion::CUDA_13_0 {
        return Err(Code::INVALID_VALUE);
    }
    let forms = || FORMS.iter().filter(|form| form.name == name && form.is_in(&driver.options));
    let per_thread = flags == PER_THREAD_STREAM && forms().any(|form| form.per_thread);
    let fits = |form: &&Form| form.since <= version && form.per_thread == per_thread;
    Ok(match forms().filter(fits).max_by_key(|form| form.since) {
        Some(form) => Found::Function((form.address)() as *mut c_void),
        None if forms().next().is_none() => Found::NoSuchName,
        None => Found::VersionTooOld,
    })
}

/// `cuGetProcAddress`, the form of CUDA 12.0: a missing function is a success with a null pointer,
/// and `status` tells why.
///
/// # Safety
/// `name` must be NUL-terminated or null; `function` and `status` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    beside(|driver| {
        has_place(name)?;
        has_place(function)?;
        // SAFETY: `name` is not null, so the caller promises that it is NUL-terminated. The text is
        // used within this call only.
        let found = find(driver, unsafe { CStr::from_ptr(name) }, version, flags)?;
        let outcome = match found {
            Found::Function(_) => 0,
            Found::NoSuchName => 1,
            Found::VersionTooOld => 2,
        };
        // SAFETY: the caller promises that both places are null or valid for writing. A null
        // `status` is not stored to.
        unsafe {
            store(function, found.address())?;
            if status.is_null() { Ok(()) } else { store(status, outcome) }
        }
    })
}

/// `cuGetProcAddress`, the form of CUDA 11.3: a missing function is `CUDA_ERROR_NOT_FOUND`.
///
/// # Safety
/// `name` must be NUL-terminated or null; `function` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    beside(|driver| {
        has_place(name)?;
        has_place(function)?;
        // SAFETY: `name` is not null, so the caller promises that it is NUL-terminated. The text is
        // used within this call only.
        let found = find(driver, unsafe { CStr::from_ptr(name) }, version, flags)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(function, found.address()) }?;
        if matches!(found, Found::Function(_)) { Ok(()) } else { Err(Code::NOT_FOUND) }
    })
}
