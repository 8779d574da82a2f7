//! Clones of graphs. A child node owns a clone of the graph that it was made with.

use std::collections::BTreeMap;

use pagewise_hal::Code;

use crate::graphs::graph::Edge;
use crate::graphs::tables::{DEPTH_MAX, Graphs, NODES_MAX};
use crate::graphs::task::Task;
use crate::outcome::Outcome;

impl Graphs {
    /// Clones a graph with the graphs of its child nodes.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` if a node allocates or frees memory, or has a condition; `CUDA_ERROR_OUT_OF_MEMORY`
    /// if there are too many nodes or levels; as [`graph`](Self::graph).
    pub(crate) fn clone_graph(&mut self, handle: usize) -> Outcome<usize> {
        let mut room = NODES_MAX;
        self.check_clone(handle, DEPTH_MAX, &mut room)?;
        self.clone_checked(handle)
    }

    /// Refuses what [`clone_graph`](Self::clone_graph) refuses.
    fn check_clone(&self, handle: usize, levels: usize, room: &mut usize) -> Outcome {
        let graph = self.graph(handle)?;
        let levels = levels.checked_sub(1).ok_or(Code::OUT_OF_MEMORY)?;
        *room = room.checked_sub(graph.nodes.len()).ok_or(Code::OUT_OF_MEMORY)?;
        if graph.is_alone() {
            return Err(Code::NOT_SUPPORTED);
        }
        graph.nodes.values().try_for_each(|node| match node.task {
            Task::Child(child) => self.check_clone(child, levels, room),
            _ => Ok(()),
        })
    }

    /// Clones a graph that was checked.
    fn clone_checked(&mut self, handle: usize) -> Outcome<usize> {
        let original = self.graph(handle)?.clone();
        let made = self.create();
        let mut clones = BTreeMap::new();
        for (&node, old) in &original.nodes {
            let task = match &old.task {
                Task::Child(child) => Task::Child(self.clone_checked(*child)?),
                other => other.clone(),
            };
            let new = self.add_node(made, &[], task)?;
            self.own_child(new);
            if let Some(copy) = self.graph_mut(made)?.nodes.get_mut(&new) {
                (copy.original, copy.local_id) = (Some(node), old.local_id);
            }
            clones.insert(node, new);
        }
        let edges: Vec<_> = original
            .edges()
            .filter_map(|(from, to)| {
                let data = original.data(from, to);
                Some(Edge { from: *clones.get(&from)?, to: *clones.get(&to)?, data })
            })
            .collect();
        let graph = self.graph_mut(made)?;
        graph.connect(&edges)?;
        graph.original = Some(handle);
        graph.objects = original.objects;
        let objects: Vec<_> =
            graph.objects.iter().map(|(&object, &count)| (object, count)).collect();
        for (object, count) in objects {
            self.objects.retain(object, count)?;
        }
        Ok(made)
    }

    /// Notes that the graphs of a child node or conditional node belong to the node.
    pub(crate) fn own_child(&mut self, node: usize) {
        let Ok(known) = self.node(node) else { return };
        for child in known.task.graphs().to_vec() {
            if let Some(child) = self.graphs.get_mut(&child) {
                child.owner = Some(node);
            }
        }
    }

    /// The node of a clone that a node of its original became.
    pub(crate) fn find_in_clone(&self, original: usize, clone: usize) -> Outcome<usize> {
        let source = self.graph_of(original)?;
        let graph = self.graph(clone)?;
        if graph.original != Some(source) {
            return Err(Code::INVALID_VALUE);
        }
        let mut nodes = graph.nodes.iter();
        let found = nodes.find(|(_, node)| node.original == Some(original));
        found.map(|(&node, _)| node).ok_or(Code::INVALID_VALUE)
    }
}
