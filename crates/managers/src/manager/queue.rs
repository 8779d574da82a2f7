//! Requests that wait for their group, and their allocation.
//!
//! A request waits under the instance that made it, not under a group: an instance that changes its
//! group takes its requests along. Allocation is: add up, decide, allocate everything, and only
//! then change what the manager holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use pagewise::{ErrorKind, Stream};

use super::array::{Array, Layout};
use super::chunking::{ChunkParameters, ChunkPolicy};
use super::error::{ManagerError, Result};
use super::hooks::After;
use super::instance_id::InstanceId;
use super::memory_manager::{MemoryManager, Requests, State};
use super::options::QueueScope;
use super::plan::Decision;
use super::request::ArrayRequest;
use super::response::ArrayResponse;
use super::reuse::Replacement;

/// The outcome of [`allocate_queue`](MemoryManager::allocate_queue).
///
/// ```
/// use pagewise_managers::manager::{MemoryManager, Registration};
/// use pagewise::{Device, Machine};
///
/// let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
/// let id = manager.register(Registration::new())?;
/// let allocated = manager.allocate_queue(id)?;
/// assert_eq!(allocated.parameters.chunks(), 1, "nothing was queued");
/// assert!(allocated.evicted.is_empty());
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Allocated {
    /// The division, the same for all.
    pub parameters: ChunkParameters,
    /// The answers: to instances that had asked, their arrays; to the others of the group, the
    /// chunks.
    pub responses: BTreeMap<InstanceId, ArrayResponse>,
    /// The instances that lost memory to make room.
    pub evicted: Vec<InstanceId>,
}

type Made = Vec<(InstanceId, BTreeMap<String, Array>)>;

