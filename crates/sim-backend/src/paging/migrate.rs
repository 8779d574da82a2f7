//! Explicit migration of pages of one block: PAGING-170 to PAGING-175.

use pagewise_hal::{CopyCause, MapCause};

use super::block::Block;
use super::context::Context;
use super::mask::PageMask;
use super::moves::Reason;
use super::processor::{ProcId, ProcSet};
use super::protection::Protection;

impl Context<'_> {
    /// Brings pages to a processor, without mapping them. Discarded pages come without a copy,
    /// and are then no longer discarded.
    pub(super) fn migrate(&mut self, block: &mut Block, to: ProcId, pages: PageMask) {
        if self.migrate_plainly(block, to, pages) {
            return;
        }
        let reason = Reason::of(CopyCause::User);
        if self.policy.read_mostly {
            let discarded = pages & block.discarded();
            self.duplicate_pages(block, to, pages.minus(discarded), &reason);
            if !discarded.is_empty() {
                let home = self.policy.preferred.unwrap_or(to);
                self.move_pages(block, home, discarded, &reason);
            }
        } else {
            self.move_pages(block, to, pages, &reason);
        }
        block.remove_discarded(pages);
    }

    /// Maps pages after a migration (PAGING-171): those mapped nowhere for the destination and the
    /// accessed-by processors, the others for the destination, if no processor loses by it.
    pub(super) fn map_migrated(&mut self, block: &mut Block, to: ProcId, pages: PageMask) {
        if self.map_plainly(block, to, pages) {
            return;
        }
        let mapped = block.mapped_anywhere();
        let fresh = pages.minus(mapped);
        let elsewhere = (pages & mapped).minus(block.mapped(to, Protection::Read));
        let copies = fresh & block.duplicated();
        self.map(block, to, copies, Protection::Read, None);
        self.map(block, to, fresh.minus(copies), Protection::Atomic, None);
        let stayed = fresh & block.resident(to);
        self.map_others(block, (to, to), stayed, Protection::Atomic, ProcSet::EMPTY);
        self.map_highest(block, to, elsewhere, None::<MapCause>);
    }
}
