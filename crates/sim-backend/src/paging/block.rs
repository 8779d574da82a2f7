//! One va_block: where it is, how long, and the state of its pages.
//!
//! A block never crosses a 2 MiB boundary (PAGING-1). It is shorter than 2 MiB at the end of a range
//! or after a split. Blocks in the same state share it until one of them changes, so a range that
//! is always treated as a whole has one state however long it is. Decides nothing: the modules that
//! service faults, advice and migrations do.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "a page of a block is below its length, at most 512; page numbers are below 2^52"
)]

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use super::mask::{PAGES, PageMask};
use super::processor::ProcId;
use super::state::BlockState;

/// One va_block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// First page, absolute.
    first_page: u64,
    state: Held,
}

/// The state of a block's pages, by itself or in common with blocks in the same state.
#[derive(Debug, Clone)]
enum Held {
    Alone(Box<BlockState>),
    Shared(Arc<BlockState>),
}

impl Deref for Block {
    type Target = BlockState;

    #[inline]
    fn deref(&self) -> &BlockState {
        match &self.state {
            Held::Alone(state) => state,
            Held::Shared(state) => state,
        }
    }
}

impl DerefMut for Block {
    /// To change it: it is no longer shared then.
    #[inline]
    fn deref_mut(&mut self) -> &mut BlockState {
        if matches!(self.state, Held::Shared(_)) {
            self.state.stop_sharing();
        }
        match &mut self.state {
            Held::Alone(state) => state,
            Held::Shared(state) => made_own(state), // It is not shared any more.
        }
    }
}

impl Held {
    #[cold]
    #[inline(never)]
    fn stop_sharing(&mut self) {
        if let Self::Shared(state) = self {
            *self = Self::Alone(Box::new(BlockState::clone(state)));
        }
    }
}

#[cold]
#[inline(never)]
fn made_own(state: &mut Arc<BlockState>) -> &mut BlockState {
    Arc::make_mut(state)
}

impl Block {
    /// A block without a resident page.
    pub(crate) fn new(first_page: u64, len: usize) -> Self {
        debug_assert!(len > 0 && first_page as usize % PAGES + len <= PAGES);
        Self { first_page, state: Held::Alone(Box::new(BlockState::new(len as u16))) }
    }

    /// First page, absolute.
    pub(crate) fn first_page(&self) -> u64 {
        self.first_page
    }

    /// The pages, absolute.
    pub(super) fn pages(&self) -> Range<u64> {
        self.first_page..self.first_page + self.len() as u64
    }

    /// Length in pages.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether this is a full 2 MiB block.
    pub(crate) fn is_full_size(&self) -> bool {
        self.len() == PAGES
    }

    /// All pages.
    pub(crate) fn all(&self) -> PageMask {
        PageMask::range(0..self.len())
    }

    /// Address in bytes of a page of this block.
    pub(crate) fn address(&self, page: usize) -> u64 {
        (self.first_page + page as u64) * pagewise_hal::PAGE_BYTES
    }

