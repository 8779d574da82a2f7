//! Memory of other code and of other processes: registered host memory, exported and imported
//! pools.
//!
//! Another process maps what a pool exported (`shared_memory`). The machine that exported a pool can
//! import it too, at the addresses that the memory has. Refusals are the driver's (CONTRACT-102).

use std::ops::Range;

use pagewise_hal::{
    AllocationType, Code, DevicePtr, ExportedPointer, HandleTypes, HostRegisterFlags, PAGE_BYTES,
    PoolHandle, PoolProps, Processor, ShareableHandle, Span,
};

use crate::cost::MemoryStep;
use crate::exported_pool::ExportedPool;
use crate::foreign::Bytes;
use crate::imported_pool::ImportedPool;
use crate::pools::Pool;
use crate::refusal::{Checked, bad_device, invalid, refuse, unsupported};
use crate::shared::{Foreign, Origin};
use crate::sim::Sim;
use crate::space::MemoryKind;

const NO_EXPORT: &str = "the process has no descriptor or no memory left for an export";

/// Whether memory is exported and imported by this type of handle.
pub(crate) fn check_handle_type(kind: HandleTypes) -> Checked<()> {
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
        let props = self.pools.get(pool.as_raw())?.props;
        if kind.is_empty() || !props.handle_types.contains(kind) {
            return invalid("the pool was not made with this handle type");
        }
        check_handle_type(kind)?;
        let known = self.sharing.exports.remove(&pool);
        let Ok(export) = known.map_or_else(|| ExportedPool::new(&props), Ok) else {
            return refuse(Code::OUT_OF_MEMORY, NO_EXPORT);
        };
        let export = self.sharing.exports.entry(pool).or_insert(export);
        export.duplicate().or_else(|_| refuse(Code::OUT_OF_MEMORY, NO_EXPORT))
    }

    /// `cuMemPoolImportFromShareableHandle`
    pub(crate) fn pool_import(
        &mut self,
        handle: ShareableHandle,
        kind: HandleTypes,
    ) -> Checked<PoolHandle> {
        check_handle_type(kind)?;
        let mut exports = self.sharing.exports.iter();
        let Some((&exporter, _)) = exports.find(|(_, export)| export.is(handle)) else {
            return self.import_foreign_pool(handle);
        };
        let mut imports = self.sharing.imports.iter();
        if let Some((&known, _)) = imports.find(|(_, of)| **of == exporter) {
            return Ok(known);
        }
        let imported = PoolHandle::checked(self.pools.import(exporter.as_raw())?);
        self.sharing.imports.insert(imported, exporter);
        Ok(imported)
    }

    fn import_foreign_pool(&mut self, handle: ShareableHandle) -> Checked<PoolHandle> {
        let Some(import) = ImportedPool::open(handle) else {
            return refuse(Code::UNKNOWN, "the handle is no pool of a process of this host");
        };
        let number = import.file.number();
        let mut known = self.sharing.foreign_pools.iter();
        if let Some((&pool, _)) = known.find(|(pool, known)| {
            known.file.number() == number && self.pools.is_live(pool.as_raw())
        }) {
            return Ok(pool);
        }
        let props = PoolProps {
            allocation_type: AllocationType::PINNED,
            location: import.about.location,
            handle_types: import.about.handle_types,
            max_bytes: 0,
        };
        let Ok(home) = self.topology.processor(props.location) else {
            return bad_device("the pool is of a place that this machine does not have");
        };
        let pool = PoolHandle::checked(self.pools.import_foreign(props, home));
        self.sharing.foreign_pools.insert(pool, import);
        Ok(pool)
    }

    /// `cuMemPoolExportPointer`
    pub(crate) fn pool_export_pointer(&mut self, ptr: DevicePtr) -> Checked<ExportedPointer> {
        if let Some(allocation) = self.space.starting(ptr)
            && let MemoryKind::Pool(pool) = allocation.kind
            && let Some(export) = self.sharing.exports.get_mut(&pool)
            && let Some(region) = self.pools.any(pool.as_raw()).and_then(Pool::region)
        {
            let exported = export.export(&mut self.arena, region.start, allocation);
            return exported.or_else(|_| refuse(Code::OUT_OF_MEMORY, NO_EXPORT));
        }
        invalid("give the first byte of live memory of a pool that was exported before")
    }

    /// `cuMemPoolImportPointer`
    pub(crate) fn pool_import_pointer(
        &mut self,
        pool: PoolHandle,
        exported: ExportedPointer,
    ) -> Checked<DevicePtr> {
        if self.sharing.foreign_pools.contains_key(&pool) {
            return self.import_foreign_pointer(pool, &exported);
        }
        let Some(&exporter) = self.sharing.imports.get(&pool) else {
            return invalid("the pool was not imported");
        };
        let export = self.sharing.exports.get(&exporter);
        let Some(start) = export.and_then(|export| export.address_of(&exported)) else {
            return invalid(NO_ALLOCATION);
        };
        let is_new = self.sharing.mapped.insert(start);
        let home = self.pools.any(exporter.as_raw()).and_then(Pool::home);
        if !is_new && home == Some(Processor::HOST) {
            return refuse(Code::ALREADY_MAPPED, ALREADY_MAPPED);
        }
        Ok(DevicePtr(start))
    }

    fn import_foreign_pointer(
        &mut self,
        pool: PoolHandle,
        exported: &ExportedPointer,
    ) -> Checked<DevicePtr> {
        if !self.pools.is_live(pool.as_raw()) {
            return invalid("the pool was destroyed");
        }
        // It leaves the table for a moment: memory is entered with all of the machine.
        let Some(mut import) = self.sharing.foreign_pools.remove(&pool) else {
            return invalid("the pool was not imported");
        };
        let answer = self.enter_pointer(pool, &mut import, exported);
        self.sharing.foreign_pools.insert(pool, import);
        answer
    }

    fn enter_pointer(
        &mut self,
        pool: PoolHandle,
        import: &mut ImportedPool,
        exported: &ExportedPointer,
    ) -> Checked<DevicePtr> {
        let found = match import.find(exported) {
            Ok(Some(found)) => found,
            Ok(None) => return invalid(NO_ALLOCATION),
            Err(_) => return refuse(Code::OUT_OF_MEMORY, "the kernel has no room for a lock"),
        };
        let id = found.record.id;
        let is_it = |known: &Foreign| match known.origin {
            Origin::Pool { pool: of, id: known, .. } => of == pool && known == id,
            Origin::Handle { .. } => false,
        };
        let known = self.sharing.foreign.iter().find(|(_, known)| is_it(known));
        if let Some(start) = known.map(|(&start, _)| start) {
            import.leave(&found.units);
            return match self.pools.any(pool.as_raw()).and_then(Pool::home) {
                Some(Processor::HOST) => refuse(Code::ALREADY_MAPPED, ALREADY_MAPPED),
                _ => Ok(DevicePtr(start)),
            };
        }
        let memory = Bytes {
            file: &import.file,
            parts: &found.parts,
            first: found.record.offset,
            bytes: found.record.bytes,
        };
        let origin = Origin::Pool { pool, id, units: found.units.clone() };
        let entered = self.enter_foreign(&memory, MemoryKind::Pool(pool), origin);
        match entered {
            Ok(_) => self.pools.count_import(pool.as_raw()),
            Err(_) => import.leave(&found.units),
        }
        entered
    }

    /// Ends an import, if the address is one: importers free before the exporter does.
    pub(crate) fn end_import(&mut self, ptr: DevicePtr) -> bool {
        self.sharing.mapped.remove(&ptr.0) || self.end_foreign_import(ptr)
    }

    /// Ends the import of another process's memory, if the address is one.
    pub(crate) fn end_foreign_import(&mut self, ptr: DevicePtr) -> bool {
        let of_pool = |foreign: &Foreign| matches!(foreign.origin, Origin::Pool { .. });
        if !self.sharing.foreign.get(&ptr.0).is_some_and(of_pool) {
            return false;
        }
        if let Some(Origin::Pool { pool, units, .. }) = self.leave_foreign(ptr) {
            if let Some(import) = self.sharing.foreign_pools.get_mut(&pool) {
                import.leave(&units);
            }
            self.pools.end_import(pool.as_raw());
            self.forget_gone_pools();
        }
        true
    }

    /// An allocation of a pool is freed.
    pub(crate) fn withdraw_pointer(&mut self, pool: PoolHandle, ptr: DevicePtr) {
        if let Some(export) = self.sharing.exports.get_mut(&pool) {
            export.withdraw(ptr.0);
        }
    }

    /// Pools give up the memory at these addresses.
    pub(crate) fn withdraw_chunks(&mut self, addresses: &Range<u64>) {
        self.arena.reclaim(addresses);
        self.sharing.exports.values_mut().for_each(|export| export.give_up(addresses));
    }

    /// Pools may be gone. A pool that is gone cannot be imported any more, so its descriptor goes
    /// too.
    pub(crate) fn forget_gone_pools(&mut self) {
        let lives = |pool: &PoolHandle| self.pools.any(pool.as_raw()).is_some();
        self.sharing.imports.retain(|pool, _| lives(pool));
        self.sharing.exports.retain(|pool, _| lives(pool));
        self.sharing.foreign_pools.retain(|pool, _| lives(pool));
    }
}

const NO_ALLOCATION: &str = "the blob is of no live allocation of the pool";
const ALREADY_MAPPED: &str = "the memory is imported already";
