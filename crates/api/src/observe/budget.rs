//! Budgets: limits of what a program may make the driver do.

use std::fmt;

use super::amount::Amount;
use super::buffers::{Buffers, NamedSpan};
use super::observation::Observation;
use super::stretch::{Stretch, What};

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
/// let budget = Budget::new().gpu_faults(..=10).cpu_faults(0).to_device(&buffer, 2 << 20);
/// assert!(budget.check(&seen).is_ok());
/// let over = Budget::new().gpu_faults(0).check(&seen).unwrap_err().to_string();
/// assert!(over.starts_with("GPU faults: 6, expected 0\n"), "{over}");
/// assert!(over.contains("6 faults of gpu0"), "{over}");
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    limits: Vec<(Quantity, Amount)>,
}

/// A number of an observation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Quantity {
    Faults,
    GpuFaults,
    CpuFaults,
    MigratedBytes,
    BytesToDevices,
    BytesToHost,
    ThrashingPages,
    ElapsedNs,
    /// Bytes of a range that went to devices: the sums do not know them, the records do.
    ToDevice(NamedSpan),
    /// Bytes of a range that went to the host.
    ToHost(NamedSpan),
}

impl Quantity {
    /// The quantity in an observation; `None` if that takes records which are lost.
    fn of(&self, seen: &Observation) -> Option<u64> {
        let counters = &seen.counters;
        let known = |number: u64| (seen.lost == 0).then_some(number);
        let sum = |number: u64| if seen.of_part { known(number) } else { Some(number) };
        match self {
            Self::Faults => sum(counters.faults()),
            Self::GpuFaults => sum(counters.gpu_faults),
            Self::CpuFaults => sum(counters.cpu_faults),
            Self::MigratedBytes => sum(counters.migrated_bytes()),
            Self::BytesToDevices => sum(counters.to_device.bytes),
            Self::BytesToHost => sum(counters.to_host.bytes),
            Self::ThrashingPages => sum(counters.thrashing_pages),
            Self::ElapsedNs => Some(seen.elapsed_ns),
            Self::ToDevice(memory) => {
                known(Stretch::bytes_within(&seen.events, memory.span, What::is_copy_to_device))
            }
            Self::ToHost(memory) => {
                known(Stretch::bytes_within(&seen.events, memory.span, What::is_copy_to_host))
            }
        }
    }

    /// Whether a stretch is a part of the quantity.
    fn includes(&self, stretch: &Stretch) -> bool {
        let what = stretch.what();
        match self {
            Self::Faults => what.is_fault(),
            Self::GpuFaults => matches!(what, What::GpuFault { .. }),
            Self::CpuFaults => what == What::CpuFault,
            Self::MigratedBytes => what.is_copy(),
            Self::BytesToDevices => what.is_copy_to_device(),
            Self::BytesToHost => what.is_copy_to_host(),
            Self::ThrashingPages => what == What::Thrashing,
            Self::ElapsedNs => false,
            Self::ToDevice(memory) => {
                what.is_copy_to_device() && stretch.shared_with(memory.span) > 0
            }
            Self::ToHost(memory) => what.is_copy_to_host() && stretch.shared_with(memory.span) > 0,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults => f.write_str("faults"),
            Self::GpuFaults => f.write_str("GPU faults"),
            Self::CpuFaults => f.write_str("CPU faults"),
            Self::MigratedBytes => f.write_str("migrated bytes"),
            Self::BytesToDevices => f.write_str("bytes to devices"),
            Self::BytesToHost => f.write_str("bytes to the host"),
            Self::ThrashingPages => f.write_str("thrashing pages"),
            Self::ElapsedNs => f.write_str("elapsed ns"),
            Self::ToDevice(memory) => write!(f, "bytes of {memory} to devices"),
            Self::ToHost(memory) => write!(f, "bytes of {memory} to the host"),
        }
    }
}

impl Budget {
    /// A message has less than ten lines.
    const LINES_MAX: usize = 9;
    /// The places that it names for each quantity.
    const PLACES_MAX: usize = 3;

    /// No limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A later limit of a quantity replaces an earlier one.
    fn limit(mut self, quantity: Quantity, amount: Amount) -> Self {
        self.limits.retain(|(other, _)| *other != quantity);
        self.limits.push((quantity, amount));
        self
    }

