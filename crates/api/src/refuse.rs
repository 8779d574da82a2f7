//! Refusals of this crate's own checks, and what it adds to those of back ends.
//!
//! They carry no `CUresult`: the driver was not asked.

use std::borrow::Cow;

use pagewise_hal::{Error, ErrorKind};

pub(crate) fn invalid(operation: &'static str, why: impl Into<Cow<'static, str>>) -> Error {
    Error::new(operation, ErrorKind::InvalidValue).with_detail(why)
}

pub(crate) fn unsupported(operation: &'static str, why: impl Into<Cow<'static, str>>) -> Error {
    Error::new(operation, ErrorKind::Unsupported).with_detail(why)
}

/// The error, with more to say than the back end knew. What that said stays.
pub(crate) fn also(error: Error, more: &str) -> Error {
    let detail = match error.detail() {
        "" => more.to_owned(),
        first => format!("{first}; {more}"),
    };
    error.with_detail(detail)
}
