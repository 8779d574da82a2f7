//! The pool: gives storage for tensors, counts it, moves all of it away and back.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use pagewise::refuse::{also, invalid, unsupported};
use pagewise::resource::{
    Limit, ManagedMemoryResource, MemoryKind, MemoryResource, ResourceCounters, Statistics,
    SubAllocator,
};
use pagewise::{
    DevicePtr, Error, ErrorKind, Machine, ManagedBuffer, MemoryAdvice, Place, PointerAttribute,
    Result, Span, Stream,
};

use super::layout::TensorLayout;
use super::plan::{Item, ModuleOptions, Plan, Purpose, Report};
use super::support::check_machine;
use super::tensor::{Tensor, TensorMemory, TensorStorage};
use crate::sync::{Mutex, MutexGuard, lock};

/// Bytes of the chunks that small tensors are cut from. Tensors above a quarter of this have
/// allocations of their own. PyTorch takes as many bytes for requests between 1 and 10 MiB.
const CHUNK_BYTES: u64 = 20 << 20;

/// Options of a pool: the memory that it gives, and how.
///
/// ```
/// use pagewise_managers::mempool::MempoolOptions;
/// use pagewise::{Device, Place};
///
/// let options = MempoolOptions {
///     limit_bytes: 20 << 30,
///     preferred_location: Some(Device::FIRST.into()),
///     accessed_by: vec![Device::FIRST.into(), Place::HOST],
/// };
/// assert_eq!(MempoolOptions::default().limit_bytes, u64::MAX);
/// # let _ = options;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MempoolOptions {
    /// Most bytes that live tensors may take together.
    pub limit_bytes: u64,
    /// Advice on each storage when it is made.
    pub preferred_location: Option<Place>,
    /// Advice on each storage when it is made: the processors that keep it mapped.
    pub accessed_by: Vec<Place>,
}

impl Default for MempoolOptions {
    /// No limit, no advice.
    fn default() -> Self {
        Self { limit_bytes: u64::MAX, preferred_location: None, accessed_by: Vec::new() }
    }
}

impl MempoolOptions {
    fn advice(&self) -> impl Iterator<Item = MemoryAdvice> {
        let preferred = self.preferred_location.map(MemoryAdvice::SetPreferredLocation);
        preferred
            .into_iter()
            .chain(self.accessed_by.iter().copied().map(MemoryAdvice::SetAccessedBy))
    }
}

/// A new pool of managed memory: [`UnifiedMempool::new`], by the name that frameworks call it.
///
/// # Errors
/// `Unsupported` (no CUDA code) without a device or without managed memory: see
/// [`is_unified_memory_unsupported`](super::is_unified_memory_unsupported).
pub fn create_unified_mempool(machine: impl Into<Machine>) -> Result<UnifiedMempool> {
    UnifiedMempool::new(machine)
}

/// A pool of managed memory for tensors. Clones are one pool, to be used from any thread.
///
/// Tensors keep the parts of it that they need, so the pool may be dropped before them.
///
/// ```
/// use pagewise_managers::mempool::{TensorLayout, UnifiedMempool};
/// use pagewise::{Device, Machine, Place, Stream};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let stream = Stream::new(&machine, Device::FIRST)?;
/// let pool = UnifiedMempool::new(&machine)?;
/// let weights = pool.tensor("weights", TensorLayout::contiguous(&[1 << 20], 4)?, &stream)?;
/// let away = pool.suspend(Place::HOST, &stream)?;
/// assert_eq!(away.moved.page_bytes, 4 << 20);
/// pool.resume(Device::FIRST, &stream)?;
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Clone)]
pub struct UnifiedMempool(Arc<Inner>);

struct Inner {
    resource: Arc<Statistics<Limit<Arc<dyn MemoryResource>>>>,
    options: MempoolOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// The stream that the pool was last moved on: the next move comes after it.
    moved_on: Option<Stream>,
    storages: Vec<Weak<TensorStorage>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Active,
    Suspended,
    /// A thread is moving it.
    Moving,
}

/// The outcome of a suspension.
///
/// ```
/// assert_eq!(pagewise_managers::mempool::Suspension::default().discarded.ranges, 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Suspension {
    /// The memory that was asked to move.
    pub moved: Report,
    /// The memory that was discarded: whole pages of disposable storage.
    pub discarded: Report,
}

impl UnifiedMempool {
    /// A pool over the machine's own managed memory, small tensors cut from chunks of 20 MiB.
    ///
    /// # Errors
    /// As [`create_unified_mempool`].
    pub fn new(machine: impl Into<Machine>) -> Result<Self> {
        Self::with_options(machine, MempoolOptions::default())
    }

