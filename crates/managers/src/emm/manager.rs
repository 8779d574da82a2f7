//! The interface of managers, and a manager over any resource.

use std::fmt::Debug;
use std::sync::Arc;

use pagewise::refuse::unsupported;
use pagewise::resource::{DeviceMemoryResource, MemoryKind, MemoryResource};
use pagewise::{Device, Machine, MemoryInfo, Result, Span, Stream};

use super::host_only::{EmmOptions, GiveBack, HostOnlyManager, HostOptions, ManagedOptions};
use super::ipc::IpcHandle;
use super::ledger::Leak;
use super::pending::DeferCleanup;
use super::pointer::{MemoryPointer, Owner, PointerKind};

/// The version of the interface that managers must have.
pub const INTERFACE_VERSION: u32 = 1;

/// Gives the memory of a context. What CUDA Python calls an external memory manager.
///
/// The order of calls: [`reset`](Self::reset) at any time, [`initialize`](Self::initialize) before
/// anything is allocated and again whenever the context is entered, all else after that. Memory may
/// be given back after a reset. [`check_conformance`](super::check_conformance) tries all of it on
/// an implementation.
///
/// ```
/// use pagewise_managers::emm::{ExternalMemoryManager, EmmOptions, ResourceManager};
/// use pagewise::{Device, Machine};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let manager = ResourceManager::direct(&machine, Device::FIRST, EmmOptions::default())?;
/// manager.initialize()?;
/// let memory = manager.memalloc(1 << 20)?;
/// let info = manager.get_memory_info()?;
/// assert!(info.free_bytes <= info.total_bytes - (1 << 20));
/// drop(memory);
/// assert_eq!(manager.reset()?, []);
/// # Ok::<(), pagewise::Error>(())
/// ```
pub trait ExternalMemoryManager: Debug + Send + Sync + 'static {
    /// [`INTERFACE_VERSION`], for a manager that is to be used.
    fn interface_version(&self) -> u32;

    /// Makes it ready. Called each time that the context is entered: what it set up stays.
    ///
    /// # Errors
    /// Whatever keeps it from working.
    fn initialize(&self) -> Result<()>;

    /// Device memory.
    ///
    /// # Errors
    /// `InvalidValue` for 0 bytes or before [`initialize`](Self::initialize); `OutOfMemory`.
    fn memalloc(&self, bytes: u64) -> Result<MemoryPointer>;

    /// Page-locked host memory, of kind [`Mapped`](PointerKind::Mapped) or
    /// [`Pinned`](PointerKind::Pinned).
    ///
    /// # Errors
    /// As [`memalloc`](Self::memalloc).
    fn memhostalloc(&self, bytes: u64, options: HostOptions) -> Result<MemoryPointer>;

    /// Page-locks memory of `owner`'s until the pointer goes, at once and never later.
    ///
    /// # Errors
    /// As [`memalloc`](Self::memalloc); 712 if a page of it is locked already; `Unsupported` for
    /// mapped memory if the device cannot map host memory.
    ///
    /// # Safety
    /// The bytes must be ordinary host memory that stays while `owner` does.
    unsafe fn mempin(&self, owner: Owner, span: Span, mapped: bool) -> Result<MemoryPointer>;

    /// Managed memory, of kind [`Managed`](PointerKind::Managed).
    ///
    /// # Errors
    /// As [`memalloc`](Self::memalloc).
    fn memallocmanaged(&self, bytes: u64, attach_global: bool) -> Result<MemoryPointer>;

    /// A handle by which another process opens the memory, which stays while the handle does.
    ///
    /// # Errors
    /// `Unsupported` for memory that has no such handle: all but device memory.
    fn get_ipc_handle(&self, memory: &MemoryPointer) -> Result<IpcHandle>;

    /// Free and total memory.
    ///
    /// # Errors
    /// `Unsupported` if it does not know.
    fn get_memory_info(&self) -> Result<MemoryInfo>;

    /// Frees what waits to be freed and forgets the rest, which it names.
    ///
    /// # Errors
    /// Errors of the deallocations that it carried out.
    fn reset(&self) -> Result<Vec<Leak>>;

    /// Frees nothing until the answer goes.
    fn defer_cleanup(&self) -> DeferCleanup;
}

