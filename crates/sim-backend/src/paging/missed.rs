//! The pages that a kernel misses, as the page tables are now.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "pages and blocks of live memory; a page lies in the block it was found by"
)]

use std::cell::RefCell;
use std::ops::Range;

use super::access::Access;
use super::block::Block;
use super::engine::Paging;
use super::mask::{PAGES, PageMask};
use super::processor::ProcId;
use super::protection::Protection;
use crate::arrival::{FaultBatch, Missing, Nearby, Vicinity};

/// Answers about the pages that a walk misses. Those about the blocks of a batch end with it, and all
/// where memory is evicted or pins expire.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Stretches of memory in which the walk misses nothing, from and to, ascending and apart. Found
    /// when they were passed, so that they need not be searched again.
    pub(super) passed: Vec<(u64, u64)>,
    /// The blocks looked at last, by the number of their slot.
    looks: Box<[Look; LOOKS]>,
}

impl Known {
    /// The answers that hold after a batch.
    pub(super) fn after(mut self, batch: &FaultBatch) -> Self {
        for page in batch.places() {
            *self.look_at(page) = Look::default();
        }
        self
    }

    /// The end of the stretch that holds a page, or the page.
    pub(super) fn behind_passed(&self, page: u64) -> u64 {
        let behind = self.passed.partition_point(|(from, _)| *from <= page);
        let before = behind.checked_sub(1).map(|at| self.passed[at]);
        before.map_or(page, |(_, to)| page.max(to))
    }

    /// A stretch was passed.
    pub(super) fn pass(&mut self, from: u64, to: u64) {
        let first = self.passed.partition_point(|(_, end)| *end < from);
        let behind = self.passed.partition_point(|(start, _)| *start <= to);
        let met = self.passed.drain(first..behind.max(first));
        let all = met.fold((from, to), |all, met| (all.0.min(met.0), all.1.max(met.1)));
        self.passed.insert(first, all);
    }

    /// The place of a look at the block of a page.
    #[inline]
    fn look_at(&mut self, page: u64) -> &mut Look {
        &mut self.looks[(page / PAGES as u64) as usize % LOOKS]
    }
}

/// A block: its pages, and those of them that are accessible.
#[derive(Debug, Clone, Copy, Default)]
struct Look {
    first: u64,
    end: u64,
    accessible: PageMask,
}

/// Pages that an entry of a page table describes: 64 KiB.
const ENTRY_PAGES: u64 = 16;
/// Entries that the device reads together.
const GROUP_ENTRIES: u64 = 8;

/// How many blocks have their looks kept.
const LOOKS: usize = 32;

/// The pages that a kernel misses, as they are now.
pub(super) struct Missed<'a> {
    paging: &'a Paging,
    by: ProcId,
    needs: Protection,
    end_page: u64,
    known: RefCell<Known>,
}

impl<'a> Missed<'a> {
    pub(super) fn new(
        paging: &'a Paging,
        (by, access): (ProcId, Access),
        end_page: u64,
        known: Known,
    ) -> Self {
        let needs = access.needs(by, &paging.params);
        Self { paging, by, needs, end_page, known: RefCell::new(known) }
    }

    pub(super) fn into_known(self) -> Known {
        self.known.into_inner()
    }

    /// The answer of `read` about the block that holds a page.
    #[inline]
    fn look<T>(&self, page: u64, read: impl FnOnce(&Look) -> T) -> T {
        let mut known = self.known.borrow_mut();
        let look = known.look_at(page);
        if !(look.first..look.end).contains(&page) {
            *look = self.look_anew(page);
        }
        read(look)
    }

    #[cold]
    fn look_anew(&self, page: u64) -> Look {
        let slot = page / PAGES as u64 * PAGES as u64;
        let Some(range) = self.paging.ranges.containing(page) else {
            // Where there is nothing, nothing faults.
            return Look { first: slot, end: slot + PAGES as u64, accessible: !PageMask::EMPTY };
        };
        let Range { start: first, end } = range.block_pages(page);
        let mapped = |block: &Block| block.mapped(self.by, self.needs);
        Look { first, end, accessible: range.block(page).map_or(PageMask::EMPTY, mapped) }
    }
}

