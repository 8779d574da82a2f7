//! A simulated CUDA driver library.
//!
//! The C entry points of managed memory over simulated H200s in the process, for programs that
//! were written against the driver: load the shared library in place of `libcuda.so.1`. This is
//! what a program needs to allocate, advise, prefetch, ask, fill and copy, with contexts, streams,
//! events and pools; whatever else a program looks up, [`cuGetProcAddress_v2`] answers as a driver
//! does that lacks it. No code of a device is run: [`cuModuleGetFunction`] knows the touch kernels
//! of `pagewise-cuda` and nothing else.
//!
//! The environment variable `PAGEWISE_DRIVER` says which driver is simulated; see [`Options`].
//! Functions with names that begin with `pagewise_driver_` are no part of the driver's ABI. They
//! show what a real driver cannot, and start over with another driver.
//!
//! Checks are in the driver's order (CONTRACT-4): 3 (`CUDA_ERROR_NOT_INITIALIZED`)
//! before `cuInit`, 201 (`CUDA_ERROR_INVALID_CONTEXT`) without a context, then the arguments, but
//! for some arguments of some calls that come first (`tests/order.rs` has them all). One that the
//! simulated driver does not have (its version is too old, or the options hide it) is not found by
//! the look-ups; called by its symbol, which a library cannot take back, it answers 801
//! (`CUDA_ERROR_NOT_SUPPORTED`). A refused call changes nothing.
//!
//! Nothing unwinds into the caller: a panic would be reported as `CUDA_ERROR_UNKNOWN`, and
//! [`pagewise_driver_panics`] counts it. Each would be a bug of this library.
#![allow(non_snake_case, reason = "the names are the driver's")]
#![warn(clippy::arithmetic_side_effects, reason = "every number comes from a caller")]

mod driver;
mod entry;
mod extras;
mod forms;
mod lookup;
mod options;

pub use entry::*;
pub use extras::*;
pub use forms::entry_points;
pub use lookup::*;
pub use options::Options;
