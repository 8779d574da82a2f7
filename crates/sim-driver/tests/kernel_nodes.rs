//! Nodes of graphs that launch kernels, called as C calls them.

mod common;

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use common::{PTX, function_of, module_of, start};
use pagewise_driver::*;

/// A kernel that the simulator executes: it writes a value at places.
const WRITE: &str = "\
.version 7.0
.target sm_52
.address_size 64
.visible .entry pagewise_write(.param .u64 a, .param .u64 n, .param .u64 s, .param .u32 v, .param .u64 r) { ret; }
";

fn graph() -> *mut c_void {
    let mut graph = null_mut();
    // SAFETY: the place is a local that outlives the call.
    assert_eq!(unsafe { cuGraphCreate(&raw mut graph, 0) }, 0);
    graph
}

fn params(function: *mut c_void) -> KernelNodeParams {
    KernelNodeParams {
        launch: KernelNodeParamsOfFunction {
            function,
            grid: [1; 3],
            block: [32, 1, 1],
            shared_bytes: 0,
            arguments: null_mut(),
            extra: null_mut(),
        },
        kernel: null_mut(),
        context: null_mut(),
    }
}

fn add(graph: *mut c_void, params: &KernelNodeParams) -> (c_int, *mut c_void) {
    let mut node = null_mut();
    // SAFETY: places are locals that outlive the call; the arguments are the kernel's.
    let code = unsafe { cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, params) };
    (code, node)
}

fn get(node: *mut c_void) -> KernelNodeParams {
    let mut found = params(null_mut());
    // SAFETY: the place is a local that outlives the call.
    assert_eq!(unsafe { cuGraphKernelNodeGetParams_v2(node, &raw mut found) }, 0);
    found
}

fn instantiate(graph: *mut c_void) -> *mut c_void {
    let mut executable = null_mut();
    // SAFETY: the place is a local that outlives the call.
    assert_eq!(unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) }, 0);
    executable
}

fn attribute(node: *mut c_void, id: c_int) -> (c_int, [c_uint; 3]) {
    let mut value = [9; 16];
    // SAFETY: the place is a local that outlives the call.
    let code = unsafe { cuGraphKernelNodeGetAttribute(node, id, &raw mut value) };
    (code, [value[0], value[1], value[2]])
}

fn set_attribute(node: *mut c_void, id: c_int, value: [c_uint; 3]) -> c_int {
    let mut room = [0; 16];
    room[..3].copy_from_slice(&value);
    // SAFETY: the place is a local that outlives the call.
    unsafe { cuGraphKernelNodeSetAttribute(node, id, &raw const room) }
}

#[test]
fn a_node_keeps_a_copy_of_its_arguments() {
    start();
    let two = function_of(module_of(PTX), "two");
    let (mut wide, mut narrow) = (0x1122_3344_5566_7788_u64, 9_u32);
    let mut arguments = [(&raw mut wide).cast::<c_void>(), (&raw mut narrow).cast()];
    let mut wanted = params(two);
    wanted.launch.arguments = arguments.as_mut_ptr();
    let (code, node) = add(graph(), &wanted);
    assert_eq!(code, 0);
    (wide, narrow) = (0, 0);
    let found = get(node);
    assert_eq!(found.launch.function, two);
    assert_eq!((found.launch.grid, found.launch.block), ([1; 3], [32, 1, 1]));
    // SAFETY: the node has two arguments, at addresses that stay as long as the node.
    unsafe {
        let first = found.launch.arguments.read().cast::<u64>().read();
        let second = found.launch.arguments.add(1).read().cast::<u32>().read();
        assert_eq!((first, second), (0x1122_3344_5566_7788, 9));
    }
    assert_eq!((wide, narrow), (0, 0));
    let mut kind = -1;
    // SAFETY: the place is a local that outlives the call.
    assert_eq!((unsafe { cuGraphNodeGetType(node, &raw mut kind) }, kind), (0, 0));
}

