//! Counts of pages and of runs.
//!
//! Builds for x86-64 may use no instruction that counts bits: not all such processors have one. The
//! counts of whole masks, which faults and copies ask for most, look when they run, and use POPCNT
//! where the processor has it. They do not use AVX2: masks are stored in halves of its registers,
//! and loads of what was just stored in halves wait (random faults: 4.5 M/s for 5.05).

use std::ops::Range;

use super::sixteens::counts_of_sixteens;
use super::{PAGES, PageMask};

/// Whether counts use the instruction for it wherever it is not looked for: builds for x86-64 do
/// not.
const PLAIN: bool = !cfg!(target_arch = "x86_64");

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Counts, PageMask, Taken};

    #[inline(always)]
    pub(super) fn has_popcnt() -> bool {
        is_x86_feature_detected!("popcnt")
    }

    #[target_feature(enable = "popcnt")]
    pub(super) fn count(pages: &PageMask) -> usize {
        pages.count_of::<true>()
    }

    #[target_feature(enable = "popcnt")]
    pub(super) fn take_from(to: &mut PageMask, from: &mut PageMask, pages: &PageMask) -> Taken {
        to.take_from_of::<true>(from, pages)
    }

    #[target_feature(enable = "popcnt")]
    pub(super) fn counts_by(pages: &PageMask, kind: &PageMask) -> [Counts; 2] {
        pages.counts_by_of::<true>(kind)
    }
}

