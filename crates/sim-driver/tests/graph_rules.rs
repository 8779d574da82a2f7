//! Rules of graphs and captures, as driver 580 on an H200 answered (CUDA 13.0, recorded on 23 November
//! 2026).
//!
//! The tests run one at a time: a context's synchronization is refused while one of its streams is captured
//! (900), and it invalidates that capture.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_driver::*;

/// Starts the driver with device 0's context, for one test at a time.
fn start() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(cuInit(0), 0);
    // SAFETY: the place is a local that outlives the call.
    let context = made(|out| unsafe { cuDevicePrimaryCtxRetain(out, 0) });
    assert_eq!(cuCtxSetCurrent(context), 0);
    alone
}

/// A handle that a call gives.
fn made(call: impl FnOnce(*mut *mut c_void) -> c_int) -> *mut c_void {
    let mut out = null_mut();
    assert_eq!(call(&raw mut out), 0);
    out
}

fn stream() -> *mut c_void {
    // SAFETY: the place is a local that outlives the call.
    made(|out| unsafe { cuStreamCreate(out, 1) })
}

fn graph() -> *mut c_void {
    // SAFETY: the place is a local that outlives the call.
    made(|out| unsafe { cuGraphCreate(out, 0) })
}

fn props(kind: c_int, location: (c_int, c_int)) -> MemPoolProps {
    MemPoolProps {
        allocation_type: kind,
        handle_types: 0,
        location: MemLocation { kind: location.0, id: location.1 },
        win32_security_attributes: null_mut(),
        max_bytes: 0,
        reserved: [0; 56],
    }
}

fn nodes(graph: *mut c_void) -> usize {
    let mut count = 0;
    // SAFETY: the place is a local that outlives the call.
    assert_eq!(unsafe { cuGraphGetNodes(graph, null_mut(), &raw mut count) }, 0);
    count
}

fn node_params() -> MemAllocNodeParams {
    let (access, access_count) = (null(), 0);
    MemAllocNodeParams { props: props(0, (0, 0)), access, access_count, bytes: 0, address: 0 }
}

#[test]
fn an_allocation_of_nothing_in_a_capture_is_null_and_no_node() {
    let _alone = start();
    let on = stream();
    for (bytes, count) in [(0, 0), (1, 1)] {
        assert_eq!(cuStreamBeginCapture_v2(on, 2), 0);
        let mut ptr = 5;
        // SAFETY: the places are locals that outlive the calls.
        let ended = unsafe {
            assert_eq!(cuMemAllocAsync(&raw mut ptr, bytes, on), 0);
            made(|out| cuStreamEndCapture(on, out))
        };
        assert_eq!((ptr == 0, nodes(ended)), (bytes == 0, count));
    }
}

#[test]
fn a_captured_allocation_is_on_the_device_of_its_pool() {
    let _alone = start();
    let on = stream();
    let pools =
        [(1, (1, 0), 0), (1, (2, 0), 801), (2, (1, 0), 0), (2, (0, 0), 1), (2, (2, 0), 801)];
    for (kind, location, code) in pools {
        let (wanted, mut ptr) = (props(kind, location), 0);
        // SAFETY: the places are locals that outlive the calls, and the pool is not used again.
        let ended = unsafe {
            let pool = made(|out| cuMemPoolCreate(out, &raw const wanted));
            assert_eq!(cuStreamBeginCapture_v2(on, 2), 0);
            let allocated = cuMemAllocFromPoolAsync(&raw mut ptr, 4096, pool, on);
            assert_eq!(allocated, code, "{kind} {location:?}");
            assert_eq!(cuMemPoolDestroy(pool), 0);
            made(|out| cuStreamEndCapture(on, out))
        };
        assert_eq!(nodes(ended), usize::from(code == 0));
        if code == 0 {
            let (mut node, mut count, mut found) = (null_mut(), 1, node_params());
            // SAFETY: the places are locals that outlive the calls.
            unsafe {
                assert_eq!(cuGraphGetNodes(ended, &raw mut node, &raw mut count), 0);
                assert_eq!(cuGraphMemAllocNodeGetParams(node, &raw mut found), 0);
            }
            let MemPoolProps { allocation_type, location, .. } = found.props;
            assert_eq!((allocation_type, location.kind, location.id), (1, 1, 0));
            assert_eq!((found.bytes, found.address), (4096, ptr));
        }
    }
}

