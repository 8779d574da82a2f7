//! Observations: the sums and the records of a back end between two moments.

use std::fmt;

use pagewise_hal::{CallRecords, Counters, EventsSince, MemoryEvent, Result};

use super::buffers::{Buffers, NamedSpan, buffers_in};
use super::scope::Scope;
use super::stretch::Stretch;
use crate::names::Remembering;

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
    /// Sums. All records count, also those that are lost, unless the observation is
    /// [of a part](Self::of_part).
    pub counters: Counters,
    /// The records that the back end still had at the end, in order. The simulator keeps as many as
    /// its configuration says (`SimConfig::events`), a driver's back end the last 4,194,304.
    pub events: Vec<MemoryEvent>,
    /// The calls that made these records, in order: their numbers of records add up to all of
    /// `events`. `None` on a driver, which cannot tell. See [`by_call`](Self::by_call).
    pub calls: Option<Vec<CallRecords>>,
    /// The buffers that these records are of, by address: those of this process that are live, or
    /// were dropped meanwhile, the first 4096 of them.
    pub buffers: Vec<NamedSpan>,
    /// The number of the machine's records that are missing in `events`.
    pub lost: u64,
    /// Whether it counts the calls of one thread or one stream ([`Scope`]). Then the sums are those
    /// of `events`, and if records are lost, no claim about the sums holds.
    pub of_part: bool,
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
        let buffers = Buffers::new(&self.buffers);
        let stretches = self.stretches(&buffers);
        for one in stretches.iter().take(Self::STRETCHES_SHOWN) {
            write!(f, "\n  {}", one.line(&buffers))?;
        }
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
            .field("calls", &self.calls.as_ref().map(Vec::len))
            .field("buffers", &self.buffers.len())
            .field("lost", &self.lost)
            .field("of_part", &self.of_part)
            .field("elapsed_ns", &self.elapsed_ns)
            .finish()
    }
}

impl Observation {
    /// Places that `Display` shows.
    const STRETCHES_SHOWN: usize = 12;

    /// The stretches of its records.
    pub(super) fn stretches(&self, buffers: &Buffers<'_>) -> Vec<Stretch> {
        Stretch::all_of(&self.events, self.calls.as_deref(), buffers)
    }

    /// Sums and records of some time, with the names of their buffers.
    pub(crate) fn of(
        seen: EventsSince,
        of_part: bool,
        elapsed_ns: u64,
        remembering: &Remembering,
    ) -> Self {
        let EventsSince { counters, events, calls, lost, .. } = seen;
        let buffers = buffers_in(events.iter().map(Stretch::bounds_of), remembering);
        Self { counters, events, calls, buffers, lost, of_part, elapsed_ns }
    }

    /// Each call that made records, with these, in order. Empty on a driver, which cannot tell.
    ///
    /// ```
    /// use pagewise::intercept::Operation;
    /// use pagewise::{Machine, ManagedBuffer, observe};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let (_, seen) = observe(&machine, || ManagedBuffer::<u8>::zeroed(&machine, 4096))?;
    /// let [(call, events)] = seen.by_call().collect::<Vec<_>>()[..] else { panic!("{seen}") };
    /// assert_eq!((call.call, events.len()), (Operation::HostTouch.into(), 1));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn by_call(&self) -> impl Iterator<Item = (&CallRecords, &[MemoryEvent])> {
        CallRecords::split(self.calls.as_deref().unwrap_or_default(), &self.events)
    }
}

/// Runs a closure, and returns its result with the back end's records of that time.
///
/// Observations can nest and run side by side: each compares the back end's sums at its two ends,
/// and none takes records from another one. An observation of a machine sees what all threads did
/// with it meanwhile, so observations that overlap in time count some records twice. One of
/// [this thread](Scope::this_thread) or of a [stream](Scope::stream) sees what these calls did.
/// Only [`Backend::take_events`](crate::Backend::take_events) takes records away: observations in
/// progress then count them as [`lost`](Observation::lost).
///
/// # Errors
/// `Unsupported` if nothing counts on this back end, as on a driver without an observer, or if it
/// cannot tell which calls its records are due to and the scope asks for that; then nothing is
/// run.
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
pub fn observe<T>(scope: impl Into<Scope>, run: impl FnOnce() -> T) -> Result<(T, Observation)> {
    let watch = Watch::begin(scope)?;
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
    scope: Scope,
    start_ns: u64,
    /// The sums and the position at the beginning.
    before: EventsSince,
    /// Buffers that go are named too.
    remembering: Remembering,
}

impl Watch {
    /// Begins. Other observations go on undisturbed.
    ///
    /// # Errors
    /// As [`observe`].
    pub fn begin(scope: impl Into<Scope>) -> Result<Self> {
        let scope = scope.into();
        let before = scope.begin()?;
        let remembering = Remembering::begin(scope.machine());
        let start_ns = scope.machine().backend().clock_ns();
        Ok(Self { scope, start_ns, before, remembering })
    }

    /// Ends, and returns the records since it began.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn end(self) -> Result<Observation> {
        let elapsed_ns = self.scope.machine().backend().clock_ns().saturating_sub(self.start_ns);
        let seen = self.scope.since(&self.before)?;
        Ok(Observation::of(seen, self.scope.is_part(), elapsed_ns, &self.remembering))
    }
}
