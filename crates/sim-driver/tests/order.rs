//! The order of checks: every call as driver 580 on an H200 answered it, before `cuInit`, then
//! without a context, then with one. Calls that make that driver crash are left out.
//!
//! One test, one process: there is one start.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut as nil, without_provenance_mut};

use pagewise_driver::{
    Blob, MemLocation, MemPoolProps, cuCtxGetCurrent, cuCtxGetDevice, cuCtxSetCurrent,
    cuCtxSynchronize, cuDeviceGet, cuDeviceGetAttribute, cuDeviceGetCount,
    cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuDeviceGetName, cuDevicePrimaryCtxRelease_v2,
    cuDevicePrimaryCtxRetain, cuDeviceSetMemPool, cuDeviceTotalMem_v2, cuDriverGetVersion,
    cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime, cuEventQuery, cuEventRecord,
    cuEventSynchronize, cuGetErrorName, cuGetProcAddress_v2, cuInit, cuIpcCloseMemHandle,
    cuIpcGetMemHandle, cuIpcOpenMemHandle_v2, cuLaunchKernel, cuMemAlloc_v2,
    cuMemAllocFromPoolAsync, cuMemAllocManaged, cuMemDiscardBatchAsync, cuMemFree_v2,
    cuMemFreeAsync, cuMemFreeHost, cuMemGetInfo_v2, cuMemGetMemPool, cuMemHostAlloc,
    cuMemHostRegister_v2, cuMemHostUnregister, cuMemPoolCreate, cuMemPoolDestroy,
    cuMemPoolExportPointer, cuMemPoolExportToShareableHandle, cuMemPoolGetAccess,
    cuMemPoolGetAttribute, cuMemPoolImportFromShareableHandle, cuMemPoolImportPointer,
    cuMemPoolSetAccess, cuMemPoolSetAttribute, cuMemPoolTrimTo, cuMemPrefetchBatchAsync,
    cuMemRangeGetAttribute, cuMemSetMemPool, cuMemcpyAsync, cuMemcpyDtoHAsync_v2,
    cuMemcpyHtoDAsync_v2, cuMemsetD8Async, cuModuleGetFunction, cuModuleLoadData, cuModuleUnload,
    cuPointerGetAttribute, cuPointerGetAttributes, cuStreamAttachMemAsync, cuStreamCreate,
    cuStreamDestroy_v2, cuStreamGetCtx, cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent,
};

const PER_THREAD: *mut c_void = without_provenance_mut(2);
const DESCRIPTOR: *mut c_void = without_provenance_mut(1);

fn look(name: &CStr, version: c_int, flags: u64, status: *mut c_int) -> c_int {
    let mut function = nil();
    // SAFETY: the driver reads the name up to its NUL; each place is null or a local that outlives
    // the call.
    unsafe { cuGetProcAddress_v2(name.as_ptr(), &raw mut function, version, flags, status) }
}

