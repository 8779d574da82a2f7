//! The host half of a manager, with the bookkeeping that every manager needs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pagewise::refuse::{also, invalid, unsupported};
use pagewise::{
    AttachFlags, Device, DeviceAttribute, DevicePtr, ErrorKind, HostAllocFlags, HostRegisterFlags,
    Machine, MemoryAdvice, MemoryInfo, Place, PointerAttribute, Result, Span,
};

use super::ledger::{Leak, Ledger};
use super::pending::{DeferCleanup, PendingDeallocations, PendingLimits};
use super::pointer::{MemoryPointer, Owner, PointerKind};

/// Limits of a manager: the memory that it may give, and the bytes that may wait.
///
/// ```
/// assert_eq!(pagewise_managers::emm::EmmOptions::default().limit_bytes, u64::MAX);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmmOptions {
    /// Most bytes that may be out, of all kinds together, those that wait to be freed and those of
    /// others that are page-locked included.
    pub limit_bytes: u64,
    /// How many deallocations may wait.
    pub pending: PendingLimits,
}

impl Default for EmmOptions {
    /// No limit; ten deallocations, or a fifth of the device's memory.
    fn default() -> Self {
        Self { limit_bytes: u64::MAX, pending: PendingLimits::default() }
    }
}

/// How page-locked memory is made.
///
/// ```
/// use pagewise_managers::emm::HostOptions;
/// let options = HostOptions { mapped: true, ..HostOptions::default() };
/// assert!(!options.portable && !options.write_combined);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HostOptions {
    /// Devices reach it: gives [`PointerKind::Mapped`], without it [`PointerKind::Pinned`].
    pub mapped: bool,
    /// Page-locked for every context.
    pub portable: bool,
    /// Fast for devices to read, slow for the host.
    pub write_combined: bool,
}

/// Where managed memory is to be, said when it is made.
///
/// ```
/// assert_eq!(pagewise_managers::emm::ManagedOptions::default().preferred_location, None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManagedOptions {
    /// Where faults leave its pages if they can.
    pub preferred_location: Option<Place>,
    /// The places that keep it mapped.
    pub accessed_by: Vec<Place>,
    /// Whether reads duplicate its pages.
    pub read_mostly: bool,
}

impl ManagedOptions {
    /// Refuses, before there is memory, what no memory could be told.
    pub(super) fn check(&self, machine: &Machine) -> Result<()> {
        self.advice().try_for_each(|advice| advice.check("memallocmanaged", machine))
    }

    fn advice(&self) -> impl Iterator<Item = MemoryAdvice> {
        let read_mostly = self.read_mostly.then_some(MemoryAdvice::SetReadMostly);
        let preferred = self.preferred_location.map(MemoryAdvice::SetPreferredLocation);
        let accessed_by = self.accessed_by.iter().copied().map(MemoryAdvice::SetAccessedBy);
        read_mostly.into_iter().chain(preferred).chain(accessed_by)
    }
}

/// When memory that is freed is given back.
///
/// ```
/// use pagewise_managers::emm::{GiveBack, HostOnlyManager, EmmOptions, PointerKind};
/// use pagewise::{Device, DevicePtr, Machine};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let base = HostOnlyManager::new(&machine, Device::FIRST, EmmOptions::default())?;
/// base.initialize()?;
/// for (back, waiting) in
///     [(GiveBack::AtOnce, (0, 0)), (GiveBack::Later, (1, 8)), (GiveBack::LaterUncounted, (2, 8))]
/// {
///     let next = DevicePtr(4096 * (1 + waiting.0 as u64));
///     let kind = PointerKind::Memory;
///     base.manage("memalloc", kind, 8, back, || Ok(next), |_| Ok(()))?.free()?;
///     let queue = base.deallocations();
///     assert_eq!((queue.count(), queue.bytes()), waiting);
/// }
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveBack {
    /// With others, later; its bytes count towards the limit of what may wait.
    Later,
    /// With others, later; by number only, as its bytes are none of the device's.
    LaterUncounted,
    /// At once, even while deallocation is deferred.
    AtOnce,
}

