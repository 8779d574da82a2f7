//! Who is there: registration, shares, groups, modes, and letting go of memory.

use pagewise_hal::MemoryInfo;

use super::array::Array;
use super::error::{ManagerError, Result};
use super::hooks::After;
use super::instance::{Completion, Instance, InstanceId, InstanceMemorySettings, Registration};
use super::options::{Allocator, LimitMode};
use super::stream_groups::DEFAULT_GROUP;
use super::sync::lock;
use super::warning::Warning;
use super::{ChunkPolicy, MemoryManager, State};
use crate::Stream;

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
            let mut instance = Instance::new(id, registration);
            instance.last_used = state.tick();
            state.instances.insert(id, instance);
            Ok(id)
        })
    }

    /// Takes an instance out: its memory goes back, its share and its place in the group are free,
    /// its requests are forgotten. No hook is called.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn release_instance(&self, id: InstanceId) -> Result<()> {
        self.enter(|state, after| {
            state.instance(id)?;
            state.release(id, after);
            Ok(())
        })
    }

    /// The same at the next call of the manager. For destructors: it cannot fail and waits for
    /// nothing, whatever the calling thread is doing.
    pub fn release_later(&self, id: InstanceId) {
        lock(&self.released).push(id);
    }

    /// What is known of an instance.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn settings(&self, id: InstanceId) -> Result<InstanceMemorySettings> {
        self.enter(|state, _| {
            let instance = state.instance(id)?;
            let requests = state.queue.get(&id);
            Ok(InstanceMemorySettings {
                proportion: state.pools.proportion(id).unwrap_or(0.0),
                cap: state.pools.cap(id, self.total_bytes).unwrap_or(0),
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

    /// Everybody who is registered, in the order in which they came.
    #[must_use]
    pub fn instances(&self) -> Vec<InstanceId> {
        self.enter(|state, _| state.instances.keys().copied().collect())
    }

    // ---- shares -------------------------------------------------------------------------------

    /// Gives an instance a share of its own, from either pool.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`]; as [`Pools::set_manual`](super::Pools::set_manual).
    pub fn set_manual_proportion(&self, id: InstanceId, proportion: f64) -> Result<()> {
        self.enter(|state, _| set_manual(state, id, proportion))
    }

    /// Moves an instance from the auto pool to a share of its own; one that has a share keeps it.
    ///
    /// # Errors
    /// As [`set_manual_proportion`](Self::set_manual_proportion).
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
    /// [`ManagerError::UnknownInstance`].
    pub fn cap(&self, id: InstanceId) -> Result<u64> {
        let cap = self.enter(|state, _| state.pools.cap(id, self.total_bytes));
        cap.ok_or(ManagerError::UnknownInstance(id))
    }

    /// What shares of their own come to.
    #[must_use]
    pub fn manual_pool_proportion(&self) -> f64 {
        self.enter(|state, _| state.pools.manual_pool_proportion())
    }

    /// What is left for the others.
    #[must_use]
    pub fn auto_pool_proportion(&self) -> f64 {
        self.enter(|state, _| state.pools.auto_pool_proportion())
    }

    /// Who has a share of its own.
    #[must_use]
    pub fn manual_pool(&self) -> Vec<InstanceId> {
        self.enter(|state, _| state.pools.manual_pool().collect())
    }

    /// Who shares the rest.
    #[must_use]
    pub fn auto_pool(&self) -> Vec<InstanceId> {
        self.enter(|state, _| state.pools.auto_pool().collect())
    }

    // ---- modes --------------------------------------------------------------------------------

    /// Chooses whether shares are enforced.
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
    /// As [`Backend::memory_info`](crate::Backend::memory_info).
    pub fn get_memory_info(&self) -> Result<MemoryInfo> {
        Ok(self.machine.backend().memory_info(self.device.id())?)
    }

    /// How many bytes a stream group may allocate now: what is free, and if shares are enforced no
    /// more than what its instances have left of theirs.
    ///
    /// # Errors
    /// [`ManagerError::UnknownGroup`]; as [`get_memory_info`](Self::get_memory_info).
    pub fn get_available_memory(&self, group: &str) -> Result<u64> {
        self.enter(|state, _| {
            if !state.groups.names().any(|name| name == group) {
                return Err(ManagerError::UnknownGroup(group.to_owned()));
            }
            Ok(self.budget(state, group)?.available)
        })
    }

    /// Chooses where memory of the device comes from. All memory goes back first, groups get new
    /// streams, and everybody's invalidation hook is called.
    ///
    /// # Errors
    /// As making the [`resource`](crate::resource) and streams; everything is as before then.
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

    /// Who is in a group.
    #[must_use]
    pub fn get_instances_in_group(&self, group: &str) -> Vec<InstanceId> {
        self.enter(|state, _| state.groups.get_instances_in_group(group))
    }

    /// Whether an instance shares its group with somebody; never in the default group.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn is_grouped(&self, id: InstanceId) -> Result<bool> {
        self.enter(|state, _| state.groups.is_grouped(id))
    }

    /// Moves an instance to another group, with its requests and its memory, which goes back on
    /// the new group's stream from now on.
    ///
    /// # Errors
    /// As [`StreamGroups::change_group`](super::StreamGroups::change_group).
    pub fn change_stream_group(&self, id: InstanceId, group: &str) -> Result<()> {
        self.enter(|state, _| {
            state.groups.change_group(id, group)?;
            let stream = state.groups.get_stream(id)?;
            move_arrays(state.instance(id)?, &stream);
            Ok(())
        })
    }

    /// Gives every group a new stream, which waits for the present work of the old one.
    ///
    /// # Errors
    /// As [`StreamGroups::reinit_streams`](super::StreamGroups::reinit_streams).
    pub fn reinit_streams(&self) -> Result<()> {
        self.enter(|state, _| {
            state.groups.reinit_streams()?;
            for (&id, instance) in &state.instances {
                move_arrays(instance, &state.groups.get_stream(id)?);
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

    // ---- letting go ---------------------------------------------------------------------------

    /// Frees the arrays of a label, of every instance that has one, and says how many there were.
    /// None is worth a [`Warning::NothingToFree`].
    pub fn free(&self, label: &str) -> usize {
        self.enter(|state, _| {
            let all = state.instances.values_mut();
            let freed: Vec<Array> = all.filter_map(|one| one.arrays.remove(label)).collect();
            freed.iter().for_each(Array::release);
            if freed.is_empty() {
                state.warnings.push(Warning::NothingToFree { label: label.to_owned() });
            }
            freed.len()
        })
    }

    /// Frees one array of one instance, and says whether there was one. None is worth a warning.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
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
    /// [`ManagerError::UnknownInstance`].
    pub fn free_instance(&self, id: InstanceId) -> Result<()> {
        self.enter(|state, _| state.instance_mut(id).map(Instance::free_all))
    }

    /// Frees all arrays of everybody. No hook is called.
    pub fn free_all(&self) {
        self.enter(|state, _| state.instances.values_mut().for_each(Instance::free_all));
    }

    /// Frees all arrays of everybody, then calls everybody's invalidation hook.
    pub fn invalidate_all(&self) {
        self.enter(invalidate_all);
    }

    // ---- work in progress ---------------------------------------------------------------------

    /// Says that work of an instance is being given to the device: its memory is not evicted until
    /// [`end_submission`](Self::end_submission). Submissions nest.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn begin_submission(&self, id: InstanceId) -> Result<()> {
        self.enter(|state, _| {
            let now = state.tick();
            let instance = state.instance_mut(id)?;
            instance.last_used = now;
            instance.submitting += 1;
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

fn set_manual(state: &mut State, id: InstanceId, proportion: f64) -> Result<()> {
    state.instance(id)?;
    let warning = state.pools.set_manual(id, proportion)?;
    warning.into_iter().for_each(|warning| state.warnings.push(warning));
    Ok(())
}

fn move_arrays(instance: &Instance, stream: &Stream) {
    instance.arrays.values().for_each(|array| array.move_to(stream));
}

fn invalidate_all(state: &mut State, after: &mut After) {
    for instance in state.instances.values_mut() {
        instance.free_all();
        after.invalidate(instance);
    }
}
