//! Entry points of executable graphs: they are made, launched, updated and destroyed.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

use pagewise_hal::Code;

use crate::copy_params::Memcpy3D;
use crate::driver::{Driver, Outcome, has_place, load, started, store, stream};
use crate::entry::graphs::parameters::{check_context, copy, fill, host, known_event};
use crate::graphs::{Difference, GRAPH_EXEC_UPDATE_FAILURE, Graphs, Task, UPLOAD, compare};
use crate::launching;
use crate::work::{HostNodeParams, MemsetParams};

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct InstantiateParams {
    /// `CUgraphInstantiate_flags`
    pub flags: u64,
    /// The stream of the upload, if a flag asks for one.
    pub upload_stream: *mut c_void,
    /// The node that a refusal is about.
    pub error_node: *mut c_void,
    /// `CUgraphInstantiateResult`
    pub result: c_int,
}

/// `CUDA_GRAPH_INSTANTIATE_ERROR`
const INSTANTIATE_ERROR: c_int = 1;

/// `CUgraphExecUpdateResultInfo`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct UpdateResult {
    /// `CUgraphExecUpdateResult`
    pub result: c_int,
    /// The node that differs.
    pub error_node: *mut c_void,
    /// The node before it, if an edge differs.
    pub error_from_node: *mut c_void,
}

/// Makes an executable graph.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn instantiate(
    driver: &Driver,
    (out, graph): (*mut *mut c_void, *mut c_void),
    flags: u64,
    may_upload: bool,
) -> Outcome<usize> {
    has_place(out)?;
    let made = driver.graphs().instantiate(graph.addr(), flags, may_upload)?;
    // SAFETY: by this function's contract the place is null or valid for writing.
    unsafe { store(out, without_provenance_mut(made)) }?;
    Ok(made)
}

/// `cuGraphInstantiate`, the form of CUDA 10.0. Nothing is written to the places for errors.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiate(
    out: *mut *mut c_void,
    graph: *mut c_void,
    _error_node: *mut *mut c_void,
    _log: *mut c_char,
    _log_bytes: usize,
) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    started("cuGraphInstantiate", |driver| unsafe {
        instantiate(driver, (out, graph), 0, false).map(drop)
    })
}

/// `cuGraphInstantiate`, the form of CUDA 11.0: as [`cuGraphInstantiate`].
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiate_v2(
    out: *mut *mut c_void,
    graph: *mut c_void,
    _error_node: *mut *mut c_void,
    _log: *mut c_char,
    _log_bytes: usize,
) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    started("cuGraphInstantiate_v2", |driver| unsafe {
        instantiate(driver, (out, graph), 0, false).map(drop)
    })
}

/// `cuGraphInstantiateWithFlags`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    out: *mut *mut c_void,
    graph: *mut c_void,
    flags: u64,
) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    started("cuGraphInstantiateWithFlags", |driver| unsafe {
        instantiate(driver, (out, graph), flags, false).map(drop)
    })
}

/// `cuGraphInstantiateWithParams`
///
/// # Safety
/// `params` must be null or valid for reading and writing; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithParams(
    out: *mut *mut c_void,
    graph: *mut c_void,
    params: *mut InstantiateParams,
) -> c_int {
    started("cuGraphInstantiateWithParams", |driver| {
        // SAFETY: the caller promises of the places what `load`, `instantiate` and `store` ask for.
        unsafe {
            let mut read = load(params.cast_const())?;
            let uploads = read.flags & UPLOAD != 0;
            if uploads {
                driver.device_of_stream(stream(read.upload_stream))?;
            }
            let made = instantiate(driver, (out, graph), read.flags, true);
            read.error_node = std::ptr::null_mut();
            read.result = if made.is_ok() { 0 } else { INSTANTIATE_ERROR };
            store(params, read)?;
            let made = made?;
            if uploads { launching::upload(driver, made) } else { Ok(()) }
        }
    })
}

