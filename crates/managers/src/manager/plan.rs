//! Plans: the bytes of queued requests, the bytes available for them, and the chunks that follow.

use super::chunking::{ChunkParameters, ChunkPolicy, RunArray, RunFootprint};
use super::error::{ManagerError, Result};
use super::hooks::After;
use super::instance::{Instance, InstanceOwner};
use super::instance_id::InstanceId;
use super::memory_manager::{MemoryManager, Requests, State};
use super::options::{LimitMode, QueueScope};
use super::request::ArrayRequest;
use super::stream_groups::DEFAULT_GROUP;
use super::warning::Warning;

/// The memory of a group: the free bytes, and the bytes that its shares allow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// The bytes that the device has left.
    free: u64,
    /// The shares of the group's members.
    caps: u64,
    /// The bytes that its members hold.
    used: u64,
    /// Whether the shares limit what is allocated.
    is_enforced: bool,
}

impl Budget {
    /// The bytes that may be allocated once `replaced` bytes of the group's have gone.
    pub(crate) fn available(&self, replaced: u64) -> u64 {
        let free = self.free.saturating_add(replaced);
        if self.is_enforced { free.min(self.headroom(replaced)) } else { free }
    }

    /// The bytes of these that the policy lets arrays take.
    fn allocatable(&self, replaced: u64, policy: ChunkPolicy) -> u128 {
        let free = self.free.saturating_add(replaced);
        policy.allocatable(self.available(replaced).into(), free.into())
    }

    /// The bytes that the policy would let arrays take if the device had all memory free.
    fn allowed(&self, replaced: u64, policy: ChunkPolicy) -> u128 {
        policy.allocatable(self.headroom(replaced).into(), u128::MAX)
    }

    /// The bytes that the shares leave then, whether they are enforced or not. Members may hold
    /// more than their shares, which can have become smaller.
    fn headroom(&self, replaced: u64) -> u64 {
        self.caps.saturating_sub(self.used.saturating_sub(replaced))
    }
}

/// Queued requests of a group, added up.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    pub(crate) footprint: RunFootprint,
    /// How many runs there are, if any request says so.
    runs: Option<u64>,
    /// Arrays along run axes of different lengths: they can be allocated, but not divided.
    differs: Option<ManagerError>,
}

/// The decision.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) parameters: ChunkParameters,
    /// The bytes that all arrays take with these chunks.
    pub(crate) planned: u128,
    /// The bytes that can be allocated while arrays that are replaced are still there.
    pub(crate) room: u64,
    pub(crate) evicted: Vec<InstanceId>,
}

impl Demand {
    /// Adds requests up.
    ///
    /// The number of runs is what requests say; if none does, the length along the run axis that
    /// all have.
    pub(crate) fn of<'r>(
        requests: impl Iterator<Item = (&'r String, &'r ArrayRequest)> + Clone,
    ) -> Result<Self> {
        Self::along(None, requests)
    }

    /// Adds requests up, of computations with a stated number of runs if there is one.
    fn along<'r>(
        mut stated: Option<u64>,
        requests: impl Iterator<Item = (&'r String, &'r ArrayRequest)> + Clone,
    ) -> Result<Self> {
        for (label, request) in requests.clone().filter(|(_, request)| request.total_runs > 1) {
            let (runs, others) = (request.total_runs, *stated.get_or_insert(request.total_runs));
            if runs != others {
                return Err(ManagerError::RunsDiffer { label: label.clone(), runs, others });
            }
        }
        let chunkable = requests.clone().filter(|(_, request)| request.is_chunkable());
        let first = chunkable.filter_map(|(_, request)| request.runs()).next();
        let known = stated.or(first);
        let runs = known.unwrap_or(1);
        let mut differs = None;
        let mut footprint = RunFootprint::new(runs);
        for (label, request) in
            requests.clone().filter(|(_, request)| request.memory.is_on_device())
        {
            let bytes = request.bytes().unwrap_or(u128::MAX);
            footprint = match request.runs().filter(|_| request.is_chunkable()) {
                Some(own) if own == runs => {
                    let array = RunArray::new(bytes / u128::from(runs));
                    footprint.array(if request.oversubscribe { array.windowed() } else { array })
                }
                Some(own) => {
                    let label = label.clone();
                    let error = ManagerError::RunsDiffer { label, runs: own, others: runs };
                    differs.get_or_insert(error);
                    footprint.fixed(bytes)
                }
                None => footprint.fixed(bytes),
            };
        }
        // No item states a number, and their lengths differ: there is no run axis in common.
        if differs.is_some() && stated.is_none() {
            let on_device = requests.filter(|(_, request)| request.memory.is_on_device());
            let bytes = on_device.map(|(_, request)| request.bytes().unwrap_or(u128::MAX));
            let footprint = bytes.fold(RunFootprint::new(1), RunFootprint::fixed);
            return Ok(Self { footprint, runs: None, differs });
        }
        Ok(Self { footprint, runs: known, differs })
    }

    /// Divides into chunks that take no more than so many bytes.
    fn chunks(&self, budget: u128, policy: ChunkPolicy) -> Result<ChunkParameters> {
        match &self.differs {
            Some(error) if self.footprint.whole_bytes(policy) > budget => Err(error.clone()),
            _ => self.footprint.chunks_of(budget, policy),
        }
    }
}

