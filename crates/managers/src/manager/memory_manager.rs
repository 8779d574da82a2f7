//! The manager: its state, and the lock around it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pagewise::{Device, Machine};

use super::chunking::ChunkPolicy;
use super::error::{ManagerError, Result};
use super::hooks::After;
use super::instance::Instance;
use super::instance_id::InstanceId;
use super::options::{LimitMode, ManagerOptions, QueueScope, Resources};
use super::pinned_blocks::Blocks;
use super::proportions::Pools;
use super::request::ArrayRequest;
use super::stream_groups::StreamGroups;
use super::warning::{Warning, Warnings};
use crate::sync::{Mutex, lock};

/// Requests of an instance, by label.
pub(super) type Requests = BTreeMap<String, ArrayRequest>;

/// Manages memory of one device for many instances. See the [module](super).
///
/// ```
/// use pagewise_managers::manager::{ArrayRequest, Dtype, MemoryManager, Registration};
/// use pagewise::{Device, Machine};
///
/// let machine = Machine::from(pagewise::sim()?);
/// let manager = MemoryManager::new(&machine, Device::FIRST)?;
/// let id = manager.register(Registration::new())?;
/// manager.queue_request(id, [("x", ArrayRequest::new(Dtype::F32, [8, 8, 8]))])?;
/// let x = manager.allocate_queue(id)?.responses[&id].arr["x"].clone();
/// assert_eq!(x.span()?.bytes, 2048);
/// assert_eq!(manager.free("x"), 1);
/// assert!(x.span().is_err(), "the memory is gone, and the handle says so");
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
pub struct MemoryManager {
    pub(super) machine: Machine,
    pub(super) device: Device,
    pub(super) require_invalidate_hook: bool,
    pub(super) reuse_buffers: bool,
    pub(super) pinned_max_bytes: Option<u64>,
    /// The bytes of the device, once they are known.
    pub(super) device_bytes: OnceLock<u64>,
    /// Page-locked memory of host arrays. A lock of its own, which destructors of host arrays take.
    pub(super) pinned: Arc<Blocks>,
    pub(super) state: Mutex<State>,
    /// To be released at the next call. A lock of its own, held for nothing else, so that
    /// destructors can use it whatever they run under.
    pub(super) released: Mutex<Vec<InstanceId>>,
}

/// The state that the lock guards.
pub(super) struct State {
    pub(super) instances: BTreeMap<InstanceId, Instance>,
    /// The bytes that shares are shares of; unknown until the device says how much it has.
    pub(super) total_bytes: Option<u64>,
    pub(super) pools: Pools<InstanceId>,
    pub(super) groups: StreamGroups,
    pub(super) queue: BTreeMap<InstanceId, Requests>,
    pub(super) resources: Resources,
    pub(super) mode: LimitMode,
    pub(super) policy: ChunkPolicy,
    pub(super) scope: QueueScope,
    pub(super) warnings: Warnings,
    /// Counts uses, to tell who was used last.
    pub(super) clock: u64,
    pub(super) spill: SpillSettings,
}

/// Beyond how many bytes host arrays go to files, and where, for whom nothing else is said.
#[derive(Debug, Default)]
pub(super) struct SpillSettings {
    pub(super) threshold_bytes: Option<u64>,
    pub(super) directory: Option<PathBuf>,
    pub(super) of_owners: BTreeMap<u64, (Option<u64>, Option<PathBuf>)>,
}

impl State {
    pub(super) fn instance(&self, id: InstanceId) -> Result<&Instance> {
        self.instances.get(&id).ok_or(ManagerError::UnknownInstance(id))
    }

    pub(super) fn instance_mut(&mut self, id: InstanceId) -> Result<&mut Instance> {
        self.instances.get_mut(&id).ok_or(ManagerError::UnknownInstance(id))
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Takes an instance out: its memory, share, group and requests.
    pub(super) fn release(&mut self, id: InstanceId, after: &mut After) {
        let Some(mut instance) = self.instances.remove(&id) else { return };
        instance.free_all();
        self.pools.remove(id);
        self.groups.remove_instance(id);
        self.queue.remove(&id);
        after.bury(instance);
    }
}

impl MemoryManager {
    /// A manager of a device, with shares of all its memory, passive.
    ///
    /// It is made even if the back end does not say how much memory there is. Each call that needs
    /// the number asks again, and reports [`ManagerError::TotalUnknown`] if there is no answer.
    ///
    /// # Errors
    /// `InvalidDevice` if the device does not exist; as making [`resource`](pagewise::resource)s.
    pub fn new(machine: impl Into<Machine>, device: Device) -> Result<Self> {
        Self::with_options(machine, device, ManagerOptions::new())
    }

