//! Entry points that fill memory: with elements of 8, 16 and 32 bits, in rows as well, with a stream
//! and without.

use std::ffi::{c_int, c_uint, c_ushort, c_void};

use pagewise_hal::{Backend, Code, Span, StreamHandle};

use crate::driver::{Driver, Outcome, answer, in_context, stream};
use crate::entry::{span, span_is_live};

/// The elements of a fill.
#[derive(Clone, Copy)]
enum Element {
    Byte(u8),
    Half(c_ushort),
    Word(c_uint),
}

impl Element {
    const fn width(self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::Half(_) => 2,
            Self::Word(_) => 4,
        }
    }
}

/// Fills a range.
///
/// # Safety
/// No other code may use the range.
unsafe fn fill(driver: &Driver, range: Span, element: Element, on: StreamHandle) -> Outcome {
    // SAFETY: the fills ask that no other code uses the range; this function's contract says so. The
    // simulator refuses ranges outside of live allocations.
    answer(unsafe {
        match element {
            Element::Byte(value) => driver.sim.memset(range, value, on),
            Element::Half(value) => driver.sim.memset_d16(range, value, on),
            Element::Word(value) => driver.sim.memset_d32(range, value, on),
        }
    })
}

/// Runs a fill of `count` elements. Too many for an address space wrap (CONTRACT-107).
///
/// # Safety
/// No other code may use the range.
unsafe fn fill_one(
    symbol: &str,
    ptr: u64,
    element: Element,
    count: usize,
    on: *mut c_void,
) -> c_int {
    in_context(symbol, |driver, _| {
        let on = driver.working_stream(stream(on))?;
        let range = span(ptr, count.wrapping_mul(element.width()));
        // SAFETY: `fill` asks that no other code uses the range, as this function does.
        unsafe { fill(driver, range, element, on) }
    })
}

/// Runs a fill of `height` rows of `width` elements, `pitch` bytes apart. All rows have to be in one
/// allocation.
///
/// # Safety
/// No other code may use the rows.
unsafe fn fill_rows(
    symbol: &str,
    (ptr, pitch): (u64, usize),
    element: Element,
    (width, height): (usize, usize),
    on: *mut c_void,
) -> c_int {
    in_context(symbol, |driver, _| {
        let on = driver.working_stream(stream(on))?;
        if width == 0 || height == 0 {
            return Ok(());
        }
        let row = width.checked_mul(element.width()).ok_or(Code::INVALID_VALUE)?;
        let before_last = height.checked_sub(1).and_then(|rows| rows.checked_mul(pitch));
        let extent = before_last.and_then(|bytes| bytes.checked_add(row));
        let extent = extent.ok_or(Code::INVALID_VALUE)?;
        let aligned = ptr.is_multiple_of(element.width() as u64)
            && (height == 1 || pitch.is_multiple_of(element.width()));
        let apart = height == 1 || pitch >= row;
        if !aligned || !apart || !span_is_live(driver, ptr, extent as u64) {
            return Err(Code::INVALID_VALUE);
        }
        if height == 1 || pitch == row {
            // SAFETY: `fill` asks that no other code uses the range, as this function does.
            return unsafe { fill(driver, span(ptr, extent), element, on) };
        }
        for index in 0..height {
            let start = ptr.wrapping_add(index.wrapping_mul(pitch) as u64);
            // SAFETY: `fill` asks that no other code uses the range, as this function does.
            unsafe { fill(driver, span(start, row), element, on) }?;
        }
        Ok(())
    })
}

/// The legacy default stream, on which calls without a stream work.
const NO_STREAM: *mut c_void = std::ptr::null_mut();

/// `cuMemsetD8Async`
///
/// # Safety
/// No thread, and no other work of a device, may use the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    ptr: u64,
    value: u8,
    count: usize,
    on: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises that no other code uses the range.
    unsafe { fill_one("cuMemsetD8Async", ptr, Element::Byte(value), count, on) }
}

/// `cuMemsetD8`
///
/// # Safety
/// As [`cuMemsetD8Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(ptr: u64, value: u8, count: usize) -> c_int {
    // SAFETY: the caller promises that no other code uses the range.
    unsafe { fill_one("cuMemsetD8_v2", ptr, Element::Byte(value), count, NO_STREAM) }
}

