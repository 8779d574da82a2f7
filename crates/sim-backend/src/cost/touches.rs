//! The cost of access programs: accesses, faults, and the driver's delay before it reads a fault.

use super::params::{DeviceTouchCosts, HostTouchCosts};
use super::state::Warmth;
use super::tally::{Tally, Zeroed};
use crate::paging::{Access, Covered, Walk, Work};

const PAGE: u64 = pagewise_hal::PAGE_BYTES;
/// Pages that the host's translation caches reach, roughly: two levels.
const NEAR_PAGES: [u64; 2] = [1024, 8192];
/// A device's caches move sectors of this many bytes.
const SECTOR_BYTES: u64 = 32;
/// Faults after which a warm driver is rarely found asleep (TIMING-21).
const WAKES: u64 = 8;

/// The faults of one call.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Faults {
    pub(super) count: u64,
    /// The faults of a device that the driver has read so far.
    seen: u64,
    /// First page of the block of the last one.
    block: Option<u64>,
    /// Whether one copied or found pages that were nowhere.
    moved: bool,
    /// The number of the last access that faulted.
    pub(super) last_access: Option<u64>,
    /// The share of an access between faults.
    pub(super) gap_ns: f64,
    /// Chunks of device memory given since the last one.
    pub(super) chunks: u64,
}

impl Faults {
    /// Notes a fault; says whether it is the first in its block.
    fn note(&mut self, work: &Work) -> bool {
        self.count = self.count.saturating_add(1);
        let first = self.block != Some(work.block);
        self.block = Some(work.block);
        first
    }
}

#[inline]
pub(super) fn host(costs: &HostTouchCosts, tally: &Tally, faults: &Faults, warmth: Warmth) -> f64 {
    let moved = if faults.moved { costs.faults } else { 0.0 };
    let woken = if faults.moved && warmth.is_cold() { costs.faults_cold } else { 0.0 };
    costs.call + warmth.ns(&costs.warmth) + moved + woken + tally.walk_ns
}

#[inline]
pub(super) fn host_walk(
    costs: &HostTouchCosts,
    walk: &Walk,
    covered: Covered,
    warmth: Warmth,
) -> f64 {
    let woken = warmth.if_after_sleep(costs.access_after_sleep);
    let beyond = |near: u64| covered.pages.saturating_sub(near) as f64;
    (costs.access + woken) * walk.accesses() as f64
        + costs.far_page * beyond(NEAR_PAGES[0])
        + costs.very_far_page * beyond(NEAR_PAGES[1])
        + costs.first_write * covered.first_written as f64
        + costs.written_page * covered.written_before as f64
}

pub(super) fn host_fault(
    costs: &HostTouchCosts,
    faults: &mut Faults,
    work: &Work,
    zeroed: Zeroed,
) -> f64 {
    let block = if faults.note(work) { costs.faulted_block } else { 0.0 };
    let kind = if work.copies > 0 {
        costs.fault_copy
    } else if work.pages_fresh > 0 {
        costs.fault_fresh
    } else {
        costs.fault_map
    };
    faults.moved |= work.copies > 0 || work.pages_fresh > 0;
    block
        + kind
        + costs.map_page * work.pages_mapped_host as f64
        + zeroed.ns(costs.zero_page, costs.zero_warm_page)
        + costs.copy_byte * work.pages_to_host as f64 * PAGE as f64
        + costs.unmap_device * work.unmaps_device as f64
}

#[inline]
pub(super) fn device(
    costs: &DeviceTouchCosts,
    tally: &Tally,
    faults: &Faults,
    warmth: Warmth,
) -> f64 {
    let woken = if faults.count == 0 { warmth.ns(&costs.warmth) } else { 0.0 };
    costs.call + woken + tally.walk_ns
}

