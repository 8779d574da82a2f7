//! The limits of a device that launches and occupancy depend on.

use std::sync::OnceLock;

use crate::outcome::Outcome;

/// Limits of a device; sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Ten times the major compute capability, and the minor one.
    pub(crate) capability: u32,
    /// Threads of a block.
    pub(crate) block_threads: u32,
    /// Threads of a block in each dimension.
    pub(crate) block: [u32; 3],
    /// Blocks of a grid in each dimension.
    pub(crate) grid: [u32; 3],
    /// Shared memory of a block that asks for more than 48 KiB.
    pub(crate) shared_bytes_optin: u64,
    /// Whether the device has clusters of blocks.
    pub(crate) has_clusters: bool,
}

/// Limits of a multiprocessor; sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Multiprocessor {
    /// How many of them a device has.
    pub(crate) count: u32,
    pub(crate) threads: u32,
    pub(crate) blocks: u32,
    pub(crate) registers: u32,
    pub(crate) shared_bytes: u64,
    /// Shared memory that the system takes of each block.
    pub(crate) reserved_bytes: u64,
    /// Threads of a warp.
    pub(crate) warp: u32,
}

/// The limits of a driver's devices, which are all of one profile. Read once, as launches ask often.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) limits: OnceLock<Limits>,
    pub(crate) multiprocessor: OnceLock<Multiprocessor>,
}

impl Figures {
    /// A figure that is kept, or else read now.
    pub(crate) fn kept<T: Copy>(
        place: &OnceLock<T>,
        read: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<T> {
        match place.get() {
            Some(kept) => Ok(*kept),
            None => read().map(|value| *place.get_or_init(|| value)),
        }
    }
}

/// The groups of multiprocessors that hold clusters, by their sizes, of an H200. They were found by
/// `cuOccupancyMaxActiveClusters` for 576 shapes (`tests/data/clusters.tsv`). Chips of one model may
/// differ: which multiprocessors work is a chip's own.
pub(crate) const CLUSTER_GROUPS: [u32; 12] = [18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2];

/// The most shared memory of a block: "Technical specifications per compute capability" of the
/// CUDA programming guide.
pub(crate) const fn optin(capability: u32) -> u32 {
    let kilobytes = match capability {
        70 | 72 => 96,
        75 => 64,
        80 | 87 => 163,
        86 | 88 | 89 | 120 | 121 => 99,
        90 | 100 | 101 | 103 | 110 => 227,
        _ => 48,
    };
    kilobytes << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h200_has_as_much_shared_memory_as_its_attribute_says() {
        assert_eq!(optin(90), 232_448);
    }
}
