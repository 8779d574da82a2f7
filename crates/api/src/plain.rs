//! Typed memory that does not migrate: of a device, and page-locked host memory.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;
use pagewise_hal::{DevicePtr, HostAllocFlags, Result, Span};

use crate::construct::{adopted, allocated, bytes_of, leased};
use crate::copy::{Elements, ElementsMut};
use crate::memory::Memory;
use crate::names::Name;
use crate::range::{elements, part_of};
use crate::resource::{MemoryKind, MemoryResource};
use crate::{Device, Machine, Stream};

mod sealed {
    pub trait Kind {}
}

/// A kind of memory that does not migrate: [`DeviceMemory`] or [`PinnedMemory`].
pub trait PlainKind: sealed::Kind + Send + Sync + 'static {
    /// The kind as resources name it.
    const KIND: MemoryKind;
}

/// Memory of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceMemory {}

/// Page-locked host memory, which every device reaches where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinnedMemory {}

impl sealed::Kind for DeviceMemory {}
impl sealed::Kind for PinnedMemory {}

impl PlainKind for DeviceMemory {
    const KIND: MemoryKind = MemoryKind::Device;
}

impl PlainKind for PinnedMemory {
    const KIND: MemoryKind = MemoryKind::Pinned;
}

/// Elements in memory of a device. The host does not reach them: [copy](mod@crate::copy) them.
///
/// ```
/// use pagewise::{Device, DeviceBuffer, Machine, Stream, fill};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let mut buffer = DeviceBuffer::<u16>::new(&machine, Device::FIRST, 1000)?;
/// fill(&mut buffer, 7, &Stream::new(&machine, Device::FIRST)?)?;
/// assert_eq!(buffer.len(), 1000);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub type DeviceBuffer<T> = PlainBuffer<T, DeviceMemory>;

/// Elements in page-locked host memory.
///
/// ```
/// use pagewise::{Device, Machine, ManagedBuffer, PinnedBuffer, Stream, copy};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let mut pinned = PinnedBuffer::<u32>::new(&machine, 2)?;
/// pinned.write()?.copy_from_slice(&[3, 4]);
/// let mut managed = ManagedBuffer::<u32>::zeroed(&machine, 2)?;
/// copy(&mut managed, &pinned, &stream)?;
/// assert_eq!(managed.read()?, [3, 4]);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub type PinnedBuffer<T> = PlainBuffer<T, PinnedMemory>;

/// Elements in memory that does not migrate: a [`DeviceBuffer`] or a [`PinnedBuffer`].
///
/// The memory is freed when the buffer goes out of scope, after the [copies and
/// fills](mod@crate::copy) that use it.
pub struct PlainBuffer<T, K> {
    pub(crate) memory: Memory,
    elements: PhantomData<T>,
    kind: PhantomData<K>,
}

impl<T: Pod, K: PlainKind> PlainBuffer<T, K> {
    fn of(memory: Memory) -> Self {
        Self { memory, elements: PhantomData, kind: PhantomData }
    }

    /// Takes room for `len` elements from a resource, in the order of a stream, and frees it on the
    /// same one. Other streams that use the buffer wait for it, and the free waits for them.
    ///
    /// # Errors
    /// `Unsupported` (no CUDA code) for a resource of another kind of memory; `InvalidValue` (no
    /// CUDA code) for no elements or elements of no size; as [`MemoryResource::allocate`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use pagewise::resource::DeviceMemoryResource;
    /// use pagewise::{Device, DeviceBuffer, Machine, PinnedBuffer, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let pool = Arc::new(DeviceMemoryResource::current_pool(&machine, Device::FIRST)?);
    /// let buffer = DeviceBuffer::<u32>::from_resource(pool.clone(), 100, &stream)?;
    /// assert_eq!(buffer.len(), 100);
    /// assert!(PinnedBuffer::<u32>::from_resource(pool, 100, &stream).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[track_caller]
    pub fn from_resource(
        resource: Arc<dyn MemoryResource>,
        len: usize,
        stream: &Stream,
    ) -> Result<Self> {
        leased::<T>(K::KIND, resource, len, stream).map(Self::of)
    }

