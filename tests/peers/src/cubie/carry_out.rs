//! The steps of a scenario, carried out by the manager here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use pagewise::{Device, ErrorKind, Machine};
use pagewise_managers::manager::{
    Array, ArrayRequest, ArrayResponse, Dtype, InstanceId, InstanceUpdate, ManagerError,
    ManagerOptions, MemoryManager, Registration, Result, Warning,
};

use super::scenario::{Action, Changes, Heard, Member, Request, Seen};
use crate::around::Figures;
use crate::device::Memory;

/// The calls of hooks since the step began.
type Calls = Arc<Mutex<Vec<Heard>>>;

/// A manager in the middle of a scenario.
pub(super) struct Run {
    manager: MemoryManager,
    figures: Figures<Memory>,
    ids: BTreeMap<u32, InstanceId>,
    calls: Calls,
}

impl Run {
    pub(super) fn new(machine: &Machine, figures: &Figures<Memory>) -> Result<Self> {
        let options = ManagerOptions::cubie();
        Ok(Self {
            manager: MemoryManager::with_options(machine, Device::FIRST, options)?,
            figures: figures.clone(),
            ids: BTreeMap::new(),
            calls: Calls::default(),
        })
    }

    /// Carries an action out, and returns what can be seen afterwards.
    pub(super) fn step(&mut self, action: &Action) -> Seen {
        let (answer, refused) = match self.act(action) {
            Ok(answer) => (answer, None),
            Err(error) => (None, Some(refusal(&error))),
        };
        let warned: BTreeSet<_> = self.manager.take_warnings().iter().map(warning).collect();
        let warned = warned.into_iter().collect();
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let mut heard = std::mem::take(&mut *calls);
        drop(calls);
        heard.sort_by_key(Heard::rank);
        let members = self.members();
        Seen { refused, answer, warned, heard, members, free: self.figures.free_bytes() }
    }

    /// The state of all instances.
    pub(super) fn members(&self) -> BTreeMap<u32, Member> {
        self.ids.iter().filter_map(|(&who, &id)| Some((who, self.member(id).ok()?))).collect()
    }

    /// Carries an action out, and returns its numbers if the action is a question.
    fn act(&mut self, action: &Action) -> Result<Option<Vec<i64>>> {
        let manager = &self.manager;
        match action {
            Action::Register { who, share, group, owner } => {
                let mut registration = self.registration(*who).proportion(*share);
                if let Some(owner) = owner {
                    registration = registration.owner(*owner);
                }
                let id = manager.register(registration.stream_group(group))?;
                self.ids.insert(*who, id);
            }
            Action::SetManual { who, share } => {
                manager.set_manual_proportion(self.id(*who), *share)?;
            }
            Action::SetManualMode { who, share } => {
                manager.set_manual_limit_mode(self.id(*who), *share)?;
            }
            Action::SetAuto { who } => manager.set_auto_limit_mode(self.id(*who))?,
            Action::ChangeGroup { who, group } => {
                manager.change_stream_group(self.id(*who), group)?;
            }
            Action::Update { who, changes } => manager.update(self.id(*who), update(changes))?,
            Action::Release { who } => manager.release_instance(self.id(*who))?,
            Action::Mode { mode } => manager.set_limit_mode(mode.parse()?),
            Action::Begin { who } => manager.begin_submission(self.id(*who))?,
            Action::End { who } | Action::Work { who } => {
                let id = self.id(*who);
                if matches!(action, Action::Work { .. }) {
                    manager.begin_submission(id)?;
                }
                manager.end_submission(id, &manager.get_stream(id)?)?;
            }
            _ => return self.act_on_memory(action),
        }
        Ok(None)
    }

