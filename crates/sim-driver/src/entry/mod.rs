//! The entry points, by group. Each function documents only its name: the contract is the driver's,
//! and what the simulator makes of it is documented at the method of [`pagewise::Backend`].
//!
//! Common to all: results go to places that must be null or valid for writing; a null place is
//! `CUDA_ERROR_INVALID_VALUE`.

mod copies;
mod device;
mod kernels;
mod memory;
mod movement;
mod pools;
mod sharing;
mod streams;

pub use copies::*;
pub use device::*;
pub use kernels::*;
pub use memory::*;
pub use movement::*;
pub use pools::*;
pub use sharing::*;
pub use streams::*;

use std::ffi::c_int;

use pagewise::{DevicePtr, Location, LocationKind, Span};

/// `CUmemLocation` as the driver passes it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemLocation {
    /// The type.
    pub kind: c_int,
    /// The id.
    pub id: c_int,
}

impl From<MemLocation> for Location {
    fn from(location: MemLocation) -> Self {
        Self { kind: LocationKind(location.kind), id: location.id }
    }
}

pub(crate) const fn span(ptr: u64, bytes: usize) -> Span {
    Span::new(DevicePtr(ptr), bytes as u64)
}