#[test]
fn a_launch_that_no_kernel_may_have_makes_no_node_and_changes_none() {
    start();
    let module = module_of(PTX);
    let (empty, bounded) = (function_of(module, "empty"), function_of(module, "bounded"));
    let (graph, good) = (graph(), params(empty));
    let (_, node) = add(graph, &good);
    let executable = instantiate(graph);
    let with = |function, grid: c_uint, block: c_uint, shared_bytes| {
        let mut params = params(function);
        (params.launch.grid[0], params.launch.block[0]) = (grid, block);
        params.launch.shared_bytes = shared_bytes;
        params
    };
    let refused = [
        with(empty, 0, 32, 0),
        with(empty, 1, 1025, 0),
        with(empty, 1, 32, 49_153),
        with(bounded, 1, 256, 0),
    ];
    for bad in refused {
        assert_eq!(add(graph, &bad).0, 1, "{bad:?}");
        // SAFETY: the place is a local that outlives the call; the kernels have no arguments.
        unsafe {
            assert_eq!(cuGraphKernelNodeSetParams_v2(node, &raw const bad), 1, "{bad:?}");
            let set = cuGraphExecKernelNodeSetParams_v2(executable, node, &raw const bad);
            assert_eq!(set, 1, "{bad:?}");
        }
    }
    assert_eq!(add(graph, &params(null_mut())).0, 400, "a node names its kernel");
    let mut nodes = 0;
    // SAFETY: the place is a local that outlives the call.
    assert_eq!(unsafe { cuGraphGetNodes(graph, null_mut(), &raw mut nodes) }, 0);
    assert_eq!((nodes, get(node).launch.grid), (1, [1; 3]));
    let larger = with(empty, 4, 64, 0);
    // SAFETY: the place is a local that outlives the call; the kernel has no arguments.
    assert_eq!(unsafe { cuGraphKernelNodeSetParams_v2(node, &raw const larger) }, 0);
    assert_eq!((get(node).launch.grid, get(node).launch.block), ([4, 1, 1], [64, 1, 1]));
}

#[test]
fn attributes_stay_when_parameters_change_and_are_copied() {
    start();
    let (graph, empty) = (graph(), params(function_of(module_of(PTX), "empty")));
    let ((_, node), (_, other)) = (add(graph, &empty), add(graph, &empty));
    assert_eq!(attribute(node, 2), (0, [0, 9, 9]), "an attribute has its own size");
    assert_eq!(attribute(node, 4), (0, [0; 3]));
    assert_eq!(set_attribute(node, 2, [1, 0, 0]), 0);
    assert_eq!((set_attribute(node, 99, [1, 0, 0]), attribute(node, 99).0), (1, 1));
    // SAFETY: the place is a local that outlives the call; the kernel has no arguments.
    assert_eq!(unsafe { cuGraphKernelNodeSetParams_v2(node, &raw const empty) }, 0);
    assert_eq!(cuGraphKernelNodeCopyAttributes(other, node), 0);
    assert_eq!((attribute(node, 2), attribute(other, 2)), ((0, [1, 9, 9]), (0, [1, 9, 9])));
}

#[test]
fn attributes_that_no_launch_may_have_are_refused_or_limited() {
    start();
    let mut params = params(function_of(module_of(PTX), "empty"));
    params.launch.grid[0] = 4;
    let (_, node) = add(graph(), &params);
    assert_eq!([[2, 1, 1], [0; 3]].map(|cluster| set_attribute(node, 4, cluster)), [0; 2]);
    assert_eq!([[3, 1, 1], [16, 1, 1]].map(|cluster| set_attribute(node, 4, cluster)), [912; 2]);
    assert_eq!((set_attribute(node, 8, [3, 0, 0]), attribute(node, 8).1[0]), (0, 0));
    let (low, lowest) = ((-9_i32).cast_unsigned(), (-5_i32).cast_unsigned());
    assert_eq!((set_attribute(node, 8, [low, 0, 0]), attribute(node, 8).1[0]), (0, lowest));
    assert_eq!((set_attribute(node, 14, [50, 0, 0]), set_attribute(node, 14, [200, 0, 0])), (0, 1));
}

