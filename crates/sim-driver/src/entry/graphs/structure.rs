//! Entry points that make, clone and destroy graphs, and read and change their nodes and edges.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

use pagewise_hal::Code;

use crate::driver::{Driver, Outcome, has_place, started, store};
use crate::entry::graphs::arrays::{edge_data, give_edges, give_handles, handles};
use crate::graphs::{Edge, Graph, Task};

/// `CUDA_ERROR_OPERATING_SYSTEM`
const OPERATING_SYSTEM: c_int = 304;

/// Stores a handle.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn store_handle(out: *mut *mut c_void, handle: usize) -> Outcome {
    // SAFETY: by this function's contract the place is null or valid for writing.
    unsafe { store(out, without_provenance_mut(handle)) }
}

/// `cuGraphCreate`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(out: *mut *mut c_void, flags: c_uint) -> c_int {
    started("cuGraphCreate", |driver| {
        has_place(out)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let made = driver.graphs().create();
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store_handle(out, made) }
    })
}

/// `cuGraphDestroy`
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: *mut c_void) -> c_int {
    started("cuGraphDestroy", |driver| {
        driver.graphs().destroy(graph.addr())?;
        driver.drop_objects();
        Ok(())
    })
}

/// `cuGraphClone`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphClone(out: *mut *mut c_void, graph: *mut c_void) -> c_int {
    started("cuGraphClone", |driver| {
        has_place(out)?;
        let made = driver.graphs().clone_graph(graph.addr())?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store_handle(out, made) }
    })
}

/// `cuGraphNodeFindInClone`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeFindInClone(
    out: *mut *mut c_void,
    original: *mut c_void,
    clone: *mut c_void,
) -> c_int {
    started("cuGraphNodeFindInClone", |driver| {
        has_place(out)?;
        let found = driver.graphs().find_in_clone(original.addr(), clone.addr())?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store_handle(out, found) }
    })
}

/// Gives nodes of a graph.
///
/// # Safety
/// `count` must be null or valid for reading and writing; `nodes` null or as long as it says.
unsafe fn give_nodes(
    symbol: &str,
    graph: *mut c_void,
    (nodes, count): (*mut *mut c_void, *mut usize),
    is_wanted: impl Fn(&Graph, usize) -> bool,
) -> c_int {
    started(symbol, |driver| {
        let graphs = driver.graphs();
        let graph = graphs.graph(graph.addr())?;
        let found: Vec<usize> =
            graph.nodes.keys().copied().filter(|&node| is_wanted(graph, node)).collect();
        // SAFETY: by this function's contract the places are null, or valid and as long as they say.
        unsafe { give_handles(&found, nodes, count) }
    })
}

/// `cuGraphGetNodes`
///
/// # Safety
/// `count` must be null or valid for reading and writing; `nodes` null or as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetNodes(
    graph: *mut c_void,
    nodes: *mut *mut c_void,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller promises of the places what `give_nodes` asks for.
    unsafe { give_nodes("cuGraphGetNodes", graph, (nodes, count), |_, _| true) }
}

/// `cuGraphGetRootNodes`
///
/// # Safety
/// As [`cuGraphGetNodes`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetRootNodes(
    graph: *mut c_void,
    nodes: *mut *mut c_void,
    count: *mut usize,
) -> c_int {
    let is_root =
        |graph: &Graph, node| graph.nodes.get(&node).is_some_and(|node| node.after.is_empty());
    // SAFETY: the caller promises of the places what `give_nodes` asks for.
    unsafe { give_nodes("cuGraphGetRootNodes", graph, (nodes, count), is_root) }
}

