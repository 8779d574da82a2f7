//! The accesses of a kernel: which thread touches which bytes, in which order.
//!
//! A grid-stride loop: thread `g` of `G` touches elements `g`, `g + G`, … . Threads that stay on one
//! page together count as one [`Unit`]; other units are warps. Knows nothing of pages that are
//! there, except through [`Missing`]. Addresses in bytes, pages of 4 KiB.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "an element below the last, times the stride, is below the length of live memory"
)]

use super::params::ArrivalParams;

const PAGE: u64 = pagewise_hal::PAGE_BYTES;
/// Bytes of a cache line; each line raises its own fault.
const LINE: u64 = 128;
/// Threads of a warp.
const WARP: u64 = 32;
/// The longest thread block (CUDA programming guide). Longer ones are cut.
const BLOCK_THREADS_MAX: u64 = 1024;

/// The pages on which an access of the kernel would fault.
pub(crate) trait Missing {
    /// The first of them from `page` on, if there is one before the end of the kernel's memory.
    fn next(&self, page: u64) -> Option<u64>;

    /// Whether a page is one of them.
    fn contains(&self, page: u64) -> bool {
        self.next(page) == Some(page)
    }
}

/// How many threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One: each access is complete before the next.
    One,
    /// Blocks of threads, in a grid-stride loop.
    Grid {
        /// Blocks.
        blocks: u32,
        /// Threads of each.
        threads: u32,
    },
    /// The driver's kernel that fills and copies.
    Bulk,
}

/// The memory of a kernel and what it does there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accesses {
    /// Address of the first access.
    pub(crate) first_byte: u64,
    /// Length of the memory.
    pub(crate) bytes: u64,
    /// Bytes between accesses, at least 1.
    pub(crate) stride_bytes: u64,
    /// Whether a thread goes on while its accesses wait, as after a write.
    pub(crate) runs_ahead: bool,
}

/// Where a unit stands: iteration, part of the memory, and lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    pub(super) iteration: u64,
    pub(super) part: u64,
    /// Lanes before this one are through.
    pub(super) lane: u64,
}

/// Adjacent threads that run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    /// Number of the first thread in the grid.
    first: u64,
    lanes: u64,
}

/// A kernel's accesses, as they are spread over its threads.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    first_byte: u64,
    stride: u64,
    pub(super) runs_ahead: bool,
    /// Threads in all.
    threads: u64,
    block_threads: u64,
    unit_threads: u64,
    parts: u64,
    /// Elements of a part, the last one perhaps excepted.
    part_elements: u64,
    elements: u64,
}

/// Accesses that a unit makes at once: lanes `0..lanes`, each a stride further.
#[derive(Debug, Clone, Copy)]
struct UnitAccess {
    first_byte: u64,
    lanes: u64,
}

impl Grid {
    /// `threads` is not [`Threads::One`].
    pub(super) fn new(params: &ArrivalParams, accesses: &Accesses, threads: Threads) -> Self {
        let Accesses { mut first_byte, mut bytes, stride_bytes, runs_ahead } = *accesses;
        let mut stride = stride_bytes.max(1);
        let (blocks, block_threads, parts) = match threads {
            Threads::One => (1, 1, 1),
            Threads::Grid { blocks, threads } => (blocks, threads, 1),
            Threads::Bulk => {
                let bulk = &params.bulk;
                stride = u64::from(bulk.bytes_per_access.max(1));
                bytes = bytes.saturating_add(first_byte % stride);
                first_byte -= first_byte % stride;
                (params.multiprocessors, bulk.threads, bulk.parts)
            }
        };
        let threads = u64::from(blocks.max(1)) * u64::from(block_threads.max(1));
        let block_threads = u64::from(block_threads.max(1)).min(BLOCK_THREADS_MAX);
        let on_one_page = PAGE / stride / WARP * WARP;
        let parts = u64::from(parts.max(1));
        let elements = bytes.div_ceil(stride);
        Self {
            first_byte,
            stride,
            runs_ahead,
            threads,
            block_threads,
            unit_threads: on_one_page.max(WARP).min(block_threads),
            parts,
            part_elements: elements.div_ceil(parts),
            elements,
        }
    }

    /// Blocks with an access.
    pub(super) fn blocks(&self) -> u64 {
        self.threads.min(self.part_elements).div_ceil(self.block_threads)
    }

