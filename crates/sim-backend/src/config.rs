//! The configuration of the simulated machine: the number of its GPUs, their profile, the driver's
//! version.

use pagewise_hal::DriverVersion;
use serde::{Deserialize, Serialize};

use crate::profile::GpuProfile;

/// The answers of range-attribute reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RangeReads {
    /// As CUDA documents them: a value counts only if every page of the range has it.
    #[default]
    Pages,
    /// As driver 580 reports them: it walks records, and may report one value over pages that
    /// never had it, or none over pages that all do. What the memory *does* is the same.
    Driver,
}

/// The contents of discarded memory until it is written. CUDA calls them indeterminate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum DiscardedContents {
    /// Its contents before the discard.
    #[default]
    Kept,
    /// The hardware's answer: the bytes that the reading processor's memory held when the page was
    /// last there, zeros if it never was. Costs a copy of each page that is written after it
    /// moved.
    Driver,
}

/// Whether access programs, fills and copies carry bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum MemoryContents {
    /// They read and write the memory behind the simulated addresses, as on a machine.
    #[default]
    Real,
    /// They read what others of them wrote, and it is kept as a description: a fill of a gigabyte
    /// writes no memory. It is written to memory, once and for all, when a program asks for the bytes
    /// behind addresses: by [`host_views`](pagewise_hal::HostAddresses::host_views) or
    /// [`kernel_address`](pagewise_hal::HostAddresses::kernel_address), with code that runs, and
    /// with memory that other processes share. Until then raw pointers must not be used. For
    /// replays and sweeps, which only make calls. A page takes up to 16 bytes, or 4 KiB if it holds
    /// more than one value and one other byte. With [host faults](HostFaults) it is `Real`.
    Described,
    /// They only move pages: sums are 0, nothing is written, and the process commits no memory
    /// however much is touched. For studies of where pages go, of any size, at full speed. A program
    /// that writes memory by raw pointers asks for the bytes before, as with `Described`: only then
    /// memory that was freed is zero again.
    Skipped,
}

/// Whether records of moves are kept. They are always counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventCapture {
    /// No records are kept, and `take_events` returns `Unsupported`.
    Off,
    /// The last ones are kept until `take_events` takes them.
    Ring {
        /// How many, of 64 bytes each. Room is taken as they come.
        capacity: usize,
    },
}

impl Default for EventCapture {
    /// A ring of 4,194,304 records.
    fn default() -> Self {
        Self::Ring { capacity: 1 << 22 }
    }
}

/// Whether the host's accesses to memory are seen only if they are declared, or by faults.
///
/// With a mechanism for faults, memory that the simulated driver has not mapped for the host is not
/// accessible to the program. An access through a raw pointer faults, the simulator services the
/// fault of this one page as [`host_touch`](pagewise_hal::Backend::host_touch) of one byte does, and
/// the program goes on. Device memory and memory that was freed give a segmentation fault.
///
/// | | system calls with hidden pages | needs |
/// | --- | --- | --- |
/// | userfaultfd | wait for the page; `EFAULT` if the kernel admits only user mode | Linux 6.4 (6.10 on aarch64), a permission |
/// | page protection | `EFAULT` | Linux; `SIGSEGV` not blocked |
///
/// With page protection the simulator installs a handler of `SIGSEGV`, once in a process, which
/// gives other faults to the handler that was there before. A handler that a program installs later
/// has to pass faults on to the one that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum HostFaults {
    /// All memory is accessible, and accesses are seen that `host_touch` declares.
    #[default]
    Declared,
    /// Faults, by userfaultfd where the host has it and by page protection elsewhere.
    Real,
    /// Faults, by userfaultfd.
    Userfaultfd,
    /// Faults, by page protection.
    PageProtection,
}

/// A mechanism by which the host's faults arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HostFaultMechanism {
    /// The kernel's `userfaultfd(2)`.
    Userfaultfd,
    /// `mprotect(2)` with a handler of `SIGSEGV`.
    PageProtection,
}

impl std::fmt::Display for HostFaultMechanism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Userfaultfd => "userfaultfd",
            Self::PageProtection => "page protection",
        })
    }
}

/// The host faults that a machine of this process can have: see [`HostFaults`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HostFaultSupport {
    /// The mechanism; `None` if there is none on this host.
    pub mechanism: Option<HostFaultMechanism>,
    /// Whether system calls with hidden pages wait for them, as other accesses do.
    pub system_calls: bool,
    /// The reason for this mechanism, or for none, in words.
    pub why: String,
}

