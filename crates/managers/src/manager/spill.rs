//! The choice of the host arrays that are spilled to files.

use std::fs;
use std::path::PathBuf;

use super::error::Result;
use super::host_array::HostMemory;
use super::instance_id::InstanceId;
use super::memory_manager::{MemoryManager, State};

/// The level at which a threshold or a directory is set. The closest level counts: the instance,
/// its owner, the manager.
///
/// ```
/// use pagewise_managers::manager::{HostMemory, MemoryManager, Registration, SpillLevel};
/// use pagewise::{Device, Machine};
///
/// let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
/// let id = manager.register(Registration::new().owner(7))?;
/// manager.set_host_spill_threshold(SpillLevel::Owner(7), Some(1000))?;
/// assert_eq!(manager.choose_host_memory_type(Some(id), 1001, true)?, HostMemory::Memmap);
/// assert_eq!(manager.choose_host_memory_type(None, 1001, true)?, HostMemory::Pinned);
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpillLevel {
    /// All instances without a closer setting.
    Manager,
    /// The instances of an owner.
    Owner(u64),
    /// One instance.
    Instance(InstanceId),
}

impl MemoryManager {
    /// Sets beyond how many bytes host arrays go to files; `None` leaves it to what is less close.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`](super::ManagerError::UnknownInstance).
    pub fn set_host_spill_threshold(&self, level: SpillLevel, bytes: Option<u64>) -> Result<()> {
        self.enter(|state, _| {
            match level {
                SpillLevel::Manager => state.spill.threshold_bytes = bytes,
                SpillLevel::Owner(owner) => {
                    state.spill.of_owners.entry(owner).or_default().0 = bytes;
                }
                SpillLevel::Instance(id) => state.instance_mut(id)?.spill_threshold_bytes = bytes,
            }
            Ok(())
        })
    }

    /// Sets where those files are; `None` leaves it to what is less close.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`](super::ManagerError::UnknownInstance).
    pub fn set_spill_directory(&self, level: SpillLevel, path: Option<PathBuf>) -> Result<()> {
        self.enter(|state, _| {
            match level {
                SpillLevel::Manager => state.spill.directory = path,
                SpillLevel::Owner(owner) => {
                    state.spill.of_owners.entry(owner).or_default().1 = path;
                }
                SpillLevel::Instance(id) => state.instance_mut(id)?.spill_directory = path,
            }
            Ok(())
        })
    }

    /// Which memory a host array of so many bytes should live in: a file beyond the threshold,
    /// page-locked memory if that is allowed and the
    /// [budget](Self::pinned_budget_bytes) is as large, else ordinary memory.
    ///
    /// Where nothing is set the threshold is 80 % of the system's memory; where that is unknown
    /// nothing goes to files.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`](super::ManagerError::UnknownInstance); as
    /// [`pinned_budget_bytes`](Self::pinned_budget_bytes) if page-locked memory is allowed.
    pub fn choose_host_memory_type(
        &self,
        id: Option<InstanceId>,
        bytes: u64,
        pinned_allowed: bool,
    ) -> Result<HostMemory> {
        let set = self.enter(|state, _| state.spill_threshold(id))?;
        let threshold = set.or_else(|| system_memory().map(|memory| memory.total_bytes / 5 * 4));
        if threshold.is_some_and(|threshold| bytes > threshold) {
            return Ok(HostMemory::Memmap);
        }
        let pinned = pinned_allowed && bytes <= self.pinned_budget_bytes()?;
        Ok(if pinned { HostMemory::Pinned } else { HostMemory::Host })
    }

    pub(crate) fn spill_directory(&self, id: Option<InstanceId>) -> PathBuf {
        let set = self.enter(|state, _| state.spill_place(id));
        set.unwrap_or_else(std::env::temp_dir)
    }
}

impl State {
    fn spill_threshold(&self, id: Option<InstanceId>) -> Result<Option<u64>> {
        let instance = id.map(|id| self.instance(id)).transpose()?;
        let own = instance.and_then(|instance| instance.spill_threshold_bytes);
        let owner = instance.and_then(|instance| instance.registration.owner);
        let owners = owner.and_then(|owner| self.spill.of_owners.get(&owner)?.0);
        Ok(own.or(owners).or(self.spill.threshold_bytes))
    }

    fn spill_place(&self, id: Option<InstanceId>) -> Option<PathBuf> {
        let instance = id.and_then(|id| self.instances.get(&id));
        let own = instance.and_then(|instance| instance.spill_directory.clone());
        let owner = instance.and_then(|instance| instance.registration.owner);
        let owners = || owner.and_then(|owner| self.spill.of_owners.get(&owner)?.1.clone());
        own.or_else(owners).or_else(|| self.spill.directory.clone())
    }
}

/// The system's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemMemory {
    pub(crate) total_bytes: u64,
    pub(crate) available_bytes: u64,
}

/// The system's memory, if it says so where Linux does.
pub(crate) fn system_memory() -> Option<SystemMemory> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim_start_matches(':').trim().split(' ').next()?.parse().ok()?;
        kibibytes.checked_mul(1024)
    };
    let total_bytes = figure("MemTotal")?;
    Some(SystemMemory {
        total_bytes,
        available_bytes: figure("MemAvailable").unwrap_or(total_bytes),
    })
}
