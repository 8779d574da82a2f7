//! The pages that a kernel misses, as the threads of its grid see them.

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

    /// A page of each aligned 256 KiB with pages that were some of them when the threads ran last and
    /// may be none now; `None` if that may be so of any. Saves a look at each page that a thread waits
    /// for.
    fn came(&self) -> Option<&[u64]> {
        None
    }

    /// Whether a page is one of them.
    fn contains(&self, walk: usize, page: u64) -> bool {
        self.next(walk, page) == Some(page)
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
