//! Views of a pointer's memory on the host, and fills of it.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use pagewise::refuse::unsupported;
use pagewise::{Backend, HostViews, ManagedBuffer, Result, Span, Stream, StreamHandle};

use super::access::Access;
use super::pointer::{Hold, MemoryPointer, PointerKind};

impl MemoryPointer {
    /// Promises that the pointer's memory is used by nothing else, which [views](Self::read) and
    /// [fills](Self::fill) need. The managers of this crate promise it of the memory that they
    /// give; [`mempin`](super::ExternalMemoryManager::mempin) cannot, as its memory is another
    /// owner's.
    ///
    /// `comes_on` is the stream in the order of which the memory is valid, if it is not valid
    /// for every stream.
    ///
    /// # Safety
    /// From now on until the finalizer runs, the bytes are live memory of the machine and of the
    /// pointer's kind. The host may read and write those of a kind that it reaches, by
    /// [`host_address`](Self::host_address), if the machine has host views. No safe code reads or
    /// writes a byte of them but through this pointer, its clones and views.
    #[must_use]
    pub unsafe fn vouch(self, comes_on: Option<&Stream>) -> Self {
        self.with_access(Access::exclusive(comes_on))
    }

    /// The bytes, on the host. The memory stays until the view goes, and no other view and no fill
    /// can write it meanwhile. Work of devices that unsafe code has launched has to be over.
    ///
    /// # Errors
    /// Without a CUDA code: `Unsupported` for device memory, and on a back end without
    /// [host views](HostViews); `InvalidValue` for memory that was freed, that is being written, or
    /// that [other code may use](Self::vouch), such as memory of `mempin`. As
    /// [`ManagedBuffer::read`](pagewise::ManagedBuffer::read) for managed memory.
    ///
    /// ```
    /// use pagewise_managers::emm::{EmmOptions, ExternalMemoryManager, ResourceManager};
    /// use pagewise::{Device, Machine};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let manager = ResourceManager::direct(&machine, Device::FIRST, EmmOptions::default())?;
    /// manager.initialize()?;
    /// let memory = manager.memallocmanaged(1000, true)?;
    /// memory.write()?.fill(3);
    /// let (all, part) = (memory.read()?, memory.view(10, Some(12))?.read()?);
    /// assert_eq!((all.len(), &part[..]), (1000, &[3, 3][..]));
    /// assert!(memory.write().is_err() && memory.free().is_err(), "the views hold it");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn read(&self) -> Result<HostView> {
        const OPERATION: &str = "read";
        self.check_host_view(OPERATION)?;
        let reading = Reading(self.hold(OPERATION, Access::begin_read)?);
        let (buffer, first) = reach(&reading.0, |buffer| buffer.read().map(<[u8]>::as_ptr))?;
        let view = View { first: first.cast_mut(), len: length(OPERATION, self)?, _buffer: buffer };
        Ok(HostView { view, _reading: reading })
    }

    /// The bytes, on the host, for writing. No other view and no fill is possible meanwhile.
    ///
    /// # Errors
    /// As [`read`](Self::read), and for memory of which there is a view.
    pub fn write(&self) -> Result<HostViewMut> {
        const OPERATION: &str = "write";
        self.check_host_view(OPERATION)?;
        let writing = Writing(self.hold(OPERATION, Access::begin_write)?);
        let (buffer, first) = reach(&writing.0, |buffer| {
            buffer.write().map(|bytes| bytes.as_mut_ptr().cast_const())
        })?;
        let view = View { first: first.cast_mut(), len: length(OPERATION, self)?, _buffer: buffer };
        Ok(HostViewMut { view, _writing: writing })
    }

    /// Writes a byte to all of the memory, by a device, and waits for it. A part of memory is
    /// filled by a [`view`](Self::view).
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for a stream of another machine, and as [`write`](Self::write)
    /// for memory with a view; as [`Backend::memset`](pagewise::Backend::memset) and
    /// [`Stream::synchronize`]. If the fill cannot be waited for, the memory is never freed, because
    /// the fill may still go on.
    ///
    /// ```
    /// use pagewise_managers::emm::{EmmOptions, ExternalMemoryManager, ResourceManager};
    /// use pagewise::{Device, Machine, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let manager = ResourceManager::direct(&machine, Device::FIRST, EmmOptions::default())?;
    /// manager.initialize()?;
    /// let memory = manager.memallocmanaged(1000, true)?;
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// memory.fill(1, &stream)?;
    /// memory.view(100, Some(200))?.fill(2, &stream)?;
    /// assert_eq!(memory.read()?[99..102], [1, 2, 2]);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn fill(&self, value: u8, stream: &Stream) -> Result<()> {
        self.fill_by(stream, |backend, span, on| {
            // SAFETY: `fill_by` lends memory that is live and used by nothing else.
            unsafe { backend.memset(span, value, on) }
        })
    }

    /// As [`fill`](Self::fill), with a value of 2 bytes.
    ///
    /// # Errors
    /// As [`fill`](Self::fill); `InvalidValue` (1) unless address and length are multiples of 2.
    pub fn fill_u16(&self, value: u16, stream: &Stream) -> Result<()> {
        self.fill_by(stream, |backend, span, on| {
            // SAFETY: `fill_by` lends memory that is live and used by nothing else.
            unsafe { backend.memset_d16(span, value, on) }
        })
    }

    /// As [`fill`](Self::fill), with a value of 4 bytes.
    ///
    /// # Errors
    /// As [`fill`](Self::fill); `InvalidValue` (1) unless address and length are multiples of 4.
    pub fn fill_u32(&self, value: u32, stream: &Stream) -> Result<()> {
        self.fill_by(stream, |backend, span, on| {
            // SAFETY: `fill_by` lends memory that is live and used by nothing else.
            unsafe { backend.memset_d32(span, value, on) }
        })
    }

    /// Lends the memory to a call of the back end that writes it, and waits for that. The memory is
    /// held, no view of it exists, and its maker promised that no other safe code uses it.
    fn fill_by(
        &self,
        stream: &Stream,
        write: impl FnOnce(&dyn Backend, Span, StreamHandle) -> Result<()>,
    ) -> Result<()> {
        const OPERATION: &str = "fill";
        self.machine().check_stream(OPERATION, stream)?;
        let writing = Writing::on(stream, self, OPERATION)?;
        let name = |error: pagewise::Error| error.with_span(self.span());
        write(self.machine().backend(), self.span(), stream.handle()).map_err(name)?;
        stream.synchronize().map_err(name).inspect_err(|_| mem::forget(writing))
    }

    fn check_host_view(&self, operation: &'static str) -> Result<()> {
        let why = if !self.kind().is_host_accessible() {
            "the host does not reach device memory: copy it, or allocate managed memory"
        } else if self.machine().host_views() == HostViews::Absent {
            "addresses of this back end are not the host's: use `host_touch`"
        } else {
            return Ok(());
        };
        Err(unsupported(operation, why).with_span(self.span()))
    }
}

