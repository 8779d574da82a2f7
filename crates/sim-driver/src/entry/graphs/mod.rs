//! Entry points of graphs.
//!
//! Handles are looked up in tables: null is `CUDA_ERROR_INVALID_VALUE`, and a handle of nothing
//! `CUDA_ERROR_INVALID_HANDLE`.

mod arrays;
mod executables;
mod generic;
mod kernels;
mod memory;
mod nodes;
mod objects;
mod parameters;
mod structure;

pub use executables::*;
pub use generic::*;
pub use kernels::*;
pub use memory::*;
pub use nodes::*;
pub use objects::*;
pub use structure::*;

pub(super) use arrays::{handles, plain_edges};
