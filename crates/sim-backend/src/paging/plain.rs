//! Shortcuts for faults, evictions and migrations in blocks without advice, thrashing or discards.
//!
//! Most of them are of this kind: no advice, no page that thrashes, is duplicated or discarded, and
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
use super::mask::{PageMask, Taken};
use super::moves::{Leg, Reason};
use super::params::PagingParams;
use super::processor::{ProcId, Relations};
use super::protection::Protection;
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
    /// Whether nothing about a block is special to a device.
    #[inline]
    pub(super) fn is_plain(&self, policy: Policy, block: &Block, device: ProcId) -> bool {
        #[cfg(test)]
        if !self.shortcuts {
            return false;
        }
        is_plain(&self.params, &self.relations, policy, device) && block.is_plain(device)
    }
}

impl Context<'_> {
    /// Whether nothing about a block is special to a device.
    #[inline]
    pub(super) fn is_plain(&self, block: &Block, device: ProcId) -> bool {
        #[cfg(test)]
        if !self.shortcuts {
            return false;
        }
        is_plain(self.params, self.relations, self.policy, device) && block.is_plain(device)
    }

    /// The pages of a block at the host and a device, if nothing about it is special to the device.
    pub(super) fn plain(&self, block: &Block, device: ProcId) -> Option<Plain> {
        if self.is_plain(block, device) { block.plain(device) } else { None }
    }

    /// Brings pages to a device that faulted on them or on some of them, and maps them there.
    pub(super) fn arrive_plainly(
        &mut self,
        block: &mut Block,
        device: ProcId,
        pages: &PageMask,
        prefetched: PageMask,
    ) {
        const HOST: ProcId = ProcId::HOST;
        let taken = block.take_plainly(device, pages);
        self.unmap(block, HOST, taken.added);
        let reason = Reason { prefetched, ..Reason::of(CopyCause::Coherence) };
        let copies = self.copy_runs(block, HOST, device, taken.moved, &reason, Leg::Last);
        self.came_and_mapped(block, device, &taken, copies);
    }

    /// Pages came to a device, so many of them with a copy, and it maps them.
    #[inline]
    pub(super) fn came_and_mapped(
        &mut self,
        block: &mut Block,
        device: ProcId,
        taken: &Taken,
        copies: usize,
    ) {
        const HOST: ProcId = ProcId::HOST;
        let Taken { added, moved, count } = taken;
        self.totals.left(HOST, copies);
        if self.wants.holdings {
            self.note_holding(block, HOST, *moved, Holding::Left);
            self.note_holding(block, device, *moved, Holding::Copied);
            self.note_holding(block, device, added.minus(*moved), Holding::Shown);
        }
        self.work.pages_fresh += (*count - copies) as u64;
        self.totals.came(device, *count);
        self.count_mapped(device, *count);
        block.note_device_mapping(device, added);
        self.mark(block, device, List::Used);
    }

    /// Moves pages that a device holds to the host, which does not map them.
    pub(super) fn leave_plainly(&mut self, block: &mut Block, device: ProcId, pages: &PageMask) {
        const HOST: ProcId = ProcId::HOST;
        if !block.is_populated(HOST) {
            let leaving = block.resident(device) & *pages;
            self.populate(block, HOST, leaving);
        }
        let Taken { added: leaving, count, .. } = block.give_plainly(device, pages);
        if count == 0 {
            return;
        }
        let reason = Reason::of(CopyCause::Eviction);
        let copies = self.copy_runs(block, device, HOST, leaving, &reason, Leg::Last);
        self.count_unmapped(device, copies);
        self.totals.left(device, copies);
        self.totals.came(HOST, copies);
        self.note_holding(block, device, leaving, Holding::Left);
        self.note_holding(block, HOST, leaving, Holding::Copied);
    }

    /// Brings pages to a processor without mapping them, as an explicit migration does. `false`, and
    /// nothing is done, where there is more to see to.
    pub(super) fn migrate_plainly(
        &mut self,
        block: &mut Block,
        to: ProcId,
        pages: PageMask,
    ) -> bool {
        if !self.is_held_plainly(block) {
            return false;
        }
        if pages.minus(block.resident(to)).is_empty() {
            self.mark_if_held(block, to);
            return true;
        }
        let device = if to.is_host() { block.only_device() } else { Some(to) };
        let Some(device) = device else { return false };
        let Some(held) = self.plain(block, device) else { return false };
        if to.is_host() {
            self.return_plainly(block, device, held, pages);
        } else {
            self.come_plainly(block, device, held, pages);
        }
        true
    }

    /// Maps pages after a migration that brought them to a processor. `false`, and nothing is done,
    /// where there is more to see to.
    pub(super) fn map_plainly(&mut self, block: &mut Block, to: ProcId, pages: PageMask) -> bool {
        let all_there = pages.minus(block.resident(to)).is_empty();
        if !all_there || !self.is_held_plainly(block) || block.others_map(to, pages) {
            return false;
        }
        let fresh = pages.minus(block.mapped(to, Protection::Read));
        if !fresh.is_empty() {
            block.map(to, fresh, Protection::Atomic);
            block.note_device_mapping(to, &fresh);
            self.count_mapped(to, fresh.count());
        }
        true
    }

    /// Whether no advice and no flag of a page says where the pages of a block may be.
    fn is_held_plainly(&self, block: &Block) -> bool {
        #[cfg(test)]
        if !self.shortcuts {
            return false;
        }
        self.policy == Policy::default() && block.is_unflagged()
    }

    /// Brings pages to a device.
    fn come_plainly(&mut self, block: &mut Block, device: ProcId, held: Plain, pages: PageMask) {
        const HOST: ProcId = ProcId::HOST;
        let arriving = pages.minus(held.device);
        let copied = arriving & held.host;
        self.unmap(block, HOST, arriving);
        let copies =
            self.copy_runs(block, HOST, device, copied, &Reason::of(CopyCause::User), Leg::Last);
        self.totals.left(HOST, copies);
        self.note_holding(block, HOST, copied, Holding::Left);
        self.arrived_plainly(block, device, (copied, copies), arriving.minus(copied));
        let (host, here) = (held.host.minus(copied), held.device | arriving);
        block.set_plain_unmapped(device, &Plain { host, device: here });
        self.mark(block, device, List::Used);
    }

    /// Brings pages to the host, from a device or from nowhere.
    fn return_plainly(&mut self, block: &mut Block, device: ProcId, held: Plain, pages: PageMask) {
        const HOST: ProcId = ProcId::HOST;
        let arriving = pages.minus(held.host);
        let copied = arriving & held.device;
        self.unmap(block, device, copied);
        self.populate(block, HOST, pages);
        let copies =
            self.copy_runs(block, device, HOST, copied, &Reason::of(CopyCause::User), Leg::Last);
        self.totals.left(device, copies);
        self.note_holding(block, device, copied, Holding::Left);
        self.arrived_plainly(block, HOST, (copied, copies), arriving.minus(copied));
        let (host, here) = (held.host | arriving, held.device.minus(copied));
        block.set_plain_unmapped(device, &Plain { host, device: here });
        if here.is_empty() && !copied.is_empty() {
            self.mark(block, device, List::Unused);
        }
    }

    /// Counts pages that came to a processor, with a copy or without.
    fn arrived_plainly(
        &mut self,
        block: &Block,
        id: ProcId,
        (copied, copies): (PageMask, usize),
        fresh: PageMask,
    ) {
        self.note_holding(block, id, copied, Holding::Copied);
        self.note_holding(block, id, fresh, Holding::Shown);
        let news = if fresh.is_empty() { 0 } else { fresh.count() };
        self.work.pages_fresh += news as u64;
        self.totals.came(id, copies + news);
    }
}
