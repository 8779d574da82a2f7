//! The accesses of a kernel: which thread touches which bytes, in which order.
//!
//! A grid-stride loop: thread `g` of `G` touches places `g`, `g + G`, … of each walk, walk by walk.
//! Threads that stay on one page together count as one [`Unit`]; other units are warps. Knows nothing of pages that are
//! there, except through [`Missing`]. Addresses in bytes, pages of 4 KiB.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "an element below the last, times the stride, is below the length of live memory"
)]

use super::missing::Missing;
use super::params::{ArrivalParams, BulkShape};
use super::walks::{KernelWalks, RunsAhead, WalkAccesses};
use crate::places::Places;

const PAGE: u64 = pagewise_hal::PAGE_BYTES;
/// Bytes of a cache line. Each line that is written raises its own fault (TIMING-32).
const LINE: u64 = 128;
/// Bytes that are read together, and raise one fault.
const READ: u64 = 2 * LINE;
/// Bytes from which on a copy is large: one of 512 KiB is not, one of 1 MiB is (TIMING-34).
const LARGE_COPY: u64 = 1 << 20;
/// Bytes that a thread of a large copy accesses at once.
const LARGE_COPY_ACCESS: u64 = 16;
/// Threads of a warp.
pub(super) const WARP: u64 = 32;
/// Scattered ranges in which a search for the next block looks, so that its work is bounded.
const RANGES_LOOKED_AT: u32 = 64;
/// Looks of a unit that goes on for a page that is near: most find one. Then it searches afar.
const LOOKS_NEAR: u32 = 3;
/// The longest thread block (CUDA programming guide). Longer ones are cut.
const BLOCK_THREADS_MAX: u64 = 1024;

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

/// An access of a unit that faults: where the unit stands, and the page and the walk of the access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Miss {
    pub(super) at: Position,
    pub(super) page: u64,
    pub(super) walk: usize,
}

/// The lanes of a unit that make an access in one iteration, to one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Lanes {
    /// The place of the first of them.
    first: u64,
    count: u64,
}

/// The accesses that the lanes of a unit make where it stands, page by page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PageAccesses {
    lanes: Lanes,
    part: u64,
    /// The lane that comes next.
    pub(super) lane: u64,
    /// The address of its access, and the lanes from it on that stay in the same range.
    byte: u64,
    stride: u64,
    lanes_in_range: u64,
    walk: usize,
    is_write: bool,
}

/// The accesses of a unit to one page at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageAccess {
    /// Lanes that make them.
    pub(super) lanes: u64,
    pub(super) page: u64,
    pub(super) walk: usize,
    /// Faults that they raise if the page is missing.
    pub(super) faults: u64,
    pub(super) is_write: bool,
}

/// A part of a kernel's memory: in each iteration a thread makes one access to each part.
#[derive(Debug, Clone)]
struct Part {
    places: Places,
    runs_ahead: RunsAhead,
    /// Number of the walk that it is of.
    walk: usize,
}

/// A kernel's accesses, as they are spread over its threads.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    parts: Vec<Part>,
    /// Threads in all.
    threads: u64,
    block_threads: u64,
    unit_threads: u64,
    /// Accesses to the part that has most.
    part_elements: u64,
    /// Of a fill or copy: from one fault of a wave to the next. Above 0, multiprocessors that fault
    /// together take turns (TIMING-35).
    bulk_turn_ns: Option<u64>,
}

impl Grid {
    pub(super) fn new(params: &ArrivalParams, walks: KernelWalks) -> Self {
        match walks {
            KernelWalks::Program { blocks, threads, walks } => {
                let part = |(walk, accesses): (usize, WalkAccesses)| {
                    let WalkAccesses { places, runs_ahead } = accesses;
                    Part { places, runs_ahead, walk }
                };
                let parts = walks.into_iter().enumerate().map(part).collect();
                Self::of(blocks, threads, parts, None)
            }
            KernelWalks::Bulk { first_byte, bytes, copies, runs_ahead } => {
                let bulk = if copies { &params.copies } else { &params.fills };
                let turn_ns = if copies { params.fault_ns } else { 0 };
                let parts = bulk_parts(bulk, copies, first_byte, bytes, runs_ahead);
                Self::of(params.multiprocessors, bulk.threads, parts, Some(turn_ns))
            }
        }
    }

