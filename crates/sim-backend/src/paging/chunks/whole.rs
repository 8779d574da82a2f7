//! The root chunks of full va_blocks, by the page that a block begins with.
#![allow(clippy::arithmetic_side_effects, reason = "slots of pages, and of tables of 512")]

use std::ops::Range;

use super::root_id::{ROOT, RootId};
use super::tables::{SLOTS, Tables, place};

/// Which chunk a full block has, by slot: going over a range stays within few cache lines.
#[derive(Debug, Clone, Default)]
pub(super) struct WholeBlocks(Tables<Table>);

#[derive(Debug, Clone)]
struct Table {
    blocks: usize,
    roots: Box<[Option<RootId>]>,
}

impl Default for Table {
    fn default() -> Self {
        Self { blocks: 0, roots: vec![None; SLOTS as usize].into_boxed_slice() }
    }
}

impl WholeBlocks {
    #[inline]
    fn place(first_page: u64) -> (u64, usize) {
        place(first_page / u64::from(ROOT))
    }

    #[inline]
    pub(super) fn get(&self, first_page: u64) -> Option<RootId> {
        let (number, index) = Self::place(first_page);
        self.0.get(number)?.roots[index]
    }

    pub(super) fn insert(&mut self, first_page: u64, id: RootId) {
        let (number, index) = Self::place(first_page);
        let table = self.0.get_or_begin(number);
        table.blocks += usize::from(table.roots[index].replace(id).is_none());
    }

    pub(super) fn remove(&mut self, first_page: u64) -> Option<RootId> {
        let (number, index) = Self::place(first_page);
        let table = self.0.get_mut(number)?;
        let id = table.roots[index].take()?;
        table.blocks -= 1;
        if table.blocks == 0 {
            self.0.remove(number);
        }
        Some(id)
    }

    /// The first block that begins at one of these pages and has a chunk.
    pub(super) fn first_within(&self, pages: &Range<u64>) -> Option<u64> {
        let mut slots = pages.start.div_ceil(u64::from(ROOT))..pages.end.div_ceil(u64::from(ROOT));
        while !slots.is_empty() {
            let (number, table) = self.0.range(slots.start / SLOTS..u64::MAX).next()?;
            slots.start = slots.start.max(number * SLOTS);
            let end = slots.end.min((number + 1) * SLOTS);
            let mut here = slots.start..end;
            let has = |slot: &u64| table.roots[(slot % SLOTS) as usize].is_some();
            if let Some(slot) = here.find(has) {
                return Some(slot * u64::from(ROOT));
            }
            slots.start = slots.start.max(end);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = ROOT as u64;

    /// Blocks at the edges of tables, and tables with nothing between them.
    const BLOCKS: [u64; 7] = [0, 1, 511, 512, 1023, 1500, 5120];

    fn with(blocks: &[u64]) -> WholeBlocks {
        let mut whole = WholeBlocks::default();
        blocks.iter().for_each(|&block| whole.insert(block * PAGES, RootId::new(block as u32)));
        whole
    }

    #[test]
    fn a_block_has_the_chunk_that_it_was_given_last_until_that_is_removed() {
        let mut whole = with(&BLOCKS);
        whole.insert(511 * PAGES, RootId::new(7));
        for block in 0..6000 {
            let given = BLOCKS.contains(&block).then_some(RootId::new(block as u32));
            let expected = if block == 511 { Some(RootId::new(7)) } else { given };
            assert_eq!(whole.get(block * PAGES), expected, "block {block}");
        }
        for block in BLOCKS {
            assert!(whole.remove(block * PAGES).is_some());
            assert_eq!((whole.get(block * PAGES), whole.remove(block * PAGES)), (None, None));
        }
        assert!(whole.0.is_empty(), "no table is kept for nothing");
    }

    #[test]
    fn the_first_block_of_a_range_is_found_in_whichever_table_it_is() {
        let whole = with(&BLOCKS);
        let edges = BLOCKS.into_iter().flat_map(|block| {
            let page = block * PAGES;
            [page.saturating_sub(1), page, page + 1, page + PAGES - 1, page + PAGES]
        });
        let edges: Vec<u64> = edges.chain([700 * PAGES, 3000 * PAGES, 6000 * PAGES]).collect();
        for &start in &edges {
            for &end in &edges {
                let pages = start..end;
                let expected = BLOCKS.map(|block| block * PAGES).into_iter();
                let expected = expected.into_iter().find(|page| pages.contains(page));
                assert_eq!(whole.first_within(&pages), expected, "{pages:?}");
            }
        }
    }
}
