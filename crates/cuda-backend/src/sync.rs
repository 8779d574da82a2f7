//! The locks and counters of the set of live handles: the standard library's, or those of
//! `shuttle`, which tries schedules.
//!
//! `cargo xtask ci` builds the crate with `--cfg pagewise_shuttle` for the tests in
//! `live/schedules.rs`, and for nothing else.

#[cfg(pagewise_shuttle)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, AtomicUsize},
    sync::{Mutex, MutexGuard, RwLock},
    thread::{self, ThreadId},
    thread_local,
};
#[cfg(not(pagewise_shuttle))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicUsize},
    sync::{Mutex, MutexGuard, RwLock},
    thread::{self, ThreadId},
    thread_local,
};
