//! The driver's unified-memory records: copies, faults and remote mappings.
//!
//! There is one value for each record of the profiler's unified-memory activity. Addresses are
//! bytes in the unified address space. `duration_ns` is 0 where the back end does not know it.

use crate::Processor;

/// The cause of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum CopyCause {
    /// An explicit prefetch, or an advice that moves data.
    User,
    /// The faulted pages themselves.
    Coherence,
    /// Pages that the prefetcher added to a fault.
    Prefetch,
    /// Room was needed on the device.
    Eviction,
    /// The access counters asked for it.
    AccessCounters,
}

/// The access of a faulting instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum FaultAccess {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To update atomically.
    Atomic,
    /// To prefetch: the instruction neither reads nor writes.
    Prefetch,
}

/// The cause of a remote mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum MapCause {
    /// A fault was answered without moving the page.
    Coherence,
    /// The page was pinned because it thrashed.
    Thrashing,
    /// Preferred location or accessed-by.
    Policy,
    /// The device was full.
    OutOfMemory,
    /// The page had been evicted.
    Eviction,
}

/// One unified-memory record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum MemoryEvent {
    /// One run of adjacent pages was copied. A run never crosses a va_block.
    Copy {
        /// First byte.
        address: u64,
        /// Length of the run.
        bytes: u64,
        /// The processor that held the data.
        from: Processor,
        /// The processor that got the copy.
        to: Processor,
        /// The cause.
        cause: CopyCause,
        /// Nanoseconds on the copy engine.
        duration_ns: u64,
    },
    /// The host faulted.
    CpuFault {
        /// The faulting page's first byte.
        address: u64,
        /// Read or write.
        access: FaultAccess,
    },
    /// A device faulted.
    GpuFault {
        /// The device.
        device: Processor,
        /// The faulting page's first byte.
        address: u64,
        /// The access of the instruction.
        access: FaultAccess,
        /// The number of hardware faults that the record stands for.
        merged: u64,
        /// Nanoseconds from the fault to the replay.
        duration_ns: u64,
    },
    /// A processor mapped memory of another processor.
    RemoteMap {
        /// First byte of the run.
        address: u64,
        /// Length of the run.
        bytes: u64,
        /// The processor that maps.
        by: Processor,
        /// The processor with the memory.
        at: Processor,
        /// The cause.
        cause: MapCause,
    },
    /// A page was found to thrash.
    Thrashing {
        /// The page's first byte.
        address: u64,
        /// Bytes of the page.
        bytes: u64,
        /// The GPUs among the thrashing processors: bit n for GPU n.
        gpus: u64,
        /// Whether the host is among them.
        host: bool,
    },
    /// A processor had to wait for a thrashing page. It is reported when the wait ends.
    Throttling {
        /// The page's first byte.
        address: u64,
        /// The processor that had to wait.
        processor: Processor,
        /// Nanoseconds that it had to wait.
        duration_ns: u64,
    },
}

impl MemoryEvent {
    /// The first byte that the record is about.
    #[must_use]
    pub const fn address(&self) -> u64 {
        match self {
            Self::Copy { address, .. }
            | Self::CpuFault { address, .. }
            | Self::GpuFault { address, .. }
            | Self::RemoteMap { address, .. }
            | Self::Thrashing { address, .. }
            | Self::Throttling { address, .. } => *address,
        }
    }

    /// The same record with another address.
    #[must_use]
    pub const fn with_address(mut self, to: u64) -> Self {
        match &mut self {
            Self::Copy { address, .. }
            | Self::CpuFault { address, .. }
            | Self::GpuFault { address, .. }
            | Self::RemoteMap { address, .. }
            | Self::Thrashing { address, .. }
            | Self::Throttling { address, .. } => *address = to,
        }
        self
    }
}

/// A run of pages with the same state in the host's page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PageRun {
    /// The number of pages; at least 1.
    pub pages: u64,
    /// Whether the host has them mapped.
    pub mapped: bool,
}
