//! The tables of graphs: handles, and the graphs, nodes and executable graphs that they stand for.

use std::collections::BTreeMap;

use pagewise_hal::Code;

use crate::graphs::captures::{Captures, Key};
use crate::graphs::codes::{
    ILLEGAL_STATE, STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_UNJOINED, no_handle,
};
use crate::graphs::conditions::Conditions;
use crate::graphs::executable::Executable;
use crate::graphs::graph::{Graph, Node};
use crate::graphs::memory::Memory;
use crate::graphs::objects::Objects;
use crate::graphs::task::Task;
use crate::outcome::Outcome;

/// Child graphs are nested this deep at most.
pub(super) const DEPTH_MAX: usize = 64;
/// A graph has this many nodes at most, with those of its child graphs.
pub(super) const NODES_MAX: usize = 1 << 18;

/// All graphs, with what belongs to them.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    pub(super) graphs: BTreeMap<usize, Graph>,
    /// The graph of each node.
    pub(super) nodes: BTreeMap<usize, usize>,
    pub(super) executables: BTreeMap<usize, Executable>,
    pub(crate) captures: Captures,
    pub(crate) memory: Memory,
    pub(crate) objects: Objects,
    pub(super) conditions: Conditions,
    /// How many handles there have been.
    handles: usize,
    /// How many graphs there have been.
    ids: u32,
    /// How many executable graphs there have been.
    pub(super) executable_ids: u32,
}

impl Graphs {
    /// A handle that nothing has had.
    pub(crate) fn handle(&mut self) -> usize {
        self.handles = self.handles.saturating_add(1);
        // Handles of streams and events are small; contexts end in other bits.
        (0x67 << 56) | (self.handles << 4) | 8
    }

    /// Makes an empty graph.
    pub(crate) fn create(&mut self) -> usize {
        let handle = self.handle();
        self.ids = self.ids.wrapping_add(1);
        self.graphs.insert(handle, Graph::new(self.ids));
        handle
    }

    /// A graph.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for null, `CUDA_ERROR_INVALID_HANDLE` for a handle of no graph.
    pub(crate) fn graph(&self, handle: usize) -> Outcome<&Graph> {
        self.graphs.get(&handle).ok_or(no_handle(handle))
    }

    /// The same, to change it.
    pub(crate) fn graph_mut(&mut self, handle: usize) -> Outcome<&mut Graph> {
        self.graphs.get_mut(&handle).ok_or(no_handle(handle))
    }

    /// The graph that a node belongs to.
    ///
    /// # Errors
    /// As [`graph`](Self::graph).
    pub(crate) fn graph_of(&self, node: usize) -> Outcome<usize> {
        self.nodes.get(&node).copied().ok_or(no_handle(node))
    }

    /// A node, and the graph that it belongs to.
    ///
    /// # Errors
    /// As [`graph`](Self::graph).
    pub(crate) fn node(&self, handle: usize) -> Outcome<&Node> {
        self.graph(self.graph_of(handle)?)?.node(handle)
    }

    /// Gives a node another task of the same type.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for another type; as [`graph`](Self::graph).
    pub(crate) fn set_task(&mut self, handle: usize, task: Task) -> Outcome {
        let graph = self.graph_of(handle)?;
        let node = self.graph_mut(graph)?.nodes.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
        if node.task.kind() != task.kind() {
            return Err(Code::INVALID_VALUE);
        }
        node.task = task;
        Ok(())
    }

    /// Destroys a node with its edges.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` for a node that allocates or frees memory; as
    /// [`graph`](Self::graph).
    pub(crate) fn destroy_node(&mut self, handle: usize) -> Outcome {
        if self.node(handle)?.task.is_of_memory() {
            return Err(Code::NOT_SUPPORTED);
        }
        let graph = self.graph_of(handle)?;
        self.nodes.remove(&handle);
        if let Some(gone) = self.graph_mut(graph)?.remove(handle) {
            gone.task.graphs().iter().for_each(|&owned| self.remove(owned));
        }
        self.captures.forget_node(handle);
        Ok(())
    }

