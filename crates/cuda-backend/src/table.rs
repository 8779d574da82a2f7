//! The entry points of the driver, in one table.
//!
//! A name of the driver stands for several functions: which one `cuGetProcAddress_v2` returns
//! depends on the version asked for. So each row pins the version that introduced the signature
//! written beside it, never the driver's own: asking for `cuMemAdvise` as of 13.0 and calling it
//! with a device ordinal would pass an integer where a struct is expected (CONTRACT-1).
//!
//! Versions: `cudaTypedefs.h` of toolkits 12.9 and 13.5. Every function returns a `CUresult` as a
//! plain integer: newer drivers return numbers that no enumeration of ours names.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::NonNull;

use pagewise_hal::DriverVersion;

use crate::abi::{
    AccessDesc, Blob, CopyAttributes, Handle, MemLocation, RawAllocationProp, RawPoolProps,
};

/// A row of the table: a name, and the version of its signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: &'static CStr,
    pub(crate) since: DriverVersion,
    /// Without it there is no back end.
    pub(crate) required: bool,
}

impl Row {
    /// The name as text.
    pub(crate) fn name(self) -> &'static str {
        self.name.to_str().unwrap_or_default()
    }
}

macro_rules! entry_points {
    (
        required { $($field:ident: $name:literal @ $since:literal ($($arg:ident: $type:ty),*);)* }
        optional { $($extra:ident: $extra_name:literal @ $extra_since:literal
            ($($extra_arg:ident: $extra_type:ty),*);)* }
    ) => {
        /// The functions of one driver. Calling one is `unsafe`: arguments go to C.
        #[derive(Debug)]
        pub(crate) struct Table {
            $(pub(crate) $field: unsafe extern "C" fn($($arg: $type),*) -> i32,)*
            $(pub(crate) $extra:
                Option<unsafe extern "C" fn($($extra_arg: $extra_type),*) -> i32>,)*
        }

        /// Every row, required ones first.
        pub(crate) const ROWS: &[Row] = &[
            $(Row { name: $name, since: DriverVersion($since), required: true },)*
            $(Row { name: $extra_name, since: DriverVersion($extra_since), required: false },)*
        ];

        impl Table {
            /// Looks every row up. Fails with the required ones that are missing.
            ///
            /// # Safety
            /// What `find` returns must be the function that `cuda.h` declares by the row's name
            /// as of the row's version, and stay valid for the life of the process.
            pub(crate) unsafe fn fill(
                find: impl Fn(Row) -> Option<NonNull<c_void>>,
            ) -> Result<Self, Vec<Row>> {
                let needed = ROWS.iter().copied().filter(|row| row.required);
                let missing: Vec<Row> = needed.filter(|&row| find(row).is_none()).collect();
                let mut rows = ROWS.iter().copied().map(|row| (row, find(row)));
                // The fields below are the rows in their order, so each takes its own.
                let mut next = || rows.next().and_then(|(_, address)| address);
                let table = (|| Some(Self {
                    // SAFETY: the caller promised that the address is a function of this signature.
                    // A pointer to a function is as large as one to data on every system that CUDA
                    // supports.
                    $($field: unsafe {
                        std::mem::transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($type),*) -> i32,
                        >(next()?)
                    },)*
                    // SAFETY: the caller promised that the address is a function of this signature.
                    // A pointer to a function is as large as one to data on every system that CUDA
                    // supports.
                    $($extra: next().map(|address| unsafe {
                        std::mem::transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($extra_type),*) -> i32,
                        >(address)
                    }),)*
                }))();
                table.map(Self::with_whole_groups).ok_or(missing)
            }
        }
    };
}

