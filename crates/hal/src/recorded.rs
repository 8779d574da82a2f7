//! Launches of kernels as they were observed: the accesses that moved pages, without the code.

use crate::{DeviceId, Span};

/// The instructions of a kernel's warps by class, and the bytes that they moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct KernelWork {
    /// Arithmetic of up to 32 bits of floating point.
    pub fp32: u64,
    /// Arithmetic of 64 bits of floating point.
    pub fp64: u64,
    /// Integer arithmetic, logic, comparisons and moves.
    pub integer: u64,
    /// Approximate functions, conversions, and others of the special function units.
    pub special: u64,
    /// Loads, stores and atomics of global, local and generic memory.
    pub memory: u64,
    /// Loads, stores and atomics of shared memory, and exchanges within a warp.
    pub shared: u64,
    /// Products of matrices.
    pub tensor: u64,
    /// Branches, calls, barriers, and all others.
    pub control: u64,
    /// Bytes that loads read from memory.
    pub bytes_read: u64,
    /// Bytes that stores and atomics wrote there.
    pub bytes_written: u64,
    /// Blocks of the grid.
    pub blocks: u64,
    /// Warps of all blocks.
    pub warps: u64,
}

impl KernelWork {
    /// Instructions of all classes.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        let Self { fp32, fp64, integer, special, memory, shared, tensor, control, .. } = *self;
        let all = [fp32, fp64, integer, special, memory, shared, tensor, control];
        all.into_iter().fold(0, u64::saturating_add)
    }
}

/// A launch as it was observed on a machine, which another one carries out without the kernel's code.
///
/// `accesses` lists for each block the first access of each kind to each page of managed memory, and
/// each access that waited for a page: [`RecordedBlocks`](crate::RecordedBlocks) reads it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RecordedLaunch {
    /// The device that runs the kernel.
    pub device: DeviceId,
    /// The kernel's name.
    pub kernel: String,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Multiprocessors of the machine that was observed.
    pub multiprocessors: u32,
    /// Blocks that each of them held.
    pub blocks_each: u32,
    /// The instructions, for the time that the kernel takes without faults.
    pub work: KernelWork,
    /// The memory that accesses are within, by their numbers.
    pub ranges: Vec<Span>,
    /// The accesses.
    pub accesses: Vec<u8>,
}

impl RecordedLaunch {
    /// The most bytes of accesses: a bound on the memory that a launch takes.
    pub const ACCESSES_MAX: usize = 32 << 20;

    /// The most ranges.
    pub const RANGES_MAX: usize = 1 << 16;

    /// The most threads of a block.
    pub const BLOCK_THREADS_MAX: u64 = 1024;

    /// The most blocks that all multiprocessors hold.
    pub const SLOTS_MAX: u64 = 1 << 16;

    /// Blocks of the grid.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        product(self.grid)
    }

    /// Threads of the grid.
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.blocks().saturating_mul(product(self.block))
    }

    /// Warps of a block.
    #[must_use]
    pub fn block_warps(&self) -> u64 {
        product(self.block).div_ceil(32)
    }

    /// Checks a launch without its memory and its accesses, which are checked as they are read. A
    /// back end refuses one that does not pass with
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue), before it moves anything.
    ///
    /// # Errors
    /// The reason: a dimension is 0, a block has more than
    /// [`BLOCK_THREADS_MAX`](Self::BLOCK_THREADS_MAX) threads, the multiprocessors hold no block or
    /// more than [`SLOTS_MAX`](Self::SLOTS_MAX), or there are more than
    /// [`RANGES_MAX`](Self::RANGES_MAX) ranges or [`ACCESSES_MAX`](Self::ACCESSES_MAX) bytes.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.blocks() == 0 || product(self.block) == 0 {
            return Err("blocks and threads must be at least 1");
        }
        let slots = u64::from(self.multiprocessors).saturating_mul(self.blocks_each.into());
        if slots == 0 || slots > Self::SLOTS_MAX {
            return Err("the multiprocessors hold no block, or more than 65536");
        }
        if product(self.block) > Self::BLOCK_THREADS_MAX {
            return Err("a block has more than 1024 threads");
        }
        if self.ranges.len() > Self::RANGES_MAX || self.accesses.len() > Self::ACCESSES_MAX {
            return Err("more than 65536 ranges or 32 MiB of accesses");
        }
        Ok(())
    }
}

fn product(of: [u32; 3]) -> u64 {
    of.iter().fold(1, |all: u64, one| all.saturating_mul(u64::from(*one)))
}
