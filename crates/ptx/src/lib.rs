//! PTX without a GPU.
//!
//! A module's text is checked and lowered when it is loaded. Warps of 32 lanes then execute its
//! kernels over a memory that the caller provides. The crate knows nothing of managed memory, of
//! drivers or of recordings.

#[cfg_attr(
    not(feature = "jit"),
    allow(dead_code, unused_imports, reason = "only the compiler reads forms")
)]
mod code;
mod error;
#[cfg_attr(not(feature = "jit"), allow(dead_code, reason = "only compiled pieces read some of it"))]
pub mod execute;
#[cfg(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod jit;
#[cfg(not(all(feature = "jit", not(miri), any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "jit/absent.rs"]
mod jit;
pub mod link;
mod load;
mod lower;
pub mod math;
pub mod module;
pub mod syntax;
pub mod types;

pub use error::LoadError;
