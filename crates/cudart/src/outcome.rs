//! The outcome of a call, and the last failure of each thread.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A failed call's code, `cudaError_t`. It is never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) c_int);

impl Error {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const INVALID_CONFIGURATION: Self = Self(9);
    pub(crate) const INVALID_PITCH_VALUE: Self = Self(12);
    pub(crate) const INVALID_SYMBOL: Self = Self(13);
    pub(crate) const INVALID_MEMCPY_DIRECTION: Self = Self(21);
    pub(crate) const INSUFFICIENT_DRIVER: Self = Self(35);
    pub(crate) const CALL_REQUIRES_NEWER_DRIVER: Self = Self(36);
    pub(crate) const MISSING_CONFIGURATION: Self = Self(52);
    pub(crate) const INVALID_DEVICE_FUNCTION: Self = Self(98);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_RESOURCE_HANDLE: Self = Self(400);
    pub(crate) const SYMBOL_NOT_FOUND: Self = Self(500);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const UNKNOWN: Self = Self(999);

    /// The runtime's error for a driver's code: the same number, if the runtime has it.
    pub(crate) fn of_driver(code: c_int) -> Self {
        if entry_of(code).is_some() { Self(code) } else { Self::UNKNOWN }
    }
}

/// The result of a call inside this crate.
pub(crate) type Outcome<T = ()> = Result<T, Error>;

/// A row of the table of errors: code, name and words.
pub(crate) type Entry = (c_int, &'static CStr, &'static CStr);

static TABLE: &[Entry] = include!(concat!(env!("OUT_DIR"), "/errors.rs"));

/// The row of a code, if the runtime has that code.
pub(crate) fn entry_of(code: c_int) -> Option<&'static Entry> {
    let index = TABLE.binary_search_by_key(&code, |entry| entry.0).ok()?;
    TABLE.get(index)
}

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// The last failure of this thread, or 0. It stays.
pub(crate) fn last() -> c_int {
    LAST.get()
}

/// The last failure of this thread, or 0, which is 0 from now on.
pub(crate) fn take_last() -> c_int {
    LAST.replace(0)
}

/// Runs a call of the API: returns its code, and keeps a failure as the thread's last.
pub(crate) fn api(call: impl FnOnce() -> Outcome) -> c_int {
    let code = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return 0,
        Ok(Err(Error(code))) => code,
        Err(_) => Error::UNKNOWN.0,
    };
    LAST.set(code);
    code
}

/// Writes a result to where the caller wants it.
///
/// # Errors
/// `INVALID_VALUE` if there is no place.
///
/// # Safety
/// A place that is not null is writable.
pub(crate) unsafe fn write<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the caller promises that the place is writable. Callers of a C ABI may not align it.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Reads a structure that the caller hands over.
///
/// # Errors
/// `INVALID_VALUE` if there is none.
///
/// # Safety
/// A pointer that is not null is readable.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Outcome<T> {
    if from.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the caller promises that the structure is readable.
    Ok(unsafe { from.read_unaligned() })
}
