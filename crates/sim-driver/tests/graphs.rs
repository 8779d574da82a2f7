//! Graphs, called as C calls them. Answers are those of driver 580 on an H200 (CUDA 13.0, recorded
//! on 23 November 2026), unless a test says otherwise.
//!
//! A capture in global mode refuses calls of all threads, so the tests run one after the other.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_driver::*;

static ALONE: Mutex<()> = Mutex::new(());

/// Starts the driver with device 0's context, and keeps other tests out.
fn start() -> MutexGuard<'static, ()> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(cuInit(0), 0);
    let mut context = null_mut();
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    assert_eq!(cuCtxSetCurrent(context), 0);
    alone
}

/// A handle that a call gives.
fn made(call: impl FnOnce(*mut *mut c_void) -> c_int) -> *mut c_void {
    let mut out = null_mut();
    assert_eq!(call(&raw mut out), 0);
    out
}

fn graph() -> *mut c_void {
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    made(|out| unsafe { cuGraphCreate(out, 0) })
}

fn stream() -> *mut c_void {
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    made(|out| unsafe { cuStreamCreate(out, 1) })
}

fn device(bytes: usize) -> u64 {
    let mut ptr = 0;
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut ptr, bytes) }, 0);
    ptr
}

fn read(ptr: u64) -> u8 {
    let mut byte = 0_u8;
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    assert_eq!(unsafe { cuMemcpyDtoH_v2((&raw mut byte).cast(), ptr, 1) }, 0);
    byte
}

fn empty(graph: *mut c_void, after: &[*mut c_void]) -> *mut c_void {
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    made(|out| unsafe { cuGraphAddEmptyNode(out, graph, after.as_ptr(), after.len()) })
}

fn fill(address: u64, value: c_uint) -> MemsetParams {
    MemsetParams { address, pitch: 0, value, element_bytes: 1, width: 16, height: 1 }
}

fn add_fill(graph: *mut c_void, after: &[*mut c_void], params: MemsetParams) -> *mut c_void {
    let (nodes, count) = (after.as_ptr(), after.len());
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    made(|out| unsafe {
        cuGraphAddMemsetNode(out, graph, nodes, count, &raw const params, null_mut())
    })
}

fn instantiate(graph: *mut c_void) -> *mut c_void {
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    made(|out| unsafe { cuGraphInstantiateWithFlags(out, graph, 0) })
}

fn launch(executable: *mut c_void, on: *mut c_void) -> c_int {
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe { cuGraphLaunch(executable, on) }
}

/// Makes a node that allocates: the answer, the node and the address.
fn allocate(graph: *mut c_void, after: &[*mut c_void], bytes: usize) -> (c_int, *mut c_void, u64) {
    let mut params = MemAllocNodeParams {
        props: MemPoolProps {
            allocation_type: 1,
            handle_types: 0,
            location: MemLocation { kind: 1, id: 0 },
            win32_security_attributes: null_mut(),
            max_bytes: 0,
            reserved: [0; 56],
        },
        access: null(),
        access_count: 0,
        bytes,
        address: 0,
    };
    let mut node = null_mut();
    let (nodes, count) = (after.as_ptr(), after.len());
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    let code =
        unsafe { cuGraphAddMemAllocNode(&raw mut node, graph, nodes, count, &raw mut params) };
    (code, node, params.address)
}

fn free_node(graph: *mut c_void, after: &[*mut c_void], address: u64) -> (c_int, *mut c_void) {
    let mut node = null_mut();
    let (nodes, count) = (after.as_ptr(), after.len());
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    let code = unsafe { cuGraphAddMemFreeNode(&raw mut node, graph, nodes, count, address) };
    (code, node)
}

