//! A `libnvidia-ml.so.1` over the CUDA driver's C ABI.
//!
//! Programs ask NVIDIA's management library which devices there are, how much memory they have and
//! which driver runs. This library answers such questions from a CUDA driver, which may be the
//! simulated one. The driver is the file that `PAGEWISE_DRIVER_LIBRARY` names, or `libcuda.so.1` on
//! the loader's path.
//!
//! Calls before [`nvmlInit_v2`], and after as many calls of [`nvmlShutdown`], return 1
//! (`NVML_ERROR_UNINITIALIZED`). A refused call changes nothing.
//!
//! # Safety
//! Every function is as unsafe as NVIDIA's: pointers that are not null have to be valid for what the
//! function's documentation says it reads and writes.
#![allow(non_snake_case, reason = "the names are NVIDIA's")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the crate's documentation has one for all functions"
)]
#![warn(clippy::arithmetic_side_effects, reason = "every number comes from a caller")]

mod device;
mod driver;
mod library;
mod memory;
mod outcome;
mod pci;
mod versions;

pub use device::*;
pub use library::*;
pub use memory::*;
pub use outcome::nvmlErrorString;
pub use pci::*;
pub use versions::*;
