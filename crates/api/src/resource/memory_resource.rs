//! The contract of memory resources: memory is given and taken back in stream order.

use std::fmt::Debug;
use std::sync::Arc;

use pagewise_hal::{DevicePtr, Error, Result};

use crate::refuse::invalid;
use crate::{Machine, Stream};

/// The kind of memory that a resource gives.
///
/// ```
/// use pagewise::resource::MemoryKind;
/// assert!(MemoryKind::Managed.is_host_accessible());
/// assert!(!MemoryKind::Device.is_host_accessible());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum MemoryKind {
    /// Managed: pages move to the processors that use them.
    Managed,
    /// Page-locked host memory.
    Pinned,
    /// Memory of one device.
    Device,
}

impl MemoryKind {
    /// Whether the host reaches such memory by its address.
    #[must_use]
    pub const fn is_host_accessible(self) -> bool {
        matches!(self, Self::Managed | Self::Pinned)
    }
}

/// An allocator that gives memory and takes it back, in stream order.
///
/// ```
/// use pagewise::resource::{ManagedMemoryResource, MemoryKind, MemoryResource};
/// use pagewise::{Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let resource = ManagedMemoryResource::direct(&machine);
/// assert_eq!(resource.memory_kind(), MemoryKind::Managed);
/// let stream = Stream::legacy_default(&machine);
/// let ptr = resource.allocate(4096, &stream)?;
/// // SAFETY: no work uses the memory.
/// unsafe { resource.deallocate(ptr, 4096, &stream)? };
/// # Ok::<(), pagewise::Error>(())
/// ```
///
/// # Safety
/// An implementation promises that an address which [`allocate`](Self::allocate) returns is memory
/// of [`memory_kind`](Self::memory_kind) of that machine. The memory has at least as many bytes as
/// requested, is shared with no other allocation, and is valid in the order of the stream until it
/// is given back. Its first byte is aligned to 256 bytes. If a machine's addresses are not the
/// host's ([`HostViews::Absent`](crate::HostViews)), they are numbers that no code dereferences.
pub unsafe trait MemoryResource: Debug + Send + Sync + 'static {
    /// The machine that the memory is of.
    fn machine(&self) -> &Machine;

    /// The kind of memory.
    fn memory_kind(&self) -> MemoryKind;

    /// Gives `bytes` bytes, to be used by work of `stream` and by work that waits for it. Their
    /// contents are up to the back end.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for 0 bytes or a stream of another machine; `OutOfMemory` (2,
    /// or no CUDA code from an adaptor).
    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr>;

    /// Takes memory of [`allocate`](Self::allocate) back, once the present work of `stream` is
    /// done.
    ///
    /// # Errors
    /// Errors of the back end. The memory counts as given back all the same.
    ///
    /// # Safety
    /// `ptr` and `bytes` are of one call of `allocate` on this resource, not given back before; no
    /// work but what is in the order of `stream` before this call uses the memory.
    unsafe fn deallocate(&self, ptr: DevicePtr, bytes: u64, stream: &Stream) -> Result<()>;
}

// SAFETY: a resource has to give memory of its promised size and alignment, to one owner at a time;
// the resource in the `Arc` gives it and made that promise.
unsafe impl<R: MemoryResource + ?Sized> MemoryResource for Arc<R> {
    fn machine(&self) -> &Machine {
        (**self).machine()
    }

    fn memory_kind(&self) -> MemoryKind {
        (**self).memory_kind()
    }

    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr> {
        (**self).allocate(bytes, stream)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr, bytes: u64, stream: &Stream) -> Result<()> {
        // SAFETY: the resource in the `Arc` gave the memory, and its `deallocate` asks for what the
        // caller of this one promised.
        unsafe { (**self).deallocate(ptr, bytes, stream) }
    }
}

const ALLOCATE: &str = "allocate";

/// Refuses requests that every resource refuses before the back end is asked.
pub(super) fn check_request(machine: &Machine, bytes: u64, stream: &Stream) -> Result<()> {
    if bytes == 0 {
        return Err(invalid(ALLOCATE, "give at least one byte"));
    }
    machine.check_stream(ALLOCATE, stream)
}

/// An out-of-memory error of an adaptor, without a CUDA code because the driver was not asked.
pub(super) fn out_of_memory(why: String) -> Error {
    Error::new(ALLOCATE, pagewise_hal::ErrorKind::OutOfMemory).with_detail(why)
}
