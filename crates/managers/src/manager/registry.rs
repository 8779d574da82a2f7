//! The registry: registration, stream groups, work in progress.

use pagewise::Stream;

use super::error::{ManagerError, Result};
use super::instance::{Completion, Instance, InstanceMemorySettings, Registration};
use super::instance_id::InstanceId;
use super::memory_manager::{MemoryManager, State};
use super::stream_groups::DEFAULT_GROUP;
use crate::sync::lock;

impl MemoryManager {
    /// Registers an instance, with its share, its stream group and its hooks.
    ///
    /// # Errors
    /// [`ManagerError::AlreadyRegistered`] for an object that is; as [`Pools::set_manual`] and
    /// [`Pools::set_auto`]; what making a stream reports. Nothing is registered then.
    ///
    /// [`Pools::set_manual`]: super::Pools::set_manual
    /// [`Pools::set_auto`]: super::Pools::set_auto
    pub fn register(&self, registration: Registration) -> Result<InstanceId> {
        self.enter(|state, _| {
            if let Some(object) = &registration.object {
                let same = |(_, other): &(_, &Instance)| {
                    other.registration.object.as_ref().is_some_and(|other| other.ptr_eq(object))
                };
                if let Some((&other, _)) = state.instances.iter().find(same) {
                    return Err(ManagerError::AlreadyRegistered(other));
                }
            }
            let id = InstanceId::unique();
            // All that can refuse comes before anything that changes.
            let mut pools = state.pools.clone();
            let warning = match registration.proportion {
                Some(proportion) => pools.set_manual(id, proportion)?,
                None => pools.set_auto(id).map(|()| None)?,
            };
            let group = registration.stream_group.as_deref().unwrap_or(DEFAULT_GROUP);
            state.groups.add_instance(id, group)?;
            state.pools = pools;
            warning.into_iter().for_each(|warning| state.warnings.push(warning));
            state.instances.insert(id, Instance::new(id, registration));
            Ok(id)
        })
    }

    /// Takes an instance out: its memory goes back, its share and its place in the group are free,
    /// its requests are forgotten. No hook is called.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let id = manager.register(Registration::new())?;
    /// manager.release_instance(id)?;
    /// assert!(manager.instances().is_empty());
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn release_instance(&self, id: InstanceId) -> Result<()> {
        self.enter(|state, after| {
            state.instance(id)?;
            state.release(id, after);
            Ok(())
        })
    }

    /// Releases an instance at the next call of the manager. It is for destructors: it cannot fail,
    /// and it waits for nothing, whatever the calling thread does.
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let id = manager.register(Registration::new())?;
    /// manager.release_later(id);
    /// assert!(manager.instances().is_empty());
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn release_later(&self, id: InstanceId) {
        lock(&self.released).push(id);
    }

