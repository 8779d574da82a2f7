//! The fault of a device on one page of a full block about which nothing is special: one node of the
//! prefetcher's tree comes.
//!
//! Most faults of one thread are of this kind. A node is a run of pages, nearly always in one word of
//! a mask, so this takes less time than the same for any set of pages, in `batch` and `plain`. `laws`
//! holds the two against each other.
#![allow(clippy::arithmetic_side_effects, reason = "a page of a block is not before its first")]

use std::ops::Range;

use pagewise_hal::CopyCause;

use super::block::Block;
use super::context::Context;
use super::engine::Paging;
use super::mask::{Counts, PageMask};
use super::moves::Reason;
use super::prefetcher;
use super::processor::ProcId;
use super::report::{ReportSink, WorkCause};
use super::thrash;
use super::walk::Touched;

impl Paging {
    /// Services a fault on a page in this short way. `false`, and nothing is done, where there is more
    /// to see to.
    pub(super) fn service_node(
        &mut self,
        by: ProcId,
        page: u64,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) -> bool {
        let now_ns = touched.now_ns;
        let Some(range) = self.ranges.containing(page) else { return false };
        let (policy, Some(block)) = (range.policy, range.block(page)) else { return false };
        let is_short = block.is_full_size()
            && self.groups.is_empty()
            && self.is_plain(policy, block, by)
            && !thrash::meets(&self.lapse, block, by, now_ns);
        if !is_short {
            return false;
        }
        self.with_memory(sink, |paging, sink| {
            let range = paging.ranges.containing_mut(page);
            let Some(mut block) = range.and_then(|range| range.take(page)) else { return Ok(()) };
            let there = if block.is_populated(by) {
                Ok(())
            } else {
                let all = block.all();
                paging.reserve(&mut block, by, all, now_ns, sink)
            };
            if there.is_ok() {
                let at = (page - block.first_page()) as usize;
                let node = prefetcher::node_with(&paging.params, &mut block, at, by);
                let cause = (WorkCause::Fault, Some(by));
                let mut context = paging.context(&block, policy, cause, now_ns, sink);
                context.bring_node(&mut block, by, at, &node);
                touched.pass(context.finish());
            }
            paging.put(block);
            there
        });
        true
    }
}

impl Context<'_> {
    /// Brings a node to a device that faulted on a page of it, and maps it there.
    fn bring_node(&mut self, block: &mut Block, device: ProcId, page: usize, node: &Range<usize>) {
        const HOST: ProcId = ProcId::HOST;
        let taken = block.take_range_plainly(device, node.clone());
        if block.maps_any(HOST) {
            self.unmap(block, HOST, taken.added);
        }
        let asked = usize::from(taken.moved.contains(page));
        let asked = Counts { runs: asked, pages: asked };
        let prefetched = taken.moved.counts_beside(page, node);
        let copies = asked.pages + prefetched.pages;
        if copies > 0 {
            thrash::note_together(self, block, device);
            if self.wants.copies {
                let prefetched = PageMask::range(node.clone()).minus(PageMask::single(page));
                let reason = Reason { prefetched, ..Reason::of(CopyCause::Coherence) };
                self.report_runs(block, (HOST, device), taken.moved, &reason, None);
            }
            self.count_runs((HOST, device), CopyCause::Coherence, [asked, prefetched]);
        }
        self.came_and_mapped(block, device, &taken, copies);
    }
}
