//! Shortcuts for faults and evictions in blocks without advice, thrashing or discards.
//!
//! Most faults are of this kind: no advice, no page that thrashes, is duplicated or discarded, and
//! only the host and one device have to do with the block. Then the policy has nothing to
//! decide: what faults comes to the device, with what the prefetcher adds, and may do everything
//! there; evicted pages go to the host. `service` and `moves` come to the same, with a look at
//! every processor that could be concerned; `laws` holds the two against each other.
#![allow(clippy::arithmetic_side_effects, reason = "one step counts pages of one block")]

use pagewise_hal::CopyCause;

use super::block::Block;
use super::chunks::List;
use super::context::Context;
use super::engine::Paging;
use super::mask::PageMask;
use super::moves::{Leg, Reason};
use super::params::PagingParams;
use super::processor::{ProcId, Relations};
use super::range::Policy;
use super::report::Holding;
use super::state::Plain;

/// Whether nothing about blocks under a policy is special to a device.
#[inline]
fn is_plain(params: &PagingParams, relations: &Relations, policy: Policy, device: ProcId) -> bool {
    let advised = policy != Policy::default();
    // What reaches across the host's link maps more than it holds.
    let coherent = relations.can_access(ProcId::HOST, device);
    !device.is_host() && !advised && !coherent && !params.access_counters.enable
}

impl Paging {
    /// The pages of a block at the host and a device, if nothing about it is special to the device.
    pub(super) fn plain(&self, policy: Policy, block: &Block, device: ProcId) -> Option<Plain> {
        #[cfg(test)]
        if !self.shortcuts {
            return None;
        }
        let is_plain = is_plain(&self.params, &self.relations, policy, device);
        if is_plain { block.plain(device) } else { None }
    }
}

impl Context<'_> {
    /// The pages of a block at the host and a device, if nothing about it is special to the device.
    pub(super) fn plain(&self, block: &Block, device: ProcId) -> Option<Plain> {
        #[cfg(test)]
        if !self.shortcuts {
            return None;
        }
        let is_plain = is_plain(self.params, self.relations, self.policy, device);
        if is_plain { block.plain(device) } else { None }
    }

    /// Brings pages to a device that faulted on them or on some of them, and maps them there.
    pub(super) fn arrive_plainly(
        &mut self,
        block: &mut Block,
        device: ProcId,
        held: Plain,
        pages: PageMask,
        prefetched: PageMask,
    ) {
        const HOST: ProcId = ProcId::HOST;
        let arriving = pages.minus(held.device);
        let copied = arriving & held.host;
        let fresh = arriving.minus(copied);
        self.unmap(block, HOST, arriving);
        let reason = Reason { prefetched, ..Reason::of(CopyCause::Coherence) };
        let copies = self.copy_runs(block, HOST, device, copied, &reason, Leg::Last);
        self.totals.left(HOST, copies);
        self.note_holding(block, HOST, copied, Holding::Left);
        self.note_holding(block, device, copied, Holding::Copied);
        self.note_holding(block, device, fresh, Holding::Shown);
        let news = if fresh.is_empty() { 0 } else { fresh.count() };
        self.work.pages_fresh += news as u64;
        self.totals.came(device, copies + news);
        self.count_mapped(device, copies + news);
        let (host, here) = (held.host.minus(copied), held.device | arriving);
        block.set_plain(device, &Plain { host, device: here });
        block.note_device_mapping(device, arriving);
        self.mark(block, device, List::Used);
    }

    /// Moves pages that a device holds to the host, which does not map them.
    pub(super) fn leave_plainly(
        &mut self,
        block: &mut Block,
        device: ProcId,
        held: Plain,
        pages: PageMask,
    ) {
        const HOST: ProcId = ProcId::HOST;
        let leaving = pages & held.device;
        if leaving.is_empty() {
            return;
        }
        self.populate(block, HOST, leaving);
        let reason = Reason::of(CopyCause::Eviction);
        let copies = self.copy_runs(block, device, HOST, leaving, &reason, Leg::Last);
        self.count_unmapped(device, copies);
        self.totals.left(device, copies);
        self.totals.came(HOST, copies);
        self.note_holding(block, device, leaving, Holding::Left);
        self.note_holding(block, HOST, leaving, Holding::Copied);
        let (host, here) = (held.host | leaving, held.device.minus(leaving));
        block.set_plain(device, &Plain { host, device: here });
    }
}
