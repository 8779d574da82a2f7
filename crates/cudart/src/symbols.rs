//! Variables of device code: their addresses, and copies to and from them.

use std::ffi::{c_int, c_void};

use crate::contexts::with_context;
use crate::copies::{Kind, copy, copy_async};
use crate::outcome::{Error, Outcome, write};
use crate::registry::variable;
use crate::types::Handle;

/// Writes the device's address of a variable. Returns 13 (`cudaErrorInvalidSymbol`) if the program
/// has no such variable.
pub unsafe extern "C" fn cudaGetSymbolAddress(
    to: *mut *mut c_void,
    symbol: *const c_void,
) -> c_int {
    with_context(|| {
        let (address, _) = variable(symbol)?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, address) }
    })
}

/// Writes the size of a variable in bytes.
pub unsafe extern "C" fn cudaGetSymbolSize(to: *mut usize, symbol: *const c_void) -> c_int {
    with_context(|| {
        let (_, bytes) = variable(symbol)?;
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, bytes) }
    })
}

/// Copies bytes to a variable, from `offset` on. `kind` is 1, 3 or 4.
pub unsafe extern "C" fn cudaMemcpyToSymbol(
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    with_context(|| {
        let (to, kind) = target(symbol, bytes, offset, kind)?;
        // SAFETY: the range is in the variable; the caller promises the source.
        unsafe { copy(to, from, bytes, kind) }
    })
}

/// Copies bytes to a variable in the order of a stream.
pub unsafe extern "C" fn cudaMemcpyToSymbolAsync(
    symbol: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: Handle,
) -> c_int {
    with_context(|| {
        let (to, kind) = target(symbol, bytes, offset, kind)?;
        // SAFETY: the range is in the variable; the caller promises the source.
        unsafe { copy_async(to, from, bytes, kind, stream) }
    })
}

/// Copies bytes from a variable, from `offset` on. `kind` is 2, 3 or 4.
pub unsafe extern "C" fn cudaMemcpyFromSymbol(
    to: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    with_context(|| {
        let (from, kind) = source(symbol, bytes, offset, kind)?;
        // SAFETY: the range is in the variable; the caller promises the target.
        unsafe { copy(to, from, bytes, kind) }
    })
}

/// Copies bytes from a variable in the order of a stream.
pub unsafe extern "C" fn cudaMemcpyFromSymbolAsync(
    to: *mut c_void,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: Handle,
) -> c_int {
    with_context(|| {
        let (from, kind) = source(symbol, bytes, offset, kind)?;
        // SAFETY: the range is in the variable; the caller promises the target.
        unsafe { copy_async(to, from, bytes, kind, stream) }
    })
}

/// Where a copy to a variable goes.
///
/// # Errors
/// `INVALID_SYMBOL` for other addresses, `INVALID_MEMCPY_DIRECTION` for kinds that do not write a
/// device, `INVALID_VALUE` if the range is not in the variable.
pub(crate) fn target(
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Outcome<(*mut c_void, Kind)> {
    let kind = Kind::new(kind)?;
    if matches!(kind, Kind::HostToHost | Kind::DeviceToHost) {
        return Err(Error::INVALID_MEMCPY_DIRECTION);
    }
    Ok((range(symbol, bytes, offset)?, kind))
}

/// Where a copy from a variable starts.
///
/// # Errors
/// As for [`target`], for kinds that do not read a device.
pub(crate) fn source(
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Outcome<(*mut c_void, Kind)> {
    let kind = Kind::new(kind)?;
    if matches!(kind, Kind::HostToHost | Kind::HostToDevice) {
        return Err(Error::INVALID_MEMCPY_DIRECTION);
    }
    Ok((range(symbol, bytes, offset)?, kind))
}

fn range(symbol: *const c_void, bytes: usize, offset: usize) -> Outcome<*mut c_void> {
    let (address, size) = variable(symbol)?;
    if offset.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(Error::INVALID_VALUE);
    }
    Ok(address.wrapping_byte_add(offset))
}
