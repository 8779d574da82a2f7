//! Bytes of a resource, which are freed when their owner is dropped.

use std::fmt;
use std::sync::Arc;

use pagewise_hal::{DevicePtr, Result, Span};

use super::memory_resource::{MemoryKind, MemoryResource};
#[cfg(unix)]
use crate::refuse::also;
use crate::{Machine, Stream};

/// Bytes of a resource, given back on their stream when this goes out of scope.
///
/// ```
/// use std::sync::Arc;
/// use pagewise::resource::{Allocation, DeviceMemoryResource};
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let resource = Arc::new(DeviceMemoryResource::current_pool(&machine, Device::FIRST)?);
/// let bytes = Allocation::new(resource, 1 << 20, &stream)?;
/// assert_eq!(bytes.span().bytes, 1 << 20);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub struct Allocation {
    resource: Arc<dyn MemoryResource>,
    span: Span,
    stream: Option<Stream>,
}

impl Allocation {
    /// An allocation that a mapped resource imported.
    #[cfg(unix)]
    pub(super) fn adopt(resource: Arc<dyn MemoryResource>, span: Span, stream: &Stream) -> Self {
        Self { resource, span, stream: Some(stream.clone()) }
    }

    /// Exports the memory, so that another process can import it. See the [module](super::ipc).
    ///
    /// # Errors
    /// As [`Backend::pool_export_pointer`](crate::Backend::pool_export_pointer). Only memory of
    /// pools that were exported before, by an `allocation_handle`, has a descriptor.
    #[cfg(unix)]
    pub fn descriptor(&self) -> Result<super::descriptor::BufferDescriptor> {
        let backend = self.resource.machine().backend();
        let payload = backend.pool_export_pointer(self.span.ptr).map_err(|error| {
            also(error, "only memory of pools that were exported has a descriptor: take the pool's `allocation_handle` first")
        })?;
        Ok(super::descriptor::BufferDescriptor::new(payload, self.span.bytes))
    }

