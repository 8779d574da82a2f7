//! Launches of kernels and of executable graphs. The tasks of a graph run in the stream, one after
//! the other. Those behind a function of the host wait for it, as other work of the stream does.

use std::ffi::c_void;

use pagewise_hal::{Code, StreamHandle};
use pagewise_sim::KernelOutput;

use crate::deferring::{self, KernelRest};
use crate::driver::{Driver, Outcome, stream};
use crate::graph_memory;
use crate::graphs::{AUTO_FREE, Branch, Condition, Due, Graphs, Task};
use crate::holding;
use crate::kernels::PtxKernel;
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
    let all = prepare(driver, &mut driver.graphs(), handle)?;
    let working = driver.working(on, device)?;
    let defaults = defaults_of(&all);
    if !defaults.is_empty() {
        now_or_later(driver, on, move |driver| {
            defaults.iter().for_each(|&(handle, value)| driver.output.set_condition(handle, value));
            Ok(())
        })?;
    }
    for due in all {
        match due {
            // SAFETY: `run` asks what this function asks.
            Due::Task(task) => unsafe { run(driver, &task, (on, working)) }?,
            Due::Condition(condition, bodies) => now_or_later(driver, on, move |driver| {
                // SAFETY: `branch` asks what this function asks.
                unsafe { branch(driver, &condition, &bodies, (on, working)) }
            })?,
        }
    }
    Ok(())
}

/// The values that conditions begin a launch with, with those of inner conditions.
fn defaults_of(all: &[Due]) -> Vec<(u64, u32)> {
    let each = all.iter().flat_map(|due| match due {
        Due::Task(_) => Vec::new(),
        Due::Condition(condition, bodies) => {
            let own = condition.default.map(|value| (condition.handle, value));
            let inner = bodies.iter().flat_map(|body| defaults_of(body));
            own.into_iter().chain(inner).collect()
        }
    });
    each.collect()
}

/// Does something in the order of a stream.
fn now_or_later(
    driver: &Driver,
    on: StreamHandle,
    operation: impl FnOnce(&Driver) -> Outcome + Send + 'static,
) -> Outcome {
    let lane = driver.lane(on);
    if driver.deferred.is_behind(lane) {
        return deferring::later(driver, lane, operation);
    }
    operation(driver)
}

/// Runs the graphs of a conditional node, which hold no functions of the host. A device that is
/// lost ends a loop.
///
/// # Safety
/// As [`launch`].
unsafe fn branch(
    driver: &Driver,
    condition: &Condition,
    bodies: &[Vec<Due>],
    on: (StreamHandle, StreamHandle),
) -> Outcome {
    let value = || driver.output.condition(condition.handle);
    let body = |index: usize| {
        for due in bodies.get(index).into_iter().flatten() {
            // SAFETY: both functions ask what this function asks.
            unsafe {
                match due {
                    Due::Task(task) => carry_out(driver, task, on)
                        .and_then(|rest| deferring::wait_for_rest(driver, rest)),
                    Due::Condition(inner, bodies) => branch(driver, inner, bodies, on),
                }
            }?;
        }
        driver.faults.of_work()
    };
    match condition.branch {
        Branch::If => body(usize::from(value() == 0)),
        Branch::Switch => body(value() as usize),
        Branch::While => {
            while value() != 0 {
                body(0)?;
            }
            Ok(())
        }
    }
}

/// The tasks of an executable graph, with memory for its allocations.
fn prepare(driver: &Driver, graphs: &mut Graphs, handle: usize) -> Outcome<Vec<Due>> {
    let executable = graphs.executable(handle)?;
    let (tasks, all, flags) = (executable.tasks(), executable.due(), executable.flags);
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
    Ok(all)
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
    let lane = driver.lane(on);
    match task {
        Task::Host(call) => return running::submit_host(driver, on, *call),
        Task::Wait(event) => return deferring::wait(driver, *event, on),
        Task::Record(event) => {
            deferring::record(driver, *event, on)?;
            return driver.graphs().captures.record(event.as_raw(), None);
        }
        Task::Child(_) | Task::Condition(_) | Task::Empty => return Ok(()),
        _ if driver.deferred.is_behind(lane) => {}
        _ => {
            // SAFETY: `carry_out` asks what this function asks.
            let rest = unsafe { carry_out(driver, task, (on, working)) }?;
            return deferring::go_on_later(driver, lane, rest);
        }
    }
    let task = task.clone();
    deferring::kernel_later(driver, lane, move |driver| {
        // SAFETY: `carry_out` asks what this function asks, until the stream reaches the task.
        unsafe { carry_out(driver, &task, (on, working)) }
    })
}

/// Carries out a task of memory or of a kernel. Gives the rest of a kernel that waits for memory to
/// change.
///
/// # Safety
/// As [`launch`].
unsafe fn carry_out(
    driver: &Driver,
    task: &Task,
    (on, working): (StreamHandle, StreamHandle),
) -> Outcome<Option<KernelRest>> {
    // SAFETY: `run` asks what this function asks.
    let work = |work| unsafe { running::run(driver, &work, working) };
    match task {
        Task::Kernel(node) => return run_now(driver, &node.launch, on),
        Task::Copy(copy) => work(Work::Slices(*copy)),
        Task::Fill(fill) => work(Work::Rows(*fill)),
        Task::Allocate(allocation) => {
            driver.graphs().memory.begin(allocation.address, allocation.bytes)
        }
        Task::Free(address) => driver.graphs().memory.end(*address),
        Task::Host(_) | Task::Wait(_) | Task::Record(_) => Ok(()),
        Task::Child(_) | Task::Condition(_) | Task::Empty => Ok(()),
    }?;
    Ok(None)
}

/// Launches a kernel that passed its checks, in the order of its stream.
pub(crate) fn launch_kernel(driver: &Driver, launch: Launch, on: StreamHandle) -> Outcome {
    let lane = driver.lane(on);
    if driver.deferred.is_behind(lane) {
        executor(&launch)?.check(driver, &launch, on)?;
        return deferring::kernel_later(driver, lane, move |driver| run_now(driver, &launch, on));
    }
    let ready = executor(&launch)?.ready(driver, &launch, on)?;
    holding::hold(driver, lane, ready)
}

/// Runs a kernel in its turn.
fn run_now(driver: &Driver, launch: &Launch, on: StreamHandle) -> Outcome<Option<KernelRest>> {
    executor(launch)?.ready(driver, launch, on)?(driver)
}

/// The executor of a launch's kernel.
fn executor(launch: &Launch) -> Outcome<Box<dyn Executor>> {
    Ok(match TouchKernel::of(launch.function.kernel()?) {
        Some(touch) => Box::new(touch),
        None => Box::new(PtxKernel),
    })
}
