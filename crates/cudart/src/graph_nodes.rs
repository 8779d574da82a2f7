//! Nodes of graphs of any type: `cudaGraphAddNode` and its companions.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::contexts::{current, with_context};
use crate::driver::cu;
use crate::graph_kernels::{KernelNode, driver_node};
use crate::outcome::{Error, Outcome, read};
use crate::pitched::{Copy3d, Copy3dParameters, slices};
use crate::types::Handle;

/// `cudaGraphNodeParams`. The driver's structure has the same members, but for the bodies of some
/// types.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NodeParameters {
    /// The type of the node.
    pub kind: c_int,
    /// Must be zero.
    pub reserved: [c_int; 3],
    /// The parameters of the type.
    pub body: [u64; 29],
    /// Must be zero.
    pub reserved_after: u64,
}

/// `cudaGraphNodeTypeKernel`
const KERNEL: c_int = 0;
/// `cudaGraphNodeTypeMemcpy`
const COPY: c_int = 1;
/// `cudaGraphNodeTypeMemset`
const FILL: c_int = 2;

/// `cudaKernelNodeParamsV2`. The last two members came with release 13; before, they are zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct KernelBody {
    node: KernelNode,
    context: Handle,
    kind: c_int,
}

/// `cudaMemcpyNodeParams`. The context came with release 13; before, it is zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct CopyBody {
    flags: c_int,
    reserved: c_int,
    context: Handle,
    copy: Copy3dParameters,
}

/// `CUDA_MEMCPY_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy)]
struct DriverCopyBody {
    flags: c_int,
    reserved: c_int,
    context: Handle,
    copy: Copy3d,
}

/// `cudaMemsetParamsV2`, and the driver's `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct FillBody {
    target: *mut c_void,
    pitch: usize,
    value: c_uint,
    element_bytes: c_uint,
    width: usize,
    height: usize,
    context: Handle,
}

impl NodeParameters {
    /// The body as the parameters of one type.
    fn body<T: Copy>(&self) -> T {
        const { assert!(size_of::<T>() <= size_of::<[u64; 29]>(), "the parameters hold it") };
        // SAFETY: the body has room for a `T`, as the line above says. A `T` is plain C data, of
        // which every bit pattern is a value.
        unsafe { (&raw const self.body).cast::<T>().read_unaligned() }
    }

    /// The same parameters with another body.
    fn with_body<T: Copy>(mut self, body: T) -> Self {
        const { assert!(size_of::<T>() <= size_of::<[u64; 29]>(), "the parameters hold it") };
        self.body = [0; 29];
        // SAFETY: the body has room for a `T`, as the line above says.
        unsafe { (&raw mut self.body).cast::<T>().write_unaligned(body) };
        self
    }

    /// The driver's parameters.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` for contexts of execution; those of the functions that make the node's type.
    fn of_driver(self) -> Outcome<Self> {
        match self.kind {
            KERNEL => {
                let KernelBody { node, context, .. } = self.body();
                own(context)?;
                Ok(self.with_body(driver_node(node)?))
            }
            COPY => {
                let CopyBody { flags, reserved, context, copy } = self.body();
                own(context)?;
                let copy = slices(copy)?.ok_or(Error::INVALID_VALUE)?;
                let context = current()?;
                Ok(self.with_body(DriverCopyBody { flags, reserved, context, copy }))
            }
            FILL => {
                let fill: FillBody = self.body();
                own(fill.context)?;
                Ok(self.with_body(FillBody { context: current()?, ..fill }))
            }
            _ => Ok(self),
        }
    }
}

/// Refuses a context of execution: this library has none.
fn own(context: Handle) -> Outcome {
    if context.is_null() { Ok(()) } else { Err(Error::NOT_SUPPORTED) }
}

/// Adds a node of any type, after others, without data of the edges (release 12).
pub unsafe extern "C" fn cudaGraphAddNode_v1(
    to: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    parameters: *mut NodeParameters,
) -> c_int {
    // SAFETY: the caller promises what the other form asks for, which takes null for no data.
    unsafe { cudaGraphAddNode(to, graph, after, null_mut(), count, parameters) }
}

/// Adds a node of any type, after others. The driver writes results to the parameters, such as the
/// address of an allocation.
pub unsafe extern "C" fn cudaGraphAddNode(
    to: *mut Handle,
    graph: Handle,
    after: *const Handle,
    edges: *const c_void,
    count: usize,
    parameters: *mut NodeParameters,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let given = unsafe { read(parameters.cast_const()) }?;
        let mut node = given.of_driver()?;
        let place = &raw mut node;
        // SAFETY: the driver checks the handles; the caller promises places, arrays and arguments.
        unsafe { cu!("cuGraphAddNode" @ 12030, to, graph, after, edges, count, place) }?;
        if !matches!(given.kind, KERNEL | COPY | FILL) {
            // SAFETY: the structure is not null, so the caller promises that it is writable.
            unsafe { parameters.write_unaligned(node) };
        }
        Ok(())
    })
}

/// Changes the parameters of a node of any type.
pub unsafe extern "C" fn cudaGraphNodeSetParams(
    node: Handle,
    parameters: *mut NodeParameters,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let mut new = unsafe { read(parameters.cast_const()) }?.of_driver()?;
        // SAFETY: the driver checks the node; the caller promises the arguments.
        unsafe { cu!("cuGraphNodeSetParams" @ 12020, node, &raw mut new) }
    })
}

/// Changes the parameters of a node of any type in an instantiated graph.
pub unsafe extern "C" fn cudaGraphExecNodeSetParams(
    instance: Handle,
    node: Handle,
    parameters: *mut NodeParameters,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let mut new = unsafe { read(parameters.cast_const()) }?.of_driver()?;
        // SAFETY: the driver checks the handles; the caller promises the arguments.
        unsafe { cu!("cuGraphExecNodeSetParams" @ 12020, instance, node, &raw mut new) }
    })
}

/// `cudaGraphExecUpdateResultInfo`: the result, and the nodes that it is about.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct UpdateResult {
    /// The reason why there was no update.
    pub result: c_int,
    /// The node that differs.
    pub node: Handle,
    /// The node before it, if an edge differs.
    pub from_node: Handle,
}

/// Gives an instantiated graph the parameters of another graph. The result may be left out.
pub unsafe extern "C" fn cudaGraphExecUpdate(
    instance: Handle,
    graph: Handle,
    result: *mut UpdateResult,
) -> c_int {
    with_context(|| {
        let mut unread = UpdateResult { result: 0, node: null_mut(), from_node: null_mut() };
        let result = if result.is_null() { &raw mut unread } else { result };
        // SAFETY: the driver checks the handles; a place of the caller is writable, as it promises.
        unsafe { cu!("cuGraphExecUpdate" @ 12000, instance, graph, result) }
    })
}

/// Makes a handle of a condition for the current context.
pub unsafe extern "C" fn cudaGraphConditionalHandleCreate(
    to: *mut u64,
    graph: Handle,
    value: c_uint,
    flags: c_uint,
) -> c_int {
    with_context(|| {
        let context = current()?;
        // SAFETY: the driver checks the graph; the caller promises that the place is writable.
        unsafe { cu!("cuGraphConditionalHandleCreate" @ 12030, to, graph, context, value, flags) }
    })
}