impl MemoryManager {
    /// Queues requests of an instance, by label, to be allocated with those of its group. They
    /// replace whatever it had queued.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`], [`ManagerError::InvalidRequest`],
    /// [`ManagerError::RunsDiffer`], [`ManagerError::HookRequired`]. The queue stays as it was then.
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// use pagewise_managers::manager::{ArrayRequest, Dtype};
    /// let id = manager.register(Registration::new())?;
    /// manager.queue_request(id, [("state", ArrayRequest::new(Dtype::F64, [8, 8, 8]))])?;
    /// assert_eq!(manager.settings(id)?.queued, ["state"]);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn queue_request<L: Into<String>>(
        &self,
        id: InstanceId,
        requests: impl IntoIterator<Item = (L, ArrayRequest)>,
    ) -> Result<()> {
        let requests: Requests =
            requests.into_iter().map(|(label, request)| (label.into(), request)).collect();
        for (label, request) in &requests {
            request.check(label)?;
        }
        super::plan::Demand::of(requests.iter())?;
        self.enter(|state, _| {
            let instance = state.instance(id)?;
            if self.require_invalidate_hook && !instance.registration.has_invalidate_hook() {
                return Err(ManagerError::HookRequired(id));
            }
            state.queue.insert(id, requests);
            Ok(())
        })
    }

    /// Takes an instance's requests out of the queue, and returns them.
    ///
    /// # Errors
    /// [`ManagerError::UnknownInstance`].
    pub fn cancel_request(&self, id: InstanceId) -> Result<BTreeMap<String, ArrayRequest>> {
        self.enter(|state, _| {
            state.instance(id)?;
            Ok(state.queue.remove(&id).unwrap_or_default())
        })
    }

    /// Allocates everything that the instances of a group have queued, on the group's stream, then
    /// calls the allocation hook of each of them, and of the others of the group, who learn of the
    /// chunks; not of those of other owners who hold arrays in chunks of their own. `id` is any of
    /// the group. With [`QueueScope::Owner`] all this is for the instances of the group that have
    /// the owner of `id`.
    ///
    /// Arrays replace those of the same label, and take over their device memory where they fit
    /// ([`reuse_buffers`](super::ManagerOptions::reuse_buffers)). Arrays that are kept, by who asks or by others of
    /// the same owner (or, like who asks, of none), fix the length of chunks. If nothing is queued,
    /// the last division is told again to those of the group who have the owner of `id`; with
    /// [`QueueScope::Owner`] no hook is called then.
    ///
    /// # Errors
    /// As [`RunFootprint::chunks`](super::RunFootprint::chunks); [`ManagerError::RunsDiffer`],
    /// [`ManagerError::DivisionsDiffer`], [`ManagerError::PartitionDoesNotFit`],
    /// [`ManagerError::AfterFreeing`], [`ManagerError::TotalUnknown`]; of the back end and of
    /// resources. The queue is as it was, and nothing that was allocated on the way is left.
    ///
    /// ```
    /// # use pagewise_managers::manager::{MemoryManager, Registration};
    /// # use pagewise::{Device, Machine};
    /// # let manager = MemoryManager::new(Machine::from(pagewise::sim()?), Device::FIRST)?;
    /// use pagewise_managers::manager::{ArrayRequest, Dtype};
    /// let id = manager.register(Registration::new())?;
    /// manager.queue_request(id, [("state", ArrayRequest::new(Dtype::F64, [8, 8, 8]))])?;
    /// let allocated = manager.allocate_queue(id)?;
    /// assert_eq!(allocated.responses[&id].arr["state"].nbytes(), 4096);
    /// # Ok::<(), pagewise_managers::manager::ManagerError>(())
    /// ```
    pub fn allocate_queue(&self, id: InstanceId) -> Result<Allocated> {
        self.enter(|state, after| {
            let group = state.groups.get_group(id)?.to_owned();
            let members = state.groups.get_instances_in_group(&group);
            let owner = state.instance(id)?.owner;
            let is_meant = |id: &&InstanceId| {
                let other = state.instances.get(id).map(|instance| instance.owner);
                state.scope == QueueScope::Group || other == Some(owner)
            };
            let requests = |id: &InstanceId| Some((*id, state.queue.get(id)?.clone()));
            let queued: Vec<_> = members.iter().filter(is_meant).filter_map(requests).collect();
            if queued.is_empty() {
                return Ok(state.tell_again(id, &group, &members, after));
            }
            let stream = state.groups.get_stream(id)?;
            let (decision, made) = self.attempt(state, after, &group, &queued, &stream)?;
            Ok(state.commit(&group, decision, &made, after))
        })
    }

    /// Decides and allocates; with less if that fails for want of memory, as what is free is a
    /// guess where others allocate too.
    fn attempt(
        &self,
        state: &mut State,
        after: &mut After,
        group: &str,
        queued: &[(InstanceId, Requests)],
        stream: &Stream,
    ) -> Result<(Decision, Made)> {
        let mut freed: Vec<(InstanceId, String)> = Vec::new();
        let mut evicted = Vec::new();
        let mut limit = u64::MAX;
        let mut failure = None;
        for _ in 0..state.policy.tries() {
            let decided = self.decide(state, after, group, queued, limit);
            let mut decision = match (decided, failure.take()) {
                (Ok(decision), _) => decision,
                // There is no smaller way: what the first try reported is the reason.
                (Err(_), Some(first)) => return Err(with_freed(first, freed)),
                (Err(error), None) => return Err(error),
            };
            evicted.append(&mut decision.evicted);
            // All that can be refused is refused before anything is freed.
            let layouts = layouts(queued, decision.parameters, state.policy)?;
            let may_reuse = self.reuse_buffers && limit == u64::MAX;
            let replacement = Replacement::of(state, queued, &layouts, &decision, may_reuse);
            if replacement.frees_first {
                freed.extend(state.free_replaced(queued, &replacement));
            }
            match self.make(state, queued, layouts, &replacement, stream) {
                Ok(made) => return Ok((Decision { evicted, ..decision }, made)),
                Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                    let bytes = planned_bytes(queued, decision.parameters, state.policy);
                    limit = bytes - bytes / 8 - 1;
                    failure = Some(error);
                }
                Err(error) => return Err(with_freed(error, freed)),
            }
        }
        Err(with_freed(failure.unwrap_or(ManagerError::ArrayGone), freed))
    }

    /// Allocates all arrays, or none.
    fn make(
        &self,
        state: &State,
        queued: &[(InstanceId, Requests)],
        layouts: Vec<Layout>,
        replacement: &Replacement,
        stream: &Stream,
    ) -> Result<Made> {
        let mut made = Made::new();
        let mut layouts = layouts.into_iter().zip(&replacement.taken_over);
        for (id, requests) in queued {
            let mut arrays = BTreeMap::new();
            for ((label, request), (layout, old)) in requests.iter().zip(layouts.by_ref()) {
                // If this fails, the arrays made before are dropped, which gives their memory back.
                // Those that take memory over have none before all is made.
                let resource = state.resources.of(request.memory);
                let array = match old {
                    Some(_) => Array::promised(request, layout, resource, self.device),
                    None => Array::new(label, request, layout, resource, self.device, stream)?,
                };
                arrays.insert(label.clone(), array);
            }
            made.push((*id, arrays));
        }
        Ok(made)
    }

    /// Allocates an array that belongs to its holder only.
    ///
    /// # Errors
    /// [`ManagerError::InvalidRequest`]; of the back end and of resources.
    #[track_caller]
    pub fn allocate(&self, request: &ArrayRequest, stream: &Stream) -> Result<Array> {
        request.check("")?;
        self.machine.check_stream("allocate", stream)?;
        let resource = self.enter(|state, _| Arc::clone(state.resources.of(request.memory)));
        let runs = request.runs().unwrap_or(1);
        let whole = ChunkParameters::of(runs, runs);
        let layout = layout("", request, whole, ChunkPolicy::exact())?;
        Array::new("", request, layout, &resource, self.device, stream)
    }
}