    /// Whether another block has the same length and its pages are in the same state.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        if let (Held::Shared(one), Held::Shared(other)) = (&self.state, &other.state)
            && Arc::ptr_eq(one, other)
        {
            return self.thrashing().is_none();
        }
        BlockState::is_like(self, other)
    }

    /// A block of the same length in the same state somewhere else.
    pub(super) fn at(&self, first_page: u64) -> Self {
        Self { first_page, state: self.state.clone() }
    }

    /// Makes the state one that others can share.
    pub(super) fn share(&mut self) {
        if let Held::Alone(state) = &self.state {
            self.state = Held::Shared(Arc::new(BlockState::clone(state)));
        }
    }

    /// The chunks of host memory that pages without any get: all of a full block that has none yet,
    /// else 64 KiB where they fit in and are free, else single pages.
    pub(super) fn host_chunks_for(&self, pages: PageMask) -> PageMask {
        const BIG: usize = 16;
        let taken = self.populated(ProcId::HOST);
        if self.is_full_size() && taken.is_empty() {
            return self.all();
        }
        // Aligned in memory: pages are counted from the one that is, before the block's first.
        let before = (self.first_page % BIG as u64) as usize;
        let big = |mask: &PageMask| mask.shifted_up(before).aligned_sixteens();
        let within = before.next_multiple_of(BIG)..(before + self.len()) / BIG * BIG;
        let big = big(&pages).minus(big(&taken)) & PageMask::range(within);
        big.shifted_down(before) | pages
    }

    /// Notes that a processor's mapping of pages was raised.
    #[inline]
    pub(super) fn note_device_mapping(&mut self, id: ProcId, pages: &PageMask) {
        if !id.is_host() && !pages.is_empty() {
            // The first look is enough for most.
            let whole = pages.contains(0) && *pages == self.all();
            self.device_tables.raise(whole);
        }
    }

    /// Cuts the block at a page: keeps what is below it, returns the rest as a block of its own.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        debug_assert!(at > 0 && at < self.len());
        let first_page = self.first_page + at as u64;
        let state = BlockState::split_off(self, at);
        Self { first_page, state: Held::Alone(Box::new(state)) }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::mask::tests::irregular;
    use super::super::protection::Protection;
    use super::super::state::bytes_of_state;
    use super::*;

    const GPU0: ProcId = ProcId(1);

    #[test]
    fn a_quiet_block_stays_within_224_bytes() {
        let bytes = size_of::<Block>() + bytes_of_state(2);
        assert!(bytes <= 224, "{bytes} bytes");
    }

    #[test]
    fn more_permission_includes_less_and_lowering_keeps_the_rest() {
        let mut block = Block::new(0, 512);
        block.map(GPU0, PageMask::range(0..8), Protection::Atomic);
        block.lower(GPU0, PageMask::range(0..4), Some(Protection::Read));
        assert_eq!(block.mapped(GPU0, Protection::Read), PageMask::range(0..8));
        assert_eq!(block.mapped(GPU0, Protection::Write), PageMask::range(4..8));
        block.lower(GPU0, PageMask::range(0..6), None);
        assert_eq!(block.mapped_anywhere(), PageMask::range(6..8));
    }

    #[test]
    fn for_the_host_write_is_atomic() {
        let mut block = Block::new(0, 512);
        block.map(ProcId::HOST, PageMask::single(3), Protection::Write);
        assert!(block.mapped(ProcId::HOST, Protection::Atomic).contains(3));
    }

    #[test]
    fn host_memory_comes_in_aligned_64_kib_that_fit_and_are_free_and_else_in_pages() {
        for (seed, first_page, len) in (0..40).flat_map(|seed| {
            [(0, 512), (0, 100), (16, 496), (5, 40), (37, 475), (501, 3)]
                .map(|(first, len)| (seed, 1024 + first, len))
        }) {
            let mut block = Block::new(first_page, len);
            let all = block.all();
            // Few pages have memory, and fewer of every other block.
            let few = |seed: usize| irregular(seed) & irregular(seed + 1) & irregular(seed + 2);
            let taken =
                if seed % 2 == 0 { few(seed) & irregular(seed + 3) } else { few(seed) } & all;
            block.populate(ProcId::HOST, taken);
            let pages = few(seed + 500).minus(taken) & all;
            let mut given = PageMask::EMPTY;
            for page in pages.pages() {
                let first = (first_page + page as u64) / 16 * 16;
                let big = first.checked_sub(first_page).map(|at| at as usize..at as usize + 16);
                let fits = |big: &Range<usize>| big.end <= len && taken.count_in(big.clone()) == 0;
                given.insert_range(big.filter(fits).unwrap_or(page..page + 1));
            }
            let expected = if len == 512 && taken.is_empty() { all } else { given };
            assert_eq!(block.host_chunks_for(pages), expected, "{seed} {first_page} {len}");
        }
    }

    #[test]
    fn a_split_cuts_every_mask_at_the_page() {
        let mut block = Block::new(512, 512);
        block.add_resident(GPU0, PageMask::range(90..110));
        block.map(GPU0, PageMask::range(95..105), Protection::Write);
        block.add_discarded(PageMask::range(99..101));
        let upper = block.split_off(100);
        assert_eq!((block.len(), upper.len(), upper.first_page()), (100, 412, 612));
        assert_eq!(block.resident(GPU0), PageMask::range(90..100));
        assert_eq!(upper.resident(GPU0), PageMask::range(0..10));
        assert_eq!(upper.mapped(GPU0, Protection::Write), PageMask::range(0..5));
        assert_eq!(block.discarded(), PageMask::single(99));
        assert_eq!(upper.discarded(), PageMask::single(0));
    }
}