    /// A pool with options.
    ///
    /// # Errors
    /// As [`new`](Self::new); for places as [`MemoryAdvice`] says.
    ///
    /// ```
    /// use pagewise_managers::mempool::{MempoolOptions, TensorLayout, UnifiedMempool};
    /// use pagewise::{ErrorKind, Machine, Stream};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let options = MempoolOptions { limit_bytes: 1 << 20, ..MempoolOptions::default() };
    /// let pool = UnifiedMempool::with_options(&machine, options)?;
    /// let much = TensorLayout::contiguous(&[1 << 20], 4)?;
    /// let error = pool.tensor("much", much, &Stream::legacy_default(&machine)).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn with_options(machine: impl Into<Machine>, options: MempoolOptions) -> Result<Self> {
        let machine = machine.into();
        check_machine(&machine)?;
        let direct = ManagedMemoryResource::direct(&machine);
        Self::over(Arc::new(SubAllocator::new(direct, CHUNK_BYTES)?), options)
    }

    /// A pool over any resource of managed memory. The resource decides whether tensors share
    /// allocations.
    ///
    /// # Errors
    /// `Unsupported` (no CUDA code) if the resource's memory is not managed; for places as
    /// [`MemoryAdvice`] says.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use pagewise_managers::mempool::{MempoolOptions, UnifiedMempool};
    /// use pagewise::resource::{ManagedMemoryResource, PinnedMemoryResource};
    /// use pagewise::Machine;
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let options = MempoolOptions::default();
    /// let ordered = Arc::new(ManagedMemoryResource::new_pool(&machine, None)?);
    /// assert!(UnifiedMempool::over(ordered, options.clone()).is_ok());
    /// let pinned = Arc::new(PinnedMemoryResource::direct(&machine));
    /// assert!(UnifiedMempool::over(pinned, options).is_err());
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn over(resource: Arc<dyn MemoryResource>, options: MempoolOptions) -> Result<Self> {
        const OPERATION: &str = "create_unified_mempool";
        if resource.memory_kind() != MemoryKind::Managed {
            let why = format!("the resource's memory is {:?}, not managed", resource.memory_kind());
            return Err(unsupported(OPERATION, why));
        }
        for advice in options.advice() {
            advice.check(OPERATION, resource.machine())?;
        }
        let limited = Limit::new(resource, options.limit_bytes);
        let resource = Arc::new(Statistics::new(limited));
        Ok(Self(Arc::new(Inner { resource, options, state: Mutex::default() })))
    }

    /// A new tensor with storage of its own, which is allocated and freed in the order of the
    /// stream. A tensor without elements has no storage.
    ///
    /// # Errors
    /// `OutOfMemory` (2, or no CUDA code above the limit); of the resource; of the advice that the
    /// pool gives, and then the storage has been given back.
    ///
    /// ```
    /// # use pagewise_managers::mempool::{TensorLayout, create_unified_mempool};
    /// # use pagewise::{Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let pool = create_unified_mempool(&machine)?;
    /// let layout = TensorLayout::contiguous(&[2, 3], 8)?;
    /// let tensor = pool.tensor("small", layout, &Stream::legacy_default(&machine))?;
    /// assert_eq!(tensor.span().bytes, 48);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn tensor(&self, name: &str, layout: TensorLayout, stream: &Stream) -> Result<Tensor> {
        const OPERATION: &str = "tensor";
        let machine = self.machine();
        let bytes = layout.span_bytes();
        if bytes == 0 {
            let nowhere = TensorMemory::Foreign(machine.clone());
            return Ok(Tensor::of(name, DevicePtr::NULL, layout, nowhere));
        }
        let Ok(len) = usize::try_from(bytes) else {
            return Err(invalid(
                OPERATION,
                format!("`{name}` is larger than this host can address"),
            ));
        };
        let about = |error: Error| also(error, &format!("for `{name}`"));
        let buffer = ManagedBuffer::<u8>::from_resource(self.0.resource.clone(), len, stream);
        let buffer = buffer.map_err(about)?.named(name);
        let home = self.home(buffer.span()).map_err(about)?;
        for advice in self.0.options.advice() {
            buffer.region().advise(advice).map_err(about)?;
        }
        let (ptr, disposable) = (buffer.device_ptr(), AtomicBool::new(false));
        let storage = Arc::new(TensorStorage { name: name.into(), buffer, home, disposable });
        let mut state = self.locked();
        // Room is made only where the list would grow, so that each entry is looked at rarely.
        if state.storages.len() == state.storages.capacity() {
            state.storages.retain(|storage| storage.strong_count() > 0);
        }
        state.storages.push(Arc::downgrade(&storage));
        drop(state);
        Ok(Tensor::of(name, ptr, layout, TensorMemory::Pool(storage)))
    }

    /// The driver's allocation around a piece of it.
    fn home(&self, span: Span) -> Result<Span> {
        let backend = self.machine().backend();
        let start = backend.pointer_attribute(span.ptr, PointerAttribute::RANGE_START_ADDR)?;
        let bytes = backend.pointer_attribute(span.ptr, PointerAttribute::RANGE_SIZE)?;
        Ok(Span::new(DevicePtr(start), bytes))
    }

    /// The bytes of live tensors: now, at most and in all. Shared storage counts once.
    #[must_use]
    pub fn counters(&self) -> ResourceCounters {
        self.0.resource.counters()
    }

    /// The machine that its memory is of.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        self.0.resource.machine()
    }

    /// Whether it was suspended and not resumed.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.locked().phase == Phase::Suspended
    }

    /// The ranges that live tensors take, with neighbours joined. [`resume`](Self::resume)
    /// prefetches them.
    ///
    /// # Errors
    /// None in a healthy program; as [`resume`](Self::resume).
    ///
    /// ```
    /// # use pagewise_managers::mempool::{TensorLayout, create_unified_mempool};
    /// # use pagewise::{Machine, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::legacy_default(&machine);
    /// let pool = create_unified_mempool(&machine)?;
    /// let layout = TensorLayout::contiguous(&[1024], 4)?;
    /// let (a, b) = (pool.tensor("a", layout.clone(), &stream)?, pool.tensor("b", layout, &stream)?);
    /// assert_eq!(pool.ranges()?.len(), 1, "they are neighbours");
    /// # let _ = (a, b);
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn ranges(&self) -> Result<Vec<Span>> {
        let storages = self.live();
        let plan = plan("ranges", &storages, Purpose::AdviceOrPrefetch)?;
        Ok(plan.ranges().to_vec())
    }

    /// Moves the pool off its devices, in stream order. It discards disposable storage
    /// ([`Tensor::set_disposable`]), and asks for migration of all other storage in one batch.
    /// Addresses stay.
    ///
    /// On a driver without discards (CUDA 12) disposable storage moves like the rest. Advice stays
    /// as it is. The call does not wait: synchronise the stream to know that the pool has moved.
    ///
    /// # Errors
    /// Before anything is done, without a CUDA code: `InvalidValue` if it is suspended, or for a
    /// stream of another machine, or the legacy default stream if there is something to discard;
    /// `NotReady` while another thread moves it; for places as [`prefetch`](pagewise::prefetch). From
    /// the driver: nothing is lost then, and the pool counts as active.
    ///
    /// ```
    /// # use pagewise_managers::mempool::{TensorLayout, create_unified_mempool};
    /// # use pagewise::{Device, Machine, Place, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let pool = create_unified_mempool(&machine)?;
    /// let layout = TensorLayout::contiguous(&[8 << 20], 1)?;
    /// let kept = pool.tensor("weights", layout.clone(), &stream)?;
    /// let lost = pool.tensor("kv cache", layout, &stream)?;
    /// // SAFETY: the contents of a disposable tensor may be lost; the program writes this one
    /// // before it reads it.
    /// unsafe { lost.set_disposable(true)? };
    /// let did = pool.suspend(Place::HOST, &stream)?;
    /// assert_eq!((did.moved.page_bytes, did.discarded.page_bytes), (8 << 20, 8 << 20));
    /// assert!(pool.suspend(Place::HOST, &stream).is_err(), "it is");
    /// # let _ = kept;
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn suspend(&self, to: impl Into<Place>, stream: &Stream) -> Result<Suspension> {
        const OPERATION: &str = "suspend";
        let to = to.into();
        self.check(OPERATION, to, stream)?;
        let moving = self.begin(OPERATION, Phase::Active)?;
        let storages = self.live();
        let discards = self.machine().capabilities().discard;
        let disposable =
            |storage: &TensorStorage| discards && storage.disposable.load(Ordering::Relaxed);
        // Asked once each: another thread may change its mind in between.
        let (lost, kept): (Vec<_>, Vec<_>) =
            storages.into_iter().partition(|storage| disposable(storage));
        let keep = plan(OPERATION, &kept, Purpose::AdviceOrPrefetch)?;
        let lose = plan(OPERATION, &lost, Purpose::Discard)?;
        if stream.is_legacy_default() && !lose.ranges().is_empty() {
            let why =
                "the driver discards on no legacy default stream: make one with `Stream::new`";
            return Err(invalid(OPERATION, why));
        }
        moving.comes_first(stream)?;
        keep.prefetch(to, stream)?;
        // Last, because it cannot be taken back: whatever failed before, no contents are lost.
        // SAFETY: the storages are marked as disposable by an `unsafe` call: its caller promised
        // that no code reads them before they are written again.
        unsafe { lose.discard(None, stream) }.map_err(|error| {
            also(error, "nothing was discarded; what is to be kept was asked to move")
        })?;
        moving.end(Phase::Suspended, stream);
        Ok(Suspension { moved: keep.report, discarded: lose.report })
    }

    /// Brings a suspended pool back in one batch, in stream order, and after the moves of the
    /// suspension on its own stream. Discarded storage comes without a copy.
    ///
    /// # Errors
    /// Before anything is done, without a CUDA code: `InvalidValue` if it is not suspended, or for
    /// a stream of another machine; `NotReady` while another thread moves it; for places as
    /// [`prefetch`](pagewise::prefetch). From the driver: it stays suspended, and can be resumed again.
    ///
    /// ```
    /// # use pagewise_managers::mempool::{TensorLayout, create_unified_mempool};
    /// # use pagewise::{Device, Machine, Place, Stream};
    /// let machine = Machine::from(pagewise::sim()?);
    /// let stream = Stream::new(&machine, Device::FIRST)?;
    /// let pool = create_unified_mempool(&machine)?;
    /// assert!(pool.resume(Device::FIRST, &stream).is_err(), "it is active");
    /// pool.suspend(Place::HOST, &stream)?;
    /// assert_eq!(pool.resume(Device::FIRST, &stream)?.ranges, 0, "it is empty");
    /// # Ok::<(), pagewise::Error>(())
    /// ```
    pub fn resume(&self, to: impl Into<Place>, stream: &Stream) -> Result<Report> {
        const OPERATION: &str = "resume";
        let to = to.into();
        self.check(OPERATION, to, stream)?;
        let moving = self.begin(OPERATION, Phase::Suspended)?;
        let storages = self.live();
        let all = plan(OPERATION, &storages, Purpose::AdviceOrPrefetch)?;
        moving.comes_first(stream)?;
        all.prefetch(to, stream)?;
        moving.end(Phase::Active, stream);
        Ok(all.report)
    }

    fn check(&self, operation: &'static str, to: Place, stream: &Stream) -> Result<()> {
        self.machine().check_place(operation, to)?;
        self.machine().check_stream(operation, stream)
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// The storages of live tensors, held so that none is freed during an operation on them. A
    /// thread that drops the last hold on a storage may run a resource's code, so do not drop it
    /// while the lock is held.
    fn live(&self) -> Vec<Arc<TensorStorage>> {
        let weak = self.locked().storages.clone();
        weak.iter().filter_map(Weak::upgrade).collect()
    }

    fn begin(&self, operation: &'static str, from: Phase) -> Result<Moving<'_>> {
        let mut state = self.locked();
        match state.phase {
            phase if phase == from => {
                state.phase = Phase::Moving;
                Ok(Moving { pool: self, then: from, on: state.moved_on.clone() })
            }
            Phase::Moving => Err(Error::new(operation, ErrorKind::NotReady)
                .with_detail("another thread is moving the pool: try again when it is done")),
            Phase::Suspended => Err(invalid(operation, "the pool is suspended: resume it first")),
            Phase::Active => Err(invalid(operation, "the pool is active: suspend it first")),
        }
    }
}

/// A guard that sets the phase after a move: the phase before it, unless the move succeeded.
struct Moving<'p> {
    pool: &'p UnifiedMempool,
    then: Phase,
    on: Option<Stream>,
}

impl Moving<'_> {
    /// Makes a stream come after the last move, so that no discard or migration of it is in flight.
    fn comes_first(&self, stream: &Stream) -> Result<()> {
        self.on.as_ref().map_or(Ok(()), |before| stream.wait_for(before))
    }

    fn end(mut self, then: Phase, stream: &Stream) {
        self.then = then;
        self.on = Some(stream.clone());
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.locked();
        state.phase = self.then;
        // The one before may go with `self`, by a call of the driver: after the lock.
        std::mem::swap(&mut state.moved_on, &mut self.on);
    }
}

fn plan(
    operation: &'static str,
    storages: &[Arc<TensorStorage>],
    purpose: Purpose,
) -> Result<Plan> {
    let items = storages.iter().map(Item::storage).collect();
    Plan::of(operation, items, purpose, &ModuleOptions::default())
}

impl fmt::Debug for UnifiedMempool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.locked().phase;
        let used = self.counters().bytes.current;
        write!(f, "UnifiedMempool({phase:?}, {used} bytes, {:?})", self.machine())
    }
}