fn does_not_fit(parameters: ChunkParameters, needed: u128, available: u128) -> ManagerError {
    let chunk_length = parameters.chunk_length();
    ManagerError::PartitionDoesNotFit { chunk_length, needed, available }
}

impl MemoryManager {
    /// The bytes that a group may allocate. Its members' memory counts against their shares, and
    /// memory of managed arrays counts whether it has come to the device yet or not.
    pub(super) fn budget(&self, state: &mut State, group: &str) -> Result<Budget> {
        let total = self.total(state)?;
        let info = self.machine.backend().memory_info(self.device.id())?;
        let held = state.instances.values().map(|instance| instance.device_bytes());
        let held = held.fold(0, u64::saturating_add);
        let free = info.free_bytes.saturating_add(state.resources.kept_bytes()?);
        let free = free.min(info.total_bytes.saturating_sub(held));
        let (mut caps, mut used) = (0_u64, 0_u64);
        for id in state.groups.get_instances_in_group(group) {
            caps = caps.saturating_add(state.pools.cap(id, total).unwrap_or(0));
            used = used.saturating_add(state.instance(id)?.device_bytes());
        }
        let is_enforced = state.mode == LimitMode::Active;
        let budget = Budget { free, caps, used, is_enforced };
        if is_enforced && u128::from(budget.headroom(0)) * 20 < u128::from(caps) {
            let (used_bytes, cap_bytes) = (used, caps);
            let group = group.to_owned();
            state.warnings.push(Warning::NearCap { group, used_bytes, cap_bytes });
        }
        Ok(budget)
    }

    /// Chooses chunks for a group's requests, if need be after evicting idle owners. No more than
    /// `limit` bytes are counted as available.
    pub(super) fn decide(
        &self,
        state: &mut State,
        after: &mut After,
        group: &str,
        queued: &[(InstanceId, Requests)],
        limit: u64,
    ) -> Result<Decision> {
        let demand = Demand::of(queued.iter().flat_map(|(_, requests)| requests))?;
        let policy = state.policy;
        let fixed = state.partition_in_use(group, queued, demand.runs)?;
        let goal = match fixed {
            Some(parameters) => demand.footprint.chunk_bytes(parameters.chunk_length(), policy),
            None => demand.footprint.whole_bytes(policy),
        };
        let mut budget = self.budget(state, group)?;
        let free_bytes = budget.free;
        let within =
            |budget: &Budget, replaced| budget.allocatable(replaced, policy).min(limit.into());
        let decision = |budget: &Budget, parameters: ChunkParameters, replaced: u64, evicted| {
            let planned = demand.footprint.chunk_bytes(parameters.chunk_length(), policy);
            let room = budget.available(0).min(limit.saturating_sub(replaced));
            Decision { parameters, planned, room, evicted }
        };
        if goal <= within(&budget, 0) {
            let whole = ChunkParameters::of(demand.footprint.runs(), demand.footprint.runs());
            return Ok(decision(&budget, fixed.unwrap_or(whole), 0, Vec::new()));
        }
        // Replaced arrays make room, and so do idle instances, within the group's share.
        let replaced = state.replaced_bytes(queued);
        let mut available = within(&budget, replaced);
        let mut evicted = Vec::new();
        if goal > available && goal <= budget.allowed(replaced, policy).min(limit.into()) {
            evicted = state.evict(policy.freed_for(goal - available), queued, after);
        }
        if !evicted.is_empty() {
            budget = self.budget(state, group)?;
            available = within(&budget, replaced);
        }
        // Once, not for each try.
        if limit == u64::MAX && fixed.is_none() && goal > available {
            state.warn_of_size(goal, free_bytes);
        }
        let parameters = match fixed {
            Some(parameters) if goal <= available => parameters,
            Some(parameters) => return Err(does_not_fit(parameters, goal, available)),
            None => demand.chunks(available, policy)?,
        };
        Ok(decision(&budget, parameters, replaced, evicted))
    }