#[inline]
pub(super) fn device_walk(
    costs: &DeviceTouchCosts,
    walk: &Walk,
    covered: Covered,
    threads: u64,
    bulk: bool,
) -> f64 {
    let accesses = walk.accesses();
    let remote = match covered.remote_pages {
        0 => 0.0, // Most are: no division.
        pages => pages as f64 / covered.pages.max(1) as f64,
    };
    let reads = walk.access == Access::Read;
    if threads > 1 || bulk {
        let bytes =
            if bulk { walk.bytes } else { accesses.saturating_mul(SECTOR_BYTES).min(walk.bytes) }
                as f64;
        let each = if bulk { 0.0 } else { accesses as f64 / threads.max(1) as f64 };
        let access = if reads { costs.parallel_read } else { costs.parallel_write };
        let (here, there) = (bytes * (1.0 - remote), bytes * remote);
        return costs.parallel_byte * here + costs.parallel_remote_byte * there + access * each;
    }
    let accesses = accesses as f64;
    match walk.access {
        // What the sum below comes to.
        Access::Read if covered.remote_pages == 0 => costs.read * accesses,
        Access::Read => {
            costs.read * accesses * (1.0 - remote) + costs.read_remote * accesses * remote
        }
        Access::Write => costs.write * accesses,
        Access::Atomic => costs.atomic * accesses,
    }
}

/// The time until the driver looks at the fault of the access with this number.
pub(super) fn device_latency(
    costs: &DeviceTouchCosts,
    faults: &mut Faults,
    access: u64,
    warmth: Warmth,
    parallel: bool,
) -> f64 {
    let before = faults.last_access.replace(access);
    let nth = faults.seen;
    faults.seen = faults.seen.saturating_add(1);
    match warmth {
        _ if parallel && nth == 0 => costs.parallel_first_fault,
        _ if parallel => costs.parallel_batch,
        Warmth::AfterSleep { others, .. } if nth == 0 => {
            costs.first_fault_after_sleep[usize::from(others > 0)]
        }
        Warmth::Cold { .. } if nth == 0 => costs.first_fault_cold,
        Warmth::Warm { .. } if nth == 0 => costs.first_fault_warm,
        _ => {
            let behind = before.unwrap_or(access).saturating_add(1);
            let between = access.saturating_sub(behind) as f64;
            let asleep = (between * faults.gap_ns / costs.fault_gap).min(1.0);
            let wake = match (warmth.is_cold(), nth <= WAKES) {
                (true, true) => costs.wake_cold,
                (true, false) => 0.0,
                (false, true) => costs.wake_warm,
                (false, false) => costs.wake_warm_later,
            };
            asleep * wake
        }
    }
}

/// A batch of many threads' faults on one block, perhaps the first one on it.
pub(super) fn parallel_fault(
    costs: &DeviceTouchCosts,
    faults: &mut Faults,
    work: &Work,
    first: bool,
) -> f64 {
    faults.note(work);
    let block = if first { costs.parallel_block } else { 0.0 };
    let blocks = |pages: u64| pages as f64 * PAGE as f64 / pagewise_hal::BLOCK_BYTES as f64;
    block
        + costs.parallel_copy_2mib * blocks(work.pages_to_device)
        + costs.parallel_copy_between_devices_2mib * blocks(work.pages_between_devices)
}

pub(super) fn device_fault(costs: &DeviceTouchCosts, faults: &mut Faults, work: &Work) -> f64 {
    faults.note(work);
    let chunks = std::mem::take(&mut faults.chunks);
    let kind = if work.pages_to_device > 0 {
        costs.fault_copy
    } else if work.pages_between_devices > 0 {
        costs.fault_copy_between_devices
    } else if work.remote_maps > 0 {
        0.0 // The time of the mapping is below.
    } else if work.pages_fresh > 0 {
        costs.fault_fresh
    } else if work.read_mostly {
        0.0
    } else {
        costs.fault_map
    };
    kind + if work.read_mostly { costs.fault_read_mostly } else { 0.0 }
        + costs.remote_map * work.remote_maps as f64
        + costs.zero_host_page * work.pages_zeroed_host as f64
        + costs.device_chunk * chunks as f64
        + costs.unmap_host_page * work.pages_unmapped_host as f64
}
