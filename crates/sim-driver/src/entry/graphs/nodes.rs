//! Entry points that make nodes of each type, and read and set their parameters.

use std::ffi::{c_int, c_void};
use std::ptr::without_provenance_mut;

use pagewise_hal::Code;

use crate::copy_params::Memcpy3D;
use crate::driver::{Driver, Outcome, has_place, load, started, store};
use crate::entry::MemLocation;
use crate::entry::graphs::arrays::handles;
pub use crate::entry::graphs::parameters::MemAllocNodeParams;
use crate::entry::graphs::parameters::{
    check_context, copy, fill, host, known_event, wanted_memory,
};
use crate::entry::pools::{DEVICE, MemPoolProps};
use crate::graph_memory;
use crate::graphs::{Allocation, Graphs, Task};
pub use crate::work::{HostNodeParams, MemsetParams};

/// Places of a call that makes a node: the result, the graph, and the nodes before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewNode {
    pub(super) out: *mut *mut c_void,
    pub(super) graph: *mut c_void,
    pub(super) after: *const *mut c_void,
    pub(super) count: usize,
}

/// Makes a node.
///
/// # Safety
/// The result's place must be null or valid for writing, and the array of nodes null or as long as
/// it says.
pub(super) unsafe fn add(
    driver: &Driver,
    new: NewNode,
    make: impl FnOnce(&mut Graphs, (usize, &[usize])) -> Outcome<usize>,
) -> Outcome {
    has_place(new.out)?;
    // SAFETY: by this function's contract the places are null, or valid and as long as they say.
    let after = unsafe { handles(new.after, new.count) }?;
    let made = {
        let mut graphs = driver.graphs();
        let graph = new.graph.addr();
        graphs.graph(graph)?.check_nodes(&after)?;
        make(&mut graphs, (graph, &after))?
    };
    // SAFETY: by this function's contract the places are null, or valid and as long as they say.
    unsafe { store(new.out, without_provenance_mut(made)) }
}

/// Makes a node with a task.
///
/// # Safety
/// As [`add`].
pub(super) unsafe fn add_task(
    driver: &Driver,
    new: NewNode,
    task: impl FnOnce(&Graphs) -> Outcome<Task>,
) -> Outcome {
    // SAFETY: by this function's contract the places are null, or valid and as long as they say.
    unsafe {
        add(driver, new, |graphs, (graph, after)| {
            let task = task(graphs)?;
            graphs.add_node(graph, after, task)
        })
    }
}

/// Makes a node that owns a clone of a graph.
///
/// # Safety
/// As [`add`].
pub(super) unsafe fn add_child(driver: &Driver, new: NewNode, child: usize) -> Outcome {
    // SAFETY: by this function's contract the places are null, or valid and as long as they say.
    unsafe {
        add(driver, new, |graphs, (graph, after)| {
            let clone = graphs.clone_graph(child)?;
            let node = graphs.add_node(graph, after, Task::Child(clone))?;
            graphs.own_child(node);
            Ok(node)
        })
    }
}

/// `cuGraphAddEmptyNode`
///
/// # Safety
/// `after` must be null or have `count` items; `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddEmptyNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises of the places what `add_task` asks for.
    started("cuGraphAddEmptyNode", |driver| unsafe { add_task(driver, new, |_| Ok(Task::Empty)) })
}

/// `cuGraphAddMemcpyNode`
///
/// # Safety
/// As [`cuGraphAddEmptyNode`]; `params` must be null or valid for reading. No other code may use
/// the memory while the node runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemcpyNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    params: *const Memcpy3D,
    context: *mut c_void,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    started("cuGraphAddMemcpyNode", |driver| {
        check_context(driver, context)?;
        // SAFETY: the caller promises of the places what `load` and `add_task` ask for.
        unsafe {
            let params = load(params)?;
            add_task(driver, new, |graphs| copy(driver, graphs, params))
        }
    })
}

/// `cuGraphAddMemsetNode`
///
/// # Safety
/// As [`cuGraphAddMemcpyNode`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemsetNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    params: *const MemsetParams,
    context: *mut c_void,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    started("cuGraphAddMemsetNode", |driver| {
        check_context(driver, context)?;
        // SAFETY: the caller promises of the places what `load` and `add_task` ask for.
        unsafe {
            let params = load(params)?;
            add_task(driver, new, |graphs| fill(driver, graphs, params))
        }
    })
}

