//! The figures of an H200, in nanoseconds: see [`params`](super::params) for how they were fitted.

use super::params::{
    AdviceCosts, AllocationCosts, CostParams, DeviceTouchCosts, DiscardCosts, FixedCosts,
    HostTouchCosts, PrefetchCosts, QueryCosts, WarmthCosts,
};

/// NVIDIA H200 SXM under driver 580, PCIe host.
pub(super) const H200: CostParams = CostParams {
    allocation: ALLOCATION,
    query: QUERY,
    advice: ADVICE,
    prefetch: PREFETCH,
    discard: DISCARD,
    host_touch: HOST_TOUCH,
    device_touch: DEVICE_TOUCH,
    fixed: FIXED,
};

/// No effect of state.
const NONE: WarmthCosts = WarmthCosts {
    after_sleep: [0.0; 3],
    after_long_sleep: 0.0,
    cold: 0.0,
    paused: 0.0,
    forgotten: 0.0,
};

/// 640 allocations of all five recordings, 141 frees of `timing` and `small`.
const ALLOCATION: AllocationCosts = AllocationCosts {
    alloc: 8_300.0,
    alloc_warmth: WarmthCosts {
        after_sleep: [35_500.0; 3],
        cold: 26_900.0,
        paused: 11_350.0,
        forgotten: 36_310.0,
        ..NONE
    },
    alloc_packed: 4_880.0,
    alloc_packed_warmth: WarmthCosts { after_sleep: [16_090.0; 3], ..NONE },
    free: 6_400.0,
    free_warmth: WarmthCosts {
        after_sleep: [25_460.0; 3],
        cold: 11_850.0,
        paused: 32_090.0,
        ..NONE
    },
    free_device_block: 2_720.0,
    free_host_mapped_block: 9_390.0,
    free_device_mapped_block: 6_630.0,
    free_small_tables: 8_970.0,
    free_device_mapping: 25.1,
};

/// 388 times the 8 attributes of a range in four recordings (all but `timing`). Attributes of
/// addresses: recordings `attrs` and `contract`.
const QUERY: QueryCosts = QueryCosts {
    range_attribute: 340.0,
    warmth: WarmthCosts {
        after_sleep: [2_980.0, 5_240.0, 7_930.0],
        after_long_sleep: 1_750.0,
        cold: 6_200.0,
        ..NONE
    },
    pointer_attribute: 305.0,
};

/// 733 calls of all five recordings.
const ADVICE: AdviceCosts = AdviceCosts {
    call: 1_240.0,
    warmth: WarmthCosts { after_sleep: [4_230.0, 6_660.0, 7_610.0], cold: 3_870.0, ..NONE },
    no_memory: 496.0,
    no_memory_after_sleep: 1_650.0,
    acts_after_sleep: 9_090.0,
    range: 196.0,
    range_split: 571.0,
    block_split: 6_750.0,
    mapped_block_split: 6_410.0,
    preferred_block: 28.7,
    preferred_host_page: 30.1,
    preferred_device_block: 1_190.0,
    read_mostly_host_block: 10_100.0,
    read_mostly_device_block: 1_960.0,
    revoked_host_page: 159.6,
    read_mostly_end_block: 121.7,
    collapsed_block: 51_560.0,
    accessed_by_device_block: 6_500.0,
    accessed_by_device_page: 70.9,
    accessed_by_host_block: 2_440.0,
    accessed_by_host_page: 54.1,
    accessed_by_host_device_page: 24.3,
};

/// 471 calls of all five recordings.
const PREFETCH: PrefetchCosts = PrefetchCosts {
    call: 2_370.0,
    warmth: WarmthCosts {
        after_sleep: [12_260.0, 16_860.0, 26_370.0],
        after_long_sleep: 11_480.0,
        cold: 22_860.0,
        ..NONE
    },
    further_range: 55_540.0,
    acts: 6_510.0,
    block: 1_130.0,
    device_block: 1_670.0,
    map_host_page: 158.3,
    zero_host_page: 423.5,
    device_chunk: 819.0,
    zero_device_run: 2_400.0,
    unmap_device: 5_750.0,
    copies_to_device: 7_090.0,
    copy_run: 1_720.0,
    to_device_byte: 0.0174,
    to_host_byte: 0.004_92,
    to_host_first_byte: 0.015_2,
};

