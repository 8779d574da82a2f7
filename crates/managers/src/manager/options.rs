//! Options of a manager.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pagewise::resource::{
    DeviceMemoryResource, ManagedMemoryResource, MemoryKind, MemoryResource, PinnedMemoryResource,
    PoolOptions,
};
use pagewise::{Device, Machine};

use super::array_memory::ArrayMemory;
use super::chunking::ChunkPolicy;
use super::error::{ManagerError, Result, named};

/// Whether shares are enforced.
///
/// ```
/// use pagewise_managers::manager::LimitMode;
/// assert_eq!("active".parse::<LimitMode>()?, LimitMode::Active);
/// assert!("strict".parse::<LimitMode>().is_err());
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum LimitMode {
    /// The device's free memory is available; shares are for information.
    #[default]
    Passive,
    /// A group gets no more than the shares of its instances.
    Active,
}

named!(LimitMode, "limit mode", {
    "passive" => Passive,
    "active" => Active,
});

/// The requests that [`allocate_queue`](super::MemoryManager::allocate_queue) carries out.
///
/// ```
/// use pagewise_managers::manager::QueueScope;
/// assert_eq!("owner".parse::<QueueScope>()?, QueueScope::Owner);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum QueueScope {
    /// Those of the stream group, as in cubie up to 0.3.
    #[default]
    Group,
    /// Those of the caller's owner in the stream group, as in cubie 0.17. Requests of other owners
    /// stay queued, and their hooks hear nothing. Without an owner an instance is its own.
    Owner,
}

named!(QueueScope, "scope of the queue", {
    "group" => Group,
    "owner" => Owner,
});

/// Where memory of the device comes from.
///
/// ```
/// use pagewise_managers::manager::Allocator;
/// assert_eq!("cupy_async".parse::<Allocator>()?, Allocator::CurrentPool);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Allocator {
    /// A call of the driver for each array.
    #[default]
    Direct,
    /// A pool that only this manager uses.
    OwnPool,
    /// The device's current pool, in stream order. It keeps freed memory as its threshold says.
    CurrentPool,
}

named!(Allocator, "allocator",
    /// By the names of cubie: `default`, `cupy` and `cupy_async`.
    {
    "default" => Direct,
    "cupy" => OwnPool,
    "cupy_async" => CurrentPool,
});

/// The resources by the kind of memory that they give.
#[derive(Debug)]
pub(crate) struct Resources {
    of: BTreeMap<ArrayMemory, Arc<dyn MemoryResource>>,
    /// The resource for the device's memory again, if it is one of [`Allocator`]'s.
    own: Option<Arc<DeviceMemoryResource>>,
}

impl Resources {
    pub(crate) fn of(&self, memory: ArrayMemory) -> &Arc<dyn MemoryResource> {
        &self.of[&memory]
    }

    pub(crate) fn set_device(&mut self, resource: Arc<DeviceMemoryResource>) {
        self.of.insert(ArrayMemory::Device, resource.clone());
        self.own = Some(resource);
    }

    /// The bytes that the pool keeps unused: they are as good as free.
    pub(crate) fn kept_bytes(&self) -> Result<u64> {
        let Some(pool) = self.own.as_ref().and_then(|resource| resource.pool()) else {
            return Ok(0);
        };
        let figures = pool.figures()?;
        Ok(figures.reserved_bytes.saturating_sub(figures.used_bytes))
    }
}

impl Allocator {
    pub(crate) fn resource(
        self,
        machine: &Machine,
        device: Device,
    ) -> Result<Arc<DeviceMemoryResource>> {
        let resource = match self {
            Self::Direct => DeviceMemoryResource::direct(machine, device)?,
            Self::OwnPool => {
                DeviceMemoryResource::new_pool(machine, device, PoolOptions::default())?
            }
            Self::CurrentPool => DeviceMemoryResource::current_pool(machine, device)?,
        };
        Ok(Arc::new(resource))
    }
}

/// Options of a manager, besides the machine and the device.
///
/// ```
/// use pagewise_managers::manager::{ChunkPolicy, LimitMode, ManagerOptions, MemoryManager};
/// use pagewise::{Device, Machine};
///
/// let options = ManagerOptions::new()
///     .total_bytes(8 << 30)
///     .limit_mode(LimitMode::Active)
///     .chunk_policy(ChunkPolicy::default().multiple(32).balanced(true));
/// let machine = Machine::from(pagewise::sim()?);
/// let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
/// assert_eq!(manager.total_bytes()?, 8 << 30);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ManagerOptions {
    pub(crate) total_bytes: Option<u64>,
    pub(crate) limit_mode: LimitMode,
    pub(crate) allocator: Allocator,
    pub(crate) chunk_policy: ChunkPolicy,
    pub(crate) resources: BTreeMap<ArrayMemory, Arc<dyn MemoryResource>>,
    pub(crate) require_invalidate_hook: bool,
    pub(crate) queue_scope: QueueScope,
    pub(crate) reuse_buffers: bool,
    pub(crate) pinned_max_bytes: Option<u64>,
    pub(crate) spill_threshold_bytes: Option<u64>,
    pub(crate) spill_directory: Option<PathBuf>,
}

impl Default for ManagerOptions {
    /// Shares of the whole device, passive, memory directly from the driver.
    fn default() -> Self {
        Self {
            total_bytes: None,
            limit_mode: LimitMode::default(),
            allocator: Allocator::default(),
            chunk_policy: ChunkPolicy::default(),
            resources: BTreeMap::new(),
            require_invalidate_hook: false,
            queue_scope: QueueScope::default(),
            reuse_buffers: true,
            pinned_max_bytes: None,
            spill_threshold_bytes: None,
            spill_directory: None,
        }
    }
}

