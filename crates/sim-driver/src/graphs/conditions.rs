//! Conditional handles of graphs.

use std::collections::BTreeMap;

/// A handle that a program made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handle {
    pub(super) graph: usize,
    pub(super) default: Option<u32>,
    /// Whether a node has it: a handle is of one node.
    pub(super) is_used: bool,
}

/// The conditional handles of all graphs.
#[derive(Debug, Default)]
pub(super) struct Conditions(pub(super) BTreeMap<u64, Handle>);

impl Conditions {
    /// A graph is gone.
    pub(super) fn forget_graph(&mut self, graph: usize) {
        self.0.retain(|_, handle| handle.graph != graph);
    }
}
