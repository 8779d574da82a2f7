//! The result code of a call, as recordings hold it.

use pagewise_hal::{ErrorKind, Result};

use crate::format::Observed;

/// The `CUresult` of a call. Errors that never came from a driver get the number that a driver
/// returns for the same kind.
#[must_use]
pub fn code_of<T>(result: &Result<T>) -> i32 {
    use pagewise_hal::Code;
    let Err(error) = result else { return Code::SUCCESS };
    error.code().unwrap_or(match error.kind() {
        ErrorKind::InvalidValue => Code::INVALID_VALUE,
        ErrorKind::InvalidDevice => Code::INVALID_DEVICE,
        ErrorKind::InvalidHandle => Code::INVALID_HANDLE,
        ErrorKind::OutOfMemory => Code::OUT_OF_MEMORY,
        ErrorKind::Unsupported => Code::NOT_SUPPORTED,
        ErrorKind::NotPermitted => Code::NOT_PERMITTED,
        ErrorKind::NotReady => Code::NOT_READY,
        ErrorKind::IllegalAddress => Code::ILLEGAL_ADDRESS,
        _ => 999,
    })
}

/// An observation of nothing but the code.
pub(crate) fn coded<T>(result: &Result<T>) -> Observed {
    Observed { code: code_of(result), ..Observed::default() }
}
