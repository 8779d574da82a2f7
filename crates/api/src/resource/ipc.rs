//! Pools and their memory for other processes, over file descriptors.
//!
//! The exporter makes a resource with a pool for export, sends its [`AllocationHandle`] (a
//! descriptor and an id) to another process, and for each allocation a [`BufferDescriptor`] (bytes).
//! The importer makes a *mapped* resource of the first and imports allocations with the second. A
//! registry by id gives each process one resource per pool, however often its handle arrives.
//!
//! ```
//! use std::sync::Arc;
//! use pagewise::resource::{Allocation, BufferDescriptor, DeviceMemoryResource, PoolOptions};
//! use pagewise::{Device, HandleTypes, Machine, Stream};
//!
//! let machine = Machine::from(pagewise::sim()?);
//! let stream = Stream::new(&machine, Device::FIRST)?;
//! let options =
//!     PoolOptions { handle_types: HandleTypes::POSIX_FILE_DESCRIPTOR, ..PoolOptions::default() };
//! let pool = Arc::new(DeviceMemoryResource::new_pool(&machine, Device::FIRST, options)?);
//! let memory = Allocation::new(pool.clone(), 4096, &stream)?;
//! let (handle, sent) = (pool.allocation_handle()?, memory.descriptor()?.to_bytes());
//!
//! // In the other process. A simulated machine also imports its own pools, as here.
//! let mapped = DeviceMemoryResource::from_allocation_handle(&machine, handle)?;
//! assert!(mapped.is_mapped());
//! let imported = mapped.import(&BufferDescriptor::from_bytes(&sent)?, &stream)?;
//! assert_eq!(imported.span(), memory.span());
//! imported.free()?; // before the exporter frees it
//! memory.free()?;
//! # Ok::<(), pagewise::Error>(())
//! ```
//!
//! # Source
//! cuda.core 1.2 for what is offered; probes on driver 580 with two processes for what the driver
//! does: an imported pool allocates nothing and has no attributes; memory on a device that is
//! imported twice is one mapping that one free ends, memory on the host is refused the second time.
//! So allocations are counted here. A pool that its own process imports makes driver 580 crash; it
//! is refused here.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pagewise_hal::{
    AccessFlags, HandleTypes, HostViews, Location, PointerAttribute, Result, ShareableHandle, Span,
};
use uuid::Uuid;

use super::allocation::Allocation;
use super::memory_resource::MemoryResource;
use super::pool::Pool;
use super::shared::{Imports, Shared};
use crate::refuse::{invalid, unsupported};
use crate::{Machine, Stream};

pub use super::descriptor::{AllocationHandle, BufferDescriptor};

// ---- the process ----------------------------------------------------------------------------

/// The pools that the process knows, by their ids.
#[derive(Debug, Default)]
struct Registry {
    /// Resources, exporters' and importers'.
    known: BTreeMap<Uuid, Weak<dyn Any + Send + Sync>>,
    /// Pools that this process exported.
    own: BTreeSet<Uuid>,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { known: BTreeMap::new(), own: BTreeSet::new() });

/// A panic elsewhere leaves a map of ids as good as it was.
fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A resource that can stand for an imported pool.
pub(super) trait Mapped: Any + Send + Sync + Sized {
    /// The name of this kind of resource, for errors about ids.
    const NAME: &'static str;

    /// The resource of an imported pool.
    fn of_import(machine: &Machine, pool: Pool) -> Result<Self>;

    fn the_pool(&self) -> Option<&Pool>;
}

