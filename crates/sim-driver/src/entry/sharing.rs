//! Entry points for registered host memory and for memory of other processes.

use std::ffi::{c_int, c_uint, c_void};

use pagewise_hal::{
    Backend, Code, DevicePtr, ExportedPointer, HandleTypes, HostRegisterFlags, IpcMemHandle,
    PointerAttribute, SHARED_BLOB_BYTES, ShareableHandle,
};

use crate::contexts::Kind;
use crate::driver::{
    Driver, answer, has_place, in_context, in_context_after, load, started, store,
};
use crate::entry::host_memory::DEVICE_MAP;
use crate::entry::pools::{give, pool};
use crate::entry::span;

/// `CU_MEMHOSTREGISTER_PORTABLE`
const PORTABLE: c_uint = 1;

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
    // The simulator's programs read and write the memory by this address.
    let span = span(ptr.expose_provenance() as u64, bytes);
    let flags = HostRegisterFlags::from_bits_retain(flags);
    in_context("cuMemHostRegister_v2", |driver, _| {
        driver.check_unsafe()?;
        // SAFETY: `host_register` asks that the memory is live until it is unregistered; the caller
        // of this function promised that.
        answer(unsafe { driver.sim.host_register(span, flags) })?;
        // An H200 reports 2 for flags of 0: `CU_MEMHOSTREGISTER_DEVICEMAP`.
        driver.own(span.ptr, Kind::Registered(flags.bits() & PORTABLE | DEVICE_MAP));
        Ok(())
    })
}

/// `cuMemHostUnregister`
///
/// # Safety
/// No device may use the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostUnregister(ptr: *mut c_void) -> c_int {
    let ptr = DevicePtr(ptr.addr() as u64);
    started("cuMemHostUnregister", |driver| {
        driver.check_unsafe()?;
        // SAFETY: `host_unregister` asks that no device uses the memory any more; the caller of
        // this function promised that.
        answer(unsafe { driver.sim.host_unregister(ptr) })?;
        driver.disown(ptr);
        Ok(())
    })
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
    started("cuMemPoolExportToShareableHandle", |driver| {
        has_place(shared)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let kind = HandleTypes::from_bits_retain(kind.cast_unsigned());
        let made = answer(driver.sim.pool_export(pool(handle), kind))?;
        // SAFETY: the caller promises that `shared` is null or valid for writing an `int`, and the
        // simulator refuses every type of handle but descriptors, which are of that type.
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
    let kind = HandleTypes::from_bits_retain(kind.cast_unsigned());
    let shared = ShareableHandle(shared.addr() as c_int);
    let import = |driver: &Driver| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: `pool_import` is unsafe because driver 580 crashes with a handle of its own
        // process. The simulator imports those, and checks all that another process says.
        Ok(unsafe { driver.sim.pool_import(shared, kind) })
    };
    // SAFETY: the caller promises that `out` is null or valid for writing.
    unsafe { give("cuMemPoolImportFromShareableHandle", out, import) }
}

/// `cuMemPoolExportPointer`
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolExportPointer(out: *mut Blob, ptr: u64) -> c_int {
    started("cuMemPoolExportPointer", |driver| {
        has_place(out)?;
        let exported = answer(driver.sim.pool_export_pointer(DevicePtr(ptr)))?;
        // SAFETY: the caller promises that `out` is null or valid for writing.
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
    started("cuMemPoolImportPointer", |driver| {
        has_place(out)?;
        // SAFETY: the caller promises that `blob` is null or valid for reading. It is bytes, of
        // which every bit pattern is a value.
        let exported = ExportedPointer(unsafe { load(blob) }?.0);
        // SAFETY: `pool_import_pointer` asks that the exporter's allocation is complete, which it
        // is when the simulator returns from it, and lives longer than the import: memory of this
        // process is looked up at every call, and memory of another one stays while it is mapped.
        let ptr = answer(unsafe { driver.sim.pool_import_pointer(pool(handle), exported) })?;
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, ptr.0) }
    })
}

/// `cuIpcGetMemHandle`
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcGetMemHandle(out: *mut Blob, ptr: u64) -> c_int {
    in_context_after("cuIpcGetMemHandle", has_place(out), |driver, _| {
        let shared = answer(driver.sim.ipc_mem_handle(DevicePtr(ptr)))?;
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, Blob(shared.0)) }
    })
}

/// `cuIpcOpenMemHandle`
///
/// # Safety
/// `out` as the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcOpenMemHandle_v2(out: *mut u64, blob: Blob, flags: c_uint) -> c_int {
    in_context_after("cuIpcOpenMemHandle_v2", has_place(out), |driver, device| {
        if flags != 1 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: `ipc_open_mem_handle` asks that the exporter keeps the memory. Here it stays
        // while it is mapped, so even a broken promise does no harm.
        let ptr = answer(unsafe { driver.sim.ipc_open_mem_handle(device, IpcMemHandle(blob.0)) })?;
        if driver.is_opened_elsewhere(ptr) {
            // SAFETY: `ipc_close_mem_handle` asks that no code uses the memory any more. It was
            // opened before, so it stays.
            answer(unsafe { driver.sim.ipc_close_mem_handle(ptr) })?;
            return Err(Code::INVALID_HANDLE);
        }
        driver.own(ptr, Kind::Opened);
        // SAFETY: the caller promises that `out` is null or valid for writing.
        unsafe { store(out, ptr.0) }
    })
}

/// `cuIpcCloseMemHandle`
///
/// # Safety
/// No thread, and no work of a device, may use the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcCloseMemHandle(ptr: u64) -> c_int {
    in_context("cuIpcCloseMemHandle", |driver, _| {
        // SAFETY: `ipc_close_mem_handle` asks that no code uses the memory any more; the caller of
        // this function promised that.
        answer(unsafe { driver.sim.ipc_close_mem_handle(DevicePtr(ptr)) })?;
        // The program may have opened it more than once.
        let start = PointerAttribute::RANGE_START_ADDR;
        if driver.sim.pointer_attribute(DevicePtr(ptr), start).is_err() {
            driver.disown(DevicePtr(ptr));
        }
        Ok(())
    })
}
