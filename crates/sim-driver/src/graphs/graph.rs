//! One graph: nodes and the edges between them.
//!
//! Nodes are known by their handles, which grow in the order of creation. So every walk over the
//! nodes of a graph is in that order.

use std::collections::{BTreeMap, BTreeSet};

use pagewise_hal::Code;

use crate::graphs::task::Task;
use crate::outcome::Outcome;

/// One node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) task: Task,
    /// Nodes that run before it.
    pub(crate) after: BTreeSet<usize>,
    /// Nodes that run after it.
    pub(crate) before: BTreeSet<usize>,
    /// The node of which it is a clone.
    pub(crate) original: Option<usize>,
    /// Its number in its graph.
    pub(crate) local_id: u32,
}

/// An edge, with `CUgraphEdgeData`: bytes for the port that it leaves, the port that it enters, the
/// type, and five that are zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) data: u64,
}

/// Whether an edge between two nodes may have some data, as driver 580 answered. Kernels have two
/// more ports (`CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC` and `_LAUNCH_ORDER`), and edges between
/// kernels another type (`CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`). A kernel here begins when its
/// predecessor is done, which each of them allows.
fn fits(from: &Task, to: &Task, data: u64) -> bool {
    let are_kernels = (matches!(from, Task::Kernel(_)), matches!(to, Task::Kernel(_)));
    match data.to_ne_bytes() {
        [0, 0, 0, 0, 0, 0, 0, 0] => true,
        [2, 0, 0, 0, 0, 0, 0, 0] => are_kernels.0,
        [1 | 2, 0, 1, 0, 0, 0, 0, 0] => are_kernels == (true, true),
        _ => false,
    }
}

/// One graph.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: BTreeMap<usize, Node>,
    /// The data of edges that have any.
    data: BTreeMap<(usize, usize), u64>,
    /// The node that owns it, if it is the graph of a child node.
    pub(crate) owner: Option<usize>,
    /// The graph of which it is a clone.
    pub(crate) original: Option<usize>,
    /// References to user objects.
    pub(crate) objects: BTreeMap<usize, u64>,
    /// Its number in the process.
    pub(crate) id: u32,
    /// How many nodes it has had.
    made: u32,
}

impl Graph {
    /// An empty graph with a number.
    pub(crate) fn new(id: u32) -> Self {
        Self { id, ..Self::default() }
    }

    pub(crate) fn node(&self, handle: usize) -> Outcome<&Node> {
        self.nodes.get(&handle).ok_or(Code::INVALID_VALUE)
    }

