//! Addresses and byte ranges.

use std::fmt;

/// Bytes in one page of managed memory on x86-64: the unit of residency, advice and migration.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes in one va_block: the driver's unit of bookkeeping, never crossed by one migration.
pub const BLOCK_BYTES: u64 = 2 << 20;

/// Pages in one full va_block.
pub const PAGES_PER_BLOCK: u64 = BLOCK_BYTES / PAGE_BYTES;

/// An address in the unified address space (`CUdeviceptr`).
///
/// For managed and pinned memory it is the host's address of the same bytes, on the driver and on
/// the simulator alike. A value of this type proves nothing: it may be null, freed or foreign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The null address.
    pub const NULL: Self = Self(0);

    /// The address `bytes` further on, wrapping at the end of the address space as the ABI does.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Whether this is the null address.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A range of bytes: `bytes` of them from `ptr` on. It need not be aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Span {
    /// The first byte.
    pub ptr: DevicePtr,
    /// How many bytes.
    pub bytes: u64,
}

impl Span {
    /// The range of `bytes` bytes from `ptr` on.
    #[must_use]
    pub const fn new(ptr: DevicePtr, bytes: u64) -> Self {
        Self { ptr, bytes }
    }

    /// The address one past the last byte, or `None` if that passes the end of the address space.
    #[must_use]
    pub const fn end(self) -> Option<u64> {
        self.ptr.0.checked_add(self.bytes)
    }

    /// The page numbers (address divided by [`PAGE_BYTES`]) that the range touches, rounded
    /// outward; empty if the range is empty or passes the end of the address space.
    #[must_use]
    pub const fn pages_outward(self) -> std::ops::Range<u64> {
        let first = self.ptr.0 / PAGE_BYTES;
        match self.end() {
            Some(end) if self.bytes > 0 => first..end.div_ceil(PAGE_BYTES),
            _ => first..first,
        }
    }

    /// The page numbers that lie wholly in the range; empty if there is none.
    #[must_use]
    pub const fn pages_inward(self) -> std::ops::Range<u64> {
        let first = self.ptr.0.div_ceil(PAGE_BYTES);
        match self.end() {
            Some(end) if end / PAGE_BYTES > first => first..end / PAGE_BYTES,
            _ => first..first,
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.ptr, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_inward_are_those_that_are_wholly_covered() {
        let span = |ptr, bytes| Span::new(DevicePtr(ptr), bytes).pages_inward();
        assert_eq!(span(4096, 4096), 1..2);
        assert_eq!(span(4095, 4098), 1..2);
        assert_eq!(span(100, 8192), 1..2);
        assert!(span(4000, 200).is_empty());
        assert!(span(4097, 4096).is_empty());
    }

    #[test]
    fn pages_are_rounded_outward() {
        let span = |ptr, bytes| Span::new(DevicePtr(ptr), bytes).pages_outward();
        assert_eq!(span(4096, 4096), 1..2);
        assert_eq!(span(4095, 2), 0..2);
        assert_eq!(span(4097, 1), 1..2);
        assert!(span(4096, 0).is_empty());
        assert!(span(u64::MAX, 2).is_empty());
    }
}
