//! The figures of the cost model, as data: part of a GPU's profile, with the sources of each.
//!
//! All are nanoseconds, per call unless a name says per what. The H200's were fitted to the median
//! durations in recordings `timing`, `migrate`, `advise`, `small` and `discard` (driver 580, a PCIe
//! host, one GPU): least squares of log2(predicted / recorded) under a robust loss, every figure at
//! least 0, one set for all recordings. `pagewise calibrate` is the program that does it; its
//! `--hold-out` says how well cases are predicted that figures were fitted without.

use serde::{Deserialize, Serialize};

/// The share of state in a call's time: how long ago the like of it was made, and whether the
/// machine idled (TIMING-3).
///
/// A call after a sleep finds caches and clocks cold; the more other calls came since the last one
/// of its class, the colder.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmthCosts {
    /// Right after a sleep, with 0, 1 or more other calls since the last of the class.
    pub after_sleep: [f64; 3],
    /// On top, if the sleep was longer than 1 ms.
    pub after_long_sleep: f64,
    /// The first call of the class.
    pub first: f64,
    /// The first since a sleep, but not right after it.
    pub cold: f64,
    /// After a pause of 0.2 ms or more, divided by how many calls of the class came in a row;
    /// proportional below 0.2 ms.
    pub paused: f64,
    /// After 0.1 s without a call of the class; as the square root of the time below.
    pub forgotten: f64,
}

/// `cuMemAllocManaged` and `cuMemFree`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllocationCosts {
    /// An allocation that gets a range of its own.
    pub alloc: f64,
    /// On top, for each device beside the first.
    pub alloc_further_device: f64,
    /// State of allocations with ranges of their own.
    pub alloc_warmth: WarmthCosts,
    /// An allocation from a slab.
    pub alloc_packed: f64,
    /// State of allocations from slabs.
    pub alloc_packed_warmth: WarmthCosts,
    /// A free.
    pub free: f64,
    /// State of frees.
    pub free_warmth: WarmthCosts,
    /// If it had memory, on a cold machine or for the first time.
    pub free_cold: f64,
    /// Per block with memory on a device.
    pub free_device_block: f64,
    /// Per block that the host maps.
    pub free_host_mapped_block: f64,
    /// Per block that a device maps.
    pub free_device_mapped_block: f64,
    /// Per block that a device ever mapped piecemeal: its table of small pages goes.
    pub free_small_tables: f64,
    /// Per time that a device's mapping of a block was raised, at most 512 times a block.
    pub free_device_mapping: f64,
}

/// `cuMemRangeGetAttribute` and `cuPointerGetAttribute`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryCosts {
    /// One attribute of a range.
    pub range_attribute: f64,
    /// State, once for reads that follow one another.
    pub warmth: WarmthCosts,
    /// One attribute of an address.
    pub pointer_attribute: f64,
}

/// `cuMemAdvise`
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdviceCosts {
    /// A call.
    pub call: f64,
    /// State.
    pub warmth: WarmthCosts,
    /// Advice that reaches no memory, instead of all else.
    pub no_memory: f64,
    /// On top of that, right after a sleep.
    pub no_memory_after_sleep: f64,
    /// If it acts on a block, after a sleep.
    pub acts_after_sleep: f64,
    /// Per range with a change of its policy.
    pub range: f64,
    /// Per range cut in two.
    pub range_split: f64,
    /// Per block cut in two.
    pub block_split: f64,
    /// On top, if a device maps the block.
    pub mapped_block_split: f64,
    /// Preferred location: per block.
    pub preferred_block: f64,
    /// Preferred location: per page on the host.
    pub preferred_host_page: f64,
    /// Preferred location is a device: per block with pages on a device.
    pub preferred_device_block: f64,
    /// Read-mostly: per block with pages on the host.
    pub read_mostly_host_block: f64,
    /// Read-mostly: per block with pages on a device.
    pub read_mostly_device_block: f64,
    /// Read-mostly: per page that the host may no longer write.
    pub revoked_host_page: f64,
    /// End of read-mostly: per block.
    pub read_mostly_end_block: f64,
    /// On top, if the block has pages on the host.
    pub read_mostly_end_host_block: f64,
    /// End of read-mostly: per block that loses duplicates.
    pub collapsed_block: f64,
    /// Accessed-by a device: per block.
    pub accessed_by_device_block: f64,
    /// Accessed-by a device: per resident page.
    pub accessed_by_device_page: f64,
    /// Accessed-by the host: per block.
    pub accessed_by_host_block: f64,
    /// Accessed-by the host: per page on the host.
    pub accessed_by_host_page: f64,
    /// Accessed-by the host: per page on a device.
    pub accessed_by_host_device_page: f64,
}