/// 213 calls of `discard` and `timing`.
const DISCARD: DiscardCosts = DiscardCosts {
    call: 4_710.0,
    warmth: WarmthCosts { after_sleep: [1_680.0, 13_090.0, 13_370.0], cold: 1_800.0, ..NONE },
    acts_cold: 3_270.0,
    unmap_host_page: 8.07,
    unmap_host: 3_740.0,
    unmap_device: 7_110.0,
    prefetch_cold: 16_360.0,
    prefetch_unmap_host: 6_170.0,
    prefetch_zero_host_page: 593.0,
    prefetch_device_chunk: 2_950.0,
    prefetch_device_block: 1_290.0,
};

/// 1071 programs of all five recordings.
const HOST_TOUCH: HostTouchCosts = HostTouchCosts {
    call: 1_150.0,
    warmth: WarmthCosts {
        after_sleep: [319.0, 677.0, 1_320.0],
        after_long_sleep: 1_620.0,
        cold: 292.0,
        ..NONE
    },
    faults_cold: 9_400.0,
    access: 8.07,
    access_after_sleep: 5.72,
    far_page: 6.0,
    very_far_page: 6.69,
    first_write: 246.3,
    faulted_block: 5_600.0,
    fault_copy: 9_710.0,
    fault_fresh: 2_070.0,
    fault_map: 3_240.0,
    map_page: 204.7,
    zero_page: 423.3,
    copy_byte: 0.0195,
    unmap_device: 5_200.0,
};

/// 820 programs of all five recordings; many threads also: recording `parallel`.
const DEVICE_TOUCH: DeviceTouchCosts = DeviceTouchCosts {
    call: 11_270.0,
    warmth: WarmthCosts {
        after_sleep: [3_450.0, 9_770.0, 14_380.0],
        after_long_sleep: 13_380.0,
        cold: 12_270.0,
        ..NONE
    },
    read: 815.4,
    read_remote: 1_660.0,
    write: 535.5,
    atomic: 844.4,
    first_fault_after_sleep: [243_500.0, 281_300.0],
    first_fault_cold: 287_740.0,
    first_fault_warm: 52_540.0,
    wake_cold: 280_750.0,
    wake_warm: 102_190.0,
    wake_warm_later: 18_200.0,
    fault_gap: 50_000.0,
    gap_read: 900.0,
    gap_write: 560.0,
    fault_copy: 22_440.0,
    fault_fresh: 14_510.0,
    fault_map: 36_230.0,
    fault_read_mostly: 24_670.0,
    remote_map: 9_240.0,
    zero_host_page: 462.5,
    device_chunk: 12_750.0,
    unmap_host_page: 74.3,
    parallel_byte: 0.000_415,
    parallel_remote_byte: 0.0443,
    parallel_read: 313.0,
    parallel_write: 25.0,
    parallel_first_fault: 267_720.0,
    parallel_block: 146_290.0,
    parallel_copy_2mib: 73_870.0,
};

/// Refusals: medians of recording `contract`; the rest: medians of `contract` and `attrs`. Sleeps:
/// all recordings that have any.
const FIXED: FixedCosts = FixedCosts {
    plain_memory: 3_250.0,
    other: 2_000.0,
    sleep: 30_000.0,
    sleep_ns: 1.032,
    refused_allocation: 1_500.0,
    refused_advice: 1_410.0,
    refused_prefetch: 1_780.0,
    refused_batch: 2_500.0,
    refused_range_attribute: 794.0,
    refused_pointer_attribute: 1_114.0,
    refused: 1_500.0,
};
