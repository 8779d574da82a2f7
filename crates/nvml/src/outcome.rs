//! The outcome of a call: `nvmlReturn_t`, in numbers and words.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A failed call's code. It is never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) c_int);

impl Error {
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub(crate) const UNKNOWN: Self = Self(999);
}

/// The result of a call inside this crate.
pub(crate) type Outcome<T = ()> = Result<T, Error>;

/// Runs a call of the API. No panic unwinds into the caller.
pub(crate) fn api(call: impl FnOnce() -> Outcome) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(Error(code))) => code,
        Err(_) => Error::UNKNOWN.0,
    }
}

/// Writes a result to where the caller wants it.
///
/// # Safety
/// A place that is not null is writable.
pub(crate) unsafe fn write<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(Error::INVALID_ARGUMENT);
    }
    // SAFETY: the caller promises that the place is writable.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Writes a text with its null byte.
///
/// # Errors
/// `INSUFFICIENT_SIZE` if there is no room for all of it.
///
/// # Safety
/// A place that is not null has room for that many bytes.
pub(crate) unsafe fn write_text(to: *mut c_char, room: u32, text: &CStr) -> Outcome {
    if to.is_null() {
        return Err(Error::INVALID_ARGUMENT);
    }
    let bytes = text.to_bytes_with_nul();
    if usize::try_from(room).is_ok_and(|room| room < bytes.len()) {
        return Err(Error::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller promises the room.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// Returns an error in words. The text lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: c_int) -> *const c_char {
    let words = match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        25 => c"Argument version mismatch",
        _ => c"Unknown Error",
    };
    words.as_ptr()
}
