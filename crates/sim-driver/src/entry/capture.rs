//! Entry points that begin, end and describe captures of streams.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

use pagewise_hal::Code;

use crate::driver::{Driver, Outcome, has_place, load, started, store, stream};
use crate::entry::graphs::{handles, plain_edges};
use crate::graphs::{
    ILLEGAL_STATE, Key, STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_UNSUPPORTED, exchange_mode,
};

/// `CU_STREAM_CAPTURE_STATUS_NONE`
const NONE: c_int = 0;
/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`
const ACTIVE: c_int = 1;
/// `CU_STREAM_CAPTURE_STATUS_INVALIDATED`
const INVALIDATED: c_int = 2;

/// The stream of a call that begins a capture. The legacy default stream has none.
fn key(driver: &Driver, on: *mut c_void) -> Outcome<Key> {
    driver.device_of_stream(stream(on))?;
    driver.key_of(stream(on)).ok_or(STREAM_CAPTURE_UNSUPPORTED)
}

fn check_mode(mode: c_int) -> Outcome {
    if (0..=2).contains(&mode) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Begins a capture into a graph of its own.
fn begin(symbol: &str, on: *mut c_void, mode: c_int) -> c_int {
    started(symbol, |driver| {
        let key = key(driver, on)?;
        check_mode(mode)?;
        let mut graphs = driver.graphs();
        if graphs.captures.of(key).is_some() {
            return Err(ILLEGAL_STATE);
        }
        let graph = graphs.create();
        graphs.captures.begin(key, mode, (graph, true), BTreeSet::new());
        Ok(())
    })
}

/// `cuStreamBeginCapture`, the form of CUDA 10.0: the mode is global.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture(on: *mut c_void) -> c_int {
    begin("cuStreamBeginCapture", on, 0)
}

/// `cuStreamBeginCapture`, the form of CUDA 10.1
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(on: *mut c_void, mode: c_int) -> c_int {
    begin("cuStreamBeginCapture_v2", on, mode)
}

/// `cuStreamBeginCaptureToGraph`
///
/// # Safety
/// `dependencies` must be null or have `count` items, `edges` too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCaptureToGraph(
    on: *mut c_void,
    graph: *mut c_void,
    dependencies: *const *mut c_void,
    edges: *const u64,
    count: usize,
    mode: c_int,
) -> c_int {
    started("cuStreamBeginCaptureToGraph", |driver| {
        let key = key(driver, on)?;
        check_mode(mode)?;
        // SAFETY: the caller promises that the arrays are null or have `count` items.
        let after = unsafe {
            plain_edges(edges, count)?;
            handles(dependencies, count)?
        };
        let mut graphs = driver.graphs();
        graphs.graph(graph.addr())?.check_nodes(&after)?;
        if graphs.captures.of(key).is_some() {
            return Err(ILLEGAL_STATE);
        }
        graphs.captures.begin(key, mode, (graph.addr(), false), after.into_iter().collect());
        Ok(())
    })
}

/// `cuStreamEndCapture`: without a place for it, the graph is gone.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(on: *mut c_void, graph: *mut *mut c_void) -> c_int {
    started("cuStreamEndCapture", |driver| {
        driver.device_of_stream(stream(on))?;
        let key = driver.key_of(stream(on)).ok_or(ILLEGAL_STATE)?;
        let (is_active, ended) = {
            let mut graphs = driver.graphs();
            (graphs.captures.of(key).is_some(), graphs.end_capture(key))
        };
        match ended {
            Ok((made, is_new)) if graph.is_null() => {
                if is_new {
                    driver.graphs().destroy(made)?;
                }
                Ok(())
            }
            // SAFETY: the caller promises that the place is null or valid for writing.
            Ok((made, _)) => unsafe { store(graph, without_provenance_mut(made)) },
            Err(code) => {
                if is_active && !graph.is_null() {
                    // SAFETY: the caller promises that the place is null or valid for writing.
                    unsafe { store(graph, std::ptr::null_mut()) }?;
                }
                Err(code)
            }
        }
    })
}

/// A stream's capture: its status and its number.
fn status(driver: &Driver, on: *mut c_void) -> Outcome<(c_int, u64)> {
    let handle = stream(on);
    driver.device_of_stream(handle)?;
    let graphs = driver.graphs();
    let Some(key) = driver.key_of(handle) else {
        graphs.captures.asks_legacy(Driver::current())?;
        return Ok((NONE, 0));
    };
    Ok(match graphs.captures.of(key) {
        None => (NONE, 0),
        Some((id, capture)) if capture.is_invalid => (INVALIDATED, id),
        Some((id, _)) => (ACTIVE, id),
    })
}

/// `cuStreamIsCapturing`
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(on: *mut c_void, out: *mut c_int) -> c_int {
    started("cuStreamIsCapturing", |driver| {
        has_place(out)?;
        let (status, _) = status(driver, on)?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(out, status) }
    })
}

/// Stores a result unless the caller leaves it out.
///
/// # Safety
/// `out` must be null or valid for writing.
unsafe fn offer<T: Copy>(out: *mut T, value: T) -> Outcome {
    // SAFETY: by this function's contract a place that is not null is valid for writing.
    if out.is_null() { Ok(()) } else { unsafe { store(out, value) } }
}

/// The optional results of `cuStreamGetCaptureInfo`.
struct Places {
    id: *mut u64,
    graph: *mut *mut c_void,
    dependencies: *mut *const *mut c_void,
    edges: *mut *const c_void,
    count: *mut usize,
}

/// Describes a capture. Of a stream that does not capture only the status is written.
///
/// # Safety
/// All places must be null or valid for writing.
unsafe fn describe(symbol: &str, on: *mut c_void, state: *mut c_int, places: &Places) -> c_int {
    started(symbol, |driver| {
        has_place(state)?;
        let (status, id) = status(driver, on)?;
        // SAFETY: by this function's contract all places are null or valid for writing.
        unsafe {
            store(state, status)?;
            if status != ACTIVE {
                return Ok(());
            }
            offer(places.id, id)?;
            let mut graphs = driver.graphs();
            let capture = driver.key_of(stream(on)).and_then(|key| {
                let captures = &mut graphs.captures;
                captures.of_mut(key).map(|capture| (key, capture))
            });
            let Some((key, capture)) = capture else { return Ok(()) };
            offer(places.graph, without_provenance_mut(capture.graph))?;
            let (tips, edges) = capture.list(key);
            offer(places.count, tips.len())?;
            offer(places.dependencies, tips.as_ptr().cast())?;
            offer(places.edges, edges.as_ptr().cast())
        }
    })
}

/// `cuStreamGetCaptureInfo`, the form of CUDA 10.1
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCaptureInfo(
    on: *mut c_void,
    state: *mut c_int,
    id: *mut u64,
) -> c_int {
    let (graph, dependencies) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (edges, count) = (std::ptr::null_mut(), std::ptr::null_mut());
    let places = Places { id, graph, dependencies, edges, count };
    // SAFETY: the caller promises that the places are null or valid for writing.
    unsafe { describe("cuStreamGetCaptureInfo", on, state, &places) }
}

/// `cuStreamGetCaptureInfo`, the form of CUDA 11.3. The array of nodes stays until the next call
/// for the stream, or the end of the capture.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    on: *mut c_void,
    state: *mut c_int,
    id: *mut u64,
    graph: *mut *mut c_void,
    dependencies: *mut *const *mut c_void,
    count: *mut usize,
) -> c_int {
    let places = Places { id, graph, dependencies, edges: std::ptr::null_mut(), count };
    // SAFETY: the caller promises that the places are null or valid for writing.
    unsafe { describe("cuStreamGetCaptureInfo_v2", on, state, &places) }
}

/// `cuStreamGetCaptureInfo`, the form of CUDA 12.3, with data of edges, which are all zero.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCaptureInfo_v3(
    on: *mut c_void,
    state: *mut c_int,
    id: *mut u64,
    graph: *mut *mut c_void,
    dependencies: *mut *const *mut c_void,
    edges: *mut *const c_void,
    count: *mut usize,
) -> c_int {
    let places = Places { id, graph, dependencies, edges, count };
    // SAFETY: the caller promises that the places are null or valid for writing.
    unsafe { describe("cuStreamGetCaptureInfo_v3", on, state, &places) }
}

/// Changes the nodes that the next node of a capture depends on.
fn update(symbol: &str, on: *mut c_void, nodes: Outcome<Vec<usize>>, flags: c_uint) -> c_int {
    started(symbol, |driver| {
        driver.device_of_stream(stream(on))?;
        let nodes = nodes?;
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let key = driver.key_of(stream(on)).ok_or(ILLEGAL_STATE)?;
        let mut graphs = driver.graphs();
        let (_, capture) = graphs.captures.of(key).ok_or(ILLEGAL_STATE)?;
        if capture.is_invalid {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        graphs.graph(capture.graph)?.check_nodes(&nodes)?;
        if let Some(capture) = graphs.captures.of_mut(key) {
            let tips = capture.tips.entry(key).or_default();
            if flags == 1 {
                tips.clear();
            }
            tips.extend(nodes);
        }
        Ok(())
    })
}

/// `cuStreamUpdateCaptureDependencies`, the form of CUDA 11.3
///
/// # Safety
/// `nodes` must be null or have `count` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamUpdateCaptureDependencies(
    on: *mut c_void,
    nodes: *mut *mut c_void,
    count: usize,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller promises that the array is null or has `count` items.
    let nodes = unsafe { handles(nodes.cast_const(), count) };
    update("cuStreamUpdateCaptureDependencies", on, nodes, flags)
}

/// `cuStreamUpdateCaptureDependencies`, the form of CUDA 12.3
///
/// # Safety
/// `nodes` must be null or have `count` items, `edges` too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamUpdateCaptureDependencies_v2(
    on: *mut c_void,
    nodes: *mut *mut c_void,
    edges: *const u64,
    count: usize,
    flags: c_uint,
) -> c_int {
    const NAME: &str = "cuStreamUpdateCaptureDependencies_v2";
    // SAFETY: the caller promises that the arrays are null or have `count` items.
    let (nodes, plain) = unsafe { (handles(nodes.cast_const(), count), plain_edges(edges, count)) };
    update(NAME, on, plain.and(nodes), flags)
}

/// `cuThreadExchangeStreamCaptureMode`: driver 580 takes any number. One without a meaning counts as
/// the global mode.
///
/// # Safety
/// `mode` must be null or valid for reading and writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    started("cuThreadExchangeStreamCaptureMode", |_| {
        // SAFETY: the caller promises that the place is null or valid for reading.
        let new = unsafe { load(mode.cast_const()) }?;
        // SAFETY: the caller promises that the place is null or valid for writing.
        unsafe { store(mode, exchange_mode(new)) }
    })
}
