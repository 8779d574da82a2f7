//! Sets of pages at rest: a quiet block's sets are nearly always one run of pages, which needs no
//! memory of its own.

use super::mask::{PAGES, PageMask};

/// A [`PageMask`] at rest: inline if it is one run of pages, else on the heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoredMask {
    /// The pages `start..end`; empty if they are equal.
    Run(u16, u16),
    /// Anything else.
    Mixed(Box<PageMask>),
}

impl Default for StoredMask {
    #[inline]
    fn default() -> Self {
        Self::Run(0, 0)
    }
}

impl StoredMask {
    /// The set in its working form.
    #[inline]
    pub(crate) fn get(&self) -> PageMask {
        match self {
            Self::Run(start, end) if start == end => PageMask::EMPTY,
            Self::Run(start, end) => PageMask::range(usize::from(*start)..usize::from(*end)),
            Self::Mixed(mask) => **mask,
        }
    }

    /// Stores a set.
    #[inline]
    pub(crate) fn set(&mut self, mask: PageMask) {
        let start = mask.next_set(0);
        let end = mask.next_clear(start);
        if start == end {
            *self = Self::default();
        } else if mask.next_set(end) == PAGES {
            *self = Self::Run(start as u16, end as u16);
        } else if let Self::Mixed(place) = self {
            **place = mask;
        } else {
            *self = Self::Mixed(Box::new(mask));
        }
    }

    /// Whether the set has no page.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Run(start, end) if start == end)
    }

    /// Adds pages.
    #[inline]
    pub(crate) fn insert(&mut self, mask: PageMask) {
        if !mask.is_empty() {
            self.set(self.get() | mask);
        }
    }

    /// Removes pages.
    #[inline]
    pub(crate) fn remove(&mut self, mask: PageMask) {
        if self.is_empty() || mask.is_empty() {
            return;
        }
        let rest = self.get().minus(mask);
        if rest.is_empty() {
            *self = Self::default();
        } else {
            self.set(rest);
        }
    }

    /// Cuts the set at a page: keeps the pages below and returns those from it on, renumbered.
    #[inline]
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let all = self.get();
        let mut upper = Self::default();
        upper.set(all.shifted_down(at));
        self.set(all & PageMask::range(0..at));
        upper
    }
}

#[cfg(test)]
mod tests {
    use super::super::mask::tests::irregular;
    use super::*;

    #[test]
    fn a_stored_mask_returns_what_was_stored_and_splits_at_the_page() {
        for seed in 0..50 {
            let mask = irregular(seed);
            for at in [0, 1, 63, 64, 200, 511, 512] {
                let mut lower = StoredMask::default();
                lower.set(mask);
                assert_eq!(lower.get(), mask);
                let upper = lower.split_off(at);
                assert_eq!(lower.get(), mask & PageMask::range(0..at));
                assert!((at..PAGES).all(|p| upper.get().contains(p - at) == mask.contains(p)));
                assert_eq!(upper.get().count() + lower.get().count(), mask.count());
            }
        }
    }

    #[test]
    fn one_run_needs_no_heap() {
        let mut stored = StoredMask::default();
        stored.set(irregular(3));
        assert!(matches!(stored, StoredMask::Mixed(_)));
        stored.set(PageMask::range(3..400));
        assert_eq!(stored, StoredMask::Run(3, 400));
        stored.remove(PageMask::range(3..400));
        assert!(stored.is_empty());
    }
}