/// The simulated machine.
///
/// ```
/// use pagewise_sim::{RangeReads, SimConfig};
/// use pagewise_hal::DriverVersion;
///
/// let config = SimConfig::h200()
///     .devices(2)
///     .driver_version(DriverVersion::CUDA_12_2)
///     .range_reads(RangeReads::Driver);
/// assert_eq!(config.device_count(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimConfig {
    pub(crate) gpu: GpuProfile,
    pub(crate) devices: u32,
    pub(crate) host_numa_nodes: u32,
    pub(crate) driver_version: DriverVersion,
    pub(crate) range_reads: RangeReads,
    pub(crate) discarded_contents: DiscardedContents,
    #[serde(default)]
    pub(crate) contents: MemoryContents,
    #[serde(default)]
    pub(crate) host_faults: HostFaults,
    pub(crate) events: EventCapture,
    #[serde(default)]
    pub(crate) seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instruction_limit: Option<u64>,
}

impl SimConfig {
    /// Most devices that one simulated machine can have.
    pub const DEVICES_MAX: u32 = 32;

    /// A machine with one such GPU under the driver that its profile names, and one host NUMA
    /// node.
    #[must_use]
    pub fn new(gpu: GpuProfile) -> Self {
        Self {
            driver_version: gpu.driver_version,
            gpu,
            devices: 1,
            host_numa_nodes: 1,
            range_reads: RangeReads::default(),
            discarded_contents: DiscardedContents::default(),
            contents: MemoryContents::default(),
            host_faults: HostFaults::default(),
            events: EventCapture::default(),
            seed: 0,
            instruction_limit: None,
        }
    }

    /// One H200 under driver 580 (CUDA 13.0), one host NUMA node.
    #[must_use]
    pub fn h200() -> Self {
        Self::new(GpuProfile::h200())
    }

    /// The machine with one GPU of the named profile, or `None` if no profile has that name.
    #[must_use]
    pub fn profile(name: &str) -> Option<Self> {
        GpuProfile::named(name).map(Self::new)
    }

    /// How many of the GPU; all devices of a machine are of one profile, connected as it says. At
    /// most [`SimConfig::DEVICES_MAX`]; 0 is a machine with a driver and no device.
    #[must_use]
    pub fn devices(mut self, count: u32) -> Self {
        self.devices = count;
        self
    }

    /// How many host NUMA nodes, numbered from 0.
    #[must_use]
    pub fn host_numa_nodes(mut self, count: u32) -> Self {
        self.host_numa_nodes = count;
        self
    }

    /// The driver's version, which decides which entry points exist: 12.0 and later.
    #[must_use]
    pub fn driver_version(mut self, version: DriverVersion) -> Self {
        self.driver_version = version;
        self
    }

    /// The answers of range-attribute reads.
    #[must_use]
    pub fn range_reads(mut self, mode: RangeReads) -> Self {
        self.range_reads = mode;
        self
    }

    /// Whether access programs, fills and copies carry bytes.
    #[must_use]
    pub fn contents(mut self, contents: MemoryContents) -> Self {
        self.contents = contents;
        self
    }

    /// Whether the host's accesses are seen by faults: see [`HostFaults`].
    /// [`SimBackend::new`](crate::SimBackend::new) refuses what this host cannot do, and
    /// [`host_fault_support`](crate::host_fault_support) says what it can.
    #[must_use]
    pub fn host_faults(mut self, faults: HostFaults) -> Self {
        self.host_faults = faults;
        self
    }

    /// Sets the contents of discarded memory.
    #[must_use]
    pub fn discarded_contents(mut self, contents: DiscardedContents) -> Self {
        self.discarded_contents = contents;
        self
    }

    /// Sets whether records of moves are kept.
    #[must_use]
    pub fn events(mut self, capture: EventCapture) -> Self {
        self.events = capture;
        self
    }

    /// The GPU that all devices are.
    #[must_use]
    pub fn gpu(&self) -> &GpuProfile {
        &self.gpu
    }

    /// Sets the seed of kernels of many threads, which decides which of their faults come
    /// first (see [`arrival`](crate::arrival)). The same seed gives the same run; 0 if not set.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The most instructions of warps that one kernel may execute. A kernel that executes more is
    /// ended with 702 (`LAUNCH_TIMEOUT`) and a report. Without a limit, which is the default, a
    /// kernel that never ends is not ended.
    #[must_use]
    pub fn instruction_limit(mut self, limit: Option<u64>) -> Self {
        self.instruction_limit = limit;
        self
    }

    /// How many devices there are.
    #[must_use]
    pub fn device_count(&self) -> u32 {
        self.devices
    }
}