    /// Threads of a block, in whole warps.
    pub(super) fn block_threads(&self) -> u64 {
        self.block_threads.next_multiple_of(WARP)
    }

    /// The units of a block.
    pub(super) fn units(&self, block: u64) -> impl Iterator<Item = Unit> {
        let start = block * self.block_threads;
        let end = (start + self.block_threads).min(self.threads).min(self.part_elements);
        let width = self.unit_threads;
        (start..end)
            .step_by(width as usize)
            .map(move |first| Unit { first, lanes: width.min(end - first) })
    }

    /// First element and number of elements of a part.
    fn part(&self, part: u64) -> (u64, u64) {
        let first = (part * self.part_elements).min(self.elements);
        (first, (self.elements - first).min(self.part_elements))
    }

    fn address(&self, element: u64) -> u64 {
        self.first_byte + element * self.stride
    }

    fn unit_access(&self, unit: &Unit, iteration: u64, part: u64) -> Option<UnitAccess> {
        let (start, elements) = self.part(part);
        let element = iteration.checked_mul(self.threads)?.checked_add(unit.first)?;
        let left = elements.checked_sub(element).filter(|left| *left > 0)?;
        Some(UnitAccess { first_byte: self.address(start + element), lanes: unit.lanes.min(left) })
    }

    /// The first access of a unit, from `from` on, that faults.
    pub(super) fn seek(
        &self,
        unit: &Unit,
        from: Position,
        missing: &impl Missing,
    ) -> Option<Position> {
        let in_part = |part: u64| {
            let (iteration, lane) = match part.cmp(&from.part) {
                std::cmp::Ordering::Less => (from.iteration + 1, 0),
                std::cmp::Ordering::Equal => (from.iteration, from.lane),
                std::cmp::Ordering::Greater => (from.iteration, 0),
            };
            self.seek_in_part(unit, Position { iteration, part, lane }, missing)
        };
        (0..self.parts).filter_map(in_part).min()
    }

    fn seek_in_part(
        &self,
        unit: &Unit,
        mut at: Position,
        missing: &impl Missing,
    ) -> Option<Position> {
        loop {
            let access = self.unit_access(unit, at.iteration, at.part)?;
            let byte = loop {
                if at.lane >= access.lanes {
                    break None;
                }
                let page = (access.first_byte + at.lane * self.stride) / PAGE;
                let next = missing.next(page)?;
                if next == page {
                    return Some(at);
                }
                at.lane = (next * PAGE - access.first_byte).div_ceil(self.stride);
                if at.lane >= access.lanes {
                    break Some(next * PAGE);
                }
            };
            // On to the first iteration in which the last lane reaches that byte.
            let last = access.first_byte + (unit.lanes - 1) * self.stride;
            let ahead = byte.map_or(0, |byte| byte.saturating_sub(last));
            let step = self.threads.saturating_mul(self.stride);
            at = Position { iteration: at.iteration + ahead.div_ceil(step).max(1), lane: 0, ..at };
        }
    }

    /// The pages that a unit touches at once from a position on: the position behind the page,
    /// the page, and its lines touched.
    pub(super) fn page(&self, unit: &Unit, at: Position) -> Option<(Position, u64, u64)> {
        let access = self.unit_access(unit, at.iteration, at.part)?;
        if at.lane >= access.lanes {
            return None;
        }
        let byte = access.first_byte + at.lane * self.stride;
        let page = byte / PAGE;
        let lanes = ((page + 1) * PAGE - byte).div_ceil(self.stride).min(access.lanes - at.lane);
        let last = byte + (lanes - 1) * self.stride;
        let lines = lanes.min(last / LINE - byte / LINE + 1);
        Some((Position { lane: at.lane + lanes, ..at }, page, lines))
    }

