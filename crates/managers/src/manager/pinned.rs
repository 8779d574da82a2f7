//! Page-locked host memory of a manager: the budget, and when blocks are used again.
//!
//! Locking pages takes the driver long and takes memory from all processes. So a manager has a
//! budget for what its host arrays lock together, and keeps blocks that no array uses any more for
//! later arrays, until [`release_idle_memory`](MemoryManager::release_idle_memory).

use pagewise::resource::Allocation;
use pagewise::{ErrorKind, HostViews, Stream};

use super::array_memory::ArrayMemory;
use super::error::{ManagerError, Result};
use super::memory_manager::{MemoryManager, State};
use super::pinned_blocks::PinnedBlock;
use super::spill::system_memory;
use crate::sync::lock;

impl State {
    /// The bytes of page-locked arrays of all instances.
    fn pinned_array_bytes(&self) -> u64 {
        let arrays = self.instances.values().flat_map(|instance| instance.arrays.values());
        let pinned = arrays.filter(|array| !array.memory().is_on_device());
        pinned.map(|array| array.allocated_bytes()).fold(0, u64::saturating_add)
    }
}

impl MemoryManager {
    /// All bytes of the device, asked for once.
    fn device_bytes(&self) -> Result<u64> {
        if let Some(&bytes) = self.device_bytes.get() {
            return Ok(bytes);
        }
        let answer = self.machine.backend().memory_info(self.device.id());
        let bytes = answer.map_err(ManagerError::TotalUnknown)?.total_bytes;
        Ok(*self.device_bytes.get_or_init(|| bytes))
    }

    /// The bytes that host arrays may lock together with page-locked arrays of instances: what the
    /// options say, or as many as the device has; at most 80 % of the system's memory, where that
    /// is known.
    ///
    /// # Errors
    /// [`ManagerError::TotalUnknown`] if the options say nothing and the device does not either.
    pub fn pinned_budget_bytes(&self) -> Result<u64> {
        let max = match self.pinned_max_bytes {
            Some(max) => max,
            None => self.device_bytes()?,
        };
        Ok(max.min(system_memory().map_or(u64::MAX, |memory| memory.total_bytes / 5 * 4)))
    }

    /// The page-locked bytes that host arrays and arrays of instances use now. Arrays that
    /// [`allocate`](Self::allocate) made for their holders do not count.
    #[must_use]
    pub fn pinned_live_bytes(&self) -> u64 {
        let arrays = self.enter(|state, _| state.pinned_array_bytes());
        lock(&self.pinned.0).live_bytes.saturating_add(arrays)
    }

    /// The page-locked bytes that are kept for later host arrays.
    #[must_use]
    pub fn pinned_idle_bytes(&self) -> u64 {
        lock(&self.pinned.0).idle_bytes()
    }

    /// Gives back page-locked memory that no array uses, and says how many bytes: with
    /// `keep_recent` what was idle at the last call already, otherwise all.
    ///
    /// ```
    /// # use pagewise_managers::manager::{Dtype, HostMemory, MemoryManager};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// drop(manager.create_host_array(&[100], Dtype::U8, HostMemory::Pinned, None)?);
    /// assert_eq!((manager.pinned_idle_bytes(), manager.release_idle_memory(true)), (100, 0));
    /// assert_eq!(manager.release_idle_memory(true), 100);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn release_idle_memory(&self, keep_recent: bool) -> u64 {
        let mut inside = lock(&self.pinned.0);
        let now = inside.generation;
        let all = std::mem::take(&mut inside.idle);
        let (kept, stale): (Vec<_>, _) =
            all.into_iter().partition(|idle| keep_recent && idle.since == now);
        inside.idle = kept;
        inside.generation += 1;
        drop(inside);
        stale.iter().map(|idle| idle.allocation.span().bytes).fold(0, u64::saturating_add)
    }

    /// A block of page-locked memory that the host reaches, idle or new; `None` if the budget or
    /// the driver has no room, unless it is forced.
    pub(crate) fn pinned(&self, bytes: usize, is_forced: bool) -> Result<Option<PinnedBlock>> {
        let memory = ArrayMemory::Pinned;
        if self.machine.host_views() == HostViews::Absent {
            let why = "addresses of this back end are not the host's: use `HostMemory::Host`";
            return Err(ManagerError::WrongMemory { memory, why });
        }
        let bytes = bytes as u64;
        let block = |allocation| PinnedBlock::new(allocation, &self.pinned);
        let budget = if is_forced { u64::MAX } else { self.pinned_budget_bytes()? };
        let (resource, arrays) =
            self.enter(|state, _| (state.resources.of(memory).clone(), state.pinned_array_bytes()));
        let mut inside = lock(&self.pinned.0);
        if let Some(allocation) = inside.take(bytes) {
            return Ok(Some(block(allocation)));
        }
        let live = inside.live_bytes.saturating_add(arrays).saturating_add(bytes);
        let is_tight = live.saturating_add(inside.idle_bytes()) > budget;
        let spare = if is_tight { std::mem::take(&mut inside.idle) } else { Vec::new() };
        if live > budget {
            return Ok(None);
        }
        // Counted before it is made, so that two threads cannot pass the budget together.
        inside.live_bytes = inside.live_bytes.saturating_add(bytes);
        drop(inside);
        drop(spare);
        let stream = Stream::legacy_default(&self.machine);
        let made = Allocation::new(resource, bytes, &stream)
            .and_then(|allocation| allocation.wait().map(|()| allocation));
        match made {
            Ok(allocation) => Ok(Some(block(allocation))),
            Err(error) => {
                let mut inside = lock(&self.pinned.0);
                inside.live_bytes = inside.live_bytes.saturating_sub(bytes);
                let is_short = error.kind() == ErrorKind::OutOfMemory && !is_forced;
                if is_short { Ok(None) } else { Err(error.into()) }
            }
        }
    }
}