#[test]
fn captured_work_runs_when_the_graph_is_launched_and_not_before() {
    let _alone = start();
    let (ptr, on) = (device(4096), stream());
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuMemsetD8_v2(ptr, 0, 64), 0);
        assert_eq!(cuStreamBeginCapture_v2(on, 2), 0);
        assert_eq!(cuMemsetD8Async(ptr, 7, 16, on), 0);
        assert_eq!(cuMemcpyAsync(ptr + 16, ptr, 16, on), 0);
        let graph = made(|out| cuStreamEndCapture(on, out));
        assert_eq!(read(ptr), 0);
        let executable = instantiate(graph);
        assert_eq!(launch(executable, on), 0);
        assert_eq!((read(ptr), read(ptr + 16)), (7, 7));
        assert_eq!((cuGraphExecDestroy(executable), cuGraphExecDestroy(executable)), (0, 400));
        assert_eq!((cuGraphDestroy(graph), cuGraphDestroy(graph)), (0, 400));
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn nodes_run_after_those_that_they_depend_on() {
    let _alone = start();
    let (ptr, graph) = (device(4096), graph());
    let last = add_fill(graph, &[], fill(ptr, 2));
    let first = add_fill(graph, &[], fill(ptr, 1));
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuGraphAddDependencies(graph, &raw const first, &raw const last, 1), 0);
        assert_eq!(cuGraphAddDependencies(graph, &raw const first, &raw const last, 1), 1);
        assert_eq!(launch(instantiate(graph), null_mut()), 0);
        assert_eq!(read(ptr), 2);
        assert_eq!(cuGraphRemoveDependencies(graph, &raw const first, &raw const last, 1), 0);
        assert_eq!(launch(instantiate(graph), null_mut()), 0);
        assert_eq!(read(ptr), 1, "the older node runs first");
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn a_circle_is_refused_when_the_graph_is_instantiated() {
    let _alone = start();
    let graph = graph();
    let first = empty(graph, &[]);
    let second = empty(graph, &[first]);
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuGraphAddDependencies(graph, &raw const second, &raw const first, 1), 0);
        assert_eq!(cuGraphAddDependencies(graph, &raw const first, &raw const first, 1), 1);
        assert_eq!(cuGraphInstantiateWithFlags(&mut null_mut(), graph, 0), 1);
        assert_eq!(cuGraphDestroyNode(second), 0);
        assert_eq!(cuGraphInstantiateWithFlags(&mut null_mut(), graph, 0), 0);
    }
}

#[test]
fn wild_and_null_handles_are_refused() {
    let _alone = start();
    let (wild, graph) = (std::ptr::without_provenance_mut(0xdead_beef), graph());
    let node = empty(graph, &[]);
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        for (handle, code) in [(null_mut(), 1), (wild, 400), (node, 400)] {
            assert_eq!(cuGraphDestroy(handle), code);
            assert_eq!(cuGraphExecDestroy(handle), code);
            assert_eq!(launch(handle, null_mut()), code);
            assert_eq!(cuGraphInstantiateWithFlags(&mut null_mut(), handle, 0), code);
            assert_eq!(cuGraphAddEmptyNode(&mut null_mut(), handle, null(), 0), code);
        }
        for (handle, code) in [(null_mut(), 1), (wild, 400), (graph, 400)] {
            assert_eq!(cuGraphDestroyNode(handle), code);
            assert_eq!(cuGraphNodeGetType(handle, &mut 0), code);
        }
        assert_eq!(cuGraphAddEmptyNode(&mut null_mut(), graph, null(), 1), 1);
        assert_eq!(cuGraphAddEmptyNode(&mut null_mut(), graph, [node, node].as_ptr(), 2), 1);
        assert_eq!(cuGraphAddEmptyNode(null_mut(), graph, null(), 0), 1);
    }
}

#[test]
fn memory_of_a_graph_keeps_its_address_and_exists_once() {
    let _alone = start();
    let (graph, on) = (graph(), stream());
    let (code, node, ptr) = allocate(graph, &[], 4096);
    assert_eq!(code, 0);
    add_fill(graph, &[node], fill(ptr, 9));
    let executable = instantiate(graph);
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuGraphInstantiateWithFlags(&mut null_mut(), graph, 0), 801, "one at a time");
        assert_eq!(cuGraphClone(&mut null_mut(), graph), 801);
        assert_eq!(cuGraphDestroyNode(node), 801);
        assert_eq!(launch(executable, on), 0);
        assert_eq!(read(ptr), 9);
        let mut bytes = 0;
        assert_eq!(cuMemGetAddressRange_v2(null_mut(), &raw mut bytes, ptr + 1), 0);
        assert_eq!(bytes, 4096);
        assert_eq!(launch(executable, on), 1, "the allocation exists");
        assert_eq!(cuMemFreeAsync(ptr, on), 0);
        assert_eq!(launch(executable, on), 0);
        assert_eq!((cuMemFree_v2(ptr), cuMemFree_v2(ptr)), (0, 1));
        assert_eq!(cuGraphExecDestroy(executable), 0);
        let executable = made(|out| cuGraphInstantiateWithFlags(out, graph, 1));
        assert_eq!([(); 3].map(|()| launch(executable, on)), [0; 3], "freed at each launch");
    }
}

