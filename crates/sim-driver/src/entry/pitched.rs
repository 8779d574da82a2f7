//! Entry points that copy rows and slices: `cuMemcpy2D` and `cuMemcpy3D`, between memory of any
//! kind. Arrays are not implemented.

use std::ffi::{c_int, c_void};

use pagewise_hal::{Code, StreamHandle};

use crate::driver::{Driver, Outcome, in_context, load, stream};
use crate::transfer::{self, Rows, Shape, Use};

/// One side of a copy of slices. Of its fields `CUDA_MEMCPY2D` and `CUDA_MEMCPY3D` have those that
/// their copies need.
#[derive(Debug, Clone, Copy)]
struct Side {
    /// Bytes, rows and slices before the first.
    x: usize,
    y: usize,
    z: usize,
    kind: c_int,
    host: usize,
    device: u64,
    /// Bytes from a row to the next.
    pitch: usize,
    /// Rows from a slice to the next.
    height: usize,
}

/// `CU_MEMORYTYPE_HOST`
const HOST: c_int = 1;
/// `CU_MEMORYTYPE_DEVICE`
const DEVICE: c_int = 2;
/// `CU_MEMORYTYPE_ARRAY`
const ARRAY: c_int = 3;
/// `CU_MEMORYTYPE_UNIFIED`
const UNIFIED: c_int = 4;

impl Side {
    /// The first row of a slice. `None` if the numbers pass the end of the address space.
    fn row(&self, slice: usize, width: usize) -> Option<(u64, u64)> {
        let base = if self.kind == HOST { self.host as u64 } else { self.device };
        let pitch = if self.pitch == 0 { width.checked_add(self.x)? } else { self.pitch };
        let rows = self.z.checked_add(slice)?.checked_mul(self.height)?.checked_add(self.y)?;
        let offset = rows.checked_mul(pitch)?.checked_add(self.x)?;
        Some((base.checked_add(offset as u64)?, pitch as u64))
    }

    /// Whether the rows have room for a width, in memory that copies know.
    fn check(&self, driver: &Driver, width: usize, rows: usize) -> Outcome {
        match self.kind {
            HOST | DEVICE | UNIFIED => {}
            ARRAY => return driver.refuse("copies of arrays"),
            _ => return Err(Code::INVALID_VALUE),
        }
        let room = self.x.checked_add(width).ok_or(Code::INVALID_VALUE)?;
        let fits = self.pitch == 0 || rows == 1 || room <= self.pitch;
        if fits { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }
}

/// Copies slices of rows.
///
/// # Safety
/// No other code may use the rows.
unsafe fn copy(
    driver: &Driver,
    (to, from): (Side, Side),
    (width, rows, slices): (usize, usize, usize),
    on: StreamHandle,
) -> Outcome {
    from.check(driver, width, rows)?;
    to.check(driver, width, rows)?;
    if width == 0 || rows == 0 || slices == 0 {
        return Ok(());
    }
    let shape = Shape { width: width as u64, rows: rows as u64 };
    let slice = |side: Side, index, how| {
        let first = side.row(index, width).ok_or(Code::INVALID_VALUE)?;
        Rows::new(driver, first, shape, how)
    };
    let last = slices.saturating_sub(1);
    let both = |index| -> Outcome<(Rows, Rows)> {
        Ok((slice(to, index, Use::Write)?, slice(from, index, Use::Read)?))
    };
    // A refused call copies nothing: the last slice is looked at first.
    both(last)?;
    for index in 0..slices {
        let (to, from) = both(index)?;
        // SAFETY: this function's contract, and `Rows` looked at the memory of the host.
        unsafe { transfer::copy(driver, to, from, shape, on) }?;
    }
    Ok(())
}

/// `CUDA_MEMCPY2D`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Memcpy2D {
    /// Bytes before the first of the source, in its row.
    pub source_x: usize,
    /// Rows before the first of the source.
    pub source_y: usize,
    /// The kind of memory.
    pub source_kind: c_int,
    /// Where it is, if it is the host's.
    pub source_host: *const c_void,
    /// Where it is otherwise.
    pub source_device: u64,
    /// The array, if it is one.
    pub source_array: *mut c_void,
    /// Bytes from a row to the next.
    pub source_pitch: usize,
    /// The same of the destination.
    pub destination_x: usize,
    /// Rows before the first of the destination.
    pub destination_y: usize,
    /// The kind of memory.
    pub destination_kind: c_int,
    /// Where it is, if it is the host's.
    pub destination_host: *mut c_void,
    /// Where it is otherwise.
    pub destination_device: u64,
    /// The array, if it is one.
    pub destination_array: *mut c_void,
    /// Bytes from a row to the next.
    pub destination_pitch: usize,
    /// Bytes of each row that are copied.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
}

impl Memcpy2D {
    fn sides(&self) -> (Side, Side) {
        let to = Side {
            x: self.destination_x,
            y: self.destination_y,
            z: 0,
            kind: self.destination_kind,
            host: self.destination_host.expose_provenance(),
            device: self.destination_device,
            pitch: self.destination_pitch,
            height: 0,
        };
        let from = Side {
            x: self.source_x,
            y: self.source_y,
            z: 0,
            kind: self.source_kind,
            host: self.source_host.expose_provenance(),
            device: self.source_device,
            pitch: self.source_pitch,
            height: 0,
        };
        (to, from)
    }
}

