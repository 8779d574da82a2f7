//! The pieces of split root chunks, as runs of pieces that lie side by side.
#![allow(clippy::arithmetic_side_effects, reason = "pages of live memory, and of one root chunk")]

use std::collections::BTreeMap;
use std::ops::Range;

use super::free::Slot;
use super::root_id::RootId;
use crate::floor::at_or_before;

/// Pieces of one size that follow each other, both in managed memory and in their root chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PieceRun {
    /// The pages of a piece.
    pub(super) len: u16,
    pub(super) count: u16,
    /// The place of the first piece.
    pub(super) slot: Slot,
}

impl PieceRun {
    pub(super) fn pages(&self) -> u16 {
        self.len * self.count
    }

    /// The places in the root chunk, by page.
    fn places(&self) -> Range<u16> {
        self.slot.page..self.slot.page + self.pages()
    }

    /// Cuts the pieces from `count` on off.
    fn split_off(&mut self, count: u16) -> Self {
        let slot = self.slot.behind(count * self.len);
        let rest = Self { count: self.count - count, slot, ..*self };
        self.count = count;
        rest
    }

    /// Takes the first piece away, and returns its place.
    pub(super) fn pop(&mut self) -> Option<Slot> {
        let slot = self.slot;
        self.count = self.count.checked_sub(1)?;
        self.slot = slot.behind(self.len);
        Some(slot)
    }

    /// Whether a piece has its place among these of the same root chunk.
    pub(super) fn touches(&self, places: &Range<u16>) -> bool {
        let own = self.places();
        !own.is_empty() && own.start < places.end && places.start < own.end
    }
}

/// All pieces of the split root chunks of one GPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Pieces {
    /// Runs by the page that they begin with.
    by_page: BTreeMap<u64, PieceRun>,
    /// Those pages by the places of the runs.
    by_slot: BTreeMap<Slot, u64>,
}

impl Pieces {
    /// Adds a piece, or several. They may not be there.
    pub(super) fn add(&mut self, first_page: u64, run: PieceRun) {
        if let Some((first, last)) = self.by_page.range_mut(..first_page).next_back()
            && *first + u64::from(last.pages()) == first_page
            && last.len == run.len
            && last.slot.behind(last.pages()) == run.slot
        {
            last.count += run.count;
            return;
        }
        self.insert(first_page, run);
    }

    fn insert(&mut self, first_page: u64, run: PieceRun) {
        self.by_page.insert(first_page, run);
        self.by_slot.insert(run.slot, first_page);
    }

    /// Removes the run that begins with this page.
    pub(super) fn remove(&mut self, first_page: u64) -> Option<PieceRun> {
        let run = self.by_page.remove(&first_page)?;
        self.by_slot.remove(&run.slot);
        Some(run)
    }

    /// The run that holds a page, and its first page.
    fn holding(&self, page: u64) -> Option<(u64, &PieceRun)> {
        let (first, run) = at_or_before(&self.by_page, page)?;
        (page < first + u64::from(run.pages())).then_some((first, run))
    }

    /// The root chunk that a page has its memory in.
    pub(super) fn root_of(&self, page: u64) -> Option<RootId> {
        self.holding(page).map(|(_, run)| run.slot.root)
    }

    /// Makes a run begin with the first piece that begins at this page or after it, in the run that
    /// holds the page.
    fn cut(&mut self, page: u64) {
        let Some((&first, run)) = self.by_page.range_mut(..page).next_back() else { return };
        let before = (page - first).div_ceil(run.len.into());
        if before < run.count.into() {
            let rest = run.split_off(before as u16);
            let start = first + before * u64::from(run.len);
            self.insert(start, rest);
        }
    }

    /// Has the piece that holds a page be single pages, unless it begins with the page.
    pub(super) fn split_piece(&mut self, page: u64) {
        let Some((first, run)) = self.holding(page) else { return };
        let len = u64::from(run.len);
        let within = (page - first) % len;
        if within == 0 {
            return;
        }
        let start = page - within;
        self.cut(start);
        self.cut(start + len);
        if let Some(run) = self.by_page.get_mut(&start) {
            (run.len, run.count) = (1, run.len);
        }
    }

    /// The first run of pieces that begin within these pages, and the runs after it in the same
    /// root chunk.
    pub(super) fn first_within(&mut self, pages: &Range<u64>) -> Option<(RootId, Vec<u64>)> {
        self.cut(pages.start);
        self.cut(pages.end);
        let mut runs = self.by_page.range(pages.clone());
        let (&first, &PieceRun { slot: Slot { root, .. }, .. }) = runs.next()?;
        let others = runs.take_while(|(_, run)| run.slot.root == root).map(|(first, _)| *first);
        Some((root, std::iter::once(first).chain(others).collect()))
    }

    pub(super) fn get(&self, first_page: u64) -> Option<&PieceRun> {
        self.by_page.get(&first_page)
    }

