//! Failures of a resource, on demand.

use pagewise_hal::{DevicePtr, Result};

use super::memory_resource::{MemoryKind, MemoryResource};
use crate::inject::{Fault, Injector};
use crate::intercept::{Call, Interceptor, Operation};
use crate::{Machine, Stream};

/// A resource that fails at the requests that a test chooses: the n-th allocation, those of a size,
/// or random ones from a seed.
///
/// Allocations ask as [`Operation::PoolAlloc`], giving back as [`Operation::FreeAsync`]. Memory
/// stays allocated if giving it back fails. To fail a driver's calls instead, and for a sweep over
/// all of them, see [`inject`](crate::inject).
///
/// ```
/// use pagewise::inject::Fault;
/// use pagewise::resource::{Failing, ManagedMemoryResource, MemoryResource};
/// use pagewise::{Code, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let resource = Failing::new(ManagedMemoryResource::direct(&machine));
/// resource.arm(Fault::new(Code::OUT_OF_MEMORY).at_least(1 << 20).always());
/// let stream = Stream::legacy_default(&machine);
/// assert!(resource.allocate(100, &stream).is_ok());
/// let error = resource.allocate(1 << 20, &stream).unwrap_err();
/// assert_eq!(error.code(), Some(Code::OUT_OF_MEMORY));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct Failing<R> {
    inner: R,
    injector: Injector,
}

impl<R: MemoryResource> Failing<R> {
    /// Puts one around a resource. No fault is armed.
    pub fn new(inner: R) -> Self {
        Self { inner, injector: Injector::default() }
    }

    /// Adds a fault. It counts requests from now on.
    pub fn arm(&self, fault: Fault) {
        self.injector.arm(fault);
    }

    /// Takes all faults away.
    pub fn disarm(&self) {
        self.injector.disarm();
    }

    /// How many requests there were, to allocate and to give back.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.injector.calls()
    }
}

// SAFETY: a resource has to give memory of its promised size and alignment, to one owner at a time;
// the inner resource gives it and made that promise.
unsafe impl<R: MemoryResource> MemoryResource for Failing<R> {
    fn machine(&self) -> &Machine {
        self.inner.machine()
    }

    fn memory_kind(&self) -> MemoryKind {
        self.inner.memory_kind()
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        let call = Call::made_here(Operation::PoolAlloc).bytes(bytes);
        self.injector.around(&call, || self.inner.allocate(bytes, stream))
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, bytes: u64, stream: &Stream) -> Result<()> {
        let call = Call::made_here(Operation::FreeAsync).bytes(bytes);
        // SAFETY: the memory came from the inner resource with the same size, and the caller
        // promised that no other work uses it.
        self.injector.around(&call, || unsafe { self.inner.deallocate(ptr, bytes, stream) })
    }
}
