//! The steps of a scenario, carried out with the managers here.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use pagewise::{Backend, Device, DevicePtr, Error, Machine, Result, SimBackend, Span, Stream};
use pagewise_managers::emm::{
    Contexts, DeferCleanup, EmmOptions, ExternalMemoryManager, HostOptions, IpcHandle,
    MemoryPointer, OwnedPointer, PendingLimits, Plugin, PointerKind, ResourceManager,
};

use super::device::{NotedDevice, Notes, REGION_BYTES};
use super::scenario::{Action, Scenario, Seen, Step};
use crate::around::Figures;

/// A handle, as numba's program keeps them.
enum Handle {
    Owned(OwnedPointer),
    /// A pointer with a finalizer of its own.
    Raw(MemoryPointer),
    Ipc(#[allow(dead_code, reason = "kept until it is dropped")] IpcHandle),
}

/// The facts about a step's subject that decide what its documented differences are.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Subject {
    /// A reset, while memory is outstanding that does not wait to be freed.
    pub(super) is_reset_of_more: bool,
    /// A view of memory, or an owner made of one.
    pub(super) is_view: bool,
    /// A view that owners were made of.
    pub(super) is_owned_view: bool,
}

/// One scenario, as far as it was carried out.
pub(super) struct Run {
    figures: Figures<Notes>,
    machine: Machine,
    contexts: Contexts,
    made: Arc<Mutex<Option<Arc<ResourceManager>>>>,
    handles: BTreeMap<u64, Handle>,
    numbers: u64,
    /// Handles of views, and of owners that were made of views.
    views: BTreeSet<u64>,
    /// Views that owners were made of.
    owned_views: BTreeSet<u64>,
    deferrals: Vec<DeferCleanup>,
    regions: Vec<Arc<Vec<u8>>>,
}

const OF_NO_MEMORY: &str = "the scenario names a handle that is no memory";

impl Run {
    pub(super) fn new(scenario: &Scenario, sim: &Arc<SimBackend>) -> Self {
        // A page of its own for each region, whatever the allocator puts beside it.
        let regions: Vec<_> = (0..3).map(|_| Arc::new(vec![0_u8; 3 * 4096 + 8192])).collect();
        let mut figures = Notes::default();
        figures.total_bytes = scenario.total;
        figures.can_map = scenario.can_map;
        figures.regions = regions.iter().map(|region| first_page(region)).collect();
        let figures = Figures::from(figures);
        let device = NotedDevice::new(Arc::clone(sim), figures.clone());
        let machine = Machine::new(Arc::new(device));
        let (made, contexts) = (Arc::default(), Contexts::new(&machine));
        let (handles, deferrals) = (BTreeMap::new(), Vec::new());
        let (views, owned_views) = (BTreeSet::new(), BTreeSet::new());
        let numbers = 0;
        Self {
            figures,
            machine,
            contexts,
            made,
            handles,
            numbers,
            views,
            owned_views,
            deferrals,
            regions,
        }
    }

    /// Names the manager that contexts get: one that can be asked what waits.
    pub(super) fn start(&self) -> Result<()> {
        let made = Arc::clone(&self.made);
        self.contexts.set_memory_manager(Plugin::new("direct", 1, move |machine, device| {
            let options = EmmOptions::default();
            let manager = Arc::new(ResourceManager::direct(machine, device, options)?);
            let mut place = made.lock().unwrap_or_else(PoisonError::into_inner);
            *place = Some(Arc::clone(&manager));
            Ok(manager)
        }))
    }

