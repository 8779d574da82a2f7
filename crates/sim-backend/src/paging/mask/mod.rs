//! Sets of pages within one va_block: 512 bits, bit n = page n of the block.
//!
//! Pages at or past the length of a block are never set; the callers see to it. Knows nothing of
//! blocks or addresses.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "bits of 512, 64 to a word; an empty range is answered before"
)]

mod counts;
mod sixteens;

use std::fmt;
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not, Range};

pub(crate) use self::counts::{Counts, Taken};
pub(crate) use self::sixteens::SIXTEENS;

/// Pages in a full va_block.
pub(crate) const PAGES: usize = 512;

const WORDS: usize = PAGES / 64;

/// By number of bits: full words, one with so many bits set, empty words.
static STEPS: [[u64; 2 * WORDS + 1]; 64] = {
    let mut steps = [[0; 2 * WORDS + 1]; 64];
    let mut bits = 0;
    while bits < 64 {
        let mut word = 0;
        while word < WORDS {
            steps[bits][word] = u64::MAX;
            word += 1;
        }
        steps[bits][WORDS] = (1 << bits) - 1;
        bits += 1;
    }
    steps
};

/// A set of pages of one va_block.
#[derive(Clone, Copy, Eq, Default)]
pub(crate) struct PageMask([u64; WORDS]);

impl PartialEq for PageMask {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // Written out rather than compared: the comparison of arrays is a call of memcmp.
        self.with(*other, |a, b| a ^ b).is_empty()
    }
}

impl PageMask {
    /// No page.
    pub(crate) const EMPTY: Self = Self([0; WORDS]);

    /// The pages of a range.
    #[inline]
    pub(crate) fn range(pages: Range<usize>) -> Self {
        Self::below(pages.end).minus(Self::below(pages.start))
    }

    /// The pages before one: a window of a table, so that it takes no branch per word.
    #[inline]
    fn below(page: usize) -> Self {
        debug_assert!(page <= PAGES);
        let window = STEPS[page % 64].get(WORDS - page / 64..).and_then(|from| from.first_chunk());
        Self(*window.unwrap_or(&[u64::MAX; WORDS]))
    }

    /// One page.
    #[inline]
    pub(crate) fn single(page: usize) -> Self {
        let mut mask = Self::EMPTY;
        mask.insert(page);
        mask
    }

    /// Adds one page.
    #[inline]
    pub(crate) fn insert(&mut self, page: usize) {
        self.0[page / 64] |= 1 << (page % 64);
    }

    /// Adds up to 64 pages: bit n is page `at + n`, which is in the block where the bit is set.
    #[inline]
    pub(crate) fn insert_word(&mut self, at: i64, bits: u64) {
        let (at, bits) = match u32::try_from(-at) {
            Ok(before) => (0, bits.checked_shr(before).unwrap_or(0)),
            Err(_) => (at as usize, bits),
        };
        let (word, shift) = (at / 64, at as u32 % 64);
        if let Some(low) = self.0.get_mut(word) {
            *low |= bits << shift;
        }
        // Of no shift, all bits are in the first word.
        if let Some(high) = self.0.get_mut(word + 1) {
            *high |= bits >> 1 >> (63 - shift);
        }
    }

    /// Adds one page or removes it.
    #[inline]
    pub(crate) fn set(&mut self, page: usize, is_in: bool) {
        let (word, bit) = (&mut self.0[page / 64], page % 64);
        *word = *word & !(1 << bit) | u64::from(is_in) << bit;
    }

    /// Adds the pages of a range.
    #[inline]
    pub(crate) fn insert_range(&mut self, pages: Range<usize>) {
        *self |= Self::range(pages);
    }

    /// Adds the pages of another set.
    #[inline]
    pub(crate) fn insert_mask(&mut self, pages: Self) {
        *self |= pages;
    }

    /// Whether a page is in the set.
    #[inline]
    pub(crate) fn contains(&self, page: usize) -> bool {
        self.0[page / 64] >> (page % 64) & 1 != 0
    }