/// `cuMemPrefetchAsync`, alone and in batches, with the wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefetchCosts {
    /// A call.
    pub call: f64,
    /// State.
    pub warmth: WarmthCosts,
    /// Per range of a batch after the first.
    pub further_range: f64,
    /// If it moves or maps anything.
    pub acts: f64,
    /// Per block.
    pub block: f64,
    /// Per block in which pages are mapped for a device.
    pub device_block: f64,
    /// Per page entered in the host's page table.
    pub map_host_page: f64,
    /// Per page of the host's memory that is zeroed.
    pub zero_host_page: f64,
    /// The same for memory that a free has just given back.
    pub zero_warm_host_page: f64,
    /// Per chunk of device memory.
    pub device_chunk: f64,
    /// Per run of a device's memory that is zeroed.
    pub zero_device_run: f64,
    /// Per time that a block is taken out of a device's page table.
    pub unmap_device: f64,
    /// If it copies to a device.
    pub copies_to_device: f64,
    /// Per run copied.
    pub copy_run: f64,
    /// Per byte copied to a device.
    pub to_device_byte: f64,
    /// Per byte copied to the host.
    pub to_host_byte: f64,
    /// On top, for the first 2 MiB copied to the host.
    pub to_host_first_byte: f64,
    /// On top, for the first 2 MiB copied to devices.
    pub to_device_first_byte: f64,
    /// If it copies between devices.
    pub copies_between_devices: f64,
    /// Per byte copied between devices.
    pub between_devices_byte: f64,
}

/// `cuMemDiscardBatchAsync` and `cuMemDiscardAndPrefetchBatchAsync`, with the wait for them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscardCosts {
    /// A call.
    pub call: f64,
    /// State.
    pub warmth: WarmthCosts,
    /// If pages were mapped, on a cold machine.
    pub acts_cold: f64,
    /// Per page taken out of the host's page table.
    pub unmap_host_page: f64,
    /// Per block of which pages are taken out of the host's page table.
    pub unmap_host: f64,
    /// Per block of which pages are taken out of a device's page table.
    pub unmap_device: f64,
    /// Discard and prefetch on a cold machine.
    pub prefetch_cold: f64,
    /// Discard and prefetch: per block.
    pub prefetch_block: f64,
    /// Discard and prefetch: per block taken out of the host's page table.
    pub prefetch_unmap_host: f64,
    /// Discard and prefetch: per page of the host's memory that is zeroed.
    pub prefetch_zero_host_page: f64,
    /// Discard and prefetch: per chunk of device memory.
    pub prefetch_device_chunk: f64,
    /// Discard and prefetch: per block in which pages are mapped for a device.
    pub prefetch_device_block: f64,
}

/// Access programs of the host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTouchCosts {
    /// A program.
    pub call: f64,
    /// State.
    pub warmth: WarmthCosts,
    /// If a fault copies or zeroes.
    pub faults: f64,
    /// On top, on a cold machine.
    pub faults_cold: f64,
    /// Per access.
    pub access: f64,
    /// On top, right after a sleep.
    pub access_after_sleep: f64,
    /// Per page after the first 1024: the translation caches are used up.
    pub far_page: f64,
    /// Per page after the first 8192, instead.
    pub very_far_page: f64,
    /// Per page written for the first time since it was mapped.
    pub first_write: f64,
    /// Per page written before, since it was mapped: what it holds is not in memory yet.
    pub written_page: f64,
    /// Per block with a fault.
    pub faulted_block: f64,
    /// A fault that copies.
    pub fault_copy: f64,
    /// A fault on pages that were nowhere.
    pub fault_fresh: f64,
    /// A fault that only maps.
    pub fault_map: f64,
    /// Per page mapped.
    pub map_page: f64,
    /// Per page zeroed.
    pub zero_page: f64,
    /// The same for memory that a free has just given back.
    pub zero_warm_page: f64,
    /// Per byte copied from a device.
    pub copy_byte: f64,
    /// Per time that a block is taken out of a device's page table.
    pub unmap_device: f64,
}