impl ManagerOptions {
    /// Shares of the whole device, passive, memory directly from the driver.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The choices of cubie 0.17 where they are not ours: [`ChunkPolicy::cubie`],
    /// [`QueueScope::Owner`], and requests of instances with a live invalidation hook only.
    ///
    /// ```
    /// use pagewise_managers::manager::{ManagerError, ManagerOptions, MemoryManager, Registration};
    /// use pagewise::{Device, Machine};
    ///
    /// let machine = Machine::from(pagewise::sim()?);
    /// let options = ManagerOptions::cubie();
    /// let manager = MemoryManager::with_options(machine, Device::FIRST, options)?;
    /// let id = manager.register(Registration::new())?;
    /// let refused = manager.queue_request::<&str>(id, []);
    /// assert_eq!(refused, Err(ManagerError::HookRequired(id)));
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    #[must_use]
    pub fn cubie() -> Self {
        let options = Self::new().chunk_policy(ChunkPolicy::cubie());
        options.queue_scope(QueueScope::Owner).require_invalidate_hook(true)
    }

    /// The bytes that shares are shares of, instead of all memory of the device: such as what this
    /// process may use of it.
    #[must_use]
    pub fn total_bytes(mut self, bytes: u64) -> Self {
        self.total_bytes = Some(bytes);
        self
    }

    /// Whether shares are enforced.
    #[must_use]
    pub fn limit_mode(mut self, mode: LimitMode) -> Self {
        self.limit_mode = mode;
        self
    }

    /// Where memory of the device comes from.
    #[must_use]
    pub fn allocator(mut self, allocator: Allocator) -> Self {
        self.allocator = allocator;
        self
    }

    /// How chunks are chosen.
    #[must_use]
    pub fn chunk_policy(mut self, policy: ChunkPolicy) -> Self {
        self.chunk_policy = policy;
        self
    }

    /// The resource that gives memory of a kind. It may not call the manager.
    #[must_use]
    pub fn resource(mut self, memory: ArrayMemory, resource: Arc<dyn MemoryResource>) -> Self {
        self.resources.insert(memory, resource);
        self
    }

    /// Whether requests are taken only of instances that can be told that their memory is gone.
    #[must_use]
    pub fn require_invalidate_hook(mut self, on: bool) -> Self {
        self.require_invalidate_hook = on;
        self
    }

    /// Which requests are allocated together.
    #[must_use]
    pub fn queue_scope(mut self, scope: QueueScope) -> Self {
        self.queue_scope = scope;
        self
    }

    /// Whether a request takes over the device memory of the array that it replaces, if it fits:
    /// the default. No call of the driver is needed then, and memory that the new array leaves
    /// over stays with it. Without room for that, the old memory goes back first.
    #[must_use]
    pub fn reuse_buffers(mut self, on: bool) -> Self {
        self.reuse_buffers = on;
        self
    }

    /// The bytes of page-locked memory that host arrays may use together; otherwise as many as the
    /// device has, and never more than 80 % of the system's memory.
    #[must_use]
    pub fn pinned_max_bytes(mut self, bytes: u64) -> Self {
        self.pinned_max_bytes = Some(bytes);
        self
    }

    /// Beyond how many bytes host arrays go to a file; otherwise 80 % of the system's memory.
    #[must_use]
    pub fn host_spill_threshold(mut self, bytes: u64) -> Self {
        self.spill_threshold_bytes = Some(bytes);
        self
    }

    /// Where those files are; otherwise where temporary files are.
    #[must_use]
    pub fn spill_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spill_directory = Some(directory.into());
        self
    }

    /// The resources that were given, and the driver for the others.
    pub(crate) fn resources(&self, machine: &Machine, device: Device) -> Result<Resources> {
        let managed = Arc::new(ManagedMemoryResource::direct(machine));
        let pinned = Arc::new(PinnedMemoryResource::direct(machine));
        let mut resources = Resources { of: BTreeMap::new(), own: None };
        resources.of.insert(ArrayMemory::Managed, managed);
        resources.of.insert(ArrayMemory::Pinned, pinned.clone());
        resources.of.insert(ArrayMemory::Mapped, pinned);
        for (&memory, resource) in &self.resources {
            resources.of.insert(memory, checked(resource.clone(), memory, machine)?);
        }
        if !self.resources.contains_key(&ArrayMemory::Device) {
            resources.set_device(self.allocator.resource(machine, device)?);
        }
        Ok(resources)
    }
}

fn checked(
    resource: Arc<dyn MemoryResource>,
    memory: ArrayMemory,
    machine: &Machine,
) -> Result<Arc<dyn MemoryResource>> {
    let wanted = match memory {
        ArrayMemory::Device => MemoryKind::Device,
        ArrayMemory::Managed => MemoryKind::Managed,
        ArrayMemory::Pinned | ArrayMemory::Mapped => MemoryKind::Pinned,
    };
    if resource.memory_kind() != wanted {
        return Err(ManagerError::WrongMemory { memory, why: "the resource gives another kind" });
    }
    if resource.machine() != machine {
        return Err(ManagerError::WrongMemory {
            memory,
            why: "the resource is of another machine",
        });
    }
    Ok(resource)
}
