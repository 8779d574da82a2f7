//! The account of one call: its inputs and its time.

use std::collections::{BTreeMap, BTreeSet};

use pagewise_hal::Processor;

use super::call::Call;
use super::params::CostParams;
use super::resources::{self, MemoryStep};
use super::state::{Class, Warmth};
use super::tally::{Tally, Zeroed};
use super::touches::{self, Faults};
use super::{advice, calls};
use crate::paging::{Access, Covered, HeldBlocks, Walk, Work, WorkCause};

/// Freed host memory that the kernel keeps at hand for the next request: one 2 MiB page
/// (TIMING-14).
const RECYCLED_MAX: u64 = pagewise_hal::BLOCK_BYTES / pagewise_hal::PAGE_BYTES;

/// Something that happens within a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Input {
    /// The engine did something.
    Work(Work),
    /// The access with this number faults.
    Fault { by: Processor, access: u64 },
    /// An access program is about to begin.
    Walks(Walk),
    /// An access program went over this.
    Walked(Walk, Covered),
    /// Managed memory with a range of its own appeared, on a machine with so many devices beside
    /// the first.
    RangeMade { further_devices: u64 },
    /// It went.
    RangeGone(HeldBlocks),
    /// Memory appeared or went that the engine knows nothing of.
    Memory(MemoryStep),
}

/// Whole nanoseconds, at least 0.
#[inline]
pub(super) fn whole(ns: f64) -> u64 {
    // The cast saturates; rounding half up needs no platform function. One to a signed integer takes
    // half the instructions, and a duration beyond it ends where the clock does.
    ((ns + 0.5) as i64).max(0) as u64
}

/// The time of a call that is an access program without a fault, and nothing else.
#[inline]
pub(super) fn of_walk(
    params: &CostParams,
    call: Call,
    warmth: Warmth,
    walk: &Walk,
    covered: Covered,
) -> f64 {
    let walk_ns = walk_ns(params, call, warmth, walk, covered);
    let (tally, faults) = (Tally { walk_ns, ..Tally::default() }, Faults::default());
    match call {
        Call::DeviceTouch { .. } => touches::device(&params.device_touch, &tally, &faults, warmth),
        _ => touches::host(&params.host_touch, &tally, &faults, warmth),
    }
}

/// The time of the accesses of a program, without their faults.
#[inline]
fn walk_ns(params: &CostParams, call: Call, warmth: Warmth, walk: &Walk, covered: Covered) -> f64 {
    match call {
        Call::DeviceTouch { threads, bulk } => {
            touches::device_walk(&params.device_touch, walk, covered, threads, bulk)
        }
        _ => touches::host_walk(&params.host_touch, walk, covered, warmth),
    }
}

/// One call.
#[derive(Debug, Clone, Default)]
pub(super) struct Account {
    pub(super) call: Call,
    pub(super) refused: bool,
    /// The state that the call found.
    pub(super) warmth: Warmth,
    /// Whether it and the call before it are reads of attributes.
    pub(super) continues: bool,
    /// Host pages that frees gave back and that no allocation has got since.
    pub(super) recycled_pages: u64,
    tally: Tally,
    faults: Faults,
    /// The blocks in which many threads faulted.
    visited: Visited,
}

/// A set of blocks, by their first pages.
#[derive(Debug, Clone, Default)]
struct Visited {
    /// Those that begin with 2 MiB of the address space: a bit for each of 64 in a row.
    aligned: BTreeMap<u64, u64>,
    /// Those that ranges cut off.
    others: BTreeSet<u64>,
}

impl Visited {
    /// Adds the block that begins with a page. Returns whether it was not there.
    fn insert(&mut self, first_page: u64) -> bool {
        if !first_page.is_multiple_of(pagewise_hal::PAGES_PER_BLOCK) {
            return self.others.insert(first_page);
        }
        let block = first_page / pagewise_hal::PAGES_PER_BLOCK;
        let (bits, bit) = (self.aligned.entry(block / 64).or_default(), 1 << (block % 64));
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.aligned.is_empty() && self.others.is_empty()
    }

    #[cold]
    fn clear(&mut self) {
        self.aligned.clear();
        self.others.clear();
    }
}

impl Account {
    #[cfg(test)]
    pub(super) fn new(call: Call, warmth: Warmth) -> Self {
        Self { call, warmth, ..Self::default() }
    }

    /// Begins the account of another call, in place: each call does it, and an account is large.
    #[inline]
    pub(super) fn begin(&mut self, call: Call, warmth: Warmth) {
        (self.call, self.refused, self.warmth) = (call, false, warmth);
        self.tally = Tally::default();
        self.faults = Faults::default();
        if !self.visited.is_empty() {
            self.visited.clear();
        }
    }

    /// An account of the same call without events.
    pub(super) fn emptied(&self, recycled_pages: u64) -> Self {
        let &Self { call, refused, warmth, continues, .. } = self;
        Self { call, refused, warmth, continues, recycled_pages, ..Self::default() }
    }

    #[inline]
    pub(super) fn class(&self) -> Class {
        self.call.class(self.tally.ranges_made == 0)
    }

