//! Entry points of nodes that launch kernels.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut, without_provenance_mut};

use pagewise_hal::{Code, LaunchShape};

use crate::driver::{Driver, Outcome, has_place, load, started};
use crate::entry::graphs::executables::set_step;
use crate::entry::graphs::nodes::{NewNode, add_task, give};
use crate::entry::launches::{Arguments, launch_of};
use crate::entry::libraries::function_of_kernel;
use crate::graphs::{Graphs, KernelNode, Named, Task};
use crate::launch::{self, Request};

/// `CUDA_KERNEL_NODE_PARAMS`, the form of CUDA 10.0
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KernelNodeParamsOfFunction {
    /// The function.
    pub function: *mut c_void,
    /// Blocks of the grid.
    pub grid: [c_uint; 3],
    /// Threads of a block.
    pub block: [c_uint; 3],
    /// Bytes of dynamic shared memory of each block.
    pub shared_bytes: c_uint,
    /// An address for each argument, or null.
    pub arguments: *mut *mut c_void,
    /// The arguments in a buffer, or null.
    pub extra: *mut *mut c_void,
}

/// `CUDA_KERNEL_NODE_PARAMS`, the form of CUDA 12.0
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KernelNodeParams {
    /// The launch of a function.
    pub launch: KernelNodeParamsOfFunction,
    /// The kernel of a library, in place of a function that is null.
    pub kernel: *mut c_void,
    /// The context of the kernel; null for the current one.
    pub context: *mut c_void,
}

impl From<KernelNodeParamsOfFunction> for KernelNodeParams {
    fn from(launch: KernelNodeParamsOfFunction) -> Self {
        Self { launch, kernel: null_mut(), context: null_mut() }
    }
}

/// A node as parameters say, with the attributes of another one.
///
/// # Safety
/// The arguments must be those of the kernel.
pub(super) unsafe fn kernel(
    driver: &Driver,
    params: &KernelNodeParams,
    before: Option<&KernelNode>,
) -> Outcome<KernelNode> {
    let KernelNodeParams { launch, kernel, context } = *params;
    let KernelNodeParamsOfFunction { function, grid, block, shared_bytes, arguments, extra } =
        launch;
    let named = if function.is_null() {
        let context = if context.is_null() { Driver::current() } else { context.addr() };
        let function = function_of_kernel(driver, kernel.addr())?;
        Named { function, kernel: kernel.addr(), context }
    } else {
        // Unlike a launch, a node takes no kernel of a library for a function.
        let found = driver.programs().function(function.addr(), 0)?;
        let context = found.context.ok_or(Code::INVALID_HANDLE)?;
        Named { function: function.addr(), kernel: 0, context }
    };
    let device = driver.live(named.context)?;
    let handle = if named.kernel == 0 { named.function } else { named.kernel };
    let mut request = Request {
        shape: LaunchShape { grid, block, shared_bytes },
        is_cooperative: false,
        cluster: None,
    };
    if let Some(before) = before {
        request.is_cooperative = before.launch.request.is_cooperative;
        request.cluster = before.launch.request.cluster;
    }
    let function = driver.programs().function(handle, device.0)?;
    let arguments = Arguments { each: arguments, extra };
    // SAFETY: by this function's contract the arguments are those of the kernel.
    let launch = unsafe { launch_of(driver, device, function, request, arguments) }?;
    let node = KernelNode::new(launch, named, !extra.is_null());
    Ok(match before {
        Some(before) => node.with_attributes_of(before),
        None => node,
    })
}

/// Makes a node.
///
/// # Safety
/// The places must be null, or valid and as long as they say, and the arguments those of the kernel.
unsafe fn add<T: Copy + Into<KernelNodeParams>>(
    symbol: &str,
    new: NewNode,
    params: *const T,
) -> c_int {
    // SAFETY: by this function's contract the places are valid, and the arguments the kernel's.
    started(symbol, |driver| unsafe {
        let params = load(params)?.into();
        add_task(driver, new, |_| kernel(driver, &params, None).map(Task::from))
    })
}

