//! The simulator as a [`Backend`]: each call of the trait is one call of the machine.

use std::sync::Arc;

use pagewise_hal::{
    AccessFlags, Advice, AllocationType, AttachFlags, Backend, BatchSupport, BestBlock, CallName,
    Capabilities, CopyAttributes, Counters, DeviceAttribute, DeviceId, DevicePtr, DeviceTouch,
    DriverVersion, Error, ErrorKind, EventFlags, EventHandle, EventsSince, ExportedPointer,
    FunctionAttribute, FunctionHandle, Granularity, HandleTypes, HostAddresses, HostAllocFlags,
    HostRegisterFlags, HostTouch, HostViews, IpcMemHandle, KernelAccesses, KernelParam,
    LaunchShape, Location, MemoryAccess, MemoryEvent, MemoryHandle, MemoryInfo, MemoryProps,
    ModuleHandle, Operation, PAGE_BYTES, PageRun, ParamInfo, PointerAttribute, PoolAttribute,
    PoolHandle, PoolProps, Processor, RangeAttribute, RecordedLaunch, Result, ShareableHandle,
    Span, SpanCopy, StreamFlags, StreamHandle,
};

use crate::book::Book;
use crate::clock;
use crate::config::{
    EventCapture, HostFaultSupport, HostFaults, MemoryContents, RangeReads, SimConfig,
};
use crate::copies::Pattern;
use crate::cost::{Call, Control, CostObservation, PoolCall};
use crate::fault_observer::PendingFault;
use crate::host_faults::service::Service;
use crate::locked::Locked;
use crate::machine::{Machine, error};
use crate::pressure::Pressure;
use crate::programs::{Heaps, KernelFault, Modules};
use crate::refusal::Checked;
use crate::sim::Sim;
use crate::space::Allocation;
use crate::state::State;

/// A copy or fill by a device.
const BULK: Call = Call::DeviceTouch { threads: 1, bulk: true };

/// A simulated process with simulated GPUs.
///
/// Calls are carried out one at a time, in the order in which they take the lock; each is complete
/// when it returns. Reads of attributes of ranges and addresses do not wait for a long call of another
/// thread: they come right after it, and answer before it returns. Two simulators share nothing but
/// what one exports and the other one imports: pools, memory with handles, physical memory. They may
/// be in two processes, on Linux on x86-64 and aarch64.
///
/// ```
/// use pagewise_hal::{Backend, BackendExt, Location, RangeAttribute};
/// use pagewise_sim::{SimBackend, SimConfig};
///
/// let sim = SimBackend::new(SimConfig::h200())?;
/// let span = sim.alloc(4 << 20)?;
/// sim.prefetch_to(span, Location::HOST)?;
/// assert_eq!(sim.range_attribute(span, RangeAttribute::LAST_PREFETCH_LOCATION)?, -1);
/// # Ok::<(), pagewise_hal::Error>(())
/// ```
#[derive(Debug)]
pub struct SimBackend {
    config: SimConfig,
    machine: Arc<Machine>,
    heaps: Heaps,
    modules: Modules,
    /// Keeps the threads for the host's faults, if it has any.
    _faults: Option<Service>,
}

impl SimBackend {
    /// Makes a machine.
    ///
    /// # Errors
    /// `InvalidValue` for more than [`SimConfig::DEVICES_MAX`] devices, a driver before 12.0, or a
    /// profile that fails [`GpuProfile::check`](crate::GpuProfile::check), or host faults without
    /// contents; `Unsupported` for [host faults](SimConfig::host_faults) that this host cannot have.
    pub fn new(config: SimConfig) -> Result<Self> {
        const OPERATION: &str = "open simulator";
        let invalid = || Error::new(OPERATION, ErrorKind::InvalidValue);
        if config.devices > SimConfig::DEVICES_MAX {
            return Err(invalid().with_detail("a simulated machine has at most 32 devices"));
        }
        if let Err(error) = config.gpu.check() {
            let detail = format!("profile {}: {error}", config.gpu.name);
            return Err(invalid().with_detail(detail));
        }
        if config.driver_version < DriverVersion::CUDA_12_0 {
            return Err(invalid().with_detail("the simulated driver is of CUDA 12.0 or later"));
        }
        if config.host_faults != HostFaults::Declared && config.contents == MemoryContents::Skipped
        {
            return Err(invalid().with_detail("host faults need contents: MemoryContents::Real"));
        }
        let (machine, faults) = Machine::start(&config)?;
        Ok(Self {
            config,
            machine,
            heaps: Heaps::default(),
            modules: Modules::default(),
            _faults: faults,
        })
    }

    /// The machine that is simulated.
    #[must_use]
    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// Lets the next call take exactly this many nanoseconds of virtual time: for replaying
    /// recordings with results that depend on when things happened. `faults` are the times of its
    /// faults, in their order: from the end of the fault before it, or the beginning of the call,
    /// until the driver looks at it, and from then on. Faults without a time take what the model
    /// says.
    pub fn pace_next_op(&self, duration_ns: u64, faults: impl IntoIterator<Item = (u64, u64)>) {
        let faults = faults.into_iter().collect();
        self.lock().pace = Some((duration_ns, faults));
    }

    /// The host copies so many bytes between page-locked memory and other memory of its own, as a
    /// driver does around a copy `to` a device or the host. That takes the time that `cost.copies`
    /// of the profile says. The bytes are the caller's business.
    pub fn host_copied(&self, bytes: u64, to: Processor) {
        let costs = &self.config.gpu.cost.copies;
        let byte_ns = match to {
            Processor::HOST => costs.pageable_to_host_byte,
            _ => costs.pageable_to_device_byte,
        };
        let mut machine = self.lock();
        machine.clock_ns = clock::after(machine.clock_ns, (byte_ns * bytes as f64) as u64);
    }

