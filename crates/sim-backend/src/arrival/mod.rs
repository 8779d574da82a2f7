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
mod walks;

pub(crate) use executed::{ExecutedArrival, Waiting};
pub(crate) use faults::{FaultBatch, FaultedPages, RaisedFault};
pub(crate) use missing::{Missing, Nearby, Vicinity};
pub use params::{ArrivalParams, BulkShape, ReadingParams};
pub(crate) use walks::{Accesses, KernelWalks, RunsAhead, Threads, WalkAccesses};

use grid::Grid;
use multiprocessor::{Multiprocessor, OnGrid};
use rounds::Rounds;

/// The faults of one kernel.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    grid: Grid,
    rounds: Rounds<'a>,
    multiprocessors: Vec<Multiprocessor>,
    /// Thread blocks that each can hold.
    blocks_held_max: usize,
    /// The next thread block.
    next_block: u64,
    begun: bool,
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
        let count = params.multiprocessors.max(1) as usize;
        Self {
            grid,
            rounds: Rounds::declared(params, seed, nth),
            multiprocessors: vec![Multiprocessor::default(); count],
            blocks_held_max: blocks_held_max as usize,
            next_block: 0,
            begun: false,
        }
    }

    /// The next batch; `None` once all accesses are through.
    pub(crate) fn next_batch(&mut self, missing: &impl Missing) -> Option<FaultBatch> {
        let progress = self.run(missing);
        let around = OnGrid { grid: &self.grid, missing };
        self.rounds.next_batch(progress, &mut self.multiprocessors, &around)
    }

    /// Lets threads run to their next fault; new blocks take the places of those that are through.
    /// Returns whether any thread got further.
    fn run(&mut self, missing: &impl Missing) -> bool {
        let grid = &self.grid;
        let count = self.multiprocessors.len();
        if !self.begun {
            self.begun = true;
            let places = (count * self.blocks_held_max) as u64;
            while self.next_block < places
                && let Some(block) = grid.next_block(self.next_block, missing)
            {
                if block >= places {
                    break;
                }
                let at = (block % count as u64) as usize;
                self.multiprocessors[at].take(block, grid, missing, |n| self.rounds.below(n));
                self.next_block = block + 1;
            }
            self.fill(missing);
            return true;
        }
        let mut progress = false;
        for multiprocessor in &mut self.multiprocessors {
            progress |= multiprocessor.run(grid, missing);
        }
        if progress {
            self.fill(missing);
        }
        progress
    }

    fn fill(&mut self, missing: &impl Missing) {
        for multiprocessor in &mut self.multiprocessors {
            let mut room = self.blocks_held_max - multiprocessor.blocks();
            while room > 0 {
                let Some(block) = self.grid.next_block(self.next_block, missing) else { return };
                self.next_block = block + 1;
                if multiprocessor.take(block, &self.grid, missing, |n| self.rounds.below(n)) {
                    room -= 1;
                }
            }
        }
    }
}
