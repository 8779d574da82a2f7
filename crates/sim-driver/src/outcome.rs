//! Outcomes of calls, and the places of the caller that results go to and arguments come from.

use std::ffi::{c_int, c_void};

use pagewise_hal::{Code, Result};

/// A call's outcome: a value, or the `CUresult` to return.
pub(crate) type Outcome<T = ()> = std::result::Result<T, c_int>;

/// The simulator's answer as the driver gives it.
pub(crate) fn answer<T>(answer: Result<T>) -> Outcome<T> {
    answer.map_err(|error| error.code().unwrap_or(Code::NOT_SUPPORTED))
}

/// Stores a result. C programs give aligned places; nothing depends on that.
///
/// # Safety
/// `out` must be null or valid for writing, in any alignment.
pub(crate) unsafe fn store<T: Copy>(out: *mut T, value: T) -> Outcome {
    has_place(out)?;
    // SAFETY: `out` is not null, so by this function's contract it is valid for writing a `T`. A
    // `T: Copy` has no destructor, so the overwritten value needs none.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Reads an argument that the caller passes by its address.
///
/// # Safety
/// `place` must be null or valid for reading, in any alignment.
pub(crate) unsafe fn load<T: Copy>(place: *const T) -> Outcome<T> {
    has_place(place)?;
    // SAFETY: `place` is not null, so by this function's contract it is valid for reading a `T`.
    // The types read are plain C data, of which every bit pattern is a value.
    Ok(unsafe { place.read_unaligned() })
}

/// Refuses a missing place for a result before anything is done.
pub(crate) fn has_place<T>(out: *const T) -> Outcome {
    if out.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
}

/// Refuses the null handle.
pub(crate) fn is_handle(raw: *const c_void) -> Outcome {
    if raw.is_null() { Err(Code::INVALID_HANDLE) } else { Ok(()) }
}