    fn of(blocks: u32, block_threads: u32, parts: Vec<Part>, bulk_turn_ns: Option<u64>) -> Self {
        let threads = u64::from(blocks.max(1)) * u64::from(block_threads.max(1));
        let block_threads = u64::from(block_threads.max(1)).min(BLOCK_THREADS_MAX);
        // Threads of a walk over scattered ranges share no page for long.
        let strides = parts.iter().map(|part| part.places.stride().unwrap_or(PAGE));
        let on_one_page = PAGE / strides.max().unwrap_or(PAGE) / WARP * WARP;
        Self {
            threads,
            block_threads,
            unit_threads: on_one_page.max(WARP).min(block_threads),
            part_elements: parts.iter().map(|part| part.places.count()).max().unwrap_or(0),
            parts,
            bulk_turn_ns,
        }
    }

    /// From one fault of a wave of a multiprocessor to the next.
    pub(super) fn turn_ns(&self) -> u64 {
        self.bulk_turn_ns.unwrap_or(0)
    }

    /// Whether it is a fill or copy.
    pub(super) fn is_bulk(&self) -> bool {
        self.bulk_turn_ns.is_some()
    }

    fn part(&self, part: u64) -> &Part {
        &self.parts[part as usize]
    }

    /// Whether a thread that waits for an access may go on at all.
    pub(super) fn may_run_ahead(&self, from: Position) -> bool {
        match self.part(from.part).runs_ahead {
            RunsAhead::No => false,
            RunsAhead::ToReads => self.parts.len() > 1,
            RunsAhead::Freely => true,
        }
    }

