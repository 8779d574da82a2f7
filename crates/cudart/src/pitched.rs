//! Copies of rows and slices.
//!
//! Copies to and from arrays return 801 (`cudaErrorNotSupported`).

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::contexts::{primary_context, with_context};
use crate::copies::Kind;
use crate::driver::cu;
use crate::outcome::{Error, Outcome, read};
use crate::types::{Extent, Handle, PitchedPtr, Position};

/// `CUmemorytype`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;
const UNIFIED: c_uint = 4;

/// Copies `height` rows of `width` bytes; pitches are the bytes from one row to the next. Returns
/// 12 (`cudaErrorInvalidPitchValue`) if rows are longer than a pitch.
pub unsafe extern "C" fn cudaMemcpy2D(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> c_int {
    with_context(|| {
        let Some(copy) = rows((to, to_pitch), (from, from_pitch), width, height, kind)? else {
            return Ok(());
        };
        // SAFETY: the caller promises that both sides are memory of the kind.
        unsafe { cu!("cuMemcpy2DUnaligned" @ 3020, &raw const copy) }
    })
}

/// Copies rows in the order of a stream.
pub unsafe extern "C" fn cudaMemcpy2DAsync(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: Handle,
) -> c_int {
    with_context(|| {
        let Some(copy) = rows((to, to_pitch), (from, from_pitch), width, height, kind)? else {
            return Ok(());
        };
        // SAFETY: the caller promises that both sides are memory of the kind until it is done.
        unsafe { cu!("cuMemcpy2DAsync" @ 3020, &raw const copy, stream) }
    })
}

/// Copies slices of rows.
pub unsafe extern "C" fn cudaMemcpy3D(parameters: *const Copy3dParameters) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let Some(copy) = slices(unsafe { read(parameters) }?)? else { return Ok(()) };
        // SAFETY: the caller promises that both sides are memory of the kind.
        unsafe { cu!("cuMemcpy3D" @ 3020, &raw const copy) }
    })
}

/// Copies slices of rows in the order of a stream.
pub unsafe extern "C" fn cudaMemcpy3DAsync(
    parameters: *const Copy3dParameters,
    stream: Handle,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let Some(copy) = slices(unsafe { read(parameters) }?)? else { return Ok(()) };
        // SAFETY: the caller promises that both sides are memory of the kind until it is done.
        unsafe { cu!("cuMemcpy3DAsync" @ 3020, &raw const copy, stream) }
    })
}

/// Copies slices of rows from one device's memory to another's.
pub unsafe extern "C" fn cudaMemcpy3DPeer(parameters: *const Copy3dPeerParameters) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let Some(copy) = peer_slices(unsafe { read(parameters) }?)? else { return Ok(()) };
        // SAFETY: the caller promises that both sides are memory of the devices.
        unsafe { cu!("cuMemcpy3DPeer" @ 4000, &raw const copy) }
    })
}

/// Copies slices of rows from one device's memory to another's in the order of a stream.
pub unsafe extern "C" fn cudaMemcpy3DPeerAsync(
    parameters: *const Copy3dPeerParameters,
    stream: Handle,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the structure is readable.
        let Some(copy) = peer_slices(unsafe { read(parameters) }?)? else { return Ok(()) };
        // SAFETY: the caller promises that both sides are memory of the devices until it is done.
        unsafe { cu!("cuMemcpy3DPeerAsync" @ 4000, &raw const copy, stream) }
    })
}

/// `cudaMemcpy3DParms`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy3dParameters {
    /// The array that is read, or null.
    pub from_array: Handle,
    /// Where the copy starts in the source.
    pub from_position: Position,
    /// The memory that is read, unless an array is.
    pub from: PitchedPtr,
    /// The array that is written, or null.
    pub to_array: Handle,
    /// Where the copy starts in the target.
    pub to_position: Position,
    /// The memory that is written, unless an array is.
    pub to: PitchedPtr,
    /// How much is copied.
    pub extent: Extent,
    /// One of `cudaMemcpyKind`.
    pub kind: c_int,
}

/// `cudaMemcpy3DPeerParms`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy3dPeerParameters {
    /// The array that is read, or null.
    pub from_array: Handle,
    /// Where the copy starts in the source.
    pub from_position: Position,
    /// The memory that is read, unless an array is.
    pub from: PitchedPtr,
    /// The device of the source.
    pub from_device: c_int,
    /// The array that is written, or null.
    pub to_array: Handle,
    /// Where the copy starts in the target.
    pub to_position: Position,
    /// The memory that is written, unless an array is.
    pub to: PitchedPtr,
    /// The device of the target.
    pub to_device: c_int,
    /// How much is copied.
    pub extent: Extent,
}

/// A side of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side2d {
    x: usize,
    y: usize,
    memory: c_uint,
    host: *mut c_void,
    device: *mut c_void,
    array: Handle,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Copy2d {
    from: Side2d,
    to: Side2d,
    width: usize,
    height: usize,
}

/// A side of `CUDA_MEMCPY3D`, and of `CUDA_MEMCPY3D_PEER`, which has a context in place of
/// `reserved`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side3d {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    memory: c_uint,
    host: *mut c_void,
    device: *mut c_void,
    array: Handle,
    reserved: Handle,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D` or `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy3d {
    from: Side3d,
    to: Side3d,
    width: usize,
    height: usize,
    depth: usize,
}

