//! Instances: their registration, and the manager's data of them.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use pagewise::{Device, EventFlags, EventHandle, Machine, Result as HalResult, Stream};

use super::array::Array;
use super::chunking::ChunkParameters;
use super::instance_id::InstanceId;
use super::response::ArrayResponse;

type Invalidate = Arc<dyn Fn() + Send + Sync>;
type Object = Weak<dyn Any + Send + Sync>;
type Ready = Arc<dyn Fn(&ArrayResponse) + Send + Sync>;

/// The registration of an instance.
///
/// ```
/// use pagewise_managers::manager::{MemoryManager, Registration};
/// use pagewise::{Device, Machine};
///
/// let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
/// let solver = manager.register(
///     Registration::new()
///         .proportion(0.5)
///         .stream_group("solver")
///         .invalidate_hook(|| println!("memory is gone"))
///         .allocation_ready_hook(|response| println!("{} chunks", response.chunks)),
/// )?;
/// assert_eq!(manager.proportion(solver)?, 0.5);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Clone, Default)]
pub struct Registration {
    pub(crate) proportion: Option<f64>,
    pub(crate) stream_group: Option<String>,
    pub(crate) owner: Option<u64>,
    pub(crate) object: Option<Object>,
    pub(crate) invalidate: Option<Invalidate>,
    /// The object of which that hook is a method, if it is one.
    invalidates: Option<Object>,
    pub(crate) ready: Option<Ready>,
}

impl Registration {
    /// In the auto pool and the default stream group, without hooks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A share of its own, more than 0 and at most 1; `None` for the auto pool.
    #[must_use]
    pub fn proportion(mut self, proportion: impl Into<Option<f64>>) -> Self {
        self.proportion = proportion.into();
        self
    }

    /// The stream group.
    #[must_use]
    pub fn stream_group(mut self, name: impl Into<String>) -> Self {
        self.stream_group = Some(name.into());
        self
    }

    /// Instances of one owner are evicted together, and one of them never makes another go; in a
    /// stream group they are divided alike.
    #[must_use]
    pub fn owner(mut self, owner: u64) -> Self {
        self.owner = Some(owner);
        self
    }

    /// The object that it stands for. The manager does not keep it: when it is gone, the instance
    /// is released at the next call. An object is registered once at a time.
    #[must_use]
    pub fn object<T: Any + Send + Sync>(mut self, object: &Arc<T>) -> Self {
        let weak: Weak<T> = Arc::downgrade(object);
        self.object = Some(weak);
        self
    }

    /// Called, without the manager's lock, when the instance's memory was taken away: by
    /// invalidation or eviction.
    #[must_use]
    pub fn invalidate_hook(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.invalidate = Some(Arc::new(hook));
        self.invalidates = None;
        self
    }

    /// Sets a method of an object as the invalidation hook. The hook does not keep the object: once
    /// it is dropped, nothing is called.
    #[must_use]
    pub fn invalidate_hook_of<T: Send + Sync + 'static>(
        mut self,
        object: &Arc<T>,
        method: impl Fn(&T) + Send + Sync + 'static,
    ) -> Self {
        let weak = Arc::downgrade(object);
        self.invalidates = Some(weak.clone());
        self.invalidate = Some(Arc::new(move || {
            if let Some(object) = weak.upgrade() {
                method(&object);
            }
        }));
        self
    }

    /// Called, without the manager's lock, when the group's requests were allocated: with the
    /// instance's arrays, or if it had asked for none with the chunks only.
    #[must_use]
    pub fn allocation_ready_hook(
        mut self,
        hook: impl Fn(&ArrayResponse) + Send + Sync + 'static,
    ) -> Self {
        self.ready = Some(Arc::new(hook));
        self
    }

    /// Sets a method of an object as the allocation hook. The hook does not keep the object.
    #[must_use]
    pub fn allocation_ready_hook_of<T: Send + Sync + 'static>(
        mut self,
        object: &Arc<T>,
        method: impl Fn(&T, &ArrayResponse) + Send + Sync + 'static,
    ) -> Self {
        let weak = Arc::downgrade(object);
        self.ready = Some(Arc::new(move |response: &ArrayResponse| {
            if let Some(object) = weak.upgrade() {
                method(&object, response);
            }
        }));
        self
    }

    pub(crate) fn has_invalidate_hook(&self) -> bool {
        self.invalidate.is_some() && !is_gone(self.invalidates.as_ref())
    }

    pub(crate) fn is_dead(&self) -> bool {
        is_gone(self.object.as_ref())
    }
}