#[test]
fn an_allocation_takes_the_address_of_one_that_was_freed_before() {
    let _alone = start();
    let graph = graph();
    let (_, first, ptr) = allocate(graph, &[], 4096);
    let (code, freed) = free_node(graph, &[first], ptr);
    assert_eq!((code, free_node(graph, &[freed], ptr).0), (0, 1), "it is freed once");
    let (_, _, beside) = allocate(graph, &[], 4096);
    let (_, _, after) = allocate(graph, &[freed], 4096);
    assert_eq!((beside, after), (ptr + 4096, ptr));
    assert_eq!(allocate(graph, &[], 0).0, 1);
    assert_eq!(allocate(graph, &[], 1 << 50).0, 2);
    let other = device(64);
    assert_eq!((free_node(graph, &[], other).0, free_node(graph, &[], 0).0), (1, 1));
}

/// As driver 580 on an H200 answered, in each mode of a capture.
#[test]
fn an_allocation_of_0_bytes_in_a_capture_is_null_and_no_node() {
    let _alone = start();
    let on = stream();
    let (mut ptr, mut nodes) = (77, 9);
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(on, 2), 0);
        assert_eq!((cuMemAllocAsync(&raw mut ptr, 0, on), ptr), (0, 0));
        let graph = made(|out| cuStreamEndCapture(on, out));
        assert_eq!(cuGraphGetNodes(graph, null_mut(), &raw mut nodes), 0);
        assert_eq!(nodes, 0);
    }
}

#[test]
fn memory_of_graphs_is_counted_in_blocks_until_it_is_trimmed() {
    let _alone = start();
    let figure = |attribute| {
        let mut bytes = 0_u64;
        // SAFETY: places are locals that outlive the call, and handles may be any numbers.
        let code = unsafe { cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut bytes).cast()) };
        assert_eq!(code, 0);
        bytes >> 20
    };
    assert_eq!(cuDeviceGraphMemTrim(0), 0);
    let before = figure(0);
    let (graph, on) = (graph(), stream());
    let (_, node, ptr) = allocate(graph, &[], 100 << 20);
    free_node(graph, &[node], ptr);
    let executable = instantiate(graph);
    assert_eq!(figure(0), before);
    assert_eq!(launch(executable, on), 0);
    assert_eq!((figure(0), figure(2)), (before + 128, before + 128));
    assert_eq!(cuDeviceGraphMemTrim(0), 0);
    assert_eq!(figure(2), before);
    assert!(figure(3) >= before + 128);
    assert_eq!(launch(executable, on), 0, "memory comes back");
    assert_eq!(cuDeviceGraphMemTrim(0), 0);
    assert_eq!(cuDeviceGraphMemTrim(77), 101);
}

/// The result of an update of an executable graph of one graph with another.
fn update(old: *mut c_void, new: *mut c_void) -> (c_int, c_int, bool) {
    let mut result =
        UpdateResult { result: -1, error_node: null_mut(), error_from_node: null_mut() };
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    let code = unsafe { cuGraphExecUpdate_v2(instantiate(old), new, &raw mut result) };
    (code, result.result, !result.error_node.is_null())
}

