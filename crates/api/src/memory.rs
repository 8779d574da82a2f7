//! The memory of a buffer, without its element type: one allocation, its owner, and the host's way
//! to reach it.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewise_hal::{Error, ErrorKind, HostAccess, HostTouch, HostViews, PAGE_BYTES, Result, Span};

use crate::contents::Contents;
use crate::in_flight::InFlight;
use crate::names::{Listed, Name};
use crate::refuse::unsupported;
use crate::resource::{MemoryKind, MemoryResource};
use crate::{Machine, Stream};

/// The party that gives memory back.
pub(crate) enum Release {
    /// This crate, by `cuMemFree` or `cuMemFreeHost`.
    Free,
    /// The resource that it came from, in stream order.
    Resource(Lease),
    /// Its lender; the value is kept so that the memory stays.
    Owner(#[allow(dead_code, reason = "held for its destructor")] Box<dyn Any + Send + Sync>),
    /// No party any more: it was given back, or handed on.
    Done,
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "Free",
            Self::Resource(_) => "Resource",
            Self::Owner(_) => "Owner",
            Self::Done => "Done",
        })
    }
}

impl Release {
    /// Memory of a resource that came on this stream.
    pub(crate) fn leased(resource: Arc<dyn MemoryResource>, stream: &Stream) -> Self {
        Self::Resource(Lease {
            resource,
            stream: stream.clone(),
            arrived: AtomicBool::new(false),
            users: Mutex::default(),
        })
    }
}

/// Memory of a resource, which is valid in the order of a stream.
pub(crate) struct Lease {
    pub(crate) resource: Arc<dyn MemoryResource>,
    /// The stream that it came on and goes on.
    pub(crate) stream: Stream,
    /// Whether the host has waited for it to come.
    pub(crate) arrived: AtomicBool,
    /// Other streams that have used it: they waited for it to come, and it waits for them to go.
    pub(crate) users: Mutex<Vec<Stream>>,
}

impl Lease {
    fn users(&self) -> MutexGuard<'_, Vec<Stream>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream is about to use the memory.
    fn use_on(&self, stream: &Stream) -> Result<()> {
        if self.is_news_to(stream) {
            stream.wait_for(&self.stream)?;
            self.users().push(stream.clone());
        }
        Ok(())
    }

    /// Whether a stream has yet to wait for it to come.
    fn is_news_to(&self, stream: &Stream) -> bool {
        *stream != self.stream && !self.users().contains(stream)
    }

    /// The host is about to use the memory.
    fn arrive(&self) -> Result<()> {
        if !self.arrived.load(Ordering::Acquire) {
            self.stream.synchronize()?;
            self.arrived.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Gives the memory back, after all work that used it. If some work cannot be waited for, the
    /// memory stays allocated, as that work may still use it.
    ///
    /// # Safety
    /// `span` is the memory, and its owner is done with it.
    unsafe fn give_back(self, span: Span) -> Result<()> {
        for user in self.users().iter() {
            self.stream.follow(user)?;
        }
        // SAFETY: the memory came from the resource, and a lease gives it back once. Every stream
        // that used it through its owner was waited for.
        unsafe { self.resource.deallocate(span.ptr, span.bytes, &self.stream) }
    }
}

/// One allocation, or a part of one.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Before the machine: the name leaves the table while the addresses are still the machine's.
    pub(crate) listed: Listed,
    pub(crate) machine: Machine,
    pub(crate) span: Span,
    pub(crate) contents: Contents,
    pub(crate) in_flight: InFlight,
    pub(crate) kind: MemoryKind,
    pub(crate) release: Release,
}

impl Memory {
    /// Memory that has just come, with no work on it.
    pub(crate) fn new(
        machine: Machine,
        span: Span,
        name: Name,
        kind: MemoryKind,
        release: Release,
    ) -> Self {
        let listed = Listed::new(&machine, span, name);
        let (contents, in_flight) = (Contents::default(), InFlight::default());
        Self { listed, machine, span, contents, in_flight, kind, release }
    }

    /// The error with the name of this memory and the bytes that it is about: `span`, unless it
    /// says so itself.
    #[cold]
    pub(crate) fn name_in(&self, error: Error, span: Span) -> Error {
        let span = error.span().unwrap_or(span);
        let name = self.listed.part(span).to_string();
        error.with_span(span).with_name(name)
    }

