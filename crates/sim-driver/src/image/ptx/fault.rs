//! Reasons why PTX text is refused.

use std::fmt;

/// `CUDA_ERROR_INVALID_PTX`
const INVALID_PTX: i32 = 218;
/// `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`
pub(crate) const UNSUPPORTED_PTX_VERSION: i32 = 222;

/// The reason why text is refused, in the form in which the driver's compiler reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The `CUresult`.
    pub(crate) code: i32,
    /// The line of the text, from 1 on.
    line: Option<usize>,
    what: String,
}

impl Fault {
    /// Text that does not follow PTX's syntax.
    pub(super) fn syntax(line: usize, what: impl Into<String>) -> Self {
        Self { code: INVALID_PTX, line: Some(line), what: what.into() }
    }

    /// Text for a newer GPU than the device.
    pub(crate) fn newer_target() -> Self {
        let what = "SM version specified by .target is higher than default SM version assumed";
        Self { code: INVALID_PTX, line: None, what: what.to_owned() }
    }

    /// A call of a function that no module defines.
    pub(crate) fn unresolved(name: &str) -> Self {
        let what = format!("Unresolved extern function '{name}'");
        Self { code: INVALID_PTX, line: None, what }
    }

    /// Text of a newer PTX than the driver knows.
    pub(super) fn newer_version(line: usize, found: (u32, u32), newest: (u32, u32)) -> Self {
        let ((major, minor), (own_major, own_minor)) = (found, newest);
        let what = format!(
            "Unsupported .version {major}.{minor}; current version is '{own_major}.{own_minor}'"
        );
        Self { code: UNSUPPORTED_PTX_VERSION, line: Some(line), what }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "ptxas application ptx input, line {line}; fatal   : ")?,
            None => f.write_str("ptxas fatal   : ")?,
        }
        f.write_str(&self.what)
    }
}