/// The methods of every resource that is [`Mapped`].
macro_rules! shared_with_other_processes {
    ($resource:ident) => {
        impl $resource {
            /// A handle from which another process makes a mapped resource. See the
            /// [module](super::ipc).
            ///
            /// # Errors
            /// `Unsupported` (no CUDA code) if the resource has no pool or one that was not made for
            /// export; as [`Backend::pool_export`](crate::Backend::pool_export).
            pub fn allocation_handle(&self) -> Result<AllocationHandle> {
                ipc::allocation_handle(self)
            }

            /// The resource of another process's pool: the one that this process knows under its id, or a
            /// new, mapped one, which is registered. It allocates nothing; see [`import`](Self::import).
            ///
            /// # Errors
            /// `InvalidValue` (no CUDA code) if the registry holds another kind of resource under the id;
            /// `Unsupported` (no CUDA code) if this process exported the pool and the back end cannot
            /// import it; as [`Backend::pool_import`](crate::Backend::pool_import).
            pub fn from_allocation_handle(
                machine: impl Into<Machine>,
                handle: AllocationHandle,
            ) -> Result<Arc<Self>> {
                ipc::from_allocation_handle(&machine.into(), handle)
            }

            /// Makes the resource known under its pool's id, in this process, for as long as it lives.
            /// Another that is known already stays.
            ///
            /// # Errors
            /// As [`allocation_handle`](Self::allocation_handle), but for the driver's.
            pub fn register(self: &Arc<Self>) -> Result<Uuid> {
                ipc::register(self)
            }

            /// The resource that is known under an id.
            ///
            /// # Errors
            /// `InvalidValue` (no CUDA code) if there is none, or one of another kind.
            pub fn from_registry(uuid: Uuid) -> Result<Arc<Self>> {
                ipc::from_registry(uuid)
            }

            /// Whether the pool is another process's.
            #[must_use]
            pub fn is_mapped(&self) -> bool {
                self.pool().is_some_and(Pool::is_mapped)
            }

            /// An allocation of another process, which frees it after this one is freed. Importing it twice
            /// is safe: both are the same memory, and the last one ends the import.
            ///
            /// # Errors
            /// `InvalidValue` (no CUDA code) if the resource is not mapped, if the descriptor says more
            /// bytes than the allocation has, for a stream of another machine; as
            /// [`Backend::pool_import_pointer`](crate::Backend::pool_import_pointer).
            pub fn import(
                self: &Arc<Self>,
                descriptor: &BufferDescriptor,
                stream: &Stream,
            ) -> Result<Allocation> {
                ipc::import(self, descriptor, stream)
            }
        }
    };
}
pub(super) use shared_with_other_processes;

/// The pool of a resource, if it can be exported.
fn exportable<R: Mapped>(resource: &R) -> Result<&Pool> {
    resource.the_pool().filter(|pool| pool.shared.is_exportable).ok_or_else(|| {
        let why = "the resource's pool was not made for export: make it with \
                   `HandleTypes::POSIX_FILE_DESCRIPTOR`";
        unsupported("export pool", why)
    })
}

pub(super) fn allocation_handle<R: Mapped>(resource: &R) -> Result<AllocationHandle> {
    let pool = exportable(resource)?;
    let machine = pool.machine();
    if machine.host_views() == HostViews::Absent {
        let why = "this back end does not promise that descriptors are real: see `HostAddresses`";
        return Err(unsupported("export pool", why));
    }
    let shared =
        machine.backend().pool_export(pool.handle(), HandleTypes::POSIX_FILE_DESCRIPTOR)?;
    // SAFETY: the descriptor has to be open and this value's to close. The call made it for its
    // caller, by the back end's promise (`HostAddresses`) that was asked for above.
    let descriptor = unsafe { OwnedFd::from_raw_fd(shared.0) };
    let uuid = pool.shared.uuid_for_export();
    registry().own.insert(uuid);
    Ok(AllocationHandle { descriptor, uuid })
}

pub(super) fn register<R: Mapped>(resource: &Arc<R>) -> Result<Uuid> {
    let mapped = resource.the_pool().filter(|pool| pool.is_mapped());
    let pool = mapped.map_or_else(|| exportable(&**resource), Ok)?;
    let uuid = pool.shared.uuid_for_export();
    let known = Arc::downgrade(resource) as Weak<dyn Any + Send + Sync>;
    let mut registry = registry();
    registry.known.retain(|_, resource| resource.strong_count() > 0);
    registry.known.entry(uuid).or_insert(known);
    Ok(uuid)
}

/// The resource under an id, if there is one; an error if it is of another kind.
fn lookup<R: Mapped>(uuid: Uuid) -> Result<Option<Arc<R>>> {
    let found = registry().known.get(&uuid).and_then(Weak::upgrade);
    let Some(found) = found else { return Ok(None) };
    found.downcast().map(Some).map_err(|_| {
        let why = format!("the registry holds another kind of resource under {uuid}");
        invalid("registry", format!("{why} than {}", R::NAME))
    })
}

