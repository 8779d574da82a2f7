//! PTX without a GPU.
//!
//! A module's text is checked and lowered when it is loaded. Warps of 32 lanes then execute its
//! kernels over a memory that the caller provides. The crate knows nothing of managed memory, of
//! drivers or of recordings.

mod code;
mod error;
pub mod execute;
pub mod link;
mod load;
mod lower;
pub mod math;
pub mod module;
pub mod syntax;
pub mod types;

pub use error::LoadError;