impl PageMask {
    /// How many pages are in the set.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        #[cfg(target_arch = "x86_64")]
        if x86::has_popcnt() {
            // SAFETY: the processor has the instruction that the function uses.
            return unsafe { x86::count(self) };
        }
        self.count_of::<PLAIN>()
    }

    #[inline(always)]
    fn count_of<const INSTRUCTION: bool>(&self) -> usize {
        if INSTRUCTION {
            return self.0.iter().map(|word| word.count_ones() as usize).sum();
        }
        // The counts of bits, pairs, fours and eights are added for several words at once: one word
        // after the other takes twice as long on processors without an instruction for it.
        const PAIRS: u64 = u64::MAX / 0b11;
        const FOURS: u64 = u64::MAX / 0b101;
        const EIGHTS: u64 = u64::MAX / 0x11;
        const SIXTEENS: u64 = u64::MAX / 0x101;
        let fours = |word: u64| {
            let pairs = word - (word >> 1 & PAIRS);
            (pairs & FOURS) + (pairs >> 2 & FOURS)
        };
        let eights = |one: u64, other: u64| {
            let fours = fours(one) + fours(other);
            (fours & EIGHTS) + (fours >> 4 & EIGHTS)
        };
        let [a, b, c, d, e, f, g, h] = self.0;
        let all = eights(a, e) + eights(b, f) + eights(c, g) + eights(d, h);
        let sixteens = (all & SIXTEENS) + (all >> 8 & SIXTEENS);
        (sixteens.wrapping_mul(u64::MAX / 0xffff) >> 48) as usize
    }

    /// How many pages of a range are in the set.
    #[inline]
    pub(crate) fn count_in(&self, pages: Range<usize>) -> usize {
        debug_assert!(pages.end <= PAGES);
        if pages.is_empty() {
            return 0;
        }
        let (first, last) = (pages.start / 64, (pages.end - 1) / 64);
        let from = u64::MAX << (pages.start % 64);
        let to = u64::MAX >> (63 - (pages.end - 1) % 64);
        let count = |word: u64| word.count_ones() as usize;
        if first == last {
            return count(self.0[first] & from & to);
        }
        let within: usize = self.0[first + 1..last].iter().map(|word| count(*word)).sum();
        count(self.0[first] & from) + within + count(self.0[last] & to)
    }

    /// How many pages of a range are in the set. Its length is a power of two, and its start is a
    /// multiple of it.
    #[inline]
    pub(crate) fn count_aligned(&self, start: usize, len: usize) -> usize {
        if len <= 64 {
            let within = self.0[start / 64] >> (start % 64) & (u64::MAX >> (64 - len));
            return within.count_ones() as usize;
        }
        self.0[start / 64..(start + len) / 64].iter().map(|word| word.count_ones() as usize).sum()
    }

    /// How many pages of the aligned 16, 32 and 64 around a page are in the set.
    #[inline]
    pub(crate) fn counts_around(&self, page: usize) -> [usize; 3] {
        let sixteens = counts_of_sixteens(self.0[page / 64]);
        let of_16 = |nth: usize| (sixteens >> (16 * nth) & 0xff) as usize;
        let (own, all) = (page % 64 / 16, of_16(0) + of_16(1) + of_16(2) + of_16(3));
        [of_16(own), of_16(own) + of_16(own ^ 1), all]
    }

    /// The counts of the pages of a range but one, which ends a run.
    #[inline]
    pub(crate) fn counts_beside(&self, page: usize, range: &Range<usize>) -> Counts {
        let mut counts = Counts::default();
        let mut before = 0;
        for word in words_of(range) {
            let mut pages = self.0[word] & word_of(range, word);
            if page / 64 == word {
                pages &= !(1 << (page % 64));
            }
            if pages != 0 {
                counts.add(pages & !(pages << 1 | before), pages);
            }
            before = pages >> 63;
        }
        counts
    }

    /// Adds pages, and takes them out of another set as far as they are there.
    #[inline]
    pub(crate) fn take_from(&mut self, other: &mut Self, pages: &Self) -> Taken {
        #[cfg(target_arch = "x86_64")]
        if x86::has_popcnt() {
            // SAFETY: the processor has the instruction that the function uses.
            return unsafe { x86::take_from(self, other, pages) };
        }
        self.take_from_of::<PLAIN>(other, pages)
    }

    #[inline(always)]
    fn take_from_of<const INSTRUCTION: bool>(&mut self, other: &mut Self, pages: &Self) -> Taken {
        // Without a branch for each word: which words have pages follows no pattern.
        let added = pages.minus(*self);
        let moved = added & *other;
        *self |= added;
        *other = other.minus(moved);
        Taken { added, moved, count: added.count_of::<INSTRUCTION>() }
    }

    /// The same for the pages of a range.
    #[inline]
    pub(crate) fn take_range_from(&mut self, other: &mut Self, pages: Range<usize>) -> Taken {
        let mut taken = Taken::default();
        for word in words_of(&pages) {
            self.take_word(other, word, word_of(&pages, word), &mut taken);
        }
        taken
    }

    #[inline]
    fn take_word(&mut self, other: &mut Self, word: usize, pages: u64, taken: &mut Taken) {
        let added = pages & !self.0[word];
        if added == 0 {
            return; // As in most words, for most pages.
        }
        let moved = added & other.0[word];
        self.0[word] |= added;
        other.0[word] &= !moved;
        (taken.added.0[word], taken.moved.0[word]) = (added, moved);
        taken.count += added.count_ones() as usize;
    }

    /// How many maximal runs there are.
    #[inline]
    pub(crate) fn run_count(&self) -> usize {
        let [counts, _] = self.counts_by(&Self::EMPTY);
        counts.runs
    }

    /// The counts of the pages that are not of a kind, and of those that are. A run ends where the
    /// kind changes.
    #[inline]
    pub(crate) fn counts_by(&self, kind: &Self) -> [Counts; 2] {
        #[cfg(target_arch = "x86_64")]
        if x86::has_popcnt() {
            // SAFETY: the processor has the instruction that the function uses.
            return unsafe { x86::counts_by(self, kind) };
        }
        self.counts_by_of::<PLAIN>(kind)
    }

    #[inline(always)]
    fn counts_by_of<const INSTRUCTION: bool>(&self, kind: &Self) -> [Counts; 2] {
        // Without a branch for each word: which words have pages follows no pattern.
        let changes = kind.with(kind.shifted_up(1), |a, b| a ^ b);
        let starts = *self & (changes | !self.shifted_up(1));
        let counts = |starts: Self, pages: Self| {
            let count = |mask: Self| mask.count_of::<INSTRUCTION>();
            Counts { runs: count(starts), pages: count(pages) }
        };
        let of_kind = *self & *kind;
        if of_kind.is_empty() {
            return [counts(starts, *self), Counts::default()];
        }
        [counts(starts.minus(*kind), self.minus(*kind)), counts(starts & *kind, of_kind)]
    }
}

