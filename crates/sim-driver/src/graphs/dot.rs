//! Graphs as text in the DOT language.

use std::fmt::Write as _;

use crate::graphs::tables::Graphs;
use crate::graphs::task::Task;
use crate::outcome::Outcome;

/// `CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE` and `CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES`
const HANDLES: u32 = 1 | 1 << 10;

impl Task {
    /// The type in words.
    fn name(&self) -> &'static str {
        match self {
            Self::Kernel(_) => "KERNEL",
            Self::Copy(_) => "MEMCPY",
            Self::Fill(_) => "MEMSET",
            Self::Host(_) => "HOST",
            Self::Child(_) => "GRAPH",
            Self::Empty => "EMPTY",
            Self::Wait(_) => "WAIT_EVENT",
            Self::Record(_) => "EVENT_RECORD",
            Self::Allocate(_) => "MEM_ALLOC",
            Self::Free(_) => "MEM_FREE",
            Self::Condition(_) => "CONDITIONAL",
        }
    }
}

impl Graphs {
    /// A graph with the graphs of its child nodes, each as a cluster.
    ///
    /// # Errors
    /// As [`graph`](Self::graph).
    pub(crate) fn dot(&self, handle: usize, flags: u32) -> Outcome<String> {
        self.graph(handle)?;
        let mut text = String::from("digraph dot {\n");
        let mut next = vec![handle];
        while let Some(handle) = next.pop() {
            let graph = self.graph(handle)?;
            let id = graph.id;
            // Text has room, so writing cannot fail.
            _ = writeln!(
                text,
                "subgraph cluster_{id} {{\nlabel=\"graph_{id}\" graph[style=dashed]"
            );
            for (handle, node) in &graph.nodes {
                let (local, name) = (node.local_id, node.task.name());
                _ = write!(
                    text,
                    "\"graph_{id}_node_{local}\"[shape=rectangle label=\"{local}\\n{name}"
                );
                if flags & HANDLES != 0 {
                    _ = write!(text, "\\n{handle:#x}");
                }
                text += "\"];\n";
                next.extend(node.task.graphs());
            }
            for (from, to) in graph.edges() {
                let (from, to) = (graph.node(from)?.local_id, graph.node(to)?.local_id);
                _ = writeln!(text, "\"graph_{id}_node_{from}\" -> \"graph_{id}_node_{to}\";");
            }
            text += "}\n";
        }
        text += "}\n";
        Ok(text)
    }
}