    fn act_on_memory(&self, action: &Action) -> Result<Option<Vec<i64>>> {
        let manager = &self.manager;
        match action {
            Action::Queue { who, requests } => {
                let made = requests.iter().map(|(label, one)| (label.clone(), request(one)));
                manager.queue_request(self.id(*who), made)?;
            }
            Action::Allocate { who } => drop(manager.allocate_queue(self.id(*who))?),
            Action::Chunks { group, request: one, runs } => {
                let one = request(one);
                let chunks = manager.get_chunk_parameters([("x", &one)], *runs, group)?;
                return Ok(Some(vec![number(chunks.chunk_length()), number(chunks.chunks())]));
            }
            Action::Available { group } => {
                return Ok(Some(vec![number(manager.get_available_memory(group)?)]));
            }
            Action::Free { label } => drop(manager.free(label)),
            Action::FreeAll => manager.free_all(),
            Action::InvalidateAll => manager.invalidate_all(),
            _ => {}
        }
        Ok(None)
    }

    /// An instance by its number; one that is unknown to the manager if it has none.
    fn id(&self, who: u32) -> InstanceId {
        self.ids.get(&who).copied().unwrap_or_else(InstanceId::unique)
    }

    fn registration(&self, who: u32) -> Registration {
        let note = |calls: &Calls, heard| {
            calls.lock().unwrap_or_else(PoisonError::into_inner).push(heard);
        };
        let (told, lost) = (Arc::clone(&self.calls), Arc::clone(&self.calls));
        Registration::new()
            .invalidate_hook(move || note(&lost, Heard::Invalidate { who }))
            .allocation_ready_hook(move |response| note(&told, ready(who, response)))
    }

    fn member(&self, id: InstanceId) -> Result<Member> {
        let settings = self.manager.settings(id)?;
        Ok(Member {
            share: settings.proportion,
            cap: settings.cap,
            is_manual: settings.is_manual,
            is_auto: !settings.is_manual,
            group: settings.stream_group.clone(),
            is_grouped: self.manager.is_grouped(id)?,
            owner: settings.owner,
            holds: settings.allocated_bytes(),
            arrays: shapes(&settings.allocations),
            queued: settings.queued,
        })
    }
}

fn shapes(arrays: &BTreeMap<String, Array>) -> BTreeMap<String, Vec<u64>> {
    arrays.iter().map(|(label, array)| (label.clone(), array.shape().to_vec())).collect()
}

fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn update(changes: &Changes) -> InstanceUpdate {
    let mut update = InstanceUpdate::new();
    if let Some(group) = &changes.stream_group {
        update = update.stream_group(group);
    }
    match changes.mem_proportion {
        Some(proportion) => update.proportion(proportion),
        None => update,
    }
}

fn request(one: &Request) -> ArrayRequest {
    let dtype = match &one.dtype[..] {
        "f32" => Dtype::F32,
        "f64" => Dtype::F64,
        _ => Dtype::I32,
    };
    let request = ArrayRequest::new(dtype, one.shape.clone()).chunk_axis(one.axis);
    request.unchunkable(one.unchunkable).total_runs(one.runs)
}

fn ready(who: u32, response: &ArrayResponse) -> Heard {
    Heard::Ready {
        who,
        chunks: response.chunks,
        chunk_length: response.chunk_length,
        arrays: shapes(&response.arr),
        shapes: response.chunked_shapes.clone(),
    }
}

/// The name that scenarios give to a refusal.
fn refusal(error: &ManagerError) -> String {
    let name = match error {
        ManagerError::InvalidProportion(_) => "proportion",
        ManagerError::ProportionsExceedOne(_) => "sum of shares",
        ManagerError::AutoPoolTooSmall { .. } => "auto pool",
        ManagerError::NothingToChunk { .. } => "nothing to chunk",
        ManagerError::UnchunkableTooLarge { .. } => "unchunkable",
        ManagerError::SingleRunTooLarge { .. } => "single run",
        ManagerError::PartitionDoesNotFit { .. } => "partition does not fit",
        ManagerError::TotalUnknown(_) => "no device",
        error if error.kind() == ErrorKind::OutOfMemory => "out of memory",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// The name that scenarios give to a warning.
fn warning(warning: &Warning) -> String {
    let name = match warning {
        Warning::ManualPoolLarge { .. } => "large manual pool",
        Warning::NearCap { .. } => "near cap",
        Warning::MuchLarger { .. } => "much larger",
        other => return other.to_string(),
    };
    name.to_owned()
}
