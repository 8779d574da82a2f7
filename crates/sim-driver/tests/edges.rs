//! Edges of graphs with data, as driver 580 on an H200 answered (CUDA 13.0, recorded on 23 November
//! 2026).

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use common::{PTX, function_of, module_of, start};
use pagewise_driver::*;

/// A node of a kernel (`k`) or an empty one (`e`).
fn node(graph: *mut c_void, kind: char, function: *mut c_void) -> *mut c_void {
    let params = KernelNodeParamsOfFunction {
        function,
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
        arguments: null_mut(),
        extra: null_mut(),
    };
    let mut node = null_mut();
    // SAFETY: places are locals that outlive the calls; the kernel has no arguments.
    let code = unsafe {
        match kind {
            'k' => cuGraphAddKernelNode(&raw mut node, graph, null(), 0, &raw const params),
            _ => cuGraphAddEmptyNode(&raw mut node, graph, null(), 0),
        }
    };
    assert_eq!(code, 0);
    node
}

/// The port that an edge leaves, the port that it enters, and its type.
fn data(bytes: [u8; 3]) -> u64 {
    u64::from_ne_bytes([bytes[0], bytes[1], bytes[2], 0, 0, 0, 0, 0])
}

#[test]
fn data_of_edges_fits_their_nodes_and_is_not_lost() {
    start();
    let empty = function_of(module_of(PTX), "empty");
    let all = [
        [0, 0, 0],
        [1, 0, 1],
        [2, 0, 1],
        [1, 0, 0],
        [2, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
        [3, 0, 1],
        [0, 0, 2],
        [1, 1, 1],
    ];
    let allowed = |kinds: &str, bytes| match kinds {
        "kk" => [[0, 0, 0], [1, 0, 1], [2, 0, 1], [2, 0, 0]].contains(&bytes),
        "ke" => [[0, 0, 0], [2, 0, 0]].contains(&bytes),
        _ => bytes == [0, 0, 0],
    };
    for kinds in ["kk", "ke", "ek", "ee"] {
        for bytes in all {
            let mut graph = null_mut();
            // SAFETY: the place is a local that outlives the call.
            assert_eq!(unsafe { cuGraphCreate(&raw mut graph, 0) }, 0);
            let nodes: Vec<_> = kinds.chars().map(|kind| node(graph, kind, empty)).collect();
            let given = data(bytes);
            let (from, to) = (&raw const nodes[0], &raw const nodes[1]);
            let question = format!("{kinds} {bytes:?}");
            // SAFETY: places are locals that outlive the calls, and arrays as long as they say.
            unsafe {
                let added = cuGraphAddDependencies_v2(graph, from, to, &raw const given, 1);
                assert_eq!(added == 0, allowed(kinds, bytes), "{question}: {added}");
                if added != 0 {
                    assert_eq!(added, 1, "{question}");
                    continue;
                }
                let (mut source, mut target) = (null_mut(), null_mut());
                let (mut found, mut count) = (9_u64, 1);
                let places = (&raw mut source, &raw mut target, &raw mut count);
                let data = &raw mut found;
                assert_eq!(cuGraphGetEdges_v2(graph, places.0, places.1, data, places.2), 0);
                assert_eq!((found, count), (given, 1), "{question}");
                let lossy: c_int = if given == 0 { 0 } else { 402 };
                assert_eq!(cuGraphGetEdges(graph, places.0, places.1, places.2), lossy);
                let before = cuGraphNodeGetDependencies(nodes[1], places.0, places.2);
                assert_eq!(before, lossy, "{question}");
                assert_eq!(cuGraphAddDependencies(graph, from, to, 1), 1, "{question}");
                assert_eq!(cuGraphRemoveDependencies(graph, from, to, 1), 0, "{question}");
                assert_eq!(cuGraphRemoveDependencies(graph, from, to, 1), 1, "{question}");
            }
        }
    }
}
