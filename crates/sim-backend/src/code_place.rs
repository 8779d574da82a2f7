//! The places of code on a device: warps that run, and lanes that wait.

use pagewise_hal::FaultAccess;

/// A lane of a warp that waits for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceWait {
    /// The number of the multiprocessor.
    pub multiprocessor: u32,
    /// The block, by its number in the grid.
    pub block: u64,
    /// The warp in the block.
    pub warp: u32,
    /// The place of the instruction among those of the warp that wait, or another number that ascends
    /// with it: lanes of a warp that begin to wait together are of one instruction if it is equal.
    pub nth: u32,
    /// The address of the first byte that the lane accesses.
    pub address: u64,
    /// The access.
    pub access: FaultAccess,
}

/// A place where code runs: a warp of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodePlace {
    /// The place of the block among those that the device holds. A block takes that of one that
    /// ended.
    pub slot: u32,
    /// The block, by its number in the grid.
    pub block: u64,
    /// The warp in the block.
    pub warp: u32,
}