    /// Chunks of `axis_length` runs for requests of a group, as
    /// [`allocate_queue`](Self::allocate_queue) would choose them now if nothing were replaced or
    /// evicted. Requests along a run axis of another length can be allocated whole, but not divided.
    ///
    /// # Errors
    /// [`ManagerError::UnknownGroup`]; [`ManagerError::InvalidRequest`],
    /// [`ManagerError::RunsDiffer`]; as [`RunFootprint::chunks`].
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// use pagewise_managers::manager::{ArrayRequest, Dtype};
    /// manager.register(Registration::new())?;
    /// // 400 GB for less than 150.
    /// let request = ArrayRequest::new(Dtype::F64, [500, 1000, 100_000]).total_runs(100_000);
    /// let chunks = manager.get_chunk_parameters([("state", &request)], 100_000, "default")?;
    /// assert_eq!(chunks.chunks(), 3);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn get_chunk_parameters<'r>(
        &self,
        requests: impl IntoIterator<Item = (&'r str, &'r ArrayRequest)>,
        axis_length: u64,
        group: &str,
    ) -> Result<ChunkParameters> {
        let mut all = Requests::new();
        for (label, request) in requests {
            request.check(label)?;
            all.insert(label.to_owned(), request.clone());
        }
        let demand = Demand::along(Some(axis_length), all.iter())?;
        self.enter(|state, _| {
            state.groups.check_group(group)?;
            let policy = state.policy;
            let budget = self.budget(state, group)?;
            let available = budget.allocatable(0, policy);
            // More than 20 times what is free is more than what is available.
            state.warn_of_size(demand.footprint.whole_bytes(policy), budget.free);
            demand.chunks(available, policy)
        })
    }
}

impl State {
    /// Warns of a request that does not fit and is more than 20 times what is free, if anything is.
    fn warn_of_size(&mut self, requested_bytes: u128, free_bytes: u64) {
        if free_bytes > 0 && requested_bytes > 20 * u128::from(free_bytes) {
            self.warnings.push(Warning::MuchLarger { requested_bytes, free_bytes });
        }
    }

    /// The division in which the requesters and their peers hold arrays that they keep.
    fn partition_in_use(
        &self,
        group: &str,
        queued: &[(InstanceId, Requests)],
        runs: Option<u64>,
    ) -> Result<Option<ChunkParameters>> {
        let members = self.groups.get_instances_in_group(group);
        let keeps = |id: &InstanceId| {
            let asking = queued.iter().map(|&(id, _)| id);
            let instance = self.instances.get(id)?;
            if !self.belongs(instance, group, asking) {
                return None;
            }
            let asked = queued.iter().find(|(other, _)| other == id).map(|(_, requests)| requests);
            let stays = |label: &String| asked.is_none_or(|requests| !requests.contains_key(label));
            let mut arrays = instance.arrays.iter();
            arrays.any(|(label, array)| array.is_along_runs() && stays(label)).then_some(instance)
        };
        let mut kept = members.iter().filter_map(keeps).filter_map(|instance| instance.partition);
        let Some(partition) = kept.next() else { return Ok(None) };
        let length = partition.chunk_length();
        if let Some(other) = kept.find(|other| other.chunk_length() != length) {
            return Err(ManagerError::DivisionsDiffer { one: length, other: other.chunk_length() });
        }
        Ok(match runs {
            // Nothing that is asked for is along the run axis.
            None => Some(partition),
            Some(runs) if length <= runs => Some(ChunkParameters::of(runs, length)),
            Some(_) => None,
        })
    }

    /// Whether a member of a group is divided like any of those who ask: they have an owner in
    /// common, or none. No instance chose to be in the default group, so there each without
    /// an owner is alone, as it is anywhere if each owner allocates for itself.
    pub(crate) fn belongs(
        &self,
        one: &Instance,
        group: &str,
        mut asking: impl Iterator<Item = InstanceId>,
    ) -> bool {
        let is_exact = self.scope == QueueScope::Owner || group == DEFAULT_GROUP;
        asking.any(|id| match self.instances.get(&id) {
            Some(other) if is_exact => other.owner == one.owner,
            Some(other) => other.registration.owner == one.registration.owner,
            None => false,
        })
    }

    pub(crate) fn owners_of(&self, queued: &[(InstanceId, Requests)]) -> Vec<InstanceOwner> {
        let instances = queued.iter().filter_map(|(id, _)| self.instances.get(id));
        instances.map(|instance| instance.owner).collect()
    }

    /// The bytes that arrays take of the device which requests replace.
    fn replaced_bytes(&self, queued: &[(InstanceId, Requests)]) -> u64 {
        let of = |(id, requests): &(InstanceId, Requests)| {
            let arrays = self.instances.get(id).map(|instance| &instance.arrays);
            let arrays = arrays.into_iter().flatten();
            let replaced = arrays.filter(|(label, _)| requests.contains_key(*label));
            replaced.map(|(_, array)| array.device_bytes()).fold(0, u64::saturating_add)
        };
        queued.iter().map(of).fold(0, u64::saturating_add)
    }
}
