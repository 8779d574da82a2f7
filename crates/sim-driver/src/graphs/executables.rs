//! The tables' part for executable graphs: instantiation, updates, and launches that are captured.

use std::collections::{BTreeMap, BTreeSet};

use pagewise_hal::Code;

use crate::graphs::codes::no_handle;
use crate::graphs::executable::{
    Difference, Executable, Step, TOPOLOGY_CHANGED, compare_all, replace_all,
};
use crate::graphs::tables::{DEPTH_MAX, Graphs, NODES_MAX};
use crate::graphs::task::Task;
use crate::outcome::Outcome;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`
pub(crate) const AUTO_FREE: u64 = 1;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`
pub(crate) const UPLOAD: u64 = 2;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`
const DEVICE_LAUNCH: u64 = 4;
/// All flags, with `CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`.
const FLAGS: u64 = 15;

/// Whether a device could launch steps: they launch kernels, copy, fill, or are children of such.
fn are_of_devices(steps: &[Step]) -> bool {
    steps.iter().all(|step| match step.task {
        Task::Kernel(_) | Task::Copy(_) | Task::Fill(_) => true,
        Task::Child(_) => are_of_devices(&step.children),
        _ => false,
    })
}

impl Graphs {
    /// The steps of a graph.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if there is a circle; `CUDA_ERROR_OUT_OF_MEMORY` if there are too
    /// many nodes or levels.
    fn steps(&self, handle: usize, levels: usize, room: &mut usize) -> Outcome<Vec<Step>> {
        let graph = self.graph(handle)?;
        let levels = levels.checked_sub(1).ok_or(Code::OUT_OF_MEMORY)?;
        *room = room.checked_sub(graph.nodes.len()).ok_or(Code::OUT_OF_MEMORY)?;
        let order = graph.order().ok_or(Code::INVALID_VALUE)?;
        let places: BTreeMap<usize, usize> =
            order.iter().enumerate().map(|(place, &node)| (node, place)).collect();
        let step = |&node: &usize| {
            let known = graph.node(node)?;
            let children = match known.task {
                Task::Child(child) => self.steps(child, levels, room)?,
                Task::Condition(ref condition) => {
                    let bodies = condition.bodies.iter();
                    bodies.map(|body| self.body(*body, levels, room)).collect::<Outcome<_>>()?
                }
                _ => Vec::new(),
            };
            let after = known.after.iter().filter_map(|node| places.get(node).copied());
            let (task, after) = (known.task.clone(), after.collect());
            Ok(Step { node, task, after, is_enabled: true, children })
        };
        order.iter().map(step).collect()
    }

    /// A graph of a conditional node, as the step of a child.
    fn body(&self, graph: usize, levels: usize, room: &mut usize) -> Outcome<Step> {
        let children = self.steps(graph, levels, room)?;
        if !children.iter().all(Step::can_be_conditional) {
            return Err(Code::INVALID_VALUE);
        }
        let (node, task) = (graph, Task::Child(graph));
        Ok(Step { node, task, after: Vec::new(), is_enabled: true, children })
    }

    /// Makes an executable graph. `may_upload` says whether the call takes the flag for that.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for unknown flags and circles, and if devices may launch the graph
    /// and a node is none of a kernel, a copy, a fill or a child; `CUDA_ERROR_NOT_SUPPORTED` if the
    /// graph has nodes of memory or of conditions and an executable graph already.
    pub(crate) fn instantiate(
        &mut self,
        graph: usize,
        flags: u64,
        may_upload: bool,
    ) -> Outcome<usize> {
        let known = self.graph(graph)?;
        let both = AUTO_FREE | DEVICE_LAUNCH;
        if flags & !FLAGS != 0 || flags & both == both || (flags & UPLOAD != 0 && !may_upload) {
            return Err(Code::INVALID_VALUE);
        }
        let mut others = self.executables.values();
        if known.is_alone() && others.any(|one| one.graph == graph) {
            return Err(Code::NOT_SUPPORTED);
        }
        let objects = known.objects.clone();
        let steps = self.steps(graph, DEPTH_MAX, &mut { NODES_MAX })?;
        if flags & DEVICE_LAUNCH != 0 && !are_of_devices(&steps) {
            return Err(Code::INVALID_VALUE);
        }
        for (&object, &count) in &objects {
            self.objects.retain(object, count)?;
        }
        let handle = self.handle();
        self.executable_ids = self.executable_ids.wrapping_add(1);
        let id = self.executable_ids;
        self.executables.insert(handle, Executable { graph, flags, id, steps, objects });
        Ok(handle)
    }

    /// An executable graph.
    ///
    /// # Errors
    /// As [`graph`](Self::graph).
    pub(crate) fn executable(&mut self, handle: usize) -> Outcome<&mut Executable> {
        self.executables.get_mut(&handle).ok_or(no_handle(handle))
    }

    /// Destroys an executable graph.
    ///
    /// # Errors
    /// As [`graph`](Self::graph).
    pub(crate) fn destroy_executable(&mut self, handle: usize) -> Outcome {
        let gone = self.executables.remove(&handle).ok_or(no_handle(handle))?;
        for (object, count) in gone.objects {
            self.objects.release(object, count);
        }
        Ok(())
    }

    /// Gives an executable graph the tasks of another graph of the same shape.
    ///
    /// # Errors
    /// `Ok(Err(_))` says what differs; the outer errors are those of the handles.
    pub(crate) fn update(
        &mut self,
        executable: usize,
        graph: usize,
    ) -> Outcome<Result<(), Difference>> {
        self.executable(executable)?;
        let new = match self.steps(graph, DEPTH_MAX, &mut { NODES_MAX }) {
            Ok(new) => new,
            Err(Code::INVALID_HANDLE) => return Err(Code::INVALID_HANDLE),
            Err(_) if graph == 0 => return Err(Code::INVALID_VALUE),
            Err(_) => return Ok(Err(Difference { result: TOPOLOGY_CHANGED, node: 0 })),
        };
        let old = self.executable(executable)?;
        if let Err(difference) = compare_all(&old.steps, &new) {
            return Ok(Err(difference));
        }
        replace_all(&mut old.steps, new);
        self.exchange_objects(executable, graph)?;
        Ok(Ok(()))
    }

    /// An executable graph keeps the user objects of the graph that it was updated with, and no others.
    fn exchange_objects(&mut self, executable: usize, graph: usize) -> Outcome {
        let new = self.graph(graph)?.objects.clone();
        for (&object, &count) in &new {
            self.objects.retain(object, count)?;
        }
        let old = std::mem::replace(&mut self.executable(executable)?.objects, new);
        for (object, count) in old {
            self.objects.release(object, count);
        }
        Ok(())
    }

    /// Gives a child of an executable graph the tasks of another graph of the same shape.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a node that is no child, and another shape; as
    /// [`graph`](Self::graph).
    pub(crate) fn update_child(&mut self, handle: usize, node: usize, graph: usize) -> Outcome {
        self.executable(handle)?;
        let new = self.steps(graph, DEPTH_MAX, &mut { NODES_MAX })?;
        let step = self.executable(handle)?.step(node)?;
        if !matches!(step.task, Task::Child(_)) || compare_all(&step.children, &new).is_err() {
            return Err(Code::INVALID_VALUE);
        }
        replace_all(&mut step.children, new);
        Ok(())
    }

    /// A graph with the nodes of an executable graph, for a capture of its launch.
    ///
    /// # Errors
    /// As [`clone_graph`](Self::clone_graph).
    pub(crate) fn graph_of_executable(&mut self, handle: usize) -> Outcome<usize> {
        let steps = self.executable(handle)?.steps.clone();
        self.graph_of_steps(&steps)
    }

    fn graph_of_steps(&mut self, steps: &[Step]) -> Outcome<usize> {
        if steps.iter().any(|step| step.task.is_of_one_graph()) {
            return Err(Code::NOT_SUPPORTED);
        }
        let graph = self.create();
        let mut made: Vec<usize> = Vec::with_capacity(steps.len());
        for step in steps {
            let task = match step.task {
                _ if !step.is_enabled => Task::Empty,
                Task::Child(_) => Task::Child(self.graph_of_steps(&step.children)?),
                _ => step.task.clone(),
            };
            let after: BTreeSet<usize> =
                step.after.iter().filter_map(|&place| made.get(place).copied()).collect();
            let node = self.add_node(graph, &after.into_iter().collect::<Vec<_>>(), task)?;
            self.own_child(node);
            made.push(node);
        }
        Ok(graph)
    }
}