    /// Uses memory of this kind that other code allocated or registered, all of it or a part. The
    /// buffer does not free it. It keeps `owner` until it is dropped, so `owner` can be the value
    /// that frees the memory, such as an [`OnDrop`].
    ///
    /// # Errors
    /// `InvalidValue`: without a CUDA code for no elements, an address that is not aligned for `T`,
    /// memory of another kind, which the error names, or a range that passes the end of its
    /// allocation; code 1 for an address that belongs to no allocation.
    ///
    /// # Safety
    /// The memory must stay allocated until `owner` is dropped. Until then no other code may write
    /// it while it is borrowed from this buffer, or use it while it is borrowed for writing.
    ///
    /// ```
    /// use pagewise::{Backend, Device, DeviceBuffer, OnDrop, PinnedBuffer};
    ///
    /// let sim = pagewise::sim()?;
    /// let ptr = sim.alloc_device(Device::FIRST.id(), 4096)?;
    /// let backend = sim.clone();
    /// // SAFETY: the buffer is dropped before its owner, and no other code has the address.
    /// let free = OnDrop::new(move || drop(unsafe { backend.free(ptr) }));
    /// // SAFETY: the memory has to live as long as the owner and be the buffer's alone; the owner
    /// // frees it, and no other code uses it.
    /// let buffer = unsafe { DeviceBuffer::<u64>::from_raw(&sim, ptr, 512, free) }?;
    /// assert_eq!(buffer.len(), 512);
    /// // SAFETY: the memory has to live as long as the owner; nothing is adopted, as it is refused.
    /// let error = unsafe { PinnedBuffer::<u64>::from_raw(&sim, ptr, 512, ()) }.unwrap_err();
    /// assert!(error.to_string().contains("memory of a device"));
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn from_raw(
        machine: impl Into<Machine>,
        ptr: DevicePtr,
        len: usize,
        owner: impl Send + Sync + 'static,
    ) -> Result<Self> {
        adopted::<T>(K::KIND, machine.into(), ptr, len, Box::new(owner)).map(Self::of)
    }

    /// How many elements; at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        elements::<T>(self.memory.span)
    }

    /// Some of the elements, to be copied from.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for no elements, or elements beyond the end.
    pub fn range(&self, range: impl RangeBounds<usize>) -> Result<Elements<'_, T>> {
        Ok(Elements::of(&self.memory, part_of::<T>(&self.memory, range)?))
    }

    /// Some of the elements, to be copied to or filled.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn range_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ElementsMut<'_, T>> {
        Ok(ElementsMut::of(&self.memory, part_of::<T>(&self.memory, range)?))
    }
}

impl<T, K: PlainKind> PlainBuffer<T, K> {
    /// Gives it a name for messages, as [`ManagedBuffer::named`](crate::ManagedBuffer::named) does.
    #[must_use]
    pub fn named(mut self, name: impl AsRef<str>) -> Self {
        self.memory.listed.rename(Name::given(name.as_ref()));
        self
    }

    /// The name that messages use.
    #[must_use]
    pub fn name(&self) -> String {
        self.memory.listed.name().to_string()
    }

    /// The address of the first element. It is valid until the buffer is dropped.
    #[must_use]
    pub fn device_ptr(&self) -> DevicePtr {
        self.memory.span.ptr
    }

    /// All bytes, by address.
    #[must_use]
    pub fn span(&self) -> Span {
        self.memory.span
    }

    /// The machine that the memory is of.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.memory.machine
    }

    /// Waits for the copies and fills that use the memory, frees it and reports a failure. Going out
    /// of scope does the same without a report.
    ///
    /// # Errors
    /// Failures of that work, with the driver's code: then the memory stays allocated. As
    /// [`Backend::free`](crate::Backend::free). The buffer is consumed either way.
    pub fn free(mut self) -> Result<()> {
        self.memory.release()
    }
}

impl<T: Pod> PlainBuffer<T, DeviceMemory> {
    /// Allocates room for `len` elements on a device (`cuMemAlloc`). Their contents are
    /// indeterminate.
    ///
    /// # Errors
    /// Without a CUDA code: `InvalidDevice` for a device that does not exist; `InvalidValue` for no
    /// elements, elements of no size, or more bytes than an address space has. From the back end:
    /// `OutOfMemory` (2).
    #[track_caller]
    pub fn new(machine: impl Into<Machine>, device: Device, len: usize) -> Result<Self> {
        const OPERATION: &str = "allocate";
        let machine = machine.into();
        machine.check_device(OPERATION, device)?;
        let bytes = bytes_of::<T>(OPERATION, len)?;
        let ptr = machine.backend().alloc_device(device.id(), bytes)?;
        allocated::<T>(DeviceMemory::KIND, machine, Span::new(ptr, bytes)).map(Self::of)
    }
}