    /// Whether the set has no page.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let [a, b, c, d, e, f, g, h] = self.0;
        (a | b | c | d | e | f | g | h) == 0
    }

    /// Whether all pages of a full va_block are in the set.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let [a, b, c, d, e, f, g, h] = self.0;
        (a & b & c & d & e & f & g & h) == u64::MAX
    }

    /// The page of a set that has no other.
    #[inline]
    pub(crate) fn only(&self) -> Option<usize> {
        let page = self.next_set(0);
        (page < PAGES && *self == Self::single(page)).then_some(page)
    }

    /// Whether the sets share a page.
    #[inline]
    pub(crate) fn intersects(&self, other: &Self) -> bool {
        !(*self & *other).is_empty()
    }

    /// The pages that are not in `other`.
    #[inline]
    pub(crate) fn minus(self, other: Self) -> Self {
        self.with(other, |a, b| a & !b)
    }

    /// Both sets, word by word. Written out, so that the compiler takes several words at once.
    #[inline(always)]
    fn with(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let [a, b] = [self.0, other.0];
        Self([
            op(a[0], b[0]),
            op(a[1], b[1]),
            op(a[2], b[2]),
            op(a[3], b[3]),
            op(a[4], b[4]),
            op(a[5], b[5]),
            op(a[6], b[6]),
            op(a[7], b[7]),
        ])
    }

    /// The first page from `from` on that is in the set, or [`PAGES`].
    #[inline]
    pub(crate) fn next_set(&self, from: usize) -> usize {
        self.next(from, 0)
    }

    /// The first page from `from` on that is not in the set, or [`PAGES`].
    #[inline]
    pub(crate) fn next_clear(&self, from: usize) -> usize {
        self.next(from, u64::MAX)
    }

    #[inline]
    fn next(&self, from: usize, flip: u64) -> usize {
        let mut index = from / 64;
        if index >= WORDS {
            return PAGES;
        }
        let mut word = (self.0[index] ^ flip) & (u64::MAX << (from % 64));
        loop {
            if word != 0 {
                return index * 64 + word.trailing_zeros() as usize;
            }
            index += 1;
            if index == WORDS {
                return PAGES;
            }
            word = self.0[index] ^ flip;
        }
    }

    /// The maximal runs of adjacent pages, ascending.
    #[inline]
    pub(crate) fn runs(self) -> MaskRuns {
        MaskRuns { mask: self, at: 0 }
    }

    /// The pages that are so many, at most 63, behind these.
    #[inline]
    pub(crate) fn shifted_up(&self, by: usize) -> Self {
        let [a, b, c, d, e, f, g, _] = self.0;
        let before = Self([0, a, b, c, d, e, f, g]);
        // Two shifts: one by 64 is none.
        self.with(before, |word, before| word << by | before >> 1 >> (63 - by))
    }

    /// The numbers of the runs of 64 pages that hold one of these pages, ascending.
    #[inline]
    pub(crate) fn words_in_use(&self) -> impl Iterator<Item = usize> {
        let words = self.0;
        (0..WORDS).filter(move |word| words[*word] != 0)
    }

    /// The pages, ascending.
    #[inline]
    pub(crate) fn pages(self) -> impl Iterator<Item = usize> {
        let (mut words, mut at) = (self.0, 0);
        std::iter::from_fn(move || {
            while *words.get(at)? == 0 {
                at += 1;
            }
            let bit = words[at].trailing_zeros() as usize;
            words[at] &= words[at] - 1;
            Some(at * 64 + bit)
        })
    }

    /// The pages from `first` on, renumbered from 0: what the upper half of a split block gets.
    #[inline]
    pub(crate) fn shifted_down(self, first: usize) -> Self {
        let (skip, shift) = (first / 64, first % 64);
        let word = |index: usize| self.0.get(index).copied().unwrap_or(0);
        let mut out = Self::EMPTY;
        for (index, target) in out.0.iter_mut().enumerate() {
            let low = word(index + skip) >> shift;
            let high = if shift == 0 { 0 } else { word(index + skip + 1) << (64 - shift) };
            *target = low | high;
        }
        out
    }
}

