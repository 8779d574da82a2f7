//! Advice and allocation flags.

use bitflags::bitflags;

/// An advice of `cuMemAdvise` (`CUmem_advise`).
///
/// An integer with named constants: the driver refuses unknown values with
/// `CUDA_ERROR_INVALID_VALUE`, and that refusal is part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Advice(pub i32);

impl Advice {
    /// Reads duplicate the page on the reader; a write collapses the copies.
    pub const SET_READ_MOSTLY: Self = Self(1);
    /// Collapses the copies and ends read duplication.
    pub const UNSET_READ_MOSTLY: Self = Self(2);
    /// Faults leave pages at the location if the faulting processor can map them there.
    pub const SET_PREFERRED_LOCATION: Self = Self(3);
    /// Forgets the preferred location. Nothing moves.
    pub const UNSET_PREFERRED_LOCATION: Self = Self(4);
    /// Keeps the range mapped by the location's processor, wherever the pages are.
    pub const SET_ACCESSED_BY: Self = Self(5);
    /// Ends accessed-by. Existing mappings stay until something else removes them.
    pub const UNSET_ACCESSED_BY: Self = Self(6);

    /// The six values that CUDA 12.0 to 13.5 define, in numeric order.
    pub const ALL: [Self; 6] = [
        Self::SET_READ_MOSTLY,
        Self::UNSET_READ_MOSTLY,
        Self::SET_PREFERRED_LOCATION,
        Self::UNSET_PREFERRED_LOCATION,
        Self::SET_ACCESSED_BY,
        Self::UNSET_ACCESSED_BY,
    ];

    /// Whether CUDA defines the value.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.0 >= 1 && self.0 <= 6
    }

    /// Whether the call uses its location. Read-mostly and unset-preferred ignore it, but in the
    /// location form its *type* is checked for them, too.
    #[must_use]
    pub const fn uses_location(self) -> bool {
        matches!(
            self,
            Self::SET_PREFERRED_LOCATION | Self::SET_ACCESSED_BY | Self::UNSET_ACCESSED_BY
        )
    }
}

bitflags! {
    /// The streams that may access a managed allocation (`CUmemAttach_flags`). Bits that CUDA does
    /// not define are kept: the driver refuses them, and so does the simulator.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct AttachFlags: u32 {
        /// Any stream on any device.
        const GLOBAL = 0x1;
        /// No device, until the memory is attached to a stream. It matters without concurrent
        /// managed access.
        const HOST = 0x2;
        /// One stream; only for attaching, never for allocating.
        const SINGLE = 0x4;
        const _ = !0;
    }

    /// Flags of `cuMemHostAlloc` (`CU_MEMHOSTALLOC_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct HostAllocFlags: u32 {
        /// Pinned for every context.
        const PORTABLE = 0x1;
        /// Mapped into the device's address space (implied by unified addressing).
        const DEVICE_MAP = 0x2;
        /// Write-combined: fast for the device to read, slow for the host.
        const WRITE_COMBINED = 0x4;
        const _ = !0;
    }
}
