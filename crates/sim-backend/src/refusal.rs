//! The reason why a call is refused, before it is known which call it was.

use pagewise_hal::Code;

/// A driver result other than success, with what the caller should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The `CUresult`, or `None` if the entry point does not exist.
    pub(crate) code: Option<i32>,
    pub(crate) why: &'static str,
    /// Which item of the call's list is to blame, if one is.
    pub(crate) item: Option<usize>,
}

impl Refusal {
    /// The same, with the item that is to blame.
    pub(crate) fn of_item(self, item: usize) -> Self {
        Self { item: Some(item), ..self }
    }
}

pub(crate) type Checked<T> = Result<T, Refusal>;

pub(crate) const fn refuse<T>(code: i32, why: &'static str) -> Checked<T> {
    Err(Refusal { code: Some(code), why, item: None })
}

/// `CUDA_ERROR_INVALID_VALUE`
pub(crate) const fn invalid<T>(why: &'static str) -> Checked<T> {
    refuse(Code::INVALID_VALUE, why)
}

/// `CUDA_ERROR_INVALID_DEVICE`
pub(crate) const fn bad_device<T>(why: &'static str) -> Checked<T> {
    refuse(Code::INVALID_DEVICE, why)
}

/// `CUDA_ERROR_INVALID_HANDLE`
pub(crate) const fn bad_handle<T>(why: &'static str) -> Checked<T> {
    refuse(Code::INVALID_HANDLE, why)
}

/// `CUDA_ERROR_NOT_SUPPORTED`
pub(crate) const fn unsupported<T>(why: &'static str) -> Checked<T> {
    refuse(Code::NOT_SUPPORTED, why)
}

/// `CUDA_ERROR_NOT_PERMITTED`
pub(crate) const fn not_permitted<T>(why: &'static str) -> Checked<T> {
    refuse(Code::NOT_PERMITTED, why)
}

/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(crate) const fn out_of_memory<T>(why: &'static str) -> Checked<T> {
    refuse(Code::OUT_OF_MEMORY, why)
}

/// `CUDA_ERROR_ILLEGAL_ADDRESS`
pub(crate) const fn illegal_address<T>(why: &'static str) -> Checked<T> {
    refuse(Code::ILLEGAL_ADDRESS, why)
}

/// The simulated driver is too old to have the entry point.
pub(crate) const fn no_entry_point<T>(why: &'static str) -> Checked<T> {
    Err(Refusal { code: None, why, item: None })
}