/// Gives the neighbours of a node.
///
/// # Safety
/// As [`cuGraphGetNodes`]; `edges` must be null or as long as `nodes`.
unsafe fn give_neighbours(
    symbol: &str,
    node: *mut c_void,
    (nodes, edges, count): (*mut *mut c_void, *mut u64, *mut usize),
    is_before: bool,
) -> c_int {
    started(symbol, |driver| {
        let graphs = driver.graphs();
        let (handle, graph) = (node.addr(), graphs.graph(graphs.graph_of(node.addr())?)?);
        let node = graph.node(handle)?;
        let set = if is_before { &node.after } else { &node.before };
        let found: Vec<usize> = set.iter().copied().collect();
        let data = |other: &usize| match is_before {
            true => graph.data(*other, handle),
            false => graph.data(handle, *other),
        };
        let data: Vec<u64> = found.iter().map(data).collect();
        // SAFETY: by this function's contract the places are null, or valid and as long as they say.
        unsafe {
            give_edges(&data, edges, count, !nodes.is_null())?;
            give_handles(&found, nodes, count)
        }
    })
}

/// `cuGraphNodeGetDependencies`, the form of CUDA 10.0
///
/// # Safety
/// As [`cuGraphGetNodes`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetDependencies(
    node: *mut c_void,
    nodes: *mut *mut c_void,
    count: *mut usize,
) -> c_int {
    let places = (nodes, std::ptr::null_mut(), count);
    // SAFETY: the caller promises of the places what `give_neighbours` asks for.
    unsafe { give_neighbours("cuGraphNodeGetDependencies", node, places, true) }
}

/// `cuGraphNodeGetDependencies`, the form of CUDA 12.3
///
/// # Safety
/// As [`cuGraphGetNodes`]; `edges` must be null or as long as `nodes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetDependencies_v2(
    node: *mut c_void,
    nodes: *mut *mut c_void,
    edges: *mut u64,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller promises of the places what `give_neighbours` asks for.
    unsafe { give_neighbours("cuGraphNodeGetDependencies_v2", node, (nodes, edges, count), true) }
}

/// `cuGraphNodeGetDependentNodes`, the form of CUDA 10.0
///
/// # Safety
/// As [`cuGraphGetNodes`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetDependentNodes(
    node: *mut c_void,
    nodes: *mut *mut c_void,
    count: *mut usize,
) -> c_int {
    let places = (nodes, std::ptr::null_mut(), count);
    // SAFETY: the caller promises of the places what `give_neighbours` asks for.
    unsafe { give_neighbours("cuGraphNodeGetDependentNodes", node, places, false) }
}

/// `cuGraphNodeGetDependentNodes`, the form of CUDA 12.3
///
/// # Safety
/// As [`cuGraphGetNodes`]; `edges` must be null or as long as `nodes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetDependentNodes_v2(
    node: *mut c_void,
    nodes: *mut *mut c_void,
    edges: *mut u64,
    count: *mut usize,
) -> c_int {
    let places = (nodes, edges, count);
    // SAFETY: the caller promises of the places what `give_neighbours` asks for.
    unsafe { give_neighbours("cuGraphNodeGetDependentNodes_v2", node, places, false) }
}

/// Gives the edges of a graph.
///
/// # Safety
/// `count` must be null or valid for reading and writing; the arrays null or as long as it says.
unsafe fn give_all_edges(
    symbol: &str,
    graph: *mut c_void,
    (from, to): (*mut *mut c_void, *mut *mut c_void),
    (edges, count): (*mut u64, *mut usize),
) -> c_int {
    started(symbol, |driver| {
        let graphs = driver.graphs();
        let graph = graphs.graph(graph.addr())?;
        let (sources, targets): (Vec<_>, Vec<_>) = graph.edges().unzip();
        let data: Vec<u64> = graph.edges().map(|(from, to)| graph.data(from, to)).collect();
        if from.is_null() != to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        has_place(count)?;
        // SAFETY: by this function's contract the places are null, or valid and as long as `count`
        // says, and `count` is not null. The first array must not change the length of the
        // second, so that is kept.
        unsafe {
            let room = count.read_unaligned();
            give_edges(&data, edges, count, !from.is_null())?;
            give_handles(&sources, from, count)?;
            count.write_unaligned(room);
            give_handles(&targets, to, count)
        }
    })
}

