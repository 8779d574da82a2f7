//! Entry points that copy rows and slices: `cuMemcpy2D` and `cuMemcpy3D`, between memory of any
//! kind. Arrays are not implemented.

use std::ffi::{c_int, c_void};

use crate::copy_params::HOST;
pub use crate::copy_params::{Memcpy2D, Memcpy3D, Memcpy3DSide};
use crate::driver::{in_context, load, stream};
use crate::running::submit;
use crate::work::Work;

/// Runs a copy of rows.
///
/// # Safety
/// `parameters` must be null or valid for reading; no other code may use the rows.
unsafe fn copy_2d(symbol: &str, parameters: *const Memcpy2D, on: Option<*mut c_void>) -> c_int {
    in_context(symbol, |driver, _| {
        driver.device_of_stream(stream(on.unwrap_or_default()))?;
        // SAFETY: by this function's contract `parameters` is null or valid for reading. Every bit
        // pattern is a value of its integers and pointers.
        let parameters = unsafe { load(parameters) }?;
        // SAFETY: `submit` asks that no other code uses the rows, as this function does.
        unsafe { submit(driver, on, Work::Slices(parameters.into())) }
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
    unsafe { copy_2d("cuMemcpy2D_v2", parameters, None) }
}

/// `cuMemcpy2DUnaligned`: the same, as any pitch will do.
///
/// # Safety
/// As [`cuMemcpy2D_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DUnaligned_v2(parameters: *const Memcpy2D) -> c_int {
    // SAFETY: the caller promises what `copy_2d` asks for.
    unsafe { copy_2d("cuMemcpy2DUnaligned_v2", parameters, None) }
}

/// `cuMemcpy2DAsync`
///
/// # Safety
/// As [`cuMemcpy2D_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(parameters: *const Memcpy2D, on: *mut c_void) -> c_int {
    // SAFETY: the caller promises what `copy_2d` asks for.
    unsafe { copy_2d("cuMemcpy2DAsync_v2", parameters, Some(on)) }
}

/// Runs a copy of slices.
///
/// # Safety
/// `parameters` must be null or valid for reading; no other code may use the slices.
unsafe fn copy_3d(symbol: &str, parameters: *const Memcpy3D, on: Option<*mut c_void>) -> c_int {
    in_context(symbol, |driver, _| {
        driver.device_of_stream(stream(on.unwrap_or_default()))?;
        // SAFETY: by this function's contract `parameters` is null or valid for reading. Every bit
        // pattern is a value of its integers and pointers.
        let parameters = unsafe { load(parameters) }?;
        // SAFETY: `submit` asks that no other code uses the rows, as this function does.
        unsafe { submit(driver, on, Work::Slices(parameters)) }
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
    unsafe { copy_3d("cuMemcpy3D_v2", parameters, None) }
}

/// `cuMemcpy3DAsync`
///
/// # Safety
/// As [`cuMemcpy3D_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy3DAsync_v2(parameters: *const Memcpy3D, on: *mut c_void) -> c_int {
    // SAFETY: the caller promises what `copy_3d` asks for.
    unsafe { copy_3d("cuMemcpy3DAsync_v2", parameters, Some(on)) }
}

/// Runs a copy of slices between devices. The structure is that of other copies, with a context in
/// the place of the reserved pointer of each side.
///
/// # Safety
/// As [`copy_3d`].
unsafe fn copy_3d_peer(
    symbol: &str,
    parameters: *const Memcpy3D,
    on: Option<*mut c_void>,
) -> c_int {
    in_context(symbol, |driver, _| {
        driver.device_of_stream(stream(on.unwrap_or_default()))?;
        // SAFETY: by this function's contract `parameters` is null or valid for reading. Every bit
        // pattern is a value of its integers and pointers.
        let mut parameters = unsafe { load(parameters) }?;
        for side in [&mut parameters.source, &mut parameters.destination] {
            if side.kind != HOST {
                driver.live(side.reserved.addr())?;
            }
            side.reserved = std::ptr::null_mut();
        }
        // SAFETY: `submit` asks that no other code uses the slices, as this function does.
        unsafe { submit(driver, on, Work::Slices(parameters)) }
    })
}

/// `cuMemcpy3DPeer`
///
/// # Safety
/// As [`cuMemcpy3D_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy3DPeer(parameters: *const Memcpy3D) -> c_int {
    // SAFETY: the caller promises what `copy_3d_peer` asks for.
    unsafe { copy_3d_peer("cuMemcpy3DPeer", parameters, None) }
}

/// `cuMemcpy3DPeerAsync`
///
/// # Safety
/// As [`cuMemcpy3D_v2`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy3DPeerAsync(
    parameters: *const Memcpy3D,
    on: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises what `copy_3d_peer` asks for.
    unsafe { copy_3d_peer("cuMemcpy3DPeerAsync", parameters, Some(on)) }
}
