//! Conditional nodes of graphs, by the contract of CUDA 13.0's header. No GPU was asked.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::{function_of, module_of, start};
use pagewise_driver::*;

/// `set` gives a condition a value, `count` adds 1 to a word, and `down` counts a word down and
/// gives the condition what is left.
const PTX: &str = "\
.version 8.3
.target sm_90
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry set(.param .u64 handle, .param .u32 value) {
  .reg .u64 %h; .reg .u32 %v;
  ld.param.u64 %h, [handle]; ld.param.u32 %v, [value];
  { .param .b64 p0; .param .b32 p1; st.param.b64 [p0], %h; st.param.b32 [p1], %v;
    call.uni cudaGraphSetConditional, (p0, p1); }
  ret;
}
.visible .entry count(.param .u64 place) {
  .reg .u64 %p; .reg .u32 %v;
  ld.param.u64 %p, [place]; ld.global.u32 %v, [%p]; add.u32 %v, %v, 1; st.global.u32 [%p], %v; ret;
}
.visible .entry down(.param .u64 handle, .param .u64 place) {
  .reg .u64 %h, %p; .reg .u32 %v;
  ld.param.u64 %h, [handle]; ld.param.u64 %p, [place];
  ld.global.u32 %v, [%p]; sub.u32 %v, %v, 1; st.global.u32 [%p], %v;
  { .param .b64 p0; .param .b32 p1; st.param.b64 [p0], %h; st.param.b32 [p1], %v;
    call.uni cudaGraphSetConditional, (p0, p1); }
  ret;
}
";

/// A graph with a condition, and memory of words.
struct Program {
    module: *mut c_void,
    graph: *mut c_void,
    handle: u64,
    words: u64,
}

const IF: u64 = 0;
const WHILE: u64 = 1;
const SWITCH: u64 = 2;

impl Program {
    fn new(default: u32, flags: u32) -> Self {
        start();
        let (mut graph, mut handle, mut words) = (null_mut(), 0, 0);
        // SAFETY: the places are locals.
        unsafe {
            assert_eq!(cuGraphCreate(&raw mut graph, 0), 0);
            let out = &raw mut handle;
            assert_eq!(cuGraphConditionalHandleCreate(out, graph, null_mut(), default, flags), 0);
            assert_eq!(cuMemAlloc_v2(&raw mut words, 64), 0);
            assert_eq!(cuMemsetD8_v2(words, 0, 64), 0);
        }
        Self { module: module_of(PTX), graph, handle, words }
    }

    /// Adds a kernel after other nodes, with up to two parameters.
    fn kernel(
        &self,
        graph: *mut c_void,
        name: &str,
        mut arguments: [u64; 2],
        after: &[*mut c_void],
    ) -> *mut c_void {
        let mut places = arguments.each_mut().map(|one| std::ptr::from_mut(one).cast::<c_void>());
        let mut node = null_mut();
        let params = KernelNodeParams {
            launch: KernelNodeParamsOfFunction {
                function: function_of(self.module, name),
                grid: [1; 3],
                block: [1; 3],
                shared_bytes: 0,
                arguments: places.as_mut_ptr(),
                extra: null_mut(),
            },
            kernel: null_mut(),
            context: null_mut(),
        };
        let count = after.len();
        // SAFETY: the kernel has these parameters; all memory is this test's.
        unsafe {
            let code = cuGraphAddKernelNode_v2(
                &raw mut node,
                graph,
                after.as_ptr(),
                count,
                &raw const params,
            );
            assert_eq!(code, 0);
        }
        node
    }

    /// Adds a conditional node with so many graphs.
    fn conditional(
        &self,
        (kind, count): (u64, u64),
        after: &[*mut c_void],
    ) -> (i32, *mut c_void, Vec<*mut c_void>) {
        self.conditional_in(self.graph, self.handle, (kind, count), after)
    }

    fn conditional_in(
        &self,
        graph: *mut c_void,
        handle: u64,
        (kind, count): (u64, u64),
        after: &[*mut c_void],
    ) -> (i32, *mut c_void, Vec<*mut c_void>) {
        let (mut node, mut params) = (null_mut(), params(13));
        params.body[..2].copy_from_slice(&[handle, kind | count << 32]);
        // SAFETY: the places are locals; the driver shows as many graphs as were asked for.
        unsafe {
            let out = &raw mut node;
            let code = cuGraphAddNode(out, graph, after.as_ptr(), after.len(), &raw mut params);
            if code != 0 {
                return (code, null_mut(), Vec::new());
            }
            let graphs = params.body[2] as *const *mut c_void;
            let graphs = std::slice::from_raw_parts(graphs, count as usize).to_vec();
            (code, node, graphs)
        }
    }

    /// Launches the graph, and gives the words.
    fn run(&self) -> [u32; 4] {
        let (mut executable, mut words) = (null_mut(), [0_u32; 4]);
        // SAFETY: all memory is this test's.
        unsafe {
            assert_eq!(cuGraphInstantiateWithFlags(&raw mut executable, self.graph, 0), 0);
            assert_eq!(cuGraphLaunch(executable, null_mut()), 0);
            assert_eq!(cuMemcpyDtoH_v2((&raw mut words).cast(), self.words, 16), 0);
            assert_eq!(cuGraphExecDestroy(executable), 0);
        }
        words
    }
}