/// `cuGraphGetEdges`, the form of CUDA 10.0
///
/// # Safety
/// `count` must be null or valid for reading and writing; the arrays null or as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetEdges(
    graph: *mut c_void,
    from: *mut *mut c_void,
    to: *mut *mut c_void,
    count: *mut usize,
) -> c_int {
    let places = (std::ptr::null_mut(), count);
    // SAFETY: the caller promises of the places what `give_all_edges` asks for.
    unsafe { give_all_edges("cuGraphGetEdges", graph, (from, to), places) }
}

/// `cuGraphGetEdges`, the form of CUDA 12.3
///
/// # Safety
/// As [`cuGraphGetEdges`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetEdges_v2(
    graph: *mut c_void,
    from: *mut *mut c_void,
    to: *mut *mut c_void,
    edges: *mut u64,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller promises of the places what `give_all_edges` asks for.
    unsafe { give_all_edges("cuGraphGetEdges_v2", graph, (from, to), (edges, count)) }
}

/// Adds or removes edges.
///
/// # Safety
/// The arrays must be null or have `count` items.
unsafe fn change_edges(
    symbol: &str,
    graph: *mut c_void,
    (from, to): (*const *mut c_void, *const *mut c_void),
    (edges, count): (*const u64, usize),
    change: impl FnOnce(&mut Graph, &[Edge]) -> Outcome,
) -> c_int {
    started(symbol, |driver| {
        // SAFETY: by this function's contract the arrays are null or have `count` items.
        let (from, to, data) =
            unsafe { (handles(from, count)?, handles(to, count)?, edge_data(edges, count)?) };
        let pairs = from.into_iter().zip(to).zip(data);
        let pairs: Vec<_> = pairs.map(|((from, to), data)| Edge { from, to, data }).collect();
        change(driver.graphs().graph_mut(graph.addr())?, &pairs)
    })
}

/// `cuGraphAddDependencies`, the form of CUDA 10.0
///
/// # Safety
/// The arrays must be null or have `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddDependencies(
    graph: *mut c_void,
    from: *const *mut c_void,
    to: *const *mut c_void,
    count: usize,
) -> c_int {
    let (nodes, edges) = ((from, to), (std::ptr::null(), count));
    // SAFETY: the caller promises that the arrays are null or have `count` items.
    unsafe { change_edges("cuGraphAddDependencies", graph, nodes, edges, Graph::connect) }
}

/// `cuGraphAddDependencies`, the form of CUDA 12.3
///
/// # Safety
/// As [`cuGraphAddDependencies`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddDependencies_v2(
    graph: *mut c_void,
    from: *const *mut c_void,
    to: *const *mut c_void,
    edges: *const u64,
    count: usize,
) -> c_int {
    let (nodes, edges) = ((from, to), (edges, count));
    // SAFETY: the caller promises that the arrays are null or have `count` items.
    unsafe { change_edges("cuGraphAddDependencies_v2", graph, nodes, edges, Graph::connect) }
}

/// `cuGraphRemoveDependencies`, the form of CUDA 10.0
///
/// # Safety
/// As [`cuGraphAddDependencies`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphRemoveDependencies(
    graph: *mut c_void,
    from: *const *mut c_void,
    to: *const *mut c_void,
    count: usize,
) -> c_int {
    let (nodes, edges) = ((from, to), (std::ptr::null(), count));
    // SAFETY: the caller promises that the arrays are null or have `count` items.
    unsafe { change_edges("cuGraphRemoveDependencies", graph, nodes, edges, Graph::disconnect) }
}

