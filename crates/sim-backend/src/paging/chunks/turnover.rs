//! The amount of a GPU's memory that eviction took from managed pages, and that came back to them.
#![allow(clippy::arithmetic_side_effects, reason = "pages of one device; slots of 512 pages")]

use std::ops::Range;

use super::super::mask::PageMask;
use super::root_id::ROOT;
use super::slot_masks::SlotMasks;

/// The memory that managed pages lost and took again so far. Pages count with the memory behind
/// them, resident or not.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Turnover {
    /// The most root chunks that were in use or claimed.
    pub(in super::super) peak_chunks: u64,
    pub(in super::super) evicted_pages: u64,
    pub(in super::super) returned_pages: u64,
    /// Pages without memory since an eviction, by 2 MiB of the address space.
    gone: SlotMasks,
}

fn slot_of(pages: &Range<u64>) -> (u64, PageMask) {
    let (slot, first) = (pages.start / u64::from(ROOT), pages.start % u64::from(ROOT));
    let first = first as usize;
    (slot, PageMask::range(first..first + (pages.end - pages.start) as usize))
}

/// The slot of a piece that takes a whole one, as most do.
fn whole_slot(piece: &Range<u64>) -> Option<u64> {
    (piece.end - piece.start == u64::from(ROOT)).then_some(piece.start / u64::from(ROOT))
}

impl Turnover {
    /// This many chunks are in use or claimed.
    pub(super) fn reached(&mut self, chunks: u64) {
        self.peak_chunks = self.peak_chunks.max(chunks);
    }

    /// A piece was given memory.
    pub(super) fn given(&mut self, piece: &Range<u64>) {
        if self.gone.is_empty() {
            return;
        }
        let returned = match whole_slot(piece) {
            Some(slot) => self.gone.remove_all(slot),
            None => {
                let (slot, pages) = slot_of(piece);
                self.gone.remove(slot, pages)
            }
        };
        self.returned_pages += returned as u64;
    }

    /// A piece was evicted.
    pub(super) fn evicted(&mut self, piece: &Range<u64>) {
        self.evicted_pages += piece.end - piece.start;
        if let Some(slot) = whole_slot(piece) {
            self.gone.insert_all(slot);
        } else {
            let (slot, pages) = slot_of(piece);
            self.gone.insert(slot, pages);
        }
    }

    /// An allocation ended.
    pub(super) fn forget(&mut self, pages: &Range<u64>) {
        let slots = pages.start / u64::from(ROOT)..pages.end.div_ceil(u64::from(ROOT));
        for slot in self.gone.slots(slots) {
            let first = slot * u64::from(ROOT);
            let within = pages.start.max(first)..pages.end.min(first + u64::from(ROOT));
            self.gone.remove(slot, slot_of(&within).1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = ROOT as u64;

    #[test]
    fn pages_return_that_were_evicted_before_and_each_eviction_counts() {
        let mut turnover = Turnover::default();
        turnover.given(&(0..PAGES));
        turnover.evicted(&(PAGES..2 * PAGES));
        turnover.evicted(&(0..16));
        turnover.given(&(16..32));
        assert_eq!((turnover.evicted_pages, turnover.returned_pages), (PAGES + 16, 0));
        turnover.given(&(0..16));
        turnover.given(&(0..16));
        turnover.given(&(PAGES + 100..PAGES + 101));
        assert_eq!((turnover.evicted_pages, turnover.returned_pages), (PAGES + 16, 17));
        turnover.evicted(&(0..16));
        turnover.given(&(0..16));
        turnover.given(&(PAGES..2 * PAGES));
        let all = PAGES + 16;
        assert_eq!((turnover.evicted_pages, turnover.returned_pages), (all + 16, all + 16));
        assert!(turnover.gone.is_empty(), "all came back");
    }

    #[test]
    fn pages_of_an_allocation_that_ended_do_not_return() {
        let mut turnover = Turnover::default();
        for block in 0..4 {
            turnover.evicted(&(block * PAGES..(block + 1) * PAGES));
        }
        turnover.forget(&(PAGES + 10..3 * PAGES + 20));
        for (pages, returned) in [
            (PAGES + 10..2 * PAGES, 0),
            (2 * PAGES..3 * PAGES, 0),
            (3 * PAGES..3 * PAGES + 20, 0),
            (PAGES..PAGES + 10, 10),
            (3 * PAGES + 20..4 * PAGES, PAGES - 20),
            (0..PAGES, PAGES),
        ] {
            let before = turnover.returned_pages;
            turnover.given(&pages);
            assert_eq!(turnover.returned_pages - before, returned, "{pages:?}");
        }
        assert!(turnover.gone.is_empty());
    }

    #[test]
    fn the_peak_is_the_most_that_was_in_use() {
        let mut turnover = Turnover::default();
        let peaks = [3, 1, 4, 4, 2].map(|chunks| {
            turnover.reached(chunks);
            turnover.peak_chunks
        });
        assert_eq!(peaks, [3, 3, 4, 4, 4]);
    }
}
