//! Sets of pages by their aligned runs of 16: the 64 KiB pages of a full va_block.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "bits and counts of 16 pages, four runs to a word"
)]

use super::{PageMask, WORDS};

/// Aligned runs of 16 pages in a full va_block.
pub(crate) const SIXTEENS: usize = 4 * WORDS;

/// The first bit of each run of a word.
const RUNS: u64 = u64::MAX / 0xffff;

/// By the bits of four runs: all their pages.
static PAGES_OF_FOUR: [u64; 16] = {
    let mut pages = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        let mut run = 0;
        while run < 4 {
            pages[bits] |= (0xffff * (bits as u64 >> run & 1)) << (16 * run);
            run += 1;
        }
        bits += 1;
    }
    pages
};

/// The first bit of each 16 bits of which any is set.
#[inline]
fn any_of_sixteens(word: u64) -> u64 {
    const LAST: u64 = 0x8000_8000_8000_8000;
    // The last bit of each 16: set by itself, or by the carry of any other.
    ((((word & !LAST) + !LAST) | word) & LAST) >> 15
}

/// The counts of the bits of each 16 bits, in their place.
#[inline]
pub(super) fn counts_of_sixteens(word: u64) -> u64 {
    const PAIRS: u64 = u64::MAX / 0b11;
    const FOURS: u64 = u64::MAX / 0b101;
    const EIGHTS: u64 = u64::MAX / 0x11;
    let pairs = word - (word >> 1 & PAIRS);
    let fours = (pairs & FOURS) + (pairs >> 2 & FOURS);
    let eights = (fours + (fours >> 4)) & EIGHTS;
    (eights + (eights >> 8)) & (0xff * RUNS)
}

impl PageMask {
    /// All pages of the aligned runs of 16 pages that hold one of these pages.
    #[inline]
    pub(crate) fn aligned_sixteens(mut self) -> Self {
        self.0.iter_mut().for_each(|word| *word = any_of_sixteens(*word) * 0xffff);
        self
    }

    /// The aligned runs of 16 pages that hold one of these pages: bit n for the pages from 16 n on.
    #[inline]
    pub(crate) fn sixteens(&self) -> u32 {
        /// Brings the first bit of each 16 to the upper end, side by side.
        const GATHER: u64 = 1 << 48 | 1 << 33 | 1 << 18 | 1 << 3;
        let of_word = |(nth, word): (usize, &u64)| {
            (any_of_sixteens(*word).wrapping_mul(GATHER) >> 48 & 0xf) << (4 * nth)
        };
        self.0.iter().enumerate().map(of_word).sum::<u64>() as u32
    }

    /// All pages of these runs.
    #[inline]
    pub(crate) fn of_sixteens(runs: u32) -> Self {
        Self(std::array::from_fn(|word| PAGES_OF_FOUR[(runs >> (4 * word) & 0xf) as usize]))
    }

    /// How many pages are in the set before each run, and in all, where a run that holds a page of
    /// `filled` counts as full.
    #[inline]
    pub(crate) fn counts_before_sixteens(&self, filled: &Self) -> [u16; SIXTEENS + 1] {
        let (mut before, mut all) = ([0; SIXTEENS + 1], 0);
        for (at, (word, filled)) in self.0.iter().zip(&filled.0).enumerate() {
            let full = any_of_sixteens(*filled);
            let counts = (counts_of_sixteens(*word) & !(0xffff * full)) | (16 * full);
            // Each run gets the sum of those before it and its own.
            let sums = counts.wrapping_mul(RUNS) + all * RUNS;
            let before_each = sums - counts;
            for run in 0..4 {
                before[4 * at + run] = (before_each >> (16 * run)) as u16;
            }
            all = sums >> 48;
        }
        before[SIXTEENS] = all as u16;
        before
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::irregular;
    use super::*;

    #[test]
    fn runs_of_sixteen_are_counted_found_and_filled() {
        for seed in 0..50 {
            let pages = irregular(seed);
            let pages = pages & irregular(seed + 100) & irregular(seed + 200);
            let count = |run: usize| pages.count_in(16 * run..16 * run + 16);
            let filled = irregular(seed + 300) & irregular(seed + 400) & irregular(seed + 500);
            let before = pages.counts_before_sixteens(&filled);
            let all = (0..SIXTEENS).fold(0, |sum, run| {
                assert_eq!(usize::from(before[run]), sum);
                sum + if filled.sixteens() >> run & 1 != 0 { 16 } else { count(run) }
            });
            assert_eq!(usize::from(before[SIXTEENS]), all);
            let runs = pages.sixteens();
            assert!((0..SIXTEENS).all(|run| (runs >> run & 1 != 0) == (count(run) > 0)));
            let filled = PageMask::of_sixteens(runs);
            assert_eq!(filled, pages.aligned_sixteens());
            assert!(
                (0..super::super::PAGES)
                    .all(|page| filled.contains(page) == (count(page / 16) > 0))
            );
        }
    }
}
