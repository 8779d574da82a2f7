//! Faults, and the batches in which the driver reads them.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "a batch has as many faults as were read; pages are of live memory, 64 to a word"
)]

use std::ops::Range;

/// A fault of a walk on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct RaisedFault {
    pub(crate) page: u64,
    /// The number of the walk.
    pub(crate) walk: usize,
}

/// Pages that are noted in one word: aligned 256 KiB.
pub(crate) const WORD_PAGES: u64 = u64::BITS as u64;

/// Places at a time of which pages are noted together.
const NOTED: usize = 32;

/// The pages of an aligned 256 KiB on which a walk faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FaultedPages {
    /// The first page of the 256 KiB.
    pub(crate) first: u64,
    /// The number of the walk.
    pub(crate) walk: usize,
    /// Bit n: the walk faults on page `first + n`.
    pub(crate) bits: u64,
}

impl FaultedPages {
    /// Those of them that are in a range of pages.
    fn within(self, pages: &Range<u64>) -> Self {
        let below = |page: u64| match page.saturating_sub(self.first) {
            count @ 0..WORD_PAGES => (1 << count) - 1,
            _ => u64::MAX,
        };
        Self { bits: self.bits & below(pages.end) & !below(pages.start), ..self }
    }
}

/// Faults that the driver services together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultBatch {
    /// The pages with the walks that fault on them, by `first` and `walk`, each pair of these once.
    faulted: Vec<FaultedPages>,
    /// Faults on the first of them.
    pub(crate) merged: u64,
    /// Faults in all.
    pub(crate) faults: u64,
}

impl FaultBatch {
    pub(crate) fn of(raised: &[RaisedFault]) -> Self {
        let faulted = Vec::with_capacity(raised.len().min(NOTED));
        let mut batch = Self { faulted, merged: 0, faults: raised.len() as u64 };
        let faulted = &mut batch.faulted;
        // By the last digits of their places, where these pages were noted last.
        let mut noted_at = [0; NOTED];
        for &RaisedFault { page, walk } in raised {
            let (first, bits) = (page / WORD_PAGES * WORD_PAGES, 1 << (page % WORD_PAGES));
            let at = &mut noted_at[(page / WORD_PAGES) as usize % NOTED];
            match faulted.get_mut(*at) {
                Some(noted) if (noted.first, noted.walk) == (first, walk) => noted.bits |= bits,
                _ => {
                    *at = faulted.len();
                    faulted.push(FaultedPages { first, walk, bits });
                }
            }
        }
        // As one number: words begin with multiples of 64 pages, and there are fewer walks.
        let place = |pages: &FaultedPages| pages.first | pages.walk as u64;
        faulted.sort_unstable_by_key(place);
        faulted.dedup_by(|next, kept| {
            let is_same = place(next) == place(kept);
            kept.bits |= if is_same { next.bits } else { 0 };
            is_same
        });
        if let Some(first_page) = batch.in_order().first_page() {
            batch.merged = raised.iter().filter(|fault| fault.page == first_page).count() as u64;
        }
        batch
    }

    /// Those of a range of pages, ascending.
    fn within(&self, pages: Range<u64>) -> impl Iterator<Item = FaultedPages> {
        let mut faults = self.in_order();
        faults.pass(pages.start);
        faults.take_before(pages.end)
    }

    /// All of them, to be taken page by page.
    pub(crate) fn in_order(&self) -> FaultsFrom<'_> {
        FaultsFrom { left: &self.faulted, page: 0 }
    }

    /// The numbers of the walks that fault on a page.
    pub(crate) fn walks_on(&self, page: u64) -> impl Iterator<Item = usize> {
        self.within(page..page + 1).map(|pages| pages.walk)
    }

    pub(super) fn duplicate_percent(&self) -> u32 {
        let of_place = |faulted: &[FaultedPages]| {
            faulted.iter().fold(0, |bits, pages| bits | pages.bits).count_ones()
        };
        let by_place = self.faulted.chunk_by(|a, b| a.first == b.first);
        let pages: u64 = by_place.map(|faulted| u64::from(of_place(faulted))).sum();
        ((self.faults - pages) * 100).div_ceil(self.faults.max(1)) as u32
    }

    /// A page of each 2 MiB with a fault, ascending.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        let block = |of: &FaultedPages| of.first / pagewise_hal::PAGES_PER_BLOCK;
        self.faulted.chunk_by(move |a, b| block(a) == block(b)).map(|faulted| faulted[0].first)
    }

    /// The pages with the walks that fault on them, ascending, each pair once.
    #[cfg(test)]
    pub(super) fn raised(&self) -> Vec<RaisedFault> {
        let bits = |of: &FaultedPages| {
            let FaultedPages { first, walk, bits } = *of;
            let is_in = move |n: &u64| bits >> n & 1 != 0;
            let fault = move |n| RaisedFault { page: first + n, walk };
            (0..WORD_PAGES).filter(is_in).map(fault)
        };
        let mut raised: Vec<RaisedFault> = self.faulted.iter().flat_map(bits).collect();
        raised.sort_unstable();
        raised
    }

    /// The pages, ascending, each once.
    #[cfg(test)]
    pub(super) fn pages(&self) -> Vec<u64> {
        let mut pages: Vec<u64> = self.raised().iter().map(|fault| fault.page).collect();
        pages.dedup();
        pages
    }
}

