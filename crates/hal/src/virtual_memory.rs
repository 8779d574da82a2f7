//! Virtual memory management: physical memory and addresses, which are made apart and joined.
//!
//! [`memory_create`](crate::Backend::memory_create) makes physical memory without an address,
//! [`address_reserve`](crate::Backend::address_reserve) an address range without memory,
//! [`memory_map`](crate::Backend::memory_map) joins them, and
//! [`memory_set_access`](crate::Backend::memory_set_access) says who may use the result.

use crate::{AccessFlags, AllocationType, HandleTypes, Location};

/// The properties of physical memory (`CUmemAllocationProp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryProps {
    /// The kind of memory; drivers take [`AllocationType::PINNED`].
    pub allocation_type: AllocationType,
    /// The place of the memory: a device; a host NUMA node from 12.2; the host from 13.0.
    pub location: Location,
    /// The types of handle that it may be exported as; empty for the host as a whole.
    pub handle_types: HandleTypes,
}

impl MemoryProps {
    /// Memory of a place, which stays there and is not exported.
    #[must_use]
    pub const fn at(location: Location) -> Self {
        Self {
            allocation_type: AllocationType::PINNED,
            location,
            handle_types: HandleTypes::empty(),
        }
    }
}

/// Which of two granularities (`CUmemAllocationGranularity_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Granularity(pub i32);

impl Granularity {
    /// Sizes and addresses have to be multiples of this one.
    pub const MINIMUM: Self = Self(0);
    /// Multiples of this one perform best.
    pub const RECOMMENDED: Self = Self(1);
}

/// The access of one place to mapped memory (`CUmemAccessDesc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryAccess {
    /// The place that accesses the memory.
    pub location: Location,
    /// Its rights: none, to read, or to read and write.
    pub access: AccessFlags,
}