fn with_freed(error: ManagerError, freed: Vec<(InstanceId, String)>) -> ManagerError {
    match error {
        ManagerError::Driver(cause) if !freed.is_empty() => {
            ManagerError::AfterFreeing { cause, freed }
        }
        error => error,
    }
}

/// The bytes that requests take of the device with these chunks.
fn planned_bytes(
    queued: &[(InstanceId, Requests)],
    parameters: ChunkParameters,
    policy: ChunkPolicy,
) -> u64 {
    let all = queued.iter().flat_map(|(_, requests)| requests);
    let demand = super::plan::Demand::of(all);
    let bytes =
        demand.map(|demand| demand.footprint.chunk_bytes(parameters.chunk_length(), policy));
    u64::try_from(bytes.unwrap_or(1)).unwrap_or(u64::MAX).max(1)
}

/// The layouts of arrays with these chunks, in the order of the requests.
fn layouts(
    queued: &[(InstanceId, Requests)],
    parameters: ChunkParameters,
    policy: ChunkPolicy,
) -> Result<Vec<Layout>> {
    let all = queued.iter().flat_map(|(_, requests)| requests);
    all.map(|(label, request)| layout(label, request, parameters, policy)).collect()
}

/// The layout of an array with these chunks.
fn layout(
    label: &str,
    request: &ArrayRequest,
    parameters: ChunkParameters,
    policy: ChunkPolicy,
) -> Result<Layout> {
    let too_large = || ManagerError::InvalidRequest {
        label: label.to_owned(),
        why: "its size is beyond what a driver allocates".to_owned(),
    };
    let is_along_runs = request.is_chunkable() && request.runs() == Some(parameters.runs());
    let is_divided = is_along_runs && parameters.chunks() > 1;
    let whole = request.bytes().ok_or_else(too_large)?;
    if !is_divided || request.oversubscribe {
        let bytes = u64::try_from(whole).map_err(|_| too_large())?;
        let window = is_divided.then_some(parameters);
        let shape = request.shape.clone();
        return Ok(Layout { shape, slots: 1, slot_bytes: bytes, bytes, window, is_along_runs });
    }
    let chunk = whole / u128::from(parameters.runs()) * u128::from(parameters.chunk_length());
    let slots = policy.slots(parameters.chunks());
    let slot = if slots > 1 { policy.rounded(chunk) } else { chunk };
    let bytes = slot.saturating_mul(slots.into());
    Ok(Layout {
        shape: request.chunked_shape(parameters.chunk_length()),
        slots,
        slot_bytes: u64::try_from(slot).map_err(|_| too_large())?,
        bytes: u64::try_from(bytes).map_err(|_| too_large())?,
        window: None,
        is_along_runs,
    })
}

