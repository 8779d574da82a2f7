//! Memory of the process itself, and what goes to other processes.
//!
//! A trace has one process, so what it imports it exported before. Drivers do not survive that:
//! where [`Capabilities::pool_self_import`](pagewise_hal::Capabilities) says so, a pool of the case
//! is not imported, and the operation's code is `NOT_SUPPORTED`.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;

use pagewise_hal::{
    Backend, Code, DeviceId, DevicePtr, ExportedPointer, HandleTypes, HostRegisterFlags,
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
        // SAFETY: the size is not 0.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let start = (base.as_ptr().expose_provenance() as u64).next_multiple_of(PAGE_BYTES);
        Some(Self { base, layout, span: Span::new(DevicePtr(start), bytes) })
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// No back end has any of it registered, and nobody uses it.
    unsafe fn free(self) {
        // SAFETY: allocated with this layout; the caller vouches that nobody uses it any more.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// What a call gave for other processes.
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
    /// Of a handle that an export has just given.
    fn new(handle: ShareableHandle) -> Self {
        Self {
            handle,
            #[cfg(unix)]
            _owned: (handle.0 >= 0).then(|| {
                use std::os::fd::{FromRawFd, OwnedFd};
                // SAFETY: an export makes a descriptor for its caller, which nobody else closes;
                // it is not -1.
                unsafe { OwnedFd::from_raw_fd(handle.0) }
            }),
        }
    }
}

/// What a case has of the process itself and for other processes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    host: BTreeMap<u32, HostPages>,
    /// Host memory whose id means other memory now: it may still be registered.
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

    /// An import was freed.
    pub(super) fn forget(&mut self, buf: u32) {
        self.imports.remove(&buf);
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
        for ptr in std::mem::take(&mut self.imports).into_values() {
            let stream = pagewise_hal::StreamHandle::NULL;
            // SAFETY: the case has ended and every call of it has completed. What is no import of
            // a pool is memory that was opened.
            unsafe {
                _ = backend.free_async(ptr, stream).or_else(|_| backend.ipc_close_mem_handle(ptr));
            }
        }
        self.shares.clear();
        // SAFETY: the case has ended, so no device uses the memory.
        self.registered.retain(|ptr| unsafe { backend.host_unregister(*ptr) }.is_err());
        if self.registered.is_empty() {
            let replaced = std::mem::take(&mut self.replaced);
            for pages in std::mem::take(&mut self.host).into_values().chain(replaced) {
                // SAFETY: all that the case registered is unregistered.
                unsafe { pages.free() };
            }
        }
    }
}

// The safety comments below share one argument: a case is carried out by one thread, each call is
// complete before the next is made, and every address is checked by the back end.
impl Running<'_> {
    pub(super) fn shared_call(&mut self, op: &Op) -> Observed {
        let backend = self.backend;
        match *op {
            Op::HostMemory { buf, bytes } => self.host_memory(buf, bytes),
            Op::HostRegister { part, flags } => self.host_register(part, flags),
            Op::HostUnregister { buf, offset } => {
                let ptr = self.ptr(buf, offset);
                // SAFETY: see above; no work is in flight.
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
                self.shared.keep(share, answer, |handle| Share::Pool(Descriptor::new(handle)))
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
                // SAFETY: see above: the allocation has completed. Pools are imported only where
                // the back end takes its own, and there it knows which memory is gone.
                let answer = unsafe { backend.pool_import_pointer(self.pool(pool), exported) };
                self.shared.imported(buf, &answer)
            }
            Op::IpcMemHandle { buf, offset, share } => {
                let answer = backend.ipc_mem_handle(self.ptr(buf, offset));
                self.shared.keep(share, answer, Share::Memory)
            }
            Op::IpcOpenMemHandle { buf, device, share } => {
                let handle = self.shared.memory(share);
                // SAFETY: the handle is of this process, so nobody else frees the memory.
                let answer = unsafe { backend.ipc_open_mem_handle(DeviceId(device), handle) };
                self.shared.imported(buf, &answer)
            }
            Op::IpcCloseMemHandle { buf, offset } => {
                // SAFETY: see above; no work is in flight.
                let answer = unsafe { backend.ipc_close_mem_handle(self.ptr(buf, offset)) };
                if answer.is_ok() {
                    self.shared.forget(buf);
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
        // SAFETY: the pages stay until the case has ended and unregistered them; other memory, and
        // the null pointer, are the back end's to refuse.
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
        // SAFETY: the handle is none, or of this process and the back end takes those.
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