#[test]
fn an_update_takes_a_graph_of_the_same_shape() {
    let _alone = start();
    let ptr = device(4096);
    let with = |params: MemsetParams| {
        let graph = graph();
        add_fill(graph, &[], params);
        graph
    };
    let plain = || with(fill(ptr, 1));
    let single = graph();
    empty(single, &[]);
    let (pair, chain) = (graph(), graph());
    empty(pair, &[]);
    empty(pair, &[]);
    let first = empty(chain, &[]);
    empty(chain, &[first]);
    let rows = MemsetParams { height: 2, pitch: 128, ..fill(ptr, 1) };
    assert_eq!(update(plain(), with(fill(ptr + 64, 2))), (0, 0, false));
    assert_eq!(update(plain(), with(rows)), (910, 5, true));
    assert_eq!(update(plain(), single), (910, 3, true));
    assert_eq!(update(single, pair), (910, 2, false));
    assert_eq!(update(pair, chain), (910, 2, false));
    let (old, new) = (plain(), with(fill(ptr, 6)));
    let executable = instantiate(old);
    let mut result =
        UpdateResult { result: -1, error_node: null_mut(), error_from_node: null_mut() };
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuGraphExecUpdate_v2(executable, new, &raw mut result), 0);
        assert_eq!(launch(executable, null_mut()), 0);
        assert_eq!(read(ptr), 6);
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn a_node_of_an_executable_graph_is_switched_off_and_changed() {
    let _alone = start();
    let (ptr, graph) = (device(4096), graph());
    let (node, other) = (add_fill(graph, &[], fill(ptr, 1)), empty(graph, &[]));
    let executable = instantiate(graph);
    let changed = fill(ptr, 3);
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuMemsetD8_v2(ptr, 0, 64), 0);
        assert_eq!(cuGraphNodeSetEnabled(executable, node, 0), 0);
        assert_eq!(cuGraphNodeSetEnabled(executable, other, 0), 1);
        assert_eq!(launch(executable, null_mut()), 0);
        assert_eq!(read(ptr), 0);
        assert_eq!(cuGraphNodeSetEnabled(executable, node, 1), 0);
        let set = |node, params: &MemsetParams| {
            cuGraphExecMemsetNodeSetParams(executable, node, params, null_mut())
        };
        assert_eq!(set(node, &changed), 0);
        assert_eq!(set(node, &MemsetParams { width: 1 << 40, ..changed }), 1);
        assert_eq!(set(other, &changed), 1);
        assert_eq!(launch(executable, null_mut()), 0);
        assert_eq!(read(ptr), 3);
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn a_child_is_a_clone_and_a_clone_knows_its_nodes() {
    let _alone = start();
    let (ptr, graph, parent) = (device(4096), graph(), graph());
    let node = add_fill(graph, &[], fill(ptr, 5));
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        let child = made(|out| cuGraphAddChildGraphNode(out, parent, null(), 0, graph));
        let owned = made(|out| cuGraphChildGraphNodeGetGraph(child, out));
        assert_ne!(owned, graph);
        assert_eq!(cuGraphDestroy(owned), 1, "the node owns it");
        let clone = made(|out| cuGraphClone(out, graph));
        let found = made(|out| cuGraphNodeFindInClone(out, node, clone));
        assert_ne!(found, node);
        assert_eq!(cuGraphNodeFindInClone(&mut null_mut(), node, graph), 1);
        assert_eq!(cuGraphDestroy(graph), 0);
        assert_eq!(launch(instantiate(parent), null_mut()), 0);
        assert_eq!(read(ptr), 5);
        assert_eq!(cuGraphDestroy(parent), 0);
        assert_eq!(cuGraphNodeGetType(child, &mut 0), 400);
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the tests pass the address of a counter that outlives the call.
    unsafe { &*counter.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn host_nodes_are_called_in_the_order_of_the_graph() {
    let _alone = start();
    let (counter, on, graph) = (AtomicUsize::new(0), stream(), graph());
    let data = (&raw const counter).cast_mut().cast();
    let params = HostNodeParams { function: Some(count), data };
    let none = HostNodeParams { function: None, data };
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuGraphAddHostNode(&mut null_mut(), graph, null(), 0, &raw const none), 1);
        made(|out| cuGraphAddHostNode(out, graph, null(), 0, &raw const params));
        let executable = instantiate(graph);
        assert_eq!((launch(executable, on), launch(executable, on)), (0, 0));
        assert_eq!(cuStreamSynchronize(on), 0);
    }
    assert_eq!(counter.load(Ordering::SeqCst), 2);
}