    /// Whether a graph exists, or an executable graph that was made of it.
    pub(crate) fn uses(&self, graph: usize) -> bool {
        self.graphs.contains_key(&graph)
            || self.executables.values().any(|executable| executable.graph == graph)
    }

    /// Adds a node to a graph, after others.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if a dependency is no node of the graph, or named twice;
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the graph is full.
    pub(crate) fn add_node(&mut self, graph: usize, after: &[usize], task: Task) -> Outcome<usize> {
        let target = self.graph(graph)?;
        target.check_nodes(after)?;
        if target.nodes.len() >= NODES_MAX {
            return Err(Code::OUT_OF_MEMORY);
        }
        let handle = self.handle();
        self.graph_mut(graph)?.add(handle, after, task);
        self.nodes.insert(handle, graph);
        Ok(handle)
    }

    /// Makes a node of work in a stream that captures.
    pub(crate) fn capture(&mut self, key: Key, task: Task) -> Outcome<usize> {
        self.captures.check(key)?;
        let (graph, tips) = self.captures.place(key)?;
        let node = self.add_node(graph, &tips, task)?;
        self.captures.advance(key, node);
        Ok(node)
    }

    /// Ends the capture of a stream and gives the graph, and whether it came to be with it.
    ///
    /// # Errors
    /// The codes of captures.
    pub(crate) fn end_capture(&mut self, key: Key) -> Outcome<(usize, bool)> {
        let ended = self.captures.end(key)?;
        let graph = ended.capture.graph;
        let joined = |graphs: &Self| {
            let graph = graphs.graph(graph).map_err(|_| STREAM_CAPTURE_INVALIDATED)?;
            let reached = graph.reached_backwards(ended.capture.ends());
            let is_joined = ended.capture.all_ends().all(|node| reached.contains(&node));
            if is_joined { Ok(()) } else { Err(STREAM_CAPTURE_UNJOINED) }
        };
        match ended.outcome.and_then(|()| joined(self)) {
            Ok(()) => Ok((graph, ended.capture.makes_graph)),
            Err(code) => {
                if ended.capture.makes_graph {
                    self.remove(graph);
                }
                Err(code)
            }
        }
    }

    /// A stream is gone.
    pub(crate) fn forget_stream(&mut self, key: Key) {
        if let Some(capture) = self.captures.forget_stream(key)
            && capture.makes_graph
        {
            self.remove(capture.graph);
        }
    }

    /// A context is gone.
    pub(crate) fn forget_context(&mut self, context: usize) {
        for capture in self.captures.forget_context(context) {
            if capture.makes_graph {
                self.remove(capture.graph);
            }
        }
    }

    /// Destroys a graph of the program.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if a child node owns it; `CUDA_ERROR_ILLEGAL_STATE` while a capture
    /// makes nodes of it; as [`graph`](Self::graph).
    pub(crate) fn destroy(&mut self, handle: usize) -> Outcome {
        if self.graph(handle)?.owner.is_some() {
            return Err(Code::INVALID_VALUE);
        }
        if self.captures.is_into(handle) {
            return Err(ILLEGAL_STATE);
        }
        self.remove(handle);
        Ok(())
    }

    /// Removes a graph with its nodes, and the graphs of its child nodes.
    fn remove(&mut self, handle: usize) {
        let mut next = vec![handle];
        while let Some(handle) = next.pop() {
            let Some(graph) = self.graphs.remove(&handle) else { continue };
            self.captures.forget_graph(handle);
            self.conditions.forget_graph(handle);
            for (object, count) in graph.objects {
                self.objects.release(object, count);
            }
            for (node, Node { task, .. }) in graph.nodes {
                self.nodes.remove(&node);
                next.extend(task.graphs());
            }
        }
    }
}
