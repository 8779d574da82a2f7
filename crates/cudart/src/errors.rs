//! Errors: the last one, their names and words.

use std::ffi::{c_char, c_int};

use crate::outcome::{entry_of, last, take_last};

/// The name and the words of a number that is no error.
const UNRECOGNISED: *const c_char = c"unrecognized error code".as_ptr();

/// Returns the last failure of this thread, and resets it to 0 (`cudaSuccess`).
pub extern "C" fn cudaGetLastError() -> c_int {
    take_last()
}

/// Returns the last failure of this thread, which stays.
pub extern "C" fn cudaPeekAtLastError() -> c_int {
    last()
}

/// Returns the name of an error, such as `cudaErrorInvalidValue`. The text lives for ever.
pub extern "C" fn cudaGetErrorName(code: c_int) -> *const c_char {
    entry_of(code).map_or(UNRECOGNISED, |entry| entry.1.as_ptr())
}

/// Returns an error in words, such as `invalid argument`. The text lives for ever.
pub extern "C" fn cudaGetErrorString(code: c_int) -> *const c_char {
    entry_of(code).map_or(UNRECOGNISED, |entry| entry.2.as_ptr())
}