/// `cuGraphExecDestroy`
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(executable: *mut c_void) -> c_int {
    started("cuGraphExecDestroy", |driver| {
        driver.graphs().destroy_executable(executable.addr())?;
        driver.drop_objects();
        Ok(())
    })
}

/// `cuGraphLaunch`: the nodes run one after the other, in the order of creation where edges leave a
/// choice.
///
/// # Safety
/// No other code may use the memory of the nodes, and their functions must be sound to call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(executable: *mut c_void, on: *mut c_void) -> c_int {
    // SAFETY: the caller promises what `launch` asks for.
    started("cuGraphLaunch", |driver| unsafe { launching::launch(driver, executable.addr(), on) })
}

/// `cuGraphUpload`: memory of the graph comes to be.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphUpload(executable: *mut c_void, on: *mut c_void) -> c_int {
    started("cuGraphUpload", |driver| {
        driver.graphs().executable(executable.addr())?;
        driver.stream(on)?;
        launching::upload(driver, executable.addr())
    })
}

/// `cuGraphExecGetFlags`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecGetFlags(executable: *mut c_void, flags: *mut u64) -> c_int {
    started("cuGraphExecGetFlags", |driver| {
        let found = driver.graphs().executable(executable.addr())?.flags;
        // The upload was a matter of the call that made the graph.
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(flags, found & !UPLOAD) }
    })
}

/// `cuGraphExecGetId`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecGetId(executable: *mut c_void, id: *mut c_uint) -> c_int {
    started("cuGraphExecGetId", |driver| {
        let found = driver.graphs().executable(executable.addr())?.id;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(id, found) }
    })
}

/// Updates an executable graph, and says how that went.
fn update(
    driver: &Driver,
    executable: *mut c_void,
    graph: *mut c_void,
) -> Outcome<Result<(), Difference>> {
    let updated = driver.graphs().update(executable.addr(), graph.addr())?;
    driver.drop_objects();
    Ok(updated)
}

/// `cuGraphExecUpdate`, the form of CUDA 10.2
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecUpdate(
    executable: *mut c_void,
    graph: *mut c_void,
    error_node: *mut *mut c_void,
    result: *mut c_int,
) -> c_int {
    started("cuGraphExecUpdate", |driver| {
        has_place(error_node)?;
        has_place(result)?;
        let updated = update(driver, executable, graph)?;
        let difference = updated.err().unwrap_or(Difference { result: 0, node: 0 });
        // SAFETY: the caller promises that the places are null or valid for writing.
        unsafe {
            store(error_node, without_provenance_mut(difference.node))?;
            store(result, difference.result)?;
        }
        if updated.is_ok() { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    })
}

/// `cuGraphExecUpdate`, the form of CUDA 12.0
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecUpdate_v2(
    executable: *mut c_void,
    graph: *mut c_void,
    result: *mut UpdateResult,
) -> c_int {
    started("cuGraphExecUpdate_v2", |driver| {
        has_place(result)?;
        let updated = update(driver, executable, graph)?;
        let difference = updated.err().unwrap_or(Difference { result: 0, node: 0 });
        let found = UpdateResult {
            result: difference.result,
            error_node: without_provenance_mut(difference.node),
            error_from_node: std::ptr::null_mut(),
        };
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(result, found) }?;
        if updated.is_ok() { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
    })
}

/// Sets the parameters of a node in an executable graph.
pub(super) fn set_step(
    driver: &Driver,
    executable: *mut c_void,
    node: *mut c_void,
    task: impl FnOnce(&Graphs) -> Outcome<Task>,
) -> Outcome {
    let mut graphs = driver.graphs();
    graphs.executable(executable.addr())?;
    let task = task(&graphs)?;
    let step = graphs.executable(executable.addr())?.step(node.addr())?;
    compare(&step.task, &task).map_err(|_| Code::INVALID_VALUE)?;
    step.task = task;
    Ok(())
}

/// `cuGraphExecMemcpyNodeSetParams`
///
/// # Safety
/// `params` must be null or valid for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecMemcpyNodeSetParams(
    executable: *mut c_void,
    node: *mut c_void,
    params: *const Memcpy3D,
    context: *mut c_void,
) -> c_int {
    started("cuGraphExecMemcpyNodeSetParams", |driver| {
        check_context(driver, context)?;
        // SAFETY: the caller promises that the place is null or valid for reading.
        let params = unsafe { load(params) }?;
        set_step(driver, executable, node, |graphs| copy(driver, graphs, params))
    })
}

