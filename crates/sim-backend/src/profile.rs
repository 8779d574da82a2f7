//! Models of GPUs, as data.

use crate::cost::CostParams;

/// What distinguishes one model of GPU from another. Sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GpuProfile {
    /// The model's name, as `--profile` takes it.
    pub name: String,
    /// All of the device's memory.
    pub memory_bytes: u64,
    /// What the driver and one context take of it.
    pub context_bytes: u64,
    /// Compute capability, major and minor.
    pub compute_capability: (i32, i32),
    /// How long calls take; an H200's if a profile does not say.
    #[cfg_attr(feature = "serde", serde(default = "CostParams::h200"))]
    pub cost: CostParams,
}

impl GpuProfile {
    /// NVIDIA H200 SXM.
    ///
    /// Memory: 143,771 MiB, as `nvidia-smi` prints for the model. Compute capability 9.0.
    #[must_use]
    pub fn h200() -> Self {
        Self {
            name: "h200".to_owned(),
            memory_bytes: 150_109_880_320,
            context_bytes: 552_402_944,
            compute_capability: (9, 0),
            cost: CostParams::h200(),
        }
    }

    /// The profile with this name, upper or lower case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|profile| profile.name.eq_ignore_ascii_case(name))
    }

    /// Every profile there is.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![Self::h200()]
    }
}