    /// The pieces of a root chunk that begin within these pages, ascending.
    pub(super) fn of_root(&self, root: RootId, pages: &Range<u64>) -> Vec<Range<u64>> {
        let from = self.holding(pages.start).map_or(pages.start, |(first, _)| first);
        let span = if pages.is_empty() { from..from } else { from..pages.end };
        let runs = self.by_page.range(span).filter(|(_, run)| run.slot.root == root);
        let pieces = runs.flat_map(|(&first, run)| {
            let len = u64::from(run.len);
            (0..u64::from(run.count)).map(move |at| first + at * len..first + (at + 1) * len)
        });
        pieces.filter(|piece| pages.contains(&piece.start)).collect()
    }

    /// The first page of the piece that lies first in a root chunk.
    pub(super) fn first_of_root(&self, root: RootId) -> Option<u64> {
        let (slot, first) = self.by_slot.range(Slot { root, page: 0 }..).next()?;
        (slot.root == root).then_some(*first)
    }

    /// Whether a piece has one of these places in a root chunk.
    pub(super) fn is_taken(&self, root: RootId, places: &Range<u16>) -> bool {
        let before = self.by_slot.range(..Slot { root, page: places.end }).next_back();
        let run = before.and_then(|(_, first)| self.by_page.get(first));
        run.is_some_and(|run| run.slot.root == root && run.touches(places))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::root_id::{BIG, ROOT};
    use super::*;

    const ROOTS: [RootId; 2] = [RootId::new(0), RootId::new(1)];

    /// Pieces one by one: by first page, their length and place.
    type Plain = BTreeMap<u64, (u16, Slot)>;

    #[derive(Debug, Clone)]
    enum Step {
        Add(u64, u16),
        Split(u64),
        Remove(Range<u64>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let big = u64::from(BIG);
        prop_oneof![
            (0..64u64).prop_map(move |at| Step::Add(at * big, BIG)),
            (0..1024u64).prop_map(|at| Step::Add(at, 1)),
            (0..1024u64).prop_map(Step::Split),
            (0..1024u64, 1..300u64).prop_map(|(at, pages)| Step::Remove(at..at + pages)),
        ]
    }

    /// The place of a page: chunks in the order of pages, each with its halves exchanged.
    fn slot_of(page: u64) -> Slot {
        let within = (page % u64::from(ROOT)) as u16;
        Slot { root: ROOTS[(page / u64::from(ROOT)) as usize], page: (within + 256) % ROOT }
    }

    fn change(pieces: &mut Pieces, plain: &mut Plain, step: &Step) {
        match step.clone() {
            Step::Add(page, len) => {
                let new = page..page + u64::from(len);
                if plain
                    .iter()
                    .any(|(&at, &(len, _))| at < new.end && new.start < at + u64::from(len))
                {
                    return;
                }
                pieces.add(page, PieceRun { len, count: 1, slot: slot_of(page) });
                plain.insert(page, (len, slot_of(page)));
            }
            Step::Split(page) => {
                pieces.split_piece(page);
                let big = page - page % u64::from(BIG);
                if page != big && plain.get(&big).is_some_and(|(len, _)| *len == BIG) {
                    let singles = (big..big + u64::from(BIG)).map(|at| (at, (1, slot_of(at))));
                    plain.extend(singles);
                }
            }
            Step::Remove(pages) => {
                while let Some((root, firsts)) = pieces.first_within(&pages) {
                    for first in firsts {
                        let run = pieces.remove(first).expect("it was found");
                        assert_eq!(run.slot.root, root);
                    }
                }
                plain.retain(|page, _| !pages.contains(page));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn runs_hold_the_pieces_that_a_list_of_single_ones_holds(
            steps in prop::collection::vec(step(), 0..60),
            (start, pages) in (0..1024u64, 0..600u64),
        ) {
            let (mut pieces, mut plain) = (Pieces::default(), Plain::new());
            for step in &steps {
                change(&mut pieces, &mut plain, step);
            }
            let asked = start..start + pages;
            for root in ROOTS {
                let of_root = plain.iter().filter(|(_, (_, slot))| slot.root == root);
                let within = of_root.clone().filter(|(page, _)| asked.contains(page));
                let expected: Vec<Range<u64>> =
                    within.map(|(&page, &(len, _))| page..page + u64::from(len)).collect();
                prop_assert_eq!(pieces.of_root(root, &asked), expected);
                let first = of_root.clone().min_by_key(|(_, (_, slot))| *slot);
                prop_assert_eq!(pieces.first_of_root(root), first.map(|(page, _)| *page));
                for at in (0..ROOT).step_by(BIG.into()) {
                    let places = at..at + BIG;
                    let taken = of_root.clone().any(|(_, (_, slot))| places.contains(&slot.page));
                    prop_assert_eq!(pieces.is_taken(root, &places), taken);
                }
            }
            let root = plain.get(&start).map(|(_, slot)| slot.root);
            prop_assert!(root.is_none() || pieces.root_of(start) == root);
        }
    }
}
