//! Memory of devices and of the host: allocate and free.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::contexts::with_context;
use crate::driver::cu;
use crate::outcome::{Error, Outcome, write};
use crate::types::{Extent, Handle, PitchedPtr};

/// Bytes of an element, for the padding of rows. The driver takes 4, 8 and 16.
const ELEMENT: c_uint = 4;

/// Allocates memory of the device. Memory of 0 bytes is null.
pub unsafe extern "C" fn cudaMalloc(to: *mut *mut c_void, bytes: usize) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the place is writable; the driver writes an address.
        unsafe { allocate(to, bytes, |to| cu!("cuMemAlloc" @ 3020, to, bytes)) }
    })
}

/// Allocates managed memory. `flags` is 1 (`cudaMemAttachGlobal`) or 2 (`cudaMemAttachHost`).
/// Memory of 0 bytes is null.
pub unsafe extern "C" fn cudaMallocManaged(
    to: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the place is writable; the driver writes an address.
        unsafe { allocate(to, bytes, |to| cu!("cuMemAllocManaged" @ 6000, to, bytes, flags)) }
    })
}

/// Allocates page-locked memory of the host. Memory of 0 bytes is null.
pub unsafe extern "C" fn cudaMallocHost(to: *mut *mut c_void, bytes: usize) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the place is writable; the driver writes an address.
        unsafe { allocate(to, bytes, |to| cu!("cuMemAllocHost" @ 3020, to, bytes)) }
    })
}

/// Allocates page-locked memory of the host with flags of `cuMemHostAlloc`. Memory of 0 bytes is
/// null.
pub unsafe extern "C" fn cudaHostAlloc(to: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    with_context(|| {
        // SAFETY: the caller promises that the place is writable; the driver writes an address.
        unsafe { allocate(to, bytes, |to| cu!("cuMemHostAlloc" @ 2020, to, bytes, flags)) }
    })
}

/// Allocates rows of `width` bytes, padded so that each starts aligned, and writes the distance
/// between them in bytes.
pub unsafe extern "C" fn cudaMallocPitch(
    to: *mut *mut c_void,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> c_int {
    with_context(|| {
        let (address, bytes) = pitched(width, height)?;
        // SAFETY: the caller promises that the places are writable.
        unsafe { write_both(to, address, pitch, bytes) }
    })
}

/// Allocates slices of padded rows. `extent.width` is in bytes.
pub unsafe extern "C" fn cudaMalloc3D(to: *mut PitchedPtr, extent: Extent) -> c_int {
    with_context(|| {
        if to.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        let rows = extent.height.checked_mul(extent.depth).ok_or(Error::INVALID_VALUE)?;
        let (ptr, pitch) = pitched(extent.width, rows)?;
        let memory = PitchedPtr { ptr, pitch, xsize: extent.width, ysize: extent.height };
        // SAFETY: the caller promises that the place is writable.
        unsafe { write(to, memory) }
    })
}

/// Frees memory of a device, and managed memory, after all work that uses it. Null is ignored.
pub unsafe extern "C" fn cudaFree(memory: *mut c_void) -> c_int {
    with_context(|| {
        if memory.is_null() {
            return Ok(());
        }
        // SAFETY: the driver checks the address.
        unsafe { cu!("cuMemFree" @ 3020, memory) }
    })
}

/// Frees page-locked memory of the host. Null is ignored.
pub unsafe extern "C" fn cudaFreeHost(memory: *mut c_void) -> c_int {
    with_context(|| {
        if memory.is_null() {
            return Ok(());
        }
        // SAFETY: the driver checks the address.
        unsafe { cu!("cuMemFreeHost" @ 2000, memory) }
    })
}

/// Writes a handle of a pool that another process can open. `flags` is 0.
pub unsafe extern "C" fn cudaMemPoolExportToShareableHandle(
    to: *mut c_void,
    pool: Handle,
    kind: c_int,
    flags: c_uint,
) -> c_int {
    with_context(|| {
        let flags = u64::from(flags);
        // SAFETY: the caller promises that the place is writable; the driver checks the pool.
        unsafe { cu!("cuMemPoolExportToShareableHandle" @ 11020, to, pool, kind, flags) }
    })
}

/// Opens a pool of another process. `flags` is 0.
pub unsafe extern "C" fn cudaMemPoolImportFromShareableHandle(
    to: *mut Handle,
    handle: *mut c_void,
    kind: c_int,
    flags: c_uint,
) -> c_int {
    with_context(|| {
        let flags = u64::from(flags);
        // SAFETY: the caller promises that the place is writable and that the handle is readable.
        unsafe { cu!("cuMemPoolImportFromShareableHandle" @ 11020, to, handle, kind, flags) }
    })
}

/// Allocates with the driver. Memory of 0 bytes is null, and so is memory that could not be had.
///
/// # Safety
/// A place that is not null is writable.
unsafe fn allocate(
    to: *mut *mut c_void,
    bytes: usize,
    driver: impl FnOnce(*mut *mut c_void) -> Outcome,
) -> Outcome {
    // SAFETY: the caller promises that the place is writable.
    unsafe { write(to, null_mut()) }?;
    if bytes == 0 { Ok(()) } else { driver(to) }
}

/// Padded rows: their address and the distance between them.
fn pitched(width: usize, rows: usize) -> Outcome<(*mut c_void, usize)> {
    let (mut address, mut pitch) = (null_mut(), 0);
    if width == 0 || rows == 0 {
        return Ok((address, pitch));
    }
    // SAFETY: the places are writable.
    unsafe {
        cu!("cuMemAllocPitch" @ 3020, &raw mut address, &raw mut pitch, width, rows, ELEMENT)
    }?;
    Ok((address, pitch))
}

/// Writes an address and a pitch, or gives the memory back if there is no place for them.
///
/// # Safety
/// Places that are not null are writable.
unsafe fn write_both(
    to: *mut *mut c_void,
    address: *mut c_void,
    pitch: *mut usize,
    bytes: usize,
) -> Outcome {
    if to.is_null() || pitch.is_null() {
        if !address.is_null() {
            // SAFETY: the memory was allocated just now.
            unsafe { cu!("cuMemFree" @ 3020, address) }?;
        }
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the caller promises that the places are writable.
    unsafe {
        write(to, address)?;
        write(pitch, bytes)
    }
}
