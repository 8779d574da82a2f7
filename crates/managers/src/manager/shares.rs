//! The manager's shares and modes: [`Pools`](super::Pools) under its lock.

use pagewise::MemoryInfo;

use super::chunking::ChunkPolicy;
use super::error::{ManagerError, Result};
use super::instance_id::InstanceId;
use super::memory_manager::{MemoryManager, State};
use super::options::LimitMode;

impl MemoryManager {
    /// Gives an instance a share of its own, from either pool.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`]; as [`Pools::set_manual`](super::Pools::set_manual).
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let (a, b) = (manager.register(Registration::new())?, manager.register(Registration::new())?);
    /// manager.set_manual_proportion(a, 0.25)?;
    /// assert_eq!(manager.proportion(b)?, 0.75);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn set_manual_proportion(&self, id: InstanceId, proportion: f64) -> Result<()> {
        self.enter(|state, _| set_manual(state, id, proportion))
    }

    /// Moves an instance from the auto pool to a share of its own; one that has a share keeps it.
    ///
    /// # Errors
    /// As [`set_manual_proportion`](Self::set_manual_proportion).
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let id = manager.register(Registration::new())?;
    /// manager.set_manual_limit_mode(id, 0.25)?;
    /// manager.set_manual_limit_mode(id, 0.5)?;
    /// assert_eq!(manager.proportion(id)?, 0.25, "it had a share already");
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn set_manual_limit_mode(&self, id: InstanceId, proportion: f64) -> Result<()> {
        self.enter(|state, _| match state.pools.is_manual(id) {
            true => Ok(()),
            false => set_manual(state, id, proportion),
        })
    }

    /// Moves an instance to the auto pool; one that is there stays.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`]; as [`Pools::set_auto`](super::Pools::set_auto).
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let id = manager.register(Registration::new().proportion(0.25))?;
    /// manager.set_auto_limit_mode(id)?;
    /// assert_eq!(manager.proportion(id)?, 1.0);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn set_auto_limit_mode(&self, id: InstanceId) -> Result<()> {
        self.enter(|state, _| {
            state.instance(id)?;
            state.pools.set_auto(id)
        })
    }

    /// The share of an instance.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn proportion(&self, id: InstanceId) -> Result<f64> {
        self.enter(|state, _| state.pools.proportion(id)).ok_or(ManagerError::UnknownInstance(id))
    }

    /// Its share in bytes.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`]; [`ManagerError::TotalUnknown`].
    pub fn cap(&self, id: InstanceId) -> Result<u64> {
        self.enter(|state, _| {
            state.instance(id)?;
            let total = self.total(state)?;
            state.pools.cap(id, total).ok_or(ManagerError::UnknownInstance(id))
        })
    }

    /// The sum of the shares of their own.
    #[must_use]
    pub fn manual_pool_proportion(&self) -> f64 {
        self.enter(|state, _| state.pools.manual_pool_proportion())
    }

    /// The share that is left for the others.
    #[must_use]
    pub fn auto_pool_proportion(&self) -> f64 {
        self.enter(|state, _| state.pools.auto_pool_proportion())
    }

    /// The instances with a share of their own.
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let id = manager.register(Registration::new().proportion(0.5))?;
    /// assert_eq!((manager.manual_pool(), manager.auto_pool()), (vec![id], vec![]));
    /// assert_eq!((manager.manual_pool_proportion(), manager.auto_pool_proportion()), (0.5, 0.5));
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    #[must_use]
    pub fn manual_pool(&self) -> Vec<InstanceId> {
        self.enter(|state, _| state.pools.manual_pool().collect())
    }

    /// The instances that share the rest.
    #[must_use]
    pub fn auto_pool(&self) -> Vec<InstanceId> {
        self.enter(|state, _| state.pools.auto_pool().collect())
    }

    // ---- modes --------------------------------------------------------------------------------

    /// Chooses whether shares are enforced.
    ///
    /// ```
    /// # use pagewise_managers::manager::MemoryManager;
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// manager.set_limit_mode("active".parse()?);
    /// assert_eq!(manager.limit_mode(), pagewise_managers::manager::LimitMode::Active);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn set_limit_mode(&self, mode: LimitMode) {
        self.enter(|state, _| state.mode = mode);
    }

    /// Whether shares are enforced.
    #[must_use]
    pub fn limit_mode(&self) -> LimitMode {
        self.enter(|state, _| state.mode)
    }

    /// Chooses how chunks are chosen from now on.
    pub fn set_chunk_policy(&self, policy: ChunkPolicy) {
        self.enter(|state, _| state.policy = policy);
    }

    /// How chunks are chosen.
    #[must_use]
    pub fn chunk_policy(&self) -> ChunkPolicy {
        self.enter(|state, _| state.policy)
    }

    /// Free and total memory of the device.
    ///
    /// # Errors
    /// As [`Backend::memory_info`](pagewise::Backend::memory_info).
    pub fn get_memory_info(&self) -> Result<MemoryInfo> {
        Ok(self.machine.backend().memory_info(self.device.id())?)
    }

    /// How many bytes a stream group may allocate now: the free bytes, and if shares are enforced no
    /// more than what its instances have left of theirs.
    ///
    /// # Errors
    /// [`ManagerError::UnknownGroup`], [`ManagerError::TotalUnknown`]; as
    /// [`get_memory_info`](Self::get_memory_info).
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// manager.register(Registration::new())?;
    /// assert!(manager.get_available_memory("default")? > 1 << 30);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn get_available_memory(&self, group: &str) -> Result<u64> {
        self.enter(|state, _| {
            state.groups.check_group(group)?;
            Ok(self.budget(state, group)?.available(0))
        })
    }
}

fn set_manual(state: &mut State, id: InstanceId, proportion: f64) -> Result<()> {
    state.instance(id)?;
    let warning = state.pools.set_manual(id, proportion)?;
    warning.into_iter().for_each(|warning| state.warnings.push(warning));
    Ok(())
}
