//! Memory resources: allocators that give memory out in stream order.
//!
//! A [`MemoryResource`] gives and takes bytes. [`ManagedMemoryResource`], [`PinnedMemoryResource`]
//! and [`DeviceMemoryResource`] get them from the back end, directly or from a [`Pool`]. A
//! [`VirtualMemoryResource`] maps physical memory, so that allocations can grow. Adaptors put
//! something around any of them:
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
#[cfg(unix)]
mod descriptor;
mod device;
mod failing;
#[cfg(unix)]
pub mod ipc;
mod limit;
mod log;
mod managed;
mod memory_resource;
mod peers;
mod pinned;
mod pool;
mod pooled;
mod prefetching;
#[cfg(unix)]
mod shared;
mod statistics;
mod sub_allocator;
mod virtual_memory;
mod virtual_parts;

pub use allocation::Allocation;
#[cfg(unix)]
pub use descriptor::{AllocationHandle, BufferDescriptor};
pub use device::DeviceMemoryResource;
pub use failing::Failing;
pub use limit::Limit;
pub use log::ReplayLog;
pub use managed::ManagedMemoryResource;
pub use memory_resource::{MemoryKind, MemoryResource};
pub use peers::PeerAccess;
pub use pinned::PinnedMemoryResource;
pub use pool::{Pool, PoolFigures, PoolOptions};
pub use prefetching::PrefetchOnAllocate;
pub use statistics::{Counter, ResourceCounters, Statistics};
pub use sub_allocator::SubAllocator;
pub use virtual_memory::{VirtualMemoryResource, VirtualOptions};
pub use virtual_parts::Growth;
