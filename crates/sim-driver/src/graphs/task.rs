//! The tasks of nodes.

use std::ffi::c_int;
use std::sync::Arc;

use pagewise_hal::{DeviceId, EventHandle};

use crate::copy_params::Memcpy3D;
use crate::graphs::kernel_node::KernelNode;
use crate::work::{HostNodeParams, MemsetParams, Work};

/// The task of a node at each launch of its graph.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Launches a kernel.
    Kernel(Box<KernelNode>),
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
    /// Runs one of its graphs as long as, if, or as a condition says.
    Condition(Condition),
}

/// The kind of a conditional node, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Branch {
    /// The first graph if the value is not 0, the second otherwise, if there is one.
    If,
    /// The graph as long as the value is not 0.
    While,
    /// The graph with the number of the value, if there is one.
    Switch,
}

impl Branch {
    /// The kind of a `CUgraphConditionalNodeType`, if a node of it can have so many graphs.
    pub(crate) fn new(kind: c_int, graphs: u32) -> Option<Self> {
        match (kind, graphs) {
            (0, 1 | 2) => Some(Self::If),
            (1, 1) => Some(Self::While),
            (2, 1..) => Some(Self::Switch),
            _ => None,
        }
    }
}

/// A conditional node.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    pub(crate) handle: u64,
    /// The value that each launch of the graph begins with, if it sets one.
    pub(crate) default: Option<u32>,
    pub(crate) branch: Branch,
    /// The graphs, which belong to the node. The program reads their handles here.
    pub(crate) bodies: Arc<[usize]>,
}

/// An allocation of a node.
#[derive(Debug, Clone)]
pub(crate) struct Allocation {
    /// The device that has the memory.
    pub(crate) device: DeviceId,
    /// The kind that was asked for, as `CUmemAllocationType` numbers it. A node that asks for managed
    /// memory gets the device's.
    pub(crate) kind: c_int,
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
            Self::Condition(_) => 13,
        }
    }

    /// Whether the task allocates or frees memory.
    pub(crate) fn is_of_memory(&self) -> bool {
        matches!(self, Self::Allocate(_) | Self::Free(_))
    }

    /// Whether graphs with this task are neither cloned nor instantiated twice: of memory and of
    /// conditions.
    pub(crate) fn is_of_one_graph(&self) -> bool {
        self.is_of_memory() || matches!(self, Self::Condition(_))
    }

    /// Whether a graph of a conditional node may have this task.
    pub(crate) fn can_be_conditional(&self) -> bool {
        matches!(self.kind(), 0 | 1 | 2 | 4 | 5 | 13)
    }

    /// The graphs that belong to a node with this task.
    pub(crate) fn graphs(&self) -> &[usize] {
        match self {
            Self::Child(child) => std::slice::from_ref(child),
            Self::Condition(condition) => &condition.bodies,
            _ => &[],
        }
    }

    /// Whether a node with this task can be switched off in an executable graph.
    pub(crate) fn can_be_disabled(&self) -> bool {
        matches!(self, Self::Kernel(_) | Self::Copy(_) | Self::Fill(_))
    }
}

impl From<KernelNode> for Task {
    fn from(node: KernelNode) -> Self {
        Self::Kernel(Box::new(node))
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
