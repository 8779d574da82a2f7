//! Which streams allocations are attached to (`cuStreamAttachMemAsync`), and what comes of it.
//!
//! Where devices have concurrent managed access, attachment forbids nothing, and one kind has an
//! effect: memory attached to a single stream migrates as a whole to the stream's device before
//! each program, fill or copy in that stream, whatever that touches, by the rules of an explicit
//! prefetch (observed on an H200 under driver 580; prefetch attributes stay as they were). Where
//! devices have none, see `exclusive`.

use std::collections::BTreeMap;
use std::ops::Range;

use pagewise_hal::{AttachFlags, Processor, StreamHandle};

use crate::sim::Sim;
use crate::space::Allocation;

/// Who may use an allocation.
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

    /// Notes who may use an allocation from now on.
    pub(crate) fn attach(&mut self, start: u64, flags: AttachFlags, stream: StreamHandle) {
        match flags {
            AttachFlags::HOST => _ = self.0.insert(start, Attached::Host),
            AttachFlags::SINGLE => _ = self.0.insert(start, Attached::Stream(key(stream))),
            _ => _ = self.0.remove(&start),
        }
    }

    /// An allocation went.
    pub(crate) fn forget(&mut self, start: u64) {
        self.0.remove(&start);
    }

    /// First bytes of what is attached to this stream alone.
    fn alone_to(&self, stream: StreamHandle) -> impl Iterator<Item = u64> {
        let wanted = Attached::Stream(key(stream));
        self.0.iter().filter(move |(_, attached)| **attached == wanted).map(|(start, _)| *start)
    }
}

/// The two names of the legacy default stream are one stream.
pub(crate) fn key(stream: StreamHandle) -> u64 {
    if stream.is_legacy() { 0 } else { stream.as_raw() }
}

impl Sim {
    /// Work begins in a stream, on a device with concurrent managed access: what is attached to
    /// the stream alone migrates there.
    pub(crate) fn bring_attached(&mut self, to: Processor, stream: StreamHandle) {
        let starts = self.attachments.alone_to(stream);
        let attached =
            starts.filter_map(|start| self.space.starting(pagewise_hal::DevicePtr(start)));
        let pages: Vec<Range<u64>> = attached.map(|one| one.span().pages_outward()).collect();
        if !pages.is_empty() {
            self.clock_ns = self.pager.bring(&pages, to, self.clock_ns);
            self.settle_contents();
        }
    }
}
