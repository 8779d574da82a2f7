//! Executable graphs: the tasks of a graph in the order in which they run.

use std::collections::BTreeMap;
use std::ffi::c_int;

use pagewise_hal::Code;

use crate::copy_params::Memcpy3D;
use crate::graphs::task::{Condition, Task};
use crate::outcome::Outcome;

/// `CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED`
pub(super) const TOPOLOGY_CHANGED: c_int = 2;
/// `CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED`
const TYPE_CHANGED: c_int = 3;
/// `CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED`
const PARAMETERS_CHANGED: c_int = 5;
/// `CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED`
const NOT_SUPPORTED: c_int = 6;

/// One node of an executable graph.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The node of the graph.
    pub(crate) node: usize,
    pub(crate) task: Task,
    /// Steps of the same level that run before, by their places in the order.
    pub(super) after: Vec<usize>,
    pub(crate) is_enabled: bool,
    /// The steps of a child graph.
    pub(super) children: Vec<Step>,
}

impl Step {
    /// Whether a graph of a conditional node may have this step.
    pub(super) fn can_be_conditional(&self) -> bool {
        self.task.can_be_conditional() && self.children.iter().all(Self::can_be_conditional)
    }
}

/// A task in the order of a launch.
#[derive(Debug, Clone)]
pub(crate) enum Due {
    Task(Task),
    /// A conditional node, with the tasks of its graphs.
    Condition(Condition, Vec<Vec<Due>>),
}

/// The tasks of enabled steps in their order, those of child graphs in place of the child.
fn due(steps: &[Step]) -> Vec<Due> {
    let mut all = Vec::new();
    for step in steps.iter().filter(|step| step.is_enabled) {
        match &step.task {
            Task::Child(_) => all.extend(due(&step.children)),
            Task::Condition(condition) => {
                let bodies = step.children.iter().map(|body| due(&body.children)).collect();
                all.push(Due::Condition(condition.clone(), bodies));
            }
            task => all.push(Due::Task(task.clone())),
        }
    }
    all
}

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Executable {
    /// The graph that it was made of.
    pub(crate) graph: usize,
    pub(crate) flags: u64,
    pub(crate) id: u32,
    pub(crate) steps: Vec<Step>,
    /// References to user objects.
    pub(super) objects: BTreeMap<usize, u64>,
}

/// The reason why an executable graph cannot be updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Difference {
    /// A `CUgraphExecUpdateResult`.
    pub(crate) result: c_int,
    /// The node that it is about; 0 for none.
    pub(crate) node: usize,
}

impl Executable {
    /// The tasks of a launch, in their order.
    pub(crate) fn due(&self) -> Vec<Due> {
        due(&self.steps)
    }

    /// The tasks outside of conditional nodes: memory is allocated nowhere else.
    pub(crate) fn tasks(&self) -> Vec<Task> {
        let outside = self.due().into_iter().filter_map(|due| match due {
            Due::Task(task) => Some(task),
            Due::Condition(..) => None,
        });
        outside.collect()
    }

    /// The step of a node, in child graphs too.
    pub(crate) fn step(&mut self, node: usize) -> Outcome<&mut Step> {
        fn find(steps: &mut [Step], node: usize) -> Option<&mut Step> {
            for step in steps {
                if step.node == node {
                    return Some(step);
                }
                if let Some(found) = find(&mut step.children, node) {
                    return Some(found);
                }
            }
            None
        }
        find(&mut self.steps, node).ok_or(Code::INVALID_VALUE)
    }
}

/// Whether a task may take the place of another in an executable graph.
///
/// # Errors
/// A `CUgraphExecUpdateResult`.
pub(crate) fn compare(old: &Task, new: &Task) -> Result<(), c_int> {
    let kinds = |copy: &Memcpy3D| (copy.source.kind, copy.destination.kind);
    let is_fit = match (old, new) {
        _ if old.kind() != new.kind() => return Err(TYPE_CHANGED),
        (Task::Copy(old), Task::Copy(new)) => kinds(old) == kinds(new),
        (Task::Fill(old), Task::Fill(new)) => (old.height > 1) == (new.height > 1),
        (Task::Condition(old), Task::Condition(new)) => {
            old.branch == new.branch && old.bodies.len() == new.bodies.len()
        }
        (Task::Allocate(_) | Task::Free(_), _) => return Err(NOT_SUPPORTED),
        _ => true,
    };
    if is_fit { Ok(()) } else { Err(PARAMETERS_CHANGED) }
}

/// Whether the steps of one graph may take the place of those of another.
pub(super) fn compare_all(old: &[Step], new: &[Step]) -> Result<(), Difference> {
    let changed = Difference { result: TOPOLOGY_CHANGED, node: 0 };
    if old.len() != new.len() {
        return Err(changed);
    }
    for (old, new) in old.iter().zip(new) {
        if old.after != new.after {
            return Err(changed);
        }
        compare(&old.task, &new.task).map_err(|result| Difference { result, node: new.node })?;
        compare_all(&old.children, &new.children)?;
    }
    Ok(())
}

/// Gives steps the tasks of others that were compared with them.
pub(super) fn replace_all(old: &mut [Step], new: Vec<Step>) {
    for (old, new) in old.iter_mut().zip(new) {
        if !matches!(old.task, Task::Child(_)) {
            old.task = new.task;
        }
        replace_all(&mut old.children, new.children);
    }
}
