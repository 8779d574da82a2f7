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
//!    is. Then the driver begins to read, and stops at 256 faults or when no fault is there.
//! 4. Faults raised between this and the replay, by multiprocessors that began after the driver
//!    looked, are left over for the next batch.
//!
//! Knows which pages are missing through `Missing` alone, and moves nothing. The work is
//! proportional to faults and pages, not to threads. Which [figures](ArrivalParams) are published
//! and which only fitted, they say themselves. PAGING-24 and PAGING-25 are the driver's rules.

mod grid;
mod multiprocessor;
mod params;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};

pub(crate) use grid::{Accesses, KernelWalks, Missing, Nearby, RunsAhead, Threads, WalkAccesses};
pub(crate) use multiprocessor::RaisedFault;
pub use params::{ArrivalParams, BulkShape};

use grid::Grid;
use multiprocessor::Multiprocessor;

/// Rounds in which no thread gets further, as when pages push each other out, before faults come
/// one by one, so that one thread does.
const ROUNDS_IN_VAIN_MAX: u32 = 16;

/// Faults that the driver services together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultBatch {
    /// The pages with the walks that fault on them, ascending, each pair once.
    pub(crate) raised: Vec<RaisedFault>,
    /// Faults on the first of them.
    pub(crate) merged: u64,
    /// Faults in all.
    pub(crate) faults: u64,
}

/// The faults of one kernel.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    params: &'a ArrivalParams,
    grid: Grid,
    rng: ChaCha8Rng,
    multiprocessors: Vec<Multiprocessor>,
    /// Thread blocks that each can hold.
    blocks_held_max: usize,
    /// The next thread block.
    next_block: u64,
    begun: bool,
    left_over: Vec<RaisedFault>,
    rounds_in_vain: u32,
    /// Whether a round has begun.
    faulted: bool,
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
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(bytes);
        rng.set_stream(nth);
        Self {
            params,
            grid,
            rng,
            multiprocessors: vec![Multiprocessor::default(); count],
            blocks_held_max: blocks_held_max as usize,
            next_block: 0,
            begun: false,
            left_over: Vec::new(),
            rounds_in_vain: 0,
            faulted: false,
        }
    }

    /// The next batch; `None` once all accesses are through.
    pub(crate) fn next_batch(&mut self, missing: &impl Missing) -> Option<FaultBatch> {
        let progress = self.run(missing);
        self.rounds_in_vain = if progress { 0 } else { self.rounds_in_vain + 1 };
        if !self.multiprocessors.iter().any(Multiprocessor::is_waiting) {
            return None;
        }
        if self.rounds_in_vain > ROUNDS_IN_VAIN_MAX {
            return self.single();
        }
        self.start();
        Some(self.collect(missing))
    }

    /// The time that the walk of the page tables to a page takes.
    fn walk_ns(&self, page: u64, missing: &impl Missing) -> u64 {
        let [group, pair, block, nothing] = self.params.walk_ns;
        match missing.mapped_near(page) {
            Nearby::Group => group,
            Nearby::Pair => pair,
            Nearby::Block => block,
            Nearby::Nothing => nothing,
        }
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
                self.multiprocessors[at].take(block, grid, missing, |n| below(&mut self.rng, n));
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
                if multiprocessor.take(block, &self.grid, missing, |n| below(&mut self.rng, n)) {
                    room -= 1;
                }
            }
        }
    }

    /// One fault alone.
    fn single(&mut self) -> Option<FaultBatch> {
        self.left_over.clear();
        let fault = self.multiprocessors.iter().find_map(Multiprocessor::first_fault)?;
        Some(FaultBatch::of(vec![fault]))
    }

    /// Draws when each multiprocessor begins to fault, unless that is known from the last round. In
    /// the first round of a fill or copy they all begin at once (TIMING-35).
    fn start(&mut self) {
        let waiting = self.multiprocessors.iter().filter(|m| m.is_waiting()).count() as u64;
        let first = !std::mem::replace(&mut self.faulted, true);
        let spread_ns = if first && self.grid.is_bulk() { 0 } else { self.params.spread_ns };
        let within_ns = spread_ns.saturating_mul(waiting);
        for multiprocessor in self.multiprocessors.iter_mut().filter(|m| m.is_waiting()) {
            let carried_ns = multiprocessor.carried_ns.take();
            let start_ns = carried_ns.unwrap_or_else(|| below(&mut self.rng, within_ns));
            multiprocessor.begin(start_ns);
        }
    }

    /// Reads a batch, and notes what is left over from before the replay.
    fn collect(&mut self, missing: &impl Missing) -> FaultBatch {
        let params = self.params;
        let most = params.batch_faults.max(1) as usize;
        let waiting = |(_, m): &(usize, &Multiprocessor)| m.is_waiting();
        let starts = self.multiprocessors.iter().enumerate().filter(waiting);
        let mut coming: BinaryHeap<_> =
            starts.map(|(at, m)| Reverse((m.next_ns(params, &self.grid), at))).collect();
        let mut read = std::mem::take(&mut self.left_over);
        let looks_ns = match coming.peek() {
            Some(&Reverse((first_ns, at))) if read.is_empty() => {
                let first = self.multiprocessors[at].first_page(&self.grid, missing);
                first_ns.saturating_add(first.map_or(0, |page| self.walk_ns(page, missing)))
            }
            _ => params.reads_late_after_ns,
        };
        let mut now_ns = looks_ns.saturating_add(params.fault_ns.saturating_mul(read.len() as u64));
        while read.len() < most
            && let Some(Reverse((ns, at))) = coming.peek().copied()
            && ns <= now_ns
        {
            coming.pop();
            let multiprocessor = &mut self.multiprocessors[at];
            if let Some(fault) = multiprocessor.raise(params, &self.grid, missing) {
                read.push(fault);
                now_ns = now_ns.saturating_add(params.fault_ns);
                coming.push(Reverse((multiprocessor.next_ns(params, &self.grid), at)));
            }
        }
        let batch = FaultBatch::of(read);
        let replay_ns =
            now_ns.saturating_add(params.service_block_ns.saturating_mul(batch.blocks()));
        self.leave(coming, looks_ns, replay_ns, batch.duplicate_percent(), missing);
        batch
    }

    /// The faults left over: those raised before the replay by multiprocessors that began after the
    /// driver looked.
    fn leave(
        &mut self,
        mut coming: BinaryHeap<Reverse<(u64, usize)>>,
        looks_ns: u64,
        replay_ns: u64,
        duplicate_percent: u32,
        missing: &impl Missing,
    ) {
        let params = self.params;
        for multiprocessor in self.multiprocessors.iter_mut().filter(|m| m.is_waiting()) {
            multiprocessor.carried_ns = multiprocessor.start_ns.checked_sub(replay_ns);
        }
        if duplicate_percent > params.drop_all_percent {
            return;
        }
        while self.left_over.len() < params.batch_faults as usize
            && let Some(Reverse((ns, at))) = coming.pop()
            && ns < replay_ns
        {
            let multiprocessor = &mut self.multiprocessors[at];
            if multiprocessor.start_ns > looks_ns
                && let Some(fault) = multiprocessor.raise(params, &self.grid, missing)
            {
                self.left_over.push(fault);
                coming.push(Reverse((multiprocessor.next_ns(params, &self.grid), at)));
            }
        }
    }
}

