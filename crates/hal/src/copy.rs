//! Copies of a batch, and the attributes that they are carried out with (`cuMemcpyBatchAsync`).

use bitflags::bitflags;

use crate::{DevicePtr, Location, Span};

/// One copy of a batch, by addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SpanCopy {
    /// The first byte that is written.
    pub destination: DevicePtr,
    /// The first byte that is read.
    pub source: DevicePtr,
    /// The number of bytes.
    pub bytes: u64,
}

impl SpanCopy {
    /// A copy of `bytes` bytes.
    #[must_use]
    pub const fn new(destination: DevicePtr, source: DevicePtr, bytes: u64) -> Self {
        Self { destination, source, bytes }
    }

    /// The bytes that are written.
    #[must_use]
    pub const fn to(&self) -> Span {
        Span::new(self.destination, self.bytes)
    }

    /// The bytes that are read.
    #[must_use]
    pub const fn from(&self) -> Span {
        Span::new(self.source, self.bytes)
    }
}

/// The time at which a copy of a batch may read its source (`CUmemcpySrcAccessOrder`).
///
/// Any integer is a value of this type, and the back end decides which of them a call accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SourceOrder(pub i32);

impl SourceOrder {
    /// In stream order: earlier work of the stream may still write the source when the call is
    /// made.
    pub const STREAM: Self = Self(1);
    /// Before the call returns, without regard to the stream: no earlier work may still write the
    /// source.
    pub const DURING_CALL: Self = Self(2);
    /// At any time until the stream has passed the call: no earlier work may still write the
    /// source.
    pub const ANY: Self = Self(3);

    /// Whether this is one of the named values.
    #[must_use]
    pub const fn is_known(self) -> bool {
        matches!(self, Self::STREAM | Self::DURING_CALL | Self::ANY)
    }
}

bitflags! {
    /// Flags of copies (`CUmemcpyFlags`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct CopyFlags: u32 {
        /// The copy had better overlap with work of the device's multiprocessors.
        const PREFER_OVERLAP_WITH_COMPUTE = 0x1;
        const _ = !0;
    }
}

/// The attributes of copies of a batch (`CUmemcpyAttributes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CopyAttributes {
    /// When the source may be read.
    pub source_order: SourceOrder,
    /// Where a managed source had better be read; [`Location::NONE`] for no hint.
    pub source_hint: Location,
    /// Where a managed destination had better be written; [`Location::NONE`] for no hint.
    pub destination_hint: Location,
    /// Hints about the way of the copy.
    pub flags: CopyFlags,
}

impl Default for CopyAttributes {
    /// In stream order, without hints and flags.
    fn default() -> Self {
        Self {
            source_order: SourceOrder::STREAM,
            source_hint: Location::NONE,
            destination_hint: Location::NONE,
            flags: CopyFlags::empty(),
        }
    }
}

impl CopyAttributes {
    /// The reason why no driver takes these attributes, if there is one.
    ///
    /// # Errors
    /// The reason: an unknown order or flag.
    pub const fn check(&self) -> Result<(), &'static str> {
        if !self.source_order.is_known() {
            return Err("the order of a source is 1 (stream), 2 (during the call) or 3 (any)");
        }
        if self.flags.bits() & !CopyFlags::PREFER_OVERLAP_WITH_COMPUTE.bits() != 0 {
            return Err("the only flag of a copy is 1 (prefer overlap with compute)");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_orders_and_flags_are_taken() {
        let with = |order, flags| CopyAttributes {
            source_order: SourceOrder(order),
            flags: CopyFlags::from_bits_retain(flags),
            ..CopyAttributes::default()
        };
        for order in -1..6 {
            assert_eq!(with(order, 0).check().is_ok(), (1..=3).contains(&order), "{order}");
        }
        assert!(with(1, 1).check().is_ok());
        assert!([2, 3, u32::MAX].iter().all(|&flags| with(1, flags).check().is_err()));
    }
}
