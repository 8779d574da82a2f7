//! Results of captures and graphs, as `CUresult` numbers them.

use std::ffi::c_int;

use pagewise_hal::Code;

/// `CUDA_ERROR_ILLEGAL_STATE`
pub(crate) const ILLEGAL_STATE: c_int = 401;
/// `CUDA_ERROR_LOSSY_QUERY`
pub(crate) const LOSSY_QUERY: c_int = 402;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`
pub(crate) const STREAM_CAPTURE_UNSUPPORTED: c_int = 900;
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`
pub(crate) const STREAM_CAPTURE_INVALIDATED: c_int = 901;
/// `CUDA_ERROR_STREAM_CAPTURE_MERGE`
pub(super) const STREAM_CAPTURE_MERGE: c_int = 902;
/// `CUDA_ERROR_STREAM_CAPTURE_UNMATCHED`
pub(super) const STREAM_CAPTURE_UNMATCHED: c_int = 903;
/// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`
pub(super) const STREAM_CAPTURE_UNJOINED: c_int = 904;
/// `CUDA_ERROR_STREAM_CAPTURE_ISOLATION`
pub(super) const STREAM_CAPTURE_ISOLATION: c_int = 905;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`
pub(super) const STREAM_CAPTURE_IMPLICIT: c_int = 906;
/// `CUDA_ERROR_CAPTURED_EVENT`
pub(super) const CAPTURED_EVENT: c_int = 907;
/// `CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD`
pub(super) const STREAM_CAPTURE_WRONG_THREAD: c_int = 908;
/// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`
pub(crate) const GRAPH_EXEC_UPDATE_FAILURE: c_int = 910;

/// The answer for a handle of nothing.
pub(super) fn no_handle(handle: usize) -> c_int {
    if handle == 0 { Code::INVALID_VALUE } else { Code::INVALID_HANDLE }
}