/// `cuMemsetD2D8Async`
///
/// # Safety
/// As [`cuMemsetD8Async`], of all rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD2D8Async(
    ptr: u64,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    on: *mut c_void,
) -> c_int {
    let (rows, element) = ((ptr, pitch), Element::Byte(value));
    // SAFETY: the caller promises that no other code uses the rows.
    unsafe { fill_rows("cuMemsetD2D8Async", rows, element, (width, height), on) }
}

/// `cuMemsetD2D8`
///
/// # Safety
/// As [`cuMemsetD2D8Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD2D8_v2(
    ptr: u64,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
) -> c_int {
    let (rows, element) = ((ptr, pitch), Element::Byte(value));
    // SAFETY: the caller promises that no other code uses the rows.
    unsafe { fill_rows("cuMemsetD2D8_v2", rows, element, (width, height), NO_STREAM) }
}

/// `cuMemsetD16Async`
///
/// # Safety
/// No thread, and no other work of a device, may use the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD16Async(
    ptr: u64,
    value: c_ushort,
    count: usize,
    on: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises that no other code uses the range.
    unsafe { fill_one("cuMemsetD16Async", ptr, Element::Half(value), count, on) }
}

/// `cuMemsetD16`
///
/// # Safety
/// As [`cuMemsetD16Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD16_v2(ptr: u64, value: c_ushort, count: usize) -> c_int {
    // SAFETY: the caller promises that no other code uses the range.
    unsafe { fill_one("cuMemsetD16_v2", ptr, Element::Half(value), count, NO_STREAM) }
}

/// `cuMemsetD2D16Async`
///
/// # Safety
/// As [`cuMemsetD16Async`], of all rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD2D16Async(
    ptr: u64,
    pitch: usize,
    value: c_ushort,
    width: usize,
    height: usize,
    on: *mut c_void,
) -> c_int {
    let (rows, element) = ((ptr, pitch), Element::Half(value));
    // SAFETY: the caller promises that no other code uses the rows.
    unsafe { fill_rows("cuMemsetD2D16Async", rows, element, (width, height), on) }
}

/// `cuMemsetD2D16`
///
/// # Safety
/// As [`cuMemsetD2D16Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD2D16_v2(
    ptr: u64,
    pitch: usize,
    value: c_ushort,
    width: usize,
    height: usize,
) -> c_int {
    let (rows, element) = ((ptr, pitch), Element::Half(value));
    // SAFETY: the caller promises that no other code uses the rows.
    unsafe { fill_rows("cuMemsetD2D16_v2", rows, element, (width, height), NO_STREAM) }
}

/// `cuMemsetD32Async`
///
/// # Safety
/// No thread, and no other work of a device, may use the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32Async(
    ptr: u64,
    value: c_uint,
    count: usize,
    on: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises that no other code uses the range.
    unsafe { fill_one("cuMemsetD32Async", ptr, Element::Word(value), count, on) }
}

/// `cuMemsetD32`
///
/// # Safety
/// As [`cuMemsetD32Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32_v2(ptr: u64, value: c_uint, count: usize) -> c_int {
    // SAFETY: the caller promises that no other code uses the range.
    unsafe { fill_one("cuMemsetD32_v2", ptr, Element::Word(value), count, NO_STREAM) }
}

/// `cuMemsetD2D32Async`
///
/// # Safety
/// As [`cuMemsetD32Async`], of all rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD2D32Async(
    ptr: u64,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
    on: *mut c_void,
) -> c_int {
    let (rows, element) = ((ptr, pitch), Element::Word(value));
    // SAFETY: the caller promises that no other code uses the rows.
    unsafe { fill_rows("cuMemsetD2D32Async", rows, element, (width, height), on) }
}

/// `cuMemsetD2D32`
///
/// # Safety
/// As [`cuMemsetD2D32Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD2D32_v2(
    ptr: u64,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
) -> c_int {
    let (rows, element) = ((ptr, pitch), Element::Word(value));
    // SAFETY: the caller promises that no other code uses the rows.
    unsafe { fill_rows("cuMemsetD2D32_v2", rows, element, (width, height), NO_STREAM) }
}
