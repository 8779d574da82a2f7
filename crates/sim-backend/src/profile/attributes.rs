//! What `cuDeviceGetAttribute` answers.

use pagewise_hal::{DeviceAttribute, DriverVersion};
use serde::{Deserialize, Serialize};

use super::GpuProfile;

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

impl GpuProfile {
    /// What a driver of this version answers for an attribute; `None` if it does not know it.
    #[must_use]
    pub fn attribute(&self, attribute: DeviceAttribute, driver: DriverVersion) -> Option<i32> {
        let has = &self.attributes;
        let since = |version| driver >= version;
        Some(match attribute {
            DeviceAttribute::INTEGRATED => has.integrated.into(),
            DeviceAttribute::UNIFIED_ADDRESSING => has.unified_addressing.into(),
            DeviceAttribute::COMPUTE_CAPABILITY_MAJOR => self.compute_capability.0,
            DeviceAttribute::COMPUTE_CAPABILITY_MINOR => self.compute_capability.1,
            DeviceAttribute::MANAGED_MEMORY => has.managed_memory.into(),
            DeviceAttribute::PAGEABLE_MEMORY_ACCESS => has.pageable_memory_access.into(),
            DeviceAttribute::CONCURRENT_MANAGED_ACCESS => has.concurrent_managed_access.into(),
            DeviceAttribute::PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES => {
                has.pageable_memory_access_uses_host_page_tables.into()
            }
            DeviceAttribute::DIRECT_MANAGED_MEM_ACCESS_FROM_HOST => {
                self.host_link.is_coherent().into()
            }
            DeviceAttribute::MEMORY_POOLS_SUPPORTED => has.memory_pools_supported.into(),
            DeviceAttribute::MEMPOOL_SUPPORTED_HANDLE_TYPES => has.mempool_supported_handle_types,
            DeviceAttribute::HOST_NUMA_ID if since(DriverVersion::CUDA_12_2) => has.host_numa_id,
            DeviceAttribute::HOST_NUMA_MEMORY_POOLS_SUPPORTED
                if since(DriverVersion::CUDA_12_9) =>
            {
                has.host_numa_memory_pools_supported.into()
            }
            DeviceAttribute::HOST_MEMORY_POOLS_SUPPORTED if since(DriverVersion::CUDA_13_0) => {
                has.host_memory_pools_supported.into()
            }
            _ => return None,
        })
    }
}