    /// Keeps, from now on, what calls take their time for: see
    /// [`take_cost_observations`](Self::take_cost_observations). Costs memory for every fault.
    pub fn observe_costs(&self) {
        self.lock().pager.observe_costs();
    }

    /// The calls and sleeps since this was last asked, in order, each as the cost model sees it:
    /// for fitting figures to measured times. Empty unless [`observe_costs`](Self::observe_costs)
    /// was called.
    #[must_use]
    pub fn take_cost_observations(&self) -> Vec<CostObservation> {
        self.lock().pager.take_cost_observations()
    }

    /// The counts of movements and faults since the machine was made. Always counted, whether
    /// records are kept or not.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.lock().pager.records().log.counters()
    }

    /// How many launches of kernels in PTX were not executed since the machine was made, as each
    /// repeats one before it: the same kernel, shape and parameters; the kernel reads nothing that it
    /// writes, and accesses memory of `cuMemAlloc` only; and nothing has written that memory since. Their
    /// time passes as if they were executed, and the memory is the same.
    ///
    /// Only where the machine sees the accesses of the host:
    /// [`HostFaults::Real`](crate::HostFaults::Real). A launch that is recorded is executed.
    #[must_use]
    pub fn repeated_launches(&self) -> u64 {
        self.lock().repeats.count()
    }

    /// The use that managed pages made of a device's memory since the machine was made: whether
    /// they fitted, streamed through it or thrashed. `None` if there is no such device, and on
    /// machines without concurrent managed access, where managed memory cannot exceed the
    /// device's.
    ///
    /// ```
    /// use pagewise_hal::{BackendExt, DeviceId, Location};
    /// use pagewise_sim::{SimBackend, SimConfig, Verdict};
    ///
    /// let sim = SimBackend::new(SimConfig::h200())?;
    /// sim.prefetch_to(sim.alloc(64 << 20)?, Location::device(DeviceId(0)))?;
    /// let pressure = sim.pressure(DeviceId(0)).expect("a device");
    /// assert_eq!((pressure.verdict(), pressure.peak_bytes), (Verdict::Fits, 64 << 20));
    /// # Ok::<(), pagewise_hal::Error>(())
    /// ```
    #[must_use]
    pub fn pressure(&self, device: DeviceId) -> Option<Pressure> {
        let concurrent = self.config.gpu.attributes.concurrent_managed_access;
        self.lock().pager.pressure(device).filter(|_| concurrent)
    }

    /// Bytes of the managed pages that a range touches and that are resident on a processor. Pages
    /// that are duplicated for reading are resident on several. Other memory counts nothing, and a
    /// device that the machine lacks holds nothing.
    ///
    /// ```
    /// use pagewise_hal::{BackendExt, DeviceId, Location, Processor};
    /// use pagewise_sim::{SimBackend, SimConfig};
    ///
    /// let sim = SimBackend::new(SimConfig::h200())?;
    /// let span = sim.alloc(64 << 10)?;
    /// sim.prefetch_to(span, Location::device(DeviceId(0)))?;
    /// assert_eq!(sim.resident_bytes(span, Processor::device(0)), 64 << 10);
    /// assert_eq!(sim.resident_bytes(span, Processor::HOST), 0);
    /// assert_eq!(sim.resident_bytes(span, Processor::device(255)), 0);
    /// # Ok::<(), pagewise_hal::Error>(())
    /// ```
    #[must_use]
    pub fn resident_bytes(&self, span: Span, at: Processor) -> u64 {
        if at.device_ordinal().is_some_and(|ordinal| ordinal >= self.config.devices) {
            return 0;
        }
        let pages = self.lock().pager.resident_among(span.pages_outward(), at);
        pages.saturating_mul(PAGE_BYTES)
    }

    /// Every live allocation, by address: managed, device, pinned and pool memory, mapped physical
    /// memory, and host memory that is registered.
    ///
    /// ```
    /// use pagewise_hal::BackendExt;
    /// use pagewise_sim::{SimBackend, SimConfig};
    ///
    /// let sim = SimBackend::new(SimConfig::h200())?;
    /// let span = sim.alloc(4096)?;
    /// assert_eq!(sim.live(), [span]);
    /// # Ok::<(), pagewise_hal::Error>(())
    /// ```
    #[must_use]
    pub fn live(&self) -> Vec<Span> {
        self.lock().space.all().map(Allocation::span).collect()
    }

    /// Every live managed allocation, by address: of `cuMemAllocManaged`, and of managed pools.
    ///
    /// ```
    /// use pagewise_hal::{Backend, BackendExt, DeviceId};
    /// use pagewise_sim::{SimBackend, SimConfig};
    ///
    /// let sim = SimBackend::new(SimConfig::h200())?;
    /// let span = sim.alloc(4096)?;
    /// sim.alloc_device(DeviceId(0), 4096)?;
    /// assert_eq!(sim.live_managed(), [span]);
    /// # Ok::<(), pagewise_hal::Error>(())
    /// ```
    #[must_use]
    pub fn live_managed(&self) -> Vec<Span> {
        let machine = self.lock();
        let managed = machine.space.all().filter(|allocation| machine.is_managed(allocation));
        managed.map(Allocation::span).collect()
    }

    /// Whether a range touches address space of the simulator, allocated or not. Memory that a
    /// program registered is its own.
    ///
    /// ```
    /// use pagewise_hal::{AttachFlags, Backend, DevicePtr, Span};
    /// use pagewise_sim::{SimBackend, SimConfig};
    ///
    /// let sim = SimBackend::new(SimConfig::h200())?;
    /// let ptr = sim.alloc_managed(4096, AttachFlags::GLOBAL)?;
    /// let local = 0_u8;
    /// assert!(sim.reserves(Span::new(ptr, 4096)));
    /// assert!(!sim.reserves(Span::new(DevicePtr((&raw const local).addr() as u64), 1)));
    /// # Ok::<(), pagewise_hal::Error>(())
    /// ```
    #[must_use]
    pub fn reserves(&self, span: Span) -> bool {
        self.lock().arena.reserves(span.ptr.0, span.bytes)
    }

    /// The whole state of the machine as text, a line for each part: two texts are equal if and only
    /// if the states are, contents of memory, time and what the cost model remembers excepted. For
    /// tests that ask whether a call changed anything, and for reports; what it says changes between versions.
    ///
    /// ```
    /// use pagewise_hal::{AttachFlags, Backend};
    /// use pagewise_sim::{SimBackend, SimConfig};
    ///
    /// let sim = SimBackend::new(SimConfig::h200())?;
    /// let before = sim.state();
    /// assert!(sim.alloc_managed(0, AttachFlags::GLOBAL).is_err());
    /// assert_eq!(sim.state(), before);
    /// # Ok::<(), pagewise_hal::Error>(())
    /// ```
    #[must_use]
    pub fn state(&self) -> String {
        State(&self.lock()).to_string()
    }

    /// Records that the ring had no room for since `take_events` was last called.
    #[must_use]
    pub fn events_lost(&self) -> u64 {
        self.lock().pager.records().log.pushed_out()
    }

    /// Hands each call's records to a listener when the call is done, calls in order. A listener
    /// may call the simulator; what that moves it gets afterwards. If several threads call, one of
    /// them hands over the records of all.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use pagewise_hal::{Backend, BackendExt, Location, DeviceId};
    /// use pagewise_sim::{EventCapture, SimBackend, SimConfig};
    ///
    /// let sim = SimBackend::new(SimConfig::h200().events(EventCapture::Off))?;
    /// let (sender, receiver) = mpsc::channel();
    /// sim.set_listener(move |events| events.iter().for_each(|e| sender.send(*e).unwrap()));
    /// let span = sim.alloc(4 << 20)?;
    /// sim.prefetch_to(span, Location::HOST)?;
    /// sim.prefetch_to(span, Location::device(DeviceId(0)))?;
    /// assert_eq!(receiver.try_iter().count(), 2);
    /// assert_eq!(sim.counters().to_device.bytes, 4 << 20);
    /// # Ok::<(), pagewise_hal::Error>(())
    /// ```
    pub fn set_listener(&self, listener: impl FnMut(&[MemoryEvent]) + Send + 'static) {
        self.machine.change_listener(Some(Box::new(listener)));
    }

    /// Ends what [`set_listener`](Self::set_listener) began.
    pub fn remove_listener(&self) {
        self.machine.change_listener(None);
    }

    /// The mechanism by which faults of the host arrive; `None` if only declared accesses are seen.
    #[must_use]
    pub fn host_faults(&self) -> Option<&HostFaultSupport> {
        self.machine.host_faults.as_ref()
    }

    /// Hands each genuine fault of the host to an observer, which replaces the one before. The
    /// observer lets the fault be serviced, and gets what was done. The thread that faulted goes on
    /// when the observer has returned. A fault that the observer does not service is serviced
    /// afterwards.
    ///
    /// Observers run on threads of the machine, two at a time, and may call the simulator. An
    /// observer must not wait for a thread that may fault. Without
    /// [host faults](SimConfig::host_faults) it is never called.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use pagewise_hal::BackendExt;
    /// use pagewise_sim::{HostFaults, SimBackend, SimConfig};
    ///
    /// # if pagewise_sim::host_fault_support().mechanism.is_none() { return Ok(()); }
    /// let sim = SimBackend::new(SimConfig::h200().host_faults(HostFaults::Real))?;
    /// let (sender, faults) = mpsc::channel();
    /// sim.observe_host_faults(move |mut fault| sender.send(fault.service()).unwrap());
    /// let span = sim.alloc(4096)?;
    /// let byte = std::ptr::with_exposed_provenance::<u8>(span.ptr.0 as usize + 7);
    /// // SAFETY: the byte is live managed memory that no other code uses.
    /// unsafe { byte.read_volatile() };
    /// let fault = faults.recv().unwrap().expect("the page came to the host");
    /// assert_eq!(fault.touch.span.ptr, span.ptr.offset(7));
    /// # Ok::<(), pagewise_hal::Error>(())
    /// ```
    pub fn observe_host_faults(&self, observer: impl Fn(PendingFault<'_>) + Send + Sync + 'static) {
        self.machine.fault_observer.set(Arc::new(observer));
    }

    /// Watches for the host's next access to each 2 MiB of managed memory: it is a fault that the
    /// [observer](Self::observe_host_faults) sees, also where the host may access the memory already.
    /// Such a fault moves nothing and takes no simulated time. It costs the program some 40
    /// microseconds of real time.
    ///
    /// Without [host faults](SimConfig::host_faults) this does nothing.
    pub fn watch_host(&self) {
        self.lock().watch_host();
    }

    /// Gives several locations access to a pool's memory, or takes it, as `cuMemPoolSetAccess` does
    /// with several descriptors: in their order, and either all or none.
    ///
    /// # Errors
    /// As [`Backend::pool_set_access`], of the first location that is refused.
    pub fn pool_set_accesses(
        &self,
        pool: PoolHandle,
        wanted: impl Iterator<Item = (Location, AccessFlags)> + Clone,
    ) -> Result<()> {
        self.call(Operation::PoolSetAccess, Call::Pool(PoolCall::Query), |sim| {
            sim.pool_set_accesses(pool, wanted)
        })
    }

    /// The heaps of the devices.
    pub(crate) const fn heaps(&self) -> &Heaps {
        &self.heaps
    }

    /// Modules that calls loaded.
    pub(crate) const fn modules(&self) -> &Modules {
        &self.modules
    }

    /// A kernel ended early: later calls that need the device have its error.
    pub(crate) fn lose(&self, fault: KernelFault) {
        self.machine.lose(fault.code, fault.report);
    }

    /// Refuses a call if the device is lost.
    pub(crate) fn check_not_lost(&self, operation: Operation) -> Result<()> {
        self.machine.check_not_lost(operation)
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.machine.lock()
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Carries out one call: an operation, with the stream that it names if it takes one.
    pub(crate) fn call<T>(
        &self,
        name: impl Into<CallName>,
        call: Call,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Result<T> {
        self.machine.call(name.into(), call, act)
    }

    /// Carries out what is no call of the trait.
    pub(crate) fn beside<T>(
        &self,
        name: &'static str,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Result<T> {
        self.machine.beside(name, act)
    }

    /// Carries out a fill.
    fn fill(
        &self,
        operation: Operation,
        span: Span,
        pattern: Pattern,
        stream: StreamHandle,
    ) -> Result<()> {
        self.call_on((operation, stream), BULK, span, |sim| sim.memset(span, pattern, stream))
    }

    /// Carries out a read of attributes of a range, and names the range in its error.
    fn read_range<T>(
        &self,
        operation: Operation,
        span: Span,
        answer: impl Fn(Book<'_>) -> Checked<T>,
    ) -> Result<T> {
        let call = Call::RangeAttribute;
        let answer = self.machine.read(operation.into(), call, answer);
        answer.map_err(|error| error.with_span(span))
    }

    /// Carries out one call about a range, and names the range in its error.
    fn call_on<T>(
        &self,
        name: impl Into<CallName>,
        call: Call,
        span: Span,
        act: impl FnOnce(&mut Sim) -> Checked<T>,
    ) -> Result<T> {
        self.call(name, call, act).map_err(|error| error.with_span(span))
    }
}

// SAFETY: addresses lie in the arena, which is mapped for reading and writing for as long as the
// back end lives; behind a gate an access waits until its page is shown, and addresses for devices
// are those of the engine's view, with the same bytes. The address space gives no byte out twice before it is freed. Safe calls move
// pages and leave bytes alone, except those of pages that are marked as discarded, which only
// `unsafe` calls do.
unsafe impl HostAddresses for SimBackend {
    fn host_views(&self) -> HostViews {
        if self.config.contents != MemoryContents::Real {
            self.lock().arena.expose();
        }
        match self.machine.has_host_faults() {
            true => HostViews::Faulting,
            false => HostViews::Declared,
        }
    }

    fn kernel_address(&self, ptr: DevicePtr) -> DevicePtr {
        let mut machine = self.lock();
        machine.arena.expose();
        machine.note_host_address(ptr);
        DevicePtr(machine.arena.engine_address(ptr.0))
    }
}

impl Backend for SimBackend {
    fn capabilities(&self) -> Capabilities {
        let version = self.config.driver_version;
        let mut capabilities = Capabilities::of_driver("sim", version);
        if version < DriverVersion::CUDA_13_0 {
            capabilities.prefetch_batch = BatchSupport::Loop;
        }
        if version < DriverVersion::CUDA_12_8 {
            capabilities.copy_batch = BatchSupport::Loop;
        }
        capabilities.concurrent_managed_access =
            self.config.devices == 0 || self.config.gpu.attributes.concurrent_managed_access;
        let attributes = &self.config.gpu.attributes;
        capabilities.virtual_memory =
            self.config.devices == 0 || attributes.virtual_memory_management_supported;
        capabilities.events = self.config.events != EventCapture::Off;
        capabilities.host_page_map = true;
        capabilities.deterministic = true;
        capabilities.pool_self_import = true;
        capabilities.kernels = self.config.contents != MemoryContents::Skipped;
        capabilities.declared_kernels = true;
        capabilities.traced_launches = capabilities.kernels;
        capabilities.range_attributes_by_page = self.config.range_reads == RangeReads::Pages;
        capabilities
    }

    fn driver_version(&self) -> Result<DriverVersion> {
        Ok(self.config.driver_version)
    }

    fn device_count(&self) -> Result<u32> {
        Ok(self.config.devices)
    }

    fn device_attribute(&self, device: DeviceId, attribute: DeviceAttribute) -> Result<i32> {
        self.call(Operation::DeviceAttribute, Call::Control(Control::DeviceAttribute), |sim| {
            sim.device_attribute(device, attribute)
        })
    }

    fn can_access_peer(&self, device: DeviceId, peer: DeviceId) -> Result<bool> {
        self.call(Operation::CanAccessPeer, Call::Other, |sim| sim.can_access_peer(device, peer))
    }

    fn memory_info(&self, device: DeviceId) -> Result<MemoryInfo> {
        self.call(Operation::MemoryInfo, Call::Control(Control::MemoryInfo), |sim| {
            sim.memory_info(device)
        })
    }

    fn alloc_managed(&self, bytes: u64, flags: AttachFlags) -> Result<DevicePtr> {
        self.call(Operation::AllocManaged, Call::AllocManaged, |sim| {
            sim.alloc_managed(bytes, flags)
        })
    }

    fn alloc_device(&self, device: DeviceId, bytes: u64) -> Result<DevicePtr> {
        self.call(Operation::AllocDevice, Call::PlainMemory, |sim| sim.alloc_device(device, bytes))
    }

    fn alloc_pinned(&self, bytes: u64, flags: HostAllocFlags) -> Result<DevicePtr> {
        self.call(Operation::AllocPinned, Call::PlainMemory, |sim| sim.alloc_pinned(bytes, flags))
    }

    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        self.call(Operation::Free, Call::Free, |sim| sim.free(ptr))
    }

    unsafe fn free_pinned(&self, ptr: DevicePtr) -> Result<()> {
        self.call(Operation::FreePinned, Call::PlainMemory, |sim| sim.free_pinned(ptr))
    }

    fn advise_ordinal(&self, span: Span, advice: Advice, ordinal: i32) -> Result<()> {
        self.call_on(Operation::AdviseOrdinal, Call::Advise, span, |sim| {
            sim.advise_ordinal(span, advice, ordinal)
        })
    }

    fn advise(&self, span: Span, advice: Advice, location: Location) -> Result<()> {
        self.call_on(Operation::Advise, Call::Advise, span, |sim| {
            sim.advise(span, advice, location)
        })
    }

    fn prefetch_ordinal(&self, span: Span, ordinal: i32, stream: StreamHandle) -> Result<()> {
        self.call_on(
            (Operation::PrefetchOrdinal, stream),
            Call::Prefetch { ranges: 1, batch: false },
            span,
            |sim| sim.prefetch_ordinal(span, ordinal, stream),
        )
    }

    fn prefetch(
        &self,
        span: Span,
        location: Location,
        flags: u32,
        stream: StreamHandle,
    ) -> Result<()> {
        self.call_on(
            (Operation::Prefetch, stream),
            Call::Prefetch { ranges: 1, batch: false },
            span,
            |sim| sim.prefetch(span, location, flags, stream),
        )
    }

    fn prefetch_batch(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let (spans, locations) = (self.machine.list(spans), self.machine.list(locations));
        let location_starts = self.machine.list(location_starts);
        let call = Call::Prefetch { ranges: spans.len() as u64, batch: true };
        self.call((Operation::PrefetchBatch, stream), call, |sim| {
            sim.prefetch_batch(&spans, &locations, &location_starts, flags, stream)
        })
    }

    unsafe fn discard_batch(&self, spans: &[Span], flags: u64, stream: StreamHandle) -> Result<()> {
        let spans = self.machine.list(spans);
        self.call((Operation::DiscardBatch, stream), Call::Discard, |sim| {
            sim.discard_batch(&spans, flags, stream)
        })
    }

    unsafe fn discard_prefetch_batch(
        &self,
        spans: &[Span],
        locations: &[Location],
        location_starts: &[usize],
        flags: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let (spans, locations) = (self.machine.list(spans), self.machine.list(locations));
        let location_starts = self.machine.list(location_starts);
        self.call((Operation::DiscardPrefetchBatch, stream), Call::DiscardPrefetch, |sim| {
            sim.discard_prefetch_batch(&spans, &locations, &location_starts, flags, stream)
        })
    }

    fn range_attribute(&self, span: Span, attribute: RangeAttribute) -> Result<i32> {
        self.read_range(Operation::RangeAttribute, span, |book| {
            book.range_attribute(span, attribute)
        })
    }

    fn range_accessed_by(&self, span: Span, out: &mut [i32]) -> Result<()> {
        // The caller's list may lie in memory that faults: it is written without the lock.
        let room = out.len();
        let found = self.read_range(Operation::RangeAccessedBy, span, |book| {
            book.range_accessed_by(span, room)
        })?;
        out.copy_from_slice(&found);
        Ok(())
    }

    fn pointer_attribute(&self, ptr: DevicePtr, attribute: PointerAttribute) -> Result<u64> {
        let name = Operation::PointerAttribute.into();
        let answer = |book: Book<'_>| book.pointer_attribute(ptr, attribute);
        self.machine.read(name, Call::PointerAttribute, answer)
    }

    fn pool_create(&self, props: PoolProps) -> Result<PoolHandle> {
        self.call(Operation::PoolCreate, Call::Pool(PoolCall::Whole), |sim| {
            sim.making_pool(|pools| pools.create(props)).map(pool)
        })
    }

    unsafe fn pool_destroy(&self, pool: PoolHandle) -> Result<()> {
        self.call(Operation::PoolDestroy, Call::Pool(PoolCall::Whole), |sim| {
            let released = sim.pools.destroy(pool.as_raw())?;
            sim.give_back(released);
            sim.forget_gone_pools();
            Ok(())
        })
    }

    fn pool_default(&self, location: Location, kind: AllocationType) -> Result<PoolHandle> {
        self.call(Operation::PoolDefault, Call::Pool(PoolCall::Query), |sim| {
            sim.check_pool_kind(kind)?;
            sim.making_pool(|pools| pools.default(location, kind)).map(pool)
        })
    }

    fn pool_current(&self, location: Location, kind: AllocationType) -> Result<PoolHandle> {
        self.call(Operation::PoolCurrent, Call::Pool(PoolCall::Query), |sim| {
            sim.check_pool_kind(kind)?;
            sim.making_pool(|pools| pools.current(location, kind)).map(pool)
        })
    }

    fn pool_set_current(
        &self,
        location: Location,
        kind: AllocationType,
        pool: PoolHandle,
    ) -> Result<()> {
        self.call(Operation::PoolSetCurrent, Call::Pool(PoolCall::Query), |sim| {
            sim.pools.set_current(location, kind, pool.as_raw())
        })
    }

    fn pool_attribute(&self, pool: PoolHandle, attribute: PoolAttribute) -> Result<u64> {
        self.call(Operation::PoolAttribute, Call::Pool(PoolCall::Query), |sim| {
            sim.pools.attribute(pool.as_raw(), attribute)
        })
    }

    fn pool_set_attribute(
        &self,
        pool: PoolHandle,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<()> {
        self.call(Operation::PoolSetAttribute, Call::Pool(PoolCall::Query), |sim| {
            sim.pools.set_attribute(pool.as_raw(), attribute, value)
        })
    }

    fn pool_trim(&self, pool: PoolHandle, min_bytes_to_keep: u64) -> Result<()> {
        self.call(Operation::PoolTrim, Call::Pool(PoolCall::Trim), |sim| {
            let released = sim.pools.trim(pool.as_raw(), min_bytes_to_keep)?;
            sim.give_back(released);
            Ok(())
        })
    }

    fn pool_set_access(
        &self,
        pool: PoolHandle,
        location: Location,
        access: AccessFlags,
    ) -> Result<()> {
        self.pool_set_accesses(pool, std::iter::once((location, access)))
    }

    fn pool_access(&self, pool: PoolHandle, location: Location) -> Result<AccessFlags> {
        self.call(Operation::PoolAccess, Call::Pool(PoolCall::Query), |sim| {
            sim.pools.access(pool.as_raw(), location)
        })
    }

    fn pool_alloc(&self, pool: PoolHandle, bytes: u64, stream: StreamHandle) -> Result<DevicePtr> {
        self.call((Operation::PoolAlloc, stream), Call::Pool(PoolCall::Alloc), |sim| {
            sim.pool_alloc(pool, bytes, stream)
        })
    }

    unsafe fn free_async(&self, ptr: DevicePtr, stream: StreamHandle) -> Result<()> {
        self.call((Operation::FreeAsync, stream), Call::Pool(PoolCall::Free), |sim| {
            sim.free_async(ptr, stream)
        })
    }

    unsafe fn host_register(&self, span: Span, flags: HostRegisterFlags) -> Result<()> {
        self.call(Operation::HostRegister, Call::PlainMemory, |sim| sim.host_register(span, flags))
    }

    unsafe fn host_unregister(&self, ptr: DevicePtr) -> Result<()> {
        self.call(Operation::HostUnregister, Call::PlainMemory, |sim| sim.host_unregister(ptr))
    }

    fn pool_export(&self, pool: PoolHandle, kind: HandleTypes) -> Result<ShareableHandle> {
        self.call(Operation::PoolExport, Call::Other, |sim| sim.pool_export(pool, kind))
    }

    unsafe fn pool_import(&self, handle: ShareableHandle, kind: HandleTypes) -> Result<PoolHandle> {
        self.call(Operation::PoolImport, Call::Pool(PoolCall::Whole), |sim| {
            sim.pool_import(handle, kind)
        })
    }

    fn pool_export_pointer(&self, ptr: DevicePtr) -> Result<ExportedPointer> {
        self.call(Operation::PoolExportPointer, Call::Other, |sim| sim.pool_export_pointer(ptr))
    }

    unsafe fn pool_import_pointer(
        &self,
        pool: PoolHandle,
        exported: ExportedPointer,
    ) -> Result<DevicePtr> {
        self.call(Operation::PoolImportPointer, Call::Other, |sim| {
            sim.pool_import_pointer(pool, exported)
        })
    }

    fn ipc_mem_handle(&self, ptr: DevicePtr) -> Result<IpcMemHandle> {
        self.call(Operation::IpcMemHandle, Call::Other, |sim| sim.ipc_mem_handle(ptr))
    }

    unsafe fn ipc_open_mem_handle(
        &self,
        device: DeviceId,
        handle: IpcMemHandle,
    ) -> Result<DevicePtr> {
        self.call(Operation::IpcOpenMemHandle, Call::Other, |sim| {
            sim.ipc_open_mem_handle(device, handle)
        })
    }

    unsafe fn ipc_close_mem_handle(&self, ptr: DevicePtr) -> Result<()> {
        self.call(Operation::IpcCloseMemHandle, Call::Other, |sim| sim.ipc_close_mem_handle(ptr))
    }

    fn memory_granularity(&self, _: MemoryProps, which: Granularity) -> Result<u64> {
        self.call(Operation::MemoryGranularity, Call::Other, |sim| sim.memory_granularity(which))
    }

    fn address_reserve(&self, bytes: u64, align_bytes: u64, hint: DevicePtr) -> Result<DevicePtr> {
        self.call(Operation::AddressReserve, Call::Other, |sim| {
            sim.address_reserve(bytes, align_bytes, hint)
        })
    }

    unsafe fn address_free(&self, span: Span) -> Result<()> {
        self.call_on(Operation::AddressFree, Call::Other, span, |sim| sim.address_free(span))
    }

    fn memory_create(&self, bytes: u64, props: MemoryProps) -> Result<MemoryHandle> {
        self.call(Operation::MemoryCreate, Call::PlainMemory, |sim| sim.memory_create(bytes, props))
    }

    unsafe fn memory_release(&self, memory: MemoryHandle) -> Result<()> {
        self.call(Operation::MemoryRelease, Call::PlainMemory, |sim| sim.memory_release(memory))
    }

    unsafe fn memory_map(&self, span: Span, offset_bytes: u64, memory: MemoryHandle) -> Result<()> {
        self.call_on(Operation::MemoryMap, Call::Other, span, |sim| {
            sim.memory_map(span, offset_bytes, memory)
        })
    }

    unsafe fn memory_unmap(&self, span: Span) -> Result<()> {
        self.call_on(Operation::MemoryUnmap, Call::Other, span, |sim| sim.memory_unmap(span))
    }

    unsafe fn memory_set_access(&self, span: Span, wanted: &[MemoryAccess]) -> Result<()> {
        let wanted = self.machine.list(wanted);
        self.call_on(Operation::MemorySetAccess, Call::Other, span, |sim| {
            sim.memory_set_access(span, &wanted)
        })
    }

    fn memory_access(&self, ptr: DevicePtr, location: Location) -> Result<AccessFlags> {
        self.call(Operation::MemoryAccess, Call::Other, |sim| sim.memory_access(ptr, location))
    }

    fn stream_create(&self, device: DeviceId, flags: StreamFlags) -> Result<StreamHandle> {
        let raw =
            self.call(Operation::StreamCreate, Call::Control(Control::StreamCreate), |sim| {
                sim.check_device(device)?;
                sim.streams.create(device, flags)
            })?;
        Ok(StreamHandle::checked(raw))
    }

    unsafe fn stream_destroy(&self, stream: StreamHandle) -> Result<()> {
        self.call(
            (Operation::StreamDestroy, stream),
            Call::Control(Control::StreamDestroy),
            |sim| sim.streams.destroy(stream),
        )
    }

    fn stream_synchronize(&self, stream: StreamHandle) -> Result<()> {
        self.modules.text.flush();
        self.call((Operation::StreamSynchronize, stream), Call::Wait, |sim| {
            sim.streams.check(stream)?;
            sim.waited_for(stream);
            sim.release_pools();
            Ok(())
        })
    }

    fn stream_wait_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        self.call(
            (Operation::StreamWaitEvent, stream),
            Call::Control(Control::StreamWaitEvent),
            |sim| {
                sim.streams.check(stream)?;
                sim.streams.check_event(event)
            },
        )
    }

    unsafe fn stream_attach(
        &self,
        stream: StreamHandle,
        span: Span,
        flags: AttachFlags,
    ) -> Result<()> {
        self.call_on(
            (Operation::StreamAttach, stream),
            Call::Control(Control::StreamAttach),
            span,
            |sim| sim.stream_attach(stream, span, flags),
        )
    }

    fn event_create(&self, device: DeviceId, flags: EventFlags) -> Result<EventHandle> {
        let raw =
            self.call(Operation::EventCreate, Call::Control(Control::EventCreate), |sim| {
                sim.check_device(device)?;
                sim.streams.create_event(flags)
            })?;
        Ok(EventHandle::checked(raw))
    }

    unsafe fn event_destroy(&self, event: EventHandle) -> Result<()> {
        self.call(Operation::EventDestroy, Call::Control(Control::EventDestroy), |sim| {
            sim.streams.destroy_event(event)?;
            sim.withdraw_event(event);
            sim.forget_event(event);
            Ok(())
        })
    }

    fn event_record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.call((Operation::EventRecord, stream), Call::Control(Control::EventRecord), |sim| {
            sim.streams.record(event, stream, sim.clock_ns)?;
            sim.recorded(event, stream);
            Ok(())
        })
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        self.call(Operation::EventQuery, Call::Control(Control::EventQuery), |sim| {
            sim.streams.check_event(event)?;
            sim.waited_for_event(event);
            Ok(true)
        })
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        self.modules.text.flush();
        self.call(Operation::EventSynchronize, Call::Wait, |sim| {
            sim.streams.check_event(event)?;
            sim.waited_for_event(event);
            sim.release_pools();
            Ok(())
        })
    }

    fn event_elapsed_ns(&self, start: EventHandle, end: EventHandle) -> Result<u64> {
        self.call(Operation::EventElapsedNs, Call::Control(Control::EventElapsed), |sim| {
            sim.streams.elapsed_ns(start, end)
        })
    }

    unsafe fn memset(&self, span: Span, value: u8, stream: StreamHandle) -> Result<()> {
        self.fill(Operation::Memset, span, Pattern::new([value]), stream)
    }

    unsafe fn memset_d16(&self, span: Span, value: u16, stream: StreamHandle) -> Result<()> {
        self.fill(Operation::MemsetD16, span, Pattern::new(value.to_le_bytes()), stream)
    }

    unsafe fn memset_d32(&self, span: Span, value: u32, stream: StreamHandle) -> Result<()> {
        self.fill(Operation::MemsetD32, span, Pattern::new(value.to_le_bytes()), stream)
    }

    unsafe fn memcpy(
        &self,
        destination: DevicePtr,
        source: DevicePtr,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        self.call_on((Operation::Memcpy, stream), BULK, Span::new(destination, bytes), |sim| {
            sim.memcpy(SpanCopy::new(destination, source, bytes), stream)
        })
    }

    unsafe fn memcpy_batch(
        &self,
        copies: &[SpanCopy],
        attributes: &[CopyAttributes],
        attribute_starts: &[usize],
        stream: StreamHandle,
    ) -> Result<()> {
        let (copies, attributes) = (self.machine.list(copies), self.machine.list(attributes));
        let attribute_starts = self.machine.list(attribute_starts);
        let mut refused = None;
        let answer = self.call((Operation::MemcpyBatch, stream), BULK, |sim| {
            sim.memcpy_batch(&copies, &attributes, &attribute_starts, stream, &mut refused)
        });
        answer.map_err(|error| match refused {
            Some(item) => error.with_item(item).with_span(copies[item].to()),
            None => error,
        })
    }

    unsafe fn host_touch(&self, touch: HostTouch) -> Result<u64> {
        let name = Operation::HostTouch.into();
        let at_once = |sim: &mut Sim, call| sim.host_touch_at_once(&touch, call);
        let act = |sim: &mut Sim| sim.host_touch(touch);
        let answer = self.machine.call_at_once(name, Call::HostTouch, at_once, act);
        answer.map_err(|error| error.with_span(touch.span))
    }

    unsafe fn device_touch(&self, touch: DeviceTouch, stream: StreamHandle) -> Result<u64> {
        let threads = u64::from(touch.blocks).saturating_mul(u64::from(touch.threads));
        let call = Call::DeviceTouch { threads, bulk: false };
        let name = (Operation::DeviceTouch, stream).into();
        let at_once = |sim: &mut Sim, call| sim.device_touch_at_once(&touch, stream, call);
        let act = |sim: &mut Sim| sim.device_touch(touch, stream);
        let answer = self.machine.call_at_once(name, call, at_once, act);
        answer.map_err(|error| error.with_span(touch.span))
    }

    unsafe fn kernel_accesses(&self, kernel: &KernelAccesses, stream: StreamHandle) -> Result<()> {
        let threads = u64::from(kernel.blocks).saturating_mul(u64::from(kernel.threads));
        let call = Call::DeviceTouch { threads, bulk: false };
        self.call((Operation::KernelAccesses, stream), call, |sim| {
            sim.kernel_accesses(kernel, stream)
        })
    }

    unsafe fn launch_recorded(&self, launch: &RecordedLaunch, stream: StreamHandle) -> Result<()> {
        let call = Call::DeviceTouch { threads: launch.threads(), bulk: false };
        self.call((Operation::LaunchRecorded, stream), call, |sim| {
            sim.launch_recorded(launch, stream)
        })
    }

    unsafe fn module_load(&self, device: DeviceId, image: &[u8]) -> Result<ModuleHandle> {
        self.load_module(device, image)
    }

    unsafe fn module_unload(&self, module: ModuleHandle) -> Result<()> {
        self.unload_module(module)
    }

    fn module_function(&self, module: ModuleHandle, name: &str) -> Result<FunctionHandle> {
        self.find_function(module, name)
    }

    fn module_global(&self, module: ModuleHandle, name: &str) -> Result<Span> {
        self.find_global(module, name)
    }

    fn function_params(&self, function: FunctionHandle) -> Result<Vec<ParamInfo>> {
        self.params_of(function)
    }

    fn function_attribute(
        &self,
        function: FunctionHandle,
        attribute: FunctionAttribute,
    ) -> Result<i32> {
        self.attribute_of(function, attribute)
    }

    fn function_set_attribute(
        &self,
        function: FunctionHandle,
        attribute: FunctionAttribute,
        value: i32,
    ) -> Result<()> {
        self.set_attribute_of(function, attribute, value)
    }

    fn occupancy_blocks(
        &self,
        function: FunctionHandle,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32> {
        self.occupancy_of(function, block_threads, shared_bytes)
    }

    fn occupancy_best_block(
        &self,
        function: FunctionHandle,
        shared_bytes: u32,
        threads_max: u32,
    ) -> Result<BestBlock> {
        self.best_block_of(function, shared_bytes, threads_max)
    }

    unsafe fn launch(
        &self,
        function: FunctionHandle,
        shape: LaunchShape,
        params: &[KernelParam],
        stream: StreamHandle,
    ) -> Result<()> {
        // SAFETY: the caller of this method promised what the other one asks for.
        unsafe { self.launch_function(function, shape, params, stream) }
    }

    unsafe fn launch_traced(
        &self,
        function: FunctionHandle,
        shape: LaunchShape,
        params: &[KernelParam],
        stream: StreamHandle,
    ) -> Result<RecordedLaunch> {
        // SAFETY: the caller of this method promised what the other one asks for.
        unsafe { self.trace_function(function, shape, params, stream) }
    }

    fn host_page_map(&self, span: Span) -> Result<Vec<PageRun>> {
        let answer = self.lock().host_page_map(span);
        answer.map_err(|refusal| error("host_page_map", refusal).with_span(span))
    }

    fn take_events(&self) -> Result<Vec<MemoryEvent>> {
        if self.config.events == EventCapture::Off {
            return Err(Error::new("take_events", ErrorKind::Unsupported)
                .with_detail("the simulator keeps no events: see SimConfig::events"));
        }
        Ok(self.lock().pager.records().log.take())
    }

    fn events_since(&self, position: u64) -> Result<EventsSince> {
        Ok(self.lock().pager.records().log.since(position))
    }

    fn clock_ns(&self) -> u64 {
        self.lock().clock_ns
    }

    fn sleep_ns(&self, duration_ns: u64) {
        let mut sim = self.lock();
        let modelled_ns = sim.pager.sleep(duration_ns);
        let duration_ns = sim.pace.take().map_or(modelled_ns, |(pace_ns, _)| pace_ns);
        sim.clock_ns = clock::after(sim.clock_ns, duration_ns);
    }
}

/// A handle that the table of pools made.
fn pool(raw: u64) -> PoolHandle {
    PoolHandle::checked(raw)
}