/// `cuGraphAddKernelNode`, the form of CUDA 10.0
///
/// # Safety
/// As [`cuGraphAddKernelNode_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    params: *const KernelNodeParamsOfFunction,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises what `add` asks for.
    unsafe { add("cuGraphAddKernelNode", new, params) }
}

/// `cuGraphAddKernelNode`, the form of CUDA 12.0
///
/// # Safety
/// `after` must be null or have `count` items, and `params` be null or valid for reading. The
/// arguments must be those of the kernel. No other code may use the kernel's memory while it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode_v2(
    out: *mut *mut c_void,
    graph: *mut c_void,
    after: *const *mut c_void,
    count: usize,
    params: *const KernelNodeParams,
) -> c_int {
    let new = NewNode { out, graph, after, count };
    // SAFETY: the caller promises what `add` asks for.
    unsafe { add("cuGraphAddKernelNode_v2", new, params) }
}

/// The parameters of a node.
fn found(task: &Task) -> Option<KernelNodeParams> {
    let Task::Kernel(node) = task else { return None };
    let Named { function, kernel, context } = node.named;
    let (shape, (arguments, extra)) = (node.launch.request.shape, node.arguments());
    Some(KernelNodeParams {
        launch: KernelNodeParamsOfFunction {
            function: without_provenance_mut(function),
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            arguments: with_exposed_provenance_mut(arguments),
            extra: with_exposed_provenance_mut(extra),
        },
        kernel: without_provenance_mut(kernel),
        context: without_provenance_mut(context),
    })
}

/// `cuGraphKernelNodeGetParams`, the form of CUDA 10.0. The arguments stay until the node is gone or
/// has other parameters.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphKernelNodeGetParams(
    node: *mut c_void,
    params: *mut KernelNodeParamsOfFunction,
) -> c_int {
    let found = |task: &Task| found(task).map(|params| params.launch);
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphKernelNodeGetParams", node, params, found) }
}

/// `cuGraphKernelNodeGetParams`, the form of CUDA 12.0
///
/// # Safety
/// As [`cuGraphKernelNodeGetParams`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphKernelNodeGetParams_v2(
    node: *mut c_void,
    params: *mut KernelNodeParams,
) -> c_int {
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphKernelNodeGetParams_v2", node, params, found) }
}

/// The kernel of a node.
pub(super) fn kernel_of(graphs: &Graphs, node: *mut c_void) -> Outcome<&KernelNode> {
    match &graphs.node(node.addr())?.task {
        Task::Kernel(node) => Ok(node),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Sets the parameters of a node. It keeps its attributes.
///
/// # Safety
/// The arguments must be those of the kernel.
pub(super) unsafe fn set(driver: &Driver, node: *mut c_void, params: &KernelNodeParams) -> Outcome {
    let mut graphs = driver.graphs();
    // SAFETY: by this function's contract the arguments are those of the kernel.
    let new = unsafe { kernel(driver, params, Some(kernel_of(&graphs, node)?)) }?;
    graphs.set_task(node.addr(), new.into())
}

/// Sets the parameters of a node in an executable graph. It keeps its attributes.
///
/// # Safety
/// The arguments must be those of the kernel.
pub(super) unsafe fn set_in_executable(
    driver: &Driver,
    executable: *mut c_void,
    node: *mut c_void,
    params: &KernelNodeParams,
) -> Outcome {
    let before = match &driver.graphs().executable(executable.addr())?.step(node.addr())?.task {
        Task::Kernel(before) => before.clone(),
        _ => return Err(Code::INVALID_VALUE),
    };
    // SAFETY: by this function's contract the arguments are those of the kernel.
    let new = unsafe { kernel(driver, params, Some(&before)) }?;
    set_step(driver, executable, node, |_| Ok(new.into()))
}

/// `cuGraphKernelNodeSetParams`, the form of CUDA 10.0
///
/// # Safety
/// As [`cuGraphKernelNodeSetParams_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphKernelNodeSetParams(
    node: *mut c_void,
    params: *const KernelNodeParamsOfFunction,
) -> c_int {
    // SAFETY: the caller promises a place to read, and that the arguments are those of the kernel.
    started("cuGraphKernelNodeSetParams", |driver| unsafe {
        set(driver, node, &load(params)?.into())
    })
}

/// `cuGraphKernelNodeSetParams`, the form of CUDA 12.0
///
/// # Safety
/// `params` must be null or valid for reading, and the arguments be those of the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphKernelNodeSetParams_v2(
    node: *mut c_void,
    params: *const KernelNodeParams,
) -> c_int {
    // SAFETY: the caller promises a place to read, and that the arguments are those of the kernel.
    started("cuGraphKernelNodeSetParams_v2", |driver| unsafe { set(driver, node, &load(params)?) })
}