/// `cuGraphAddHostNode`
///
/// # Safety
/// As [`cuGraphAddEmptyNode`]; `params` must be null or valid for reading, and the function sound
/// to call from another thread whenever the node runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddHostNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    params: *const HostNodeParams,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises of the places what `load` and `add_task` ask for.
    started("cuGraphAddHostNode", |driver| unsafe {
        let params = load(params)?;
        add_task(driver, new, |_| host(params))
    })
}

/// `cuGraphAddChildGraphNode`: the node owns a clone.
///
/// # Safety
/// As [`cuGraphAddEmptyNode`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddChildGraphNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    child: *mut c_void,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises of the places what `add_child` asks for.
    started("cuGraphAddChildGraphNode", |driver| unsafe { add_child(driver, new, child.addr()) })
}

/// `cuGraphAddEventRecordNode`
///
/// # Safety
/// As [`cuGraphAddEmptyNode`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddEventRecordNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    event: *mut c_void,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises of the places what `add_task` asks for.
    started("cuGraphAddEventRecordNode", |driver| unsafe {
        add_task(driver, new, |_| known_event(driver, event).map(Task::Record))
    })
}

/// `cuGraphAddEventWaitNode`
///
/// # Safety
/// As [`cuGraphAddEmptyNode`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddEventWaitNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    event: *mut c_void,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises of the places what `add_task` asks for.
    started("cuGraphAddEventWaitNode", |driver| unsafe {
        add_task(driver, new, |_| known_event(driver, event).map(Task::Wait))
    })
}

/// Makes a node that allocates, and stores the address in its parameters.
///
/// # Safety
/// As [`add`]; `params` must be null or valid for reading and writing, and its array as long as it
/// says.
pub(super) unsafe fn add_allocation(
    driver: &Driver,
    new: NewNode,
    params: *mut MemAllocNodeParams,
) -> Outcome {
    // SAFETY: by this function's contract the places are null, or valid and as long as they say.
    unsafe {
        let mut read = load(params.cast_const())?;
        let wanted = wanted_memory(driver, &read)?;
        add(driver, new, |graphs, place| {
            let (node, address) = graph_memory::add_allocation(driver, graphs, place, wanted)?;
            read.address = address;
            Ok(node)
        })?;
        store(params, read)
    }
}

/// `cuGraphAddMemAllocNode`: the address stays the same over launches.
///
/// # Safety
/// As [`cuGraphAddEmptyNode`]; `params` must be null or valid for reading and writing, and its
/// array as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemAllocNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    params: *mut MemAllocNodeParams,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises of the places what `add_allocation` asks for.
    started("cuGraphAddMemAllocNode", |driver| unsafe { add_allocation(driver, new, params) })
}

/// `cuGraphAddMemFreeNode`
///
/// # Safety
/// As [`cuGraphAddEmptyNode`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemFreeNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    address: u64,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises of the places what `add` asks for.
    started("cuGraphAddMemFreeNode", |driver| unsafe {
        add(driver, new, |graphs, place| graph_memory::add_free(graphs, place, address))
    })
}

/// Gives the parameters of a node of one type.
///
/// # Safety
/// `out` must be null or valid for writing.
pub(super) unsafe fn give<T: Copy>(
    symbol: &str,
    node: *mut c_void,
    out: *mut T,
    parameters: impl FnOnce(&Task) -> Option<T>,
) -> c_int {
    started(symbol, |driver| {
        let graphs = driver.graphs();
        let found = parameters(&graphs.node(node.addr())?.task).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: by this function's contract the place is null or valid for writing.
        unsafe { store(out, found) }
    })
}

/// `cuGraphMemcpyNodeGetParams`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphMemcpyNodeGetParams(
    node: *mut c_void,
    params: *mut Memcpy3D,
) -> c_int {
    let found = |task: &Task| if let Task::Copy(copy) = task { Some(*copy) } else { None };
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphMemcpyNodeGetParams", node, params, found) }
}

/// `cuGraphMemsetNodeGetParams`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphMemsetNodeGetParams(
    node: *mut c_void,
    params: *mut MemsetParams,
) -> c_int {
    let found = |task: &Task| if let Task::Fill(fill) = task { Some(*fill) } else { None };
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphMemsetNodeGetParams", node, params, found) }
}

/// `cuGraphHostNodeGetParams`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphHostNodeGetParams(
    node: *mut c_void,
    params: *mut HostNodeParams,
) -> c_int {
    let found = |task: &Task| if let Task::Host(call) = task { Some(*call) } else { None };
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphHostNodeGetParams", node, params, found) }
}

