//! The arrival of faults: how the accesses of many threads become batches of faulted pages.
//!
//! A GPU's faults go into a buffer from which the driver reads *batches*; it services a batch,
//! drops what else is in the buffer and lets all waiting accesses be *replayed*, so those that
//! still miss fault again. The faults in a batch depend on timing that is not documented and that
//! varies from run to run. This is a seeded model of it: the same seed gives the same batches.
//!
//! A round, from one replay to the next:
//! 1. Threads run on to their next access that misses (`grid`); blocks of threads that are
//!    through make room for others, in order.
//! 2. Each multiprocessor with waiting threads begins to fault at a random time, the later the
//!    more of them wait; at the start of a fill or copy all begin at once. Then each raises faults
//!    in a fixed rhythm (`multiprocessor`): one for each line of 128 bytes, up to a number per
//!    page, on a limited number of pages. Writes do not hold a thread up, so it faults on later
//!    pages too.
//! 3. The first fault takes a walk of the page tables, the longer the farther the next mapped page
//!    is. Then the driver begins to read, and stops at 256 faults or when no fault is there. Of code
//!    that is executed it reads the faults that have come by then.
//! 4. Faults raised between this and the replay are left over for the next batch: of executed code
//!    all, of declared kernels those of multiprocessors that began after the driver looked.
//!
//! Knows which pages are missing through `Missing` alone, and moves nothing. The work is
//! proportional to faults and pages, not to threads. Which [figures](ArrivalParams) are published
//! and which only fitted, they say themselves. PAGING-24, PAGING-25 and TIMING-37 are the driver's
//! rules.

mod executed;
mod faults;
mod grid;
mod missing;
mod multiprocessor;
mod params;
mod rounds;
mod sectors;
#[cfg(test)]
mod tests;
mod units;
mod waiters;
mod walks;

pub(crate) use executed::{ExecutedArrival, Waiting};
pub(crate) use faults::{FaultBatch, FaultedPages, RaisedFault, WORD_PAGES};
pub(crate) use missing::{Missing, Nearby};
pub use params::{ArrivalParams, BulkShape, ReadingParams};
pub(crate) use walks::{Accesses, KernelWalks, RunsAhead, Threads, WalkAccesses};

use grid::Grid;
use multiprocessor::OnGrid;
use rounds::Rounds;
use units::Units;

/// The faults of one kernel.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    grid: Grid,
    rounds: Rounds<'a>,
    units: Units,
    /// Thread blocks that each multiprocessor can hold.
    blocks_held_max: usize,
    /// The next thread block.
    next_block: u64,
    /// Replays since the kernel began.
    replays: u64,
}

#[allow(
    clippy::arithmetic_side_effects,
    reason = "multiprocessors and thread blocks are counted, each block below the grid's last"
)]
impl<'a> Arrival<'a> {
    /// A kernel before its first access. `nth` tells the kernels of one seed apart.
    pub(crate) fn new(params: &'a ArrivalParams, walks: KernelWalks, seed: u64, nth: u64) -> Self {
        let grid = Grid::new(params, walks);
        let by_threads = u64::from(params.threads_per_multiprocessor) / grid.block_threads();
        let blocks_held_max = by_threads.min(params.blocks_per_multiprocessor.into()).max(1);
        Self {
            grid,
            rounds: Rounds::declared(params, seed, nth),
            units: Units::new(params.multiprocessors.max(1) as usize),
            blocks_held_max: blocks_held_max as usize,
            next_block: 0,
            replays: 0,
        }
    }

    /// The next batch; `None` once all accesses are through.
    pub(crate) fn next_batch(&mut self, missing: &impl Missing) -> Option<FaultBatch> {
        let progress = match self.replays {
            0 => {
                self.begin(missing);
                true
            }
            _ => self.units.run(&OnGrid { grid: &self.grid, missing, replays: self.replays }),
        };
        if progress {
            self.fill(missing);
        }
        let around = OnGrid { grid: &self.grid, missing, replays: self.replays };
        self.replays += 1;
        self.rounds.next_batch(progress, self.units.multiprocessors_mut(), &around)
    }

    /// Deals out the first blocks: one to each multiprocessor in turn.
    fn begin(&mut self, missing: &impl Missing) {
        let around = OnGrid { grid: &self.grid, missing, replays: self.replays };
        let count = self.units.multiprocessors().len();
        let places = (count * self.blocks_held_max) as u64;
        while self.next_block < places
            && let Some(block) = self.grid.next_block(self.next_block, missing)
            && block < places
        {
            self.units.take((block % count as u64) as usize, block, &around, &mut self.rounds);
            self.next_block = block + 1;
        }
    }

    /// New blocks take the places of those that are through.
    fn fill(&mut self, missing: &impl Missing) {
        let around = OnGrid { grid: &self.grid, missing, replays: self.replays };
        for at in 0..self.units.multiprocessors().len() {
            let mut room = self.blocks_held_max - self.units.multiprocessors()[at].blocks();
            while room > 0 {
                let Some(block) = self.grid.next_block(self.next_block, missing) else { return };
                self.next_block = block + 1;
                if self.units.take(at, block, &around, &mut self.rounds) {
                    room -= 1;
                }
            }
        }
    }
}