impl State {
    /// Gives back the arrays that requests replace, but for memory that is taken over. Says which.
    fn free_replaced(
        &mut self,
        queued: &[(InstanceId, Requests)],
        replacement: &Replacement,
    ) -> Vec<(InstanceId, String)> {
        let mut freed = Vec::new();
        let mut taken_over = replacement.taken_over.iter();
        for (id, requests) in queued {
            let Some(instance) = self.instances.get_mut(id) else { continue };
            for (label, old) in requests.keys().zip(taken_over.by_ref()) {
                if old.is_some() {
                    continue;
                }
                if let Some(array) = instance.arrays.remove(label) {
                    array.release();
                    freed.push((*id, label.clone()));
                }
            }
        }
        freed
    }

    /// Takes note of what was allocated, and tells every member of the group.
    fn commit(
        &mut self,
        group: &str,
        decision: Decision,
        made: &Made,
        after: &mut After,
    ) -> Allocated {
        let Decision { parameters, evicted, .. } = decision;
        let mut responses = BTreeMap::new();
        for (id, arrays) in made {
            self.queue.remove(id);
            let Some(instance) = self.instances.get_mut(id) else { continue };
            let mut response = ArrayResponse::of(parameters);
            for (label, array) in arrays {
                response.chunked_shapes.insert(label.clone(), array.shape().to_vec());
                if let Some(old) = instance.arrays.insert(label.clone(), array.clone()) {
                    old.hand_over(array);
                }
                response.arr.insert(label.clone(), array.clone());
            }
            responses.insert(*id, response);
        }
        let now = self.tick();
        for id in self.groups.get_instances_in_group(group) {
            let Some(instance) = self.instances.get(&id) else { continue };
            // It belongs to another requester and holds arrays in chunks of its own.
            let asking = made.iter().map(|&(id, _)| id);
            let is_apart = self.scope == QueueScope::Owner || instance.is_laid_out();
            if is_apart && !self.belongs(instance, group, asking) {
                continue;
            }
            let told = responses.entry(id).or_insert_with(|| ArrayResponse::of(parameters));
            after.ready(instance, told.clone());
            if let Some(instance) = self.instances.get_mut(&id) {
                instance.partition = Some(parameters);
                instance.told_at = now;
            }
        }
        Allocated { parameters, responses, evicted }
    }

    /// Answers a call without queued requests: tells the last division again to the instances that
    /// belong to the caller.
    fn tell_again(
        &mut self,
        id: InstanceId,
        group: &str,
        members: &[InstanceId],
        after: &mut After,
    ) -> Allocated {
        let belongs = |member: &InstanceId| {
            let instance = self.instances.get(member)?;
            self.belongs(instance, group, [id].into_iter()).then_some((*member, instance))
        };
        let peers: Vec<_> = members.iter().filter_map(belongs).collect();
        let told = peers.iter().filter(|(_, peer)| peer.partition.is_some());
        let last = told.max_by_key(|(_, peer)| peer.told_at);
        let parameters = last.and_then(|(_, peer)| peer.partition).unwrap_or_default();
        let mut responses = BTreeMap::new();
        if self.scope == QueueScope::Owner {
            return Allocated { parameters, responses, evicted: Vec::new() };
        }
        for (member, instance) in peers {
            let response = ArrayResponse::of(parameters);
            after.ready(instance, response.clone());
            responses.insert(member, response);
        }
        Allocated { parameters, responses, evicted: Vec::new() }
    }
}
