//! A resource that prefetches memory when it gives it out.

use pagewise_hal::{DevicePtr, Result, Span};

use super::memory_resource::{MemoryKind, MemoryResource};
use crate::refuse::unsupported;
use crate::{Machine, Place, Stream};

/// A resource of managed memory that prefetches each allocation, on the stream of the request.
///
/// ```
/// use std::sync::Arc;
/// use pagewise::resource::{ManagedMemoryResource, PrefetchOnAllocate};
/// use pagewise::{Device, Machine, ManagedBuffer, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let to = Device::FIRST;
/// let resource = PrefetchOnAllocate::new(ManagedMemoryResource::direct(&machine), to)?;
/// let stream = Stream::new(&machine, to)?;
/// let buffer = ManagedBuffer::<u8>::from_resource(Arc::new(resource), 2 << 20, &stream)?;
/// assert_eq!(buffer.last_prefetch_location()?, Some(to.into()));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct PrefetchOnAllocate<R> {
    inner: R,
    to: Place,
}

impl<R: MemoryResource> PrefetchOnAllocate<R> {
    /// Prefetches each allocation of a resource from now on.
    ///
    /// # Errors
    /// Without a CUDA code: `Unsupported` for memory that is not managed, or a NUMA node before
    /// CUDA 12.2; `InvalidDevice` for a device that does not exist.
    ///
    /// ```
    /// # use pagewise::{Device, Machine, resource::{DeviceMemoryResource, PrefetchOnAllocate}};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let device = DeviceMemoryResource::direct(&machine, Device::FIRST)?;
    /// assert!(PrefetchOnAllocate::new(device, Device::FIRST).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn new(inner: R, to: impl Into<Place>) -> Result<Self> {
        const OPERATION: &str = "prefetch on allocate";
        let to = to.into();
        if inner.memory_kind() != MemoryKind::Managed {
            return Err(unsupported(OPERATION, "only managed memory can be prefetched"));
        }
        inner.machine().check_place(OPERATION, to)?;
        Ok(Self { inner, to })
    }
}

// SAFETY: a resource has to give memory of its promised size and alignment, to one owner at a time;
// the inner resource gives it and made that promise.
unsafe impl<R: MemoryResource> MemoryResource for PrefetchOnAllocate<R> {
    fn machine(&self) -> &Machine {
        self.inner.machine()
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Managed
    }

    /// If the prefetch fails, the memory is given back, and the prefetch's error is returned.
    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        let ptr = self.inner.allocate(bytes, stream)?;
        let sent = self.machine().prefetch(Span::new(ptr, bytes), self.to, stream.raw());
        if let Err(error) = sent {
            // SAFETY: the memory was given just now, and no other code has its address.
            self.machine().on_drop(|| unsafe { self.inner.deallocate(ptr, bytes, stream) });
            return Err(error);
        }
        Ok(ptr)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, bytes: u64, stream: &Stream) -> Result<()> {
        // SAFETY: the memory came from the inner resource with the same size, and the caller
        // promised that no other work uses it.
        unsafe { self.inner.deallocate(ptr, bytes, stream) }
    }
}
