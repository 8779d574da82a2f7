//! Calls, faults and migrations as spans and events of the `tracing` crate.
//!
//! There are spans only if the feature `tracing` is on *and* a back end is wrapped, so other
//! programs pay nothing. Spans are at level `TRACE`, named `pagewise`, with the fields `operation`,
//! `bytes`, `address` and `location`. A failed call adds an event at level `DEBUG` with its error.
//!
//! [`machine`] adds events of what the driver did: migrations, faults, remote mappings, thrashing
//! and throttled processors, at level `DEBUG` with the target `pagewise::movement`. There is one
//! event for each stretch of a buffer, with the field `buffer` (the name, see
//! [`ManagedBuffer::named`](crate::ManagedBuffer::named)) and what applies of `bytes`, `from`, `to`,
//! `cause`, `processor` and `count`.
//!
//! | back end | events of movement | cost |
//! | --- | --- | --- |
//! | simulator | inside the span of the call that they are due to, which `call` names | two questions to the simulator for each call |
//! | driver with an observer | inside the span of the next call that waits for a device or frees memory; no `call` | the observer's records are fetched at these calls |
//! | driver without an observer | none | none |
//!
//! Records are fetched only while a subscriber wants the events.
//!
//! ```
//! use pagewise::{Device, ManagedBuffer, Stream, traced};
//!
//! let machine = traced::machine(pagewise::sim()?);
//! let weights = ManagedBuffer::<u8>::zeroed(&machine, 4096)?.named("weights");
//! // DEBUG pagewise{operation="prefetch" bytes=4096 …}: pagewise::movement: migrated
//! //     buffer=weights bytes=4096 count=1 from=host to=gpu0 cause=User call=prefetch on stream 0x10
//! weights.prefetch(Device::FIRST, &Stream::new(&machine, Device::FIRST)?)?;
//! # Ok::<(), pagewise::Error>(())
//! ```

mod movement;
mod spans;

use std::sync::Arc;

use pagewise_hal::Backend;

pub use self::spans::Spans;
use crate::Machine;
use crate::intercept::Intercepted;

/// Puts spans around a back end's calls.
#[must_use]
pub fn around<B: Backend>(inner: B) -> Intercepted<B, Spans> {
    Intercepted::new(inner, Spans)
}

/// A machine over the same back end, with spans around its calls and events of migrations and
/// faults. See the [module](self) for what that costs.
///
/// ```
/// use pagewise::{Machine, traced};
///
/// let machine = traced::machine(pagewise::sim()?);
/// assert_eq!(machine.device_count()?, 1);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[must_use]
pub fn machine(machine: impl Into<Machine>) -> Machine {
    let machine = machine.into();
    let inner = machine.shared_backend();
    Machine::new(Arc::new(Intercepted::new(inner, movement::Movements::of(machine))))
}
