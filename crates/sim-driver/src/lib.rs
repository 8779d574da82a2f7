//! A simulated CUDA driver library.
//!
//! The C entry points of managed memory over simulated H200s in the process, for programs that
//! were written against the driver: load the shared library in place of `libcuda.so.1`. This is
//! what a program needs to allocate, advise, prefetch, ask, fill and copy, with contexts, streams,
//! events and pools; whatever else a program looks up, [`cuGetProcAddress_v2`] answers as a driver
//! does that lacks it. No code of a device is run: [`cuModuleGetFunction`] knows the touch kernels
//! of `pagewise-cuda` and nothing else.
//!
//! Which machine is simulated says the environment variable `PAGEWISE_DRIVER`; see [`Options`].
//! Functions whose names begin with `pagewise_driver_` are no part of the driver's ABI: they show
//! what a real driver cannot, and start over with another machine.
//!
//! Nothing unwinds into the caller: a panic is reported as `CUDA_ERROR_UNKNOWN`.
#![allow(non_snake_case, reason = "the names are the driver's")]

mod entry;
mod extras;
mod lookup;
mod machine;
mod options;

pub use entry::*;
pub use extras::*;
pub use lookup::cuGetProcAddress_v2;
pub use options::Options;
