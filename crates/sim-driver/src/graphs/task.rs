//! The tasks of nodes.

use std::ffi::c_int;

use pagewise_hal::{DeviceId, EventHandle};

use crate::copy_params::Memcpy3D;
use crate::kernel_launch::Launch;
use crate::work::{HostNodeParams, MemsetParams, Work};

/// The task of a node at each launch of its graph.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Launches a kernel.
    Kernel(Launch),
    /// Copies rows and slices.
    Copy(Memcpy3D),
    /// Fills rows.
    Fill(MemsetParams),
    /// Calls a function of the host.
    Host(HostNodeParams),
    /// Runs a graph that the node owns.
    Child(usize),
    /// Does nothing: other nodes depend on it.
    Empty,
    /// Waits for an event.
    Wait(EventHandle),
    /// Records an event.
    Record(EventHandle),
    /// Allocates memory.
    Allocate(Allocation),
    /// Frees memory that a node of a graph allocated.
    Free(u64),
}

/// An allocation of a node.
#[derive(Debug, Clone)]
pub(crate) struct Allocation {
    /// The device that has the memory.
    pub(crate) device: DeviceId,
    /// The size that was asked for, in bytes.
    pub(crate) bytes: u64,
    /// The address, which stays the same over launches.
    pub(crate) address: u64,
}

impl Task {
    /// The number of the type, as `CUgraphNodeType` has it.
    pub(crate) fn kind(&self) -> c_int {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(_) => 2,
            Self::Host(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
            Self::Allocate(_) => 10,
            Self::Free(_) => 11,
        }
    }

    /// Whether the task allocates or frees memory: graphs with such nodes have more rules.
    pub(crate) fn is_of_memory(&self) -> bool {
        matches!(self, Self::Allocate(_) | Self::Free(_))
    }

    /// Whether a node with this task can be switched off in an executable graph.
    pub(crate) fn can_be_disabled(&self) -> bool {
        matches!(self, Self::Kernel(_) | Self::Copy(_) | Self::Fill(_))
    }
}

impl From<Work> for Task {
    fn from(work: Work) -> Self {
        match work {
            Work::Copy(range) => Self::Copy(range.into()),
            Work::Slices(slices) => Self::Copy(slices),
            Work::Fill(fill) | Work::Rows(fill) => Self::Fill(fill),
            Work::Host(call) => Self::Host(call),
        }
    }
}
