//! The memory of the process itself that a case uses, and its handles for other processes.
//!
//! A trace has one process, so it imports only pools that it exported before. Drivers crash on
//! that: unless [`Capabilities::pool_self_import`](pagewise_hal::Capabilities) is on, a pool of the
//! case is not imported, and the operation's code is `NOT_SUPPORTED`.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use pagewise_hal::{
    Backend, DevicePtr, ExportedPointer, HostViews, IpcMemHandle, PAGE_BYTES, Result,
    SHARED_BLOB_BYTES, ShareableHandle, Span,
};

use super::code::coded;
use crate::format::Observed;

/// The most descriptors that a case may have open, so that some are left for the rest of the
/// process.
pub(super) const MAX_DESCRIPTORS: usize = 256;

const NO_BLOB: [u8; SHARED_BLOB_BYTES] = [0; SHARED_BLOB_BYTES];

/// Whole pages of zeros of this process. They are not freed when the value is dropped, because a
/// device may still have them mapped: see [`free`](Self::free).
#[derive(Debug)]
pub(super) struct HostPages {
    base: NonNull<u8>,
    layout: Layout,
    pub(super) span: Span,
}

impl HostPages {
    /// `None` if there is no memory left.
    pub(super) fn new(bytes: u64) -> Option<Self> {
        // One page more, so that the span can begin at a page. With an alignment in the layout the
        // allocator would write the zeros; without it, untouched pages cost nothing.
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
        // freed once. This function asks its caller that no back end and no other code uses the
        // memory.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// A handle that a call returned for other processes.
#[derive(Debug)]
pub(super) enum Share {
    Pool(Descriptor),
    Pointer(ExportedPointer),
    Memory(IpcMemHandle),
}

/// The handle of an exported pool, closed when it is dropped.
#[derive(Debug)]
pub(super) struct Descriptor {
    handle: ShareableHandle,
    #[cfg(unix)]
    _owned: Option<std::os::fd::OwnedFd>,
}

impl Descriptor {
    /// Keeps a handle that an export of this back end has just returned. A back end without the
    /// promise of `HostAddresses` may return any descriptor of the process, so that one is not
    /// closed.
    pub(super) fn new(handle: ShareableHandle, views: HostViews) -> Self {
        #[cfg(not(unix))]
        let _ = views;
        Self {
            handle,
            #[cfg(unix)]
            _owned: (handle.0 >= 0 && views != HostViews::Absent).then(|| {
                use std::os::fd::{FromRawFd, OwnedFd};
                // SAFETY: the descriptor has to be open and not -1, and this value has to be the
                // only one that closes it. The back end promises by `HostAddresses` that it is open
                // and this process's to close, and only this value keeps it.
                unsafe { OwnedFd::from_raw_fd(handle.0) }
            }),
        }
    }
}

/// A case's memory of the process itself and for other processes.
#[derive(Debug, Default)]
pub(super) struct CaseMemory {
    pub(super) host: BTreeMap<u32, HostPages>,
    /// Host memory that lost its id to other memory. It may still be registered.
    pub(super) replaced: Vec<HostPages>,
    /// The first bytes of registered memory.
    pub(super) registered: Vec<DevicePtr>,
    pub(super) shares: BTreeMap<u32, Share>,
    /// Imported and opened memory, which may have addresses of buffers.
    pub(super) imports: BTreeMap<u32, DevicePtr>,
}

impl CaseMemory {
    /// The first byte of host memory or of an import.
    pub(super) fn start(&self, buf: u32) -> Option<DevicePtr> {
        let host = self.host.get(&buf).map(|pages| pages.span.ptr);
        host.or_else(|| self.imports.get(&buf).copied())
    }

    /// Memory of the process that the case has.
    pub(super) fn pages(&self, buf: u32) -> Option<Span> {
        self.host.get(&buf).map(|pages| pages.span)
    }

    /// Forgets imports of memory, because they have ended, or the memory was freed.
    pub(super) fn forget_imports_at(&mut self, ptr: DevicePtr) {
        self.imports.retain(|_, import| *import != ptr);
    }

    pub(super) fn descriptors(&self) -> usize {
        self.shares.values().filter(|share| matches!(share, Share::Pool(_))).count()
    }

    pub(super) fn pool_handle(&self, share: u32) -> ShareableHandle {
        match self.shares.get(&share) {
            Some(Share::Pool(descriptor)) => descriptor.handle,
            _ => ShareableHandle(-1),
        }
    }

    pub(super) fn pointer(&self, share: u32) -> ExportedPointer {
        match self.shares.get(&share) {
            Some(Share::Pointer(blob)) => *blob,
            _ => ExportedPointer(NO_BLOB),
        }
    }

    pub(super) fn memory(&self, share: u32) -> IpcMemHandle {
        match self.shares.get(&share) {
            Some(Share::Memory(blob)) => *blob,
            _ => IpcMemHandle(NO_BLOB),
        }
    }

    /// Keeps the handle that a call returned, under an id.
    pub(super) fn keep<T>(
        &mut self,
        id: u32,
        answer: Result<T>,
        share: impl FnOnce(T) -> Share,
    ) -> Observed {
        let observed = coded(&answer);
        if let Ok(given) = answer {
            self.shares.insert(id, share(given));
        }
        observed
    }

    /// Keeps the address that a call imported, under an id.
    pub(super) fn imported(&mut self, buf: u32, answer: &Result<DevicePtr>) -> Observed {
        self.imports.extend(answer.as_ref().ok().map(|&ptr| (buf, ptr)));
        coded(answer)
    }

    /// Frees, closes and unregisters all that the case holds. Pages that the back end cannot
    /// unregister stay allocated.
    pub(super) fn clean_up(&mut self, backend: &dyn Backend) {
        // One free ends all imports of the same memory; the next would free the memory.
        let imports: BTreeSet<DevicePtr> =
            std::mem::take(&mut self.imports).into_values().collect();
        for ptr in imports {
            let stream = pagewise_hal::StreamHandle::NULL;
            // Memory that is not imported from a pool was opened by a handle.
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
                // SAFETY: only the case registers its pages, and none is registered any more: a
                // page that could not be unregistered would still be in the list, which is empty.
                // Only the case knows the pages.
                unsafe { pages.free() };
            }
        }
    }
}
