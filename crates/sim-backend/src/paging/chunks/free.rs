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

    pub(super) fn behind(self, pages: u16) -> Self {
        Self { page: self.page + pages, ..self }
    }
}

/// When a piece is handed out: those that were written wait, and then the longest free goes first.
type Turn = (bool, u64);

/// Free pieces of one size that became free one after the other, and lie side by side in that order.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    first: Slot,
    count: u16,
}

/// Free pieces of one size.
#[derive(Debug, Clone)]
struct FreeList {
    /// The pages of a piece.
    len: u16,
    /// By their turns. The pieces of one follow each other.
    stretches: BTreeMap<Turn, Stretch>,
    /// The turns of stretches, by their last piece: the others are handed out before it.
    turns: BTreeMap<Slot, Turn>,
}

impl FreeList {
    fn of(len: u16) -> Self {
        Self { len, stretches: BTreeMap::new(), turns: BTreeMap::new() }
    }

    fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    fn push(&mut self, stretch: Stretch, turn: Turn) {
        let Stretch { first, count } = stretch;
        let last = Slot { page: first.page + (count - 1) * self.len, ..first };
        self.stretches.insert(turn, stretch);
        self.turns.insert(last, turn);
    }

    /// The next piece, and whether it is zero.
    fn pop(&mut self) -> Option<(Slot, bool)> {
        let mut next = self.stretches.first_entry()?;
        let (is_written, _) = *next.key();
        let Stretch { first, count } = next.get_mut();
        let slot = *first;
        if *count > 1 {
            (first.page, *count) = (first.page + self.len, *count - 1);
        } else {
            next.remove();
            self.turns.remove(&slot);
        }
        Some((slot, !is_written))
    }

    /// Drops the stretches that lie within these places. None lies there in part.
    fn drop_within(&mut self, places: Range<Slot>) {
        while let Some((&last, &turn)) = self.turns.range(places.clone()).next() {
            self.turns.remove(&last);
            self.stretches.remove(&turn);
        }
    }
}

/// The free pieces of the split root chunks of one GPU.
#[derive(Debug, Clone)]
pub(super) struct FreePieces {
    big: FreeList,
    small: FreeList,
    given: u64,
}

impl Default for FreePieces {
    fn default() -> Self {
        Self { big: FreeList::of(BIG), small: FreeList::of(1), given: 0 }
    }
}

impl FreePieces {
    /// Whether a piece of this length is free, or can be cut from one.
    pub(super) fn has(&self, len: u16) -> bool {
        match len {
            1 => !(self.small.is_empty() && self.big.is_empty()),
            BIG => !self.big.is_empty(),
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
        let others = Stretch { first: first.behind(BIG), count: ROOT / BIG - 1 };
        let turn = self.turn(is_zero);
        self.big.push(others, turn);
        self.first_of(first, is_zero, len)
    }

    /// The beginning of a piece of 64 KiB that was taken.
    fn first_of(&mut self, slot: Slot, is_zero: bool, len: u16) -> Slot {
        if len == 1 {
            let others = Stretch { first: slot.behind(1), count: BIG - 1 };
            let turn = self.turn(is_zero);
            self.small.push(others, turn);
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
        let alone = |first| Stretch { first, count: 1 };
        let big = slot.big();
        if len == BIG {
            self.big.push(alone(slot), turn);
        } else if is_taken(big.page..big.page + BIG) {
            self.small.push(alone(slot), turn);
        } else {
            self.small.drop_within(big..big.behind(BIG));
            self.big.push(alone(big), turn);
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
    use std::collections::BTreeSet;

    use proptest::prelude::*;

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
        assert!(free.small.is_empty());
        assert_eq!(free.take(1), Some(slot(ROOTS[0], 32)), "the first 64 KiB are free, and last");
    }

    /// Free pieces one by one: their turns, places and lengths.
    #[derive(Default)]
    struct Plain {
        free: BTreeSet<(u16, bool, u64, Slot)>,
        turns: u64,
    }

    impl Plain {
        fn push(&mut self, is_zero: bool, len: u16, slots: impl Iterator<Item = Slot>) {
            for slot in slots {
                self.turns += 1;
                self.free.insert((len, !is_zero, self.turns, slot));
            }
        }

        fn split(&mut self, slot: Slot, is_zero: bool, len: u16) -> Slot {
            if len == 1 {
                self.push(is_zero, 1, (1..BIG).map(|page| slot.behind(page)));
            }
            slot
        }

        fn take(&mut self, len: u16) -> Option<Slot> {
            let first = |len| move |piece: &&(u16, bool, u64, Slot)| piece.0 == len;
            let own = self.free.iter().find(first(len));
            let next = *own.or_else(|| self.free.iter().find(first(BIG)))?;
            self.free.remove(&next);
            let (size, is_written, _, slot) = next;
            Some(if size == len { slot } else { self.split(slot, !is_written, len) })
        }

        fn drop_within(&mut self, places: Range<Slot>, most: u16) {
            self.free.retain(|(len, _, _, slot)| *len > most || !places.contains(slot));
        }

        fn give(&mut self, slot: Slot, len: u16, has_others: bool) {
            let big = slot.big();
            if len == BIG || has_others {
                return self.push(false, len, [slot].into_iter());
            }
            self.drop_within(big..big.behind(BIG), 1);
            self.push(false, BIG, [big].into_iter());
        }
    }

    proptest! {
        #[test]
        fn pieces_are_handed_out_as_from_a_list_of_single_ones(
            steps in prop::collection::vec((0..6u8, any::<prop::sample::Index>(), any::<bool>()), 1..300),
        ) {
            let (mut free, mut plain) = (FreePieces::default(), Plain::default());
            let (mut taken, mut roots) = (BTreeSet::<(Slot, u16)>::new(), 0);
            for (step, index, is_zero) in steps {
                let len = if step == 0 { BIG } else { 1 };
                if step >= 3 && !taken.is_empty() {
                    let (slot, len) = *index.get(&taken.iter().copied().collect::<Vec<_>>());
                    taken.remove(&(slot, len));
                    let has_taken = |from: Slot, len| {
                        taken.range((from, 0)..(from.behind(len), 0)).next().is_some()
                    };
                    let has_others = has_taken(slot.big(), BIG);
                    free.give(slot, len, |_| has_others);
                    plain.give(slot, len, has_others);
                    let first = Slot { page: 0, ..slot };
                    if !has_taken(first, ROOT) {
                        let all = first..first.behind(ROOT);
                        free.merge_root(slot.root);
                        plain.drop_within(all, BIG);
                    }
                    continue;
                }
                let next = free.take(len);
                prop_assert_eq!(next, plain.take(len));
                let piece = next.unwrap_or_else(|| {
                    let first = slot(RootId::new(roots), 0);
                    roots += 1;
                    let others = (BIG..ROOT).step_by(BIG.into()).map(|page| first.behind(page));
                    plain.push(is_zero, BIG, others);
                    plain.split(first, is_zero, len);
                    free.split_root(first.root, is_zero, len)
                });
                taken.insert((piece, len));
            }
        }
    }
}