    /// Gives the memory back, and says whether that worked.
    pub(crate) fn release(&mut self) -> Result<()> {
        let backend = self.machine.backend();
        let answer = match std::mem::replace(&mut self.release, Release::Done) {
            Release::Free => self.in_flight.wait(self.span, true).and_then(|()| match self.kind {
                // SAFETY: this value owns the allocation and frees it once. Copies and fills of
                // this crate are done. Device work that got the address outside of this crate came
                // through an `unsafe` call, which promised that the work ends before the memory
                // does.
                MemoryKind::Pinned => unsafe { backend.free_pinned(self.span.ptr) },
                // SAFETY: this value owns the allocation and frees it once. Copies and fills of
                // this crate are done. Device work that got the address outside of this crate came
                // through an `unsafe` call, which promised that the work ends before the memory
                // does.
                MemoryKind::Managed | MemoryKind::Device => unsafe { backend.free(self.span.ptr) },
            }),
            // SAFETY: this value owns the memory, which came from the resource, and gives it back
            // once. The lease waits for the streams that used it through the buffer.
            Release::Resource(lease) => unsafe { lease.give_back(self.span) },
            Release::Owner(owner) => {
                let waited = self.in_flight.wait(self.span, true);
                if waited.is_err() {
                    // Its destructor may free the memory, which work may still use.
                    std::mem::forget(owner);
                }
                waited
            }
            Release::Done => Ok(()),
        };
        answer.map_err(|error| self.name_in(error, self.span))
    }

    /// A stream is about to use the memory.
    #[inline]
    pub(crate) fn use_on(&self, stream: &Stream) -> Result<()> {
        match &self.release {
            Release::Resource(lease) => lease.use_on(stream),
            _ => Ok(()),
        }
    }

    /// The stream that another has to wait for before it uses the memory, unless it has. For many
    /// allocations at once, which wait together and say so by [`is_used_on`](Self::is_used_on).
    pub(crate) fn comes_before(&self, stream: &Stream) -> Option<&Stream> {
        match &self.release {
            Release::Resource(lease) => lease.is_news_to(stream).then_some(&lease.stream),
            _ => None,
        }
    }

    /// A stream that has waited is about to use the memory.
    pub(crate) fn is_used_on(&self, stream: &Stream) {
        if let Release::Resource(lease) = &self.release {
            lease.users().push(stream.clone());
        }
    }

    /// Leased memory goes back on another stream, which has been made to wait for the one before.
    pub(crate) fn move_to(&mut self, stream: &Stream) {
        if let Release::Resource(lease) = &mut self.release {
            lease.stream = stream.clone();
        }
    }

    fn arrive(&self) -> Result<()> {
        match &self.release {
            Release::Resource(lease) => lease.arrive(),
            _ => Ok(()),
        }
    }

    /// Lets the host read a part: no discarded contents, no work in flight where that matters, and
    /// the accesses counted where they have to be declared.
    pub(crate) fn prepare_read(&self, span: Span) -> Result<()> {
        const OPERATION: &str = "read";
        let views = self.host_views(OPERATION)?;
        self.contents.check_readable(OPERATION, span)?;
        self.wait_to_read(span)?;
        if views == HostViews::Declared {
            return self.declare(span, |_| HostAccess::Read);
        }
        self.check_idle(OPERATION)
    }

    /// Lets devices use a part on any stream, for code that waits for them: no discarded contents,
    /// and memory that has come. The back end has promised that no other memory is at its
    /// addresses.
    #[cfg(feature = "cudarc")]
    pub(crate) fn prepare_device(&self, operation: &'static str, span: Span) -> Result<()> {
        if self.machine.host_views() == HostViews::Absent {
            let why = "this back end makes no promise about its addresses (`HostAddresses`)";
            return Err(unsupported(operation, why).with_span(span));
        }
        self.contents.check_readable(operation, span)?;
        self.in_flight.wait(span, true)?;
        self.arrive()
    }

    /// A stream is about to be given work that reads a part, which
    /// [`has_work`](Self::has_work) notes then.
    pub(crate) fn begin_read(&self, span: Span, stream: &Stream) -> Result<()> {
        self.begin(span, stream, false)
    }

    /// A stream is about to be given work that writes a part. Discards of it are done then.
    pub(crate) fn begin_write(&self, span: Span, stream: &Stream) -> Result<()> {
        self.contents.wait(span)?;
        self.begin(span, stream, true)
    }

    fn begin(&self, span: Span, stream: &Stream, writes: bool) -> Result<()> {
        self.use_on(stream)?;
        self.in_flight.order(span, stream, writes)
    }

