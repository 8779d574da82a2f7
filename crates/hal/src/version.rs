//! Driver versions.

use std::fmt;

/// A version as `cuDriverGetVersion` gives it: 1000 × major + 10 × minor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DriverVersion(pub i32);

impl DriverVersion {
    /// CUDA 12.0: the ordinal form only.
    pub const CUDA_12_0: Self = Self(12000);
    /// CUDA 12.2: locations, host NUMA nodes, attributes 5 to 8.
    pub const CUDA_12_2: Self = Self(12020);
    /// CUDA 12.8.
    pub const CUDA_12_8: Self = Self(12080);
    /// CUDA 12.9.
    pub const CUDA_12_9: Self = Self(12090);
    /// CUDA 13.0: batch calls, discard, managed pools, pools by location.
    pub const CUDA_13_0: Self = Self(13000);
    /// CUDA 13.2: pools answer for their own location and type.
    pub const CUDA_13_2: Self = Self(13020);

    /// The version `major.minor`.
    #[must_use]
    pub const fn new(major: i32, minor: i32) -> Self {
        Self(major.saturating_mul(1000).saturating_add(minor.saturating_mul(10)))
    }

    /// The part before the dot.
    #[must_use]
    pub const fn major(self) -> i32 {
        self.0 / 1000
    }

    /// The part after the dot.
    #[must_use]
    pub const fn minor(self) -> i32 {
        self.0 % 1000 / 10
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}

impl fmt::Debug for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverVersion({self})")
    }
}