    /// Takes bytes from a resource, to be given back on the same stream.
    ///
    /// # Errors
    /// As [`MemoryResource::allocate`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pagewise::resource::{Allocation, PinnedMemoryResource};
    /// # use pagewise::{Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = Arc::new(PinnedMemoryResource::direct(&machine));
    /// assert!(Allocation::new(resource, 0, &Stream::legacy_default(&machine)).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn new(resource: Arc<dyn MemoryResource>, bytes: u64, stream: &Stream) -> Result<Self> {
        let ptr = resource.allocate(bytes, stream)?;
        Ok(Self { resource, span: Span::new(ptr, bytes), stream: Some(stream.clone()) })
    }

    /// The address of the first byte. It is valid in the order of the stream until the allocation
    /// is dropped.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pagewise::resource::{Allocation, PinnedMemoryResource};
    /// # use pagewise::{Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = Arc::new(PinnedMemoryResource::direct(&machine));
    /// let bytes = Allocation::new(resource, 8, &Stream::legacy_default(&machine))?;
    /// assert!(!bytes.device_ptr().is_null());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn device_ptr(&self) -> DevicePtr {
        self.span.ptr
    }

    /// The bytes, by address.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pagewise::resource::{Allocation, PinnedMemoryResource};
    /// # use pagewise::{Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = Arc::new(PinnedMemoryResource::direct(&machine));
    /// let bytes = Allocation::new(resource, 8, &Stream::legacy_default(&machine))?;
    /// assert_eq!(bytes.span().bytes, 8);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// The kind of memory.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pagewise::resource::{Allocation, MemoryKind, PinnedMemoryResource};
    /// # use pagewise::{Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = Arc::new(PinnedMemoryResource::direct(&machine));
    /// let bytes = Allocation::new(resource, 8, &Stream::legacy_default(&machine))?;
    /// assert_eq!(bytes.memory_kind(), MemoryKind::Pinned);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.resource.memory_kind()
    }

    /// Gives the bytes back on another stream, which waits for the present work of the one before.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for a stream of another machine; as [`Stream::wait_for`]. The
    /// stream is as before then.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pagewise::resource::{Allocation, DeviceMemoryResource};
    /// # use pagewise::{Device, Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = Arc::new(DeviceMemoryResource::current_pool(&machine, Device::FIRST)?);
    /// let mut bytes = Allocation::new(resource, 8, &Stream::legacy_default(&machine))?;
    /// bytes.set_stream(&Stream::new(&machine, Device::FIRST)?)?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn set_stream(&mut self, stream: &Stream) -> Result<()> {
        self.resource.machine().check_stream("set_stream", stream)?;
        if let Some(before) = &self.stream {
            stream.wait_for(before)?;
        }
        self.stream = Some(stream.clone());
        Ok(())
    }

    /// Frees the bytes now and reports a failure.
    ///
    /// # Errors
    /// As [`MemoryResource::deallocate`]. The allocation is consumed either way.
    pub fn free(mut self) -> Result<()> {
        self.release()
    }

    /// The machine that the memory is of.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pagewise::resource::{Allocation, PinnedMemoryResource};
    /// # use pagewise::{Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = Arc::new(PinnedMemoryResource::direct(&machine));
    /// let bytes = Allocation::new(resource, 8, &Stream::legacy_default(&machine))?;
    /// assert_eq!(bytes.machine(), &machine);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    #[must_use]
    pub fn machine(&self) -> &Machine {
        self.resource.machine()
    }

    /// Waits, on the host, for the present work of the stream on which the bytes were allocated.
    /// After it the host may use them.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pagewise::resource::{Allocation, PinnedMemoryResource};
    /// # use pagewise::{Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let resource = Arc::new(PinnedMemoryResource::current_pool(&machine)?);
    /// let bytes = Allocation::new(resource, 8, &Stream::legacy_default(&machine))?;
    /// bytes.wait()?;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn wait(&self) -> Result<()> {
        self.stream.as_ref().map_or(Ok(()), Stream::synchronize)
    }

    /// Makes another stream wait for the allocation. The free does not wait for that stream:
    /// [`free_after`](Self::free_after) does.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for a stream of another machine; as [`Stream::wait_for`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pagewise::resource::{Allocation, DeviceMemoryResource};
    /// # use pagewise::{Device, Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let (first, second) =
    ///     (Stream::new(&machine, Device::FIRST)?, Stream::new(&machine, Device::FIRST)?);
    /// let resource = Arc::new(DeviceMemoryResource::current_pool(&machine, Device::FIRST)?);
    /// let bytes = Allocation::new(resource, 8, &first)?;
    /// bytes.use_on(&second)?;
    /// // Launch kernels that use them on the second stream here.
    /// bytes.free_after(&second);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn use_on(&self, stream: &Stream) -> Result<()> {
        self.machine().check_stream("use_on", stream)?;
        self.stream.as_ref().map_or(Ok(()), |own| stream.wait_for(own))
    }

    /// Frees the bytes on their stream, after the present work of another one. If that work cannot
    /// be waited for, the bytes stay allocated, because it may still use them, and the failure
    /// counts in [`Machine::failures_on_drop`]. See [`use_on`](Self::use_on).
    pub fn free_after(mut self, other: &Stream) {
        let machine = self.machine().clone();
        machine.on_drop(|| {
            let waits = self.stream.as_ref().map_or(Ok(()), |own| own.follow(other));
            waits.inspect_err(|_| self.stream = None)
        });
    }

    /// Makes the bytes go back on another stream, as [`set_stream`](Self::set_stream) but without a
    /// wait: for code that moves many allocations and waits once.
    ///
    /// # Safety
    /// `stream` is of the same machine, and has been made to wait for the present work of the
    /// stream that the bytes would have gone back on.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pagewise::resource::{Allocation, DeviceMemoryResource};
    /// # use pagewise::{Device, Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let (first, second) =
    ///     (Stream::new(&machine, Device::FIRST)?, Stream::new(&machine, Device::FIRST)?);
    /// let resource = Arc::new(DeviceMemoryResource::current_pool(&machine, Device::FIRST)?);
    /// let mut bytes = Allocation::new(resource, 8, &first)?;
    /// second.wait_for(&first)?;
    /// // SAFETY: the new stream has to come after all work on the bytes, and `second` waits for
    /// // `first`.
    /// unsafe { bytes.set_stream_unchecked(&second) };
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub unsafe fn set_stream_unchecked(&mut self, stream: &Stream) {
        if self.stream.is_some() {
            self.stream = Some(stream.clone());
        }
    }

    /// Whether a resource itself gave the bytes, not an adaptor around it.
    pub(super) fn is_of<R: MemoryResource>(&self, resource: &R) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.resource), std::ptr::from_ref(resource))
    }

    /// The resource gave the bytes another range.
    pub(super) fn becomes(&mut self, ptr: DevicePtr, bytes: u64) {
        self.span = Span::new(ptr, bytes);
    }

    fn release(&mut self) -> Result<()> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        // SAFETY: this value owns the bytes, which came from the resource, and gives them back
        // once. Device work that got the address came through an `unsafe` call, which promised that
        // the work comes before in this stream.
        unsafe { self.resource.deallocate(self.span.ptr, self.span.bytes, &stream) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let machine = self.machine().clone();
        machine.on_drop(|| self.release());
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Allocation({}, {:?})", self.span, self.memory_kind())
    }
}
