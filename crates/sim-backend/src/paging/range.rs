//! va_ranges: policy for a run of pages, and the va_blocks under it.
//!
//! One managed allocation starts as one range. Advice on a part of it splits the range, and the
//! block that the cut goes through; ranges are never merged again (PAGING-2). A fault, a migration
//! or a discard makes the blocks that it needs (PAGING-6). Page numbers are absolute.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "pages of live memory; a slot of a range begins before it ends"
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use super::block::Block;
use super::blocks::Blocks;
use super::mask::PAGES;
use super::processor::{ProcId, ProcSet};
use crate::floor::at_or_before;

/// Pages of a 2 MiB slot of the address space.
const SLOT: u64 = PAGES as u64;

/// The advice for a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Policy {
    /// Where pages should be.
    pub(crate) preferred: Option<ProcId>,
    /// The processors that should keep a mapping.
    pub(crate) accessed_by: ProcSet,
    /// Whether reads make copies. A fresh range has this off rather than undecided
    /// (PAGING-4).
    pub(crate) read_mostly: bool,
}

/// A run of pages with one policy.
#[derive(Debug)]
pub(crate) struct VaRange {
    first_page: u64,
    end_page: u64,
    pub(crate) policy: Policy,
    blocks: Blocks,
}

impl VaRange {
    fn new(first_page: u64, end_page: u64, policy: Policy) -> Self {
        let blocks = Blocks::new(first_page / SLOT, end_page.div_ceil(SLOT));
        Self { first_page, end_page, policy, blocks }
    }

    /// The pages.
    #[inline]
    pub(crate) fn pages(&self) -> Range<u64> {
        self.first_page..self.end_page
    }

    /// The pages of the block that holds a page of this range, whether it exists or not.
    #[inline]
    pub(crate) fn block_pages(&self, page: u64) -> Range<u64> {
        let slot = page / SLOT * SLOT;
        slot.max(self.first_page)..(slot + SLOT).min(self.end_page)
    }

    /// The block that holds a page, if it exists.
    #[inline]
    pub(crate) fn block(&self, page: u64) -> Option<&Block> {
        self.blocks.get(page / SLOT)
    }

    /// The blocks that exist, ascending.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter()
    }

    /// The blocks that exist and hold one of these pages, ascending.
    pub(crate) fn blocks_in(&self, pages: Range<u64>) -> impl Iterator<Item = &Block> {
        let slots = pages.start / SLOT..pages.end.div_ceil(SLOT);
        let near = self.blocks.near(slots);
        near.filter(move |block| block.pages().start < pages.end && pages.start < block.pages().end)
    }

    /// The place of the block that holds a page.
    #[inline]
    pub(super) fn slot_mut(&mut self, page: u64) -> &mut Option<Block> {
        self.blocks.place_mut(page / SLOT)
    }

    /// Takes the block that holds a page out of the range, made if it does not exist, so that the
    /// other blocks can be changed meanwhile. Give it back with [`put`](Self::put).
    #[inline]
    pub(crate) fn take_or_new(&mut self, page: u64) -> Block {
        let pages = self.block_pages(page);
        let block = self.blocks.take(page / SLOT);
        block.unwrap_or_else(|| Block::new(pages.start, (pages.end - pages.start) as usize))
    }

    /// Takes the block that holds a page out of the range, if it exists.
    #[inline]
    pub(crate) fn take(&mut self, page: u64) -> Option<Block> {
        self.blocks.take(page / SLOT)
    }

    /// Gives a block back.
    #[inline]
    pub(crate) fn put(&mut self, block: Block) {
        let slot = block.first_page() / SLOT;
        *self.blocks.place_mut(slot) = Some(block);
    }

    /// Cuts the range at a page inside it; returns the upper part.
    fn split_off(&mut self, at: u64) -> Self {
        debug_assert!(self.first_page < at && at < self.end_page);
        let end_page = std::mem::replace(&mut self.end_page, at);
        let through_block = !at.is_multiple_of(SLOT);
        let blocks = self.blocks.split_off(at / SLOT, through_block);
        let mut upper = Self { first_page: at, end_page, policy: self.policy, blocks };
        if through_block && let Some(mut lower) = upper.take(at) {
            let page = (at - lower.first_page()) as usize;
            upper.put(lower.split_off(page));
            self.put(lower);
        }
        upper
    }
}

/// The counts of a cut: ranges and blocks cut in two.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cut {
    pub(crate) ranges: u64,
    pub(crate) blocks: u64,
    /// Blocks that a device mapped.
    pub(crate) mapped_blocks: u64,
}

/// All ranges of an address space.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// In no order.
    ranges: Vec<VaRange>,
    /// By first page, the place among `ranges`.
    places: BTreeMap<u64, usize>,
    /// The place of the range found last: one step asks for the same range several times, and so
    /// do most calls that follow each other.
    recent: Cell<usize>,
}

impl Ranges {
    /// Adds a range. It may not overlap another one.
    pub(crate) fn insert(&mut self, pages: Range<u64>) {
        debug_assert!(self.overlapping(&pages).next().is_none(), "{pages:?} is in use");
        self.add(VaRange::new(pages.start, pages.end, Policy::default()));
    }

    fn add(&mut self, range: VaRange) {
        self.places.insert(range.first_page, self.ranges.len());
        self.ranges.push(range);
    }

    /// Removes all ranges within these pages, and returns them.
    pub(crate) fn remove(&mut self, pages: &Range<u64>) -> Vec<VaRange> {
        let firsts: Vec<u64> = self.places.range(pages.clone()).map(|(first, _)| *first).collect();
        firsts.iter().filter_map(|first| self.remove_one(*first)).collect()
    }