/// `cuGraphExecMemsetNodeSetParams`
///
/// # Safety
/// `params` must be null or valid for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecMemsetNodeSetParams(
    executable: *mut c_void,
    node: *mut c_void,
    params: *const MemsetParams,
    context: *mut c_void,
) -> c_int {
    started("cuGraphExecMemsetNodeSetParams", |driver| {
        check_context(driver, context)?;
        // SAFETY: the caller promises that the place is null or valid for reading.
        let params = unsafe { load(params) }?;
        set_step(driver, executable, node, |graphs| fill(driver, graphs, params))
    })
}

/// `cuGraphExecHostNodeSetParams`
///
/// # Safety
/// `params` must be null or valid for reading, and the function sound to call whenever the node
/// runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecHostNodeSetParams(
    executable: *mut c_void,
    node: *mut c_void,
    params: *const HostNodeParams,
) -> c_int {
    started("cuGraphExecHostNodeSetParams", |driver| {
        // SAFETY: the caller promises that the place is null or valid for reading.
        let params = unsafe { load(params) }?;
        set_step(driver, executable, node, |_| host(params))
    })
}

/// `cuGraphExecEventRecordNodeSetEvent`
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecEventRecordNodeSetEvent(
    executable: *mut c_void,
    node: *mut c_void,
    event: *mut c_void,
) -> c_int {
    started("cuGraphExecEventRecordNodeSetEvent", |driver| {
        set_step(driver, executable, node, |_| known_event(driver, event).map(Task::Record))
    })
}

/// `cuGraphExecEventWaitNodeSetEvent`
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecEventWaitNodeSetEvent(
    executable: *mut c_void,
    node: *mut c_void,
    event: *mut c_void,
) -> c_int {
    started("cuGraphExecEventWaitNodeSetEvent", |driver| {
        set_step(driver, executable, node, |_| known_event(driver, event).map(Task::Wait))
    })
}

/// `cuGraphExecChildGraphNodeSetParams`: the child gets the tasks of a graph of the same shape.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecChildGraphNodeSetParams(
    executable: *mut c_void,
    node: *mut c_void,
    child: *mut c_void,
) -> c_int {
    started("cuGraphExecChildGraphNodeSetParams", |driver| {
        driver.graphs().update_child(executable.addr(), node.addr(), child.addr())
    })
}

/// `cuGraphNodeSetEnabled`: of kernels, copies and fills.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphNodeSetEnabled(
    executable: *mut c_void,
    node: *mut c_void,
    enabled: c_uint,
) -> c_int {
    started("cuGraphNodeSetEnabled", |driver| {
        let mut graphs = driver.graphs();
        let step = graphs.executable(executable.addr())?.step(node.addr())?;
        if !step.task.can_be_disabled() {
            return Err(Code::INVALID_VALUE);
        }
        step.is_enabled = enabled != 0;
        Ok(())
    })
}

/// `cuGraphNodeGetEnabled`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetEnabled(
    executable: *mut c_void,
    node: *mut c_void,
    enabled: *mut c_uint,
) -> c_int {
    started("cuGraphNodeGetEnabled", |driver| {
        has_place(enabled)?;
        let mut graphs = driver.graphs();
        let step = graphs.executable(executable.addr())?.step(node.addr())?;
        if !step.task.can_be_disabled() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(enabled, step.is_enabled.into()) }
    })
}
