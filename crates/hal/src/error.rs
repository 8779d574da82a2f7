//! The error of all calls.

use std::borrow::Cow;
use std::fmt;

use crate::{Code, Span, code_name};

/// The result of a back end's call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error, by what the caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ErrorKind {
    /// Correct the arguments: range, flags, location or size.
    InvalidValue,
    /// Name a device that exists.
    InvalidDevice,
    /// Pass a live handle.
    InvalidHandle,
    /// Free something, or ask for less.
    OutOfMemory,
    /// This back end, driver or kind of memory cannot do it; see
    /// [`Capabilities`](crate::Capabilities).
    Unsupported,
    /// The process or the system's set-up does not allow it.
    NotPermitted,
    /// Try again later: the work is still running.
    NotReady,
    /// A program touched an address that is not allocated or not accessible.
    IllegalAddress,
    /// The driver library is missing or unusable on this machine.
    LibraryMissing,
    /// The device is gone: start the process again.
    DeviceLost,
    /// Anything else that the driver reported; see [`Error::code`].
    Driver,
}

impl ErrorKind {
    /// The kind of a `CUresult`.
    #[must_use]
    pub const fn of_code(code: i32) -> Self {
        match code {
            Code::INVALID_VALUE => Self::InvalidValue,
            Code::INVALID_DEVICE => Self::InvalidDevice,
            Code::INVALID_HANDLE | 201 | 709 => Self::InvalidHandle,
            Code::OUT_OF_MEMORY => Self::OutOfMemory,
            Code::NOT_SUPPORTED | 36 => Self::Unsupported,
            Code::NOT_PERMITTED => Self::NotPermitted,
            Code::NOT_READY => Self::NotReady,
            Code::ILLEGAL_ADDRESS => Self::IllegalAddress,
            34 | Code::NO_DEVICE | 803 | 804 => Self::LibraryMissing,
            46 | 214 | 220 | 714..=719 => Self::DeviceLost,
            _ => Self::Driver,
        }
    }

    const fn phrase(self) -> &'static str {
        match self {
            Self::InvalidValue => "invalid value",
            Self::InvalidDevice => "invalid device",
            Self::InvalidHandle => "invalid handle",
            Self::OutOfMemory => "out of memory",
            Self::Unsupported => "not supported",
            Self::NotPermitted => "not permitted",
            Self::NotReady => "not ready",
            Self::IllegalAddress => "illegal address",
            Self::LibraryMissing => "driver library missing",
            Self::DeviceLost => "device lost",
            Self::Driver => "driver error",
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    code: Option<i32>,
    span: Option<Span>,
    name: Option<Box<str>>,
    item: Option<usize>,
    detail: Cow<'static, str>,
}

/// A refused or failed call.
///
/// One word wide. `Display` is one line that names the operation, the kind, the CUDA name and
/// number, the range and what to do:
///
/// ```
/// use pagewise_hal::{Code, DevicePtr, Error, Span};
///
/// let error = Error::from_code("prefetch", Code::INVALID_VALUE)
///     .with_span(Span::new(DevicePtr(0x7f00), 4096))
///     .with_detail("the range is not managed memory");
/// assert_eq!(
///     error.to_string(),
///     "prefetch: invalid value (CUDA_ERROR_INVALID_VALUE, 1): \
///      range 0x7f00+4096: the range is not managed memory"
/// );
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

impl Error {
    /// An error of this project's own checks, which carries no `CUresult`.
    #[must_use]
    pub fn new(operation: &'static str, kind: ErrorKind) -> Self {
        Self(Box::new(Inner {
            kind,
            operation,
            code: None,
            span: None,
            name: None,
            item: None,
            detail: Cow::Borrowed(""),
        }))
    }

    /// The error of a `CUresult` other than success.
    ///
    /// # Panics
    /// In debug builds, if `code` is [`Code::SUCCESS`]: success is not an error.
    #[must_use]
    pub fn from_code(operation: &'static str, code: i32) -> Self {
        debug_assert_ne!(code, Code::SUCCESS, "{operation}: success is not an error");
        let mut error = Self::new(operation, ErrorKind::of_code(code));
        error.0.code = Some(code);
        error
    }

    /// Says which range the call was about.
    #[must_use]
    pub fn with_span(mut self, span: Span) -> Self {
        self.0.span = Some(span);
        self
    }

    /// Says the name of the memory that the call was about.
    ///
    /// ```
    /// use pagewise_hal::{DevicePtr, Error, ErrorKind, Span};
    ///
    /// let error = Error::new("prefetch", ErrorKind::NotReady)
    ///     .with_span(Span::new(DevicePtr(0x7000), 4096))
    ///     .with_name("weights[0..4096]");
    /// let line = "prefetch: not ready: weights[0..4096], range 0x7000+4096";
    /// assert_eq!(error.to_string(), line);
    /// ```
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Box<str>>) -> Self {
        self.0.name = Some(name.into());
        self
    }

    /// Says which item of a batch failed.
    #[must_use]
    pub fn with_item(mut self, index: usize) -> Self {
        self.0.item = Some(index);
        self
    }

    /// Says in words what is wrong and what to do.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// The kind of the error: what the caller can do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The method of [`Backend`](crate::Backend), or the step, that failed.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The raw `CUresult`, or `None` if the driver was never asked.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.0.code
    }

    /// The name of [`Error::code`] in `cuda.h`.
    #[must_use]
    pub fn code_name(&self) -> Option<&'static str> {
        self.0.code.and_then(code_name)
    }

    /// The range that the call was about.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.0.span
    }

    /// The name of the memory that the call was about, with the bytes of a part of it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The reason in words, and what to do; may be empty.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The index of the failing item of a batch.
    #[must_use]
    pub fn item(&self) -> Option<usize> {
        self.0.item
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, operation, code, span, name, item, detail } = &*self.0;
        write!(f, "{operation}: {}", kind.phrase())?;
        if let Some(code) = code {
            match code_name(*code) {
                Some(name) => write!(f, " ({name}, {code})")?,
                None => write!(f, " (CUresult {code})")?,
            }
        }
        if let Some(item) = item {
            write!(f, ": item {item}")?;
        }
        match (name, span) {
            (Some(name), Some(span)) => write!(f, ": {name}, range {span}")?,
            (Some(name), None) => write!(f, ": {name}")?,
            (None, Some(span)) => write!(f, ": range {span}")?,
            (None, None) => {}
        }
        if !detail.is_empty() {
            write!(f, ": {detail}")?;
        }
        Ok(())
    }
}

/// The line of `Display`: `unwrap`, and a `main` that returns a `Result`, print errors this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_word_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn unwrap_and_a_failing_main_print_the_line_for_people() {
        let error = Error::from_code("prefetch", Code::INVALID_VALUE).with_detail("do this");
        let line = "prefetch: invalid value (CUDA_ERROR_INVALID_VALUE, 1): do this";
        assert_eq!([format!("{error:?}"), format!("{error:#?}")], [line; 2]);
        let error: Box<dyn std::error::Error> = error.into();
        assert_eq!(format!("{error:?}"), line, "as `main` prints it");
    }

    #[test]
    fn a_code_without_a_name_is_kept_and_shown() {
        let error = Error::from_code("advise", 4711).with_item(2);
        assert_eq!(error.kind(), ErrorKind::Driver);
        assert_eq!((error.code(), error.code_name(), error.item()), (Some(4711), None, Some(2)));
        assert_eq!(error.to_string(), "advise: driver error (CUresult 4711): item 2");
        assert_eq!(error.detail(), "");
        assert_eq!(error.with_detail("why").detail(), "why");
    }
}