/// Additions to the interface: allocation in stream order, and managed memory with a place from the
/// start.
///
/// ```
/// use pagewise_managers::emm::{ExternalMemoryManager, ManagedOptions, EmmOptions, ResourceManager};
/// use pagewise_managers::emm::StreamOrderedManager;
/// use pagewise::{Device, Machine, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let manager = ResourceManager::direct(&machine, Device::FIRST, EmmOptions::default())?;
/// manager.initialize()?;
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// drop(manager.memalloc_on(1000, &stream)?);
/// assert_eq!(manager.base().deallocations().count(), 0, "it went in the order of the stream");
/// let place = ManagedOptions {
///     preferred_location: Some(Device::FIRST.into()),
///     ..ManagedOptions::default()
/// };
/// manager.memallocmanaged_with(4096, &place)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
pub trait StreamOrderedManager: ExternalMemoryManager {
    /// Device memory in the order of a stream, given back in it, never later.
    ///
    /// # Errors
    /// As [`memalloc`](ExternalMemoryManager::memalloc); `InvalidValue` for a stream of another
    /// machine.
    fn memalloc_on(&self, bytes: u64, stream: &Stream) -> Result<MemoryPointer>;

    /// Managed memory for every device, with advice; all of it is given, or there is no memory.
    ///
    /// # Errors
    /// As [`memallocmanaged`](ExternalMemoryManager::memallocmanaged) and
    /// [`Region::advise`](pagewise::Region::advise).
    fn memallocmanaged_with(&self, bytes: u64, options: &ManagedOptions) -> Result<MemoryPointer>;
}

/// A manager over any memory resource, or over the driver's own calls.
///
/// | made by | device memory | managed memory |
/// | --- | --- | --- |
/// | [`direct`](Self::direct) | `cuMemAlloc` | `cuMemAllocManaged` |
/// | [`over`](Self::over) a resource of device memory | the resource's | `cuMemAllocManaged` |
/// | [`over`](Self::over) a resource of managed memory | the resource's, which is managed | the resource's |
///
/// ```
/// use std::sync::Arc;
/// use pagewise_managers::emm::{ExternalMemoryManager, EmmOptions, PointerKind, ResourceManager};
/// use pagewise::resource::{ManagedMemoryResource, Statistics};
/// use pagewise::{Device, Machine};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let pool = Arc::new(Statistics::new(ManagedMemoryResource::new_pool(&machine, None)?));
/// let options = EmmOptions::default();
/// let manager = ResourceManager::over(pool.clone(), Device::FIRST, options)?;
/// manager.initialize()?;
/// let (one, two) = (manager.memalloc(100)?, manager.memallocmanaged(100, true)?);
/// assert_eq!(one.kind(), PointerKind::Managed);
/// assert_eq!(pool.counters().bytes.current, 200, "both came from the pool");
/// # let _ = two;
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug)]
pub struct ResourceManager {
    base: HostOnlyManager,
    resource: Arc<dyn MemoryResource>,
    stream: Stream,
}

impl ResourceManager {
    /// Over the driver's own calls.
    ///
    /// # Errors
    /// As [`DeviceMemoryResource::direct`] and [`HostOnlyManager::new`].
    pub fn direct(
        machine: impl Into<Machine>,
        device: Device,
        options: EmmOptions,
    ) -> Result<Self> {
        let resource = DeviceMemoryResource::direct(machine.into(), device)?;
        Self::over(Arc::new(resource), device, options)
    }

