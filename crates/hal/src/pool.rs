//! Memory pools and memory figures.

use bitflags::bitflags;

use crate::Location;

/// The kind of memory that a pool allocates (`CUmemAllocationType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AllocationType(pub i32);

impl AllocationType {
    /// Memory that stays where it is.
    pub const PINNED: Self = Self(1);
    /// Managed memory. From 13.0.
    pub const MANAGED: Self = Self(2);
}

bitflags! {
    /// Handle types that a pool can export (`CUmemAllocationHandleType`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct HandleTypes: u32 {
        /// A file descriptor.
        const POSIX_FILE_DESCRIPTOR = 0x1;
        /// An NT handle.
        const WIN32 = 0x2;
        /// A D3DKMT handle.
        const WIN32_KMT = 0x4;
        /// A fabric handle.
        const FABRIC = 0x8;
        const _ = !0;
    }
}

/// The access that a location has to memory of a pool or to mapped memory (`CUmemAccess_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AccessFlags(pub i32);

impl AccessFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Reading only. Driver 580 supports it for no pool.
    pub const READ: Self = Self(1);
    /// Reading and writing.
    pub const READ_WRITE: Self = Self(3);
}

/// The properties of a pool (`CUmemPoolProps`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolProps {
    /// The kind of memory that it allocates.
    pub allocation_type: AllocationType,
    /// The place of pinned memory, or the preferred location of managed memory.
    pub location: Location,
    /// The types of handle that it can be exported as; empty for managed pools and pools on the
    /// host.
    pub handle_types: HandleTypes,
    /// Size limit in bytes, 0 for the system's. Rounded up by the driver (580: to 32 MiB).
    pub max_bytes: u64,
}

/// Memory of a device (`cuMemGetInfo`), in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryInfo {
    /// Free according to the driver. Managed pages that could be evicted count as used.
    pub free_bytes: u64,
    /// All of the device's memory.
    pub total_bytes: u64,
}
