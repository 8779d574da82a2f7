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
//! | `meter` | calls, measured one at a time |
//! | `call` | the kinds of calls |
//! | `params` | the figures: parts of a GPU's profile |
//! | `state` | what is remembered between calls |
//! | `account` | one call: what happens in it, and its time |
//! | `observation` | calls as they were, to be timed again with other figures |
//! | `tally` | what is counted within one |
//! | `calls`, `advice`, `touches` | classes of calls |

mod account;
mod advice;
mod call;
mod calls;
mod meter;
mod observation;
mod params;
mod state;
mod tally;
#[cfg(test)]
mod tests;
mod touches;

pub(crate) use call::Call;
pub(crate) use meter::Meter;
pub use observation::CostObservation;
pub use params::{
    AdviceCosts, AllocationCosts, CostParams, DeviceTouchCosts, DiscardCosts, FixedCosts,
    HostTouchCosts, PrefetchCosts, QueryCosts, WarmthCosts,
};