entry_points! {
    required {
        init: c"cuInit" @ 2000 (flags: c_uint);
        device_get_count: c"cuDeviceGetCount" @ 2000 (count: *mut i32);
        device_get: c"cuDeviceGet" @ 2000 (device: *mut i32, ordinal: i32);
        device_get_name: c"cuDeviceGetName" @ 2000 (name: *mut c_char, bytes: i32, device: i32);
        device_get_attribute: c"cuDeviceGetAttribute" @ 2000
            (value: *mut i32, attribute: i32, device: i32);
        device_can_access_peer: c"cuDeviceCanAccessPeer" @ 4000
            (can: *mut i32, device: i32, peer: i32);

        primary_ctx_retain: c"cuDevicePrimaryCtxRetain" @ 7000 (context: *mut Handle, device: i32);
        primary_ctx_release: c"cuDevicePrimaryCtxRelease" @ 11000 (device: i32);
        ctx_set_current: c"cuCtxSetCurrent" @ 4000 (context: Handle);
        ctx_get_current: c"cuCtxGetCurrent" @ 4000 (context: *mut Handle);

        mem_get_info: c"cuMemGetInfo" @ 3020 (free: *mut usize, total: *mut usize);
        mem_alloc_managed: c"cuMemAllocManaged" @ 6000
            (ptr: *mut u64, bytes: usize, flags: c_uint);
        mem_alloc: c"cuMemAlloc" @ 3020 (ptr: *mut u64, bytes: usize);
        mem_free: c"cuMemFree" @ 3020 (ptr: u64);
        mem_host_alloc: c"cuMemHostAlloc" @ 2020
            (ptr: *mut *mut c_void, bytes: usize, flags: c_uint);
        mem_free_host: c"cuMemFreeHost" @ 2000 (ptr: *mut c_void);

        mem_advise_ordinal: c"cuMemAdvise" @ 8000
            (ptr: u64, bytes: usize, advice: i32, device: i32);
        mem_prefetch_ordinal: c"cuMemPrefetchAsync" @ 8000
            (ptr: u64, bytes: usize, device: i32, stream: Handle);
        mem_range_get_attribute: c"cuMemRangeGetAttribute" @ 8000
            (data: *mut c_void, data_bytes: usize, attribute: i32, ptr: u64, bytes: usize);
        pointer_get_attribute: c"cuPointerGetAttribute" @ 4000
            (data: *mut c_void, attribute: i32, ptr: u64);
        pointer_get_attributes: c"cuPointerGetAttributes" @ 7000
            (count: c_uint, attributes: *mut i32, data: *mut *mut c_void, ptr: u64);

        mem_pool_create: c"cuMemPoolCreate" @ 11020 (pool: *mut Handle, props: *const RawPoolProps);
        mem_pool_destroy: c"cuMemPoolDestroy" @ 11020 (pool: Handle);
        mem_pool_get_attribute: c"cuMemPoolGetAttribute" @ 11020
            (pool: Handle, attribute: i32, value: *mut c_void);
        mem_pool_set_attribute: c"cuMemPoolSetAttribute" @ 11020
            (pool: Handle, attribute: i32, value: *mut c_void);
        mem_pool_trim_to: c"cuMemPoolTrimTo" @ 11020 (pool: Handle, min_bytes_to_keep: usize);
        mem_pool_set_access: c"cuMemPoolSetAccess" @ 11020
            (pool: Handle, access: *const AccessDesc, count: usize);
        mem_pool_get_access: c"cuMemPoolGetAccess" @ 11020
            (flags: *mut i32, pool: Handle, location: *mut MemLocation);
        mem_alloc_from_pool_async: c"cuMemAllocFromPoolAsync" @ 11020
            (ptr: *mut u64, bytes: usize, pool: Handle, stream: Handle);
        mem_free_async: c"cuMemFreeAsync" @ 11020 (ptr: u64, stream: Handle);
        device_get_default_mem_pool: c"cuDeviceGetDefaultMemPool" @ 11020
            (pool: *mut Handle, device: i32);
        device_get_mem_pool: c"cuDeviceGetMemPool" @ 11020 (pool: *mut Handle, device: i32);
        device_set_mem_pool: c"cuDeviceSetMemPool" @ 11020 (device: i32, pool: Handle);

        stream_create: c"cuStreamCreate" @ 2000 (stream: *mut Handle, flags: c_uint);
        stream_destroy: c"cuStreamDestroy" @ 4000 (stream: Handle);
        stream_synchronize: c"cuStreamSynchronize" @ 2000 (stream: Handle);
        stream_wait_event: c"cuStreamWaitEvent" @ 3020
            (stream: Handle, event: Handle, flags: c_uint);
        stream_attach_mem_async: c"cuStreamAttachMemAsync" @ 6000
            (stream: Handle, ptr: u64, bytes: usize, flags: c_uint);
        stream_get_ctx: c"cuStreamGetCtx" @ 9020 (stream: Handle, context: *mut Handle);
        event_create: c"cuEventCreate" @ 2000 (event: *mut Handle, flags: c_uint);
        event_destroy: c"cuEventDestroy" @ 4000 (event: Handle);
        event_record: c"cuEventRecord" @ 2000 (event: Handle, stream: Handle);
        event_query: c"cuEventQuery" @ 2000 (event: Handle);
        event_synchronize: c"cuEventSynchronize" @ 2000 (event: Handle);
        event_elapsed_time: c"cuEventElapsedTime" @ 2000
            (milliseconds: *mut f32, start: Handle, end: Handle);

        memset_d8_async: c"cuMemsetD8Async" @ 3020
            (ptr: u64, value: u8, bytes: usize, stream: Handle);
        memset_d16_async: c"cuMemsetD16Async" @ 3020
            (ptr: u64, value: u16, count: usize, stream: Handle);
        memset_d32_async: c"cuMemsetD32Async" @ 3020
            (ptr: u64, value: u32, count: usize, stream: Handle);
        memcpy_async: c"cuMemcpyAsync" @ 4000
            (destination: u64, source: u64, bytes: usize, stream: Handle);
        module_load_data: c"cuModuleLoadData" @ 2000 (module: *mut Handle, image: *const c_void);
        module_unload: c"cuModuleUnload" @ 2000 (module: Handle);
        module_get_function: c"cuModuleGetFunction" @ 2000
            (function: *mut Handle, module: Handle, name: *const c_char);
        module_get_global: c"cuModuleGetGlobal" @ 3020
            (ptr: *mut u64, bytes: *mut usize, module: Handle, name: *const c_char);
        func_get_attribute: c"cuFuncGetAttribute" @ 2020
            (value: *mut i32, attribute: i32, function: Handle);
        func_set_attribute: c"cuFuncSetAttribute" @ 9000
            (function: Handle, attribute: i32, value: i32);
        occupancy_blocks: c"cuOccupancyMaxActiveBlocksPerMultiprocessor" @ 6050
            (blocks: *mut i32, function: Handle, threads: i32, shared_bytes: usize);
        occupancy_best_block: c"cuOccupancyMaxPotentialBlockSize" @ 6050 (
            grid: *mut i32, block: *mut i32, function: Handle,
            shared_bytes_of: *const c_void, shared_bytes: usize, limit: i32
        );
        launch_kernel: c"cuLaunchKernel" @ 4000 (
            function: Handle,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: Handle,
            parameters: *mut *mut c_void, extra: *mut *mut c_void
        );
    }
    optional {
        func_get_param_info: c"cuFuncGetParamInfo" @ 12040
            (function: Handle, index: usize, offset: *mut usize, bytes: *mut usize);
        mem_host_register: c"cuMemHostRegister" @ 6050
            (ptr: *mut c_void, bytes: usize, flags: c_uint);
        mem_host_unregister: c"cuMemHostUnregister" @ 4000 (ptr: *mut c_void);
        mem_pool_export: c"cuMemPoolExportToShareableHandle" @ 11020
            (shared: *mut c_void, pool: Handle, kind: i32, flags: u64);
        mem_pool_import: c"cuMemPoolImportFromShareableHandle" @ 11020
            (pool: *mut Handle, shared: *mut c_void, kind: i32, flags: u64);
        mem_pool_export_pointer: c"cuMemPoolExportPointer" @ 11020 (blob: *mut Blob, ptr: u64);
        mem_pool_import_pointer: c"cuMemPoolImportPointer" @ 11020
            (ptr: *mut u64, pool: Handle, blob: *mut Blob);
        ipc_get_mem_handle: c"cuIpcGetMemHandle" @ 4010 (blob: *mut Blob, ptr: u64);
        ipc_open_mem_handle: c"cuIpcOpenMemHandle" @ 11000
            (ptr: *mut u64, blob: Blob, flags: c_uint);
        ipc_close_mem_handle: c"cuIpcCloseMemHandle" @ 4010 (ptr: u64);
        mem_granularity: c"cuMemGetAllocationGranularity" @ 10020
            (bytes: *mut usize, props: *const RawAllocationProp, which: i32);
        mem_address_reserve: c"cuMemAddressReserve" @ 10020
            (ptr: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64);
        mem_address_free: c"cuMemAddressFree" @ 10020 (ptr: u64, bytes: usize);
        mem_create: c"cuMemCreate" @ 10020
            (memory: *mut u64, bytes: usize, props: *const RawAllocationProp, flags: u64);
        mem_release: c"cuMemRelease" @ 10020 (memory: u64);
        mem_map: c"cuMemMap" @ 10020
            (ptr: u64, bytes: usize, offset: usize, memory: u64, flags: u64);
        mem_unmap: c"cuMemUnmap" @ 10020 (ptr: u64, bytes: usize);
        mem_set_access: c"cuMemSetAccess" @ 10020
            (ptr: u64, bytes: usize, wanted: *const AccessDesc, count: usize);
        mem_get_access: c"cuMemGetAccess" @ 10020
            (flags: *mut u64, location: *const MemLocation, ptr: u64);
        mem_advise: c"cuMemAdvise" @ 12020
            (ptr: u64, bytes: usize, advice: i32, location: MemLocation);
        mem_prefetch: c"cuMemPrefetchAsync" @ 12020
            (ptr: u64, bytes: usize, location: MemLocation, flags: c_uint, stream: Handle);
        mem_prefetch_batch: c"cuMemPrefetchBatchAsync" @ 13000 (
            ptrs: *mut u64, bytes: *mut usize, count: usize,
            locations: *mut MemLocation, location_starts: *mut usize, locations_count: usize,
            flags: u64, stream: Handle
        );
        mem_discard_batch: c"cuMemDiscardBatchAsync" @ 13000
            (ptrs: *mut u64, bytes: *mut usize, count: usize, flags: u64, stream: Handle);
        mem_discard_prefetch_batch: c"cuMemDiscardAndPrefetchBatchAsync" @ 13000 (
            ptrs: *mut u64, bytes: *mut usize, count: usize,
            locations: *mut MemLocation, location_starts: *mut usize, locations_count: usize,
            flags: u64, stream: Handle
        );
        memcpy_batch_fail_index: c"cuMemcpyBatchAsync" @ 12080 (
            destinations: *mut u64, sources: *mut u64, bytes: *mut usize, count: usize,
            attributes: *mut CopyAttributes, attribute_starts: *mut usize,
            attributes_count: usize, fail_index: *mut usize, stream: Handle
        );
        memcpy_batch: c"cuMemcpyBatchAsync" @ 13000 (
            destinations: *mut u64, sources: *mut u64, bytes: *mut usize, count: usize,
            attributes: *mut CopyAttributes, attribute_starts: *mut usize,
            attributes_count: usize, stream: Handle
        );
        mem_get_default_mem_pool: c"cuMemGetDefaultMemPool" @ 13000
            (pool: *mut Handle, location: *mut MemLocation, kind: i32);
        mem_get_mem_pool: c"cuMemGetMemPool" @ 13000
            (pool: *mut Handle, location: *mut MemLocation, kind: i32);
        mem_set_mem_pool: c"cuMemSetMemPool" @ 13000
            (location: *mut MemLocation, kind: i32, pool: Handle);
    }
}