    /// Counts what happened; returns the nanoseconds that are charged at once.
    pub(super) fn count(&mut self, params: &CostParams, input: &Input) -> f64 {
        match input {
            Input::Work(work) => return self.work(params, work),
            &Input::Fault { by, access } => return self.fault_latency(params, by, access),
            Input::Walks(walk) => self.walks(params, walk),
            Input::Walked(walk, covered) => self.walked(params, walk, *covered),
            &Input::RangeMade { further_devices } => {
                self.tally.ranges_made = self.tally.ranges_made.saturating_add(1);
                self.tally.further_devices = further_devices;
            }
            &Input::Memory(step) => self.tally.memory_ns += resources::step(params, step),
            Input::RangeGone(held) => {
                self.tally.freed.add(held);
                let recycled = self.recycled_pages.saturating_add(held.host_pages);
                self.recycled_pages = recycled.min(RECYCLED_MAX);
            }
        }
        0.0
    }

    /// The time of the call, except what was charged at once.
    pub(super) fn rest(&self, params: &CostParams) -> f64 {
        let own = if self.refused {
            calls::refused(&params.fixed, self.call)
        } else {
            self.own_ns(params)
        };
        own + self.tally.evictions_ns + self.tally.memory_ns
    }

    fn own_ns(&self, params: &CostParams) -> f64 {
        let Self { tally, faults, continues, .. } = self;
        let warmth = self.warmth;
        match self.call {
            Call::AllocManaged => calls::alloc(&params.allocation, tally, warmth),
            Call::PlainMemory => params.plain_memory.call(warmth),
            Call::Free => calls::free(&params.allocation, tally, warmth),
            Call::RangeAttribute => calls::range_attribute(&params.query, warmth, *continues),
            Call::PointerAttribute => params.query.pointer_attribute,
            Call::Advise => advice::call(&params.advice, tally, warmth),
            Call::Prefetch { ranges, .. } => {
                calls::prefetch(&params.prefetch, tally, warmth, ranges)
            }
            Call::Discard => calls::discard(&params.discard, tally, warmth),
            Call::DiscardPrefetch => calls::discard_prefetch(&params.discard, tally, warmth),
            Call::HostTouch => touches::host(&params.host_touch, tally, faults, warmth),
            Call::DeviceTouch { .. } => {
                touches::device(&params.device_touch, tally, faults, warmth)
            }
            Call::Wait => 0.0,
            Call::Pool(call) => params.pool.call(call, warmth),
            Call::Control(call) => params.control.call(call, warmth),
            Call::Other => params.fixed.other,
        }
    }

    /// Zeroed memory comes first from the memory that was freed last.
    fn zeroed(&mut self, work: &Work) -> Zeroed {
        let recycled = work.pages_zeroed_host.min(self.recycled_pages);
        self.recycled_pages = self.recycled_pages.saturating_sub(recycled);
        Zeroed { pages: work.pages_zeroed_host.saturating_sub(recycled), recycled }
    }

    /// Counts a piece of work of the engine, and returns the time that it takes inside the call.
    pub(super) fn work(&mut self, params: &CostParams, work: &Work) -> f64 {
        let zeroed = self.zeroed(work);
        let is_parallel = self.is_parallel();
        match work.cause {
            WorkCause::Fault => {
                let by_device = work.processor.is_some_and(|by| by != Processor::HOST);
                let faults = &mut self.faults;
                if !by_device {
                    touches::host_fault(&params.host_touch, faults, work, zeroed)
                } else if is_parallel {
                    let first = self.visited.insert(work.block);
                    touches::parallel_fault(&params.device_touch, faults, work, first)
                } else {
                    touches::device_fault(&params.device_touch, faults, work)
                }
            }
            WorkCause::Advice(advised) => {
                self.tally.advice_ns += advice::step(&params.advice, advised, work);
                self.tally.advised = true;
                self.tally.acts |= advice::acts(advised, work);
                0.0
            }
            WorkCause::Eviction => {
                self.tally.evictions_ns += calls::eviction(&params.prefetch, work, zeroed);
                0.0
            }
            WorkCause::Allocation if matches!(self.call, Call::DeviceTouch { .. }) => {
                self.faults.chunks = self.faults.chunks.saturating_add(work.chunks_device);
                0.0
            }
            _ => {
                self.tally.add(work, zeroed);
                0.0
            }
        }
    }

    /// A fault begins: the time until the driver looks at it.
    #[inline]
    pub(super) fn fault_latency(&mut self, params: &CostParams, by: Processor, access: u64) -> f64 {
        if by == Processor::HOST {
            return 0.0;
        }
        let (costs, parallel) = (&params.device_touch, self.is_parallel());
        touches::device_latency(costs, &mut self.faults, access, self.warmth, parallel)
    }

    /// An access program is about to begin.
    #[inline]
    pub(super) fn walks(&mut self, params: &CostParams, walk: &Walk) {
        let costs = &params.device_touch;
        let writes = walk.access == Access::Write;
        self.faults.gap_ns = if writes { costs.gap_write } else { costs.gap_read };
        self.faults.last_access = None;
    }

    /// An access program went over this.
    #[inline]
    pub(super) fn walked(&mut self, params: &CostParams, walk: &Walk, covered: Covered) {
        self.tally.walk_ns += walk_ns(params, self.call, self.warmth, walk, covered);
    }

    fn is_parallel(&self) -> bool {
        matches!(self.call, Call::DeviceTouch { threads, bulk } if threads > 1 || bulk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_new_once_also_where_two_share_2_mib() {
        let mut visited = Visited::default();
        let blocks = [512, 1024, 600, 1023, 512 * 64, 512 * 65, 0];
        assert!(blocks.iter().all(|block| visited.insert(*block)));
        assert!(!blocks.iter().any(|block| visited.insert(*block)));
        visited.clear();
        assert!(blocks.iter().all(|block| visited.insert(*block)));
    }
}
