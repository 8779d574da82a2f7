//! The counts of one call, except those of faults.

use pagewise_hal::Processor;

use crate::paging::{HeldBlocks, Work, WorkCause};

/// Host pages filled with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Zeroed {
    pub(super) pages: u64,
    /// Pages besides, of memory that a free gave back just before.
    pub(super) recycled: u64,
}

impl Zeroed {
    pub(super) fn ns(self, page: f64, recycled_page: f64) -> f64 {
        page * self.pages as f64 + recycled_page * self.recycled as f64
    }
}

/// Counts of one call.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Tally {
    /// Ranges that appeared.
    pub(super) ranges_made: u64,
    /// Devices beside the first that learn of them.
    pub(super) further_devices: u64,
    /// The blocks of ranges that went.
    pub(super) freed: HeldBlocks,
    /// Whether anything moved, was mapped, unmapped or advised.
    pub(super) acts: bool,
    /// Whether advice reached memory.
    pub(super) advised: bool,
    /// Time of advice, by block.
    pub(super) advice_ns: f64,
    /// Time of evictions, whatever call needed the room.
    pub(super) evictions_ns: f64,
    /// Time of memory that the engine knows nothing of, whatever call took or gave it.
    pub(super) memory_ns: f64,
    /// Time of accesses, without their faults.
    pub(super) walk_ns: f64,
    /// Blocks gone through.
    pub(super) blocks: u64,
    /// Blocks in which a device maps pages that moved to it.
    pub(super) device_blocks: u64,
    pub(super) copies: u64,
    pub(super) bytes_to_device: u64,
    pub(super) bytes_to_host: u64,
    pub(super) bytes_between_devices: u64,
    pub(super) pages_mapped_host: u64,
    pub(super) zeroed_host: Zeroed,
    pub(super) pages_unmapped_host: u64,
    pub(super) unmaps_host: u64,
    pub(super) unmaps_device: u64,
    pub(super) chunks_device: u64,
    pub(super) zeroed_runs_device: u64,
}

impl Tally {
    #[allow(
        clippy::arithmetic_side_effects,
        reason = "sums of what the steps of one call did, each to one block of 512 pages"
    )]
    pub(super) fn add(&mut self, work: &Work, zeroed: Zeroed) {
        const PAGE: u64 = pagewise_hal::PAGE_BYTES;
        let mapped = work.pages_mapped_host > 0 || work.pages_mapped_device > 0;
        let unmapped = work.unmaps_host > 0 || work.unmaps_device > 0;
        self.acts |= mapped || work.copies > 0 || (work.cause == WorkCause::Discard && unmapped);
        let to_device = work.processor.is_some_and(|to| to != Processor::HOST);
        let maps_device = work.cause == WorkCause::Migration && work.pages_mapped_device > 0;
        self.device_blocks += u64::from(to_device && maps_device);
        self.blocks += work.blocks;
        self.copies += work.copies;
        self.bytes_to_device += work.pages_to_device * PAGE;
        self.bytes_between_devices += work.pages_between_devices * PAGE;
        self.bytes_to_host += work.pages_to_host * PAGE;
        self.pages_mapped_host += work.pages_mapped_host;
        self.zeroed_host.pages += zeroed.pages;
        self.zeroed_host.recycled += zeroed.recycled;
        self.pages_unmapped_host += work.pages_unmapped_host;
        self.unmaps_host += work.unmaps_host;
        self.unmaps_device += work.unmaps_device;
        self.chunks_device += work.chunks_device;
        self.zeroed_runs_device += work.zeroed_runs_device;
    }
}