    /// The data of an instance.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn settings(&self, id: InstanceId) -> Result<InstanceMemorySettings> {
        self.enter(|state, _| {
            let instance = state.instance(id)?;
            let requests = state.queue.get(&id);
            Ok(InstanceMemorySettings {
                proportion: state.pools.proportion(id).unwrap_or(0.0),
                cap: state.total_bytes.and_then(|total| state.pools.cap(id, total)),
                is_manual: state.pools.is_manual(id),
                stream_group: state.groups.get_group(id)?.to_owned(),
                stream: state.groups.get_stream(id)?,
                owner: instance.registration.owner,
                allocations: instance.arrays.clone(),
                queued: requests.map(|all| all.keys().cloned().collect()).unwrap_or_default(),
                last_used: instance.last_used,
                submitting: instance.submitting,
                host_spill_threshold: instance.spill_threshold_bytes,
                spill_directory: instance.spill_directory.clone(),
            })
        })
    }

    /// The registered instances, in the order in which they came.
    #[must_use]
    pub fn instances(&self) -> Vec<InstanceId> {
        self.enter(|state, _| state.instances.keys().copied().collect())
    }

    // ---- stream groups ------------------------------------------------------------------------

    /// The name of an instance's stream group.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn get_stream_group(&self, id: InstanceId) -> Result<String> {
        self.enter(|state, _| state.groups.get_group(id).map(str::to_owned))
    }

    /// The stream of an instance's group.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let a = manager.register(Registration::new().stream_group("solver"))?;
    /// let b = manager.register(Registration::new().stream_group("solver"))?;
    /// assert_eq!(manager.get_stream(a)?, manager.get_stream(b)?);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn get_stream(&self, id: InstanceId) -> Result<Stream> {
        self.enter(|state, _| state.groups.get_stream(id))
    }

    /// The stream of a group, which is made if it is new.
    ///
    /// # Errors
    /// What making a stream reports.
    pub fn get_group_stream(&self, group: &str) -> Result<Stream> {
        self.enter(|state, _| state.groups.get_group_stream(group))
    }

    /// The members of a group.
    #[must_use]
    pub fn get_instances_in_group(&self, group: &str) -> Vec<InstanceId> {
        self.enter(|state, _| state.groups.get_instances_in_group(group))
    }

    /// Whether an instance shares its group with another; never in the default group.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn is_grouped(&self, id: InstanceId) -> Result<bool> {
        self.enter(|state, _| state.groups.is_grouped(id))
    }

    /// Moves an instance to another group, and with it the members of its group that have the same
    /// owner. Their requests and their memory, which goes back on the new group's stream from now
    /// on, go along.
    ///
    /// # Errors
    /// As [`StreamGroups::change_group`](super::StreamGroups::change_group).
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let id = manager.register(Registration::new())?;
    /// manager.change_stream_group(id, "solver")?;
    /// assert_eq!(manager.get_stream_group(id)?, "solver");
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn change_stream_group(&self, id: InstanceId, group: &str) -> Result<()> {
        self.enter(|state, _| change_group(state, id, group))
    }

    /// Gives every group a new stream, which waits for the present work of the old one.
    ///
    /// # Errors
    /// As [`StreamGroups::reinit_streams`](super::StreamGroups::reinit_streams).
    ///
    /// ```
    /// # use pagewise_managers::manager::MemoryManager;
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let before = manager.get_group_stream("solver")?;
    /// manager.reinit_streams()?;
    /// assert_ne!(manager.get_group_stream("solver")?, before);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn reinit_streams(&self) -> Result<()> {
        self.enter(|state, _| {
            state.groups.reinit_streams()?;
            for (&id, instance) in &state.instances {
                let stream = state.groups.get_stream(id)?;
                // SAFETY: the arrays ask for a stream that comes after all work on them;
                // `reinit_streams` has made each new stream wait for its group's old one.
                unsafe { move_arrays(instance, &stream) };
            }
            Ok(())
        })
    }

    /// Waits for the work of an instance's group.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`]; as [`Stream::synchronize`].
    pub fn sync_stream(&self, id: InstanceId) -> Result<()> {
        Ok(self.get_stream(id)?.synchronize()?)
    }

    // ---- work in progress ---------------------------------------------------------------------

    /// Says that work of an instance is being given to the device: its memory is not evicted until
    /// [`end_submission`](Self::end_submission). Submissions nest. All instances of its owner count
    /// as used now.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// let id = manager.register(Registration::new())?;
    /// manager.begin_submission(id)?;
    /// // Launch kernels here.
    /// manager.end_submission(id, &manager.get_stream(id)?)?;
    /// assert_eq!(manager.settings(id)?.submitting, 0);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn begin_submission(&self, id: InstanceId) -> Result<()> {
        self.enter(|state, _| {
            let owner = state.instance(id)?.owner;
            let now = state.tick();
            let all = state.instances.values_mut();
            all.filter(|one| one.owner == owner).for_each(|one| one.last_used = now);
            state.instance_mut(id)?.submitting += 1;
            Ok(())
        })
    }

    /// Says that all of it was given, in a stream: its memory is not evicted until the stream has
    /// done what it has to do now.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`]; `InvalidValue` for a stream of another machine; what the
    /// back end says of events. The submission is still in progress then.
    pub fn end_submission(&self, id: InstanceId, stream: &Stream) -> Result<()> {
        self.enter(|state, _| {
            let instance = state.instance_mut(id)?;
            self.machine.check_stream("end_submission", stream)?;
            let completion = Completion::of(stream, self.device)?;
            instance.completions.retain(|earlier| !earlier.is_reached());
            instance.completions.push(completion);
            instance.submitting = instance.submitting.saturating_sub(1);
            Ok(())
        })
    }
}

/// Moves an instance and those of its owner in the same group to another group.
pub(super) fn change_group(state: &mut State, id: InstanceId, group: &str) -> Result<()> {
    let owner = state.instance(id)?.owner;
    let mut moved = state.groups.get_instances_in_group(state.groups.get_group(id)?);
    moved.retain(|other| state.instances.get(other).is_some_and(|other| other.owner == owner));
    state.groups.change_group_of(&moved, group)?;
    let stream = state.groups.get_stream(id)?;
    for id in moved {
        // SAFETY: the arrays ask for a stream that comes after all work on them. It is their own
        // stream still, or `change_group_of` has made it wait for that one.
        unsafe { move_arrays(state.instance(id)?, &stream) };
    }
    Ok(())
}

/// Makes another stream the one that the memory of an instance goes back on.
///
/// # Safety
/// The stream is of the manager's machine. It has been made to wait for the present work of the
/// instance's stream, or is that stream.
unsafe fn move_arrays(instance: &Instance, stream: &Stream) {
    for array in instance.arrays.values() {
        // SAFETY: the array asks for a stream that comes after all work on it. That work is in its
        // group's stream, and the caller has promised that this one waits for it.
        unsafe { array.move_to(stream) };
    }
}
