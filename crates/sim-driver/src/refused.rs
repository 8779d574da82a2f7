//! Entry points of the driver that this library does not implement.
//!
//! Each returns `CUDA_ERROR_NOT_SUPPORTED` and does nothing. The first call of each is reported on
//! stderr, so that a program that ignores the code does not fail without a word; the option `log`
//! turns that off. The build makes the functions from `data/symbols.tsv`.
#![allow(clippy::missing_safety_doc, reason = "the functions read no argument")]

use std::ffi::c_int;

use crate::driver::any_time;

/// Refuses a call.
fn refuse(symbol: &'static str) -> c_int {
    any_time(symbol, |driver| driver.refuse(symbol))
}

include!(concat!(env!("OUT_DIR"), "/refused.rs"));
