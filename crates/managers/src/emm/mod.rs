//! External memory managers: the memory of a context comes from an object behind one interface.
//!
//! CUDA Python lets a library bring its own memory manager. Here is that interface,
//! [`ExternalMemoryManager`], with what it needs around it:
//!
//! | you want | look at |
//! | --- | --- |
//! | a manager | [`ResourceManager`]: over the driver's calls, or over any [resource](pagewise::resource) |
//! | to write one | [`HostOnlyManager`], which has the host half and the bookkeeping |
//! | to know whether it is right | [`check_conformance`], [`OrderChecker`] |
//! | to use one | [`Contexts::set_memory_manager`], [`Contexts::enter`] |
//! | memory on the host, filled memory | [`MemoryPointer::read`], [`write`](MemoryPointer::write), [`fill`](MemoryPointer::fill) |
//! | memory for another process | [`IpcHandle`], [`IpcDescriptor`] |
//! | memory in stream order, managed memory with its place | [`StreamOrderedManager`] |
//! | deallocations that wait | [`PendingDeallocations`] |
//!
//! ```
//! use pagewise_managers::emm::{Contexts, HostOptions};
//! use pagewise::{Device, Machine};
//!
//! let machine = Machine::from(pagewise::sim()?);
//! let contexts = Contexts::new(&machine);
//! let manager = contexts.enter(Device::FIRST)?;
//! let device = manager.memalloc(1 << 20)?;
//! let staging = manager.memhostalloc(1 << 20, HostOptions::default())?;
//! let deferred = manager.defer_cleanup();
//! drop((device, staging));
//! deferred.end()?;
//! let kept = manager.memallocmanaged(4096, true)?;
//! let leaks = contexts.close()?;
//! assert_eq!(leaks[0].span, kept.span(), "what is out is named, and stays valid");
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! Finalizers, destructors and plug-ins are foreign code: they run without a lock held, and one that
//! panics is an error. Sizes are bytes.
//!
//! # Source
//! The external memory management interface of Numba's CUDA target, version 1, row by row in
//! `docs/parity-emm.md`.

mod access;
mod conformance;
mod context;
mod host_only;
mod host_view;
mod identity;
mod ipc;
mod ledger;
mod manager;
mod order;
mod pending;
mod pointer;

pub use conformance::{Finding, check_conformance};
pub use context::{Contexts, Plugin};
pub use host_only::{EmmOptions, GiveBack, HostOnlyManager, HostOptions, ManagedOptions};
pub use host_view::{HostView, HostViewMut};
pub use identity::DeviceIdentity;
pub use ipc::{IpcDescriptor, IpcHandle};
pub use ledger::Leak;
pub use manager::{
    ExternalMemoryManager, INTERFACE_VERSION, ResourceManager, StreamOrderedManager,
};
pub use order::OrderChecker;
pub use pending::{DeferCleanup, Destructor, PendingDeallocations, PendingLimits};
pub use pointer::{Finalizer, MemoryPointer, OwnedPointer, Owner, PointerKind};
