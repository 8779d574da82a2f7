//! The locks of this crate: the standard library's, or those of `shuttle`, which tries thread
//! schedules.
//!
//! `cargo xtask ci` builds the crate with `--cfg pagewise_shuttle` for the tests that are named
//! `*_shuttle.rs`, and for nothing else.

#[cfg(all(pagewise_shuttle, feature = "instances"))]
pub(crate) use shuttle::sync::Condvar;
#[cfg(pagewise_shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(all(not(pagewise_shuttle), feature = "instances"))]
pub(crate) use std::sync::Condvar;
#[cfg(not(pagewise_shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Takes a lock, even a poisoned one. Guarded values change only by assignments that cannot panic
/// half-way, so a panic elsewhere leaves them whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
