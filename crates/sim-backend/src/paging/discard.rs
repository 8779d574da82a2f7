//! Discard: the contents of pages are no longer needed.
//!
//! Memory stays allocated and nothing is recorded. PAGING-190 to PAGING-192 are the driver's
//! rules.

use super::block::Block;
use super::context::Context;
use super::mask::PageMask;

/// How pages are discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discard {
    /// They are unmapped everywhere and resident nowhere (PAGING-190). If some of a block's are
    /// duplicated, that is done to those only; the others are just marked (PAGING-191).
    Eager,
    /// They are only marked, and copies under read duplication collapse (PAGING-192).
    /// Discard-and-prefetch does this first. Pages that are at the destination keep the mappings
    /// of accessed-by processors, which an eager discard would take and map again with a record.
    Lazy,
}

impl Context<'_> {
    /// Discards pages of a block.
    pub(super) fn discard(&mut self, block: &mut Block, pages: PageMask, manner: Discard) {
        let duplicated = pages & block.duplicated();
        block.add_discarded(pages);
        if manner == Discard::Lazy {
            self.collapse_discarded(block, duplicated);
            return;
        }
        let leaving = if duplicated.is_empty() { pages } else { duplicated };
        for id in block.mappers().iter() {
            self.unmap(block, id, leaving);
        }
        for id in block.residents().iter() {
            self.leave(block, id, leaving);
        }
        block.remove_duplicated(leaving);
    }

    fn collapse_discarded(&mut self, block: &mut Block, pages: PageMask) {
        let holders = block.residents();
        let home = self.policy.preferred.filter(|home| holders.contains(*home));
        let mut left = pages;
        for keeper in home.into_iter().chain(holders.iter()) {
            let kept = left & block.resident(keeper);
            for id in holders.without(keeper).iter() {
                self.unmap(block, id, kept);
                self.leave(block, id, kept);
            }
            left = left.minus(kept);
        }
        block.remove_duplicated(pages);
    }
}
