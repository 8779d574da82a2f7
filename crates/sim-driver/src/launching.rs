//! Launches of executable graphs: the tasks run in the stream, one after the other, before the call
//! returns. Functions of the host are called by the thread that calls those of streams.

use std::ffi::c_void;

use pagewise_hal::{Backend, Code, StreamHandle};

use crate::driver::{Driver, Outcome, answer, stream};
use crate::graph_memory;
use crate::graphs::{AUTO_FREE, Graphs, Task};
use crate::launch::{Executor, Launch};
use crate::running;
use crate::touch_kernels::TouchKernel;
use crate::work::Work;

/// Launches an executable graph in a stream. A stream that captures gets a child node.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if an allocation of the graph exists already; the errors of the tasks,
/// of which those before the one that fails were carried out.
///
/// # Safety
/// No other code may use the memory of the tasks, and their functions must be sound to call.
pub(crate) unsafe fn launch(driver: &Driver, handle: usize, raw: *mut c_void) -> Outcome {
    driver.graphs().executable(handle)?;
    let on = stream(raw);
    let device = driver.device_of_stream(on)?;
    if let Some(key) = driver.capturing(on) {
        let mut graphs = driver.graphs();
        graphs.captures.check(key)?;
        let child = graphs.graph_of_executable(handle)?;
        let node = graphs.capture(key, Task::Child(child))?;
        graphs.own_child(node);
        return Ok(());
    }
    driver.check_legacy(on)?;
    let tasks = prepare(driver, &mut driver.graphs(), handle)?;
    let working = driver.working(on, device)?;
    for task in &tasks {
        // SAFETY: `run` asks what this function asks.
        unsafe { run(driver, task, (on, working)) }?;
    }
    Ok(())
}

/// The tasks of an executable graph, with memory for its allocations.
fn prepare(driver: &Driver, graphs: &mut Graphs, handle: usize) -> Outcome<Vec<Task>> {
    let executable = graphs.executable(handle)?;
    let (tasks, flags) = (executable.tasks(), executable.flags);
    let exists = |task: &&Task| match task {
        Task::Allocate(allocation) => graphs.memory.is_live(allocation.address),
        _ => false,
    };
    let left: Vec<Task> = tasks.iter().filter(exists).cloned().collect();
    if !left.is_empty() && flags & AUTO_FREE == 0 {
        return Err(Code::INVALID_VALUE);
    }
    graph_memory::map(driver, graphs, &tasks)?;
    for task in left {
        if let Task::Allocate(allocation) = task
            && graphs.memory.is_live(allocation.address)
        {
            graphs.memory.end(allocation.address)?;
        }
    }
    Ok(tasks)
}

/// Prepares an executable graph for its launch: its allocations get physical memory.
///
/// # Errors
/// `CUDA_ERROR_OUT_OF_MEMORY`
pub(crate) fn upload(driver: &Driver, handle: usize) -> Outcome {
    let mut graphs = driver.graphs();
    let tasks = graphs.executable(handle)?.tasks();
    graph_memory::map(driver, &mut graphs, &tasks)
}

/// Runs one task in a stream, and in the one that the simulator works on.
///
/// # Safety
/// As [`launch`].
unsafe fn run(
    driver: &Driver,
    task: &Task,
    (on, working): (StreamHandle, StreamHandle),
) -> Outcome {
    if let Task::Host(call) = task {
        return running::submit_host(driver, on, *call);
    }
    driver.wait_for_host(on);
    // SAFETY: `run` asks what this function asks.
    let work = |work| unsafe { running::run(driver, &work, working) };
    match task {
        Task::Kernel(launch) => execute(driver, launch, on),
        Task::Copy(copy) => work(Work::Slices(*copy)),
        Task::Fill(fill) => work(Work::Rows(*fill)),
        Task::Wait(event) => answer(driver.sim.stream_wait_event(on, *event)),
        Task::Record(event) => {
            answer(driver.sim.event_record(*event, on))?;
            driver.graphs().captures.record(event.as_raw(), None)
        }
        Task::Allocate(allocation) => {
            driver.graphs().memory.begin(allocation.address, allocation.bytes)
        }
        Task::Free(address) => driver.graphs().memory.end(*address),
        Task::Host(_) | Task::Child(_) | Task::Empty => Ok(()),
    }
}

/// Executes the launch of a kernel that passed its checks.
pub(crate) fn execute(driver: &Driver, launch: &Launch, on: StreamHandle) -> Outcome {
    let touch = TouchKernel::of(launch.function.kernel()?);
    let executor = touch.as_ref().map(|touch| touch as &dyn Executor);
    launch.run(driver, on, executor)
}