    /// Limits the faults of all processors ([`Counters::faults`](crate::Counters::faults)).
    #[must_use]
    pub fn faults(self, amount: impl Into<Amount>) -> Self {
        self.limit(Quantity::Faults, amount.into())
    }

    /// Limits the records of faults of devices.
    #[must_use]
    pub fn gpu_faults(self, amount: impl Into<Amount>) -> Self {
        self.limit(Quantity::GpuFaults, amount.into())
    }

    /// Limits the faults of the host.
    #[must_use]
    pub fn cpu_faults(self, amount: impl Into<Amount>) -> Self {
        self.limit(Quantity::CpuFaults, amount.into())
    }

    /// Limits the bytes migrated, all ways together
    /// ([`Counters::migrated_bytes`](crate::Counters::migrated_bytes)).
    #[must_use]
    pub fn migrated_bytes(self, amount: impl Into<Amount>) -> Self {
        self.limit(Quantity::MigratedBytes, amount.into())
    }

    /// Limits the bytes copied from the host to devices.
    #[must_use]
    pub fn bytes_to_devices(self, amount: impl Into<Amount>) -> Self {
        self.limit(Quantity::BytesToDevices, amount.into())
    }

    /// Limits the bytes copied from devices to the host.
    #[must_use]
    pub fn bytes_to_host(self, amount: impl Into<Amount>) -> Self {
        self.limit(Quantity::BytesToHost, amount.into())
    }

    /// Limits the bytes of a buffer, a region or a [`Span`](crate::Span) that are copied from the
    /// host to devices. The claim needs every record: it fails, and says so, if some are lost.
    #[must_use]
    pub fn to_device(self, memory: impl Into<NamedSpan>, amount: impl Into<Amount>) -> Self {
        self.limit(Quantity::ToDevice(memory.into()), amount.into())
    }

    /// Limits the bytes of a buffer, a region or a [`Span`](crate::Span) that are copied from
    /// devices to the host. The claim needs every record: it fails, and says so, if some are lost.
    #[must_use]
    pub fn to_host(self, memory: impl Into<NamedSpan>, amount: impl Into<Amount>) -> Self {
        self.limit(Quantity::ToHost(memory.into()), amount.into())
    }

    /// Limits the pages found to thrash.
    #[must_use]
    pub fn thrashing_pages(self, amount: impl Into<Amount>) -> Self {
        self.limit(Quantity::ThrashingPages, amount.into())
    }

    /// Limits the nanoseconds by the back end's clock.
    #[must_use]
    pub fn elapsed_ns(self, amount: impl Into<Amount>) -> Self {
        self.limit(Quantity::ElapsedNs, amount.into())
    }

    /// Whether an observation is within the budget.
    ///
    /// # Errors
    /// The quantities that are not within it, each with the places where most of it happened, in
    /// less than ten lines.
    pub fn check(&self, seen: &Observation) -> Result<(), OverBudget> {
        let over: Vec<_> = self
            .limits
            .iter()
            .map(|(quantity, amount)| (quantity, amount, quantity.of(seen)))
            .filter(|(_, amount, number)| !number.is_some_and(|number| amount.contains(number)))
            .collect();
        if over.is_empty() {
            return Ok(());
        }
        let buffers = Buffers::new(&seen.buffers);
        let stretches = seen.stretches(&buffers);
        let room = Self::LINES_MAX.saturating_sub(over.len()) / over.len();
        let mut lines = Vec::new();
        for (quantity, amount, number) in over {
            lines.push(match number {
                Some(number) => format!("{quantity}: {number}, expected {amount}"),
                None => format!(
                    "{quantity}: unknown, expected {amount}: {} records are lost; have more kept \
                     (SimConfig::events), or take none meanwhile",
                    seen.lost
                ),
            });
            let parts = stretches.iter().filter(|stretch| quantity.includes(stretch));
            let shown = parts.take(room.min(Self::PLACES_MAX));
            lines.extend(shown.map(|part| format!("  {}", part.line(&buffers))));
        }
        if lines.len() > Self::LINES_MAX {
            let more = lines.split_off(Self::LINES_MAX - 1).len();
            lines.push(format!("and {more} more quantities"));
        }
        Err(OverBudget { lines })
    }

    /// Panics unless an observation is within the budget. The macros do this.
    ///
    /// # Panics
    /// With the quantities that are not within the budget, and where they happened.
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
            panic!("{over}");
        }
    }
}

/// The quantities that exceeded a [`Budget`], a line for each and for the places where most of it
/// happened.
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
