//! Nodes of graphs that copy and fill.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use crate::contexts::{current, with_context};
use crate::copies::Kind;
use crate::driver::cu;
use crate::outcome::{Error, Outcome, read, write};
use crate::pitched::{Copy3d, Copy3dParameters, described, line, slices};
use crate::symbols::{source, target};
use crate::types::Handle;

/// Adds a node that copies slices of rows.
pub unsafe extern "C" fn cudaGraphAddMemcpyNode(
    to: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    parameters: *const Copy3dParameters,
) -> c_int {
    let place = Place { to, graph, after, count };
    // SAFETY: the caller promises that the structure is readable.
    place.add(|| some(slices(unsafe { read(parameters) }?)?))
}

/// Adds a node that copies consecutive bytes.
pub unsafe extern "C" fn cudaGraphAddMemcpyNode1D(
    to: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    target: *mut c_void,
    source: *const c_void,
    bytes: usize,
    kind: c_int,
) -> c_int {
    let place = Place { to, graph, after, count };
    place.add(|| Ok(line(target, source, bytes, Kind::new(kind)?)))
}

/// Adds a node that copies bytes to a variable of device code.
pub unsafe extern "C" fn cudaGraphAddMemcpyNodeToSymbol(
    to: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    let place = Place { to, graph, after, count };
    place.add(|| to_symbol(symbol, from, bytes, offset, kind))
}

/// Adds a node that copies bytes from a variable of device code.
pub unsafe extern "C" fn cudaGraphAddMemcpyNodeFromSymbol(
    to: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    target: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    let place = Place { to, graph, after, count };
    place.add(|| from_symbol(target, symbol, bytes, offset, kind))
}

/// Writes what a node copies.
pub unsafe extern "C" fn cudaGraphMemcpyNodeGetParams(
    node: Handle,
    to: *mut Copy3dParameters,
) -> c_int {
    with_context(|| {
        if to.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        let mut found = MaybeUninit::<Copy3d>::zeroed();
        // SAFETY: the place is writable; the driver checks the node.
        unsafe { cu!("cuGraphMemcpyNodeGetParams" @ 10000, node, found.as_mut_ptr()) }?;
        // SAFETY: every bit pattern is a copy.
        let found = unsafe { found.assume_init() };
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, described(&found)) }
    })
}

/// Changes what a node copies.
pub unsafe extern "C" fn cudaGraphMemcpyNodeSetParams(
    node: Handle,
    parameters: *const Copy3dParameters,
) -> c_int {
    // SAFETY: the caller promises that the structure is readable.
    set(node, || some(slices(unsafe { read(parameters) }?)?))
}

/// Changes what a node copies, to consecutive bytes.
pub unsafe extern "C" fn cudaGraphMemcpyNodeSetParams1D(
    node: Handle,
    target: *mut c_void,
    source: *const c_void,
    bytes: usize,
    kind: c_int,
) -> c_int {
    set(node, || Ok(line(target, source, bytes, Kind::new(kind)?)))
}

/// Changes what a node copies, to bytes of a variable.
pub unsafe extern "C" fn cudaGraphMemcpyNodeSetParamsToSymbol(
    node: Handle,
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    set(node, || to_symbol(symbol, from, bytes, offset, kind))
}

/// Changes what a node copies, from bytes of a variable.
pub unsafe extern "C" fn cudaGraphMemcpyNodeSetParamsFromSymbol(
    node: Handle,
    target: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    set(node, || from_symbol(target, symbol, bytes, offset, kind))
}

/// Changes what a node copies in an instantiated graph.
pub unsafe extern "C" fn cudaGraphExecMemcpyNodeSetParams(
    instance: Handle,
    node: Handle,
    parameters: *const Copy3dParameters,
) -> c_int {
    // SAFETY: the caller promises that the structure is readable.
    set_instance(instance, node, || some(slices(unsafe { read(parameters) }?)?))
}