/// The driver's types of memory for the source and the target of a kind.
fn memory_types(kind: Kind) -> (c_uint, c_uint) {
    match kind {
        Kind::HostToHost => (HOST, HOST),
        Kind::HostToDevice => (HOST, DEVICE),
        Kind::DeviceToHost => (DEVICE, HOST),
        Kind::DeviceToDevice => (DEVICE, DEVICE),
        Kind::Default => (UNIFIED, UNIFIED),
    }
}

/// An address in the member for its type of memory: for the host, or for a device.
fn placed(memory: c_uint, address: *mut c_void) -> (*mut c_void, *mut c_void) {
    if memory == HOST { (address, null_mut()) } else { (null_mut(), address) }
}

/// A copy of rows for the driver, or nothing if there are no bytes.
fn rows(
    (to, to_pitch): (*mut c_void, usize),
    (from, from_pitch): (*const c_void, usize),
    width: usize,
    height: usize,
    kind: c_int,
) -> Outcome<Option<Copy2d>> {
    let (source, target) = memory_types(Kind::new(kind)?);
    if width > to_pitch || width > from_pitch {
        return Err(Error::INVALID_PITCH_VALUE);
    }
    if width == 0 || height == 0 {
        return Ok(None);
    }
    let side = |memory, address, pitch| {
        let (host, device) = placed(memory, address);
        Side2d { x: 0, y: 0, memory, host, device, array: null_mut(), pitch }
    };
    let from = side(source, from.cast_mut(), from_pitch);
    Ok(Some(Copy2d { from, to: side(target, to, to_pitch), width, height }))
}

/// A copy of slices for the driver, or nothing if there are no bytes.
pub(crate) fn slices(parameters: Copy3dParameters) -> Outcome<Option<Copy3d>> {
    let (source, target) = memory_types(Kind::new(parameters.kind)?);
    if !parameters.from_array.is_null() || !parameters.to_array.is_null() {
        return Err(Error::NOT_SUPPORTED);
    }
    Ok(extent(parameters.extent, || {
        let from = side(source, parameters.from, parameters.from_position, null_mut());
        (from, side(target, parameters.to, parameters.to_position, null_mut()))
    }))
}

fn peer_slices(parameters: Copy3dPeerParameters) -> Outcome<Option<Copy3d>> {
    if !parameters.from_array.is_null() || !parameters.to_array.is_null() {
        return Err(Error::NOT_SUPPORTED);
    }
    let source = primary_context(parameters.from_device)?;
    let target = primary_context(parameters.to_device)?;
    Ok(extent(parameters.extent, || {
        let from = side(DEVICE, parameters.from, parameters.from_position, source);
        (from, side(DEVICE, parameters.to, parameters.to_position, target))
    }))
}

fn extent(extent: Extent, sides: impl FnOnce() -> (Side3d, Side3d)) -> Option<Copy3d> {
    let Extent { width, height, depth } = extent;
    if width == 0 || height == 0 || depth == 0 {
        return None;
    }
    let (from, to) = sides();
    Some(Copy3d { from, to, width, height, depth })
}

fn side(memory: c_uint, at: PitchedPtr, from: Position, reserved: Handle) -> Side3d {
    let (host, device) = placed(memory, at.ptr);
    let Position { x, y, z } = from;
    let (array, pitch, height) = (null_mut(), at.pitch, at.ysize);
    Side3d { x, y, z, level: 0, memory, host, device, array, reserved, pitch, height }
}

/// A copy of consecutive bytes as a copy of one row.
pub(crate) fn line(to: *mut c_void, from: *const c_void, bytes: usize, kind: Kind) -> Copy3d {
    let (source, target) = memory_types(kind);
    let start = Position { x: 0, y: 0, z: 0 };
    let row = |ptr| PitchedPtr { ptr, pitch: bytes, xsize: bytes, ysize: 1 };
    let from = side(source, row(from.cast_mut()), start, null_mut());
    let to = side(target, row(to), start, null_mut());
    Copy3d { from, to, width: bytes, height: 1, depth: 1 }
}

/// The runtime's structure for a copy that the driver describes.
pub(crate) fn described(copy: &Copy3d) -> Copy3dParameters {
    let pitched = |side: &Side3d| {
        let ptr = if side.memory == HOST { side.host } else { side.device };
        PitchedPtr { ptr, pitch: side.pitch, xsize: copy.width, ysize: side.height }
    };
    let position = |side: &Side3d| Position { x: side.x, y: side.y, z: side.z };
    Copy3dParameters {
        from_array: copy.from.array,
        from_position: position(&copy.from),
        from: pitched(&copy.from),
        to_array: copy.to.array,
        to_position: position(&copy.to),
        to: pitched(&copy.to),
        extent: Extent { width: copy.width, height: copy.height, depth: copy.depth },
        kind: match (copy.from.memory, copy.to.memory) {
            (HOST, HOST) => 0,
            (HOST, DEVICE) => 1,
            (DEVICE, HOST) => 2,
            (DEVICE, DEVICE) => 3,
            _ => 4,
        },
    }
}
