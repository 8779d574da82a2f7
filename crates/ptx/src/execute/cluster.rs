//! A cluster: blocks that are resident together, meet at a barrier and share their shared memory.
//!
//! An address in the shared memory of a block of the cluster holds one more than the block's rank in
//! its bits from 24 on. An address without these bits is one of the block that uses it, so no address
//! within a block differs from those of a kernel without clusters.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::launch::{Launch, StartError};
use crate::module::Kernel;

/// The most blocks of a cluster (published: Hopper tuning guide).
const CLUSTER_MAX: u32 = 16;

/// The state that the blocks of a cluster share.
///
/// One thread runs a grid. The atomics only let another thread go on with it.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The place among the resident blocks of the first block. The others follow it.
    slot: u32,
    /// The shared memory of each block by its rank; null if the block has ended.
    shared: Vec<AtomicPtr<u8>>,
    /// The blocks that have not ended.
    blocks: AtomicU32,
    /// The threads that have not ended.
    live: AtomicU32,
    /// Those of them that have arrived at the barrier, and how often it is complete.
    arrived: AtomicU32,
    phase: AtomicU64,
}

impl Cluster {
    /// A cluster of `blocks` blocks with `threads` threads together, none of which has begun.
    pub(super) fn new(slot: u32, blocks: u32, threads: u32) -> Self {
        Self {
            slot,
            shared: (0..blocks).map(|_| AtomicPtr::new(null_mut())).collect(),
            blocks: AtomicU32::new(blocks),
            live: AtomicU32::new(threads),
            arrived: AtomicU32::new(0),
            phase: AtomicU64::new(0),
        }
    }

    /// A block begins: others of the cluster reach its shared memory until it ends.
    pub(super) fn begin(&self, rank: u32, shared: *mut u8) {
        self.shared[rank as usize].store(shared, Relaxed);
    }

    /// A block ends. Gives the first of the cluster's slots if it was the last one.
    pub(super) fn end(&self, rank: u32) -> Option<u32> {
        self.shared[rank as usize].store(null_mut(), Relaxed);
        (self.blocks.fetch_sub(1, Relaxed) == 1).then_some(self.slot)
    }

    /// How many blocks there are, with those that have ended.
    pub(super) fn blocks(&self) -> u32 {
        self.shared.len() as u32
    }

    /// The shared memory of a block, null if it has ended; `None` if there is no such block.
    /// The block holds its memory in one place from its begin to its end, so the pointer is good for that
    /// long.
    pub(super) fn shared(&self, rank: u64) -> Option<*mut u8> {
        self.shared.get(rank as usize).map(|shared| shared.load(Relaxed))
    }

    /// How often the barrier is complete.
    pub(super) fn phase(&self) -> u64 {
        self.phase.load(Relaxed)
    }

    /// The barrier is complete if all threads that have not ended have arrived.
    fn settle(&self) {
        let arrived = self.arrived.load(Relaxed);
        if arrived > 0 && arrived >= self.live.load(Relaxed) {
            self.arrived.store(0, Relaxed);
            self.phase.fetch_add(1, Relaxed);
        }
    }

    /// Threads arrive.
    pub(super) fn arrive(&self, threads: u32) {
        self.arrived.fetch_add(threads, Relaxed);
        self.settle();
    }

    /// Threads end, of which `arrived` have arrived: the others need not.
    pub(super) fn leave(&self, threads: u32, arrived: u32) {
        self.arrived.fetch_sub(arrived, Relaxed);
        self.live.fetch_sub(threads, Relaxed);
        self.settle();
    }
}

/// The lanes of a warp that have arrived at their cluster's barrier and have not waited since, and the
/// parity of the phase in which each arrived.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arrivals {
    pub(super) lanes: u32,
    pub(super) odd: u32,
}

impl Arrivals {
    /// The lanes that have arrived in a phase.
    pub(super) fn of(self, phase: u64) -> u32 {
        self.lanes & if phase & 1 == 1 { self.odd } else { !self.odd }
    }
}

impl Kernel {
    /// The clusters of a launch, as the launch or the kernel says.
    pub(super) fn cluster_of(&self, launch: &Launch<'_>) -> Result<Option<[u32; 3]>, StartError> {
        let (given, declared) = (launch.cluster, self.info.clusters);
        let differs = |declared: String| StartError::DeclaredCluster { declared, given };
        if let Some([x, y, z]) =
            declared.required.filter(|own| given.is_some_and(|one| one != *own))
        {
            return Err(differs(format!(".reqnctapercluster {x}, {y}, {z}")));
        }
        let Some(cluster) = given.or(declared.required) else {
            return if declared.explicit {
                Err(differs(".explicitcluster".to_owned()))
            } else {
                Ok(None)
            };
        };
        let is_whole = |(grid, cluster): (u32, u32)| {
            (1..=CLUSTER_MAX).contains(&cluster) && grid.is_multiple_of(cluster)
        };
        let fits = launch.grid.into_iter().zip(cluster).all(is_whole);
        let blocks = cluster.iter().fold(1_u32, |all, one| all.saturating_mul(*one));
        if !fits || blocks > CLUSTER_MAX {
            return Err(StartError::Cluster { grid: launch.grid, cluster });
        }
        match declared.most {
            Some(most) if blocks > most => Err(differs(format!(".maxclusterrank {most}"))),
            _ => Ok(Some(cluster)),
        }
    }
}
