//! Attributes of a device that decide how managed memory behaves.

use serde::{Deserialize, Serialize};

/// Attributes of the device that decide how managed memory behaves. Those that follow from other
/// parts of the profile are not here: the compute capability, and whether the host reaches device
/// memory (it does over a coherent link).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceAttributes {
    /// The device shares physical memory with the host.
    pub integrated: bool,
    /// One address space serves host and device.
    pub unified_addressing: bool,
    /// Managed memory can be allocated at all.
    pub managed_memory: bool,
    /// Host and device may use managed memory at the same time: the device faults, and memory may
    /// exceed the device's. Without it memory moves as a whole when a kernel is launched.
    pub concurrent_managed_access: bool,
    /// The device reaches ordinary host memory.
    pub pageable_memory_access: bool,
    /// It does so through the host's page tables.
    pub pageable_memory_access_uses_host_page_tables: bool,
    /// Physical memory can be created and mapped apart from addresses.
    pub virtual_memory_management_supported: bool,
    /// Stream-ordered allocation works.
    pub memory_pools_supported: bool,
    /// Handle types that pools can export, as bits.
    pub mempool_supported_handle_types: i32,
    /// The host NUMA node nearest to the device, -1 without NUMA.
    pub host_numa_id: i32,
    /// Pools on a host NUMA node work.
    pub host_numa_memory_pools_supported: bool,
    /// Pools on the host work.
    pub host_memory_pools_supported: bool,
}