impl<T: Pod> PlainBuffer<T, PinnedMemory> {
    /// Allocates room for `len` elements, mapped on every device (`cuMemHostAlloc`). Their contents
    /// are up to the back end; any bytes are a `T`.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for no elements, elements of no size, or more bytes than an
    /// address space has; `OutOfMemory` (2).
    #[track_caller]
    pub fn new(machine: impl Into<Machine>, len: usize) -> Result<Self> {
        let machine = machine.into();
        let bytes = bytes_of::<T>("allocate", len)?;
        let ptr = machine.backend().alloc_pinned(bytes, HostAllocFlags::PORTABLE)?;
        allocated::<T>(PinnedMemory::KIND, machine, Span::new(ptr, bytes)).map(Self::of)
    }

    /// Shows all elements to the host, after copies and fills that write them.
    ///
    /// # Errors
    /// `Unsupported` (no CUDA code) if addresses are not the host's, as a mock's; failures of the
    /// work that is waited for, with the driver's code.
    pub fn read(&self) -> Result<&[T]> {
        let span = self.memory.span;
        self.memory.prepare_read(span).map_err(|error| self.memory.name_in(error, span))?;
        let first = std::ptr::with_exposed_provenance::<T>(span.ptr.0 as usize);
        // SAFETY: the span is live memory of the buffer, aligned and a whole number of elements by
        // construction. The back end promised (`HostAddresses`) that the host may read it, and any
        // bytes are a `T`. Copies and fills that write it are done (`prepare_read`), and new ones
        // need an exclusive borrow, which the shared one of this view excludes.
        Ok(unsafe { std::slice::from_raw_parts(first, self.len()) })
    }

    /// Lends all elements to the host for writing, after copies and fills that use them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&mut self) -> Result<&mut [T]> {
        let span = self.memory.span;
        self.memory.prepare_write(span).map_err(|error| self.memory.name_in(error, span))?;
        let first = std::ptr::with_exposed_provenance_mut::<T>(span.ptr.0 as usize);
        // SAFETY: the span is live memory of the buffer, aligned and a whole number of elements by
        // construction. The back end promised (`HostAddresses`) that the host may write it, and any
        // bytes are a `T`. Copies and fills that use it are done (`prepare_write`), and the view
        // holds the exclusive borrow of the buffer, without which no new ones can be made.
        Ok(unsafe { std::slice::from_raw_parts_mut(first, elements::<T>(span)) })
    }
}

impl<T, K: PlainKind> fmt::Debug for PlainBuffer<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Memory { listed, span, machine, .. } = &self.memory;
        let (of, kind) = (type_name::<T>(), K::KIND);
        write!(f, "PlainBuffer<{of}, {kind:?}>({}, {span}, {machine:?})", listed.name())
    }
}

/// A value that runs a closure when it is dropped: an owner of adopted memory that gives it back.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// static GONE: AtomicBool = AtomicBool::new(false);
/// drop(pagewise::OnDrop::new(|| GONE.store(true, Ordering::Relaxed)));
/// assert!(GONE.load(Ordering::Relaxed));
/// ```
pub struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    /// Runs the closure once, when the value is dropped.
    pub const fn new(run: F) -> Self {
        Self(Some(run))
    }
}

impl<F: FnOnce()> fmt::Debug for OnDrop<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDrop")
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

impl<'b, T: Pod, K: PlainKind> From<&'b PlainBuffer<T, K>> for Elements<'b, T> {
    fn from(buffer: &'b PlainBuffer<T, K>) -> Self {
        Self::of(&buffer.memory, buffer.memory.span)
    }
}

impl<'b, T: Pod, K: PlainKind> From<&'b mut PlainBuffer<T, K>> for ElementsMut<'b, T> {
    fn from(buffer: &'b mut PlainBuffer<T, K>) -> Self {
        Self::of(&buffer.memory, buffer.memory.span)
    }
}