/// The faults of a batch from a page on, ascending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultsFrom<'a> {
    /// Those behind the page, and those around it.
    left: &'a [FaultedPages],
    page: u64,
}

impl<'a> FaultsFrom<'a> {
    /// The first page of them.
    #[inline]
    pub(crate) fn first_page(&self) -> Option<u64> {
        let from_here = |pages: &FaultedPages| pages.within(&(self.page..u64::MAX));
        let mut left = self.left.iter().map(from_here);
        let found = left.find(|pages| pages.bits != 0)?;
        let others = left.take_while(|pages| pages.first == found.first);
        let bits = others.fold(found.bits, |bits, pages| bits | pages.bits);
        Some(found.first + u64::from(bits.trailing_zeros()))
    }

    /// Takes those before a page.
    #[inline]
    pub(crate) fn take_before(&mut self, end: u64) -> impl Iterator<Item = FaultedPages> + use<'a> {
        let taken = self.page..end;
        let count = self.left.iter().take_while(|pages| pages.first < end).count();
        let of_range = move |pages: &FaultedPages| pages.within(&taken);
        let faulted = self.left[..count].iter().map(of_range).filter(|pages| pages.bits != 0);
        self.pass(end);
        faulted
    }

    /// Goes on to a page.
    #[inline]
    fn pass(&mut self, page: u64) {
        let is_behind = |pages: &&FaultedPages| pages.first + WORD_PAGES <= page;
        let behind = self.left.iter().take_while(is_behind).count();
        (self.left, self.page) = (&self.left[behind..], page);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Faults on some pages at the ends of words and blocks, by three walks.
    fn raised() -> impl Strategy<Value = Vec<RaisedFault>> {
        let page = prop_oneof![60..70_u64, 500..520_u64, 1020..1030_u64];
        let fault = (page, 0..3_usize).prop_map(|(page, walk)| RaisedFault { page, walk });
        prop::collection::vec(fault, 1..100)
    }

    proptest! {
        #[test]
        fn a_batch_has_the_pages_walks_and_counts_of_its_faults(raised in raised()) {
            let batch = FaultBatch::of(&raised);
            let mut distinct = raised.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let first = distinct[0].page;
            let mut blocks: Vec<u64> = distinct.iter().map(|fault| fault.page / 512).collect();
            blocks.dedup();
            let merged = raised.iter().filter(|fault| fault.page == first).count();
            let duplicates = raised.len() - batch.pages().len();
            prop_assert_eq!(batch.raised(), distinct);
            prop_assert_eq!((batch.merged, batch.faults), (merged as u64, raised.len() as u64));
            let of_batch: Vec<u64> = batch.blocks().map(|page| page / 512).collect();
            prop_assert_eq!(of_batch, blocks);
            let percent = (duplicates * 100).div_ceil(raised.len());
            prop_assert_eq!(batch.duplicate_percent(), percent as u32);
        }

        #[test]
        fn a_range_has_the_faults_of_its_pages(raised in raised(), start in 0..1100_u64, len in 1..600_u64) {
            let batch = FaultBatch::of(&raised);
            let range = start..start + len;
            let within = FaultBatch { faulted: batch.within(range.clone()).collect(), ..batch.clone() };
            let mut expected = batch.raised();
            expected.retain(|fault| range.contains(&fault.page));
            prop_assert_eq!(within.raised(), expected);
            let mut rest = batch.in_order();
            let _ = rest.take_before(start);
            let from = batch.pages().into_iter().find(|page| *page >= start);
            prop_assert_eq!(rest.first_page(), from);
            let on_start = batch.raised().into_iter().filter(|fault| fault.page == start);
            let walks: Vec<usize> = on_start.map(|fault| fault.walk).collect();
            prop_assert_eq!(batch.walks_on(start).collect::<Vec<_>>(), walks);
        }
    }
}