    /// The first block from `block` on that may fault.
    pub(super) fn next_block(&self, block: u64, missing: &impl Missing) -> Option<u64> {
        let iterations = self.part_elements.div_ceil(self.threads);
        let left = self.blocks().checked_sub(block).filter(|left| *left > 0)?;
        if left <= iterations {
            return Some(block);
        }
        let first_thread = block * self.block_threads;
        let candidate = |(iteration, part): (u64, u64)| {
            let (start, elements) = self.part(part);
            let row = iteration * self.threads;
            let element = row + first_thread;
            if element >= elements {
                return None;
            }
            let byte = self.address(start + element);
            let next = missing.next(byte / PAGE)?.max(byte / PAGE) * PAGE;
            let further = next.saturating_sub(byte).div_ceil(self.stride);
            Some((first_thread + further) / self.block_threads)
        };
        let places = (0..iterations).flat_map(|n| (0..self.parts).map(move |part| (n, part)));
        places.filter_map(candidate).min().filter(|block| *block < self.blocks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GpuProfile;
    use std::collections::BTreeSet;

    /// The pages of a set.
    struct Set(BTreeSet<u64>);

    impl Missing for Set {
        fn next(&self, page: u64) -> Option<u64> {
            self.0.range(page..).next().copied()
        }
    }

    fn grid(bytes: u64, stride_bytes: u64, threads: Threads) -> Grid {
        let first_byte = 3 * PAGE + 96;
        let accesses = Accesses { first_byte, bytes, stride_bytes, runs_ahead: false };
        Grid::new(&GpuProfile::h200().arrival, &accesses, threads)
    }

    /// Pages that units visit if every page is missing once.
    fn visited(grid: &Grid) -> BTreeSet<u64> {
        let all = Set((0..100_000).collect());
        let mut pages = BTreeSet::new();
        for unit in (0..grid.blocks()).flat_map(|block| grid.units(block)) {
            let mut at = Position::default();
            while let Some(found) = grid.seek(&unit, at, &all) {
                let (behind, page, lines) = grid.page(&unit, found).expect("a page at a fault");
                assert!(lines >= 1 && behind > found);
                pages.insert(page);
                at = behind;
            }
        }
        pages
    }

    fn touched(bytes: u64, stride: u64) -> BTreeSet<u64> {
        (0..bytes).step_by(stride as usize).map(|at| (3 * PAGE + 96 + at) / PAGE).collect()
    }

    #[test]
    fn every_shape_visits_exactly_the_pages_of_the_program() {
        for (blocks, threads) in [(1, 32), (2, 1), (16, 256), (132, 1024), (3, 100), (1, 5000)] {
            for stride in [1, 4, 60, 128, 3000, 4096, 5000, 65_536] {
                for bytes in [1, 100, 70_000, 1 << 20] {
                    let grid = grid(bytes, stride, Threads::Grid { blocks, threads });
                    let name = format!("{blocks} x {threads}, {bytes} bytes every {stride}");
                    assert_eq!(visited(&grid), touched(bytes, stride), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_fill_visits_every_page() {
        for bytes in [1, 15, 100, 4096, 70_001, 3 << 20] {
            assert_eq!(visited(&grid(bytes, 1, Threads::Bulk)), touched(bytes, 1), "{bytes}");
        }
    }

    #[test]
    fn a_seek_finds_what_going_step_by_step_finds() {
        let some: BTreeSet<u64> = [5, 6, 40, 41, 77, 200, 1000].into();
        for stride in [4, 128, 4096, 10_000] {
            let grid = grid(5 << 20, stride, Threads::Grid { blocks: 7, threads: 96 });
            for unit in (0..grid.blocks()).flat_map(|block| grid.units(block)) {
                let all = Set((0..100_000).collect());
                let mut at = Position::default();
                let mut slow = Vec::new();
                while let Some(found) = grid.seek(&unit, at, &all) {
                    let (behind, page, _) = grid.page(&unit, found).expect("a page");
                    slow.extend(some.contains(&page).then_some(found));
                    at = behind;
                }
                let mut fast = Vec::new();
                let mut at = Position::default();
                while let Some(found) = grid.seek(&unit, at, &Set(some.clone())) {
                    fast.push(found);
                    at = grid.page(&unit, found).expect("a page").0;
                }
                assert_eq!(fast, slow);
            }
        }
    }

    #[test]
    fn no_block_that_faults_is_passed_over() {
        let some = Set([9, 300, 301, 900].into());
        for stride in [4, 4096] {
            let grid = grid(6 << 20, stride, Threads::Grid { blocks: 100_000, threads: 32 });
            let faults = |block: &u64| {
                let mut units = grid.units(*block);
                units.any(|unit| grid.seek(&unit, Position::default(), &some).is_some())
            };
            let slow: Vec<u64> = (0..grid.blocks()).filter(faults).collect();
            let mut fast = Vec::new();
            let mut next = 0;
            while let Some(block) = grid.next_block(next, &some) {
                fast.extend(faults(&block).then_some(block));
                next = block + 1;
            }
            assert_eq!(fast, slow);
        }
    }
}