#[test]
fn a_node_that_asks_for_managed_memory_gets_the_devices() {
    let _alone = start();
    let (graph, mut node) = (graph(), null_mut());
    let mut params = MemAllocNodeParams { props: props(2, (1, 0)), bytes: 1000, ..node_params() };
    let mut found = node_params();
    // SAFETY: the places are locals that outlive the calls.
    unsafe {
        let added = cuGraphAddMemAllocNode(&raw mut node, graph, null(), 0, &raw mut params);
        assert_eq!(added, 0);
        assert_eq!(cuGraphMemAllocNodeGetParams(node, &raw mut found), 0);
        assert_eq!((found.props.allocation_type, found.props.location.kind), (2, 1));
        let executable = made(|out| cuGraphInstantiateWithFlags(out, graph, 0));
        assert_eq!(cuGraphLaunch(executable, null_mut()), 0);
        let (mut kind, mut is_managed) = (0_u32, 9_u32);
        let place = (&raw mut kind).cast();
        assert_eq!(cuPointerGetAttribute(place, 2, params.address), 0);
        assert_eq!(cuPointerGetAttribute((&raw mut is_managed).cast(), 8, params.address), 0);
        assert_eq!((kind, is_managed), (2, 0));
        let on_device = MemLocation { kind: 1, id: 0 };
        assert_eq!(cuMemAdvise_v2(params.address, 4096, 1, on_device), 1);
        assert_eq!(cuMemFree_v2(params.address), 0);
    }
}

/// Notes that an object is gone: `data` is the address of a number.
unsafe extern "C" fn gone(data: *mut c_void) {
    // SAFETY: the test passes the address of a number that outlives the call.
    unsafe { &*data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn an_update_exchanges_the_user_objects_of_an_executable_graph() {
    let _alone = start();
    let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let found = || {
        assert_eq!(cuCtxSynchronize(), 0);
        [0, 1].map(|index: usize| counts[index].load(Ordering::SeqCst))
    };
    let mut result =
        UpdateResult { result: 9, error_node: null_mut(), error_from_node: null_mut() };
    // SAFETY: the places are locals that outlive the calls, and the numbers too.
    unsafe {
        let graphs = counts.each_ref().map(|count| {
            let (graph, data) = (graph(), (&raw const *count).cast_mut().cast());
            made(|out| cuGraphAddEmptyNode(out, graph, null(), 0));
            let object = made(|out| cuUserObjectCreate(out, data, Some(gone), 1, 1));
            assert_eq!(cuGraphRetainUserObject(graph, object, 1, 1), 0, "moved");
            graph
        });
        let executable = made(|out| cuGraphInstantiateWithFlags(out, graphs[0], 0));
        assert_eq!(cuGraphDestroy(graphs[0]), 0);
        assert_eq!(found(), [0, 0]);
        assert_eq!(cuGraphExecUpdate_v2(executable, graphs[1], &raw mut result), 0);
        assert_eq!(found(), [1, 0]);
        assert_eq!(cuGraphDestroy(graphs[1]), 0);
        assert_eq!(found(), [1, 0]);
        assert_eq!(cuGraphExecDestroy(executable), 0);
        assert_eq!(found(), [1, 1]);
    }
}

#[test]
fn a_graph_is_not_destroyed_while_a_capture_makes_nodes_of_it() {
    let _alone = start();
    let on = stream();
    let (mut state, mut captured) = (0, null_mut());
    // SAFETY: the places are locals that outlive the calls.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(on, 2), 0);
        let (id, none) = (null_mut(), null_mut());
        let asked =
            cuStreamGetCaptureInfo_v2(on, &raw mut state, id, &raw mut captured, none, null_mut());
        assert_eq!((asked, cuGraphDestroy(captured)), (0, 401));
        assert_eq!(made(|out| cuStreamEndCapture(on, out)), captured);
    }
    assert_eq!(cuGraphDestroy(captured), 0);
}

#[test]
fn an_event_of_a_capture_that_ended_invalidates_the_capture_that_waits_for_it() {
    let _alone = start();
    let on = stream();
    let mut ended = null_mut();
    // SAFETY: the places are locals that outlive the calls.
    unsafe {
        let event = made(|out| cuEventCreate(out, 0));
        assert_eq!(cuStreamBeginCapture_v2(on, 2), 0);
        assert_eq!(cuEventRecord(event, on), 0);
        made(|out| cuStreamEndCapture(on, out));
        assert_eq!(cuStreamBeginCapture_v2(on, 2), 0);
        assert_eq!(cuStreamWaitEvent(on, event, 0), 1);
        assert_eq!(cuStreamEndCapture(on, &raw mut ended), 901);
    }
}

#[test]
fn a_graph_that_devices_launch_has_nodes_of_devices_only() {
    let _alone = start();
    let (with_empty, none) = (graph(), graph());
    let mut executable = null_mut();
    // SAFETY: the places are locals that outlive the calls.
    unsafe {
        made(|out| cuGraphAddEmptyNode(out, with_empty, null(), 0));
        assert_eq!(cuGraphInstantiateWithFlags(&raw mut executable, with_empty, 4), 1);
        assert_eq!(cuGraphInstantiateWithFlags(&raw mut executable, none, 4), 0);
        let mut params = InstantiateParams {
            flags: 2,
            upload_stream: null_mut(),
            error_node: null_mut(),
            result: 9,
        };
        let out = &raw mut executable;
        assert_eq!(cuGraphInstantiateWithParams(out, with_empty, &raw mut params), 0);
        let mut flags = 9;
        assert_eq!(cuGraphExecGetFlags(executable, &raw mut flags), 0);
        assert_eq!((flags, params.result), (0, 0), "the upload is over");
    }
}