/// Access programs of a device, with launch and wait.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceTouchCosts {
    /// A launch and the wait for it.
    pub call: f64,
    /// State, of programs without a fault.
    pub warmth: WarmthCosts,
    /// One thread: a read of the device's memory.
    pub read: f64,
    /// One thread: a read of other memory.
    pub read_remote: f64,
    /// One thread: a write.
    pub write: f64,
    /// One thread: an atomic update.
    pub atomic: f64,
    /// One thread: the first fault right after a sleep, without and with other calls in between.
    pub first_fault_after_sleep: [f64; 2],
    /// One thread: the first fault on a machine otherwise cold.
    pub first_fault_cold: f64,
    /// One thread: the first fault on a warm machine.
    pub first_fault_warm: f64,
    /// One thread on a cold machine: each of the first 8 later faults that comes
    /// [`fault_gap`](Self::fault_gap) or more after the one before; proportional below. The driver
    /// waits for another fault that long before it sleeps, and then has to be woken (TIMING-21).
    pub wake_cold: f64,
    /// Waking the driver on a warm machine, for each of the first 8 faults.
    pub wake_warm: f64,
    /// Waking the driver on a warm machine, for each fault after the first 8.
    pub wake_warm_later: f64,
    /// How long the driver waits for another fault.
    pub fault_gap: f64,
    /// The share of an access between faults in that: a read or an update.
    pub gap_read: f64,
    /// The share of an access between faults in that gap: a write, which the thread does not wait
    /// for.
    pub gap_write: f64,
    /// A fault that copies.
    pub fault_copy: f64,
    /// A fault that copies from another device.
    pub fault_copy_between_devices: f64,
    /// A fault on pages that were nowhere.
    pub fault_fresh: f64,
    /// A fault that only maps.
    pub fault_map: f64,
    /// On top under read-mostly; instead of all else for a fault that only maps.
    pub fault_read_mostly: f64,
    /// Per run mapped in another processor's memory.
    pub remote_map: f64,
    /// Per page zeroed on the host.
    pub zero_host_page: f64,
    /// Per chunk of device memory.
    pub device_chunk: f64,
    /// Per page taken out of the host's page table.
    pub unmap_host_page: f64,
    /// Many threads: per byte in the device's memory, 32 for each access.
    pub parallel_byte: f64,
    /// Many threads: per byte in other memory, 32 for each access.
    pub parallel_remote_byte: f64,
    /// Many threads: per read that one thread makes.
    pub parallel_read: f64,
    /// Many threads: per write that one thread makes.
    pub parallel_write: f64,
    /// Many threads: the first batch of faults.
    pub parallel_first_fault: f64,
    /// Many threads: each batch after the first, whatever is in it: the driver reads and sorts it,
    /// and has the accesses replayed.
    pub parallel_batch: f64,
    /// Many threads: per block with faults.
    pub parallel_block: f64,
    /// Many threads: per 2 MiB copied from the host to the device.
    pub parallel_copy_2mib: f64,
    /// Many threads: per 2 MiB copied from another device.
    pub parallel_copy_between_devices_2mib: f64,
}

/// One kind of memory behind pools.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolMemoryCosts {
    /// A pool without a limit: addresses for the largest that it can become.
    pub create: f64,
    /// A pool with a limit.
    pub create_limited: f64,
    /// The end of a pool that never held memory.
    pub destroy: f64,
    /// On top, if it did.
    pub destroy_used: f64,
    /// Per chunk of 32 MiB that the pool takes for the first time.
    pub chunk: f64,
    /// Per chunk that it takes again at addresses that it had.
    pub chunk_again: f64,
    /// Per chunk that it gives back.
    pub chunk_release: f64,
}

/// Memory pools. A free in stream order includes the wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolCosts {
    /// An allocation.
    pub alloc: f64,
    /// A free.
    pub free: f64,
    /// A trim.
    pub trim: f64,
    /// A read or change of one attribute or access, or of which pool is current.
    pub query: f64,
    /// State of all these.
    pub warmth: WarmthCosts,
    /// Device memory.
    pub device: PoolMemoryCosts,
    /// Page-locked host memory.
    pub host: PoolMemoryCosts,
    /// Managed memory that prefers a device.
    pub managed_device: PoolMemoryCosts,
    /// Managed memory that prefers the host.
    pub managed_host: PoolMemoryCosts,
    /// Managed memory without a preferred location.
    pub managed_anywhere: PoolMemoryCosts,
}

