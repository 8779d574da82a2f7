//! Observation of movements while a program runs: for tests that make claims about it.
//!
//! [`observe`] runs a closure and returns the back end's records of that time. A [`Budget`] limits
//! them. [`assert_faults!`](crate::assert_faults),
//! [`assert_migrated_bytes!`](crate::assert_migrated_bytes) and
//! [`assert_no_thrashing!`](crate::assert_no_thrashing) are claims in one line. All of it works
//! over any back end that reports events ([`Capabilities::events`](crate::Capabilities)): the
//! simulator, wrappers around it, a driver with CUPTI.
//!
//! ```
//! use pagewise::{Device, DeviceProgram, Machine, ManagedBuffer, Stream};
//! use pagewise::{assert_faults, assert_migrated_bytes, assert_no_thrashing};
//!
//! let machine = Machine::from(pagewise::sim()?);
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
//! let write = DeviceProgram::write(Device::FIRST, 1).stride(4096);
//! assert_migrated_bytes!(machine, 2 << 20, buffer.prefetch(Device::FIRST, &stream)?);
//! assert_faults!(machine, 0, buffer.run_on_device(write, &stream)?);
//! assert_no_thrashing!(machine, assert_eq!(buffer.read()?[0], 1));
//! # Ok::<(), pagewise::Error>(())
//! ```

use std::fmt;
use std::ops::{Bound, RangeBounds};

use pagewise_hal::{Counters, MemoryEvent, Result};

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
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Observation {
    /// Sums.
    pub counters: Counters,
    /// The records, in order. On the simulator as many as its configuration keeps
    /// (`SimConfig::events`).
    pub events: Vec<MemoryEvent>,
    /// Nanoseconds by the back end's clock, which is virtual on the simulator.
    pub elapsed_ns: u64,
}

/// Runs a closure, and returns its result with the back end's records of that time, those of all
/// threads.
///
/// Earlier records are thrown away; take them first if they matter.
///
/// # Errors
/// `Unsupported` if the back end reports no events; then nothing is run.
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

/// Limits of the faults, the migrated bytes, the thrashing pages and the time of a program.
/// Quantities that are not named have no limit.
///
/// ```
/// use pagewise::{Budget, Device, DeviceProgram, Machine, ManagedBuffer, Stream, observe};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
/// let write = DeviceProgram::write(Device::FIRST, 1).stride(4096);
/// let (_, seen) = observe(&machine, || buffer.run_on_device(write, &stream))?;
/// assert!(Budget::new().faults(..=10).thrashing_pages(0).check(&seen).is_ok());
/// let over = Budget::new().faults(..=3).migrated_bytes(0).check(&seen).unwrap_err();
/// assert_eq!(over.to_string().lines().count(), 2, "{over}");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    faults: Option<Amount>,
    migrated_bytes: Option<Amount>,
    thrashing_pages: Option<Amount>,
    elapsed_ns: Option<Amount>,
}

/// A number, or a range of numbers.
///
/// ```
/// use pagewise::Amount;
/// assert!(Amount::from(6).contains(6) && !Amount::from(6).contains(7));
/// assert!(Amount::from(..=6).contains(0) && Amount::from(2..4).contains(3));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Amount {
    min: u64,
    max: u64,
}

impl Amount {
    /// Whether a number is this number, or lies in this range.
    #[must_use]
    pub const fn contains(self, number: u64) -> bool {
        self.min <= number && number <= self.max
    }