/// `cuGraphRemoveDependencies`, the form of CUDA 12.3
///
/// # Safety
/// As [`cuGraphAddDependencies`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphRemoveDependencies_v2(
    graph: *mut c_void,
    from: *const *mut c_void,
    to: *const *mut c_void,
    edges: *const u64,
    count: usize,
) -> c_int {
    let (nodes, edges) = ((from, to), (edges, count));
    // SAFETY: the caller promises that the arrays are null or have `count` items.
    unsafe { change_edges("cuGraphRemoveDependencies_v2", graph, nodes, edges, Graph::disconnect) }
}

/// `cuGraphDestroyNode`
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroyNode(node: *mut c_void) -> c_int {
    started("cuGraphDestroyNode", |driver| {
        driver.graphs().destroy_node(node.addr())?;
        driver.drop_objects();
        Ok(())
    })
}

/// Gives a figure.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn give<T: Copy>(
    symbol: &str,
    out: *mut T,
    figure: impl FnOnce(&Driver) -> Outcome<T>,
) -> c_int {
    started(symbol, |driver| {
        has_place(out)?;
        let figure = figure(driver)?;
        // SAFETY: by this function's contract the place is null or valid for writing.
        unsafe { store(out, figure) }
    })
}

/// `cuGraphNodeGetType`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetType(node: *mut c_void, out: *mut c_int) -> c_int {
    let kind = |driver: &Driver| Ok(driver.graphs().node(node.addr())?.task.kind());
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphNodeGetType", out, kind) }
}

/// `cuGraphChildGraphNodeGetGraph`: the graph belongs to the node.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphChildGraphNodeGetGraph(
    node: *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    let child = |driver: &Driver| match driver.graphs().node(node.addr())?.task {
        Task::Child(child) => Ok(without_provenance_mut(child)),
        _ => Err(Code::INVALID_VALUE),
    };
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphChildGraphNodeGetGraph", out, child) }
}

/// `cuGraphGetId`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetId(graph: *mut c_void, out: *mut c_uint) -> c_int {
    let id = |driver: &Driver| Ok(driver.graphs().graph(graph.addr())?.id);
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphGetId", out, id) }
}

/// `cuGraphNodeGetLocalId`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetLocalId(node: *mut c_void, out: *mut c_uint) -> c_int {
    let id = |driver: &Driver| Ok(driver.graphs().node(node.addr())?.local_id);
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphNodeGetLocalId", out, id) }
}

/// `cuGraphNodeGetToolsId`: the number of the graph above that of the node.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetToolsId(node: *mut c_void, out: *mut u64) -> c_int {
    let id = |driver: &Driver| {
        let graphs = driver.graphs();
        let graph = graphs.graph(graphs.graph_of(node.addr())?)?;
        Ok(u64::from(graph.id) << 32 | u64::from(graph.node(node.addr())?.local_id))
    };
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphNodeGetToolsId", out, id) }
}

/// `cuGraphNodeGetContainingGraph`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetContainingGraph(
    node: *mut c_void,
    out: *mut *mut c_void,
) -> c_int {
    let graph =
        |driver: &Driver| Ok(without_provenance_mut(driver.graphs().graph_of(node.addr())?));
    // SAFETY: the caller promises that the place is null or valid for writing.
    unsafe { give("cuGraphNodeGetContainingGraph", out, graph) }
}

/// `cuGraphDebugDotPrint`: a file in the DOT language. Flags add handles of nodes; parameters are
/// left out.
///
/// # Safety
/// `path` must be null or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDebugDotPrint(
    graph: *mut c_void,
    path: *const c_char,
    flags: c_uint,
) -> c_int {
    started("cuGraphDebugDotPrint", |driver| {
        let text = driver.graphs().dot(graph.addr(), flags)?;
        has_place(path)?;
        // SAFETY: `path` is not null, so the caller promises that it is NUL-terminated. The text is
        // used within this call only.
        let path = unsafe { CStr::from_ptr(path) }.to_str().map_err(|_| OPERATING_SYSTEM)?;
        std::fs::write(path, text).map_err(|_| OPERATING_SYSTEM)
    })
}
