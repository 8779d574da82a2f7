//! Free pieces of split root chunks, in the order in which the driver hands them out: those that
//! are still zero first, and of these the one that has been free longest (EVICTION-8).
#![allow(clippy::arithmetic_side_effects, reason = "pages of one root chunk; turns are counted")]

use std::collections::BTreeMap;
use std::ops::Range;

use super::root_id::{BIG, ROOT, RootId};

/// A place in a root chunk, by the page of the chunk that it begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) root: RootId,
    pub(super) page: u16,
}

impl Slot {
    /// The piece of 64 KiB that a page lies in.
    fn big(self) -> Self {
        Self { page: self.page - self.page % BIG, ..self }
    }

    fn pages_from(self, pages: Range<u16>) -> impl Iterator<Item = Self> {
        pages.map(move |page| Self { page: self.page + page, ..self })
    }
}

/// When a piece is handed out: those that were written wait, and then the longest free goes first.
type Turn = (bool, u64);

/// Free pieces of one size.
#[derive(Debug, Clone, Default)]
struct FreeList {
    slots: BTreeMap<Turn, Slot>,
    turns: BTreeMap<Slot, Turn>,
}

impl FreeList {
    fn push(&mut self, slot: Slot, turn: Turn) {
        self.slots.insert(turn, slot);
        self.turns.insert(slot, turn);
    }

    /// The next piece, and whether it is zero.
    fn pop(&mut self) -> Option<(Slot, bool)> {
        let ((is_written, _), slot) = self.slots.pop_first()?;
        self.turns.remove(&slot);
        Some((slot, !is_written))
    }

    /// Drops the pieces that begin at these places.
    fn drop_within(&mut self, places: Range<Slot>) {
        while let Some((slot, turn)) = self.turns.range(places.clone()).next() {
            let (slot, turn) = (*slot, *turn);
            self.turns.remove(&slot);
            self.slots.remove(&turn);
        }
    }
}

/// The free pieces of the split root chunks of one GPU.
#[derive(Debug, Clone, Default)]
pub(super) struct FreePieces {
    big: FreeList,
    small: FreeList,
    given: u64,
}

impl FreePieces {
    /// Whether a piece of this length is free, or can be cut from one.
    pub(super) fn has(&self, len: u16) -> bool {
        match len {
            1 => !(self.small.slots.is_empty() && self.big.slots.is_empty()),
            BIG => !self.big.slots.is_empty(),
            _ => false,
        }
    }

    /// Takes a free piece; a single page is cut from 64 KiB if there is none.
    pub(super) fn take(&mut self, len: u16) -> Option<Slot> {
        if len == 1
            && let Some((slot, _)) = self.small.pop()
        {
            return Some(slot);
        }
        let (slot, is_zero) = self.big.pop()?;
        Some(self.first_of(slot, is_zero, len))
    }

    /// Splits a root chunk with nothing in it, and takes its first piece.
    pub(super) fn split_root(&mut self, root: RootId, is_zero: bool, len: u16) -> Slot {
        let first = Slot { root, page: 0 };
        for slot in first.pages_from(BIG..ROOT).step_by(BIG.into()) {
            let turn = self.turn(is_zero);
            self.big.push(slot, turn);
        }
        self.first_of(first, is_zero, len)
    }

    /// The beginning of a piece of 64 KiB that was taken.
    fn first_of(&mut self, slot: Slot, is_zero: bool, len: u16) -> Slot {
        if len == 1 {
            for page in slot.pages_from(1..BIG) {
                let turn = self.turn(is_zero);
                self.small.push(page, turn);
            }
        }
        slot
    }

    fn turn(&mut self, is_zero: bool) -> Turn {
        self.given += 1;
        (!is_zero, self.given)
    }

    /// Takes a piece back. Pages become 64 KiB again when `is_taken` says that none of them is
    /// taken.
    pub(super) fn give(&mut self, slot: Slot, len: u16, is_taken: impl Fn(Range<u16>) -> bool) {
        let turn = self.turn(false);
        let big = slot.big();
        if len == BIG {
            self.big.push(slot, turn);
        } else if is_taken(big.page..big.page + BIG) {
            self.small.push(slot, turn);
        } else {
            self.small.drop_within(big..Slot { page: big.page + BIG, ..big });
            self.big.push(big, turn);
        }
    }

    /// A root chunk has nothing in it any more: its pieces are one again.
    pub(super) fn merge_root(&mut self, root: RootId) {
        let all = Slot { root, page: 0 }..Slot { root, page: ROOT };
        self.big.drop_within(all.clone());
        self.small.drop_within(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOTS: [RootId; 2] = [RootId::new(0), RootId::new(1)];

    fn slot(root: RootId, page: u16) -> Slot {
        Slot { root, page }
    }

    #[test]
    fn pieces_that_were_written_wait_for_those_that_are_zero() {
        // EVICTION-8.
        let mut free = FreePieces::default();
        let first = free.split_root(ROOTS[0], true, BIG);
        free.give(first, BIG, |_| true);
        for page in (16..512).step_by(16) {
            assert_eq!(free.take(BIG), Some(slot(ROOTS[0], page)));
        }
        assert_eq!(free.take(BIG), Some(first));
        assert!(!free.has(BIG) && !free.has(1));
    }

    #[test]
    fn pieces_of_an_evicted_chunk_wait_for_all_that_are_zero() {
        // EVICTION-8.
        let mut free = FreePieces::default();
        free.split_root(ROOTS[0], false, BIG);
        free.split_root(ROOTS[1], true, BIG);
        assert_eq!(free.take(BIG), Some(slot(ROOTS[1], 16)));
    }

    #[test]
    fn single_pages_are_cut_from_64_kib_and_become_64_kib_again() {
        // EVICTION-7, EVICTION-9.
        let mut free = FreePieces::default();
        let first = free.split_root(ROOTS[0], true, 1);
        assert_eq!(free.take(1), Some(slot(ROOTS[0], 1)));
        assert_eq!(free.take(BIG), Some(slot(ROOTS[0], 16)), "not beside the pages");
        free.give(first, 1, |within| within == (0..16));
        assert_eq!(free.take(1), Some(slot(ROOTS[0], 2)), "page 0 was written");
        free.give(slot(ROOTS[0], 1), 1, |_| true);
        free.give(slot(ROOTS[0], 2), 1, |_| false);
        assert!(free.small.slots.is_empty());
        assert_eq!(free.take(1), Some(slot(ROOTS[0], 32)), "the first 64 KiB are free, and last");
    }
}