    /// A stream was given work on a part. Also if the call failed, because a batch may have begun.
    /// It is noted after the call: a wait of another thread forgets what is noted before it.
    pub(crate) fn has_work(&self, span: Span, stream: &Stream, writes: bool) {
        self.in_flight.add(span, stream, writes);
    }

    /// Waits, on the host, for the memory and for what writes a part, so that the part can be read
    /// without regard to a stream.
    pub(crate) fn wait_to_read(&self, span: Span) -> Result<()> {
        self.arrive()?;
        self.in_flight.wait(span, false)
    }

    /// Waits, on the host, for copies and fills that use a part.
    pub(crate) fn wait_for_copies(&self, span: Span) -> Result<()> {
        self.in_flight.wait(span, true)
    }

    /// Lets the host write a part, as [`prepare_read`](Self::prepare_read) does for reading.
    /// Contents count as written from then on.
    pub(crate) fn prepare_write(&self, span: Span) -> Result<()> {
        const OPERATION: &str = "write";
        let views = self.host_views(OPERATION)?;
        self.arrive()?;
        self.wait_for_copies(span)?;
        self.contents.wait(span)?;
        if views == HostViews::Declared {
            // SAFETY: the address lies in live memory of this machine, and the back end promised
            // (`HostAddresses`) that the host may read it. A safe call that writes it meanwhile
            // would need a borrow of the range, which the caller holds exclusively.
            let byte_at = |address: u64| unsafe {
                std::ptr::with_exposed_provenance::<u8>(address as usize).read()
            };
            self.declare(span, |address| HostAccess::Write(byte_at(address)))?;
        } else {
            self.check_idle(OPERATION)?;
            self.finish_discards(span);
        }
        self.contents.written(span);
        Ok(())
    }

    /// Writes a byte of each discarded page of a range that is lent for writing. A page is marked
    /// as discarded until something writes it, and every migration until then loses its contents:
    /// if the borrower wrote nothing, a view of it would change while it is alive.
    fn finish_discards(&self, span: Span) {
        for part in self.contents.discarded_in(span) {
            for address in places(part) {
                let byte = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
                // SAFETY: the byte lies in the range, which the caller holds exclusively and which
                // the host may write by the promise of the back end (`HostAddresses`). Its contents
                // are worthless, so 0 replaces nothing.
                unsafe { byte.write_volatile(0) };
            }
        }
    }

    fn host_views(&self, operation: &'static str) -> Result<HostViews> {
        match self.machine.host_views() {
            HostViews::Absent => {
                let why = "addresses of this back end are not the host's: use `host_touch`";
                Err(unsupported(operation, why).with_span(self.span))
            }
            views => Ok(views),
        }
    }

    /// Touches one byte of each page. Writes leave each byte as it is, so neighbours with the same
    /// value are one program.
    fn declare(&self, span: Span, access: impl Fn(u64) -> HostAccess) -> Result<()> {
        let mut places = places(span).peekable();
        while let Some(first) = places.next() {
            let does = access(first);
            let mut last = first;
            while let Some(next) =
                places.next_if(|&next| next - last == PAGE_BYTES && access(next) == does)
            {
                last = next;
            }
            let touch = HostTouch {
                span: Span::new(pagewise_hal::DevicePtr(first), last - first + 1),
                stride_bytes: PAGE_BYTES,
                access: does,
            };
            // SAFETY: the range is within the buffer, which the caller has borrowed: shared if it
            // is read, exclusively if it is written. A write of this program leaves the bytes that
            // were there.
            unsafe { self.machine.backend().host_touch(touch)? };
        }
        Ok(())
    }

    /// Without concurrent managed access the process would end where the driver's memory is
    /// touched while a device works.
    fn check_idle(&self, operation: &'static str) -> Result<()> {
        if self.kind != MemoryKind::Managed
            || self.machine.capabilities().concurrent_managed_access
            || !self.machine.has_work_in_flight()?
        {
            return Ok(());
        }
        Err(Error::new(operation, ErrorKind::NotReady).with_span(self.span).with_detail(
            "work is in flight, and this machine has no concurrent managed access: synchronise its \
             streams first",
        ))
    }
}

/// One address in each page of a range: the first byte, then the first of each further page.
fn places(span: Span) -> impl Iterator<Item = u64> {
    span.pages_outward().map(move |page| (page * PAGE_BYTES).max(span.ptr.0))
}

impl Drop for Memory {
    fn drop(&mut self) {
        let machine = self.machine.clone();
        machine.on_drop(|| self.release());
    }
}
