//! Calls that attach allocations to streams, and the moves of attached memory.

use std::ops::Range;

use pagewise_hal::{AttachFlags, BLOCK_BYTES, DevicePtr, PAGE_BYTES, Processor, StreamHandle};

use crate::attachments::{Attached, key};
use crate::pager::Group;
use crate::sim::Sim;
use crate::space::Allocation;

/// The pages that attaching an allocation concerns: as many as its bytes take, from the page of its
/// first byte on. So one in a slab may lack the last page that it reaches into (PAGING-252).
fn attached_pages(allocation: &Allocation) -> Range<u64> {
    let first = allocation.start / PAGE_BYTES;
    first..first + allocation.bytes.div_ceil(PAGE_BYTES)
}

impl Sim {
    /// Attaches an allocation. To a single stream, or back to all after anything else, puts its
    /// pages in a group; to the host takes them out.
    pub(crate) fn attach(
        &mut self,
        allocation: &Allocation,
        flags: AttachFlags,
        stream: StreamHandle,
    ) {
        let before = self.attachments.attach(allocation.start, flags, stream);
        let now = self.attachments.of(allocation);
        let group = match now {
            _ if now == before => return,
            Attached::Global => Some(Group::Global),
            Attached::Stream(stream) => Some(Group::Stream(stream)),
            Attached::Host => None,
        };
        if allocation.bytes < BLOCK_BYTES {
            self.pager.group(attached_pages(allocation), group);
        }
    }

    /// An allocation goes, and all pages that it reaches into leave their groups, neighbours' too
    /// (PAGING-254).
    pub(crate) fn detach(&mut self, allocation: &Allocation) {
        self.attachments.forget(allocation.start);
        self.pager.group(allocation.span().pages_outward(), None);
    }

    /// Work begins in a stream, on a device with concurrent managed access: memory attached
    /// to the stream alone migrates there. Of small allocations those pages go that are in the
    /// stream's group now: a page that several share is in the group that it was put in last.
    pub(crate) fn bring_attached(&mut self, to: Processor, stream: StreamHandle) {
        let starts = self.attachments.alone_to(stream);
        let attached = starts.filter_map(|start| self.space.starting(DevicePtr(start)));
        let large = attached.filter(|allocation| allocation.bytes >= BLOCK_BYTES);
        let mut ranges: Vec<Range<u64>> = large.map(attached_pages).collect();
        ranges.extend(self.pager.grouped(Group::Stream(key(stream))));
        ranges.sort_unstable_by_key(|pages| pages.start);
        // Neighbours travel together.
        ranges.dedup_by(|next, last| {
            let adjoins = last.end == next.start;
            if adjoins {
                last.end = next.end;
            }
            adjoins
        });
        if !ranges.is_empty() {
            self.clock_ns = self.pager.bring(&ranges, to, self.clock_ns);
            self.settle_contents();
        }
    }
}