    /// Over a resource of device or managed memory.
    ///
    /// # Errors
    /// `Unsupported` (no CUDA code) for a resource of host memory; as [`HostOnlyManager::new`].
    pub fn over(
        resource: Arc<dyn MemoryResource>,
        device: Device,
        options: EmmOptions,
    ) -> Result<Self> {
        if resource.memory_kind() == MemoryKind::Pinned {
            let why = "the resource's memory is the host's: give one of device or managed memory";
            return Err(unsupported("external memory manager", why));
        }
        let base = HostOnlyManager::new(resource.machine(), device, options)?;
        let stream = Stream::legacy_default(resource.machine());
        Ok(Self { base, resource, stream })
    }

    /// Its host half.
    #[must_use]
    pub fn base(&self) -> &HostOnlyManager {
        &self.base
    }

    fn give(
        &self,
        operation: &'static str,
        bytes: u64,
        back: GiveBack,
        stream: &Stream,
    ) -> Result<MemoryPointer> {
        let kind = match self.resource.memory_kind() {
            MemoryKind::Managed => PointerKind::Managed,
            _ => PointerKind::AutoFree,
        };
        let (resource, on) = (Arc::clone(&self.resource), stream.clone());
        let allocate = || self.resource.allocate(bytes, stream);
        let memory = self.base.manage(operation, kind, bytes, back, allocate, move |span| {
            // SAFETY: the resource gave the memory, and a finalizer runs once. Code that got the
            // address has promised, as for every free, that only work before in the stream's order
            // uses the memory.
            unsafe { resource.deallocate(span.ptr, span.bytes, &on) }
        })?;
        // SAFETY: a resource promised (`MemoryResource`) that it gives live memory of its kind, to
        // one owner at a time, in the order of the stream. Its back end promised, if it has host
        // views, that the host reaches managed memory by this address.
        Ok(unsafe { memory.vouch(Some(stream)) })
    }
}

impl ExternalMemoryManager for ResourceManager {
    fn interface_version(&self) -> u32 {
        INTERFACE_VERSION
    }

    fn initialize(&self) -> Result<()> {
        self.base.initialize()
    }

    fn memalloc(&self, bytes: u64) -> Result<MemoryPointer> {
        self.give("memalloc", bytes, GiveBack::Later, &self.stream)
    }

    fn memhostalloc(&self, bytes: u64, options: HostOptions) -> Result<MemoryPointer> {
        self.base.memhostalloc(bytes, options)
    }

    unsafe fn mempin(&self, owner: Owner, span: Span, mapped: bool) -> Result<MemoryPointer> {
        // SAFETY: `mempin` of the base asks that the memory lives as long as its owner is kept. The
        // caller promised that, and the base keeps the owner.
        unsafe { self.base.mempin(owner, span, mapped) }
    }

    fn memallocmanaged(&self, bytes: u64, attach_global: bool) -> Result<MemoryPointer> {
        if attach_global && self.resource.memory_kind() == MemoryKind::Managed {
            return self.give("memallocmanaged", bytes, GiveBack::Later, &self.stream);
        }
        self.base.memallocmanaged(bytes, attach_global)
    }

    fn get_ipc_handle(&self, memory: &MemoryPointer) -> Result<IpcHandle> {
        IpcHandle::of(memory)
    }

    fn get_memory_info(&self) -> Result<MemoryInfo> {
        self.base.get_memory_info()
    }

    fn reset(&self) -> Result<Vec<Leak>> {
        self.base.reset()
    }

    fn defer_cleanup(&self) -> DeferCleanup {
        self.base.defer_cleanup()
    }
}

impl StreamOrderedManager for ResourceManager {
    fn memalloc_on(&self, bytes: u64, stream: &Stream) -> Result<MemoryPointer> {
        self.base.machine().check_stream("memalloc", stream)?;
        self.give("memalloc", bytes, GiveBack::AtOnce, stream)
    }

    fn memallocmanaged_with(&self, bytes: u64, options: &ManagedOptions) -> Result<MemoryPointer> {
        options.check(self.base.machine())?;
        self.base.advised(self.memallocmanaged(bytes, true)?, options)
    }
}
