//! The abilities of a back end, as data.

use crate::DriverVersion;

/// The way in which a back end carries out batch calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum BatchSupport {
    /// Not at all: the call fails with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    Absent,
    /// By the driver's own entry point.
    Native,
    /// By a loop over the single call with the same checks beforehand; a failure midway is
    /// reported with the index of the failing item.
    Loop,
}

/// The abilities of a back end. A snapshot taken when the back end was made.
///
/// If a field is off, the calls that it names fail with
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) and do nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Capabilities {
    /// The back end's name, such as `sim` or `cuda`.
    pub backend: String,
    /// The version of the entry points in use; at most the driver's own.
    pub driver_version: DriverVersion,
    /// [`advise`](crate::Backend::advise) and [`prefetch`](crate::Backend::prefetch): the location
    /// form, host NUMA nodes, and range attributes 5 to 8. From CUDA 12.2.
    pub locations: bool,
    /// How [`prefetch_batch`](crate::Backend::prefetch_batch) is carried out. Native from CUDA 13.0.
    pub prefetch_batch: BatchSupport,
    /// How [`memcpy_batch`](crate::Backend::memcpy_batch) is carried out. Native from CUDA 12.8.
    pub copy_batch: BatchSupport,
    /// [`discard_batch`](crate::Backend::discard_batch) and
    /// [`discard_prefetch_batch`](crate::Backend::discard_prefetch_batch). From CUDA 13.0.
    pub discard: bool,
    /// Pools of managed memory, and current and default pools by location. From CUDA 13.0.
    pub location_pools: bool,
    /// Physical memory and addresses apart: [`memory_create`](crate::Backend::memory_create),
    /// [`address_reserve`](crate::Backend::address_reserve) and the calls beside them, on every
    /// device.
    pub virtual_memory: bool,
    /// Every device lets host and device use managed memory at the same time.
    pub concurrent_managed_access: bool,
    /// [`take_events`](crate::Backend::take_events) reports the records of moved pages.
    pub events: bool,
    /// [`host_page_map`](crate::Backend::host_page_map) shows the host's page table.
    pub host_page_map: bool,
    /// [`pool_import`](crate::Backend::pool_import) takes pools that the same process exported.
    /// Drivers crash on them.
    pub pool_self_import: bool,
    /// The same calls give the same events and times on every run.
    pub deterministic: bool,
    /// Kernels are code: [`module_load`](crate::Backend::module_load),
    /// [`launch`](crate::Backend::launch) and the calls between them.
    pub kernels: bool,
    /// Kernels are declared, by [`kernel_accesses`](crate::Backend::kernel_accesses).
    #[cfg_attr(feature = "serde", serde(default))]
    pub declared_kernels: bool,
    /// [`launch_traced`](crate::Backend::launch_traced) says what a kernel accessed.
    #[cfg_attr(feature = "serde", serde(default))]
    pub traced_launches: bool,
    /// [`range_attribute`](crate::Backend::range_attribute) answers by the pages of the range, as
    /// documented. Without it, as a driver does: driver 580 walks over runs of pages and can report
    /// a value that no page has.
    pub range_attributes_by_page: bool,
}

impl Capabilities {
    /// The abilities of a driver of this version on devices with concurrent managed access, without
    /// events or page map: the starting point for a back end and for a mock.
    #[must_use]
    pub fn of_driver(backend: impl Into<String>, version: DriverVersion) -> Self {
        let has = |since: DriverVersion| version >= since;
        let thirteen = has(DriverVersion::CUDA_13_0);
        Self {
            backend: backend.into(),
            driver_version: version,
            locations: has(DriverVersion::CUDA_12_2),
            prefetch_batch: if thirteen { BatchSupport::Native } else { BatchSupport::Absent },
            copy_batch: if has(DriverVersion::CUDA_12_8) {
                BatchSupport::Native
            } else {
                BatchSupport::Absent
            },
            discard: thirteen,
            location_pools: thirteen,
            virtual_memory: true,
            concurrent_managed_access: true,
            events: false,
            host_page_map: false,
            pool_self_import: false,
            deterministic: false,
            kernels: true,
            declared_kernels: false,
            traced_launches: false,
            range_attributes_by_page: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_offers_what_its_headers_declare() {
        let of = |version| Capabilities::of_driver("x", version);
        assert!(!of(DriverVersion::CUDA_12_0).locations);
        assert!(of(DriverVersion::CUDA_12_2).locations);
        assert!(!of(DriverVersion::CUDA_12_9).discard);
        assert_eq!(of(DriverVersion::CUDA_12_9).prefetch_batch, BatchSupport::Absent);
        assert!(of(DriverVersion::CUDA_13_0).discard);
        assert_eq!(of(DriverVersion::CUDA_12_2).copy_batch, BatchSupport::Absent);
        assert_eq!(of(DriverVersion::CUDA_12_8).copy_batch, BatchSupport::Native);
        assert_eq!(of(DriverVersion::CUDA_13_2).prefetch_batch, BatchSupport::Native);
    }
}
