//! The blocks of one range, by their place.
//!
//! An allocation names far more address space than a program touches: 8 TiB are four million blocks.
//! So places are kept in groups of 512 MiB, and a group takes memory once one of its blocks exists:
//! 24 bytes for each 512 MiB of a range, and at most 8 KiB for each group with a block.
//! Decides nothing.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "slots of one range, which is not empty, and groups that the range has"
)]

use std::ops::Range;

use super::block::Block;

/// Blocks of a group. Groups begin at multiples of it, so that cutting a range moves few blocks.
const GROUP: u64 = 256;

/// Places of blocks, numbered by their 2 MiB slot of the address space.
#[derive(Debug)]
pub(super) struct Blocks {
    first_slot: u64,
    end_slot: u64,
    /// Each with a place for every slot that it has in common with this range, or with none yet.
    groups: Vec<Vec<Option<Block>>>,
}

impl Blocks {
    /// Places without blocks.
    pub(super) fn new(first_slot: u64, end_slot: u64) -> Self {
        debug_assert!(first_slot < end_slot);
        let count = (end_slot - 1) / GROUP - first_slot / GROUP + 1;
        let groups = (0..count).map(|_| Vec::new()).collect();
        Self { first_slot, end_slot, groups }
    }

    /// The group that holds a slot, and the slot's place in it.
    #[inline]
    fn find(&self, slot: u64) -> (usize, usize) {
        let group = slot / GROUP;
        let first = (group * GROUP).max(self.first_slot);
        ((group - self.first_slot / GROUP) as usize, (slot - first) as usize)
    }

    /// How many slots a group has in common with this range.
    fn places_in(&self, group: usize) -> usize {
        let start = (self.first_slot / GROUP + group as u64) * GROUP;
        ((start + GROUP).min(self.end_slot) - start.max(self.first_slot)) as usize
    }

    /// The block in a slot, if it exists.
    #[inline]
    pub(super) fn get(&self, slot: u64) -> Option<&Block> {
        let (group, place) = self.find(slot);
        self.groups[group].get(place)?.as_ref()
    }

    /// The place of the block in a slot, to put one there.
    #[inline]
    pub(super) fn place_mut(&mut self, slot: u64) -> &mut Option<Block> {
        let (group, place) = self.find(slot);
        if self.groups[group].is_empty() {
            let places = self.places_in(group);
            self.groups[group].resize_with(places, || None);
        }
        &mut self.groups[group][place]
    }

    /// Takes the block out of a slot, if it exists.
    #[inline]
    pub(super) fn take(&mut self, slot: u64) -> Option<Block> {
        let (group, place) = self.find(slot);
        self.groups[group].get_mut(place)?.take()
    }

    /// The blocks that exist, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.groups.iter().flatten().filter_map(Option::as_ref)
    }

    /// The blocks that exist in groups with one of these slots, ascending.
    pub(super) fn near(&self, slots: Range<u64>) -> impl Iterator<Item = &Block> {
        let start = slots.start.max(self.first_slot);
        let end = slots.end.min(self.end_slot);
        let groups = if start < end { self.find(start).0..self.find(end - 1).0 + 1 } else { 0..0 };
        self.groups[groups].iter().flatten().filter_map(Option::as_ref)
    }

    /// Cuts at a slot: keeps the slots below, returns the rest. If the slot is shared, both have a
    /// place for it, and the block goes with the rest.
    pub(super) fn split_off(&mut self, at: u64, shared: bool) -> Self {
        debug_assert!(self.first_slot < at || shared && self.first_slot == at);
        debug_assert!(at < self.end_slot);
        let (group, place) = self.find(at);
        let mut groups = self.groups.split_off(group);
        let mut lower = std::mem::take(&mut groups[0]);
        if !lower.is_empty() {
            groups[0] = lower.split_off(place);
            lower.extend(shared.then_some(None));
        }
        if place > 0 || shared {
            self.groups.push(lower);
        }
        let end_slot = std::mem::replace(&mut self.end_slot, at + u64::from(shared));
        Self { first_slot: at, end_slot, groups }
    }

    /// The slots that it has places for.
    #[cfg(test)]
    pub(super) fn slots(&self) -> Range<u64> {
        self.first_slot..self.end_slot
    }

    /// Groups that take memory.
    #[cfg(test)]
    pub(super) fn groups_in_use(&self) -> usize {
        self.groups.iter().filter(|group| !group.is_empty()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::mask::PAGES;
    use super::*;

    fn block(slot: u64) -> Block {
        Block::new(slot * PAGES as u64, PAGES)
    }

    fn with(slots: &[u64]) -> Blocks {
        let mut blocks = Blocks::new(100, 100_000);
        slots.iter().for_each(|&slot| *blocks.place_mut(slot) = Some(block(slot)));
        blocks
    }

    fn slots(blocks: &Blocks) -> Vec<u64> {
        blocks.iter().map(|block| block.first_page() / PAGES as u64).collect()
    }

    #[test]
    fn memory_is_taken_where_blocks_are() {
        let mut blocks = with(&[100, 255, 99_999]);
        assert_eq!(slots(&blocks), [100, 255, 99_999]);
        assert_eq!(blocks.groups_in_use(), 2);
        assert!(blocks.get(256).is_none() && blocks.get(254).is_none());
        assert_eq!(blocks.groups_in_use(), 2, "looking takes none");
        assert!(blocks.take(5000).is_none() && blocks.take(255).is_some());
        assert_eq!(slots(&blocks), [100, 99_999]);
    }

    #[test]
    fn a_cut_anywhere_keeps_every_block_at_its_slot() {
        let all = [100, 101, 255, 256, 257, 700, 99_999];
        for at in [101, 255, 256, 257, 400, 512, 701, 99_999] {
            let mut lower = with(&all);
            let mut upper = lower.split_off(at, false);
            let (below, above): (Vec<u64>, Vec<u64>) = all.iter().partition(|&&slot| slot < at);
            assert_eq!(
                (slots(&lower), slots(&upper)),
                (below.clone(), above.clone()),
                "cut at {at}"
            );
            assert!(below.iter().all(|&slot| lower.get(slot).is_some()));
            assert!(above.iter().all(|&slot| upper.get(slot).is_some()));
            *lower.place_mut(at - 1) = Some(block(at - 1));
            *upper.place_mut(at) = Some(block(at));
            assert!(lower.get(at - 1).is_some() && upper.get(at).is_some());
        }
    }

    #[test]
    fn both_sides_of_a_cut_through_a_slot_have_a_place_for_it() {
        let all = [100, 255, 256, 700];
        for at in [100, 101, 255, 256, 257, 512, 99_999] {
            let mut lower = with(&all);
            let mut upper = lower.split_off(at, true);
            let (below, above): (Vec<u64>, Vec<u64>) = all.iter().partition(|&&slot| slot < at);
            assert_eq!((slots(&lower), slots(&upper)), (below, above), "cut at {at}");
            assert_eq!((lower.slots(), upper.slots()), (100..at + 1, at..100_000));
            *lower.place_mut(at) = Some(block(at));
            *upper.place_mut(at) = Some(block(at));
            assert_eq!((lower.iter().last().map(Block::first_page)), Some(at * PAGES as u64));
        }
    }
}
