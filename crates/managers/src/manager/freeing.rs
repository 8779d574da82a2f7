//! Freeing: by label, by instance, all of it, or a change of the resource that memory comes from.

use super::array::Array;
use super::error::Result;
use super::hooks::After;
use super::instance::Instance;
use super::instance_id::InstanceId;
use super::memory_manager::{MemoryManager, State};
use super::options::Allocator;
use super::warning::Warning;

impl MemoryManager {
    /// Frees the arrays of a label, of every instance that has one, and says how many there were.
    pub fn free(&self, label: &str) -> usize {
        self.enter(|state, _| {
            let all = state.instances.values_mut();
            let freed: Vec<Array> = all.filter_map(|one| one.arrays.remove(label)).collect();
            freed.iter().for_each(Array::release);
            freed.len()
        })
    }

    /// Frees one array of one instance, and says whether there was one. If there was none, the
    /// manager warns with [`Warning::NothingToFree`].
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`](super::ManagerError::UnknownInstance).
    pub fn free_array(&self, id: InstanceId, label: &str) -> Result<bool> {
        self.enter(|state, _| {
            let array = state.instance_mut(id)?.arrays.remove(label);
            match &array {
                Some(array) => array.release(),
                None => state.warnings.push(Warning::NothingToFree { label: label.to_owned() }),
            }
            Ok(array.is_some())
        })
    }

    /// Frees all arrays of an instance.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`](super::ManagerError::UnknownInstance).
    pub fn free_instance(&self, id: InstanceId) -> Result<()> {
        self.enter(|state, _| state.instance_mut(id).map(Instance::free_all))
    }

    /// Frees all arrays of all instances. No hook is called.
    pub fn free_all(&self) {
        self.enter(|state, _| state.instances.values_mut().for_each(Instance::free_all));
    }

    /// Frees all arrays of all instances, then calls every invalidation hook.
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let id = manager.register(Registration::new().invalidate_hook(|| println!("gone")))?;
    /// manager.invalidate_all();
    /// assert_eq!(manager.settings(id)?.allocated_bytes(), 0);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn invalidate_all(&self) {
        self.enter(invalidate_all);
    }

    /// Chooses where memory of the device comes from. All memory goes back first, groups get new
    /// streams, and every invalidation hook is called.
    ///
    /// # Errors
    /// As making the [`resource`](pagewise::resource) and streams; everything is as before then.
    pub fn set_allocator(&self, allocator: Allocator) -> Result<()> {
        self.enter(|state, after| {
            let resource = allocator.resource(&self.machine, self.device)?;
            let streams = state.groups.new_streams()?;
            invalidate_all(state, after);
            state.resources.set_device(resource);
            state.groups.set_streams(streams);
            Ok(())
        })
    }
}

fn invalidate_all(state: &mut State, after: &mut After) {
    for instance in state.instances.values_mut() {
        instance.free_all();
        after.invalidate(instance);
    }
}
