//! Memory that the process shares with other processes: exported pools and imported ones, memory and
//! events with handles, and the memory of others that is mapped here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pagewise_hal::{DeviceId, PoolHandle};

use crate::exported_pool::ExportedPool;
use crate::imported_pool::ImportedPool;
use crate::shared_memory::SharedFile;

/// Where memory of another process came from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A handle of `cuIpcGetMemHandle`, by the number of its file, the device that it was opened
    /// for, and how often that was.
    Handle { number: u64, device: DeviceId, opened: u64 },
    /// An imported pool: the id of the allocation, and the units of the file that it is in.
    Pool { pool: PoolHandle, id: u64, units: Vec<u64> },
}

/// Memory of another process at addresses of this machine.
#[derive(Debug)]
pub(crate) struct Foreign {
    pub(crate) origin: Origin,
    /// The addresses that it takes: whole slots.
    pub(crate) addresses: Range<u64>,
}

/// All that a machine shares.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    pub(crate) exports: BTreeMap<PoolHandle, ExportedPool>,
    /// Imported pools of this machine, and the pools that they are.
    pub(crate) imports: BTreeMap<PoolHandle, PoolHandle>,
    /// Addresses of imported allocations of this machine.
    pub(crate) mapped: BTreeSet<u64>,
    /// Imported pools of other processes.
    pub(crate) foreign_pools: BTreeMap<PoolHandle, ImportedPool>,
    /// Memory of other processes by its first address.
    pub(crate) foreign: BTreeMap<u64, Foreign>,
    /// Memory of `cuMemAlloc` with a handle, by address.
    pub(crate) memory: BTreeMap<u64, SharedFile>,
    /// Events with a handle.
    pub(crate) events: BTreeMap<u64, SharedFile>,
}
