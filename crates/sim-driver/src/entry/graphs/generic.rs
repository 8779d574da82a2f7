//! Entry points that take nodes of all types: `cuGraphAddNode` and its companions.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::Code;

use crate::copy_params::Memcpy3D;
use crate::driver::{Driver, Outcome, has_place, load, started, store};
use crate::entry::graphs::arrays::plain_edges;
use crate::entry::graphs::executables::set_step;
use crate::entry::graphs::kernels::{kernel, set as set_kernel, set_in_executable};
use crate::entry::graphs::nodes::{NewNode, add, add_allocation, add_child, add_task, set};
use crate::entry::graphs::parameters::{check_context, copy, fill, host, known_event};
use crate::graph_memory;
use crate::graphs::{Branch, Graphs, Task};
use crate::work::{HostNodeParams, MemsetParams};

/// `CUgraphNodeParams`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GraphNodeParams {
    /// The type of the node.
    pub kind: c_int,
    /// Must be zero.
    pub reserved: [c_int; 3],
    /// The parameters of the type.
    pub body: [u64; 29],
    /// Must be zero.
    pub reserved_after: u64,
}

/// `CU_GRAPH_NODE_TYPE_KERNEL`
const KERNEL: c_int = 0;

/// `CUDA_MEMCPY_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyBody {
    flags: c_int,
    reserved: c_int,
    context: *mut c_void,
    copy: Memcpy3D,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`
#[repr(C)]
#[derive(Clone, Copy)]
struct FillBody {
    fill: MemsetParams,
    context: *mut c_void,
}

/// `CUDA_CONDITIONAL_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
struct ConditionBody {
    handle: u64,
    branch: c_int,
    count: c_uint,
    graphs: *const usize,
    context: *mut c_void,
}

/// `CUDA_HOST_NODE_PARAMS_v2`: the way of waiting and the context change nothing here.
#[repr(C)]
#[derive(Clone, Copy)]
struct HostBody {
    call: HostNodeParams,
    wait: c_uint,
    context: *mut c_void,
}

impl GraphNodeParams {
    /// The parameters as those of one type.
    fn body<T: Copy>(&self) -> T {
        const { assert!(size_of::<T>() <= size_of::<[u64; 29]>(), "the parameters hold it") };
        // SAFETY: the body has room for a `T`, as the line above says. A `T` is plain C data, of
        // which every bit pattern is a value.
        unsafe { (&raw const self.body).cast::<T>().read_unaligned() }
    }

    /// The task of a type that has no place of its own for results.
    ///
    /// # Safety
    /// The arguments of a kernel must be its own.
    unsafe fn task(&self, driver: &Driver, graphs: &Graphs) -> Outcome<Task> {
        match self.kind {
            // SAFETY: by this function's contract the arguments are those of the kernel.
            KERNEL => unsafe { kernel(driver, &self.body(), None).map(Task::from) },
            1 => {
                let body: CopyBody = self.body();
                check_context(driver, body.context)?;
                if body.flags != 0 || body.reserved != 0 {
                    return Err(Code::INVALID_VALUE);
                }
                copy(driver, graphs, body.copy)
            }
            2 => {
                let body: FillBody = self.body();
                check_context(driver, body.context)?;
                fill(driver, graphs, body.fill)
            }
            3 => host(self.body::<HostBody>().call),
            5 => Ok(Task::Empty),
            6 => known_event(driver, self.body()).map(Task::Wait),
            7 => known_event(driver, self.body()).map(Task::Record),
            _ => Err(unsupported(driver, self.kind)),
        }
    }
}

/// The answer for types of nodes that are not implemented.
fn unsupported(driver: &Driver, kind: c_int) -> c_int {
    let name = match kind {
        8 | 9 => "nodes of external semaphores",
        12 => "nodes of batches of memory operations",
        13 => "changes of conditional nodes",
        14..=18 => "nodes of batches and engines",
        _ => return Code::INVALID_VALUE,
    };
    driver.refuse(name).err().unwrap_or(Code::NOT_SUPPORTED)
}

/// Makes a conditional node, and shows the program the graphs that it owns.
///
/// # Safety
/// As [`add`]; `params` must be valid for reading and writing.
unsafe fn add_conditional(driver: &Driver, new: NewNode, params: *mut GraphNodeParams) -> Outcome {
    // SAFETY: by this function's contract the parameters can be read.
    let mut body: ConditionBody = unsafe { load(params.cast_const())? }.body();
    let branch = Branch::new(body.branch, body.count).ok_or(Code::INVALID_VALUE)?;
    if body.count > CONDITION_GRAPHS_MAX {
        return Err(Code::OUT_OF_MEMORY);
    }
    check_context(driver, body.context)?;
    let out = &mut body.graphs;
    // SAFETY: `add` asks what this function asks, and the parameters can be written.
    unsafe {
        add(driver, new, |graphs, at| {
            let (node, made) = graphs.add_conditional(at, body.handle, (branch, body.count))?;
            *out = made.bodies.as_ptr();
            Ok(node)
        })?;
        (&raw mut (*params).body).cast::<ConditionBody>().write_unaligned(body);
    }
    Ok(())
}

