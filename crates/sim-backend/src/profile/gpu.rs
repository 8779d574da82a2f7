//! The profile of one model of GPU, with all its figures.

use pagewise_hal::DriverVersion;
use serde::{Deserialize, Serialize};

use super::attributes::DeviceAttributes;
use super::sources::Sources;
use crate::arrival::ArrivalParams;
use crate::cost::CostParams;
use crate::kernel_time::KernelParams;
use crate::link::{HostLink, PeerLink};
use crate::paging::PagingParams;

/// The properties and links of one model of GPU. Sizes in bytes, times
/// in nanoseconds.
///
/// ```
/// use pagewise_sim::GpuProfile;
///
/// let small = GpuProfile::from_toml("base = 'h200'\nname = 'small'\nmemory_bytes = 2_000_000_000")?;
/// assert_eq!(small.cost, GpuProfile::h200().cost);
/// # Ok::<(), pagewise_sim::ProfileError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuProfile {
    /// The name, as `--profile` takes it.
    pub name: String,
    /// The model in words.
    pub description: String,
    /// All of the device's memory.
    pub memory_bytes: u64,
    /// The bytes that the driver and one context take of it.
    pub context_bytes: u64,
    /// Compute capability, major and minor.
    pub compute_capability: (i32, i32),
    /// The CUDA version of the driver: 1000 × major + 10 × minor.
    pub driver_version: DriverVersion,
    /// The link to the host.
    pub host_link: HostLink,
    /// The link between two such devices.
    pub peer_link: PeerLink,
    /// The attributes that the driver reports of the device.
    pub attributes: DeviceAttributes,
    /// How the driver's paging policy is set.
    pub paging: PagingParams,
    /// How the faults of many threads arrive.
    pub arrival: ArrivalParams,
    /// How fast kernels are executed.
    pub kernels: KernelParams,
    /// How long calls take.
    pub cost: CostParams,
    /// Where the figures come from: by field, or by the table that a field is in, with dots
    /// (`cost.prefetch`).
    pub sources: Sources,
}

impl GpuProfile {
    /// Memory that is left for allocations.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        self.memory_bytes.saturating_sub(self.context_bytes)
    }
}
