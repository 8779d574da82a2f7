//! Models of GPUs, as data.
//!
//! A profile is a document (TOML) that holds every figure in which one model of GPU differs from
//! another, and for each where it comes from. Nothing in the simulator asks for a profile's name.
//!
//! | module | concept |
//! | --- | --- |
//! | here | the document |
//! | `attributes`, `link` | what the driver reports of the device, and what connects it |
//! | `sources` | where figures come from |
//! | `document` | reading: partial documents over a base, unknown keys |
//! | `check` | what values make sense |
//! | `shipped` | the documents that ship with the crate |

mod attributes;
mod check;
mod document;
mod link;
mod shipped;
mod sources;

use pagewise_hal::DriverVersion;
use serde::{Deserialize, Serialize};

use crate::arrival::ArrivalParams;
use crate::cost::CostParams;
use crate::paging::PagingParams;

pub use attributes::DeviceAttributes;
pub use document::ProfileError;
pub use link::{HostLink, PeerLink};
pub use sources::{Evidence, Source, Sources};

/// What distinguishes one model of GPU from another, and what connects it. Sizes in bytes, times
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
    /// What the driver and one context take of it.
    pub context_bytes: u64,
    /// Compute capability, major and minor.
    pub compute_capability: (i32, i32),
    /// The CUDA version of the driver: 1000 × major + 10 × minor.
    pub driver_version: DriverVersion,
    /// What connects the device to the host.
    pub host_link: HostLink,
    /// What connects two such devices.
    pub peer_link: PeerLink,
    /// What the driver reports of the device.
    pub attributes: DeviceAttributes,
    /// How the driver's paging policy is set.
    pub paging: PagingParams,
    /// How the faults of many threads arrive.
    pub arrival: ArrivalParams,
    /// How long calls take.
    pub cost: CostParams,
    /// Where the figures come from: by field, or by the table that a field is in, with dots
    /// (`cost.prefetch`).
    pub sources: Sources,
}

impl GpuProfile {
    /// NVIDIA H200 SXM: the profile whose figures were fitted to recordings.
    #[must_use]
    pub fn h200() -> Self {
        shipped::h200().clone()
    }

    /// The shipped profile with this name, upper or lower case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        shipped::all().iter().find(|profile| profile.name.eq_ignore_ascii_case(name)).cloned()
    }

    /// Every profile that ships with the crate.
    #[must_use]
    pub fn all() -> Vec<Self> {
        shipped::all().to_vec()
    }

    /// Memory that is left for allocations.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        self.memory_bytes.saturating_sub(self.context_bytes)
    }
}

#[cfg(test)]
mod microtraces;
#[cfg(test)]
mod tests;