    fn remove_one(&mut self, first_page: u64) -> Option<VaRange> {
        let place = self.places.remove(&first_page)?;
        let range = self.ranges.swap_remove(place);
        if let Some(moved) = self.ranges.get(place) {
            self.places.insert(moved.first_page, place);
        }
        Some(range)
    }

    /// The place of the range that holds a page.
    #[inline]
    fn place_of(&self, page: u64) -> Option<usize> {
        let holds = |place: &usize| {
            self.ranges.get(*place).is_some_and(|range| range.pages().contains(&page))
        };
        Some(self.recent.get()).filter(holds).or_else(|| {
            let (_, place) = at_or_before(&self.places, page)?;
            self.recent.set(*place);
            Some(*place).filter(holds)
        })
    }

    /// The range that holds a page.
    #[inline]
    pub(crate) fn containing(&self, page: u64) -> Option<&VaRange> {
        self.place_of(page).map(|place| &self.ranges[place])
    }

    /// Like [`containing`](Self::containing), to change it.
    #[inline]
    pub(crate) fn containing_mut(&mut self, page: u64) -> Option<&mut VaRange> {
        self.place_of(page).map(|place| &mut self.ranges[place])
    }

    /// The ranges that share a page with these pages, ascending.
    pub(crate) fn overlapping(&self, pages: &Range<u64>) -> impl Iterator<Item = &VaRange> {
        let before = self.containing(pages.start).map_or(pages.start, |range| range.first_page);
        let span = if pages.is_empty() { before..before } else { before..pages.end };
        self.places.range(span).map(|(_, place)| &self.ranges[*place])
    }

    /// The pieces into which block boundaries and range boundaries cut these pages, ascending.
    /// Pages of no range are left out.
    pub(crate) fn pieces(&self, pages: &Range<u64>) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        for range in self.overlapping(pages) {
            let end = range.end_page.min(pages.end);
            let mut at = range.first_page.max(pages.start);
            while at < end {
                let next = range.block_pages(at).end.min(end);
                pieces.push(at..next);
                at = next;
            }
        }
        pieces
    }

    /// The first of those [`pieces`](Self::pieces).
    pub(crate) fn first_piece(&self, pages: &Range<u64>) -> Option<Range<u64>> {
        if pages.is_empty() {
            return None;
        }
        let range = self.containing(pages.start);
        let range = range.or_else(|| self.overlapping(pages).next())?;
        let start = range.first_page.max(pages.start);
        Some(start..range.block_pages(start).end.min(pages.end))
    }

    /// Cuts the range that holds the page before and the page at `at` in two, if `differs` says
    /// that its policy will differ from what the pages on one side get. At the start of a range
    /// nothing is to be cut (PAGING-3).
    pub(crate) fn split_at(&mut self, at: u64, differs: impl Fn(&Policy) -> bool) -> Cut {
        let mut cut = Cut::default();
        if let Some(range) = self.containing_mut(at)
            && range.first_page != at
            && differs(&range.policy)
        {
            cut.ranges = 1;
            if let Some(block) = range.block(at).filter(|block| block.first_page() < at) {
                let mapped = block.mappers().iter().any(|id| !id.is_host());
                (cut.blocks, cut.mapped_blocks) = (1, u64::from(mapped));
            }
            let upper = range.split_off(at);
            self.add(upper);
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.overlapping(&(0..u64::MAX)).map(|r| (r.first_page, r.end_page)).collect()
    }

    #[test]
    fn a_cut_inside_a_block_splits_it_and_leaves_the_others_whole() {
        let mut ranges = Ranges::default();
        ranges.insert(512..2000);
        let range = ranges.containing_mut(600).expect("inserted");
        for page in [512, 1024, 1536] {
            let block = range.take_or_new(page);
            range.put(block);
        }
        ranges.split_at(1100, |_| true);
        assert_eq!(lens(&ranges), [(512, 1100), (1100, 2000)]);
        let blocks = |page| -> Vec<(u64, usize)> {
            let range = ranges.containing(page).expect("there");
            range.blocks().map(|b| (b.first_page(), b.len())).collect()
        };
        assert_eq!(blocks(512), [(512, 512), (1024, 76)]);
        assert_eq!(blocks(1100), [(1100, 436), (1536, 464)]);
    }

    #[test]
    fn a_cut_at_a_block_boundary_splits_no_block() {
        let mut ranges = Ranges::default();
        ranges.insert(512..2048);
        ranges.split_at(1024, |_| true);
        ranges.split_at(1024, |_| true);
        ranges.split_at(2048, |_| true);
        assert_eq!(lens(&ranges), [(512, 1024), (1024, 2048)]);
        let slots = |page| ranges.containing(page).expect("there").blocks.slots();
        assert_eq!((slots(512), slots(1024)), (1..2, 2..4));
    }

    #[test]
    fn pieces_end_at_blocks_and_ranges() {
        let mut ranges = Ranges::default();
        ranges.insert(512..2000);
        ranges.split_at(1100, |_| true);
        assert_eq!(ranges.pieces(&(600..1600)), [600..1024, 1024..1100, 1100..1536, 1536..1600]);
        assert_eq!(ranges.pieces(&(0..3000)).len(), 4);
        assert!(ranges.pieces(&(700..700)).is_empty());
        assert_eq!(ranges.first_piece(&(0..3000)), Some(512..1024));
        assert_eq!(ranges.first_piece(&(1100..1600)), Some(1100..1536));
        assert_eq!(ranges.first_piece(&(2000..3000)), None);
    }
}
