//! Registered host memory, and what other processes import memory by.

use std::ffi::{c_int, c_uint, c_void};

use pagewise::{
    Backend, Code, DevicePtr, ExportedPointer, HandleTypes, HostRegisterFlags, IpcMemHandle,
    SHARED_BLOB_BYTES, ShareableHandle,
};

use crate::entry::pools::{give, pool};
use crate::entry::span;
use crate::machine::{answer, has_place, in_context, started, store};

/// `CUmemPoolPtrExportData` and `CUipcMemHandle`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Blob(pub [u8; SHARED_BLOB_BYTES]);

/// `cuMemHostRegister`
///
/// # Safety
/// The memory must be live until it is unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostRegister_v2(
    ptr: *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> c_int {
    let span = span(ptr.expose_provenance() as u64, bytes);
    let flags = HostRegisterFlags::from_bits_retain(flags);
    // SAFETY: the caller's duty is the same.
    in_context(|machine, _| answer(unsafe { machine.sim.host_register(span, flags) }))
}

/// `cuMemHostUnregister`
///
/// # Safety
/// No device may use the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostUnregister(ptr: *mut c_void) -> c_int {
    let ptr = DevicePtr(ptr.addr() as u64);
    // SAFETY: the caller's duty is the same.
    in_context(|machine, _| answer(unsafe { machine.sim.host_unregister(ptr) }))
}

/// `cuMemPoolExportToShareableHandle`
///
/// # Safety
/// `shared` must be null or valid for writing an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolExportToShareableHandle(
    shared: *mut c_void,
    handle: *mut c_void,
    kind: c_int,
    flags: u64,
) -> c_int {
    started(|machine| {
        has_place(shared)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let kind = HandleTypes::from_bits_retain(kind.cast_unsigned());
        let made = answer(machine.sim.pool_export(pool(handle), kind))?;
        // SAFETY: the caller vouches for the place; the simulator exports descriptors only.
        unsafe { store(shared.cast::<c_int>(), made.0) }
    })
}

/// `cuMemPoolImportFromShareableHandle`
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolImportFromShareableHandle(
    out: *mut *mut c_void,
    shared: *mut c_void,
    kind: c_int,
    flags: u64,
) -> c_int {
    if flags != 0 {
        return Code::INVALID_VALUE;
    }
    let kind = HandleTypes::from_bits_retain(kind.cast_unsigned());
    let shared = ShareableHandle(shared.addr() as c_int);
    // SAFETY: the caller vouches for the place; the simulator takes handles of its own.
    unsafe { give(out, |machine| machine.sim.pool_import(shared, kind)) }
}

/// `cuMemPoolExportPointer`
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolExportPointer(out: *mut Blob, ptr: u64) -> c_int {
    started(|machine| {
        has_place(out)?;
        let exported = answer(machine.sim.pool_export_pointer(DevicePtr(ptr)))?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(out, Blob(exported.0)) }
    })
}

/// `cuMemPoolImportPointer`
///
/// # Safety
/// `out` as the module says; `blob` must be null or valid for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolImportPointer(
    out: *mut u64,
    handle: *mut c_void,
    blob: *const Blob,
) -> c_int {
    started(|machine| {
        has_place(out)?;
        has_place(blob.cast_mut())?;
        // SAFETY: not null, and the caller vouches for the rest.
        let exported = ExportedPointer(unsafe { *blob }.0);
        // SAFETY: one process: importer and exporter are the caller.
        let ptr = answer(unsafe { machine.sim.pool_import_pointer(pool(handle), exported) })?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(out, ptr.0) }
    })
}

/// `cuIpcGetMemHandle`
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcGetMemHandle(out: *mut Blob, ptr: u64) -> c_int {
    in_context(|machine, _| {
        has_place(out)?;
        let shared = answer(machine.sim.ipc_mem_handle(DevicePtr(ptr)))?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(out, Blob(shared.0)) }
    })
}

/// `cuIpcOpenMemHandle`
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcOpenMemHandle_v2(out: *mut u64, blob: Blob, flags: c_uint) -> c_int {
    in_context(|machine, device| {
        has_place(out)?;
        if flags != 1 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: one process: nothing is opened.
        let ptr = answer(unsafe { machine.sim.ipc_open_mem_handle(device, IpcMemHandle(blob.0)) })?;
        // SAFETY: the caller vouches for the place.
        unsafe { store(out, ptr.0) }
    })
}

/// `cuIpcCloseMemHandle`
///
/// # Safety
/// Nobody may use the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcCloseMemHandle(ptr: u64) -> c_int {
    // SAFETY: the caller's duty is the same.
    in_context(|machine, _| answer(unsafe { machine.sim.ipc_close_mem_handle(DevicePtr(ptr)) }))
}