/// `cuGraphExecKernelNodeSetParams`, the form of CUDA 10.1
///
/// # Safety
/// As [`cuGraphKernelNodeSetParams_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecKernelNodeSetParams(
    executable: *mut c_void,
    node: *mut c_void,
    params: *const KernelNodeParamsOfFunction,
) -> c_int {
    // SAFETY: the caller promises a place to read, and that the arguments are those of the kernel.
    started("cuGraphExecKernelNodeSetParams", |driver| unsafe {
        set_in_executable(driver, executable, node, &load(params)?.into())
    })
}

/// `cuGraphExecKernelNodeSetParams`, the form of CUDA 12.0
///
/// # Safety
/// As [`cuGraphKernelNodeSetParams_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    executable: *mut c_void,
    node: *mut c_void,
    params: *const KernelNodeParams,
) -> c_int {
    // SAFETY: the caller promises a place to read, and that the arguments are those of the kernel.
    started("cuGraphExecKernelNodeSetParams_v2", |driver| unsafe {
        set_in_executable(driver, executable, node, &load(params)?)
    })
}

/// Changes a kernel node.
fn change(
    driver: &Driver,
    node: *mut c_void,
    change: impl FnOnce(&Graphs, &mut KernelNode) -> Outcome,
) -> Outcome {
    let mut graphs = driver.graphs();
    let mut new = kernel_of(&graphs, node)?.clone();
    change(&graphs, &mut new)?;
    graphs.set_task(node.addr(), new.into())
}

/// `cuGraphKernelNodeCopyAttributes`
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphKernelNodeCopyAttributes(to: *mut c_void, from: *mut c_void) -> c_int {
    started("cuGraphKernelNodeCopyAttributes", |driver| {
        change(driver, to, |graphs, node| {
            *node = node.clone().with_attributes_of(kernel_of(graphs, from)?);
            Ok(())
        })
    })
}

/// `cuGraphKernelNodeGetAttribute`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphKernelNodeGetAttribute(
    node: *mut c_void,
    attribute: c_int,
    value: *mut [c_uint; 16],
) -> c_int {
    started("cuGraphKernelNodeGetAttribute", |driver| {
        has_place(value)?;
        let (found, bytes) = kernel_of(&driver.graphs(), node)?.attribute(attribute)?;
        let from = found.as_ptr().cast::<u8>();
        // SAFETY: the place is not null, so the caller promises that it is valid for writing. An
        // attribute has no more bytes than a value.
        unsafe { from.copy_to_nonoverlapping(value.cast(), bytes) };
        Ok(())
    })
}

/// `cuGraphKernelNodeSetAttribute`
///
/// # Safety
/// `value` must be null or valid for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphKernelNodeSetAttribute(
    node: *mut c_void,
    attribute: c_int,
    value: *const [c_uint; 16],
) -> c_int {
    started("cuGraphKernelNodeSetAttribute", |driver| {
        // SAFETY: the caller promises that the place is null or valid for reading.
        let value = unsafe { load(value) }?;
        change(driver, node, |_, node| {
            node.set_attribute(attribute, value)?;
            // A cluster has to fit the grid and the kernel.
            let launch = &node.launch;
            launch::check_cluster(driver, launch.device, &launch.function, &launch.request)
        })
    })
}