impl Missed<'_> {
    pub(super) fn mapped_near(&self, page: u64) -> Nearby {
        let near = |of: u64, mapped: &dyn Fn(u64) -> bool| {
            let any = |entries: u64| {
                let first = page / of / entries * entries;
                (first..first + entries).any(mapped)
            };
            match () {
                () if any(GROUP_ENTRIES) => Some(Nearby::Group),
                () if any(2 * GROUP_ENTRIES) => Some(Nearby::Pair),
                () => None,
            }
        };
        let range = self.paging.ranges.containing(page);
        let block = range.and_then(|range| range.block(page));
        let Some((here, first)) = block
            .map(|block| (block.mapped(self.by, Protection::Read), block.first_page()))
            .filter(|(here, _)| !here.is_empty())
        else {
            let whole = |slot: u64| self.is_whole(slot * PAGES as u64);
            return near(PAGES as u64, &whole).unwrap_or(Nearby::Nothing);
        };
        let within = |page: u64| page.saturating_sub(first).min(PAGES as u64) as usize;
        let mapped = |entry: u64| {
            let pages = entry * ENTRY_PAGES..(entry + 1) * ENTRY_PAGES;
            here.count_in(within(pages.start)..within(pages.end)) > 0
                && self.paging.walked.has(self.by, &pages)
        };
        near(ENTRY_PAGES, &mapped).unwrap_or(Nearby::Block)
    }

    /// Whether the device maps all 2 MiB that begin at a page, and has accessed them.
    fn is_whole(&self, page: u64) -> bool {
        let range = self.paging.ranges.containing(page);
        let block = range.and_then(|range| range.block(page));
        block.is_some_and(|block| block.mapped(self.by, Protection::Read).count() == PAGES)
            && self.paging.walked.has(self.by, &(page..page + PAGES as u64))
    }

    #[inline]
    pub(super) fn contains(&self, page: u64) -> bool {
        page < self.end_page
            && self.look(page, |look| !look.accessible.contains((page - look.first) as usize))
    }

    pub(super) fn next(&self, page: u64) -> Option<u64> {
        if self.contains(page) {
            return Some(page);
        }
        let (mut at, mut blocks) = (page, 0);
        let found = loop {
            if at >= self.end_page {
                break None;
            }
            let (clear, end) = self.look(at, |look| {
                let clear = look.accessible.next_clear((at - look.first) as usize);
                (look.first + clear as u64, look.end)
            });
            if clear < end {
                break Some(clear).filter(|page| *page < self.end_page);
            }
            at = end;
            blocks += 1;
            at = self.known.borrow().behind_passed(at);
        };
        if blocks > 1 {
            self.known.borrow_mut().pass(page, at);
        }
        found
    }
}

/// The pages that each walk of a kernel misses, and where pages came since the last batch.
pub(super) struct MissedByWalk<'a> {
    pub(super) by_walk: Vec<Missed<'a>>,
    pub(super) came: Vicinity,
}

impl MissedByWalk<'_> {
    pub(super) fn into_known(self) -> Vec<Known> {
        self.by_walk.into_iter().map(Missed::into_known).collect()
    }
}

impl Missing for MissedByWalk<'_> {
    #[inline]
    fn came(&self) -> &Vicinity {
        &self.came
    }

    #[inline]
    fn contains(&self, walk: usize, page: u64) -> bool {
        self.by_walk[walk].contains(page)
    }

    fn next(&self, walk: usize, page: u64) -> Option<u64> {
        self.by_walk[walk].next(page)
    }

    fn mapped_near(&self, page: u64) -> Nearby {
        self.by_walk[0].mapped_near(page)
    }
}