/// The words that hold the pages of a range.
#[inline]
fn words_of(pages: &Range<usize>) -> Range<usize> {
    pages.start / 64..pages.end.div_ceil(64)
}

/// The pages of a range in one of its words.
#[inline]
fn word_of(pages: &Range<usize>, word: usize) -> u64 {
    let from = pages.start.saturating_sub(word * 64);
    let to = (pages.end - word * 64).min(64);
    u64::MAX << from & u64::MAX >> (64 - to)
}

/// Pages that came to a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    pub(crate) added: PageMask,
    /// Those of them that the other set had.
    pub(crate) moved: PageMask,
    /// How many were added.
    pub(crate) count: usize,
}

/// How many pages there are in a set, and in how many runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) runs: usize,
    pub(crate) pages: usize,
}

impl Counts {
    #[inline]
    fn add(&mut self, starts: u64, pages: u64) {
        self.runs += starts.count_ones() as usize;
        self.pages += pages.count_ones() as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::irregular;
    use super::*;

    #[test]
    fn counts_around_a_page_are_those_of_its_aligned_runs() {
        let masks = (0..20).map(irregular).chain([PageMask::EMPTY, !PageMask::EMPTY]);
        for mask in masks {
            for page in 0..PAGES {
                let count = |size| mask.count_aligned(page / size * size, size);
                assert_eq!(mask.counts_around(page), [16, 32, 64].map(count), "{page}");
            }
        }
    }

    #[test]
    fn counts_with_and_without_the_instruction_are_the_same() {
        for seed in 0..50 {
            let (pages, kind) = (irregular(seed), irregular(seed + 1000));
            assert_eq!(pages.count_of::<true>(), pages.count_of::<false>());
            assert_eq!(pages.count(), pages.count_of::<false>());
            assert_eq!(pages.counts_by_of::<true>(&kind), pages.counts_by_of::<false>(&kind));
            let taken = |take: fn(&mut PageMask, &mut PageMask, &PageMask) -> Taken| {
                let (mut to, mut from) = (irregular(seed + 2000), kind);
                (take(&mut to, &mut from, &pages), to, from)
            };
            let all = [PageMask::take_from_of::<true>, PageMask::take_from_of::<false>];
            assert_eq!(taken(all[0]), taken(all[1]));
            assert_eq!(taken(PageMask::take_from), taken(all[0]));
        }
    }

    #[test]
    fn counts_by_kind_are_those_of_runs_that_end_where_the_kind_changes() {
        for seed in 0..50 {
            let (pages, kind) = (irregular(seed), irregular(seed + 1000));
            let mut expected = [Counts::default(); 2];
            let mut before = None;
            for page in 0..PAGES {
                let now = pages.contains(page).then(|| usize::from(kind.contains(page)));
                if let Some(kind) = now {
                    expected[kind].pages += 1;
                    expected[kind].runs += usize::from(before != now);
                }
                before = now;
            }
            assert_eq!(pages.counts_by(&kind), expected);
        }
    }

    #[test]
    fn pages_that_a_set_takes_are_in_it_and_no_longer_in_the_other() {
        for seed in 0..50 {
            let [one, other, pages] = [0, 1000, 2000].map(|from| irregular(seed + from));
            let (mut to, mut from) = (one, other.minus(one));
            let taken = to.take_from(&mut from, &pages);
            assert_eq!((to, from), (one | pages, other.minus(one).minus(pages)));
            assert_eq!((taken.added, taken.count), (pages.minus(one), pages.minus(one).count()));
            assert_eq!(taken.moved, pages.minus(one) & other);
            for range in [0..512, 64..128, 3..400, 130..131, 100..200, 448..512] {
                let (mut to, mut from) = (one, other);
                let (mut again, mut rest) = (one, other);
                let mask = PageMask::range(range.clone());
                let by_range = to.take_range_from(&mut from, range.clone());
                assert_eq!(by_range, again.take_from(&mut rest, &mask));
                assert_eq!((to, from), (again, rest));
                let page = range.start + range.len() / 3;
                let [_, expected] = (pages & mask).counts_by(&!PageMask::single(page));
                assert_eq!(pages.counts_beside(page, &range), expected);
            }
        }
    }
}