/// Changes what a node copies in an instantiated graph, to consecutive bytes.
pub unsafe extern "C" fn cudaGraphExecMemcpyNodeSetParams1D(
    instance: Handle,
    node: Handle,
    target: *mut c_void,
    source: *const c_void,
    bytes: usize,
    kind: c_int,
) -> c_int {
    set_instance(instance, node, || Ok(line(target, source, bytes, Kind::new(kind)?)))
}

/// Changes what a node copies in an instantiated graph, to bytes of a variable.
pub unsafe extern "C" fn cudaGraphExecMemcpyNodeSetParamsToSymbol(
    instance: Handle,
    node: Handle,
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    set_instance(instance, node, || to_symbol(symbol, from, bytes, offset, kind))
}

/// Changes what a node copies in an instantiated graph, from bytes of a variable.
pub unsafe extern "C" fn cudaGraphExecMemcpyNodeSetParamsFromSymbol(
    instance: Handle,
    node: Handle,
    target: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    set_instance(instance, node, || from_symbol(target, symbol, bytes, offset, kind))
}

/// Adds a node that fills memory: `parameters` is a `cudaMemsetParams`, which is the driver's
/// structure too.
pub unsafe extern "C" fn cudaGraphAddMemsetNode(
    to: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    parameters: *const c_void,
) -> c_int {
    with_context(|| {
        let context = current()?;
        // SAFETY: the driver checks the handles; the caller promises the places and the structure.
        unsafe { cu!("cuGraphAddMemsetNode" @ 10000, to, graph, after, count, parameters, context) }
    })
}

/// Changes what a node fills in an instantiated graph.
pub unsafe extern "C" fn cudaGraphExecMemsetNodeSetParams(
    instance: Handle,
    node: Handle,
    parameters: *const c_void,
) -> c_int {
    with_context(|| {
        let context = current()?;
        // SAFETY: the driver checks the handles; the caller promises the structure.
        unsafe {
            cu!("cuGraphExecMemsetNodeSetParams" @ 10020, instance, node, parameters, context)
        }
    })
}

/// Where a new node goes.
struct Place {
    to: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
}

impl Place {
    fn add(self, copy: impl FnOnce() -> Outcome<Copy3d>) -> c_int {
        with_context(|| {
            let (copy, context) = (copy()?, current()?);
            let Self { to, graph, after, count } = self;
            let copy = &raw const copy;
            // SAFETY: the driver checks the handles; callers promise the places and the memory.
            unsafe { cu!("cuGraphAddMemcpyNode" @ 10000, to, graph, after, count, copy, context) }
        })
    }
}

fn set(node: Handle, copy: impl FnOnce() -> Outcome<Copy3d>) -> c_int {
    with_context(|| {
        let copy = copy()?;
        // SAFETY: the driver checks the node; callers promise the memory.
        unsafe { cu!("cuGraphMemcpyNodeSetParams" @ 10000, node, &raw const copy) }
    })
}

fn set_instance(instance: Handle, node: Handle, copy: impl FnOnce() -> Outcome<Copy3d>) -> c_int {
    with_context(|| {
        let (copy, context) = (copy()?, current()?);
        let copy = &raw const copy;
        // SAFETY: the driver checks the handles; callers promise the memory.
        unsafe { cu!("cuGraphExecMemcpyNodeSetParams" @ 10020, instance, node, copy, context) }
    })
}

/// A node has to copy something.
fn some(copy: Option<Copy3d>) -> Outcome<Copy3d> {
    copy.ok_or(Error::INVALID_VALUE)
}

fn to_symbol(
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Outcome<Copy3d> {
    let (to, kind) = target(symbol, bytes, offset, kind)?;
    Ok(line(to, from, bytes, kind))
}

fn from_symbol(
    to: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Outcome<Copy3d> {
    let (from, kind) = source(symbol, bytes, offset, kind)?;
    Ok(line(to, from, bytes, kind))
}
