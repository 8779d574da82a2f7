//! Memory resources: who hands memory out, in stream order.
//!
//! A [`MemoryResource`] gives and takes bytes. [`ManagedMemoryResource`], [`PinnedMemoryResource`]
//! and [`DeviceMemoryResource`] get them from the back end, directly or from a [`Pool`]; adaptors
//! put something around any of them:
//!
//! | adaptor | what it does |
//! | --- | --- |
//! | [`Statistics`] | counts bytes and allocations: current, peak, total |
//! | [`Limit`] | refuses to give more than so many bytes at once |
//! | [`ReplayLog`] | writes each event as a line that RMM's replay benchmark reads |
//! | [`Failing`] | fails where a test wants it to |
//! | [`PrefetchOnAllocate`] | prefetches what it gives |
//! | [`SubAllocator`] | cuts many small pieces out of few large ones |
//!
//! Memory is held by an [`Allocation`], or typed by
//! [`ManagedBuffer::from_resource`](crate::ManagedBuffer::from_resource); both give it back on the
//! stream that they were made on.
//!
//! ```
//! use std::sync::Arc;
//! use pagewise::resource::{Limit, ManagedMemoryResource, Statistics};
//! use pagewise::{Device, ErrorKind, Machine, ManagedBuffer, Stream};
//!
//! let machine = Machine::from(pagewise::sim()?);
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let pool = ManagedMemoryResource::new_pool(&machine, Some(Device::FIRST.into()))?;
//! let resource = Arc::new(Statistics::new(Limit::new(pool, 1 << 20)));
//! let buffer = ManagedBuffer::<f32>::from_resource(resource.clone(), 1000, &stream)?;
//! assert_eq!(resource.counters().bytes.current, 4000);
//! let error = ManagedBuffer::<u8>::from_resource(resource.clone(), 1 << 20, &stream).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::OutOfMemory);
//! drop(buffer);
//! assert_eq!(resource.counters().bytes.current, 0);
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! # Source
//! Stream-ordered allocation of CUDA 12.0 to 13.5; figures and refusals of pools are those of
//! `docs/driver/contract.md` in the repository, CONTRACT-80 to CONTRACT-93.

mod allocation;
mod device;
mod failing;
#[cfg(unix)]
pub mod ipc;
mod limit;
mod log;
mod managed;
mod peers;
mod pinned;
mod pool;
mod prefetching;
mod statistics;
mod sub_allocator;

use std::fmt::Debug;
use std::sync::Arc;

use pagewise_hal::{Backend, DevicePtr, Error, Result};

use crate::refuse::invalid;
use crate::{Machine, Stream};

pub use allocation::Allocation;
pub use device::DeviceMemoryResource;
pub use failing::Failing;
#[cfg(unix)]
pub use ipc::{AllocationHandle, BufferDescriptor};
pub use limit::Limit;
pub use log::ReplayLog;
pub use managed::ManagedMemoryResource;
pub use peers::PeerAccess;
pub use pinned::PinnedMemoryResource;
pub use pool::{Pool, PoolFigures, PoolOptions};
pub use prefetching::PrefetchOnAllocate;
pub use statistics::{Counter, ResourceCounters, Statistics};
pub use sub_allocator::SubAllocator;

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
    /// Whether the host reaches it by its address.
    ///
    /// ```
    /// assert!(pagewise::resource::MemoryKind::Pinned.is_host_accessible());
    /// ```
    #[must_use]
    pub const fn is_host_accessible(self) -> bool {
        matches!(self, Self::Managed | Self::Pinned)
    }
}

/// Gives memory and takes it back, in stream order.
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
/// // SAFETY: nobody has used the memory.
/// unsafe { resource.deallocate(ptr, 4096, &stream)? };
/// # Ok::<(), pagewise::Error>(())
/// ```
///
/// # Safety
/// Implementations promise: an address that [`allocate`](Self::allocate) returns is memory of
/// [`memory_kind`](Self::memory_kind) of that machine, of at least so many bytes, shared with no
/// other allocation, valid in the order of the stream until it is given back. Its first byte is
/// aligned to 256 bytes. If a machine's addresses are not the host's
/// ([`HostViews::Absent`](crate::HostViews)) they are numbers that no code follows.
pub unsafe trait MemoryResource: Debug + Send + Sync + 'static {
    /// The machine that the memory is of.
    fn machine(&self) -> &Machine;

    /// The kind of memory.
    fn memory_kind(&self) -> MemoryKind;

    /// Gives `bytes` bytes, to be used by work of `stream` and by whatever waits for that. What
    /// they hold is up to the back end.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for 0 bytes or a stream of another machine; `OutOfMemory` (2,
    /// or no CUDA code from an adaptor).
    fn allocate(&self, bytes: u64, stream: &Stream) -> Result<DevicePtr>;

    /// Takes back what [`allocate`](Self::allocate) gave, once the present work of `stream` is
    /// done.
    ///
    /// # Errors
    /// Of the back end. The memory counts as given back all the same.
    ///
    /// # Safety
    /// `ptr` and `bytes` are of one call of `allocate` on this resource, not given back before; no
    /// work but what is in the order of `stream` before this call uses the memory.
    unsafe fn deallocate(&self, ptr: DevicePtr, bytes: u64, stream: &Stream) -> Result<()>;
}

// SAFETY: it is the same resource.
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
        // SAFETY: it is the same resource, and the caller promised it what it asks for.
        unsafe { (**self).deallocate(ptr, bytes, stream) }
    }
}

const ALLOCATE: &str = "allocate";

/// Refuses what every resource refuses before the back end is asked.
fn check_request(machine: &Machine, bytes: u64, stream: &Stream) -> Result<()> {
    if bytes == 0 {
        return Err(invalid(ALLOCATE, "give at least one byte"));
    }
    machine.check_stream(ALLOCATE, stream)
}

/// Allocates in stream order from a pool, if there is one, else by a call of its own.
fn allocate_from(
    pool: Option<&Pool>,
    machine: &Machine,
    bytes: u64,
    stream: &Stream,
    direct: impl FnOnce(&dyn Backend) -> Result<DevicePtr>,
) -> Result<DevicePtr> {
    if let Some(pool) = pool {
        return pool.allocate(bytes, stream);
    }
    check_request(machine, bytes, stream)?;
    direct(machine.backend())
}

/// Gives back what [`allocate_from`] gave: in stream order, or by a call of its own once the work
/// of the stream is done, also if that failed.
///
/// # Safety
/// The memory is the pool's, if there is one; only work in the stream uses it.
unsafe fn deallocate_to(
    pool: Option<&Pool>,
    ptr: DevicePtr,
    stream: &Stream,
    direct: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if let Some(pool) = pool {
        // SAFETY: the memory came from this pool; the caller promised that no work but the stream's
        // uses it.
        return unsafe { pool.deallocate(ptr, stream) };
    }
    let waited = stream.synchronize();
    let freed = direct();
    waited.and(freed)
}

/// A refusal of an adaptor: the driver was not asked.
fn out_of_memory(why: String) -> Error {
    Error::new(ALLOCATE, pagewise_hal::ErrorKind::OutOfMemory).with_detail(why)
}
