//! Functions of the runtime that this library does not have.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use crate::outcome::{Error, api};

/// Refuses a call with 801 (`cudaErrorNotSupported`). Stderr names each function once.
pub fn refuse(name: &'static str) -> c_int {
    static NAMED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let new = NAMED.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    if new {
        eprintln!("pagewise: {name} is not supported by this CUDA runtime");
    }
    api(|| Err(Error::NOT_SUPPORTED))
}