/// A call, its answer now, and the answers of the driver: not started, no context, a context.
type Row = (&'static str, c_int, [c_int; 3]);

/// Makes every call, each after `prepare`.
fn rows(prepare: fn()) -> Vec<Row> {
    macro_rules! row {
        ($call:expr => $early:literal, $no_context:literal, $context:literal) => {{
            prepare();
            (stringify!($call), $call, [$early, $no_context, $context])
        }};
    }
    let (mut p, mut n, mut i, mut f, mut af, mut qr) = (0_u64, 0_usize, 0, 0_f32, 0, 0);
    let (mut c, mut st, mut ev, mut q) = (nil(), nil(), nil(), nil());
    let (mut v, mut mo, mut fu, mut t) = (nil(), nil(), nil(), null());
    let (ih, mut loc) = (Blob([0; 64]), MemLocation { kind: 1, id: 0 });
    let mut props = MemPoolProps {
        allocation_type: 0,
        handle_types: 0,
        location: MemLocation { kind: 0, id: 0 },
        win32_security_attributes: nil(),
        max_bytes: 0,
        reserved: [0; 56],
    };
    // SAFETY: each place is null or a local that outlives the call, names are NUL-terminated, and
    // no freed memory or destroyed handle is used.
    unsafe {
        vec![
            row!(cuDriverGetVersion(nil()) => 1, 1, 1),
            row!(cuDeviceGetCount(nil()) => 3, 1, 1),
            row!(cuDeviceGet(nil(), 0) => 3, 1, 1),
            row!(cuDeviceGet(&raw mut i, -1) => 3, 101, 101),
            row!(cuDeviceGet(nil(), 99) => 3, 1, 1),
            row!(cuDeviceGetName(nil(), 10, 0) => 3, 1, 1),
            row!(cuDeviceGetName((&raw mut p).cast(), 4, 0) => 3, 0, 0),
            row!(cuDeviceGetName(nil(), 10, 99) => 3, 1, 1),
            row!(cuDeviceTotalMem_v2(nil(), 0) => 3, 1, 1),
            row!(cuDeviceTotalMem_v2(&raw mut n, -1) => 3, 101, 101),
            row!(cuDeviceTotalMem_v2(nil(), 99) => 3, 1, 1),
            row!(cuDeviceGetAttribute(nil(), 1, 0) => 1, 1, 1),
            row!(cuDeviceGetAttribute(&raw mut i, 99999, 0) => 3, 1, 1),
            row!(cuDeviceGetAttribute(nil(), 1, 99) => 1, 1, 1),
            row!(cuDevicePrimaryCtxRetain(nil(), 0) => 3, 1, 1),
            row!(cuDevicePrimaryCtxRetain(&raw mut c, -1) => 3, 101, 101),
            row!(cuDevicePrimaryCtxRetain(nil(), -1) => 3, 101, 101),
            row!(cuDevicePrimaryCtxRelease_v2(-1) => 3, 101, 101),
            row!(cuDevicePrimaryCtxRelease_v2(0) => 3, 201, 0),
            row!(cuCtxGetCurrent(nil()) => 3, 1, 1),
            row!(cuCtxGetCurrent(&raw mut c) => 3, 0, 0),
            row!(cuCtxSetCurrent(nil()) => 3, 0, 0),
            row!(cuCtxGetDevice(nil()) => 1, 1, 1),
            row!(cuMemGetInfo_v2(nil(), nil()) => 3, 201, 0),
            row!(cuMemGetInfo_v2(&raw mut n, nil()) => 3, 201, 0),
            row!(cuMemGetInfo_v2(nil(), &raw mut n) => 3, 201, 0),
            row!(cuMemAllocManaged(nil(), 4096, 1) => 1, 1, 1),
            row!(cuMemAllocManaged(&raw mut p, 0, 1) => 1, 1, 1),
            row!(cuMemAllocManaged(&raw mut p, 4096, 9) => 1, 1, 1),
            row!(cuMemAllocManaged(&raw mut p, usize::MAX, 1) => 3, 201, 2),
            row!(cuMemAlloc_v2(nil(), 4096) => 3, 201, 1),
            row!(cuMemAlloc_v2(&raw mut p, usize::MAX) => 3, 201, 2),
            row!(cuMemFree_v2(0) => 3, 0, 0),
            row!(cuMemFree_v2(0x1234) => 3, 1, 1),
            row!(cuMemHostAlloc(nil(), 4096, 0) => 3, 201, 1),
            row!(cuMemHostAlloc(&raw mut v, usize::MAX, 0) => 3, 201, 2),
            row!(cuMemHostAlloc(&raw mut v, 4096, 0x80) => 3, 201, 1),
            row!(cuMemFreeHost(nil()) => 3, 0, 0),
            row!(cuMemHostRegister_v2(nil(), 0, 0) => 3, 201, 1),
            row!(cuMemHostUnregister(nil()) => 3, 1, 1),
            row!(cuMemRangeGetAttribute(nil(), 4, 1, 0, 0) => 3, 201, 1),
            row!(cuPointerGetAttribute(nil(), 2, 0) => 3, 1, 1),
            row!(cuPointerGetAttribute((&raw mut p).cast(), 999, 0) => 3, 1, 1),
            row!(cuPointerGetAttributes(1, nil(), nil(), 0) => 3, 1, 1),
            row!(cuMemPoolCreate(&raw mut q, nil()) => 3, 1, 1),
            row!(cuMemPoolCreate(nil(), &raw mut props) => 3, 1, 1),
            row!(cuMemPoolCreate(nil(), nil()) => 3, 1, 1),
            row!(cuMemPoolDestroy(nil()) => 3, 1, 1),
            row!(cuMemPoolGetAttribute(nil(), 1, nil()) => 3, 1, 1),
            row!(cuMemPoolSetAttribute(nil(), 1, nil()) => 3, 1, 1),
            row!(cuMemPoolTrimTo(nil(), 0) => 3, 1, 1),
            row!(cuMemPoolSetAccess(nil(), nil(), 0) => 3, 1, 1),
            row!(cuMemPoolGetAccess(nil(), nil(), nil()) => 3, 1, 1),
            row!(cuMemPoolGetAccess(&raw mut af, nil(), &raw mut loc) => 3, 1, 1),
            row!(cuDeviceGetDefaultMemPool(nil(), 0) => 3, 1, 1),
            row!(cuDeviceGetDefaultMemPool(&raw mut q, -1) => 3, 101, 101),
            row!(cuDeviceGetMemPool(nil(), 0) => 3, 1, 1),
            row!(cuDeviceSetMemPool(0, nil()) => 3, 1, 1),
            row!(cuDeviceSetMemPool(-1, nil()) => 3, 1, 1),
            row!(cuMemAllocFromPoolAsync(nil(), 4096, nil(), nil()) => 3, 201, 1),
            row!(cuMemAllocFromPoolAsync(&raw mut p, 4096, nil(), nil()) => 3, 201, 1),
            row!(cuMemFreeAsync(0, nil()) => 3, 201, 0),
            row!(cuMemFreeAsync(0x1234, nil()) => 3, 201, 1),
            row!(cuStreamCreate(nil(), 0) => 1, 1, 1),
            row!(cuStreamCreate(&raw mut st, 99) => 1, 1, 1),
            row!(cuStreamDestroy_v2(nil()) => 400, 400, 400),
            row!(cuStreamSynchronize(nil()) => 3, 201, 0),
            row!(cuStreamQuery(nil()) => 3, 201, 0),
            row!(cuStreamWaitEvent(nil(), nil(), 0) => 3, 201, 400),
            row!(cuStreamAttachMemAsync(nil(), 0, 0, 1) => 3, 201, 1),
            row!(cuEventCreate(nil(), 0) => 3, 201, 1),
            row!(cuEventCreate(&raw mut ev, 0x100) => 3, 201, 1),
            row!(cuEventDestroy_v2(nil()) => 400, 400, 400),
            row!(cuEventRecord(nil(), nil()) => 3, 201, 400),
            row!(cuEventQuery(nil()) => 400, 400, 400),
            row!(cuEventSynchronize(nil()) => 400, 400, 400),
            row!(cuEventElapsedTime(&raw mut f, nil(), nil()) => 400, 400, 400),
            row!(cuEventElapsedTime(nil(), nil(), nil()) => 400, 400, 400),
            row!(cuMemsetD8Async(0, 0, 4096, nil()) => 3, 201, 1),
            row!(cuMemsetD8Async(0, 0, 0, nil()) => 3, 201, 0),
            row!(cuMemcpyAsync(0, 0, 0, nil()) => 3, 201, 0),
            row!(cuMemcpyAsync(0, 0, 4096, nil()) => 3, 201, 1),
            row!(cuMemcpyDtoHAsync_v2(nil(), 0, 0, nil()) => 3, 201, 0),
            row!(cuMemcpyHtoDAsync_v2(0, nil(), 0, nil()) => 3, 201, 0),
            row!(cuModuleLoadData(nil(), nil()) => 3, 201, 1),
            row!(cuModuleLoadData(&raw mut mo, nil()) => 3, 201, 1),
            row!(cuModuleUnload(nil()) => 3, 400, 400),
            row!(cuModuleGetFunction(&raw mut fu, nil(), nil()) => 3, 400, 400),
            row!(
                cuLaunchKernel(nil(), 1, 1, 1, 1, 1, 1, 0, nil(), nil(), nil())
                => 3, 201, 400
            ),
            row!(cuMemPoolExportPointer(nil(), 0) => 3, 1, 1),
            row!(cuMemPoolExportToShareableHandle(nil(), nil(), 1, 0) => 3, 1, 1),
            row!(cuMemPoolImportFromShareableHandle(nil(), DESCRIPTOR, 1, 9) => 3, 1, 1),
            row!(cuMemPoolImportFromShareableHandle(&raw mut q, DESCRIPTOR, 1, 9) => 3, 1, 1),
            row!(cuMemPoolImportPointer(nil(), nil(), nil()) => 3, 1, 1),
            row!(cuIpcGetMemHandle(nil(), 0) => 1, 1, 1),
            row!(cuIpcOpenMemHandle_v2(&raw mut p, ih, 9) => 3, 201, 1),
            row!(cuIpcOpenMemHandle_v2(nil(), ih, 1) => 1, 1, 1),
            row!(cuIpcCloseMemHandle(0) => 3, 201, 1),
            row!(cuGetErrorName(-5, &raw mut t) => 1, 1, 1),
            row!(look(c"cuNoSuchFunction", 13000, 0, &raw mut qr) => 0, 0, 0),
            row!(look(c"cuMemAdvise", 7000, 0, &raw mut qr) => 0, 0, 0),
            row!(look(c"cuMemAdvise", 99999, 0, &raw mut qr) => 1, 1, 1),
            row!(look(c"cuMemAdvise", -1, 0, &raw mut qr) => 0, 0, 0),
            row!(look(c"cuMemAdvise", 0, 0, &raw mut qr) => 0, 0, 0),
            row!(look(c"cuMemAdvise", 12020, 0x80, &raw mut qr) => 1, 1, 1),
            row!(look(c"cuMemAdvise", 12020, 3, &raw mut qr) => 0, 0, 0),
            row!(look(c"", 12020, 0, &raw mut qr) => 0, 0, 0),
            row!(look(c"cuMemAdvise", 12020, 0, nil()) => 0, 0, 0),
            row!(look(c"cuMemAdvise_v2", 13000, 0, &raw mut qr) => 0, 0, 0),
            row!(cuCtxSynchronize() => 3, 201, 0),
            row!(
                cuMemPrefetchBatchAsync(nil(), nil(), 0, nil(), nil(), 0, 0, nil())
                => 1, 1, 1
            ),
            row!(
                cuMemPrefetchBatchAsync(nil(), nil(), 1 << 33, nil(), nil(), 0, 0, PER_THREAD)
                => 3, 201, 1
            ),
            row!(cuMemDiscardBatchAsync(nil(), nil(), 0, 0, nil()) => 1, 1, 1),
            row!(cuMemDiscardBatchAsync(nil(), nil(), 0, 0, PER_THREAD) => 3, 201, 1),
            row!(cuMemGetMemPool(nil(), nil(), 1) => 3, 1, 1),
            row!(cuMemGetMemPool(&raw mut q, nil(), 1) => 3, 1, 1),
            row!(cuMemSetMemPool(nil(), 1, nil()) => 3, 1, 1),
            row!(cuStreamGetCtx(nil(), nil()) => 1, 1, 1),
            row!(cuStreamGetCtx(nil(), &raw mut c) => 3, 201, 0),
            row!(cuInit(1) => 1, 1, 1),
        ]
    }
}

/// Makes the context of device 0 current: two of the calls give it up.
fn make_current() {
    let mut context = nil();
    // SAFETY: the driver writes the context to a local that outlives the call.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, 0);
    assert_eq!(cuCtxSetCurrent(context), 0);
}

#[test]
fn checks_come_in_the_drivers_order() {
    let check = |state: usize, prepare: fn()| {
        for (call, code, expected) in rows(prepare) {
            assert_eq!(code, expected[state], "{call} in state {state}");
        }
    };
    check(0, || {});
    assert_eq!(cuInit(0), 0);
    check(1, || {});
    check(2, make_current);
}
