//! The table of the driver's functions: their names, versions and symbols.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int};

use crate::options::Options;

/// One form of a function of the driver: a signature, under the name that all its forms share.
pub(crate) struct Form {
    /// The name that programs look up.
    pub(crate) name: &'static CStr,
    /// The version of CUDA that introduced this form.
    pub(crate) since: c_int,
    /// Its symbol in the library.
    pub(crate) symbol: &'static str,
}

impl Form {
    /// Whether a driver of these options has it.
    pub(crate) fn is_in(&self, options: &Options) -> bool {
        let name = self.name.to_str().unwrap_or_default();
        self.since <= options.version().0 && !options.hides(name, self.since)
    }
}

/// The symbols of what a driver of these options does not have.
pub(crate) fn missing(options: &Options) -> BTreeSet<&'static str> {
    let absent = FORMS.iter().filter(|form| !form.is_in(options));
    absent.map(|form| form.symbol).collect()
}

/// Gives the table to another macro: `name @ version symbol;` for each form of each function.
macro_rules! with_forms {
    ($use:ident) => {
        $use! {
            c"cuInit" @ 2000 cuInit;
            c"cuDriverGetVersion" @ 2020 cuDriverGetVersion;
            c"cuGetProcAddress" @ 11030 cuGetProcAddress;
            c"cuGetProcAddress" @ 12000 cuGetProcAddress_v2;
            c"cuGetErrorName" @ 6000 cuGetErrorName;
            c"cuGetErrorString" @ 6000 cuGetErrorString;
            c"cuDeviceGetCount" @ 2000 cuDeviceGetCount;
            c"cuDeviceGet" @ 2000 cuDeviceGet;
            c"cuDeviceGetName" @ 2000 cuDeviceGetName;
            c"cuDeviceTotalMem" @ 3020 cuDeviceTotalMem_v2;
            c"cuDeviceGetAttribute" @ 2000 cuDeviceGetAttribute;
            c"cuDeviceCanAccessPeer" @ 4000 cuDeviceCanAccessPeer;
            c"cuDevicePrimaryCtxRetain" @ 7000 cuDevicePrimaryCtxRetain;
            c"cuDevicePrimaryCtxGetState" @ 7000 cuDevicePrimaryCtxGetState;
            c"cuDevicePrimaryCtxRelease" @ 11000 cuDevicePrimaryCtxRelease_v2;
            c"cuCtxSetCurrent" @ 4000 cuCtxSetCurrent;
            c"cuCtxGetCurrent" @ 4000 cuCtxGetCurrent;
            c"cuCtxGetDevice" @ 2000 cuCtxGetDevice;
            c"cuCtxSynchronize" @ 2000 cuCtxSynchronize;
            c"cuMemGetInfo" @ 3020 cuMemGetInfo_v2;
            c"cuMemAllocManaged" @ 6000 cuMemAllocManaged;
            c"cuMemAlloc" @ 3020 cuMemAlloc_v2;
            c"cuMemFree" @ 3020 cuMemFree_v2;
            c"cuMemHostAlloc" @ 2020 cuMemHostAlloc;
            c"cuMemFreeHost" @ 2000 cuMemFreeHost;
            c"cuMemHostRegister" @ 6050 cuMemHostRegister_v2;
            c"cuMemHostUnregister" @ 4000 cuMemHostUnregister;
            c"cuIpcGetMemHandle" @ 4010 cuIpcGetMemHandle;
            c"cuIpcOpenMemHandle" @ 11000 cuIpcOpenMemHandle_v2;
            c"cuIpcCloseMemHandle" @ 4010 cuIpcCloseMemHandle;
            c"cuMemPoolExportToShareableHandle" @ 11020 cuMemPoolExportToShareableHandle;
            c"cuMemPoolImportFromShareableHandle" @ 11020 cuMemPoolImportFromShareableHandle;
            c"cuMemPoolExportPointer" @ 11020 cuMemPoolExportPointer;
            c"cuMemPoolImportPointer" @ 11020 cuMemPoolImportPointer;
            c"cuMemRangeGetAttribute" @ 8000 cuMemRangeGetAttribute;
            c"cuPointerGetAttribute" @ 4000 cuPointerGetAttribute;
            c"cuPointerGetAttributes" @ 7000 cuPointerGetAttributes;
            c"cuMemAdvise" @ 8000 cuMemAdvise;
            c"cuMemAdvise" @ 12020 cuMemAdvise_v2;
            c"cuMemPrefetchAsync" @ 8000 cuMemPrefetchAsync;
            c"cuMemPrefetchAsync" @ 12020 cuMemPrefetchAsync_v2;
            c"cuMemPrefetchBatchAsync" @ 13000 cuMemPrefetchBatchAsync;
            c"cuMemDiscardBatchAsync" @ 13000 cuMemDiscardBatchAsync;
            c"cuMemDiscardAndPrefetchBatchAsync" @ 13000 cuMemDiscardAndPrefetchBatchAsync;
            c"cuMemPoolCreate" @ 11020 cuMemPoolCreate;
            c"cuMemPoolDestroy" @ 11020 cuMemPoolDestroy;
            c"cuMemPoolGetAttribute" @ 11020 cuMemPoolGetAttribute;
            c"cuMemPoolSetAttribute" @ 11020 cuMemPoolSetAttribute;
            c"cuMemPoolTrimTo" @ 11020 cuMemPoolTrimTo;
            c"cuMemPoolSetAccess" @ 11020 cuMemPoolSetAccess;
            c"cuMemPoolGetAccess" @ 11020 cuMemPoolGetAccess;
            c"cuDeviceGetDefaultMemPool" @ 11020 cuDeviceGetDefaultMemPool;
            c"cuDeviceGetMemPool" @ 11020 cuDeviceGetMemPool;
            c"cuDeviceSetMemPool" @ 11020 cuDeviceSetMemPool;
            c"cuMemGetDefaultMemPool" @ 13000 cuMemGetDefaultMemPool;
            c"cuMemGetMemPool" @ 13000 cuMemGetMemPool;
            c"cuMemSetMemPool" @ 13000 cuMemSetMemPool;
            c"cuMemGetAllocationGranularity" @ 10020 cuMemGetAllocationGranularity;
            c"cuMemAddressReserve" @ 10020 cuMemAddressReserve;
            c"cuMemAddressFree" @ 10020 cuMemAddressFree;
            c"cuMemCreate" @ 10020 cuMemCreate;
            c"cuMemRelease" @ 10020 cuMemRelease;
            c"cuMemMap" @ 10020 cuMemMap;
            c"cuMemUnmap" @ 10020 cuMemUnmap;
            c"cuMemSetAccess" @ 10020 cuMemSetAccess;
            c"cuMemGetAccess" @ 10020 cuMemGetAccess;
            c"cuMemAllocFromPoolAsync" @ 11020 cuMemAllocFromPoolAsync;
            c"cuMemFreeAsync" @ 11020 cuMemFreeAsync;
            c"cuStreamCreate" @ 2000 cuStreamCreate;
            c"cuStreamDestroy" @ 4000 cuStreamDestroy_v2;
            c"cuStreamSynchronize" @ 2000 cuStreamSynchronize;
            c"cuStreamQuery" @ 2000 cuStreamQuery;
            c"cuStreamWaitEvent" @ 3020 cuStreamWaitEvent;
            c"cuStreamAttachMemAsync" @ 6000 cuStreamAttachMemAsync;
            c"cuStreamGetCtx" @ 9020 cuStreamGetCtx;
            c"cuEventCreate" @ 2000 cuEventCreate;
            c"cuEventDestroy" @ 4000 cuEventDestroy_v2;
            c"cuEventRecord" @ 2000 cuEventRecord;
            c"cuEventQuery" @ 2000 cuEventQuery;
            c"cuEventSynchronize" @ 2000 cuEventSynchronize;
            c"cuEventElapsedTime" @ 2000 cuEventElapsedTime;
            c"cuMemsetD8Async" @ 3020 cuMemsetD8Async;
            c"cuMemsetD16Async" @ 3020 cuMemsetD16Async;
            c"cuMemsetD32Async" @ 3020 cuMemsetD32Async;
            c"cuMemcpyBatchAsync" @ 12080 cuMemcpyBatchAsync;
            c"cuMemcpyBatchAsync" @ 13000 cuMemcpyBatchAsync_v2;
            c"cuMemcpyAsync" @ 4000 cuMemcpyAsync;
            c"cuMemcpyDtoDAsync" @ 3020 cuMemcpyDtoDAsync_v2;
            c"cuMemcpyDtoHAsync" @ 3020 cuMemcpyDtoHAsync_v2;
            c"cuMemcpyHtoDAsync" @ 3020 cuMemcpyHtoDAsync_v2;
            c"cuModuleLoadData" @ 2000 cuModuleLoadData;
            c"cuModuleUnload" @ 2000 cuModuleUnload;
            c"cuModuleGetFunction" @ 2000 cuModuleGetFunction;
            c"cuLaunchKernel" @ 4000 cuLaunchKernel;
        }
    };
}
pub(crate) use with_forms;

macro_rules! forms {
    ($($name:literal @ $since:literal $function:ident;)*) => {
        /// Every form of every function.
        pub(crate) const FORMS: &[Form] =
            &[$(Form { name: $name, since: $since, symbol: stringify!($function) }),*];
    };
}
with_forms!(forms);

/// Every entry point of the driver's ABI that this library has: the name that programs look up, the
/// version of CUDA since which it has this form, and the form's symbol.
pub fn entry_points() -> impl Iterator<Item = (&'static str, c_int, &'static str)> {
    FORMS.iter().map(|form| (form.name.to_str().unwrap_or_default(), form.since, form.symbol))
}
