//! The attachments of allocations to streams (`cuStreamAttachMemAsync`), and their effect on
//! accesses.
//!
//! Where devices have concurrent managed access, attachment forbids nothing, and one kind has an
//! effect: memory attached to a single stream migrates as a whole to the stream's device before
//! each program in that stream, whatever that touches, and before each fill or copy that touches
//! managed memory, by the rules of an explicit prefetch (PAGING-250, PAGING-251). Where devices
//! have no concurrent access, see `exclusive`.

use std::collections::BTreeMap;

use pagewise_hal::{AttachFlags, StreamHandle};

use crate::space::Allocation;

/// The users that an allocation is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attached {
    /// Any stream, and the host while no stream works.
    Global,
    /// The host, at any time.
    Host,
    /// One stream, and the host while that does not work.
    Stream(u64),
}

/// Allocations that are not [`Attached::Global`], by first byte.
#[derive(Debug, Default)]
pub(crate) struct Attachments(BTreeMap<u64, Attached>);

impl Attachments {
    pub(crate) fn of(&self, allocation: &Allocation) -> Attached {
        self.0.get(&allocation.start).copied().unwrap_or(Attached::Global)
    }

    /// Whether all allocations are [`Attached::Global`].
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes who may use an allocation from now on; returns who might until now.
    pub(crate) fn attach(
        &mut self,
        start: u64,
        flags: AttachFlags,
        stream: StreamHandle,
    ) -> Attached {
        let before = match flags {
            AttachFlags::HOST => self.0.insert(start, Attached::Host),
            AttachFlags::SINGLE => self.0.insert(start, Attached::Stream(key(stream))),
            _ => self.0.remove(&start),
        };
        before.unwrap_or(Attached::Global)
    }

    /// An allocation went.
    pub(crate) fn forget(&mut self, start: u64) {
        self.0.remove(&start);
    }

    /// First bytes of what is attached to this stream alone.
    pub(crate) fn alone_to(&self, stream: StreamHandle) -> impl Iterator<Item = u64> {
        let wanted = Attached::Stream(key(stream));
        self.0.iter().filter(move |(_, attached)| **attached == wanted).map(|(start, _)| *start)
    }
}

/// The two names of the legacy default stream are one stream.
pub(crate) fn key(stream: StreamHandle) -> u64 {
    if stream.is_legacy() { 0 } else { stream.as_raw() }
}
