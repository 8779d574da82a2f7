//! The entry points, by group. Each function documents only its name: the contract is the driver's,
//! and what the simulator makes of it is documented at the method of [`pagewise_hal::Backend`].
//!
//! Common to all: results go to places that must be null or valid for writing; a null place is
//! `CUDA_ERROR_INVALID_VALUE`. Handles and addresses may be any numbers: the simulator looks them
//! up. Memory that a call reads or writes by a device address must not be used by others meanwhile.

mod capture;
mod contexts;
mod copies;
mod device;
mod errors;
mod events;
mod fills;
mod functions;
mod graphs;
mod host_functions;
mod host_memory;
mod images;
mod launches;
mod libraries;
mod links;
mod memory;
mod modules;
mod movement;
mod occupancies;
mod pitched;
mod pools;
mod profiler;
mod sharing;
mod sharing_physical;
mod streams;
mod virtual_memory;

pub use capture::*;
pub use contexts::*;
pub use copies::*;
pub use device::*;
pub use errors::*;
pub use events::*;
pub use fills::*;
pub use functions::*;
pub use graphs::*;
pub use host_functions::*;
pub use host_memory::*;
pub use launches::*;
pub use libraries::*;
pub use links::*;
pub use memory::*;
pub use modules::*;
pub use movement::*;
pub use occupancies::*;
pub use pitched::*;
pub use pools::*;
pub use profiler::*;
pub use sharing::*;
pub use sharing_physical::*;
pub use streams::*;
pub use virtual_memory::*;

use std::ffi::c_int;

use pagewise_hal::{Backend, DevicePtr, Location, LocationKind, PointerAttribute, Span};

use crate::driver::Driver;

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

impl From<Location> for MemLocation {
    fn from(location: Location) -> Self {
        Self { kind: location.kind.0, id: location.id }
    }
}

/// Whether a range lies within one live allocation.
pub(crate) fn span_is_live(driver: &Driver, ptr: u64, bytes: u64) -> bool {
    let ask = |attribute| driver.sim.pointer_attribute(DevicePtr(ptr), attribute).ok();
    let allocation = ask(PointerAttribute::RANGE_START_ADDR).zip(ask(PointerAttribute::RANGE_SIZE));
    allocation.is_some_and(|(start, size)| {
        let end = start.checked_add(size).zip(ptr.checked_add(bytes));
        end.is_some_and(|(allocation, range)| range <= allocation)
    })
}

pub(crate) const fn span(ptr: u64, bytes: usize) -> Span {
    Span::new(DevicePtr(ptr), bytes as u64)
}