pub(super) fn from_registry<R: Mapped>(uuid: Uuid) -> Result<Arc<R>> {
    lookup(uuid)?.ok_or_else(|| {
        let why = format!("no live resource is registered under {uuid}: import its handle");
        invalid("registry", why)
    })
}

pub(super) fn from_allocation_handle<R: Mapped>(
    machine: &Machine,
    handle: AllocationHandle,
) -> Result<Arc<R>> {
    const OPERATION: &str = "import pool";
    if let Some(known) = lookup(handle.uuid)? {
        return Ok(known);
    }
    let is_own = registry().own.contains(&handle.uuid);
    if is_own && !machine.capabilities().pool_self_import {
        let why = "this process exported the pool, and drivers do not survive importing it where \
                   it was exported: use the resource, or `register` it";
        return Err(unsupported(OPERATION, why));
    }
    let shared = ShareableHandle(handle.descriptor.as_raw_fd());
    // SAFETY: the back end asks for a descriptor of another process, unless it imports its own; it
    // was checked above that one of both holds.
    let imported =
        unsafe { machine.backend().pool_import(shared, HandleTypes::POSIX_FILE_DESCRIPTOR)? };
    let pool = Pool::imported(machine, imported, Shared::of_import(handle.uuid));
    let resource = Arc::new(R::of_import(machine, pool)?);
    register(&resource)?;
    Ok(resource)
}

// ---- pools ----------------------------------------------------------------------------------

/// Whether a place reaches an imported pool's memory without having been let in: where it is.
pub(super) fn is_home(pool: &Pool, location: Location) -> Result<bool> {
    let access = pool.machine().backend().pool_access(pool.handle(), location)?;
    Ok(access == AccessFlags::READ_WRITE)
}

pub(super) fn wrong_kind<T>(expected: &str) -> Result<T> {
    let why = format!("the handle is of a pool of another kind of memory, not of {expected}");
    Err(invalid("import pool", why))
}

// ---- imported memory ------------------------------------------------------------------------

/// An allocation, imported now or before.
fn take(
    imports: &Imports,
    pool: &Pool,
    descriptor: &BufferDescriptor,
    stream: &Stream,
) -> Result<Span> {
    let backend = pool.machine().backend();
    let mut held = imports.locked();
    let payload = descriptor.payload;
    let (ptr, count) = match held.get(&payload.0) {
        Some(&(ptr, count)) => (ptr, count),
        // SAFETY: the exporter has to allocate before the import and free after it. This process
        // cannot check that; the documentation of `import` asks it of the exporter.
        None => (unsafe { backend.pool_import_pointer(pool.handle(), payload)? }, 0),
    };
    let span = Span::new(ptr, descriptor.bytes);
    if let Err(error) = check_extent(pool, span) {
        if count == 0 {
            // SAFETY: the memory was imported above, and its address was given to no other code.
            pool.machine().on_drop(|| unsafe { backend.free_async(ptr, stream.raw()) });
        }
        return Err(error);
    }
    held.insert(payload.0, (ptr, count + 1));
    Ok(span)
}

pub(super) fn import<R: Mapped + MemoryResource>(
    resource: &Arc<R>,
    descriptor: &BufferDescriptor,
    stream: &Stream,
) -> Result<Allocation> {
    const OPERATION: &str = "import";
    let pool = resource.the_pool();
    let Some((pool, imports)) = pool.and_then(|pool| Some((pool, pool.shared.imports.as_ref()?)))
    else {
        let why = "the resource is not of another process: make it with `from_allocation_handle`";
        return Err(invalid(OPERATION, why));
    };
    pool.machine().check_stream(OPERATION, stream)?;
    let span = take(imports, pool, descriptor, stream)?;
    Ok(Allocation::adopt(Arc::<R>::clone(resource), span, stream))
}

/// A size that another process sent is not to be believed.
fn check_extent(pool: &Pool, span: Span) -> Result<()> {
    let backend = pool.machine().backend();
    let extent = backend.pointer_attribute(span.ptr, PointerAttribute::RANGE_SIZE)?;
    if (1..=extent).contains(&span.bytes) {
        return Ok(());
    }
    let why = format!("the descriptor says {} bytes, the allocation has {extent}", span.bytes);
    Err(invalid("import", why))
}