/// Finds the first byte of held memory on the host, after it has come. Managed memory is reached
/// by a buffer, which declares the accesses where they have to be declared.
fn reach(
    hold: &Hold,
    of_buffer: impl FnOnce(&mut ManagedBuffer<u8>) -> Result<*const u8>,
) -> Result<(Option<ManagedBuffer<u8>>, *const u8)> {
    let pointer = hold.pointer();
    let mut comes_on = None;
    hold.update(|access| comes_on = access.comes_on.clone());
    comes_on.as_ref().map_or(Ok(()), Stream::synchronize)?;
    if pointer.bytes() == 0 {
        return Ok((None, NonNull::dangling().as_ptr()));
    }
    if pointer.kind() != PointerKind::Managed {
        let address = pointer.host_address().unwrap_or_default();
        return Ok((None, std::ptr::with_exposed_provenance(address as usize)));
    }
    let (machine, len) = (pointer.machine(), length("view", pointer)?);
    // SAFETY: `from_raw` asks for memory that stays while the buffer does, and that no other code
    // writes while it is borrowed. The hold keeps it, and lets in either views that read or one
    // that writes; its maker promised the rest.
    let mut buffer =
        unsafe { ManagedBuffer::<u8>::from_raw(machine, pointer.device_ptr(), len, ())? };
    let first = of_buffer(&mut buffer)?;
    Ok((Some(buffer), first))
}

fn length(operation: &'static str, pointer: &MemoryPointer) -> Result<usize> {
    usize::try_from(pointer.bytes())
        .map_err(|_| unsupported(operation, "the memory is larger than the address space"))
}

/// Memory that is being read on the host.
struct Reading(Hold);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.update(Access::end_read);
    }
}

/// Memory that is being written, on the host or by a fill or copy.
pub(super) struct Writing(Hold);

impl Writing {
    /// Makes the stream come after the memory, and lets it write alone.
    pub(super) fn on(
        stream: &Stream,
        pointer: &MemoryPointer,
        operation: &'static str,
    ) -> Result<Self> {
        let mut comes_on = None;
        let writing = Self(pointer.hold(operation, |access| {
            comes_on = access.comes_on.clone();
            access.begin_write()
        })?);
        comes_on.map_or(Ok(()), |before| stream.wait_for(&before))?;
        Ok(writing)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.update(Access::end_write);
    }
}

struct View {
    first: *mut u8,
    len: usize,
    _buffer: Option<ManagedBuffer<u8>>,
}

/// Memory of a pointer on the host: see [`MemoryPointer::read`].
pub struct HostView {
    view: View,
    // After the view: the memory is let go last.
    _reading: Reading,
}

impl Deref for HostView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory has so many bytes and lives as long as `_reading`. The machine
        // promised that the host reads it by this address (`HostAddresses`). No view that writes
        // and no fill exists while `_reading` does.
        unsafe { std::slice::from_raw_parts(self.view.first, self.view.len) }
    }
}

/// Memory of a pointer on the host, for writing: see [`MemoryPointer::write`].
pub struct HostViewMut {
    view: View,
    // After the view: the memory is let go last.
    _writing: Writing,
}

impl Deref for HostViewMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory has so many bytes and lives as long as `_writing`. The machine
        // promised that the host reads it by this address (`HostAddresses`). No other view and no
        // fill exists while `_writing` does.
        unsafe { std::slice::from_raw_parts(self.view.first, self.view.len) }
    }
}

impl DerefMut for HostViewMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory has so many bytes and lives as long as `_writing`. The machine
        // promised that the host writes it by this address (`HostAddresses`). `self` is borrowed
        // exclusively, and no other view and no fill exists while `_writing` does.
        unsafe { std::slice::from_raw_parts_mut(self.view.first, self.view.len) }
    }
}

impl fmt::Debug for HostView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostView({:?})", self._reading.0.pointer())
    }
}

impl fmt::Debug for HostViewMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostViewMut({:?})", self._writing.0.pointer())
    }
}