    fn manager(&self) -> Result<Arc<ResourceManager>> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.clone().ok_or_else(|| pagewise::refuse::invalid("numba", "the scenario enters first"))
    }

    /// The facts about a step's subject that what is seen does not show, before the step.
    pub(super) fn subject(&self, action: &Action) -> Subject {
        let outstanding = self.manager().map_or(0, |manager| {
            manager.base().count().saturating_sub(manager.base().deallocations().count())
        });
        let of = match action {
            Action::Free { of } | Action::Drop { of } => Some(of),
            _ => None,
        };
        Subject {
            is_reset_of_more: matches!(action, Action::Reset) && outstanding > 0,
            is_view: of.is_some_and(|of| self.views.contains(of)),
            is_owned_view: of.is_some_and(|of| self.owned_views.contains(of)),
        }
    }

    pub(super) fn step(&mut self, step: &Step) -> std::result::Result<Seen, String> {
        self.figures.lock().fails.clone_from(&step.fails);
        let lost = self.machine.failures_on_drop();
        let refused = match self.carry_out(&step.action) {
            Ok(()) => None,
            Err(error) => Some(named(&error)?),
        };
        let calls = mem::take(&mut self.figures.lock().calls);
        let pending = self.manager().map_or((0, 0), |manager| {
            let queue = manager.base().deallocations();
            (queue.count(), queue.bytes())
        });
        Ok(Seen { refused, calls, lost: self.machine.failures_on_drop() - lost, pending })
    }

    fn keep(&mut self, handle: Handle) {
        self.handles.insert(self.numbers, handle);
        self.numbers += 1;
    }

    fn own(&mut self, memory: MemoryPointer) {
        self.keep(Handle::Owned(memory.own()));
    }

    fn pointer(&self, of: u64) -> Result<&MemoryPointer> {
        match self.handles.get(&of) {
            Some(Handle::Owned(owned)) => Ok(owned),
            Some(Handle::Raw(pointer)) => Ok(pointer),
            Some(Handle::Ipc(_)) | None => Err(pagewise::refuse::invalid("numba", OF_NO_MEMORY)),
        }
    }

    fn carry_out(&mut self, action: &Action) -> Result<()> {
        match *action {
            Action::Enter => self.contexts.enter(Device::FIRST).map(drop)?,
            Action::Leave => {}
            Action::Memalloc { bytes } => self.own(self.manager()?.memalloc(bytes)?),
            Action::Managed { bytes, global } => {
                self.own(self.manager()?.memallocmanaged(bytes, global)?);
            }
            Action::Host { bytes, mapped, portable, write_combined } => {
                let options = HostOptions { mapped, portable, write_combined };
                self.own(self.manager()?.memhostalloc(bytes, options)?);
            }
            Action::Pin { region, mapped } => self.pin(region, mapped)?,
            Action::Raw { auto_free } => self.raw(auto_free),
            Action::Own { of } => {
                let owner = self.pointer(of)?.own();
                if self.views.contains(&of) {
                    self.owned_views.insert(of);
                    self.views.insert(self.numbers);
                }
                self.keep(Handle::Owned(owner));
            }
            Action::View { of, start, stop } => {
                let view = self.pointer(of)?.view(start, stop)?;
                self.views.insert(self.numbers);
                self.own(view);
            }
            Action::Drop { of } => drop(self.handles.remove(&of)),
            Action::Free { of } => self.pointer(of)?.free()?,
            Action::Fill { of, value } => {
                let stream = Stream::legacy_default(&self.machine);
                self.pointer(of)?.fill(value, &stream)?;
            }
            Action::Ipc { of } => {
                let handle = self.manager()?.get_ipc_handle(self.pointer(of)?)?;
                self.keep(Handle::Ipc(handle));
            }
            Action::Defer => self.deferrals.push(self.manager()?.defer_cleanup()),
            Action::EndDeferral => {
                self.deferrals.pop().map_or(Ok(()), DeferCleanup::end)?;
            }
            Action::Limits { count, ratio } => {
                let limits = PendingLimits { count_max: count, ratio_max: ratio };
                self.manager()?.base().deallocations().set_limits(limits)?;
            }
            Action::Info => self.manager()?.get_memory_info().map(drop)?,
            Action::Reset => self.manager()?.reset().map(drop)?,
        }
        Ok(())
    }

    fn pin(&mut self, region: usize, mapped: bool) -> Result<()> {
        let owner = Arc::clone(&self.regions[region]);
        let span = Span::new(DevicePtr(first_page(&owner)), REGION_BYTES);
        // SAFETY: the bytes lie in the vector that is given as their owner, and no code uses them
        // otherwise.
        let pinned = unsafe { self.manager()?.mempin(owner, span, mapped)? };
        self.own(pinned);
        Ok(())
    }

    fn raw(&mut self, auto_free: bool) {
        const BYTES: u64 = 100;
        let (ptr, name) = self.figures.lock().make_up(BYTES);
        let figures = self.figures.clone();
        let finalizer = Box::new(move || figures.lock().note("final", &name));
        let kind = if auto_free { PointerKind::AutoFree } else { PointerKind::Memory };
        let span = Span::new(ptr, BYTES);
        self.keep(Handle::Raw(MemoryPointer::new(&self.machine, kind, span, Some(finalizer))));
    }

    /// Lets everything go, and memory too that the scenario lost on purpose.
    pub(super) fn close(mut self, sim: &dyn Backend) -> Result<()> {
        self.figures.lock().fails.clear();
        self.handles.clear();
        self.deferrals.clear();
        drop(self.contexts);
        drop(self.made);
        let left = self.figures.lock().left();
        for (ptr, is_pinned) in left {
            // SAFETY: every pointer to it has gone, and the call that would have freed it failed.
            unsafe { if is_pinned { sim.free_pinned(ptr)? } else { sim.free(ptr)? } }
        }
        let registered = self.figures.lock().registered();
        for region in registered {
            // SAFETY: every pointer to it has gone, and the call that would have unlocked it failed.
            unsafe { sim.host_unregister(region)? }
        }
        Ok(())
    }
}

/// The first whole page of a region.
fn first_page(region: &[u8]) -> u64 {
    (region.as_ptr().expose_provenance() as u64).next_multiple_of(4096)
}

/// The name of a refusal that both sides share.
fn named(error: &Error) -> std::result::Result<String, String> {
    if let Some(code) = error.code() {
        return Ok(format!("cuda {}", code));
    }
    let text = error.to_string();
    let names = [
        ("hold the memory", "held"),
        ("the memory was freed", "freed"),
        ("end before it starts", "ends before it starts"),
        ("pass the end of the memory", "past the end"),
        ("does not reach host memory", "cannot map"),
        ("has no handle", "no handle"),
        ("`MemoryPointer::vouch`", "shared"),
    ];
    let known = names.iter().find(|(part, _)| text.contains(part));
    known.map(|(_, name)| (*name).to_owned()).ok_or(text)
}
