//! A manager of a device's memory for many instances: shares, stream groups, requests that are
//! allocated together, and division into chunks along a run axis where memory is short.
//!
//! It is modelled on the `MemoryManager` of cubie, and keeps its names; docs/parity-manager.md
//! compares them row by row. One manager is for one device. An *instance* registers, queues
//! requests for arrays, and one member of a *stream group* has them all allocated, on the group's
//! stream: either everything, or if it does not fit the same *chunks* of runs for all.
//!
//! ```
//! use pagewise_managers::manager::{ArrayRequest, ChunkPolicy, Dtype, LimitMode, ManagerOptions};
//! use pagewise_managers::manager::{MemoryManager, Registration};
//! use pagewise::{Device, Machine};
//!
//! let options = ManagerOptions::new()
//!     .total_bytes(64 << 20)
//!     .limit_mode(LimitMode::Active)
//!     .chunk_policy(ChunkPolicy::default().balanced(true));
//! let machine = Machine::from(pagewise::sim()?);
//! let manager = MemoryManager::with_options(&machine, Device::FIRST, options)?;
//! let solver = manager.register(Registration::new().proportion(0.5).stream_group("solver"))?;
//! let output = manager.register(Registration::new().stream_group("solver"))?;
//!
//! // 1000 runs of 100 kB and 20 kB: 120 MB for 64 MiB.
//! let state = ArrayRequest::new(Dtype::F64, [125, 100, 1000]).total_runs(1000);
//! let result = ArrayRequest::new(Dtype::F32, [1, 5000, 1000]).total_runs(1000);
//! manager.queue_request(solver, [("state", state)])?;
//! manager.queue_request(output, [("result", result)])?;
//! let allocated = manager.allocate_queue(solver)?;
//!
//! assert_eq!((allocated.parameters.chunks(), allocated.parameters.chunk_length()), (2, 500));
//! assert_eq!(allocated.responses[&output].arr["result"].shape(), [1, 5000, 500]);
//! # Ok::<(), pagewise_managers::manager::ManagerError>(())
//! ```
//!
//! # What holds
//!
//! - **A call that fails changes nothing**, with two exceptions where memory is short. Arrays that
//!   had to be freed before those that replace them could be allocated are gone, and the error
//!   names them ([`ManagerError::AfterFreeing`]); owners that were evicted are, and their hooks tell
//!   them. Requests stay queued until they are allocated.
//! - **Bytes are counted exactly**, in integers, with the allocator's rounding.
//! - **It may be called from several threads.** It has one lock, under which it also calls the back
//!   end, so that two groups never see the same free bytes. Hooks and destructors of what users
//!   gave are called without it, so they may call the manager. Memory resources and back ends may
//!   not.
//! - **Nothing is printed**: see [`Warning`].
//!
//! Work on a device is unknown to the manager unless it is in the order of the group's stream, or
//! announced by [`begin_submission`](MemoryManager::begin_submission).
//!
//! # Shortage
//!
//! | answer | how |
//! | --- | --- |
//! | chunks | arrays along the run axis hold one chunk; the default |
//! | eviction | idle owners with hooks, least recently used first, lose their memory; within the share of who asks |
//! | windows | [`ArrayRequest::oversubscribe`]: managed memory holds everything, and the device two chunks at a time |
//! | host files | [`HostMemory::Memmap`], chosen for host arrays beyond a threshold |

mod array;
mod buffer_pool;
mod chunking;
mod error;
mod eviction;
mod freeing;
mod hooks;
mod host_array;
mod instance;
mod options;
mod plan;
mod proportions;
mod queue;
mod registry;
mod request;
mod shares;
mod spill;
mod stream_groups;
mod transfers;
mod warning;
mod window;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use pagewise::{Device, Machine};

use crate::sync::{Mutex, lock};
use hooks::After;
use instance::Instance;
use options::Resources;
use warning::Warnings;