    /// Refuses nodes of other graphs, and a node that is named twice.
    pub(crate) fn check_nodes(&self, nodes: &[usize]) -> Outcome {
        let distinct: BTreeSet<_> = nodes.iter().collect();
        let known = nodes.iter().all(|node| self.nodes.contains_key(node));
        if known && distinct.len() == nodes.len() { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    /// Adds a node after others, which are nodes of the graph.
    pub(crate) fn add(&mut self, handle: usize, after: &[usize], task: Task) {
        for node in after {
            if let Some(node) = self.nodes.get_mut(node) {
                node.before.insert(handle);
            }
        }
        let node = Node {
            task,
            after: after.iter().copied().collect(),
            before: BTreeSet::new(),
            original: None,
            local_id: self.made,
        };
        self.made = self.made.wrapping_add(1);
        self.nodes.insert(handle, node);
    }

    /// Removes a node with its edges.
    pub(crate) fn remove(&mut self, handle: usize) -> Option<Node> {
        let node = self.nodes.remove(&handle)?;
        self.data.retain(|(from, to), _| *from != handle && *to != handle);
        for other in &node.after {
            if let Some(other) = self.nodes.get_mut(other) {
                other.before.remove(&handle);
            }
        }
        for other in &node.before {
            if let Some(other) = self.nodes.get_mut(other) {
                other.after.remove(&handle);
            }
        }
        Some(node)
    }

    /// Adds edges with their data, or none of them. A circle is found when the graph is
    /// instantiated.
    pub(crate) fn connect(&mut self, edges: &[Edge]) -> Outcome {
        let mut new = BTreeMap::new();
        for &Edge { from, to, data } in edges {
            let (source, target) = (self.node(from)?, self.node(to)?);
            let fits = fits(&source.task, &target.task, data);
            let exists = target.after.contains(&from);
            if from == to || exists || !fits || new.insert((from, to), data).is_some() {
                return Err(Code::INVALID_VALUE);
            }
        }
        for ((from, to), data) in new {
            self.link(from, to, true);
            if data != 0 {
                self.data.insert((from, to), data);
            }
        }
        Ok(())
    }

    /// Removes edges, or none of them. Data that is not zero has to be that of the edge.
    pub(crate) fn disconnect(&mut self, edges: &[Edge]) -> Outcome {
        let mut gone = BTreeSet::new();
        for &Edge { from, to, data } in edges {
            self.node(from)?;
            let exists = self.node(to)?.after.contains(&from);
            let is_other = data != 0 && data != self.data(from, to);
            if !exists || is_other || !gone.insert((from, to)) {
                return Err(Code::INVALID_VALUE);
            }
        }
        for (from, to) in gone {
            self.link(from, to, false);
            self.data.remove(&(from, to));
        }
        Ok(())
    }

    /// The data of an edge.
    pub(crate) fn data(&self, from: usize, to: usize) -> u64 {
        self.data.get(&(from, to)).copied().unwrap_or_default()
    }

    fn link(&mut self, from: usize, to: usize, exists: bool) {
        let change = |set: &mut BTreeSet<usize>, node| {
            if exists { set.insert(node) } else { set.remove(&node) }
        };
        if let Some(node) = self.nodes.get_mut(&from) {
            change(&mut node.before, to);
        }
        if let Some(node) = self.nodes.get_mut(&to) {
            change(&mut node.after, from);
        }
    }

    /// All edges, by the node that they lead to.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (usize, usize)> {
        let into = |(&to, node): (&usize, &Node)| {
            node.after.iter().map(|&from| (from, to)).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(into)
    }

    /// The nodes in an order that keeps to the edges; of several nodes that are ready the oldest
    /// comes first. `None` if there is a circle.
    pub(crate) fn order(&self) -> Option<Vec<usize>> {
        let mut missing: BTreeMap<usize, usize> =
            self.nodes.iter().map(|(&handle, node)| (handle, node.after.len())).collect();
        let mut ready: BTreeSet<usize> =
            missing.iter().filter(|(_, count)| **count == 0).map(|(&handle, _)| handle).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(next) = ready.pop_first() {
            order.push(next);
            for &follower in self.nodes.get(&next).map(|node| &node.before).into_iter().flatten() {
                if let Some(count) = missing.get_mut(&follower) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        ready.insert(follower);
                    }
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }

    /// The nodes that run before any of some nodes, with these.
    pub(crate) fn reached_backwards(
        &self,
        from: impl IntoIterator<Item = usize>,
    ) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<usize> = from.into_iter().collect();
        while let Some(handle) = next.pop() {
            if reached.insert(handle) {
                next.extend(self.nodes.get(&handle).into_iter().flat_map(|node| &node.after));
            }
        }
        reached
    }

    /// Whether a node of it allocates or frees memory.
    pub(crate) fn is_alone(&self) -> bool {
        self.nodes.values().any(|node| node.task.is_of_one_graph())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: usize, to: usize) -> Edge {
        Edge { from, to, data: 0 }
    }

    #[test]
    fn the_oldest_of_the_nodes_that_are_ready_comes_first() {
        let mut graph = Graph::new(1);
        for handle in 1..=4 {
            graph.add(handle, &[], Task::Empty);
        }
        assert_eq!(graph.connect(&[edge(4, 1), edge(2, 3)]), Ok(()));
        assert_eq!(graph.order(), Some(vec![2, 3, 4, 1]));
        assert_eq!(graph.connect(&[edge(1, 4)]), Ok(()), "a circle is found later");
        assert_eq!(graph.order(), None);
        assert!(graph.remove(1).is_some());
        assert_eq!(graph.order(), Some(vec![2, 3, 4]));
    }

    #[test]
    fn edges_are_added_and_removed_all_or_none() {
        let mut graph = Graph::new(1);
        graph.add(1, &[], Task::Empty);
        graph.add(2, &[1], Task::Empty);
        graph.add(3, &[], Task::Empty);
        for refused in [[(1, 3), (1, 2)], [(1, 3), (1, 3)], [(1, 3), (3, 3)], [(1, 3), (9, 1)]] {
            let edges = refused.map(|(from, to)| edge(from, to));
            assert_eq!(graph.connect(&edges), Err(1), "{refused:?}");
        }
        assert_eq!(graph.disconnect(&[edge(1, 2), edge(1, 3)]), Err(1));
        assert_eq!(graph.edges().collect::<Vec<_>>(), [(1, 2)]);
    }
}
