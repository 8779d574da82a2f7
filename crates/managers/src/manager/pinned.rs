//! The bytes of page-locked memory, as the host reaches them.

use pagewise::Span;

/// Where the bytes of page-locked memory are for the host: `len` of them, or all if there are fewer.
/// A pointer, because whether it becomes a shared or an exclusive reference is the caller's to say.
pub(super) fn pinned_bytes(span: Span, len: usize) -> *mut [u8] {
    let len = len.min(usize::try_from(span.bytes).unwrap_or(usize::MAX));
    let first = std::ptr::with_exposed_provenance_mut::<u8>(span.ptr.0 as usize);
    std::ptr::slice_from_raw_parts_mut(first, len)
}