impl Table {
    /// Optional entry points that serve together are all there, or none is: so one of them
    /// answers for its group.
    fn with_whole_groups(mut self) -> Self {
        if self.mem_advise.is_none() || self.mem_prefetch.is_none() {
            (self.mem_advise, self.mem_prefetch) = (None, None);
        }
        if self.mem_discard_batch.is_none() || self.mem_discard_prefetch_batch.is_none() {
            (self.mem_discard_batch, self.mem_discard_prefetch_batch) = (None, None);
        }
        let (default, get, set) =
            (self.mem_get_default_mem_pool, self.mem_get_mem_pool, self.mem_set_mem_pool);
        if default.is_none() || get.is_none() || set.is_none() {
            self.mem_get_default_mem_pool = None;
            (self.mem_get_mem_pool, self.mem_set_mem_pool) = (None, None);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_looked_up_and_a_missing_required_one_is_named() {
        let address = NonNull::new(0x1000 as *mut c_void);
        let without = |name: &'static CStr| {
            // SAFETY: `fill` asks for the right signatures because the functions are called later;
            // the test calls none.
            unsafe { Table::fill(|row| address.filter(|_| row.name != name)) }
        };
        assert!(without(c"").is_ok());
        let optional = without(c"cuMemDiscardBatchAsync").expect("an optional row");
        assert!(optional.mem_discard_batch.is_none() && optional.mem_prefetch_batch.is_some());
        assert!(optional.mem_discard_prefetch_batch.is_none(), "discards serve together");
        let missing = without(c"cuMemFree").expect_err("a required row");
        assert_eq!(missing.iter().map(|row| row.name).collect::<Vec<_>>(), [c"cuMemFree"]);
    }

    #[test]
    fn required_rows_exist_in_cuda_12_0_and_no_row_is_listed_twice() {
        assert!(ROWS.iter().all(|row| !row.required || row.since <= DriverVersion::CUDA_12_0));
        let mut keys: Vec<_> = ROWS.iter().map(|row| (row.name, row.since)).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
