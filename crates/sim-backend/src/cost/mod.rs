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
//! | `account` | one call: what happens in it, and its time |
//! | `observation` | calls as they were, to be timed again with other figures |
//! | `tally` | what is counted within one |
//! | `calls`, `advice`, `touches` | classes of calls |

mod account;
mod advice;
mod calls;
mod observation;
mod params;
mod state;
mod tally;
#[cfg(test)]
mod tests;
mod touches;

use pagewise_hal::Processor;

use crate::GpuProfile;
use crate::clock;
use crate::paging::{Covered, HeldBlocks, Walk, Work};

pub use observation::CostObservation;
pub use params::{
    AdviceCosts, AllocationCosts, CostParams, DeviceTouchCosts, DiscardCosts, FixedCosts,
    HostTouchCosts, PrefetchCosts, QueryCosts, WarmthCosts,
};

use account::{Account, Input};
use observation::Record;
use state::{Class, State};

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
    account: Account,
    /// Inputs of the current call and the calls before it, if somebody wants to know them.
    record: Option<Record>,
}

impl Meter {
    pub(crate) fn new(params: CostParams) -> Self {
        Self { params, state: State::default(), account: Account::default(), record: None }
    }

    /// Keeps what calls take their time for, from the next call on.
    pub(crate) fn observe(&mut self) {
        self.record.get_or_insert_default();
    }

    /// The calls since this was last asked; none unless [`observe`](Self::observe) was called.
    pub(crate) fn take_observations(&mut self) -> Vec<CostObservation> {
        self.record.as_mut().map(Record::take).unwrap_or_default()
    }

    /// A call begins.
    pub(crate) fn begin(&mut self, call: Call, now_ns: u64) {
        self.account = Account::new(call, self.state.warmth(call.class(false), now_ns));
        self.account.continues = self.state.continues(Class::Query);
        self.account.recycled_pages = self.state.recycled_pages();
        if let Some(record) = &mut self.record {
            record.begin(&self.account);
        }
    }

    /// It ends, `now_ns` being its start and what its faults took. Returns the time of its end.
    pub(crate) fn end(&mut self, start_ns: u64, now_ns: u64, refused: bool) -> u64 {
        let account = &mut self.account;
        account.refused = refused;
        account.warmth = self.state.warmth(account.class(), start_ns);
        if let Some(record) = &mut self.record {
            record.end(account);
        }
        clock::after(now_ns, whole(account.rest(&self.params)))
    }

    /// Remembers the call, which ended at `end_ns`.
    pub(crate) fn remember(&mut self, end_ns: u64) {
        self.state.set_recycled_pages(self.account.recycled_pages);
        if self.account.call.is_remembered() {
            self.state.done(self.account.class(), self.account.warmth, end_ns);
        }
    }

    /// A sleep of this length; returns how long it really takes.
    pub(crate) fn sleep(&mut self, duration_ns: u64) -> u64 {
        self.state.slept(duration_ns);
        if let Some(record) = &mut self.record {
            record.slept(duration_ns);
        }
        // A sleep never ends early.
        whole(calls::sleep(&self.params.fixed, duration_ns)).max(duration_ns)
    }

    // ---- what happens within a call -----------------------------------------------------------

    /// The engine did something; returns what it took, if that is charged at once.
    pub(crate) fn work(&mut self, work: &Work) -> u64 {
        // Happens most often and is the largest: not copied unless it is kept.
        if self.record.is_some() {
            return self.count(&Input::Work(*work));
        }
        whole(self.account.work(&self.params, work))
    }

    /// The program's access with this number faults: the time until the driver looks at it.
    pub(crate) fn fault_latency_ns(&mut self, by: Processor, access: u64) -> u64 {
        self.count(&Input::Fault { by, access })
    }

    /// An access program is about to begin: what it does between faults matters.
    pub(crate) fn walks(&mut self, walk: &Walk) {
        self.count(&Input::Walks(*walk));
    }

    /// An access program went over this.
    pub(crate) fn walked(&mut self, walk: &Walk, covered: Covered) {
        self.count(&Input::Walked(*walk, covered));
    }

    pub(crate) fn range_made(&mut self) {
        self.count(&Input::RangeMade);
    }

    pub(crate) fn range_gone(&mut self, held: &HeldBlocks) {
        self.count(&Input::RangeGone(*held));
    }

    fn count(&mut self, input: &Input) -> u64 {
        if let Some(record) = &mut self.record {
            record.input(input);
        }
        whole(self.account.count(&self.params, input))
    }
}

/// Whole nanoseconds, at least 0.
fn whole(ns: f64) -> u64 {
    // The cast saturates; rounding half up needs no platform function.
    (ns + 0.5) as u64
}
