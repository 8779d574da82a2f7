//! The CUDA runtime API over a CUDA driver library.
//!
//! Programs that nvcc compiled call the runtime (`cudaMalloc`, `cudaLaunchKernel`), which calls the
//! driver (`libcuda.so.1`). This crate has the runtime's functions. The crates `pagewise-cudart-12`
//! and `pagewise-cudart-13` export them as `libcudart.so.12` and `libcudart.so.13`, and as archives
//! for static linking. The functions call the driver's published C ABI only, so they work over the
//! simulated driver of `pagewise-driver` and over NVIDIA's.
//!
//! The driver is found in this order: the file that `PAGEWISE_DRIVER_LIBRARY` names,
//! `libcuda.so.1` on the loader's path, and `libcuda.so.1` beside the runtime's own file. Without a
//! driver, calls return 35 (`cudaErrorInsufficientDriver`).
//!
//! `data/symbols.tsv` lists all symbols of NVIDIA's releases 12.9 and 13.5. `data/forwards.tsv` lists
//! the functions that have the parameters of a driver's function and call it. Functions that
//! neither the sources nor that table have are exported too: they return 801
//! (`cudaErrorNotSupported`), and stderr names each once.
//!
//! # Errors
//! The last failure of a thread is kept until [`cudaGetLastError`] returns it. A driver's code is
//! returned as the runtime's code of the same number, or as 999 (`cudaErrorUnknown`) if the runtime
//! has none. No panic unwinds into the caller: the call returns 999.
//!
//! # Safety
//! Every function is as unsafe as NVIDIA's: pointers that are not null have to be valid for what the
//! function's documentation says it reads and writes.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the names are the runtime's")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the crate's documentation has one for all functions"
)]
#![warn(clippy::arithmetic_side_effects, reason = "every number comes from a caller")]

mod attributes;
mod contexts;
mod copies;
mod device;
mod driver;
mod errors;
mod events;
mod fills;
mod forwards;
mod graph_copies;
mod graph_kernels;
mod graph_nodes;
mod kernels;
mod launch;
mod lookup;
mod memory;
mod outcome;
mod peers;
mod pitched;
mod pointers;
mod properties;
mod refused;
mod registration;
mod registry;
mod symbols;
mod types;

pub use attributes::*;
pub use copies::*;
pub use device::*;
pub use errors::*;
pub use events::*;
pub use fills::*;
pub use forwards::*;
pub use graph_copies::*;
pub use graph_kernels::*;
pub use graph_nodes::*;
pub use kernels::*;
pub use launch::*;
pub use lookup::*;
pub use memory::*;
pub use peers::*;
pub use pitched::*;
pub use pointers::*;
pub use properties::*;
pub use refused::refuse;
pub use registration::*;
pub use symbols::*;
pub use types::*;

#[doc(hidden)]
pub use driver::per_thread;

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
