//! How long calls take, in virtual time.
//!
//! A meter sees each call begin and end and, in between, what the paging engine did. Faults of
//! access programs take their time as they happen, so that thrashing detection sees the clock
//! advance; everything else is charged when the call ends. Each class of calls has a pure function
//! from what was counted and remembered to nanoseconds; the figures are [`CostParams`]. Sums are of
//! IEEE doubles and square roots only, which are the same on every machine.
//!
//! | module | concept |
//! | --- | --- |
//! | `params` | the figures: parts of a GPU's profile |
//! | `state` | what is remembered between calls |
//! | `tally` | what is counted within one |
//! | `calls`, `advice`, `touches` | classes of calls |

mod advice;
mod calls;
mod params;
mod state;
mod tally;
#[cfg(test)]
mod tests;
mod touches;

use std::collections::BTreeSet;

use pagewise_hal::Processor;

use crate::GpuProfile;
use crate::paging::{Covered, HeldBlocks, Step, Walk, Work};

pub use params::{
    AdviceCosts, AllocationCosts, CostParams, DeviceTouchCosts, DiscardCosts, FixedCosts,
    HostTouchCosts, PrefetchCosts, QueryCosts, WarmthCosts,
};

use state::{Class, State, Warmth};
use tally::Tally;
use touches::Faults;

impl CostParams {
    /// NVIDIA H200 SXM under driver 580, on a PCIe host.
    #[must_use]
    pub fn h200() -> Self {
        GpuProfile::h200().cost
    }
}

/// A call, as far as its time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Call {
    /// `cuMemAllocManaged`
    AllocManaged,
    /// Memory that does not migrate.
    PlainMemory,
    /// `cuMemFree`
    Free,
    /// One attribute of a range.
    RangeAttribute,
    /// One attribute of an address.
    PointerAttribute,
    /// `cuMemAdvise`
    Advise,
    /// `cuMemPrefetchAsync`, one or a batch.
    Prefetch { ranges: u64, batch: bool },
    /// `cuMemDiscardBatchAsync`
    Discard,
    /// `cuMemDiscardAndPrefetchBatchAsync`
    DiscardPrefetch,
    /// An access program of the host.
    HostTouch,
    /// An access program of a device by this many threads; `bulk` for copy and fill, which move
    /// bytes and make no single accesses.
    DeviceTouch { threads: u64, bulk: bool },
    /// A wait for work: in the time of the call that asked for the work.
    Wait,
    /// A call about streams, events, pools or the device.
    #[default]
    Other,
}

impl Call {
    /// `packed`: an allocation came from a slab.
    fn class(self, packed: bool) -> Class {
        match self {
            Self::AllocManaged if packed => Class::AllocPacked,
            Self::AllocManaged => Class::Alloc,
            Self::Free => Class::Free,
            Self::RangeAttribute => Class::Query,
            Self::Advise => Class::Advice,
            Self::Prefetch { .. } => Class::Prefetch,
            Self::Discard | Self::DiscardPrefetch => Class::Discard,
            Self::HostTouch => Class::HostTouch,
            Self::DeviceTouch { .. } => Class::DeviceTouch,
            Self::PlainMemory | Self::PointerAttribute | Self::Wait | Self::Other => Class::Other,
        }
    }

    /// Whether other calls can tell afterwards that there was one.
    fn is_remembered(self) -> bool {
        !matches!(self, Self::Wait | Self::Other)
    }
}

/// Measures calls, one at a time.
#[derive(Debug)]
pub(crate) struct Meter {
    params: CostParams,
    state: State,
    call: Call,
    /// What the current call found.
    warmth: Warmth,
    tally: Tally,
    faults: Faults,
    /// First pages of the blocks in which many threads faulted.
    visited: BTreeSet<u64>,
}

impl Meter {
    pub(crate) fn new(params: CostParams) -> Self {
        Self {
            params,
            state: State::default(),
            call: Call::Other,
            warmth: Warmth::Cold { first: true },
            tally: Tally::default(),
            faults: Faults::default(),
            visited: BTreeSet::new(),
        }
    }

    /// A call begins.
    pub(crate) fn begin(&mut self, call: Call, now_ns: u64) {
        self.call = call;
        self.warmth = self.state.warmth(call.class(false), now_ns);
        self.tally = Tally::default();
        self.faults = Faults::default();
        self.visited.clear();
    }

    /// It ends, `now_ns` being its start and what its faults took. Returns the time of its end.
    pub(crate) fn end(&mut self, start_ns: u64, now_ns: u64, refused: bool) -> u64 {
        let packed = self.tally.ranges_made == 0;
        let class = self.call.class(packed);
        self.warmth = self.state.warmth(class, start_ns);
        let ns = if refused { calls::refused(&self.params, self.call) } else { self.rest() };
        now_ns.saturating_add(whole(ns))
    }

