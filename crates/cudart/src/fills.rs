//! Fills: the low byte of a value, to consecutive bytes, rows and slices.

use std::ffi::{c_int, c_void};

use crate::contexts::with_context;
use crate::driver::cu;
use crate::outcome::{Error, Outcome};
use crate::types::{Extent, Handle, PitchedPtr};

/// Fills bytes.
pub unsafe extern "C" fn cudaMemset(to: *mut c_void, value: c_int, bytes: usize) -> c_int {
    // SAFETY: the driver checks the range.
    with_context(|| unsafe { cu!("cuMemsetD8" @ 3020, to, low_byte(value), bytes) })
}

/// Fills bytes in the order of a stream.
pub unsafe extern "C" fn cudaMemsetAsync(
    to: *mut c_void,
    value: c_int,
    bytes: usize,
    stream: Handle,
) -> c_int {
    // SAFETY: the driver checks the range and the stream.
    with_context(|| unsafe { cu!("cuMemsetD8Async" @ 3020, to, low_byte(value), bytes, stream) })
}

/// Fills `height` rows of `width` bytes, which start `pitch` bytes from each other.
pub unsafe extern "C" fn cudaMemset2D(
    to: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
) -> c_int {
    let fill = Fill { value: low_byte(value), stream: None };
    // SAFETY: the driver checks the range.
    with_context(|| unsafe { fill.rows(to, pitch, width, height) })
}

/// Fills rows in the order of a stream.
pub unsafe extern "C" fn cudaMemset2DAsync(
    to: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: Handle,
) -> c_int {
    let fill = Fill { value: low_byte(value), stream: Some(stream) };
    // SAFETY: the driver checks the range and the stream.
    with_context(|| unsafe { fill.rows(to, pitch, width, height) })
}

/// Fills slices of rows. `extent.width` is in bytes.
pub unsafe extern "C" fn cudaMemset3D(to: PitchedPtr, value: c_int, extent: Extent) -> c_int {
    let fill = Fill { value: low_byte(value), stream: None };
    // SAFETY: the driver checks the ranges.
    with_context(|| unsafe { fill.slices(to, extent) })
}

/// Fills slices of rows in the order of a stream.
pub unsafe extern "C" fn cudaMemset3DAsync(
    to: PitchedPtr,
    value: c_int,
    extent: Extent,
    stream: Handle,
) -> c_int {
    let fill = Fill { value: low_byte(value), stream: Some(stream) };
    // SAFETY: the driver checks the ranges and the stream.
    with_context(|| unsafe { fill.slices(to, extent) })
}

/// A byte to write, and the stream that orders the fill, if any.
struct Fill {
    value: u8,
    stream: Option<Handle>,
}

impl Fill {
    unsafe fn rows(&self, to: *mut c_void, pitch: usize, width: usize, height: usize) -> Outcome {
        if width == 0 || height == 0 {
            return Ok(());
        }
        let value = self.value;
        // SAFETY: the driver checks the range and the stream.
        unsafe {
            match self.stream {
                None => cu!("cuMemsetD2D8" @ 3020, to, pitch, value, width, height),
                Some(stream) => {
                    cu!("cuMemsetD2D8Async" @ 3020, to, pitch, value, width, height, stream)
                }
            }
        }
    }

    /// Slices that follow each other without a gap are one range of rows.
    unsafe fn slices(&self, to: PitchedPtr, extent: Extent) -> Outcome {
        let Extent { width, height, depth } = extent;
        let slice = to.pitch.checked_mul(to.ysize).ok_or(Error::INVALID_VALUE)?;
        if to.ysize == height || depth == 1 {
            let rows = height.checked_mul(depth).ok_or(Error::INVALID_VALUE)?;
            // SAFETY: the driver checks the range and the stream.
            return unsafe { self.rows(to.ptr, to.pitch, width, rows) };
        }
        if height > to.ysize || width == 0 || height == 0 {
            return if height > to.ysize { Err(Error::INVALID_VALUE) } else { Ok(()) };
        }
        for index in 0..depth {
            let offset = index.checked_mul(slice).ok_or(Error::INVALID_VALUE)?;
            // SAFETY: the driver checks the range and the stream.
            unsafe { self.rows(to.ptr.wrapping_byte_add(offset), to.pitch, width, height) }?;
        }
        Ok(())
    }
}

fn low_byte(value: c_int) -> u8 {
    value.to_ne_bytes()[if cfg!(target_endian = "little") { 0 } else { 3 }]
}
