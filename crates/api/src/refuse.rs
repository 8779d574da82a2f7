//! Refusals of checks that come before the back end, for this crate and for those built on it.
//!
//! They carry no `CUresult`, because the driver was not asked. The reason says what to do instead.

use std::borrow::Cow;

use pagewise_hal::{Error, ErrorKind};

/// A refusal of a wrong argument: `InvalidValue` without a CUDA code.
///
/// ```
/// use pagewise::{ErrorKind, refuse::invalid};
///
/// let error = invalid("resize", "0 bytes: give at least one");
/// assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None));
/// ```
#[must_use]
pub fn invalid(operation: &'static str, why: impl Into<Cow<'static, str>>) -> Error {
    Error::new(operation, ErrorKind::InvalidValue).with_detail(why)
}

/// A refusal of an operation that this machine or this memory lacks: `Unsupported` without a CUDA
/// code.
///
/// ```
/// use pagewise::{ErrorKind, refuse::unsupported};
///
/// let error = unsupported("discard", "needs a driver of CUDA 13.0 or later");
/// assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None));
/// ```
#[must_use]
pub fn unsupported(operation: &'static str, why: impl Into<Cow<'static, str>>) -> Error {
    Error::new(operation, ErrorKind::Unsupported).with_detail(why)
}

/// The error with more text after the back end's own.
///
/// ```
/// use pagewise::refuse::{also, invalid};
///
/// let error = also(invalid("advise", "no such place"), "for tensor `weights`");
/// assert_eq!(error.detail(), "no such place; for tensor `weights`");
/// ```
#[must_use]
pub fn also(error: Error, more: &str) -> Error {
    let detail = match error.detail() {
        "" => more.to_owned(),
        first => format!("{first}; {more}"),
    };
    error.with_detail(detail)
}
