//! The tables' part for conditional nodes, and the handles that decide about them.

use pagewise_hal::Code;

use crate::graphs::conditions::Handle;
use crate::graphs::tables::Graphs;
use crate::graphs::task::{Branch, Condition, Task};
use crate::outcome::Outcome;

impl Graphs {
    /// Makes a conditional handle for a node of a graph or of the graphs within it.
    ///
    /// # Errors
    /// As [`graph`](Self::graph).
    pub(crate) fn add_condition(&mut self, graph: usize, default: Option<u32>) -> Outcome<u64> {
        self.graph(graph)?;
        let handle = self.handle() as u64;
        self.conditions.0.insert(handle, Handle { graph, default, is_used: false });
        Ok(handle)
    }

    /// Whether a graph is another one, or within it.
    fn is_within(&self, graph: usize, outer: usize) -> bool {
        let mut at = Some(graph);
        while let Some(graph) = at {
            if graph == outer {
                return true;
            }
            let owner = self.graphs.get(&graph).and_then(|graph| graph.owner);
            at = owner.and_then(|node| self.nodes.get(&node).copied());
        }
        false
    }

    /// Makes a conditional node, with `count` empty graphs.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a handle of nothing, of a graph that this one is not within, or
    /// of a node that exists; those of a new node.
    pub(crate) fn add_conditional(
        &mut self,
        (graph, after): (usize, &[usize]),
        handle: u64,
        (branch, count): (Branch, u32),
    ) -> Outcome<(usize, Condition)> {
        let known = *self.conditions.0.get(&handle).ok_or(Code::INVALID_VALUE)?;
        if known.is_used || !self.is_within(graph, known.graph) {
            return Err(Code::INVALID_VALUE);
        }
        let bodies = (0..count).map(|_| self.create()).collect();
        let condition = Condition { handle, default: known.default, branch, bodies };
        let node = match self.add_node(graph, after, Task::Condition(condition.clone())) {
            Ok(node) => node,
            Err(code) => {
                for body in condition.bodies.iter() {
                    self.graphs.remove(body);
                }
                return Err(code);
            }
        };
        self.own_child(node);
        if let Some(known) = self.conditions.0.get_mut(&handle) {
            known.is_used = true;
        }
        Ok((node, condition))
    }
}