impl BitAnd for PageMask {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        self.with(other, |a, b| a & b)
    }
}

impl BitAndAssign for PageMask {
    #[inline]
    fn bitand_assign(&mut self, other: Self) {
        *self = *self & other;
    }
}

impl BitOr for PageMask {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        self.with(other, |a, b| a | b)
    }
}

impl BitOrAssign for PageMask {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl Not for PageMask {
    type Output = Self;
    #[inline]
    fn not(mut self) -> Self {
        self.0.iter_mut().for_each(|word| *word = !*word);
        self
    }
}

impl fmt::Debug for PageMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}

/// Iterator over the maximal runs of a [`PageMask`].
#[derive(Debug, Clone)]
pub(crate) struct MaskRuns {
    mask: PageMask,
    at: usize,
}

impl Iterator for MaskRuns {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.mask.next_set(self.at);
        if start == PAGES {
            return None;
        }
        self.at = self.mask.next_clear(start);
        Some(start..self.at)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A mask with irregular bits, different for each seed.
    pub(in super::super) fn irregular(seed: usize) -> PageMask {
        let mut mask = PageMask::EMPTY;
        let mut x = seed as u64 + 1;
        for page in 0..PAGES {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if x >> 61 != 0 {
                continue;
            }
            mask.insert_range(page..(page + 1 + (x >> 40) as usize % 9).min(PAGES));
        }
        mask
    }

    #[test]
    fn a_range_holds_exactly_its_pages() {
        for start in (0..PAGES).step_by(37) {
            for end in (start..=PAGES).step_by(29) {
                let mask = PageMask::range(start..end);
                assert_eq!(mask.count(), end - start);
                assert!((0..PAGES).all(|p| mask.contains(p) == (start..end).contains(&p)));
            }
        }
    }

    #[test]
    fn a_word_adds_its_pages_at_any_place() {
        let pages = irregular(3);
        for at in -63..PAGES as i64 {
            let page = |n: u32| usize::try_from(at + i64::from(n)).ok();
            let is_in = |n: &u32| page(*n).is_some_and(|page| page < PAGES && pages.contains(page));
            let bits = (0..64).filter(is_in).fold(0, |bits, n| bits | 1 << n);
            let mut mask = PageMask::single(7);
            mask.insert_word(at, bits);
            let window = PageMask::range(at.max(0) as usize..PAGES.min((at + 64) as usize));
            assert_eq!(mask, (pages & window) | PageMask::single(7), "{at}");
        }
    }

    #[test]
    fn runs_are_maximal_and_rebuild_the_mask() {
        for seed in 0..50 {
            let mask = irregular(seed);
            let mut rebuilt = PageMask::EMPTY;
            let mut last_end = None;
            for run in mask.runs() {
                assert!(run.start < run.end && last_end != Some(run.start));
                last_end = Some(run.end);
                rebuilt.insert_range(run);
            }
            assert_eq!(rebuilt, mask);
            assert_eq!(mask.run_count(), mask.runs().count());
        }
    }

    #[test]
    fn the_set_laws_hold() {
        for seed in 0..50 {
            let (a, b) = (irregular(seed), irregular(seed + 1000));
            assert_eq!(a.minus(b) | (a & b), a);
            for by in [0, 1, 15, 63] {
                let moved = a.shifted_up(by);
                assert!((0..by).all(|page| !moved.contains(page)));
                assert!((by..PAGES).all(|page| moved.contains(page) == a.contains(page - by)));
            }
            assert_eq!((a | b).count() + (a & b).count(), a.count() + b.count());
            assert_eq!(!(a | b), !a & !b);
            assert_eq!(a.intersects(&b), !(a & b).is_empty());
            assert_eq!(a.count_in(100..300), (a & PageMask::range(100..300)).count());
            for bits in 0..=9 {
                let len = 1 << bits;
                for at in (0..PAGES).step_by(len) {
                    assert_eq!(a.count_aligned(at, len), a.count_in(at..at + len));
                }
            }
        }
    }
}
