//! Calls about memory of the process itself and about other processes.

use pagewise_hal::{Code, DeviceId, DevicePtr, HandleTypes, HostRegisterFlags, Span};

use super::code::coded;
use super::running::Running;
use super::shared::{Descriptor, HostPages, MAX_DESCRIPTORS, Share};
use crate::format::{Observed, Op, Part};

impl Running<'_> {
    pub(super) fn shared_call(&mut self, op: &Op) -> Observed {
        let backend = self.backend;
        match *op {
            Op::HostMemory { buf, bytes } => self.host_memory(buf, bytes),
            Op::HostRegister { part, flags } => self.host_register(part, flags),
            Op::HostUnregister { buf, offset } => {
                let ptr = self.ptr(buf, offset);
                if !ptr.is_null() && !self.holds(Part { buf, offset, bytes: 0 }) {
                    // Other code of this process may have registered it.
                    let code = Code::HOST_MEMORY_NOT_REGISTERED;
                    return Observed { code, ..Observed::default() };
                }
                // SAFETY: the address is null or within memory of the case, which only calls of the
                // case make devices use, and its earlier calls were waited for.
                let answer = unsafe { backend.host_unregister(ptr) };
                if answer.is_ok() {
                    self.shared.registered.retain(|other| *other != ptr);
                }
                coded(&answer)
            }
            Op::PoolExport { pool, share, handle_types } => {
                if self.shared.descriptors() >= MAX_DESCRIPTORS {
                    return Observed { code: Code::OUT_OF_MEMORY, ..Observed::default() };
                }
                let kind = HandleTypes::from_bits_retain(handle_types);
                let answer = backend.pool_export(self.pool(pool), kind);
                let new = |handle| Share::Pool(Descriptor::new(handle, backend.host_views()));
                self.shared.keep(share, answer, new)
            }
            Op::PoolImport { pool, share, handle_types } => {
                self.pool_import(pool, share, HandleTypes::from_bits_retain(handle_types))
            }
            Op::PoolExportPointer { buf, offset, share } => {
                let answer = backend.pool_export_pointer(self.ptr(buf, offset));
                self.shared.keep(share, answer, Share::Pointer)
            }
            Op::PoolImportPointer { buf, pool, share } => {
                let exported = self.shared.pointer(share);
                // SAFETY: the blob is all zeros, which names no allocation, or of an allocation
                // that this case made and waited for. A case imports a pool only where the back end
                // takes handles of its own process, and such a back end knows which memory is gone,
                // so the order of frees does not matter.
                let answer = unsafe { backend.pool_import_pointer(self.pool(pool), exported) };
                self.shared.imported(buf, &answer)
            }
            Op::IpcMemHandle { buf, offset, share } => {
                let answer = backend.ipc_mem_handle(self.ptr(buf, offset));
                self.shared.keep(share, answer, Share::Memory)
            }
            Op::IpcOpenMemHandle { buf, device, share } => {
                let handle = self.shared.memory(share);
                // SAFETY: the handle is all zeros, which names nothing, or of this process. Every
                // back end refuses the latter with 201, so no memory is opened that the exporter
                // could free too early.
                let answer = unsafe { backend.ipc_open_mem_handle(DeviceId(device), handle) };
                self.shared.imported(buf, &answer)
            }
            Op::IpcCloseMemHandle { buf, offset } => {
                let opened = self.shared.imports.get(&buf).filter(|_| offset == 0).copied();
                let ptr = opened.unwrap_or(DevicePtr::NULL);
                // SAFETY: the address is null or memory that the case opened and never gave out.
                // Its earlier calls were waited for, and a success makes the id forget it.
                let answer = unsafe { backend.ipc_close_mem_handle(ptr) };
                if answer.is_ok() {
                    self.shared.imports.remove(&buf);
                }
                coded(&answer)
            }
            _ => unreachable!("`{}` is carried out elsewhere", op.name()),
        }
    }

    fn host_memory(&mut self, buf: u32, bytes: u64) -> Observed {
        let code = match HostPages::new(bytes) {
            Some(pages) => {
                let old = self.shared.host.insert(buf, pages);
                self.shared.replaced.extend(old);
                Code::SUCCESS
            }
            None => Code::OUT_OF_MEMORY,
        };
        Observed { code, ..Observed::default() }
    }

    /// Registers memory of the case. Anything else than that, or what a driver gave and refuses, is
    /// refused here: it would be whatever this process has at the address.
    fn host_register(&mut self, part: Part, flags: u32) -> Observed {
        let span = self.span(part);
        let holds = |known: Span| {
            let ends = known.end().zip(span.end());
            known.ptr <= span.ptr && ends.is_some_and(|(known, end)| end <= known)
        };
        let mut known = self.shared.host.values().map(|pages| pages.span);
        let is_known = known.any(holds) || self.buffers.values().copied().any(holds);
        if !is_known && !span.ptr.is_null() {
            return Observed { code: Code::INVALID_VALUE, ..Observed::default() };
        }
        let flags = HostRegisterFlags::from_bits_retain(flags);
        // SAFETY: pages of the case live until it has ended and all of them are unregistered; pages
        // that cannot be unregistered are never freed. A back end refuses to register its own
        // buffers and null, so of those none is registered.
        let answer = unsafe { self.backend.host_register(span, flags) };
        self.shared.registered.extend(answer.is_ok().then_some(span.ptr));
        coded(&answer)
    }

    fn pool_import(&mut self, pool: u32, share: u32, kind: HandleTypes) -> Observed {
        let handle = self.shared.pool_handle(share);
        let is_own = handle.0 >= 0;
        if is_own && !self.backend.capabilities().pool_self_import {
            return Observed { code: Code::NOT_SUPPORTED, ..Observed::default() };
        }
        // SAFETY: the handle is -1, which names no pool, or of this process; in that case the check
        // just above found that the back end takes handles of its own process.
        let answer = unsafe { self.backend.pool_import(handle, kind) };
        if let Ok(handle) = answer
            && !self.made_pools.contains(&handle)
        {
            // Imports go before what they are of.
            self.made_pools.insert(0, handle);
        }
        self.pool_found(pool, &answer)
    }
}
