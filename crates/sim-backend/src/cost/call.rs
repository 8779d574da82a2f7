//! The kinds of calls, as far as their time depends on them.

use super::resources::{Control, PoolCall};
use super::state::Class;

/// A call, as far as its time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Call {
    /// `cuMemAllocManaged`
    AllocManaged,
    /// Memory that does not migrate.
    PlainMemory,
    /// `cuMemFree`
    Free,
    /// One attribute of a range.
    RangeAttribute,
    /// One attribute of an address.
    PointerAttribute,
    /// `cuMemAdvise`
    Advise,
    /// `cuMemPrefetchAsync`, one or a batch.
    Prefetch { ranges: u64, batch: bool },
    /// `cuMemDiscardBatchAsync`
    Discard,
    /// `cuMemDiscardAndPrefetchBatchAsync`
    DiscardPrefetch,
    /// An access program of the host.
    HostTouch,
    /// An access program of a device by this many threads; `bulk` for copy and fill, which move
    /// bytes and make no single accesses.
    DeviceTouch { threads: u64, bulk: bool },
    /// A wait for work: in the time of the call that asked for the work.
    Wait,
    /// A call on a pool.
    Pool(PoolCall),
    /// A call on a stream or event, or a question about a device.
    Control(Control),
    /// Any other call.
    #[default]
    Other,
}

impl Call {
    /// `packed`: an allocation came from a slab.
    #[inline]
    pub(super) fn class(self, packed: bool) -> Class {
        match self {
            Self::AllocManaged if packed => Class::AllocPacked,
            Self::AllocManaged => Class::Alloc,
            Self::Free => Class::Free,
            Self::RangeAttribute => Class::Query,
            Self::Advise => Class::Advice,
            Self::Prefetch { .. } => Class::Prefetch,
            Self::Discard | Self::DiscardPrefetch => Class::Discard,
            Self::HostTouch => Class::HostTouch,
            Self::DeviceTouch { .. } => Class::DeviceTouch,
            Self::Pool(_) => Class::Pool,
            Self::PlainMemory
            | Self::PointerAttribute
            | Self::Wait
            | Self::Control(_)
            | Self::Other => Class::Other,
        }
    }

    /// Whether other calls can tell afterwards that there was one.
    #[inline]
    pub(super) fn is_remembered(self) -> bool {
        !matches!(self, Self::Wait | Self::Control(_) | Self::Other)
    }
}
