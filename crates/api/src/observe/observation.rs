//! Observations: the sums and the records of a back end between two moments.

use std::fmt;

use pagewise_hal::{Counters, EventsSince, MemoryEvent, Result};

use super::stretch::Stretch;
use crate::Machine;

/// The records that a back end made while a program ran.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, Place, Stream, observe};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let (answer, seen) = observe(&machine, || buffer.prefetch(Device::FIRST, &stream))?;
/// answer?;
/// assert_eq!(seen.counters.migrated_bytes(), 4096);
/// assert_eq!(seen.events.len(), 1);
/// assert!(seen.elapsed_ns > 0);
/// # Ok::<(), pagewise::Error>(())
/// ```
///
/// `Display` is a screenful: the sums, and where most happened. `Debug` names no more than four
/// records.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Observation {
    /// Sums. All records count, also those that are lost.
    pub counters: Counters,
    /// The records that the back end still had at the end, in order. The simulator keeps as many as
    /// its configuration says (`SimConfig::events`), a driver's back end the last 4,194,304.
    pub events: Vec<MemoryEvent>,
    /// The number of records that are missing in `events`.
    pub lost: u64,
    /// Nanoseconds by the back end's clock, which is virtual on the simulator.
    pub elapsed_ns: u64,
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.counters;
        let Counters { gpu_faults, cpu_faults, thrashing_pages, remote_maps, .. } = counters;
        writeln!(f, "{gpu_faults} GPU faults, {cpu_faults} CPU faults, {} ns", self.elapsed_ns)?;
        for (way, copies) in [
            ("to devices", counters.to_device),
            ("to the host", counters.to_host),
            ("between devices", counters.between_devices),
        ] {
            writeln!(f, "{} bytes {way} in {} copies", copies.bytes, copies.runs)?;
        }
        write!(f, "{thrashing_pages} thrashing pages, {remote_maps} remote mappings")?;
        if self.lost > 0 {
            write!(f, "\n{} records are lost: what follows is a part", self.lost)?;
        }
        let stretches = Stretch::all_of(&self.events);
        stretches.iter().take(Self::STRETCHES_SHOWN).try_for_each(|one| write!(f, "\n  {one}"))?;
        match stretches.len().saturating_sub(Self::STRETCHES_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more places"),
        }
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation")
            .field("counters", &self.counters)
            .field("events", &self.events.len())
            .field("first_events", &self.events.iter().take(4).collect::<Vec<_>>())
            .field("lost", &self.lost)
            .field("elapsed_ns", &self.elapsed_ns)
            .finish()
    }
}

impl Observation {
    /// Places that `Display` shows.
    const STRETCHES_SHOWN: usize = 12;
}

/// Runs a closure, and returns its result with the back end's records of that time.
///
/// Observations can nest and run side by side: each compares the back end's sums at its two ends,
/// and none takes records from another one. An observation sees what all threads did with the
/// machine meanwhile, so observations that overlap in time count some records twice. Only
/// [`Backend::take_events`](crate::Backend::take_events) takes records away: observations in
/// progress then count them as [`lost`](Observation::lost).
///
/// # Errors
/// `Unsupported` if nothing counts on this back end, as on a driver without an observer; then
/// nothing is run.
///
/// ```
/// use pagewise::{ManagedBuffer, Machine, observe};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let (buffer, seen) = observe(&machine, || ManagedBuffer::<u8>::new(&machine, 4096))?;
/// buffer?;
/// assert_eq!(seen.counters.faults(), 0, "allocating touches nothing");
/// # Ok::<(), pagewise::Error>(())
/// ```
pub fn observe<T>(
    machine: impl Into<Machine>,
    run: impl FnOnce() -> T,
) -> Result<(T, Observation)> {
    let watch = Watch::begin(machine)?;
    let answer = run();
    Ok((answer, watch.end()?))
}

/// An observation that has begun: [`observe`] in two halves, for code that is no closure.
///
/// ```
/// use pagewise::{Machine, ManagedBuffer, Watch};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let watch = Watch::begin(&machine)?;
/// let buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096)?;
/// assert_eq!(watch.end()?.counters.cpu_faults, 1);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it tells what it saw when it ends"]
pub struct Watch {
    machine: Machine,
    start_ns: u64,
    /// The sums and the position at the beginning.
    before: EventsSince,
}

impl Watch {
    /// Begins. Other observations go on undisturbed.
    ///
    /// # Errors
    /// `Unsupported` if nothing counts on this back end, as on a driver without an observer.
    pub fn begin(machine: impl Into<Machine>) -> Result<Self> {
        let machine = machine.into();
        let before = machine.backend().events_since(u64::MAX)?;
        let start_ns = machine.backend().clock_ns();
        Ok(Self { machine, start_ns, before })
    }

    /// Ends, and returns the records since it began.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn end(self) -> Result<Observation> {
        let backend = self.machine.backend();
        let elapsed_ns = backend.clock_ns().saturating_sub(self.start_ns);
        let EventsSince { counters, events, lost, .. } =
            backend.events_since(self.before.position)?;
        let counters = counters.since(&self.before.counters);
        Ok(Observation { counters, events, lost, elapsed_ns })
    }
}