/// `cuGraphEventRecordNodeGetEvent`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphEventRecordNodeGetEvent(
    node: *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    let found = |task: &Task| match task {
        Task::Record(event) => Some(without_provenance_mut(event.as_raw() as usize)),
        _ => None,
    };
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphEventRecordNodeGetEvent", node, out, found) }
}

/// `cuGraphEventWaitNodeGetEvent`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphEventWaitNodeGetEvent(
    node: *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    let found = |task: &Task| match task {
        Task::Wait(event) => Some(without_provenance_mut(event.as_raw() as usize)),
        _ => None,
    };
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphEventWaitNodeGetEvent", node, out, found) }
}

/// `cuGraphMemAllocNodeGetParams`. Devices with access are left out.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphMemAllocNodeGetParams(
    node: *mut c_void,
    params: *mut MemAllocNodeParams,
) -> c_int {
    let found = |task: &Task| match task {
        Task::Allocate(Allocation { device, kind, bytes, address }) => Some(MemAllocNodeParams {
            props: MemPoolProps {
                allocation_type: *kind,
                handle_types: 0,
                location: MemLocation { kind: DEVICE, id: device.0 },
                win32_security_attributes: std::ptr::null_mut(),
                max_bytes: 0,
                reserved: [0; 56],
            },
            access: std::ptr::null(),
            access_count: 0,
            bytes: *bytes as usize,
            address: *address,
        }),
        _ => None,
    };
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphMemAllocNodeGetParams", node, params, found) }
}

/// `cuGraphMemFreeNodeGetParams`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphMemFreeNodeGetParams(
    node: *mut c_void,
    address: *mut u64,
) -> c_int {
    let found = |task: &Task| if let Task::Free(address) = task { Some(*address) } else { None };
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphMemFreeNodeGetParams", node, address, found) }
}

/// Sets the parameters of a node of the same type.
pub(super) fn set(
    driver: &Driver,
    node: *mut c_void,
    task: impl FnOnce(&Graphs) -> Outcome<Task>,
) -> Outcome {
    let mut graphs = driver.graphs();
    graphs.node(node.addr())?;
    let task = task(&graphs)?;
    graphs.set_task(node.addr(), task)
}

/// `cuGraphMemcpyNodeSetParams`
///
/// # Safety
/// `params` must be null or valid for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphMemcpyNodeSetParams(
    node: *mut c_void,
    params: *const Memcpy3D,
) -> c_int {
    started("cuGraphMemcpyNodeSetParams", |driver| {
        // SAFETY: the caller promises that the place is null or valid for reading.
        let params = unsafe { load(params) }?;
        set(driver, node, |graphs| copy(driver, graphs, params))
    })
}

/// `cuGraphMemsetNodeSetParams`
///
/// # Safety
/// `params` must be null or valid for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphMemsetNodeSetParams(
    node: *mut c_void,
    params: *const MemsetParams,
) -> c_int {
    started("cuGraphMemsetNodeSetParams", |driver| {
        // SAFETY: the caller promises that the place is null or valid for reading.
        let params = unsafe { load(params) }?;
        set(driver, node, |graphs| fill(driver, graphs, params))
    })
}

/// `cuGraphHostNodeSetParams`
///
/// # Safety
/// `params` must be null or valid for reading; the function as in [`cuGraphAddHostNode`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphHostNodeSetParams(
    node: *mut c_void,
    params: *const HostNodeParams,
) -> c_int {
    started("cuGraphHostNodeSetParams", |driver| {
        // SAFETY: the caller promises that the place is null or valid for reading.
        let params = unsafe { load(params) }?;
        set(driver, node, |_| host(params))
    })
}

/// `cuGraphEventRecordNodeSetEvent`
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphEventRecordNodeSetEvent(node: *mut c_void, event: *mut c_void) -> c_int {
    started("cuGraphEventRecordNodeSetEvent", |driver| {
        set(driver, node, |_| known_event(driver, event).map(Task::Record))
    })
}

/// `cuGraphEventWaitNodeSetEvent`
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphEventWaitNodeSetEvent(node: *mut c_void, event: *mut c_void) -> c_int {
    started("cuGraphEventWaitNodeSetEvent", |driver| {
        set(driver, node, |_| known_event(driver, event).map(Task::Wait))
    })
}
