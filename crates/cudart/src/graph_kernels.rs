//! Nodes of graphs that launch functions.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::contexts::with_context;
use crate::driver::cu;
use crate::outcome::{Error, Outcome, read, write};
use crate::registry::{host_function, kernel};
use crate::types::{Dim3, Handle};

/// `cudaKernelNodeParams`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelNode {
    /// The function of the program.
    pub function: *mut c_void,
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Bytes of dynamic shared memory in a block.
    pub shared_bytes: c_uint,
    /// An address for each argument, or null.
    pub arguments: *mut *mut c_void,
    /// The arguments in the driver's other form, or null.
    pub extra: *mut *mut c_void,
}

/// `CUDA_KERNEL_NODE_PARAMS` since CUDA 12.0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriverKernelNode {
    function: Handle,
    grid: Dim3,
    block: Dim3,
    shared_bytes: c_uint,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: Handle,
    context: Handle,
}

/// Adds a node that launches a function.
pub unsafe extern "C" fn cudaGraphAddKernelNode(
    to: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    parameters: *const KernelNode,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let node = driver_node(unsafe { read(parameters) }?)?;
        // SAFETY: the driver checks the graph; the caller promises places and arguments.
        unsafe { cu!("cuGraphAddKernelNode" @ 12000, to, graph, after, count, &raw const node) }
    })
}

/// Writes what a node launches. Returns 98 (`cudaErrorInvalidDeviceFunction`) if that is no function
/// of the program, such as a kernel of a library.
pub unsafe extern "C" fn cudaGraphKernelNodeGetParams(node: Handle, to: *mut KernelNode) -> c_int {
    with_context(|| {
        if to.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        let nothing = Dim3 { x: 0, y: 0, z: 0 };
        let mut found = DriverKernelNode {
            function: null_mut(),
            grid: nothing,
            block: nothing,
            shared_bytes: 0,
            arguments: null_mut(),
            extra: null_mut(),
            kernel: null_mut(),
            context: null_mut(),
        };
        // SAFETY: the place is writable; the driver checks the node.
        unsafe { cu!("cuGraphKernelNodeGetParams" @ 12000, node, &raw mut found) }?;
        let DriverKernelNode { grid, block, shared_bytes, arguments, extra, .. } = found;
        let function = host_function(found.kernel).ok_or(Error::INVALID_DEVICE_FUNCTION)?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, KernelNode { function, grid, block, shared_bytes, arguments, extra }) }
    })
}

/// Changes what a node launches.
pub unsafe extern "C" fn cudaGraphKernelNodeSetParams(
    node: Handle,
    parameters: *const KernelNode,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let launch = driver_node(unsafe { read(parameters) }?)?;
        // SAFETY: the driver checks the node; the caller promises the arguments.
        unsafe { cu!("cuGraphKernelNodeSetParams" @ 12000, node, &raw const launch) }
    })
}

/// Changes what a node launches in an instantiated graph.
pub unsafe extern "C" fn cudaGraphExecKernelNodeSetParams(
    instance: Handle,
    node: Handle,
    parameters: *const KernelNode,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let launch = driver_node(unsafe { read(parameters) }?)?;
        // SAFETY: the driver checks the handles; the caller promises the arguments.
        unsafe { cu!("cuGraphExecKernelNodeSetParams" @ 12000, instance, node, &raw const launch) }
    })
}

/// The driver's description of a launch.
pub(crate) fn driver_node(node: KernelNode) -> Outcome<DriverKernelNode> {
    let KernelNode { function, grid, block, shared_bytes, arguments, extra } = node;
    Ok(DriverKernelNode {
        function: null_mut(),
        grid,
        block,
        shared_bytes,
        arguments,
        extra,
        kernel: kernel(function)?,
        context: null_mut(),
    })
}
