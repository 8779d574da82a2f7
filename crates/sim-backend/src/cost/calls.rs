//! The cost of calls that allocate, ask and move.

use super::call::Call;
use super::params::{AllocationCosts, DiscardCosts, FixedCosts, PrefetchCosts, QueryCosts};
use super::state::Warmth;
use super::tally::{Tally, Zeroed};
use crate::paging::Work;

/// The first 2 MiB copied cost more than the rest.
const FIRST_BYTES: u64 = pagewise_hal::BLOCK_BYTES;

pub(super) fn alloc(costs: &AllocationCosts, tally: &Tally, warmth: Warmth) -> f64 {
    if tally.ranges_made == 0 {
        costs.alloc_packed + warmth.ns(&costs.alloc_packed_warmth)
    } else {
        costs.alloc
            + warmth.ns(&costs.alloc_warmth)
            + costs.alloc_further_device * tally.further_devices as f64
    }
}

pub(super) fn free(costs: &AllocationCosts, tally: &Tally, warmth: Warmth) -> f64 {
    let freed = &tally.freed;
    let held = [freed.on_device, freed.mapped_by_host, freed.mapped_by_device] != [0; 3];
    costs.free
        + if held && warmth.is_cold() { costs.free_cold } else { 0.0 }
        + warmth.ns(&costs.free_warmth)
        + costs.free_device_block * freed.on_device as f64
        + costs.free_host_mapped_block * freed.mapped_by_host as f64
        + costs.free_device_mapped_block * freed.mapped_by_device as f64
        + costs.free_small_tables * freed.with_small_tables as f64
        + costs.free_device_mapping * freed.device_mappings as f64
}

/// `continues`: the call before was a read, too.
pub(super) fn range_attribute(costs: &QueryCosts, warmth: Warmth, continues: bool) -> f64 {
    costs.range_attribute + if continues { 0.0 } else { warmth.ns(&costs.warmth) }
}

pub(super) fn prefetch(costs: &PrefetchCosts, tally: &Tally, warmth: Warmth, ranges: u64) -> f64 {
    let once = |happened: bool, ns: f64| if happened { ns } else { 0.0 };
    costs.call
        + warmth.ns(&costs.warmth)
        + costs.further_range * ranges.saturating_sub(1) as f64
        + once(tally.acts, costs.acts)
        + once(tally.bytes_to_device > 0, costs.copies_to_device)
        + costs.block * tally.blocks as f64
        + costs.device_block * tally.device_blocks as f64
        + costs.map_host_page * tally.pages_mapped_host as f64
        + tally.zeroed_host.ns(costs.zero_host_page, costs.zero_warm_host_page)
        + costs.device_chunk * tally.chunks_device as f64
        + costs.zero_device_run * tally.zeroed_runs_device as f64
        + costs.unmap_device * tally.unmaps_device as f64
        + costs.copy_run * tally.copies as f64
        + costs.to_device_byte * tally.bytes_to_device as f64
        + costs.to_host_byte * tally.bytes_to_host as f64
        + costs.to_host_first_byte * tally.bytes_to_host.min(FIRST_BYTES) as f64
        + costs.to_device_first_byte * tally.bytes_to_device.min(FIRST_BYTES) as f64
        + once(tally.bytes_between_devices > 0, costs.copies_between_devices)
        + costs.between_devices_byte * tally.bytes_between_devices as f64
}

pub(super) fn discard(costs: &DiscardCosts, tally: &Tally, warmth: Warmth) -> f64 {
    costs.call
        + warmth.ns(&costs.warmth)
        + if tally.acts && warmth.is_cold() { costs.acts_cold } else { 0.0 }
        + costs.unmap_host_page * tally.pages_unmapped_host as f64
        + costs.unmap_host * tally.unmaps_host as f64
        + costs.unmap_device * tally.unmaps_device as f64
}

pub(super) fn discard_prefetch(costs: &DiscardCosts, tally: &Tally, warmth: Warmth) -> f64 {
    costs.call
        + warmth.ns(&costs.warmth)
        + if warmth.is_cold() { costs.prefetch_cold } else { 0.0 }
        + costs.prefetch_unmap_host * tally.unmaps_host as f64
        + costs.prefetch_block * tally.blocks as f64
        + tally.zeroed_host.ns(costs.prefetch_zero_host_page, costs.prefetch_zero_host_page)
        + costs.prefetch_device_chunk * tally.chunks_device as f64
        + costs.prefetch_device_block * tally.device_blocks as f64
}

/// An eviction from one block: the costs of the explicit migration of the same pages to the host,
/// charged to the call that waits for the room (TIMING-17).
pub(super) fn eviction(costs: &PrefetchCosts, work: &Work, zeroed: Zeroed) -> f64 {
    let bytes = work.pages_to_host as f64 * pagewise_hal::PAGE_BYTES as f64;
    costs.block
        + costs.unmap_device * work.unmaps_device as f64
        + zeroed.ns(costs.zero_host_page, costs.zero_warm_host_page)
        + costs.copy_run * work.copies as f64
        + (costs.to_host_byte + costs.to_host_first_byte) * bytes
}

/// A call that was refused, whatever it found.
pub(super) fn refused(fixed: &FixedCosts, call: Call) -> f64 {
    match call {
        Call::AllocManaged | Call::PlainMemory | Call::Free => fixed.refused_allocation,
        Call::Advise => fixed.refused_advice,
        Call::Prefetch { batch: false, .. } => fixed.refused_prefetch,
        Call::Prefetch { .. } | Call::Discard | Call::DiscardPrefetch => fixed.refused_batch,
        Call::RangeAttribute => fixed.refused_range_attribute,
        Call::PointerAttribute => fixed.refused_pointer_attribute,
        Call::HostTouch
        | Call::DeviceTouch { .. }
        | Call::Pool(_)
        | Call::Control(_)
        | Call::Other => fixed.refused,
        Call::Wait => 0.0,
    }
}

/// A sleep of this length.
pub(super) fn sleep(fixed: &FixedCosts, duration_ns: u64) -> f64 {
    fixed.sleep + fixed.sleep_ns * duration_ns as f64
}