#[allow(
    clippy::arithmetic_side_effects,
    reason = "a batch has as many faults as were read; pages are of live memory"
)]
impl FaultBatch {
    pub(crate) fn of(mut raised: Vec<RaisedFault>) -> Self {
        let faults = raised.len() as u64;
        raised.sort_unstable();
        let on_first = |fault: &&RaisedFault| Some(fault.page) == raised.first().map(|f| f.page);
        let merged = raised.iter().take_while(on_first).count() as u64;
        raised.dedup();
        Self { raised, merged, faults }
    }

    /// The pages, ascending, each once.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u64> {
        self.raised.chunk_by(|a, b| a.page == b.page).map(|faults| faults[0].page)
    }

    fn duplicate_percent(&self) -> u32 {
        let duplicates = self.faults - self.pages().count() as u64;
        (duplicates * 100).div_ceil(self.faults.max(1)) as u32
    }

    /// The va_blocks that it touches.
    fn blocks(&self) -> u64 {
        let block =
            |fault: &RaisedFault| fault.page * pagewise_hal::PAGE_BYTES / pagewise_hal::BLOCK_BYTES;
        self.raised.chunk_by(|a, b| block(a) == block(b)).count() as u64
    }
}

/// A random number below `limit`, by fixed-point multiplication: the same on every machine.
#[allow(clippy::arithmetic_side_effects, reason = "128 bits hold the product of two numbers of 64")]
fn below(rng: &mut ChaCha8Rng, limit: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(limit)) >> 64) as u64
}
