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
use crate::arrival::{FaultBatch, Missing, Nearby};

/// Answers about the pages that a walk misses. Those about the blocks of a batch end with it, and all
/// where memory is evicted or pins expire.
#[derive(Debug)]
pub(super) struct Known {
    /// Stretches of memory in which the walk misses nothing, from and to, ascending and apart. Found
    /// when they were passed, so that they need not be searched again.
    pub(super) passed: Vec<(u64, u64)>,
    /// The blocks looked at last, by the last digits of the number of their slot. As many as a power
    /// of two.
    looks: Vec<Look>,
    /// How many looks took the place of another since there are so many.
    replaced: usize,
}

impl Default for Known {
    fn default() -> Self {
        Self { passed: Vec::new(), looks: vec![Look::NONE; LOOKS], replaced: 0 }
    }
}

impl Known {
    /// Forgets the blocks of a batch.
    pub(super) fn forget_blocks_of(&mut self, batch: &FaultBatch) {
        for page in batch.blocks() {
            *self.look_at(page) = Look::NONE;
        }
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        self.passed.clear();
        self.looks.fill(Look::NONE);
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
        let at = (page / PAGES as u64) as usize & (self.looks.len() - 1);
        &mut self.looks[at]
    }

    /// Keeps a look at the block of a page. There are more places for them once many were replaced.
    #[cold]
    fn keep(&mut self, page: u64, look: Look) -> &Look {
        let count = self.looks.len();
        self.replaced += usize::from(self.look_at(page).end > 0);
        if self.replaced > count && count < LOOKS_MAX {
            (self.looks, self.replaced) = (vec![Look::NONE; 2 * count], 0);
        }
        let place = self.look_at(page);
        *place = look;
        place
    }
}

/// A block: its pages, and those of them that are accessible.
#[derive(Debug, Clone, Copy)]
struct Look {
    first: u64,
    end: u64,
    accessible: PageMask,
}

impl Look {
    /// No page.
    const NONE: Self = Self { first: 0, end: 0, accessible: PageMask::EMPTY };
}

/// Pages that an entry of a page table describes: 64 KiB.
const ENTRY_PAGES: u64 = 16;
/// Entries that the device reads together.
const GROUP_ENTRIES: u64 = 8;

/// How many blocks have their looks kept, at first and at most: as many as blocks have faults of a
/// kernel on all multiprocessors at a time.
const LOOKS: usize = 16;
const LOOKS_MAX: usize = 512;

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
    #[inline(always)]
    fn look<T>(&self, page: u64, read: impl FnOnce(&Look) -> T) -> T {
        let mut known = self.known.borrow_mut();
        let mut look: &Look = known.look_at(page);
        if !(look.first..look.end).contains(&page) {
            look = known.keep(page, self.look_anew(page));
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

impl Paging {
    /// The mapping of a device nearest to a page.
    pub(super) fn mapped_near(&self, by: ProcId, page: u64) -> Nearby {
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
        let range = self.ranges.containing(page);
        let block = range.and_then(|range| range.block(page));
        let Some((here, first)) = block
            .map(|block| (block.mapped(by, Protection::Read), block.first_page()))
            .filter(|(here, _)| !here.is_empty())
        else {
            let whole = |slot: u64| self.maps_whole(by, slot * PAGES as u64);
            return near(PAGES as u64, &whole).unwrap_or(Nearby::Nothing);
        };
        let within = |page: u64| page.saturating_sub(first).min(PAGES as u64) as usize;
        let mapped = |entry: u64| {
            let pages = entry * ENTRY_PAGES..(entry + 1) * ENTRY_PAGES;
            here.count_in(within(pages.start)..within(pages.end)) > 0 && self.walked.has(by, &pages)
        };
        near(ENTRY_PAGES, &mapped).unwrap_or(Nearby::Block)
    }

    /// Whether a device maps all 2 MiB that begin at a page, and has accessed them.
    fn maps_whole(&self, by: ProcId, page: u64) -> bool {
        let range = self.ranges.containing(page);
        let block = range.and_then(|range| range.block(page));
        block.is_some_and(|block| block.mapped(by, Protection::Read).count() == PAGES)
            && self.walked.has(by, &(page..page + PAGES as u64))
    }
}

impl Missed<'_> {
    #[inline]
    pub(super) fn contains(&self, page: u64) -> bool {
        page < self.end_page
            && self.look(page, |look| !look.accessible.contains((page - look.first) as usize))
    }

    /// The next page that the walk misses, if that is in the block of `page`. If not, the end of the block.
    #[inline]
    fn next_near(&self, page: u64) -> Option<u64> {
        if page >= self.end_page {
            return None;
        }
        // Pages behind the end of a block are not accessible.
        let next = self.look(page, |look| {
            look.first + look.accessible.next_clear((page - look.first) as usize) as u64
        });
        Some(next).filter(|page| *page < self.end_page)
    }

    #[inline]
    pub(super) fn next(&self, page: u64) -> Option<u64> {
        if self.contains(page) { Some(page) } else { self.next_behind(page) }
    }

    /// The next page that the walk misses behind one that it does not.
    fn next_behind(&self, page: u64) -> Option<u64> {
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
    pub(super) came: Option<Vec<u64>>,
}

impl MissedByWalk<'_> {
    pub(super) fn into_known(self) -> Vec<Known> {
        self.by_walk.into_iter().map(Missed::into_known).collect()
    }
}

impl Missing for MissedByWalk<'_> {
    fn came(&self) -> Option<&[u64]> {
        self.came.as_deref()
    }

    #[inline(always)]
    fn contains(&self, walk: usize, page: u64) -> bool {
        self.by_walk[walk].contains(page)
    }

    #[inline]
    fn next(&self, walk: usize, page: u64) -> Option<u64> {
        self.by_walk[walk].next(page)
    }

    #[inline]
    fn next_near(&self, walk: usize, page: u64) -> Option<u64> {
        self.by_walk[walk].next_near(page)
    }

    fn mapped_near(&self, page: u64) -> Nearby {
        let Missed { paging, by, .. } = self.by_walk[0];
        paging.mapped_near(by, page)
    }
}