/// The host half of a manager: page-locked memory, managed memory, deallocations that wait,
/// outstanding memory. A plug-in holds one, gives its device memory by [`manage`](Self::manage), and
/// passes the rest on. Clones are one manager.
///
/// ```
/// use pagewise_managers::emm::{HostOnlyManager, HostOptions, EmmOptions, PointerKind};
/// use pagewise::{Device, Machine};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let host = HostOnlyManager::new(&machine, Device::FIRST, EmmOptions::default())?;
/// assert!(host.memallocmanaged(4096, true).is_err(), "it is not initialised");
/// host.initialize()?;
/// let mapped = host.memhostalloc(4096, HostOptions { mapped: true, ..Default::default() })?;
/// assert_eq!((mapped.kind(), host.used_bytes()), (PointerKind::Mapped, 4096));
/// drop(mapped);
/// assert_eq!(host.deallocations().count(), 1, "it waits");
/// assert_eq!(host.reset()?, []);
/// assert_eq!((host.deallocations().count(), host.used_bytes()), (0, 0));
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Clone)]
pub struct HostOnlyManager(Arc<Inner>);

struct Inner {
    machine: Machine,
    device: Device,
    // Apart from the rest, because what waits refers to it: nothing refers back to the queue.
    ledger: Arc<Ledger>,
    pending: PendingDeallocations,
    initialized: AtomicBool,
}

impl HostOnlyManager {
    /// One for a device. No call of the driver is made.
    ///
    /// # Errors
    /// As [`PendingDeallocations::new`].
    pub fn new(machine: impl Into<Machine>, device: Device, options: EmmOptions) -> Result<Self> {
        let machine = machine.into();
        let pending = PendingDeallocations::new(&machine, options.pending)?;
        let ledger = Arc::new(Ledger::new(options.limit_bytes));
        let initialized = AtomicBool::new(false);
        Ok(Self(Arc::new(Inner { machine, device, ledger, pending, initialized })))
    }

    /// Makes it ready: learns how much memory the device has, which the limit of waiting bytes is a
    /// part of. May be called any number of times.
    ///
    /// # Errors
    /// As [`Backend::memory_info`](pagewise::Backend::memory_info).
    pub fn initialize(&self) -> Result<()> {
        if !self.0.initialized.load(Ordering::Acquire) {
            let info = self.get_memory_info()?;
            self.0.pending.set_capacity(info.total_bytes);
            self.0.initialized.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The machine that it gives memory of.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.0.machine
    }

    /// The device that it gives memory for.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Deallocations that wait.
    #[must_use]
    pub fn deallocations(&self) -> &PendingDeallocations {
        &self.0.pending
    }

    /// Outstanding bytes, those that wait to be freed included.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.ledger.used_bytes()
    }

