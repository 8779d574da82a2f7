//! Entry points that fill memory: with elements of 8, 16 and 32 bits, in rows as well, with a stream
//! and without.

use std::ffi::{c_int, c_uint, c_ushort, c_void};

use crate::driver::in_context;
use crate::running::submit;
use crate::work::{MemsetParams, Work};

/// The elements of a fill.
#[derive(Clone, Copy)]
enum Element {
    Byte(u8),
    Half(c_ushort),
    Word(c_uint),
}

impl Element {
    /// A fill with these elements: address and pitch, width and height.
    fn fill(self, (address, pitch): (u64, usize), (width, height): (usize, usize)) -> MemsetParams {
        let (value, element_bytes) = match self {
            Self::Byte(value) => (value.into(), 1),
            Self::Half(value) => (value.into(), 2),
            Self::Word(value) => (value, 4),
        };
        MemsetParams { address, pitch, value, element_bytes, width, height }
    }
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
    on: Option<*mut c_void>,
) -> c_int {
    let fill = element.fill((ptr, 0), (count, 1));
    // SAFETY: `submit` asks that no other code uses the range, as this function does.
    in_context(symbol, |driver, _| unsafe { submit(driver, on, Work::Fill(fill)) })
}

/// Runs a fill of `height` rows of `width` elements, `pitch` bytes apart. All rows have to be in one
/// allocation.
///
/// # Safety
/// No other code may use the rows.
unsafe fn fill_rows(
    symbol: &str,
    rows: (u64, usize),
    element: Element,
    size: (usize, usize),
    on: Option<*mut c_void>,
) -> c_int {
    let fill = element.fill(rows, size);
    // SAFETY: `submit` asks that no other code uses the rows, as this function does.
    in_context(symbol, |driver, _| unsafe { submit(driver, on, Work::Rows(fill)) })
}

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
    unsafe { fill_one("cuMemsetD8Async", ptr, Element::Byte(value), count, Some(on)) }
}

/// `cuMemsetD8`
///
/// # Safety
/// As [`cuMemsetD8Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(ptr: u64, value: u8, count: usize) -> c_int {
    // SAFETY: the caller promises that no other code uses the range.
    unsafe { fill_one("cuMemsetD8_v2", ptr, Element::Byte(value), count, None) }
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
    unsafe { fill_rows("cuMemsetD2D8Async", rows, element, (width, height), Some(on)) }
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
    unsafe { fill_rows("cuMemsetD2D8_v2", rows, element, (width, height), None) }
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
    unsafe { fill_one("cuMemsetD16Async", ptr, Element::Half(value), count, Some(on)) }
}

/// `cuMemsetD16`
///
/// # Safety
/// As [`cuMemsetD16Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD16_v2(ptr: u64, value: c_ushort, count: usize) -> c_int {
    // SAFETY: the caller promises that no other code uses the range.
    unsafe { fill_one("cuMemsetD16_v2", ptr, Element::Half(value), count, None) }
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
    unsafe { fill_rows("cuMemsetD2D16Async", rows, element, (width, height), Some(on)) }
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
    unsafe { fill_rows("cuMemsetD2D16_v2", rows, element, (width, height), None) }
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
    unsafe { fill_one("cuMemsetD32Async", ptr, Element::Word(value), count, Some(on)) }
}

/// `cuMemsetD32`
///
/// # Safety
/// As [`cuMemsetD32Async`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32_v2(ptr: u64, value: c_uint, count: usize) -> c_int {
    // SAFETY: the caller promises that no other code uses the range.
    unsafe { fill_one("cuMemsetD32_v2", ptr, Element::Word(value), count, None) }
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
    unsafe { fill_rows("cuMemsetD2D32Async", rows, element, (width, height), Some(on)) }
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
    unsafe { fill_rows("cuMemsetD2D32_v2", rows, element, (width, height), None) }
}
