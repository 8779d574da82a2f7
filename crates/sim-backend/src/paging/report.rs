//! Reports of the engine to its caller: records as the profiler shows them, and their work.
//!
//! Addresses and sizes of records in bytes, work in pages. Durations are left 0: time is the cost
//! model's business.

use pagewise_hal::{CopyCause, MemoryEvent, Processor};

use super::mask::{Counts, PageMask};

/// The reports that a sink has a use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Each record of a copy. Without it, sums of copies are enough.
    pub(crate) copies: bool,
    /// Changes of what memory holds of pages.
    pub(crate) holdings: bool,
}

/// The copies of a step between two processors, without their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopySums {
    /// The processor that held the data, and the one that got the copies.
    pub(crate) way: (Processor, Processor),
    /// The cause of the pages that were asked for.
    pub(crate) cause: CopyCause,
    /// Runs of pages that were asked for, and pages.
    pub(crate) asked: Counts,
    /// Those of pages that the prefetcher added.
    pub(crate) prefetched: Counts,
}

/// Receives what the engine does, in order.
pub(crate) trait ReportSink {
    /// The reports that it has a use for: all, unless it says otherwise.
    fn wants(&self) -> Wants {
        Wants { copies: true, holdings: true }
    }

    /// One record.
    fn record(&mut self, record: MemoryEvent);

    /// Copies, for a sink that has no use for their records.
    fn copies(&mut self, _: &CopySums) {}

    /// Reports the work of one step on one va_block, after its records. Returns the nanoseconds
    /// that it took; for faults, the walking processor waits for them.
    fn work(&mut self, work: &Work) -> u64;

    /// Nanoseconds from an access that faults to the start of the service. `access` is its number
    /// in the walk.
    fn fault_latency_ns(&mut self, by: Processor, access: u64) -> u64;

    /// Pages of a block, the first of which is `first_page`, changed what a processor's memory
    /// holds of them.
    fn holding(&mut self, first_page: u64, pages: PageMask, processor: Processor, now: Holding);
}

/// Reports the contents of a processor's memory for pages from now on.
///
/// Memory that a processor once got for a page stays behind when the page leaves, with what it
/// held: a page that becomes resident without being copied, after a discard, shows that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    /// The contents of the pages when they left.
    Left,
    /// The pages' contents, copied.
    Copied,
    /// The pages' contents, which from now on are whatever this memory held; zeros if it is new.
    Shown,
    /// The processor has no memory for the pages any more.
    Gone,
}

impl ReportSink for Vec<MemoryEvent> {
    fn record(&mut self, record: MemoryEvent) {
        self.push(record);
    }

    fn work(&mut self, _: &Work) -> u64 {
        0
    }

    fn fault_latency_ns(&mut self, _: Processor, _: u64) -> u64 {
        0
    }

    fn holding(&mut self, _: u64, _: PageMask, _: Processor, _: Holding) {}
}

/// The cause of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum WorkCause {
    /// A fault was serviced.
    #[default]
    Fault,
    /// An explicit migration.
    Migration,
    /// A discard.
    Discard,
    /// An advice.
    Advice(Advised),
    /// A pinned page was released.
    Unpin,
    /// Device memory was taken for pages that are about to arrive.
    Allocation,
    /// A device chunk was emptied; the processor is the device.
    Eviction,
}

/// The kind of advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advised {
    /// A device is preferred.
    PreferredDevice,
    /// The host is, or nothing.
    PreferredElsewhere,
    /// A device keeps a mapping.
    AccessedByDevice,
    /// The host does.
    AccessedByHost,
    /// A processor no longer does.
    AccessedByEnd,
    /// Read duplication begins.
    ReadMostly,
    /// It ends.
    ReadMostlyEnd,
}

/// The work of one step on one va_block; for an advice also its work on ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Work {
    /// The cause.
    pub(crate) cause: WorkCause,
    /// The processor that faulted, that the pages went to, or that has the memory; `None` for
    /// advice, discard and unpinning.
    pub(crate) processor: Option<Processor>,
    /// First page of the va_block, absolute.
    pub(crate) block: u64,
    /// Runs copied.
    pub(crate) copies: u64,
    /// Pages copied, host to device.
    pub(crate) pages_to_device: u64,
    /// Pages copied, device to host.
    pub(crate) pages_to_host: u64,
    /// Pages copied between devices.
    pub(crate) pages_between_devices: u64,
    /// Pages of host memory newly allocated.
    pub(crate) pages_populated_host: u64,
    /// Pages of device memory newly allocated.
    pub(crate) pages_populated_device: u64,
    /// Pages of host memory filled with zeros.
    pub(crate) pages_zeroed_host: u64,
    /// Runs of device memory filled with zeros.
    pub(crate) zeroed_runs_device: u64,
    /// Chunks of device memory newly allocated.
    pub(crate) chunks_device: u64,
    /// Times that pages were taken out of the host's page table.
    pub(crate) unmaps_host: u64,
    /// Times that pages were taken out of devices' page tables.
    pub(crate) unmaps_device: u64,
    /// Runs mapped in another processor's memory, with a record.
    pub(crate) remote_maps: u64,
    /// Pages that arrived without a copy.
    pub(crate) pages_fresh: u64,
    /// Whether the policy is read-mostly.
    pub(crate) read_mostly: bool,
    /// Blocks that were migrated or advised, also in vain.
    pub(crate) blocks: u64,
    /// Advice: pages resident on the host before.
    pub(crate) pages_held_host: u64,
    /// Advice: pages resident on devices before.
    pub(crate) pages_held_device: u64,
    /// Pages that the host may no longer write.
    pub(crate) pages_revoked_host: u64,
    /// Advice: pages that lose duplicates.
    pub(crate) pages_collapsed: u64,
    /// Advice: ranges with a new policy.
    pub(crate) ranges_advised: u64,
    /// Advice: ranges cut in two.
    pub(crate) ranges_split: u64,
    /// Advice: blocks cut in two.
    pub(crate) blocks_split: u64,
    /// Blocks cut in two that a device had mapped.
    pub(crate) mapped_blocks_split: u64,
    /// Pages taken out of the host's page table.
    pub(crate) pages_unmapped_host: u64,
    /// Pages taken out of devices' page tables.
    pub(crate) pages_unmapped_device: u64,
    /// Pages entered in the host's page table.
    pub(crate) pages_mapped_host: u64,
    /// Pages entered in devices' page tables.
    pub(crate) pages_mapped_device: u64,
    /// Parts of blocks that had to leave their device to make room.
    pub(crate) evictions: u64,
}

impl Work {
    /// Whether nothing was done.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        let &Self { cause, processor, block, read_mostly, .. } = self;
        // What most often is not 0 first: the rest is many numbers.
        self.copies == 0
            && self.evictions == 0
            && *self == Self { cause, processor, block, read_mostly, ..Self::default() }
    }
}