pub use array::Array;
pub use buffer_pool::{ChunkBuffer, ChunkBufferPool};
pub use chunking::{ChunkParameters, ChunkPolicy, RunArray, RunFootprint};
pub use error::{ManagerError, Result};
pub use host_array::{HostArray, HostMemory};
pub use instance::{InstanceId, InstanceMemorySettings, Registration};
pub use options::{Allocator, LimitMode, ManagerOptions};
pub use proportions::{MIN_AUTOPOOL_SIZE, Pools};
pub use queue::Allocated;
pub use request::{ArrayMemory, ArrayRequest, ArrayResponse, Dtype};
pub use spill::SpillLevel;
pub use stream_groups::{DEFAULT_GROUP, StreamGroups};
pub use warning::Warning;
pub use window::Leaving;

/// Requests of an instance, by label.
type Requests = BTreeMap<String, ArrayRequest>;

/// Manages memory of one device for many instances. See the [module](self).
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
    machine: Machine,
    device: Device,
    total_bytes: u64,
    require_invalidate_hook: bool,
    state: Mutex<State>,
    /// To be released at the next call. A lock of its own, held for nothing else, so that
    /// destructors can use it whatever they run under.
    released: Mutex<Vec<InstanceId>>,
}

/// The state that the lock guards.
struct State {
    instances: BTreeMap<InstanceId, Instance>,
    pools: Pools<InstanceId>,
    groups: StreamGroups,
    queue: BTreeMap<InstanceId, Requests>,
    resources: Resources,
    mode: LimitMode,
    policy: ChunkPolicy,
    warnings: Warnings,
    /// Counts uses, to tell who was used last.
    clock: u64,
    spill: SpillSettings,
}

/// Beyond how many bytes host arrays go to files, and where, for whom nothing else is said.
#[derive(Debug, Default)]
struct SpillSettings {
    threshold_bytes: Option<u64>,
    directory: Option<PathBuf>,
    of_owners: BTreeMap<u64, (Option<u64>, Option<PathBuf>)>,
}

impl State {
    fn instance(&self, id: InstanceId) -> Result<&Instance> {
        self.instances.get(&id).ok_or(ManagerError::UnknownInstance(id))
    }

    fn instance_mut(&mut self, id: InstanceId) -> Result<&mut Instance> {
        self.instances.get_mut(&id).ok_or(ManagerError::UnknownInstance(id))
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Takes an instance out: its memory, share, group and requests.
    fn release(&mut self, id: InstanceId, after: &mut After) {
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
    /// If the back end does not say how much memory there is, shares are of 1 byte and there is a
    /// [`Warning::TotalUnknown`].
    ///
    /// # Errors
    /// `InvalidDevice` if the device does not exist; as making [`resource`](pagewise::resource)s.
    pub fn new(machine: impl Into<Machine>, device: Device) -> Result<Self> {
        Self::with_options(machine, device, ManagerOptions::new())
    }

    /// The same with options.
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
        let mut warnings = Warnings::default();
        let total_bytes = options.total_bytes.unwrap_or_else(|| {
            let answer = machine.backend().memory_info(device.id());
            answer.map(|info| info.total_bytes).unwrap_or_else(|error| {
                warnings.push(Warning::TotalUnknown { why: error.to_string() });
                1
            })
        });
        let state = State {
            instances: BTreeMap::new(),
            pools: Pools::new(),
            groups: StreamGroups::new(&machine, device),
            queue: BTreeMap::new(),
            resources,
            mode: options.limit_mode,
            policy: options.chunk_policy,
            warnings,
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
            total_bytes,
            require_invalidate_hook: options.require_invalidate_hook,
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
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The warnings since this was last asked, oldest first; at most the last 256.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<Warning> {
        lock(&self.state).warnings.take()
    }

    /// Does something under the lock, then what it leaves to be done without it.
    fn enter<T>(&self, act: impl FnOnce(&mut State, &mut After) -> T) -> T {
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
    fn purge(&self, state: &mut State, after: &mut After) {
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
            .field("total_bytes", &self.total_bytes)
            .field("mode", &state.mode)
            .field("instances", &state.instances.len())
            .field("queued", &state.queue.len())
            .finish_non_exhaustive()
    }
}
