//! The pages that a kernel misses, as the threads of its grid see them.

use pagewise_hal::PAGES_PER_BLOCK;

/// The pages on which an access of the kernel would fault, for each of its walks.
pub(crate) trait Missing {
    /// The first of them from `page` on, if there is one before the end of the walk's memory.
    fn next(&self, walk: usize, page: u64) -> Option<u64>;

    /// A page from `page` on before which there is none of them, at little cost: the first of them, if it
    /// is in the same va_block.
    fn next_near(&self, walk: usize, page: u64) -> Option<u64> {
        self.next(walk, page)
    }

    /// The mapping of the device nearest to a page.
    fn mapped_near(&self, page: u64) -> Nearby;

    /// Where pages are that were some of them when the threads ran last and may be none now. Saves a
    /// look at each page that a thread waits for.
    fn came(&self) -> &Vicinity {
        &Vicinity::ANYWHERE
    }

    /// Whether a page is one of them.
    fn contains(&self, walk: usize, page: u64) -> bool {
        self.next(walk, page) == Some(page)
    }
}

/// A place of the address space, of 2 MiB: its number modulo 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u8);

impl Place {
    /// The place of a page.
    #[inline]
    pub(crate) fn of(page: u64) -> Self {
        Self((page / PAGES_PER_BLOCK) as u8)
    }

    #[inline]
    fn bit(self) -> (usize, u64) {
        ((self.0 / 64) as usize, 1 << (self.0 % 64))
    }
}

/// Places of the address space, a bit for each number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Vicinity([u64; 4]);

impl Vicinity {
    pub(crate) const ANYWHERE: Self = Self([u64::MAX; 4]);

    /// Whether a place is one of these, or has the number of one.
    #[inline]
    pub(crate) fn holds(&self, place: Place) -> bool {
        let (word, bit) = place.bit();
        self.0[word] & bit != 0
    }

    /// Whether a place may be in both.
    #[inline]
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let [a, b, c, d] = self.0;
        let [e, f, g, h] = other.0;
        (a & e) | (b & f) | (c & g) | (d & h) != 0
    }

    /// Adds a place.
    #[inline]
    pub(crate) fn insert(&mut self, place: Place) {
        let (word, bit) = place.bit();
        self.0[word] |= bit;
    }
}

impl FromIterator<u64> for Vicinity {
    /// Where all of these pages are.
    fn from_iter<I: IntoIterator<Item = u64>>(pages: I) -> Self {
        let mut all = Self::default();
        pages.into_iter().for_each(|page| all.insert(Place::of(page)));
        all
    }
}

/// The mapping of a device nearest to a page. It decides how much of the page tables the device
/// has at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearby {
    /// One of the same 8 entries of the page table: a page of the same aligned 512 KiB, or if the
    /// va_block has none, all of a va_block of the same aligned 16 MiB.
    Group,
    /// One of the same 16 entries.
    Pair,
    /// A page of the same va_block.
    Block,
    /// None of these.
    Nothing,
}
