//! The graphs of a driver: graphs, their nodes, executable graphs, captures, memory of graphs and
//! user objects. All are found by handles in tables; a handle is never an address.

mod captures;
mod clones;
mod codes;
mod conditionals;
mod conditions;
mod dot;
mod executable;
mod executables;
mod graph;
mod kernel_node;
mod memory;
mod objects;
mod tables;
mod task;

pub(crate) use captures::{Key, exchange_mode, this_thread};
pub(crate) use codes::{
    GRAPH_EXEC_UPDATE_FAILURE, ILLEGAL_STATE, LOSSY_QUERY, STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_UNSUPPORTED,
};
pub(crate) use executable::{Difference, Due, compare};
pub(crate) use executables::{AUTO_FREE, UPLOAD};
pub(crate) use graph::{Edge, Graph};
pub(crate) use kernel_node::{KernelNode, Named};
pub(crate) use memory::{BLOCK_BYTES, Unmapped};
pub(crate) use tables::Graphs;
pub(crate) use task::{Allocation, Branch, Condition, Task};
