//! Discard: the contents of pages are no longer needed.
//!
//! Memory stays allocated and nothing is recorded. PAGING-190 to PAGING-192 are the driver's
//! rules.

use super::block::Block;
use super::chunks::List;
use super::context::Context;
use super::mask::PageMask;
use super::processor::ProcId;

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
        let known = block.discarded();
        let other_kind = match manner {
            Discard::Eager => pages & known & block.mapped_anywhere(),
            Discard::Lazy => known.minus(block.mapped_anywhere()),
        };
        let changes = !(pages.minus(known) | other_kind).is_empty();
        let duplicated = pages & block.duplicated();
        block.add_discarded(pages);
        if manner == Discard::Lazy {
            self.collapse_discarded(block, duplicated);
        } else if duplicated.is_empty() {
            self.leave_discarded(block, pages);
        } else {
            self.mark_collapsed(block, duplicated);
            self.leave_discarded(block, duplicated);
        }
        if changes && block.is_discarded() {
            self.mark_discarded(block);
        }
    }

    /// One processor is left with pages that were duplicated, before they are resident nowhere.
    fn mark_collapsed(&mut self, block: &Block, pages: PageMask) {
        let holders = block.residents();
        let Some(keeper) = self.policy.preferred.or(holders.iter().next()) else { return };
        for id in holders.without(keeper).iter() {
            if block.resident(id).minus(pages).is_empty() {
                self.mark(block, id, List::Unused);
            }
        }
        self.mark(block, keeper, List::Used);
    }

    /// Pages are unmapped, and resident nowhere. The chunks of the processors that held them keep
    /// their places (EVICTION-11).
    fn leave_discarded(&mut self, block: &mut Block, pages: PageMask) {
        for id in block.mappers().iter() {
            self.unmap(block, id, pages);
        }
        for id in block.residents().iter() {
            self.end_residency(block, id, pages);
        }
        block.remove_duplicated(pages);
    }

    /// All pages of the block are discarded: on every GPU its chunk is unused if no processor
    /// holds a page, or else discarded (EVICTION-12).
    fn mark_discarded(&mut self, block: &Block) {
        let list =
            if block.residents().iter().next().is_none() { List::Unused } else { List::Discarded };
        for gpu in 1..=self.chunks.len() {
            self.mark(block, ProcId(gpu as u8), list);
        }
    }

    fn collapse_discarded(&mut self, block: &mut Block, pages: PageMask) {
        let holders = block.residents();
        let home = self.policy.preferred.filter(|home| holders.contains(*home));
        let mut left = pages;
        for keeper in home.into_iter().chain(holders.iter()) {
            let kept = left & block.resident(keeper);
            if !kept.is_empty() {
                self.mark(block, keeper, List::Used);
            }
            for id in holders.without(keeper).iter() {
                self.unmap(block, id, kept);
                self.leave(block, id, kept);
            }
            left = left.minus(kept);
        }
        block.remove_duplicated(pages);
    }
}