    /// Remembers the call, which ended at `end_ns`.
    pub(crate) fn remember(&mut self, end_ns: u64) {
        if self.call.is_remembered() {
            let class = self.call.class(self.tally.ranges_made == 0);
            self.state.done(class, self.warmth, end_ns);
        }
    }

    /// A sleep of this length; returns how long it really takes.
    pub(crate) fn sleep(&mut self, duration_ns: u64) -> u64 {
        self.state.slept(duration_ns);
        let fixed = &self.params.fixed;
        whole(fixed.sleep + fixed.sleep_ns * duration_ns as f64).max(duration_ns)
    }

    /// The time of the call, that of its faults excepted.
    fn rest(&self) -> f64 {
        let Self { params, warmth, tally, .. } = self;
        let warmth = *warmth;
        match self.call {
            Call::AllocManaged => calls::alloc(&params.allocation, tally, warmth),
            Call::PlainMemory => params.fixed.plain_memory,
            Call::Free => calls::free(&params.allocation, tally, warmth),
            Call::RangeAttribute => {
                let continues = self.state.continues(Class::Query);
                calls::range_attribute(&params.query, warmth, continues)
            }
            Call::PointerAttribute => params.query.pointer_attribute,
            Call::Advise => advice::call(&params.advice, tally, warmth),
            Call::Prefetch { ranges, .. } => {
                calls::prefetch(&params.prefetch, tally, warmth, ranges)
            }
            Call::Discard => calls::discard(&params.discard, tally, warmth),
            Call::DiscardPrefetch => calls::discard_prefetch(&params.discard, tally, warmth),
            Call::HostTouch => touches::host(&params.host_touch, tally, &self.faults, warmth),
            Call::DeviceTouch { .. } => {
                touches::device(&params.device_touch, tally, &self.faults, warmth)
            }
            Call::Wait => 0.0,
            Call::Other => params.fixed.other,
        }
    }

    // ---- what happens within a call -----------------------------------------------------------

    /// The engine did something; returns what it took, if that is charged at once.
    pub(crate) fn work(&mut self, work: &Work) -> u64 {
        match work.step {
            Step::Fault => {
                let device = work.processor.is_some_and(|by| by != Processor::HOST);
                let ns = if device {
                    let costs = &self.params.device_touch;
                    if self.is_parallel() {
                        let first = self.visited.insert(work.block);
                        touches::parallel_fault(costs, &mut self.faults, work, first)
                    } else {
                        touches::device_fault(costs, &mut self.faults, work)
                    }
                } else {
                    touches::host_fault(&self.params.host_touch, &mut self.faults, work)
                };
                whole(ns)
            }
            Step::Advice(advised) => {
                self.tally.advice_ns += advice::step(&self.params.advice, advised, work);
                self.tally.advised = true;
                self.tally.acts |= advice::acts(advised, work);
                0
            }
            Step::Allocation if matches!(self.call, Call::DeviceTouch { .. }) => {
                self.faults.chunks += work.chunks_device;
                0
            }
            _ => {
                self.tally.add(work);
                0
            }
        }
    }

    /// The program's access with this number faults: the time until the driver looks at it.
    pub(crate) fn fault_latency_ns(&mut self, by: Processor, access: u64) -> u64 {
        if by == Processor::HOST {
            return 0;
        }
        let parallel = self.is_parallel();
        let costs = &self.params.device_touch;
        whole(touches::device_latency(costs, &mut self.faults, access, self.warmth, parallel))
    }

    /// An access program went over this.
    pub(crate) fn walked(&mut self, walk: &Walk, covered: Covered) {
        self.tally.walk_ns += match self.call {
            Call::DeviceTouch { threads, bulk } => {
                touches::device_walk(&self.params.device_touch, walk, covered, threads, bulk)
            }
            _ => touches::host_walk(&self.params.host_touch, walk, covered, self.warmth),
        };
    }

    /// An access program is about to begin: what it does between faults matters.
    pub(crate) fn walks(&mut self, walk: &Walk) {
        let costs = &self.params.device_touch;
        let writes = walk.access == crate::paging::Access::Write;
        self.faults.gap_ns = if writes { costs.gap_write } else { costs.gap_read };
        self.faults.last_access = None;
    }

    pub(crate) fn range_made(&mut self) {
        self.tally.ranges_made += 1;
    }

    pub(crate) fn range_gone(&mut self, held: &HeldBlocks) {
        self.tally.freed.add(held);
    }

    fn is_parallel(&self) -> bool {
        matches!(self.call, Call::DeviceTouch { threads, bulk } if threads > 1 || bulk)
    }
}

/// Whole nanoseconds, at least 0.
fn whole(ns: f64) -> u64 {
    // The cast saturates; rounding half up needs no platform function.
    (ns + 0.5) as u64
}