    /// A manager with options.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`ManagerError::WrongMemory`] for a resource of another machine or
    /// kind.
    pub fn with_options(
        machine: impl Into<Machine>,
        device: Device,
        options: ManagerOptions,
    ) -> Result<Self> {
        let machine = machine.into();
        machine.check_device("memory manager", device)?;
        let resources = options.resources(&machine, device)?;
        let total_bytes = options.total_bytes.or_else(|| {
            let answer = machine.backend().memory_info(device.id());
            answer.map(|info| info.total_bytes).ok()
        });
        let state = State {
            instances: BTreeMap::new(),
            total_bytes,
            pools: Pools::new(),
            groups: StreamGroups::new(&machine, device),
            queue: BTreeMap::new(),
            resources,
            mode: options.limit_mode,
            policy: options.chunk_policy,
            scope: options.queue_scope,
            warnings: Warnings::default(),
            clock: 0,
            spill: SpillSettings {
                threshold_bytes: options.spill_threshold_bytes,
                directory: options.spill_directory,
                of_owners: BTreeMap::new(),
            },
        };
        Ok(Self {
            machine,
            device,
            require_invalidate_hook: options.require_invalidate_hook,
            reuse_buffers: options.reuse_buffers,
            pinned_max_bytes: options.pinned_max_bytes,
            device_bytes: OnceLock::new(),
            pinned: Arc::default(),
            state: Mutex::new(state),
            released: Mutex::new(Vec::new()),
        })
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The bytes that shares are shares of.
    ///
    /// # Errors
    /// [`ManagerError::TotalUnknown`] if they were not given and the device does not say.
    pub fn total_bytes(&self) -> Result<u64> {
        self.enter(|state, _| self.total(state))
    }

    /// The total, asked for again if it is unknown.
    pub(super) fn total(&self, state: &mut State) -> Result<u64> {
        if let Some(total) = state.total_bytes {
            return Ok(total);
        }
        let answer = self.machine.backend().memory_info(self.device.id());
        let total = answer.map_err(ManagerError::TotalUnknown)?.total_bytes;
        Ok(*state.total_bytes.insert(total))
    }

    /// The warnings since this was last asked, oldest first; at most the last 256.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<Warning> {
        lock(&self.state).warnings.take()
    }

    /// Does something under the lock, then what it leaves to be done without it.
    pub(super) fn enter<T>(&self, act: impl FnOnce(&mut State, &mut After) -> T) -> T {
        let mut after = After::default();
        let answer = {
            let mut state = lock(&self.state);
            self.purge(&mut state, &mut after);
            act(&mut state, &mut after)
        };
        after.run();
        answer
    }

    /// Releases those that were to be released, and those with objects that are gone.
    pub(super) fn purge(&self, state: &mut State, after: &mut After) {
        let mut gone = std::mem::take(&mut *lock(&self.released));
        let dead = state.instances.iter().filter(|(_, instance)| instance.registration.is_dead());
        gone.extend(dead.map(|(&id, _)| id));
        for id in gone {
            state.release(id, after);
        }
    }
}

/// Everything goes back, also if handles on it are left. No hook is called: no caller lost anything
/// that they could ask for again.
impl Drop for MemoryManager {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        for instance in state.instances.values_mut() {
            instance.free_all();
        }
    }
}

impl fmt::Debug for MemoryManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("MemoryManager")
            .field("machine", &self.machine)
            .field("device", &self.device)
            .field("total_bytes", &state.total_bytes)
            .field("mode", &state.mode)
            .field("instances", &state.instances.len())
            .field("queued", &state.queue.len())
            .finish_non_exhaustive()
    }
}
