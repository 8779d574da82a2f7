//! Memory of other code and of other processes: registered host memory, exported and imported
//! pools.
//!
//! The simulated machine has one process. What it exports it can import itself, at the addresses
//! that the memory has; a driver gives another process just that. Refusals are the driver's
//! (CONTRACT-102).

use pagewise_hal::{
    Code, DeviceId, DevicePtr, ExportedPointer, HandleTypes, HostRegisterFlags, IpcMemHandle,
    PAGE_BYTES, PoolHandle, Processor, ShareableHandle, Span,
};

use crate::cost::MemoryStep;
use crate::pools::Pool;
use crate::refusal::{Checked, bad_device, invalid, refuse, unsupported};
use crate::shared::blob;
use crate::sim::Sim;
use crate::space::{Allocation, MemoryKind};

fn check_handle_type(kind: HandleTypes) -> Checked<()> {
    if kind.is_empty() {
        return invalid("name a handle type");
    }
    if kind != HandleTypes::POSIX_FILE_DESCRIPTOR {
        return unsupported("handles are POSIX file descriptors");
    }
    Ok(())
}

impl Sim {
    /// `cuMemHostRegister`
    pub(crate) fn host_register(&mut self, span: Span, flags: HostRegisterFlags) -> Checked<()> {
        let known = HostRegisterFlags::PORTABLE
            | HostRegisterFlags::DEVICE_MAP
            | HostRegisterFlags::READ_ONLY;
        if span.ptr.is_null() || span.bytes == 0 || span.end().is_none() {
            return invalid("give at least one byte of host memory");
        }
        if !known.contains(flags) {
            return invalid("flags are PORTABLE, DEVICE_MAP and READ_ONLY");
        }
        let start = span.ptr.0 / PAGE_BYTES * PAGE_BYTES;
        let last_page = span.end().and_then(|end| end.checked_next_multiple_of(PAGE_BYTES));
        let Some(end) = last_page else {
            return invalid("no host memory reaches to the end of the address space");
        };
        match self.space.overlapping(start..end).next().map(|other| other.kind) {
            Some(MemoryKind::Registered) => {
                return refuse(
                    Code::HOST_MEMORY_ALREADY_REGISTERED,
                    "a page of the range is registered already",
                );
            }
            Some(_) => {
                return invalid("the driver gave the memory: it is known to devices as it is");
            }
            None => {}
        }
        self.space.enter(span.ptr.0, span.bytes, MemoryKind::Registered);
        self.pager.note_memory(MemoryStep::Registered(span.bytes));
        Ok(())
    }

    /// `cuMemHostUnregister`
    pub(crate) fn host_unregister(&mut self, ptr: DevicePtr) -> Checked<()> {
        if ptr.is_null() {
            return invalid("the null pointer was not registered");
        }
        match self.space.containing(ptr).copied() {
            None => refuse(Code::HOST_MEMORY_NOT_REGISTERED, "the memory is not registered"),
            Some(allocation)
                if allocation.kind == MemoryKind::Registered && allocation.start == ptr.0 =>
            {
                self.space.remove(&allocation);
                self.pager.note_memory(MemoryStep::Unregistered(allocation.bytes));
                Ok(())
            }
            Some(_) => invalid("give the first byte of what was registered"),
        }
    }

    /// `cuMemPoolExportToShareableHandle`
    pub(crate) fn pool_export(
        &mut self,
        pool: PoolHandle,
        kind: HandleTypes,
    ) -> Checked<ShareableHandle> {
        let types = self.pools.get(pool.as_raw())?.props.handle_types;
        if kind.is_empty() || !types.contains(kind) {
            return invalid("the pool was not made with this handle type");
        }
        check_handle_type(kind)?;
        let exported = self.sharing.export(pool);
        exported.or_else(|_| refuse(Code::OUT_OF_MEMORY, "the process has no descriptor left"))
    }

