//! Access counters: the number of accesses of a GPU to memory that is elsewhere.
//!
//! The hardware counts a GPU's accesses to each 2 MiB of another processor's memory and remembers
//! which 64 KiB of it were meant.
#![allow(clippy::arithmetic_side_effects, reason = "pages of one block of 512")]

use std::collections::BTreeMap;
use std::ops::Range;

use super::block::Block;
use super::mask::{PAGES, PageMask};
use super::processor::ProcId;

/// Pages of a sub-region, 64 KiB.
const REGION: usize = 16;

/// The counts since the driver was last told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AccessCounter {
    accesses: u64,
    pages: PageMask,
}

/// The counters that are not 0, by GPU and first page of the block.
#[derive(Debug, Default)]
pub(super) struct AccessCounters(pub(super) BTreeMap<(ProcId, u64), AccessCounter>);

impl AccessCounters {
    /// Forgets what was counted for pages.
    pub(super) fn forget(&mut self, pages: &Range<u64>) {
        self.0.retain(|(_, first_page), _| !pages.contains(first_page));
    }

    /// Counts accesses to pages; returns what the driver is told to move, if it is told.
    pub(super) fn count(
        &mut self,
        by: ProcId,
        block: &Block,
        (accesses, pages): (u64, PageMask),
        threshold: u64,
    ) -> Option<PageMask> {
        let key = (by, block.first_page());
        let counter = self.0.entry(key).or_default();
        counter.accesses = counter.accesses.saturating_add(accesses);
        counter.pages |= pages;
        if counter.accesses < threshold {
            return None;
        }
        let told = self.0.remove(&key)?.pages;
        // Memory of the host is one piece for a full block; of a smaller one only the page is
        // known with which the count was full: the last.
        if block.is_full_size() { Some(regions(told)) } else { last(pages) }
    }
}

/// All pages of the sub-regions of which some are in the mask.
fn regions(pages: PageMask) -> PageMask {
    let mut all = PageMask::EMPTY;
    for start in (0..PAGES).step_by(REGION) {
        let region = start..start + REGION;
        if pages.count_in(region.clone()) > 0 {
            all.insert_range(region);
        }
    }
    all
}

fn last(pages: PageMask) -> Option<PageMask> {
    pages.pages().last().map(PageMask::single)
}