/// Runs a copy of rows.
///
/// # Safety
/// `parameters` must be null or valid for reading; no other code may use the rows.
unsafe fn copy_2d(symbol: &str, parameters: *const Memcpy2D, on: *mut c_void) -> c_int {
    in_context(symbol, |driver, _| {
        let on = driver.working_stream(stream(on))?;
        // SAFETY: by this function's contract `parameters` is null or valid for reading. Every bit
        // pattern is a value of its integers and pointers.
        let parameters = unsafe { load(parameters) }?;
        let Memcpy2D { width, height, .. } = parameters;
        // SAFETY: `copy` asks that no other code uses the rows, as this function does.
        unsafe { copy(driver, parameters.sides(), (width, height, 1), on) }
    })
}

/// `cuMemcpy2D`
///
/// # Safety
/// `parameters` must be null or valid for reading. No thread, and no other work of a device, may use
/// the rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2D_v2(parameters: *const Memcpy2D) -> c_int {
    // SAFETY: the caller promises what `copy_2d` asks for.
    unsafe { copy_2d("cuMemcpy2D_v2", parameters, std::ptr::null_mut()) }
}

/// `cuMemcpy2DUnaligned`: the same, as any pitch will do.
///
/// # Safety
/// As [`cuMemcpy2D_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DUnaligned_v2(parameters: *const Memcpy2D) -> c_int {
    // SAFETY: the caller promises what `copy_2d` asks for.
    unsafe { copy_2d("cuMemcpy2DUnaligned_v2", parameters, std::ptr::null_mut()) }
}

/// `cuMemcpy2DAsync`
///
/// # Safety
/// As [`cuMemcpy2D_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(parameters: *const Memcpy2D, on: *mut c_void) -> c_int {
    // SAFETY: the caller promises what `copy_2d` asks for.
    unsafe { copy_2d("cuMemcpy2DAsync_v2", parameters, on) }
}

/// One side of `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Memcpy3DSide {
    /// Bytes before the first, in its row.
    pub x: usize,
    /// Rows before the first, in its slice.
    pub y: usize,
    /// Slices before the first.
    pub z: usize,
    /// The level of detail of an array.
    pub level: usize,
    /// The kind of memory.
    pub kind: c_int,
    /// Where it is, if it is the host's.
    pub host: *mut c_void,
    /// Where it is otherwise.
    pub device: u64,
    /// The array, if it is one.
    pub array: *mut c_void,
    /// Must be null.
    pub reserved: *mut c_void,
    /// Bytes from a row to the next.
    pub pitch: usize,
    /// Rows from a slice to the next.
    pub height: usize,
}

impl Memcpy3DSide {
    fn side(&self, height: usize) -> Side {
        Side {
            x: self.x,
            y: self.y,
            z: self.z,
            kind: self.kind,
            host: self.host.expose_provenance(),
            device: self.device,
            pitch: self.pitch,
            height: if self.height == 0 { height } else { self.height },
        }
    }
}

/// `CUDA_MEMCPY3D`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Memcpy3D {
    /// From where.
    pub source: Memcpy3DSide,
    /// To where.
    pub destination: Memcpy3DSide,
    /// Bytes of each row that are copied.
    pub width: usize,
    /// Rows of each slice that are copied.
    pub height: usize,
    /// The number of slices.
    pub depth: usize,
}

/// Runs a copy of slices.
///
/// # Safety
/// `parameters` must be null or valid for reading; no other code may use the slices.
unsafe fn copy_3d(symbol: &str, parameters: *const Memcpy3D, on: *mut c_void) -> c_int {
    in_context(symbol, |driver, _| {
        let on = driver.working_stream(stream(on))?;
        // SAFETY: by this function's contract `parameters` is null or valid for reading. Every bit
        // pattern is a value of its integers and pointers.
        let Memcpy3D { source, destination, width, height, depth } = unsafe { load(parameters) }?;
        let sides = (destination.side(height), source.side(height));
        // SAFETY: `copy` asks that no other code uses the rows, as this function does.
        unsafe { copy(driver, sides, (width, height, depth), on) }
    })
}

/// `cuMemcpy3D`
///
/// # Safety
/// `parameters` must be null or valid for reading. No thread, and no other work of a device, may use
/// the slices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy3D_v2(parameters: *const Memcpy3D) -> c_int {
    // SAFETY: the caller promises what `copy_3d` asks for.
    unsafe { copy_3d("cuMemcpy3D_v2", parameters, std::ptr::null_mut()) }
}

/// `cuMemcpy3DAsync`
///
/// # Safety
/// As [`cuMemcpy3D_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy3DAsync_v2(parameters: *const Memcpy3D, on: *mut c_void) -> c_int {
    // SAFETY: the caller promises what `copy_3d` asks for.
    unsafe { copy_3d("cuMemcpy3DAsync_v2", parameters, on) }
}
