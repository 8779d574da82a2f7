//! The device attributes that `cuDeviceGetAttribute` reports.

use pagewise_hal::{DeviceAttribute, DriverVersion};

use super::gpu::GpuProfile;

impl GpuProfile {
    /// The answer of a driver of this version for an attribute; `None` if it does not know it.
    #[must_use]
    pub fn attribute(&self, attribute: DeviceAttribute, driver: DriverVersion) -> Option<i32> {
        let has = &self.attributes;
        let since = |version| driver >= version;
        Some(match attribute {
            DeviceAttribute::INTEGRATED => has.integrated.into(),
            // Every GPU that managed memory works on.
            DeviceAttribute::CAN_MAP_HOST_MEMORY => 1,
            // One domain, one device on each bus: as machines with one root complex have it.
            DeviceAttribute::PCI_DEVICE_ID | DeviceAttribute::PCI_DOMAIN_ID => 0,
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
            DeviceAttribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => {
                has.virtual_memory_management_supported.into()
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
