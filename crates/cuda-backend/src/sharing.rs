//! Memory of other code and of other processes: registered host memory, exported and imported
//! pools, handles of device memory.
//!
//! Handles of pools are POSIX file descriptors. Other types are refused here: the driver would
//! write more than a descriptor has room for.

use pagewise_hal::{
    Code, DeviceId, DevicePtr, Error, ErrorKind, ExportedPointer, HandleTypes, HostRegisterFlags,
    IpcMemHandle, PoolHandle, Result, SHARED_BLOB_BYTES, ShareableHandle, Span,
};

use crate::abi::{Blob, handle};
use crate::backend::CudaBackend;
use crate::pools::made;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`; the driver takes no other flags.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

fn check_handle_type(operation: &'static str, kind: HandleTypes) -> Result<()> {
    if kind.is_empty() {
        return Err(
            Error::from_code(operation, Code::INVALID_VALUE).with_detail("name a handle type")
        );
    }
    if kind != HandleTypes::POSIX_FILE_DESCRIPTOR {
        return Err(Error::from_code(operation, Code::NOT_SUPPORTED)
            .with_detail("handles are POSIX file descriptors"));
    }
    Ok(())
}

#[cold]
fn missing(operation: &'static str) -> Error {
    Error::new(operation, ErrorKind::Unsupported)
        .with_detail("the driver library lacks the entry point: see `pagewise doctor`")
}

/// An entry point that drivers have had since before CUDA 12.
fn present<T>(operation: &'static str, entry: Option<T>) -> Result<T> {
    entry.ok_or_else(|| missing(operation))
}

impl CudaBackend {
    /// # Safety
    /// As [`Backend::host_register`](pagewise_hal::Backend::host_register).
    pub(crate) unsafe fn host_register(&self, span: Span, flags: HostRegisterFlags) -> Result<()> {
        const OPERATION: &str = "host_register";
        let register = present(OPERATION, self.driver.table.mem_host_register)?;
        // SAFETY: the driver checks that the range is memory of this process. The caller of
        // `host_register` promised that it stays live until it is unregistered.
        let answer = self.home.context.call(OPERATION, || unsafe {
            register(handle(span.ptr.0), span.bytes as usize, flags.bits())
        });
        answer.map_err(|error| error.with_span(span))
    }

    /// # Safety
    /// As [`Backend::host_unregister`](pagewise_hal::Backend::host_unregister).
    pub(crate) unsafe fn host_unregister(&self, ptr: DevicePtr) -> Result<()> {
        const OPERATION: &str = "host_unregister";
        let unregister = present(OPERATION, self.driver.table.mem_host_unregister)?;
        // SAFETY: the driver checks the address. The caller of `host_unregister`, which alone calls
        // this function, promised that no device uses the memory any more.
        self.home.context.call(OPERATION, || unsafe { unregister(handle(ptr.0)) })
    }

    pub(crate) fn pool_export(
        &self,
        pool: PoolHandle,
        kind: HandleTypes,
    ) -> Result<ShareableHandle> {
        const OPERATION: &str = "pool_export";
        check_handle_type(OPERATION, kind)?;
        let export = present(OPERATION, self.driver.table.mem_pool_export)?;
        let _used = self.use_pool(OPERATION, pool)?;
        let mut descriptor = -1_i32;
        // SAFETY: the driver writes an `int`, the descriptor, to a local that outlives the call.
        // The pool is live because this call uses it.
        self.home.context.call(OPERATION, || unsafe {
            let place = (&raw mut descriptor).cast();
            export(place, handle(pool.as_raw()), kind.bits().cast_signed(), 0)
        })?;
        Ok(ShareableHandle(descriptor))
    }

    /// # Safety
    /// As [`Backend::pool_import`](pagewise_hal::Backend::pool_import).
    pub(crate) unsafe fn pool_import(
        &self,
        shared: ShareableHandle,
        kind: HandleTypes,
    ) -> Result<PoolHandle> {
        const OPERATION: &str = "pool_import";
        check_handle_type(OPERATION, kind)?;
        let import = present(OPERATION, self.driver.table.mem_pool_import)?;
        self.driver.pools.find(|| {
            let mut pool = std::ptr::null_mut();
            // SAFETY: the driver takes the descriptor in place of the pointer and checks it, and
            // writes the pool to a local that outlives the call.
            self.home.context.call(OPERATION, || unsafe {
                let descriptor = handle(i64::from(shared.0).cast_unsigned());
                import(&raw mut pool, descriptor, kind.bits().cast_signed(), 0)
            })?;
            Ok(made(pool))
        })
    }

    pub(crate) fn pool_export_pointer(&self, ptr: DevicePtr) -> Result<ExportedPointer> {
        const OPERATION: &str = "pool_export_pointer";
        let export = present(OPERATION, self.driver.table.mem_pool_export_pointer)?;
        let mut blob = Blob([0; SHARED_BLOB_BYTES]);
        // SAFETY: the driver checks the address, and writes 64 bytes to a local that has as many
        // and outlives the call.
        self.home.context.call(OPERATION, || unsafe { export(&raw mut blob, ptr.0) })?;
        Ok(ExportedPointer(blob.0))
    }

    /// # Safety
    /// As [`Backend::pool_import_pointer`](pagewise_hal::Backend::pool_import_pointer).
    pub(crate) unsafe fn pool_import_pointer(
        &self,
        pool: PoolHandle,
        exported: ExportedPointer,
    ) -> Result<DevicePtr> {
        const OPERATION: &str = "pool_import_pointer";
        let import = present(OPERATION, self.driver.table.mem_pool_import_pointer)?;
        let _used = self.use_pool(OPERATION, pool)?;
        let (mut ptr, mut blob) = (0, Blob(exported.0));
        // SAFETY: the driver reads the exported pointer, checks it, and writes the address, both
        // locals that outlive the call. The pool is live because this call uses it.
        self.home.context.call(OPERATION, || unsafe {
            import(&raw mut ptr, handle(pool.as_raw()), &raw mut blob)
        })?;
        Ok(DevicePtr(ptr))
    }

    pub(crate) fn ipc_mem_handle(&self, ptr: DevicePtr) -> Result<IpcMemHandle> {
        const OPERATION: &str = "ipc_mem_handle";
        let get = present(OPERATION, self.driver.table.ipc_get_mem_handle)?;
        let mut blob = Blob([0; SHARED_BLOB_BYTES]);
        // SAFETY: the driver checks the address, and writes 64 bytes to a local that has as many
        // and outlives the call.
        self.home.context.call(OPERATION, || unsafe { get(&raw mut blob, ptr.0) })?;
        Ok(IpcMemHandle(blob.0))
    }

    /// # Safety
    /// As [`Backend::ipc_open_mem_handle`](pagewise_hal::Backend::ipc_open_mem_handle).
    pub(crate) unsafe fn ipc_open_mem_handle(
        &self,
        device: DeviceId,
        shared: IpcMemHandle,
    ) -> Result<DevicePtr> {
        const OPERATION: &str = "ipc_open_mem_handle";
        let open = present(OPERATION, self.driver.table.ipc_open_mem_handle)?;
        let context = &self.device(OPERATION, device)?.context;
        let mut ptr = 0;
        // SAFETY: the driver takes the handle by value and checks it, and writes the address to a
        // local that outlives the call.
        context.call(OPERATION, || unsafe {
            open(&raw mut ptr, Blob(shared.0), LAZY_ENABLE_PEER_ACCESS)
        })?;
        Ok(DevicePtr(ptr))
    }

    /// # Safety
    /// As [`Backend::ipc_close_mem_handle`](pagewise_hal::Backend::ipc_close_mem_handle).
    pub(crate) unsafe fn ipc_close_mem_handle(&self, ptr: DevicePtr) -> Result<()> {
        const OPERATION: &str = "ipc_close_mem_handle";
        let close = present(OPERATION, self.driver.table.ipc_close_mem_handle)?;
        // SAFETY: the driver checks the address. The caller of `ipc_close_mem_handle`, which alone
        // calls this function, promised that no code uses the memory any more.
        self.home.context.call(OPERATION, || unsafe { close(ptr.0) })
    }
}