    /// The number of outstanding pieces of memory, those that wait to be freed included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.ledger.count()
    }

    /// Gives memory that `allocate` makes and `release` takes back. If there is none, what waits is
    /// freed and it is tried once more.
    ///
    /// # Errors
    /// `InvalidValue` (no CUDA code) for 0 bytes, before [`initialize`](Self::initialize), or if
    /// `allocate` gave an outstanding address; `OutOfMemory`, without a CUDA code for the limit; of
    /// `allocate`. Nothing stays allocated then.
    ///
    /// ```
    /// use pagewise_managers::emm::{GiveBack, HostOnlyManager, EmmOptions, PointerKind};
    /// use pagewise::{Device, DevicePtr, Machine};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let base = HostOnlyManager::new(&machine, Device::FIRST, EmmOptions::default())?;
    /// base.initialize()?;
    /// let made_up = || Ok(DevicePtr(4096));
    /// let kind = PointerKind::Memory;
    /// let first = base.manage("memalloc", kind, 10, GiveBack::AtOnce, made_up, |_| Ok(()))?;
    /// assert!(base.manage("memalloc", kind, 10, GiveBack::AtOnce, made_up, |_| Ok(())).is_err());
    /// drop(first);
    /// assert!(base.manage("memalloc", kind, 10, GiveBack::AtOnce, made_up, |_| Ok(())).is_ok());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn manage(
        &self,
        operation: &'static str,
        kind: PointerKind,
        bytes: u64,
        back: GiveBack,
        allocate: impl Fn() -> Result<DevicePtr>,
        release: impl FnOnce(Span) -> Result<()> + Send + 'static,
    ) -> Result<MemoryPointer> {
        self.check_ready(operation, bytes)?;
        let ledger = &self.0.ledger;
        let ptr = self.attempt(|| {
            ledger.reserve(operation, bytes)?;
            allocate().inspect_err(|_| ledger.unreserve(bytes))
        })?;
        let span = Span::new(ptr, bytes);
        if !ledger.insert(span, kind) {
            ledger.unreserve(bytes);
            let why = "this address was given before and is still out: it is left alone";
            return Err(invalid(operation, why).with_span(span));
        }
        let (ledger, pending) = (Arc::clone(ledger), self.0.pending.clone());
        let destructor = move || {
            ledger.remove(ptr);
            release(span).map_err(|error| error.with_span(span))
        };
        let finalizer: super::Finalizer = Box::new(move || match back {
            GiveBack::Later => pending.add(Some(bytes), Box::new(destructor)),
            GiveBack::LaterUncounted => pending.add(None, Box::new(destructor)),
            GiveBack::AtOnce => destructor(),
        });
        Ok(MemoryPointer::new(&self.0.machine, kind, span, Some(finalizer)))
    }

    fn check_ready(&self, operation: &'static str, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Err(invalid(operation, "give at least one byte"));
        }
        if !self.0.initialized.load(Ordering::Acquire) {
            return Err(invalid(operation, "the manager is not initialised: call `initialize`"));
        }
        Ok(())
    }

    /// Tries; without memory frees what waits and tries once more, if there is something to free.
    fn attempt(&self, allocate: impl Fn() -> Result<DevicePtr>) -> Result<DevicePtr> {
        let error = match allocate() {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => error,
            answer => return answer,
        };
        let pending = &self.0.pending;
        let (count, bytes) = (pending.count(), pending.bytes());
        if count == 0 {
            return Err(error);
        }
        if pending.is_deferred() {
            let waits = format!("{count} deallocations of {bytes} bytes wait until they may run");
            return Err(also(error, &waits));
        }
        let flushed = pending.flush();
        allocate().map_err(|error| match flushed {
            Ok(()) => error,
            Err(failure) => also(error, &format!("freeing what waited failed too: {failure}")),
        })
    }

    /// Page-locked host memory (`cuMemHostAlloc`).
    ///
    /// # Errors
    /// As [`manage`](Self::manage) and [`Backend::alloc_pinned`](pagewise::Backend::alloc_pinned).
    pub fn memhostalloc(&self, bytes: u64, options: HostOptions) -> Result<MemoryPointer> {
        let wanted = [
            (options.mapped, HostAllocFlags::DEVICE_MAP),
            (options.portable, HostAllocFlags::PORTABLE),
            (options.write_combined, HostAllocFlags::WRITE_COMBINED),
        ];
        let flags: HostAllocFlags =
            wanted.into_iter().filter(|(wants, _)| *wants).map(|(_, flag)| flag).collect();
        let (kind, back) = match options.mapped {
            true => (PointerKind::Mapped, GiveBack::Later),
            false => (PointerKind::Pinned, GiveBack::LaterUncounted),
        };
        let allocate = || self.0.machine.backend().alloc_pinned(bytes, flags);
        let machine = self.0.machine.clone();
        let memory = self.manage("memhostalloc", kind, bytes, back, allocate, move |span| {
            // SAFETY: the memory was allocated above, and a finalizer runs once. Code that got the
            // address has promised, as for every free, that it uses the memory no more.
            unsafe { machine.backend().free_pinned(span.ptr) }
        })?;
        // SAFETY: the memory was allocated above for this pointer alone, by a back end that
        // promised, if it has host views, that the host reaches it by this address.
        Ok(unsafe { self.mapped(memory)?.vouch(None) })
    }

    /// Memory of the host with the address by which devices reach it, if they do.
    fn mapped(&self, memory: MemoryPointer) -> Result<MemoryPointer> {
        if memory.kind() != PointerKind::Mapped {
            return Ok(memory);
        }
        let (backend, host) = (self.0.machine.backend(), memory.device_ptr());
        let device = backend.pointer_attribute(host, PointerAttribute::DEVICE_POINTER);
        let device = device.map_err(|error| error.with_span(memory.span()))?;
        Ok(memory.with_device_ptr(DevicePtr(device)))
    }

    /// Page-locks memory of `owner`'s (`cuMemHostRegister`) and keeps that; unlocks it at once when
    /// the pointer goes, and never later, so that the same memory can be locked again.
    ///
    /// # Errors
    /// As [`manage`](Self::manage), and as [`Backend::host_register`](pagewise::Backend::host_register):
    /// 712 if a page of it is locked already. `Unsupported` (no CUDA code) for mapped memory if the
    /// device cannot map host memory, before the driver is asked.
    ///
    /// # Safety
    /// The bytes must be ordinary host memory that stays while `owner` does.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use pagewise_managers::emm::{HostOnlyManager, EmmOptions};
    /// use pagewise::{Device, DevicePtr, Machine, Span};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let host = HostOnlyManager::new(&machine, Device::FIRST, EmmOptions::default())?;
    /// host.initialize()?;
    /// let array = Arc::new(vec![0_u8; 10_000]);
    /// let span = Span::new(DevicePtr(array.as_ptr() as u64), 10_000);
    /// // SAFETY: `mempin` asks that the memory lives as long as its owner is kept; the owner is
    /// // the vector itself.
    /// let pinned = unsafe { host.mempin(array.clone(), span, true)? };
    /// // SAFETY: `mempin` asks that the memory lives as long as its owner is kept; the owner is
    /// // the vector itself.
    /// assert_eq!(unsafe { host.mempin(array, span, true) }.unwrap_err().code(), Some(712));
    /// drop(pinned);
    /// assert_eq!(host.deallocations().count(), 0, "at once");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub unsafe fn mempin(&self, owner: Owner, span: Span, mapped: bool) -> Result<MemoryPointer> {
        const OPERATION: &str = "mempin";
        self.check_ready(OPERATION, span.bytes)?;
        if mapped && !self.can_map_host_memory()? {
            let why = format!("{} does not reach host memory: pin it unmapped", self.device());
            return Err(unsupported(OPERATION, why).with_span(span));
        }
        let (kind, flags) = match mapped {
            true => (PointerKind::Mapped, HostRegisterFlags::DEVICE_MAP),
            false => (PointerKind::Pinned, HostRegisterFlags::empty()),
        };
        let allocate = || {
            // SAFETY: the caller promised that the memory lives as long as `owner`, which the
            // pointer keeps until the memory is unlocked.
            let locked = unsafe { self.0.machine.backend().host_register(span, flags) };
            locked.map(|()| span.ptr)
        };
        let machine = self.0.machine.clone();
        let release = move |span: Span| {
            // SAFETY: the memory was registered above, and a finalizer runs once. Code that got the
            // address has promised, as for every free, that no device uses the memory any more.
            unsafe { machine.backend().host_unregister(span.ptr) }
        };
        let pinned =
            self.manage(OPERATION, kind, span.bytes, GiveBack::AtOnce, allocate, release)?;
        self.mapped(pinned.with_owner(owner))
    }

    /// Managed memory (`cuMemAllocManaged`), for every device or at first for none but the host.
    ///
    /// # Errors
    /// As [`manage`](Self::manage) and [`Backend::alloc_managed`](pagewise::Backend::alloc_managed).
    pub fn memallocmanaged(&self, bytes: u64, attach_global: bool) -> Result<MemoryPointer> {
        let flags = if attach_global { AttachFlags::GLOBAL } else { AttachFlags::HOST };
        let allocate = || self.0.machine.backend().alloc_managed(bytes, flags);
        let machine = self.0.machine.clone();
        let (kind, back) = (PointerKind::Managed, GiveBack::Later);
        let memory = self.manage("memallocmanaged", kind, bytes, back, allocate, move |span| {
            // SAFETY: the memory was allocated above, and a finalizer runs once. Code that got the
            // address has promised, as for every free, that it uses the memory no more.
            unsafe { machine.backend().free(span.ptr) }
        })?;
        // SAFETY: the memory was allocated above for this pointer alone, by a back end that
        // promised, if it has host views, that the host reaches it by this address.
        Ok(unsafe { memory.vouch(None) })
    }

    /// Gives advice on managed memory that is new; if a piece of it is refused, the memory goes.
    ///
    /// # Errors
    /// `InvalidValue`, `InvalidDevice` or `Unsupported` (no CUDA code) for places, as
    /// [`MemoryAdvice`] says; of the driver, such as `Unsupported` (801) for memory of a pool.
    pub fn advised(
        &self,
        memory: MemoryPointer,
        options: &ManagedOptions,
    ) -> Result<MemoryPointer> {
        options.check(&self.0.machine)?;
        for advice in options.advice() {
            self.0.machine.advise(memory.span(), advice)?;
        }
        Ok(memory)
    }

    /// Free and total memory of the device.
    ///
    /// # Errors
    /// As [`Backend::memory_info`](pagewise::Backend::memory_info).
    pub fn get_memory_info(&self) -> Result<MemoryInfo> {
        self.0.machine.backend().memory_info(self.0.device.id())
    }

    /// Whether the device can reach page-locked host memory.
    ///
    /// # Errors
    /// As [`Backend::device_attribute`](pagewise::Backend::device_attribute).
    pub fn can_map_host_memory(&self) -> Result<bool> {
        let attribute = DeviceAttribute::CAN_MAP_HOST_MEMORY;
        let answer = self.0.machine.backend().device_attribute(self.0.device.id(), attribute);
        answer.map(|can| can != 0)
    }

    /// Whether the device can be let reach the memory of another one. It is no peer of itself.
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) for a device that does not exist; as
    /// [`Backend::can_access_peer`](pagewise::Backend::can_access_peer).
    pub fn can_access_peer(&self, peer: Device) -> Result<bool> {
        self.0.machine.check_device("can_access_peer", peer)?;
        self.0.machine.backend().can_access_peer(self.0.device.id(), peer.id())
    }

    /// Frees what waits, unless deallocation is deferred, and forgets outstanding memory, which it
    /// names. That memory stays valid and is given back with its pointers. To be called before
    /// [`initialize`](Self::initialize), too.
    ///
    /// # Errors
    /// As [`PendingDeallocations::flush`], with the outstanding bytes; it is reset all the same.
    pub fn reset(&self) -> Result<Vec<Leak>> {
        let flushed = self.0.pending.flush();
        let leaks = self.0.ledger.turn();
        match flushed {
            Ok(()) => Ok(leaks),
            Err(error) => Err(also(error, &format!("{} pieces of memory are out", leaks.len()))),
        }
    }

    /// Defers deallocation: see [`PendingDeallocations::defer`].
    pub fn defer_cleanup(&self) -> DeferCleanup {
        self.0.pending.defer()
    }
}

impl fmt::Debug for HostOnlyManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { machine, device, pending, .. } = &*self.0;
        write!(f, "HostOnlyManager({device}, {} out, {pending:?}, {machine:?})", self.count())
    }
}