    /// An empty range contains nothing.
    fn of(range: impl RangeBounds<u64>) -> Self {
        const NOTHING: Amount = Amount { min: 1, max: 0 };
        let min = match range.start_bound() {
            Bound::Included(&min) => Some(min),
            Bound::Excluded(&before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let max = match range.end_bound() {
            Bound::Included(&max) => Some(max),
            Bound::Excluded(&end) => end.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        };
        min.zip(max).map_or(NOTHING, |(min, max)| Self { min, max })
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (min, max) if min == max => write!(f, "{min}"),
            (0, max) => write!(f, "at most {max}"),
            (min, u64::MAX) => write!(f, "at least {min}"),
            (min, max) => write!(f, "{min} to {max}"),
        }
    }
}

impl From<u64> for Amount {
    fn from(number: u64) -> Self {
        Self { min: number, max: number }
    }
}

macro_rules! amount_of_range {
    ($($range:ty),*) => {
        $(impl From<$range> for Amount {
            fn from(range: $range) -> Self {
                Self::of(range)
            }
        })*
    };
}

amount_of_range!(
    std::ops::Range<u64>,
    std::ops::RangeInclusive<u64>,
    std::ops::RangeFrom<u64>,
    std::ops::RangeTo<u64>,
    std::ops::RangeToInclusive<u64>
);

impl Budget {
    /// No limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the faults of all processors ([`Counters::faults`]).
    #[must_use]
    pub fn faults(mut self, amount: impl Into<Amount>) -> Self {
        self.faults = Some(amount.into());
        self
    }

    /// Limits the bytes migrated, all ways together ([`Counters::migrated_bytes`]).
    #[must_use]
    pub fn migrated_bytes(mut self, amount: impl Into<Amount>) -> Self {
        self.migrated_bytes = Some(amount.into());
        self
    }

    /// Limits the pages found to thrash.
    #[must_use]
    pub fn thrashing_pages(mut self, amount: impl Into<Amount>) -> Self {
        self.thrashing_pages = Some(amount.into());
        self
    }

    /// Limits the nanoseconds by the back end's clock.
    #[must_use]
    pub fn elapsed_ns(mut self, amount: impl Into<Amount>) -> Self {
        self.elapsed_ns = Some(amount.into());
        self
    }

    /// Whether an observation is within the budget.
    ///
    /// # Errors
    /// The quantities that are not within it, one line for each.
    ///
    /// ```
    /// use pagewise::{Budget, Machine, observe};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let ((), nothing) = observe(&machine, || ())?;
    /// assert!(Budget::new().faults(0).check(&nothing).is_ok());
    /// assert!(Budget::new().faults(1..).check(&nothing).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn check(&self, seen: &Observation) -> std::result::Result<(), OverBudget> {
        let counters = &seen.counters;
        let rows = [
            ("faults", self.faults, counters.faults()),
            ("migrated bytes", self.migrated_bytes, counters.migrated_bytes()),
            ("thrashing pages", self.thrashing_pages, counters.thrashing_pages),
            ("elapsed ns", self.elapsed_ns, seen.elapsed_ns),
        ];
        let lines: Vec<String> = rows
            .into_iter()
            .filter_map(|(name, amount, seen)| {
                let amount = amount.filter(|amount| !amount.contains(seen))?;
                Some(format!("{name}: {seen}, expected {amount}"))
            })
            .collect();
        if lines.is_empty() { Ok(()) } else { Err(OverBudget { lines }) }
    }

    /// Panics unless an observation is within the budget. The macros do this.
    ///
    /// # Panics
    /// With the quantities that are not within the budget, and with all counters.
    ///
    /// ```should_panic
    /// use pagewise::{Budget, Machine, observe};
    /// let machine = Machine::from(pagewise::sim().unwrap());
    /// let ((), nothing) = observe(&machine, || ()).unwrap();
    /// Budget::new().faults(1).assert(&nothing);
    /// ```
    #[track_caller]
    pub fn assert(&self, seen: &Observation) {
        if let Err(over) = self.check(seen) {
            panic!("{over}\n{:#?}", seen.counters);
        }
    }
}

/// The quantities that exceeded a [`Budget`].
///
/// ```
/// use pagewise::{Budget, Machine, observe};
/// let machine = Machine::from(pagewise::sim()?);
/// let ((), nothing) = observe(&machine, || ())?;
/// let over = Budget::new().faults(2..=3).check(&nothing).unwrap_err();
/// assert_eq!(over.to_string(), "faults: 0, expected 2 to 3");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverBudget {
    lines: Vec<String>,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

impl std::error::Error for OverBudget {}