/// The most graphs of a conditional node: each is made with the node.
const CONDITION_GRAPHS_MAX: u32 = 1 << 16;

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`
const ASSIGN_DEFAULT: c_uint = 1;

/// `cuGraphConditionalHandleCreate`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphConditionalHandleCreate(
    out: *mut u64,
    graph: *mut c_void,
    context: *mut c_void,
    default: c_uint,
    flags: c_uint,
) -> c_int {
    started("cuGraphConditionalHandleCreate", |driver| {
        has_place(out)?;
        if flags & !ASSIGN_DEFAULT != 0 {
            return Err(Code::INVALID_VALUE);
        }
        check_context(driver, context)?;
        let default = (flags & ASSIGN_DEFAULT != 0).then_some(default);
        let made = driver.graphs().add_condition(graph.addr(), default)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, made) }
    })
}

/// Makes a node of any type.
///
/// # Safety
/// As [`cuGraphAddNode_v2`].
unsafe fn add_any(symbol: &str, new: NewNode, params: *mut GraphNodeParams) -> c_int {
    started(symbol, |driver| {
        // SAFETY: this function's contract. The parameters of an allocation lie in the body, which
        // has room for them.
        unsafe {
            let read = load(params.cast_const())?;
            if read.reserved != [0; 3] || read.reserved_after != 0 {
                return Err(Code::INVALID_VALUE);
            }
            match read.kind {
                4 => add_child(driver, new, read.body()),
                10 => add_allocation(driver, new, (&raw mut (*params).body).cast()),
                11 => {
                    let address = read.body();
                    add(driver, new, |graphs, at| graph_memory::add_free(graphs, at, address))
                }
                13 => add_conditional(driver, new, params),
                _ => add_task(driver, new, |graphs| read.task(driver, graphs)),
            }
        }
    })
}

/// `cuGraphAddNode`, the form of CUDA 12.2
///
/// # Safety
/// As [`cuGraphAddNode_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    params: *mut GraphNodeParams,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises what `add_any` asks for.
    unsafe { add_any("cuGraphAddNode", new, params) }
}

/// `cuGraphAddNode`, the form of CUDA 12.3
///
/// # Safety
/// `after` and `edges` must be null or have `count` items; `params` null or valid for reading and
/// writing; otherwise as the function that makes nodes of the type asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddNode_v2(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    edges: *const u64,
    count: usize,
    params: *mut GraphNodeParams,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises that the array is null or has `count` items.
    if let Err(code) = unsafe { plain_edges(edges, count) } {
        return started("cuGraphAddNode_v2", |_| Err(code));
    }
    // SAFETY: the caller promises what `add_any` asks for.
    unsafe { add_any("cuGraphAddNode_v2", new, params) }
}

/// `cuGraphNodeSetParams`
///
/// # Safety
/// `params` must be null or valid for reading; otherwise as the function that sets the parameters of
/// the type asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeSetParams(
    node: *mut c_void,
    params: *mut GraphNodeParams,
) -> c_int {
    started("cuGraphNodeSetParams", |driver| {
        // SAFETY: the caller promises that the place is null or valid for reading.
        let params = unsafe { load(params.cast_const()) }?;
        // SAFETY: the caller promises that the arguments of a kernel are its own.
        unsafe {
            match params.kind {
                KERNEL => set_kernel(driver, node, &params.body()),
                _ => set(driver, node, |graphs| params.task(driver, graphs)),
            }
        }
    })
}

/// `cuGraphExecNodeSetParams`
///
/// # Safety
/// As [`cuGraphNodeSetParams`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecNodeSetParams(
    executable: *mut c_void,
    node: *mut c_void,
    params: *mut GraphNodeParams,
) -> c_int {
    started("cuGraphExecNodeSetParams", |driver| {
        // SAFETY: the caller promises that the place is null or valid for reading.
        let params = unsafe { load(params.cast_const()) }?;
        // SAFETY: the caller promises that the arguments of a kernel are its own.
        unsafe {
            match params.kind {
                KERNEL => set_in_executable(driver, executable, node, &params.body()),
                _ => set_step(driver, executable, node, |graphs| params.task(driver, graphs)),
            }
        }
    })
}
