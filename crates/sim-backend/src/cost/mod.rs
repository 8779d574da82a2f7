//! The cost model: how long calls take, in virtual time (TIMING-1 to TIMING-25).
//!
//! A meter sees each call begin and end and, in between, what the paging engine did. Faults of
//! access programs take their time as they happen, so that thrashing detection sees the clock
//! advance; everything else is charged when the call ends. Each class of calls has a pure function
//! from what was counted and remembered to nanoseconds; the figures are [`CostParams`]. Sums are of
//! IEEE doubles and square roots only, which are the same on every machine.
//!
//! | module | concept |
//! | --- | --- |
//! | `meter` | calls, measured one at a time |
//! | `call` | the kinds of calls |
//! | `params` | the figures: parts of a GPU's profile |
//! | `state` | memory between calls |
//! | `account` | one call: its inputs and its time |
//! | `observation` | calls as they were, to be timed again with other figures |
//! | `single` | times of programs of one access, worked out ahead |
//! | `tally` | counts within one |
//! | `calls`, `advice`, `touches`, `resources` | classes of calls |

mod account;
mod advice;
mod call;
mod calls;
mod meter;
mod observation;
mod params;
#[cfg(test)]
mod prices;
mod resources;
mod single;
mod state;
mod tally;
#[cfg(test)]
mod tests;
mod touches;

pub(crate) use call::Call;
pub(crate) use meter::Meter;
pub use observation::CostObservation;
pub use params::{
    AdviceCosts, AllocationCosts, ControlCosts, CopyCosts, CostParams, DeviceTouchCosts,
    DiscardCosts, FixedCosts, HostTouchCosts, PlainMemoryCosts, PoolCosts, PoolMemoryCosts,
    PrefetchCosts, QueryCosts, WarmthCosts,
};
pub(crate) use resources::{Control, MemoryStep, PoolCall, PoolMemory, Transfer};