/// Adds or sets a node by the calls for nodes of any type.
fn generic(params: &KernelNodeParams) -> GraphNodeParams {
    let mut any = GraphNodeParams { kind: 0, reserved: [0; 3], body: [0; 29], reserved_after: 0 };
    // SAFETY: the body is longer than the parameters, which are plain C data.
    unsafe { (&raw mut any.body).cast::<KernelNodeParams>().write_unaligned(*params) };
    any
}

/// The arguments of the kernel that writes.
struct Write {
    memory: u64,
    places: u64,
    stride: u64,
    value: u32,
    result: u64,
    each: [*mut c_void; 5],
}

impl Write {
    fn params(&mut self, function: *mut c_void) -> KernelNodeParams {
        self.each = [
            (&raw mut self.memory).cast(),
            (&raw mut self.places).cast(),
            (&raw mut self.stride).cast(),
            (&raw mut self.value).cast(),
            (&raw mut self.result).cast(),
        ];
        let mut params = params(function);
        params.launch.arguments = self.each.as_mut_ptr();
        params
    }
}

#[test]
fn a_kernel_node_runs_its_kernel_with_the_arguments_that_it_has() {
    start();
    let (write, graph, mut memory) = (function_of(module_of(WRITE), "pagewise_write"), graph(), 0);
    // SAFETY: the place is a local that outlives the call.
    assert_eq!(unsafe { cuMemAllocManaged(&raw mut memory, 4096, 1) }, 0);
    let mut arguments = [5, 6, 7].map(|value| Write {
        memory,
        places: 1,
        stride: 4096,
        value,
        result: 0,
        each: [null_mut(); 5],
    });
    let [first, second, third] = arguments.each_mut().map(|arguments| arguments.params(write));
    let (mut any, mut node) = (generic(&first), null_mut());
    // SAFETY: places are locals that outlive the calls, and the arguments are the kernel's. The
    // memory is the test's.
    unsafe {
        let (none, edges) = (null(), null());
        assert_eq!(cuGraphAddNode_v2(&raw mut node, graph, none, edges, 0, &raw mut any), 0);
        let executable = instantiate(graph);
        let read = || {
            assert_eq!(cuGraphLaunch(executable, null_mut()), 0);
            assert_eq!(cuCtxSynchronize(), 0);
            std::ptr::with_exposed_provenance::<u8>(memory as usize).read_volatile()
        };
        assert_eq!(read(), 5);
        let mut any = generic(&second);
        assert_eq!(cuGraphExecNodeSetParams(executable, node, &raw mut any), 0);
        assert_eq!(read(), 6);
        assert_eq!(cuGraphKernelNodeSetParams_v2(node, &raw const third), 0);
        assert_eq!(read(), 6, "the executable graph has its own parameters");
        let mut result =
            UpdateResult { result: -1, error_node: null_mut(), error_from_node: null_mut() };
        assert_eq!(cuGraphExecUpdate_v2(executable, graph, &raw mut result), 0);
        assert_eq!(read(), 7);
        assert_eq!(cuMemFree_v2(memory), 0);
    }
}

#[test]
fn nodes_of_other_types_are_no_kernel_nodes() {
    start();
    let (graph, mut node) = (graph(), null_mut());
    let empty = params(function_of(module_of(PTX), "empty"));
    // SAFETY: places are locals that outlive the calls.
    unsafe {
        assert_eq!(cuGraphAddEmptyNode(&raw mut node, graph, null(), 0), 0);
        assert_eq!(cuGraphKernelNodeGetParams_v2(node, &mut params(null_mut())), 1);
        assert_eq!(cuGraphKernelNodeSetParams_v2(node, &raw const empty), 1);
        assert_eq!(cuGraphKernelNodeSetParams_v2(null_mut(), &raw const empty), 1);
    }
    assert_eq!(attribute(node, 2).0, 1);
    assert_eq!(cuGraphKernelNodeCopyAttributes(node, node), 1);
}