fn is_gone(object: Option<&Object>) -> bool {
    object.is_some_and(|object| object.strong_count() == 0)
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("proportion", &self.proportion)
            .field("stream_group", &self.stream_group)
            .field("owner", &self.owner)
            .field("object", &self.object.is_some())
            .field("invalidate_hook", &self.invalidate.is_some())
            .field("allocation_ready_hook", &self.ready.is_some())
            .finish()
    }
}

/// The instances that go together when memory is needed: those of an owner, or one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InstanceOwner {
    Named(u64),
    Alone(InstanceId),
}

/// The manager's data of an instance, besides its share and group.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) registration: Registration,
    pub(crate) owner: InstanceOwner,
    pub(crate) arrays: BTreeMap<String, Array>,
    /// The division that it was last told. It outlives the arrays: hooks hear it again.
    pub(crate) partition: Option<ChunkParameters>,
    /// When it was told that, in the manager's own counting.
    pub(crate) told_at: u64,
    /// When work of its owner last began, in the manager's own counting; 0 if none has.
    pub(crate) last_used: u64,
    /// Submissions that have begun and not ended.
    pub(crate) submitting: u64,
    /// Marks behind submitted work that may still be running.
    pub(crate) completions: Vec<Completion>,
    pub(crate) spill_threshold_bytes: Option<u64>,
    pub(crate) spill_directory: Option<PathBuf>,
}

impl Instance {
    pub(crate) fn new(id: InstanceId, registration: Registration) -> Self {
        let owner = registration.owner.map_or(InstanceOwner::Alone(id), InstanceOwner::Named);
        Self {
            registration,
            owner,
            arrays: BTreeMap::new(),
            partition: None,
            told_at: 0,
            last_used: 0,
            submitting: 0,
            completions: Vec::new(),
            spill_threshold_bytes: None,
            spill_directory: None,
        }
    }

    /// Whether it holds arrays laid out for the division that it was told.
    pub(crate) fn is_laid_out(&self) -> bool {
        self.arrays.values().any(Array::is_along_runs)
    }

    /// The bytes that it holds on the device.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.arrays.values().map(Array::device_bytes).fold(0, u64::saturating_add)
    }

    /// Gives all memory back.
    pub(crate) fn free_all(&mut self) {
        let arrays = std::mem::take(&mut self.arrays);
        arrays.values().for_each(Array::release);
    }

    /// Whether no work is known to use its memory. If that cannot be found out there may be some.
    pub(crate) fn is_idle(&self) -> bool {
        self.submitting == 0 && self.completions.iter().all(Completion::is_reached)
    }
}

/// A mark in a stream, gone with this.
#[derive(Debug)]
pub(crate) struct Completion {
    machine: Machine,
    event: EventHandle,
}

impl Completion {
    /// Marks the present end of a stream.
    pub(crate) fn of(stream: &Stream, device: Device) -> HalResult<Self> {
        let machine = stream.machine().clone();
        let device = stream.device().unwrap_or(device);
        let event = machine.backend().event_create(device.id(), EventFlags::DISABLE_TIMING)?;
        let mark = Self { machine, event };
        mark.machine.backend().event_record(event, stream.handle())?;
        Ok(mark)
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.machine.backend().event_query(self.event) == Ok(true)
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        // SAFETY: `of` made the event, and only this value has its handle.
        self.machine.on_drop(|| unsafe { self.machine.backend().event_destroy(self.event) });
    }
}

/// A snapshot of the manager's data of an instance.
///
/// ```
/// use pagewise_managers::manager::{MemoryManager, Registration};
/// use pagewise::{Device, Machine};
///
/// let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
/// let id = manager.register(Registration::new())?;
/// let settings = manager.settings(id)?;
/// assert_eq!((settings.proportion, settings.allocated_bytes()), (1.0, 0));
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InstanceMemorySettings {
    /// Its share of the device.
    pub proportion: f64,
    /// Its share in bytes; `None` if the memory of the device is unknown.
    pub cap: Option<u64>,
    /// Whether the share is its own.
    pub is_manual: bool,
    /// The stream group that it is in.
    pub stream_group: String,
    /// The group's stream.
    pub stream: Stream,
    /// The owner that it was registered with.
    pub owner: Option<u64>,
    /// Its arrays by label.
    pub allocations: BTreeMap<String, Array>,
    /// Labels of its queued requests.
    pub queued: Vec<String>,
    /// When work of its owner last began: larger is later, 0 is never.
    pub last_used: u64,
    /// Submissions that have begun and not ended.
    pub submitting: u64,
    /// Beyond how many bytes its host arrays go to a file, if that was set for it.
    pub host_spill_threshold: Option<u64>,
    /// Where those files are, if that was set for it.
    pub spill_directory: Option<PathBuf>,
}

impl InstanceMemorySettings {
    /// Bytes of all its arrays, wherever they live.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocations.values().map(Array::allocated_bytes).fold(0, u64::saturating_add)
    }
}