fn params(kind: i32) -> GraphNodeParams {
    GraphNodeParams { kind, reserved: [0; 3], body: [0; 29], reserved_after: 0 }
}

#[test]
fn a_condition_that_a_kernel_sets_chooses_the_graph() {
    for (value, expected) in [(7, [1, 0, 1, 0]), (0, [0, 1, 1, 0])] {
        let program = Program::new(0, 0);
        let set = program.kernel(program.graph, "set", [program.handle, value], &[]);
        let (code, node, graphs) = program.conditional((IF, 2), &[set]);
        assert_eq!(code, 0);
        program.kernel(graphs[0], "count", [program.words, 0], &[]);
        program.kernel(graphs[1], "count", [program.words + 4, 0], &[]);
        program.kernel(program.graph, "count", [program.words + 8, 0], &[node]);
        assert_eq!(program.run(), expected);
        let mut kind = 0;
        // SAFETY: the place is a local.
        assert_eq!(unsafe { cuGraphNodeGetType(node, &raw mut kind) }, 0);
        assert_eq!(kind, 13);
    }
}

#[test]
fn a_loop_runs_while_its_kernel_leaves_a_value() {
    let program = Program::new(1, 1);
    // SAFETY: the memory is this test's.
    assert_eq!(unsafe { cuMemsetD32_v2(program.words, 5, 1) }, 0);
    let (code, _, graphs) = program.conditional((WHILE, 1), &[]);
    assert_eq!(code, 0);
    let down = program.kernel(graphs[0], "down", [program.handle, program.words], &[]);
    program.kernel(graphs[0], "count", [program.words + 4, 0], &[down]);
    assert_eq!(program.run(), [0, 5, 0, 0], "the default begins each launch");
}

#[test]
fn a_switch_runs_the_graph_with_the_number_of_the_value_or_none() {
    for (value, expected) in [(0, [1, 0, 0, 0]), (2, [0, 0, 1, 0]), (3, [0; 4])] {
        let program = Program::new(value, 1);
        let (code, _, graphs) = program.conditional((SWITCH, 3), &[]);
        assert_eq!(code, 0);
        for (index, graph) in graphs.iter().enumerate() {
            program.kernel(*graph, "count", [program.words + 4 * index as u64, 0], &[]);
        }
        assert_eq!(program.run(), expected);
    }
}

#[test]
fn conditions_within_conditions_have_values_of_their_own() {
    let program = Program::new(1, 1);
    let (_, _, outer) = program.conditional((IF, 1), &[]);
    let mut inner = 0;
    // SAFETY: the place is a local.
    unsafe {
        let out = &raw mut inner;
        assert_eq!(cuGraphConditionalHandleCreate(out, program.graph, null_mut(), 0, 1), 0);
    }
    let (code, _, graphs) = program.conditional_in(outer[0], inner, (IF, 2), &[]);
    assert_eq!(code, 0);
    program.kernel(graphs[0], "count", [program.words, 0], &[]);
    program.kernel(graphs[1], "count", [program.words + 4, 0], &[]);
    assert_eq!(program.run(), [0, 1, 0, 0]);
}

#[test]
fn wrong_conditional_nodes_are_refused() {
    let program = Program::new(0, 0);
    for wrong in [(IF, 0), (IF, 3), (WHILE, 2), (SWITCH, 0), (3, 1)] {
        assert_eq!(program.conditional(wrong, &[]).0, 1, "{wrong:?}");
    }
    let other = Program::new(0, 0);
    let in_other = other.conditional_in(other.graph, program.handle, (IF, 1), &[]);
    assert_eq!(in_other.0, 1, "the handle is of another graph");
    assert_eq!(program.conditional((IF, 1), &[]).0, 0);
    assert_eq!(program.conditional((IF, 1), &[]).0, 1, "a handle is of one node");
    let (mut handle, mut clone) = (0, null_mut());
    // SAFETY: the places are locals or null.
    unsafe {
        let out = &raw mut handle;
        assert_eq!(cuGraphConditionalHandleCreate(out, program.graph, null_mut(), 0, 2), 1);
        assert_eq!(cuGraphConditionalHandleCreate(out, null_mut(), null_mut(), 0, 0), 1);
        let null = null_mut();
        assert_eq!(cuGraphConditionalHandleCreate(null, program.graph, null_mut(), 0, 0), 1);
        assert_eq!(cuGraphClone(&raw mut clone, program.graph), 801);
    }
}

#[test]
fn a_graph_of_a_conditional_node_has_no_functions_of_the_host_and_goes_with_its_node() {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let program = Program::new(0, 0);
    let (_, node, graphs) = program.conditional((IF, 1), &[]);
    let (mut of_host, mut executable) = (null_mut(), null_mut());
    let call = HostNodeParams { function: Some(nothing), data: null_mut() };
    // SAFETY: the places are locals. The graphs are used to see that they are refused.
    unsafe {
        assert_eq!(cuGraphDestroy(graphs[0]), 1, "the node owns it");
        let out = &raw mut of_host;
        assert_eq!(cuGraphAddHostNode(out, graphs[0], std::ptr::null(), 0, &raw const call), 0);
        let made = cuGraphInstantiateWithFlags(&raw mut executable, program.graph, 0);
        assert_eq!(made, 1);
        assert_eq!(cuGraphDestroyNode(node), 0);
        assert_eq!(cuGraphDestroy(graphs[0]), 400);
    }
}