/// Claims the number of faults of an expression, of all processors: a number or a range of `u64`.
/// Its value is that of the expression.
///
/// Panics if the claim does not hold, or if the back end reports no events.
///
/// ```
/// use pagewise::{Device, DeviceProgram, Machine, ManagedBuffer, Stream, assert_faults};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut buffer = ManagedBuffer::<u8>::new(&machine, 2 << 20)?;
/// let write = DeviceProgram::write(Device::FIRST, 1).stride(4096);
/// // One thread faults six times on 2 MiB: the prefetcher does the rest.
/// assert_faults!(machine, 6, buffer.run_on_device(write, &stream)?);
/// assert_faults!(machine, ..=600, buffer.write()?.fill(2));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[macro_export]
macro_rules! assert_faults {
    ($machine:expr, $amount:expr, $run:expr $(,)?) => {
        $crate::assert_within!($machine, $crate::Budget::new().faults($amount), $run)
    };
}

/// Claims the bytes that an expression migrates, all ways together: a number or a range of `u64`.
/// Its value is that of the expression.
///
/// Panics if the claim does not hold, or if the back end reports no events.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, Stream, assert_migrated_bytes};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let buffer = ManagedBuffer::<u8>::zeroed(&machine, 2 << 20)?;
/// assert_migrated_bytes!(machine, 2 << 20, buffer.prefetch(Device::FIRST, &stream)?);
/// assert_migrated_bytes!(machine, 0, buffer.prefetch(Device::FIRST, &stream)?);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[macro_export]
macro_rules! assert_migrated_bytes {
    ($machine:expr, $amount:expr, $run:expr $(,)?) => {
        $crate::assert_within!($machine, $crate::Budget::new().migrated_bytes($amount), $run)
    };
}

/// Claims that no page thrashes while an expression runs. Its value is that of the expression.
///
/// Panics if the claim does not hold, or if the back end reports no events.
///
/// ```
/// use pagewise::{Machine, ManagedBuffer, assert_no_thrashing};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let mut buffer = ManagedBuffer::<u8>::new(&machine, 2 << 20)?;
/// assert_no_thrashing!(machine, buffer.write()?.fill(1));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[macro_export]
macro_rules! assert_no_thrashing {
    ($machine:expr, $run:expr $(,)?) => {
        $crate::assert_within!($machine, $crate::Budget::new().thrashing_pages(0), $run)
    };
}

/// Claims that an expression stays within a [`Budget`](crate::Budget). Its value is that of the
/// expression. `?` and `return` in it end the function around it, and then nothing is claimed.
///
/// Panics if the claim does not hold, or if the back end reports no events.
///
/// ```
/// use pagewise::{Budget, Machine, ManagedBuffer, assert_within};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let quiet = Budget::new().faults(0).migrated_bytes(0);
/// let buffer = assert_within!(machine, quiet, ManagedBuffer::<u8>::new(&machine, 4096)?);
/// assert_eq!(buffer.len(), 4096);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[macro_export]
macro_rules! assert_within {
    ($machine:expr, $budget:expr, $run:expr $(,)?) => {{
        let watch = $crate::Watch::begin(&$machine).expect("a back end that reports events");
        let answer = $run;
        $budget.assert(&watch.end().expect("a back end that reports events"));
        answer
    }};
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
}

impl Watch {
    /// Begins. Records from before are thrown away.
    ///
    /// # Errors
    /// `Unsupported` if the back end reports no events.
    pub fn begin(machine: impl Into<Machine>) -> Result<Self> {
        let machine = machine.into();
        drop(machine.backend().take_events()?);
        let start_ns = machine.backend().clock_ns();
        Ok(Self { machine, start_ns })
    }

    /// Ends, and returns the records since it began.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn end(self) -> Result<Observation> {
        let backend = self.machine.backend();
        let elapsed_ns = backend.clock_ns().saturating_sub(self.start_ns);
        let events = backend.take_events()?;
        let counters = events.iter().collect();
        Ok(Observation { counters, events, elapsed_ns })
    }
}