    /// Whether a thread that waits for an access may go on to another.
    pub(super) fn runs_ahead(&self, from: Position, to: Position) -> bool {
        match self.part(from.part).runs_ahead {
            RunsAhead::No => false,
            RunsAhead::ToReads => {
                let reads = |part: u64| self.part(part).runs_ahead == RunsAhead::ToReads;
                to.iteration == from.iteration && (from.part..=to.part).all(reads)
            }
            RunsAhead::Freely => true,
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

    /// The lanes of a unit that make an access where it stands.
    #[inline]
    fn lanes(&self, unit: &Unit, at: Position) -> Option<Lanes> {
        let first = at.iteration.checked_mul(self.threads)?.checked_add(unit.first)?;
        let left = self.part(at.part).places.count().checked_sub(first)?;
        Some(Lanes { first, count: unit.lanes.min(left) }).filter(|_| left > 0)
    }

    /// The first access of a unit, from `from` on, that faults.
    pub(super) fn seek(&self, unit: &Unit, from: Position, missing: &impl Missing) -> Option<Miss> {
        if self.parts.len() == 1 {
            return self.seek_in_part(unit, from, missing); // As for most kernels.
        }
        let in_part = |part: u64| {
            let (iteration, lane) = match part.cmp(&from.part) {
                std::cmp::Ordering::Less => (from.iteration + 1, 0),
                std::cmp::Ordering::Equal => (from.iteration, from.lane),
                std::cmp::Ordering::Greater => (from.iteration, 0),
            };
            self.seek_in_part(unit, Position { iteration, part, lane }, missing)
        };
        (0..self.parts.len() as u64).filter_map(in_part).min()
    }

    fn seek_in_part(&self, unit: &Unit, mut at: Position, missing: &impl Missing) -> Option<Miss> {
        let Part { places, walk, .. } = self.part(at.part);
        let mut looks = 0;
        loop {
            let Lanes { first, count } = self.lanes(unit, at)?;
            let mut place = first + at.lane;
            while place < first + count {
                let page = places.address(place) / PAGE;
                looks += 1;
                let next = match looks {
                    0..=LOOKS_NEAR => missing.next_near(*walk, page),
                    _ => missing.next(*walk, page),
                };
                place = match next {
                    Some(next) if next == page => {
                        let at = Position { lane: place - first, ..at };
                        return Some(Miss { at, page, walk: *walk });
                    }
                    Some(next) => places.from(place, next * PAGE),
                    None => places.behind_range(place),
                };
            }
            // On to the first iteration in which the last lane reaches that place.
            let ahead = place.saturating_sub(first + unit.lanes - 1);
            let step = ahead.div_ceil(self.threads).max(1);
            at = Position { iteration: at.iteration.checked_add(step)?, lane: 0, ..at };
        }
    }

    /// The accesses of a unit where it stands; none if it has none there.
    pub(super) fn accesses(&self, unit: &Unit, at: Position) -> PageAccesses {
        let Part { runs_ahead, walk, .. } = self.part(at.part);
        PageAccesses {
            lanes: self.lanes(unit, at).unwrap_or_default(),
            part: at.part,
            lane: at.lane,
            walk: *walk,
            // Threads go on from writes alone.
            is_write: *runs_ahead == RunsAhead::Freely,
            ..PageAccesses::default()
        }
    }

    /// The first block from `block` on that may fault.
    pub(super) fn next_block(&self, block: u64, missing: &impl Missing) -> Option<u64> {
        let iterations = self.part_elements.div_ceil(self.threads);
        let left = self.blocks().checked_sub(block).filter(|left| *left > 0)?;
        if left <= iterations {
            return Some(block);
        }
        let first_thread = block * self.block_threads;
        let candidate = |(iteration, part): (u64, &Part)| {
            let row = iteration * self.threads;
            let place = part.may_fault(row + first_thread, missing)?;
            Some((place - row) / self.block_threads)
        };
        let rows = (0..iterations).flat_map(|row| self.parts.iter().map(move |part| (row, part)));
        rows.filter_map(candidate).min().filter(|block| *block < self.blocks())
    }
}

impl PageAccesses {
    /// Those to the next page.
    #[inline]
    pub(super) fn next(&mut self, grid: &Grid) -> Option<PageAccess> {
        if self.lanes_in_range == 0 {
            self.enter_range(grid)?;
        }
        let Self { byte, stride, walk, is_write, .. } = *self;
        let page = byte / PAGE;
        let (mut lanes, mut faults) = (1, 1);
        if stride < PAGE {
            let left = (page + 1) * PAGE - byte;
            lanes = left.div_ceil(stride).min(self.lanes_in_range);
            let (last, granule) = (byte + (lanes - 1) * stride, if is_write { LINE } else { READ });
            faults = lanes.min(last / granule - byte / granule + 1);
        }
        // Behind the last place of a range there may be no address.
        self.byte = byte.saturating_add(lanes.saturating_mul(stride));
        self.lanes_in_range -= lanes;
        self.lane += lanes;
        Some(PageAccess { lanes, page, walk, faults, is_write })
    }

    /// Goes on to the range of the next lane, if there is one.
    fn enter_range(&mut self, grid: &Grid) -> Option<()> {
        let left = self.lanes.count.checked_sub(self.lane).filter(|left| *left > 0)?;
        let from = grid.part(self.part).places.strided_from(self.lanes.first + self.lane);
        (self.byte, self.stride) = (from.byte, from.stride);
        self.lanes_in_range = left.min(from.count);
        Some(())
    }
}

impl Part {
    /// The first place from `place` on that may fault. It may lie before the first that does: of
    /// scattered ranges only some are looked at.
    fn may_fault(&self, mut place: u64, missing: &impl Missing) -> Option<u64> {
        if let Some(stride) = self.places.stride().filter(|_| place < self.places.count()) {
            let byte = self.places.address(place);
            let next = missing.next(self.walk, byte / PAGE)? * PAGE;
            return Some(place + next.saturating_sub(byte).div_ceil(stride));
        }
        for _ in 0..RANGES_LOOKED_AT {
            if place >= self.places.count() {
                return None;
            }
            let page = self.places.address(place) / PAGE;
            place = match missing.next(self.walk, page) {
                Some(next) if next == page => return Some(place),
                Some(next) => self.places.from(place, next * PAGE),
                None => self.places.behind_range(place),
            };
        }
        Some(place)
    }
}

/// The equal parts of the memory between which the threads of the driver's kernel alternate.
fn bulk_parts(
    bulk: &BulkShape,
    copies: bool,
    first_byte: u64,
    bytes: u64,
    runs_ahead: RunsAhead,
) -> Vec<Part> {
    let is_large = copies && bytes >= LARGE_COPY;
    let access = u64::from(bulk.bytes_per_access.max(1));
    let stride = if is_large { LARGE_COPY_ACCESS } else { access };
    let before = first_byte % stride;
    let (start, elements) = (first_byte - before, bytes.saturating_add(before).div_ceil(stride));
    let parts = u64::from(bulk.parts.max(1));
    // A warp's accesses lie side by side.
    let most = elements.div_ceil(parts).next_multiple_of(WARP);
    let part = |number: u64| {
        let first = (number * most).min(elements);
        let places = Places::even(start + first * stride, stride, (elements - first).min(most));
        Part { places, runs_ahead, walk: 0 }
    };
    (0..parts).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::super::missing::Nearby;
    use super::super::walks::{Accesses, Threads};
    use super::*;
    use crate::GpuProfile;
    use std::collections::BTreeSet;

    /// The pages of a set.
    struct Set(BTreeSet<u64>);

    impl Missing for Set {
        fn next(&self, _: usize, page: u64) -> Option<u64> {
            self.0.range(page..).next().copied()
        }

        fn mapped_near(&self, _: u64) -> Nearby {
            Nearby::Nothing
        }
    }

    fn grid(bytes: u64, stride_bytes: u64, threads: Threads) -> Grid {
        let first_byte = 3 * PAGE + 96;
        let accesses = Accesses { first_byte, bytes, stride_bytes, runs_ahead: false };
        Grid::new(&GpuProfile::h200().arrival, accesses.by(threads))
    }

    fn access_at(grid: &Grid, unit: &Unit, Miss { at, page, walk }: Miss) -> PageAccess {
        let access = grid.accesses(unit, at).next(grid);
        let access = access.expect("an access where one faults");
        assert_eq!((access.page, access.walk), (page, walk));
        access
    }

    fn behind(at: Position, access: &PageAccess) -> Position {
        Position { lane: at.lane + access.lanes, ..at }
    }

    /// Pages that units visit if every page is missing once.
    fn visited(grid: &Grid) -> BTreeSet<u64> {
        let all = Set((0..100_000).collect());
        let mut pages = BTreeSet::new();
        for unit in (0..grid.blocks()).flat_map(|block| grid.units(block)) {
            let mut at = Position::default();
            while let Some(found) = grid.seek(&unit, at, &all) {
                let access = access_at(grid, &unit, found);
                assert!(access.faults >= 1 && access.lanes >= 1);
                pages.insert(access.page);
                at = behind(found.at, &access);
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
            for stride in [1, 4, 60, 128, 3000, 4096, 5000, 65_536, u64::MAX] {
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
            assert_eq!(visited(&grid(bytes, 1, Threads::Fill)), touched(bytes, 1), "{bytes}");
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
                    let access = access_at(&grid, &unit, found);
                    slow.extend(some.contains(&access.page).then_some(found));
                    at = behind(found.at, &access);
                }
                let mut fast = Vec::new();
                let mut at = Position::default();
                while let Some(found) = grid.seek(&unit, at, &Set(some.clone())) {
                    fast.push(found);
                    at = behind(found.at, &access_at(&grid, &unit, found));
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
