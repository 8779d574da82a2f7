//! Forms of entry points in which the null stream is the per-thread default stream: symbols that
//! end in `_ptsz`, and in `_ptds` for calls without a stream.
//!
//! Each calls the form with the legacy default stream, with the handle of the per-thread stream in
//! place of null. A simulated call is complete when it returns, so forms without a stream differ in
//! nothing. The build makes the functions from `data/symbols.tsv`.
#![allow(clippy::missing_safety_doc, reason = "each asks for what the form that it calls asks for")]
#![allow(unused_unsafe, reason = "some of the forms are safe")]
#![allow(clippy::useless_conversion, clippy::ptr_as_ptr, reason = "one cast fits all parameters")]

use std::ffi::c_void;

/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;

fn per_thread(stream: *mut c_void) -> *mut c_void {
    if stream.is_null() { std::ptr::without_provenance_mut(PER_THREAD) } else { stream }
}

include!(concat!(env!("OUT_DIR"), "/per_thread.rs"));