    /// `cuMemPoolImportFromShareableHandle`
    pub(crate) fn pool_import(
        &mut self,
        handle: ShareableHandle,
        kind: HandleTypes,
    ) -> Checked<PoolHandle> {
        check_handle_type(kind)?;
        let mut exports = self.sharing.exports.iter();
        let Some((&exporter, _)) = exports.find(|(_, descriptor)| descriptor.is(handle)) else {
            return refuse(
                Code::UNKNOWN,
                "the handle is no pool of this machine; a simulated machine has one process",
            );
        };
        let mut imports = self.sharing.imports.iter();
        if let Some((&known, _)) = imports.find(|(_, of)| **of == exporter) {
            return Ok(known);
        }
        let raw = self.pools.import(exporter.as_raw())?;
        let imported = PoolHandle::checked(raw);
        self.sharing.imports.insert(imported, exporter);
        Ok(imported)
    }

    /// `cuMemPoolExportPointer`
    pub(crate) fn pool_export_pointer(&self, ptr: DevicePtr) -> Checked<ExportedPointer> {
        if let Some(&Allocation { id, kind: MemoryKind::Pool(pool), .. }) = self.space.starting(ptr)
            && self.sharing.exports.contains_key(&pool)
        {
            return Ok(ExportedPointer(blob([pool.as_raw(), id])));
        }
        invalid("give the first byte of live memory of a pool that was exported before")
    }

    /// `cuMemPoolImportPointer`
    pub(crate) fn pool_import_pointer(
        &mut self,
        pool: PoolHandle,
        exported: ExportedPointer,
    ) -> Checked<DevicePtr> {
        let Some(&exporter) = self.sharing.imports.get(&pool) else {
            return invalid("the pool was not imported");
        };
        let is_meant = |allocation: &&Allocation| {
            allocation.kind == MemoryKind::Pool(exporter)
                && blob([exporter.as_raw(), allocation.id]) == exported.0
        };
        let Some(&Allocation { start, .. }) = self.space.all().find(is_meant) else {
            return invalid("the blob is of no live allocation of the pool");
        };
        let is_new = self.sharing.mapped.insert(start);
        let home = self.pools.any(exporter.as_raw()).and_then(Pool::home);
        if !is_new && home == Some(Processor::HOST) {
            return refuse(Code::ALREADY_MAPPED, "the memory is imported already");
        }
        Ok(DevicePtr(start))
    }

    /// Ends an import, if the address is one: importers free before the exporter does.
    pub(crate) fn end_import(&mut self, ptr: DevicePtr) -> bool {
        self.sharing.mapped.remove(&ptr.0)
    }

    /// Pools may be gone. A pool that is gone cannot be imported any more, so its descriptor goes
    /// too.
    pub(crate) fn forget_gone_pools(&mut self) {
        let lives = |pool: &PoolHandle| self.pools.any(pool.as_raw()).is_some();
        self.sharing.imports.retain(|pool, _| lives(pool));
        self.sharing.exports.retain(|pool, _| lives(pool));
    }

    /// `cuIpcGetMemHandle`
    pub(crate) fn ipc_mem_handle(&self, ptr: DevicePtr) -> Checked<IpcMemHandle> {
        match self.space.containing(ptr) {
            Some(Allocation { id, kind: MemoryKind::Device(device), .. }) => {
                Ok(IpcMemHandle(blob([device.0 as u64, *id])))
            }
            _ => invalid("only memory of cuMemAlloc has a handle; export a pool instead"),
        }
    }

    /// `cuIpcOpenMemHandle`: whatever it names is of this process.
    pub(crate) fn ipc_open_mem_handle(
        &self,
        device: DeviceId,
        handle: IpcMemHandle,
    ) -> Checked<DevicePtr> {
        if !self.topology.has_device(device) {
            return bad_device("the device does not exist");
        }
        let known = |allocation: &Allocation| match allocation.kind {
            MemoryKind::Device(device) => blob([device.0 as u64, allocation.id]) == handle.0,
            _ => false,
        };
        if self.space.all().any(known) {
            return refuse(Code::INVALID_CONTEXT, "the memory is of this process");
        }
        invalid("the handle is no memory of this machine; a simulated machine has one process")
    }
}