/// `cuMemAlloc`, `cuMemHostAlloc`, `cuMemHostRegister` and their ends.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlainMemoryCosts {
    /// Any of these calls.
    pub call: f64,
    /// On top, right after a sleep.
    pub after_sleep: f64,
    /// Per byte of page-locked memory.
    pub pinned_byte: f64,
    /// Per byte of page-locked memory that is freed.
    pub pinned_free_byte: f64,
    /// Per byte of host memory that is registered.
    pub registered_byte: f64,
    /// Per byte of host memory that is registered no more.
    pub unregistered_byte: f64,
}

/// Fills and copies of memory that does not migrate: on top of a call as of
/// [`DeviceTouchCosts`](DeviceTouchCosts::call), per byte (TIMING-56).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CopyCosts {
    /// From page-locked memory of the host to a device.
    pub to_device_byte: f64,
    /// From a device to page-locked memory of the host.
    pub to_host_byte: f64,
    /// From memory of a device to memory of the same.
    pub within_device_byte: f64,
    /// From a device to another one that has access to its memory.
    pub between_devices_byte: f64,
    /// From a device to another one without such access.
    pub between_devices_by_host_byte: f64,
    /// A fill of memory of a device.
    pub fill_byte: f64,
    /// On top, from other memory of the host to a device: the host copies it to page-locked memory.
    pub pageable_to_device_byte: f64,
    /// On top, from a device to other memory of the host, and within the host.
    pub pageable_to_host_byte: f64,
}

/// Calls on streams and events, and questions about a device.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControlCosts {
    /// `cuStreamCreate`
    pub stream_create: f64,
    /// `cuStreamDestroy`
    pub stream_destroy: f64,
    /// `cuStreamWaitEvent`
    pub stream_wait_event: f64,
    /// `cuStreamAttachMemAsync`, without the moves that it causes.
    pub stream_attach: f64,
    /// `cuEventCreate`
    pub event_create: f64,
    /// `cuEventDestroy`
    pub event_destroy: f64,
    /// `cuEventRecord`
    pub event_record: f64,
    /// `cuEventQuery`
    pub event_query: f64,
    /// `cuEventElapsedTime`
    pub event_elapsed: f64,
    /// `cuMemGetInfo`
    pub memory_info: f64,
    /// `cuDeviceGetAttribute`
    pub device_attribute: f64,
    /// On top of any of these, right after a sleep.
    pub after_sleep: f64,
}

/// Calls that the model does not look into.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedCosts {
    /// Any other call.
    pub other: f64,
    /// A sleep, whatever its length.
    pub sleep: f64,
    /// Per nanosecond asked to sleep.
    pub sleep_ns: f64,
    /// A refused allocation or free.
    pub refused_allocation: f64,
    /// A refused advice.
    pub refused_advice: f64,
    /// A refused prefetch.
    pub refused_prefetch: f64,
    /// A refused batch.
    pub refused_batch: f64,
    /// A refused read of one attribute of a range.
    pub refused_range_attribute: f64,
    /// A refused read of one attribute of an address.
    pub refused_pointer_attribute: f64,
    /// Any other refused call.
    pub refused: f64,
}

/// How long calls take, in nanoseconds of virtual time.
///
/// A call's time is a base, a share for the state that earlier calls left (see [`WarmthCosts`]),
/// and shares for what it did: blocks, pages, runs, faults. The figures are those of one machine
/// and count what the recorder's operations count: an asynchronous call includes the wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostParams {
    /// Allocations and frees.
    pub allocation: AllocationCosts,
    /// Reads of attributes.
    pub query: QueryCosts,
    /// Advice.
    pub advice: AdviceCosts,
    /// Prefetches.
    pub prefetch: PrefetchCosts,
    /// Discards.
    pub discard: DiscardCosts,
    /// Access programs of the host.
    pub host_touch: HostTouchCosts,
    /// Access programs of devices.
    pub device_touch: DeviceTouchCosts,
    /// Memory pools.
    pub pool: PoolCosts,
    /// Memory that does not migrate.
    pub plain_memory: PlainMemoryCosts,
    /// Fills and copies of it. Profiles that were made before there were these have none.
    #[serde(default)]
    pub copies: CopyCosts,
    /// Streams, events, and questions about a device.
    pub control: ControlCosts,
    /// All other calls, and refusals.
    pub fixed: FixedCosts,
}
