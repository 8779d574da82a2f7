//! Memory of the process itself, and what goes to other processes.
//!
//! A trace has one process, so what it imports it exported before. Drivers do not survive that:
//! where [`Capabilities::pool_self_import`](pagewise_hal::Capabilities) says so, a pool of the case
//! is not imported, and the operation's code is `NOT_SUPPORTED`.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use pagewise_hal::{
    Backend, Code, DeviceId, DevicePtr, ExportedPointer, HandleTypes, HostRegisterFlags, HostViews,
    IpcMemHandle, PAGE_BYTES, Result, SHARED_BLOB_BYTES, ShareableHandle, Span,
};

use super::Running;
use super::call::coded;
use crate::format::{Observed, Op, Part};

/// Descriptors that a case may have open: more would take them from the rest of the process.
const MAX_DESCRIPTORS: usize = 256;

const NO_BLOB: [u8; SHARED_BLOB_BYTES] = [0; SHARED_BLOB_BYTES];

/// Whole pages of zeros of this process. Not freed when it is dropped, as a device may still know
/// the memory: see [`free`](Self::free).
#[derive(Debug)]
struct HostPages {
    base: NonNull<u8>,
    layout: Layout,
    span: Span,
}

impl HostPages {
    /// `None` if there is no memory left.
    fn new(bytes: u64) -> Option<Self> {
        // One page more, to begin at a page. An alignment in the layout would make the allocator
        // write the zeros; like this untouched pages cost nothing.
        let size = usize::try_from(bytes.checked_add(PAGE_BYTES)?).ok()?;
        let layout = Layout::from_size_align(size, 1).ok()?;
        // SAFETY: `alloc_zeroed` asks for a size other than 0, and this one is at least a page.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let start = (base.as_ptr().expose_provenance() as u64).next_multiple_of(PAGE_BYTES);
        Some(Self { base, layout, span: Span::new(DevicePtr(start), bytes) })
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// No back end has any of it registered, and no code uses it.
    unsafe fn free(self) {
        // SAFETY: `new` allocated `base` with `layout`, and `self` is taken by value, so it is
        // freed once. This function asks that no back end and nobody else uses the memory.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// The result of a call that gave something for other processes.
#[derive(Debug)]
enum Share {
    Pool(Descriptor),
    Pointer(ExportedPointer),
    Memory(IpcMemHandle),
}

/// The handle of an exported pool, closed when it is dropped.
#[derive(Debug)]
struct Descriptor {
    handle: ShareableHandle,
    #[cfg(unix)]
    _owned: Option<std::os::fd::OwnedFd>,
}

impl Descriptor {
    /// Of a handle that an export of this back end has just given. A back end that promises
    /// nothing may answer with any descriptor of the process, which is not closed.
    fn new(handle: ShareableHandle, views: HostViews) -> Self {
        #[cfg(not(unix))]
        let _ = views;
        Self {
            handle,
            #[cfg(unix)]
            _owned: (handle.0 >= 0 && views != HostViews::Absent).then(|| {
                use std::os::fd::{FromRawFd, OwnedFd};
                // SAFETY: the back end promises by `HostAddresses` that the descriptor is open and
                // ours to close. Only this value keeps it, and it is not -1.
                unsafe { OwnedFd::from_raw_fd(handle.0) }
            }),
        }
    }
}

/// A case's memory of the process itself and for other processes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    host: BTreeMap<u32, HostPages>,
    /// Host memory with an id that means other memory now: it may still be registered.
    replaced: Vec<HostPages>,
    /// First bytes of what is registered.
    registered: Vec<DevicePtr>,
    shares: BTreeMap<u32, Share>,
    /// Imported and opened memory: its addresses may be those of buffers.
    imports: BTreeMap<u32, DevicePtr>,
}

impl Shared {
    /// Where host memory or an import begins.
    pub(super) fn start(&self, buf: u32) -> Option<DevicePtr> {
        let host = self.host.get(&buf).map(|pages| pages.span.ptr);
        host.or_else(|| self.imports.get(&buf).copied())
    }

    /// Memory of the process that the case has.
    pub(super) fn pages(&self, buf: u32) -> Option<Span> {
        self.host.get(&buf).map(|pages| pages.span)
    }

    /// Imports of this memory have ended, or the memory has.
    pub(super) fn forget_imports_at(&mut self, ptr: DevicePtr) {
        self.imports.retain(|_, import| *import != ptr);
    }

    fn descriptors(&self) -> usize {
        self.shares.values().filter(|share| matches!(share, Share::Pool(_))).count()
    }

    fn pool_handle(&self, share: u32) -> ShareableHandle {
        match self.shares.get(&share) {
            Some(Share::Pool(descriptor)) => descriptor.handle,
            _ => ShareableHandle(-1),
        }
    }

    fn pointer(&self, share: u32) -> ExportedPointer {
        match self.shares.get(&share) {
            Some(Share::Pointer(blob)) => *blob,
            _ => ExportedPointer(NO_BLOB),
        }
    }

    fn memory(&self, share: u32) -> IpcMemHandle {
        match self.shares.get(&share) {
            Some(Share::Memory(blob)) => *blob,
            _ => IpcMemHandle(NO_BLOB),
        }
    }

    /// Keeps what a call gave under an id.
    fn keep<T>(&mut self, id: u32, answer: Result<T>, share: impl FnOnce(T) -> Share) -> Observed {
        let observed = coded(&answer);
        if let Ok(given) = answer {
            self.shares.insert(id, share(given));
        }
        observed
    }

    /// Keeps what a call imported under an id.
    fn imported(&mut self, buf: u32, answer: &Result<DevicePtr>) -> Observed {
        self.imports.extend(answer.as_ref().ok().map(|&ptr| (buf, ptr)));
        coded(answer)
    }

    /// Ends what the case began. Memory stays that the back end does not let go of.
    pub(super) fn clean_up(&mut self, backend: &dyn Backend) {
        // One free ends all imports of the same memory; the next would free the memory.
        let imports: BTreeSet<DevicePtr> =
            std::mem::take(&mut self.imports).into_values().collect();
        for ptr in imports {
            let stream = pagewise_hal::StreamHandle::NULL;
            // What is no import of a pool is memory that was opened.
            // SAFETY: the case imported or opened the memory and never gave its address out. Every
            // call of the case was waited for, and the map that held the address is gone.
            unsafe {
                _ = backend.free_async(ptr, stream).or_else(|_| backend.ipc_close_mem_handle(ptr));
            }
        }
        self.shares.clear();
        // SAFETY: only the case had devices use the memory, and all of its calls were waited for.
        self.registered.retain(|ptr| unsafe { backend.host_unregister(*ptr) }.is_err());
        if self.registered.is_empty() {
            let replaced = std::mem::take(&mut self.replaced);
            for pages in std::mem::take(&mut self.host).into_values().chain(replaced) {
                // SAFETY: only the case registers its pages, and the list of what is registered is
                // empty: a failed unregistration would still be in it. Nobody else knows the pages.
                unsafe { pages.free() };
            }
        }
    }
}

impl Running<'_> {
    pub(super) fn shared_call(&mut self, op: &Op) -> Observed {
        let backend = self.backend;
        match *op {
            Op::HostMemory { buf, bytes } => self.host_memory(buf, bytes),
            Op::HostRegister { part, flags } => self.host_register(part, flags),
            Op::HostUnregister { buf, offset } => {
                let ptr = self.ptr(buf, offset);
                if !ptr.is_null() && !self.holds(Part { buf, offset, bytes: 0 }) {
                    // It may be what somebody else registered in this process.
                    let code = Code::HOST_MEMORY_NOT_REGISTERED;
                    return Observed { code, ..Observed::default() };
                }
                // SAFETY: the address is null or within memory of the case, which only the case has
                // devices use; its earlier calls were waited for.
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
                // SAFETY: the blob is all zeros, which names nothing, or of an allocation that this
                // case made and waited for. Pools are imported only where the back end takes its
                // own: such a one knows which memory is gone, whatever order the case frees in.
                let answer = unsafe { backend.pool_import_pointer(self.pool(pool), exported) };
                self.shared.imported(buf, &answer)
            }
            Op::IpcMemHandle { buf, offset, share } => {
                let answer = backend.ipc_mem_handle(self.ptr(buf, offset));
                self.shared.keep(share, answer, Share::Memory)
            }
            Op::IpcOpenMemHandle { buf, device, share } => {
                let handle = self.shared.memory(share);
                // SAFETY: the handle is all zeros, which names nothing, or of this process, for
                // which every back end answers 201: nothing is opened that could be freed too
                // early.
                let answer = unsafe { backend.ipc_open_mem_handle(DeviceId(device), handle) };
                self.shared.imported(buf, &answer)
            }
            Op::IpcCloseMemHandle { buf, offset } => {
                let opened = self.shared.imports.get(&buf).filter(|_| offset == 0).copied();
                let ptr = opened.unwrap_or(DevicePtr::NULL);
                // SAFETY: the address is null or what the case opened and gave to nobody else; its
                // earlier calls were waited for, and a success makes the id forget it.
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
        // SAFETY: pages of the case stay until it has ended and all of them are unregistered; pages
        // whose unregistration fails stay for good. Buffers, which a back end gave, and the null
        // pointer it refuses, so nothing of those is registered.
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
        // SAFETY: the handle is -1, which is none, or of this process, and then the capabilities
        // say that the back end takes its own (checked just above).
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
