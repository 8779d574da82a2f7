//! A byte limit around a memory resource.

use std::sync::atomic::{AtomicU64, Ordering};

use pagewise_hal::{DevicePtr, Result};

use super::memory_resource::{MemoryKind, MemoryResource, out_of_memory};
use crate::{Machine, Stream};

/// A byte limit around a memory resource: it refuses requests that would pass the limit.
///
/// ```
/// use pagewise::resource::{Limit, ManagedMemoryResource, MemoryResource};
/// use pagewise::{ErrorKind, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let resource = Limit::new(ManagedMemoryResource::direct(&machine), 100);
/// let stream = Stream::legacy_default(&machine);
/// let ptr = resource.allocate(60, &stream)?;
/// let error = resource.allocate(41, &stream).unwrap_err();
/// assert_eq!((error.kind(), error.code()), (ErrorKind::OutOfMemory, None));
/// // SAFETY: no work uses the memory.
/// unsafe { resource.deallocate(ptr, 60, &stream)? };
/// assert_eq!(resource.used_bytes(), 0);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct Limit<R> {
    inner: R,
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

impl<R: MemoryResource> Limit<R> {
    /// Limits what a resource gives from now on.
    pub fn new(inner: R, limit_bytes: u64) -> Self {
        Self { inner, limit_bytes, used_bytes: AtomicU64::new(0) }
    }

    /// The limit.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes given and not taken back.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

// SAFETY: a resource has to give memory of its promised size and alignment, to one owner at a time;
// the inner resource gives it and made that promise.
unsafe impl<R: MemoryResource> MemoryResource for Limit<R> {
    fn machine(&self) -> &Machine {
        self.inner.machine()
    }

    fn memory_kind(&self) -> MemoryKind {
        self.inner.memory_kind()
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        let room = |used: u64| used.checked_add(bytes).filter(|&after| after <= self.limit_bytes);
        // The bytes are taken first, so that two threads cannot pass the limit together.
        let taken = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        if let Err(used) = taken {
            return Err(out_of_memory(format!(
                "{bytes} bytes more than the {used} in use would pass the limit of {}",
                self.limit_bytes
            )));
        }
        let answer = self.inner.allocate(bytes, stream);
        if answer.is_err() {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        answer
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, bytes: u64, stream: &Stream) -> Result<()> {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: the memory came from the inner resource with the same size, and the caller
        // promised that no other work uses it.
        unsafe { self.inner.deallocate(ptr, bytes, stream) }
    }
}