#[test]
fn a_user_object_is_destroyed_with_its_last_reference() {
    let _alone = start();
    let (counter, graph) = (AtomicUsize::new(0), graph());
    let data = (&raw const counter).cast_mut().cast();
    let calls = || {
        assert_eq!(cuCtxSynchronize(), 0);
        counter.load(Ordering::SeqCst)
    };
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        let object = made(|out| cuUserObjectCreate(out, data, Some(count), 1, 1));
        assert_eq!(cuUserObjectCreate(&mut null_mut(), data, Some(count), 1, 0), 1);
        assert_eq!(cuGraphRetainUserObject(graph, object, 1, 1), 0, "moved");
        let executable = instantiate(graph);
        assert_eq!(cuGraphDestroy(graph), 0);
        assert_eq!(calls(), 0, "the executable graph has a reference");
        assert_eq!(cuGraphExecDestroy(executable), 0);
        assert_eq!(calls(), 1);
        assert_eq!(cuUserObjectRelease(object, 1), 400);
    }
}

#[test]
fn a_capture_continues_a_graph_of_the_program() {
    let _alone = start();
    let (ptr, on, graph) = (device(4096), stream(), graph());
    let root = empty(graph, &[]);
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        let begin = |on| cuStreamBeginCaptureToGraph(on, graph, &raw const root, null(), 1, 2);
        assert_eq!((begin(on), begin(on)), (0, 401));
        assert_eq!(cuMemsetD8Async(ptr, 1, 16, on), 0);
        let (mut nodes, mut count) = (null(), 0);
        let (id, of) = (&mut 0, &mut null_mut());
        assert_eq!(
            cuStreamGetCaptureInfo_v2(on, &mut 0, id, of, &raw mut nodes, &raw mut count),
            0
        );
        assert_eq!((*of, count), (graph, 1));
        let mut tip = nodes.read();
        assert_eq!(cuStreamUpdateCaptureDependencies(on, &raw mut tip, 1, 0), 0);
        assert_eq!(made(|out| cuStreamEndCapture(on, out)), graph);
        let mut before = [null_mut(); 2];
        let mut room = 2;
        assert_eq!(cuGraphNodeGetDependencies(tip, before.as_mut_ptr(), &raw mut room), 0);
        assert_eq!((before, room), ([root, null_mut()], 1));
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn a_launch_in_a_capture_becomes_a_child_node() {
    let _alone = start();
    let (ptr, on, graph) = (device(4096), stream(), graph());
    add_fill(graph, &[], fill(ptr, 8));
    let executable = instantiate(graph);
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(on, 2), 0);
        assert_eq!(launch(executable, on), 0);
        let captured = made(|out| cuStreamEndCapture(on, out));
        let (mut node, mut kind) = (null_mut(), 0);
        assert_eq!(cuGraphGetRootNodes(captured, &raw mut node, &mut 1), 0);
        assert_eq!(cuGraphNodeGetType(node, &raw mut kind), 0);
        assert_eq!(kind, 4);
        assert_eq!(launch(instantiate(captured), on), 0);
        assert_eq!(read(ptr), 8);
        assert_eq!(cuMemFree_v2(ptr), 0);
    }
}

#[test]
fn a_graph_is_printed_with_its_nodes_and_edges() {
    let _alone = start();
    let graph = graph();
    let first = empty(graph, &[]);
    empty(graph, &[first]);
    let file = tempfile::NamedTempFile::new().expect("there is a folder for temporary files");
    let path = std::ffi::CString::new(file.path().to_str().expect("it is text")).expect("no NUL");
    // SAFETY: places are locals that outlive the call, and handles may be any numbers.
    unsafe {
        assert_eq!(cuGraphDebugDotPrint(graph, path.as_ptr(), 0), 0);
        assert_eq!(cuGraphDebugDotPrint(graph, c"/nonexistent/x".as_ptr(), 0), 304);
    }
    let text = std::fs::read_to_string(file.path()).expect("the file is there");
    assert!(text.starts_with("digraph dot {\n") && text.ends_with("}\n"), "{text}");
    assert_eq!(text.matches("EMPTY").count(), 2, "{text}");
    assert_eq!(text.matches(" -> ").count(), 1, "{text}");
}
