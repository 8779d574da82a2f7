//! The limits of a profile's GPU that grids run under.
//!
//! Source: "Technical specifications per compute capability" of the CUDA programming guide, and for
//! what differs within one compute capability the profile.

use pagewise_ptx::execute::SmLimits;

use crate::profile::GpuProfile;

/// The limits of a GPU's grids. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GridLimits {
    /// Multiprocessors of the GPU.
    pub multiprocessors: u32,
    /// Threads that a multiprocessor holds at a time.
    pub threads: u32,
    /// Blocks that a multiprocessor holds at a time.
    pub blocks: u32,
    /// Registers of 32 bits of a multiprocessor.
    pub registers: u32,
    /// Shared memory of a multiprocessor.
    pub shared_bytes: u32,
    /// Shared memory that the system takes of each block.
    pub reserved_bytes: u32,
    /// Shared memory of a block that asks for more than 48 KiB.
    pub block_shared_bytes: u32,
    /// Threads of a block.
    pub block_threads: u32,
}

impl GridLimits {
    /// The limits of a profile's GPU.
    #[must_use]
    pub fn of(profile: &GpuProfile) -> Self {
        let (major, minor) = profile.compute_capability;
        let capability = major.saturating_mul(10).saturating_add(minor);
        let (shared_kib, block_kib) = match capability {
            61 => (96, 48),
            70 | 72 => (96, 96),
            75 => (64, 64),
            80 | 87 => (164, 163),
            86 | 88 | 89 | 120 | 121 => (100, 99),
            90 | 100 | 101 | 103 | 110 => (228, 227),
            _ => (64, 48),
        };
        Self {
            multiprocessors: profile.arrival.multiprocessors,
            threads: profile.arrival.threads_per_multiprocessor,
            blocks: profile.arrival.blocks_per_multiprocessor,
            registers: 65536,
            shared_bytes: shared_kib << 10,
            reserved_bytes: if capability >= 80 { 1024 } else { 0 },
            block_shared_bytes: block_kib << 10,
            block_threads: 1024,
        }
    }

    /// The limits of one multiprocessor, as the executor takes them.
    pub(super) const fn of_multiprocessor(&self) -> SmLimits {
        SmLimits {
            threads: self.threads,
            blocks: self.blocks,
            registers: self.registers,
            shared: self.shared_bytes,
            reserved_shared: self.reserved_bytes,
            block_shared: self.block_shared_bytes,
            block_threads: self.block_threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h200_has_the_limits_that_its_attributes_report() {
        let h200 = GridLimits::of(&GpuProfile::h200());
        assert_eq!((h200.multiprocessors, h200.threads, h200.blocks), (132, 2048, 32));
        assert_eq!((h200.shared_bytes, h200.block_shared_bytes), (233_472, 232_448));
        assert_eq!((h200.registers, h200.reserved_bytes), (65536, 1024));
    }
}
