//! Code of a device that the caller executes on simulated memory.
//!
//! The caller runs threads until each waits for a page or is through; the engine services a batch of
//! their faults, and the threads go on. So the pages of a kernel move as its code accesses them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use pagewise_hal::{
    BLOCK_BYTES, DeviceId, DevicePtr, FaultAccess, Operation, PAGE_BYTES, Processor, Result, Span,
    StreamHandle,
};

use crate::arrival::ExecutedArrival;
use crate::backend::SimBackend;
use crate::clock;
use crate::code_place::{CodePlace, DeviceWait};
use crate::concurrency::StreamWork;
use crate::config::MemoryContents;
use crate::contents::Contents;
use crate::cost::Call;
use crate::locate::processor_of;
use crate::pager::{Access, ExecutedKernel, LaneWait, Missing};
use crate::refusal::{Checked, bad_device, unsupported};
use crate::repeats::{LaunchIdentity, Reached};
use crate::sim::Sim;
use crate::space::{Allocation, MemoryKind};
use crate::tracer::{TracedAccesses, Tracer};

/// The code of a kernel, executed by the caller.
pub trait DeviceCode {
    /// Runs every thread until it waits for a page or is through.
    fn run(&mut self, memory: &DeviceMemory<'_>) -> CodeState;

    /// Whether code that [`Spins`](CodeState::Spins) still does.
    fn is_spinning(&mut self, _memory: &DeviceMemory<'_>) -> bool {
        false
    }

    /// The lanes that wait, in the order in which their multiprocessors issued the accesses: each
    /// multiprocessor's together, each warp's together in program order.
    fn waiting(&self) -> Vec<DeviceWait>;

    /// The launch that the code is. `None` if it went on before, or did more than access memory: it
    /// runs each time.
    fn identity(&self) -> Option<&LaunchIdentity> {
        None
    }

    /// The code has ended without running: its launch [repeats](Self::identity) one that ended.
    fn end_as_before(&mut self) {}
}

/// The state of code after it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeState {
    /// Some threads wait for pages.
    Waits,
    /// Every thread waits in a loop for memory that other code changes. The call ends, and
    /// [`SimBackend::run_code`] lets the code go on in another one.
    Spins,
    /// It ended, or was ended. It would have taken this long on the device without faults, in
    /// nanoseconds.
    Ended {
        /// The time.
        ran_ns: u64,
    },
}

/// Memory as a device sees it, while pages stay where they are.
#[derive(Debug)]
pub struct DeviceMemory<'a> {
    sim: &'a Sim,
    by: Processor,
    contents: RefCell<Contents>,
    accessed: RefCell<Accessed>,
    /// Notes the accesses, if they are wanted.
    tracer: RefCell<Option<Tracer>>,
}

/// The memory that code accessed.
#[derive(Debug, Default)]
struct Accessed {
    /// Slots of 2 MiB of managed memory.
    slots: BTreeSet<u64>,
    reached: Reached,
}

/// The memory at an address, as far as a device reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceWindow {
    /// Its bytes are in this process.
    Here {
        /// The address that the device names the first byte with.
        start: u64,
        /// How many bytes follow each other, from `start` on.
        bytes: u64,
        /// The first byte. It may be accessed as the window was asked for, until the code's `run`
        /// returns.
        at: *mut u8,
        /// Whether the code alone accesses them: the memory is a device's, no other process has a part
        /// in it, and no code outside of the machine got its address.
        is_alone: bool,
    },
    /// The device does not map the page: an access is a fault, and waits.
    Missing,
    /// No live memory that the device can access so.
    Refused,
}

impl DeviceMemory<'_> {
    /// Whether accesses are noted.
    pub(crate) fn is_traced(&self) -> bool {
        self.tracer.borrow().is_some()
    }

    /// A warp takes its turn: the accesses that follow are its own. Returns whether windows that were
    /// given before are to be asked for again, so that the accesses of its block are noted.
    pub fn turn(&self, place: CodePlace) -> bool {
        self.tracer.borrow_mut().as_mut().is_some_and(|tracer| tracer.turn(place))
    }

    /// Whether the device maps the page of an address for an access, so that there is no fault. It
    /// counts as accessed then.
    pub(crate) fn reaches(&self, address: u64, access: FaultAccess) -> bool {
        let reaches = self.maps(address / PAGE_BYTES, access);
        if reaches {
            self.accessed.borrow_mut().slots.insert(address / BLOCK_BYTES);
        }
        reaches
    }

    /// Whether an access to a page of managed memory is no fault.
    fn maps(&self, page: u64, access: FaultAccess) -> bool {
        let found = self.sim.pager.reached(self.by, page, engine_access(access));
        // Memory that is not managed is never waited for.
        !matches!(found, Some(Err(Missing)))
    }

    /// The memory around an address for an access. While accesses are noted, it is a page at most.
    #[must_use]
    pub fn window(&self, address: u64, access: FaultAccess) -> DeviceWindow {
        let Some(allocation) = self.allocation(address) else { return DeviceWindow::Refused };
        let writes = access != FaultAccess::Read;
        if !self.sim.is_managed(&allocation) {
            let whole = granules(&allocation);
            let byte = Span::new(DevicePtr(address.clamp(allocation.start, last(&allocation))), 1);
            if !self.sim.reaches_all(self.by, &allocation, byte, writes) {
                return DeviceWindow::Refused;
            }
            let is_own = self.is_own(&allocation);
            let is_alone = is_own && !self.sim.repeats.is_exposed();
            let window = self.here(address, whole, is_alone);
            self.note(window, is_own, access);
            return window;
        }
        let page = address / PAGE_BYTES;
        match self.sim.pager.reached(self.by, page, engine_access(access)) {
            None => DeviceWindow::Refused,
            Some(Err(Missing)) => DeviceWindow::Missing,
            Some(Ok(mut pages)) => {
                self.accessed.borrow_mut().reached.note_other();
                if let Some(tracer) = &mut *self.tracer.borrow_mut() {
                    tracer.touch(address, access);
                    pages = page..page.saturating_add(1);
                }
                self.accessed.borrow_mut().slots.insert(address / BLOCK_BYTES);
                if writes {
                    let span = Span::new(
                        DevicePtr(pages.start.saturating_mul(PAGE_BYTES)),
                        pages.end.saturating_sub(pages.start).saturating_mul(PAGE_BYTES),
                    );
                    self.contents.borrow_mut().before_write(&self.sim.arena, span);
                }
                let bytes = |page: u64| page.saturating_mul(PAGE_BYTES);
                self.here(address, bytes(pages.start)..bytes(pages.end), false)
            }
        }
    }

    /// A description of the memory nearest to an address that no allocation holds.
    #[must_use]
    pub fn nearest(&self, address: u64) -> String {
        let distance = |allocation: &&Allocation| {
            let before = allocation.start.saturating_sub(address);
            before.max(address.saturating_sub(last(allocation)))
        };
        let Some(near) = self.sim.space.all().min_by_key(distance) else {
            return "there is no allocation".to_owned();
        };
        let (start, bytes) = (near.start, near.bytes);
        match address.checked_sub(start) {
            None => format!(
                "{} bytes before the allocation of {bytes} bytes at {start:#x}",
                start.saturating_sub(address)
            ),
            Some(offset) if offset < bytes => {
                format!(
                    "in the allocation of {bytes} bytes at {start:#x}, which the device cannot access so"
                )
            }
            Some(offset) => format!(
                "{} bytes behind the allocation of {bytes} bytes at {start:#x}",
                offset.saturating_sub(bytes)
            ),
        }
    }

    /// Notes memory that is not managed and that the code reaches from now on.
    fn note(&self, window: DeviceWindow, is_own: bool, access: FaultAccess) {
        let DeviceWindow::Here { start, bytes, .. } = window else { return };
        let Accessed { reached, .. } = &mut *self.accessed.borrow_mut();
        if is_own {
            reached.note(start..start.saturating_add(bytes), access);
        } else {
            reached.note_other();
        }
    }

    /// Whether an allocation is memory of a device that no other process shares.
    fn is_own(&self, allocation: &Allocation) -> bool {
        matches!(allocation.kind, MemoryKind::Device(_))
            && !self.sim.sharing.memory.contains_key(&allocation.start)
    }

    /// The live allocation at an address, or one that shares its granule: devices map whole ones.
    fn allocation(&self, address: u64) -> Option<Allocation> {
        let space = &self.sim.space;
        if let Some(found) = space.containing(DevicePtr(address)) {
            return Some(*found);
        }
        let block = address / BLOCK_BYTES * BLOCK_BYTES;
        let near = space.overlapping(block..block.checked_add(BLOCK_BYTES)?);
        near.filter(|allocation| granules(allocation).contains(&address)).copied().next()
    }

    fn here(&self, address: u64, window: Range<u64>, is_alone: bool) -> DeviceWindow {
        let arena = &self.sim.arena;
        let bytes = |from: u64| arena.window(from, window.end.saturating_sub(from));
        // Bytes before the address may be elsewhere.
        let whole = bytes(window.start).map(|(at, bytes)| (window.start, at, bytes));
        let reaches =
            |(start, _, bytes): &(u64, *mut u8, u64)| address < start.saturating_add(*bytes);
        let found = whole
            .filter(reaches)
            .or_else(|| bytes(address).map(|(at, bytes)| (address, at, bytes)));
        match found {
            Some((start, at, bytes)) => DeviceWindow::Here { start, bytes, at, is_alone },
            None => DeviceWindow::Refused,
        }
    }
}

/// The last byte of an allocation.
fn last(allocation: &Allocation) -> u64 {
    allocation.start.saturating_add(allocation.bytes.saturating_sub(1))
}

/// The addresses that a device maps for an allocation, in whole pages of its page tables.
fn granules(allocation: &Allocation) -> Range<u64> {
    let end = allocation.start.saturating_add(allocation.bytes);
    let granule = match allocation.kind {
        MemoryKind::Device(_) | MemoryKind::Opened(_) => BLOCK_BYTES,
        MemoryKind::Pool(_) | MemoryKind::Managed | MemoryKind::Pinned => PAGE_BYTES,
        MemoryKind::Mapped(_) | MemoryKind::Registered => return allocation.start..end,
    };
    let start = allocation.start / granule * granule;
    start..end.checked_next_multiple_of(granule).unwrap_or(end)
}

const fn engine_access(access: FaultAccess) -> Access {
    match access {
        FaultAccess::Write => Access::Write,
        FaultAccess::Atomic => Access::Atomic,
        _ => Access::Read,
    }
}

impl SimBackend {
    /// Runs code of a device in a stream: a launch with the accesses that the code makes.
    /// The machine is locked meanwhile, so the code must not call it. Other threads may read
    /// attributes.
    ///
    /// # Errors
    /// `InvalidDevice`; `InvalidHandle` for a stream that is gone; `NotSupported` if the machine
    /// keeps no contents.
    ///
    /// # Safety
    /// No other code may use the memory that the code accesses while it runs.
    pub unsafe fn run_code(
        &self,
        device: DeviceId,
        threads: u64,
        code: &mut dyn DeviceCode,
        stream: StreamHandle,
    ) -> Result<()> {
        self.carry_out((device, threads), code, stream, None).map(drop)
    }

    /// Runs code as [`run_code`](Self::run_code) does, and notes its accesses. The code names the
    /// warp that runs by [`DeviceMemory::turn`].
    ///
    /// # Errors
    /// As [`run_code`](Self::run_code).
    ///
    /// # Safety
    /// As [`run_code`](Self::run_code).
    pub unsafe fn trace_code(
        &self,
        device: DeviceId,
        threads: u64,
        code: &mut dyn DeviceCode,
        stream: StreamHandle,
    ) -> Result<TracedAccesses> {
        self.carry_out((device, threads), code, stream, Some(Tracer::default()))
    }

    /// Whether code that [`Spins`](CodeState::Spins) still does. This is no call: it takes no virtual
    /// time.
    ///
    /// # Errors
    /// `InvalidDevice` if the device does not exist.
    ///
    /// # Safety
    /// As [`run_code`](Self::run_code).
    pub unsafe fn code_spins(&self, device: DeviceId, code: &mut dyn DeviceCode) -> Result<bool> {
        self.beside(Operation::Launch.name(), |sim| {
            if !sim.topology.has_device(device) {
                return bad_device("the device does not exist");
            }
            Ok(sim.is_spinning(processor_of(device), code))
        })
    }

    fn carry_out(
        &self,
        (device, threads): (DeviceId, u64),
        code: &mut dyn DeviceCode,
        stream: StreamHandle,
        tracer: Option<Tracer>,
    ) -> Result<TracedAccesses> {
        let call = Call::DeviceTouch { threads, bulk: false };
        self.call((Operation::Launch, stream), call, |sim| {
            sim.check_contents(device)?;
            sim.run_code(device, code, stream, tracer)
        })
    }
}

impl Sim {
    fn check_contents(&self, device: DeviceId) -> Checked<()> {
        if self.topology.has_device(device) && self.config.contents == MemoryContents::Skipped {
            return unsupported("the machine keeps no contents, which code would compute with");
        }
        Ok(())
    }

    pub(crate) fn run_code(
        &mut self,
        device: DeviceId,
        code: &mut dyn DeviceCode,
        stream: StreamHandle,
        mut tracer: Option<Tracer>,
    ) -> Checked<TracedAccesses> {
        if !self.topology.has_device(device) {
            return bad_device("the device does not exist");
        }
        self.streams.check_for(stream, device)?;
        let by = processor_of(device);
        self.lend();
        self.arena.expose();
        let mut managed: Vec<Span> = self.space.managed().map(Allocation::span).collect();
        self.launch(by, StreamWork::Program(&managed), stream)?;
        let (params, seed, nth) = self.pager.arrival_of_next();
        self.pager.begin_executed(self.clock_ns);
        let arrival = ExecutedArrival::new(&params, seed, nth);
        let mut kernel = ExecutedKernel::new(by, arrival, self.clock_ns);
        let ran_ns = match self.repeated(code, tracer.is_some()) {
            Some(ran_ns) => ran_ns,
            None => self.execute(by, code, &mut kernel, &mut tracer),
        };
        self.clock_ns = clock::after(kernel.now_ns(), ran_ns);
        self.waited_for(stream);
        managed.sort_unstable_by_key(|span| span.ptr);
        Ok(tracer.unwrap_or_default().finish(&managed))
    }

    /// Ends code if its launch repeats one before, and says how long it takes. Code that is traced runs,
    /// and so does all code where accesses of the host are not seen.
    fn repeated(&mut self, code: &mut dyn DeviceCode, is_traced: bool) -> Option<u64> {
        if is_traced || self.host_view.is_none() {
            return None;
        }
        let ran_ns = self.repeats.time_of(code.identity()?)?;
        code.end_as_before();
        Some(ran_ns)
    }

    /// Lets code run to its end, or until it spins, while pages move. Returns the nanoseconds that it
    /// takes without faults.
    fn execute(
        &mut self,
        by: Processor,
        code: &mut dyn DeviceCode,
        kernel: &mut ExecutedKernel<'_>,
        tracer: &mut Option<Tracer>,
    ) -> u64 {
        let mut accessed = Accessed::default();
        let ended = loop {
            match self.let_run(by, code, &mut accessed, tracer) {
                CodeState::Ended { ran_ns } => break Some(ran_ns),
                CodeState::Spins => break None,
                CodeState::Waits => {}
            }
            let waiting = code.waiting();
            if let Some(tracer) = tracer {
                tracer.end_round(&waiting);
            }
            let lanes: Vec<LaneWait> = waiting.into_iter().map(lane).collect();
            if !self.pager.service_executed(kernel, &lanes) {
                // Code that says it waits, and for nothing, has ended.
                break None;
            }
            self.settle_contents();
        };
        self.note_accessed(by, accessed.slots);
        let ran_ns = ended.unwrap_or_default();
        match ended {
            Some(_) => self.repeats.ran(code.identity().cloned(), accessed.reached, ran_ns),
            None => self.repeats.forget(),
        }
        ran_ns
    }

    /// Lets code run while pages stay where they are. Adds the 2 MiB slots that it accesses.
    fn let_run(
        &mut self,
        by: Processor,
        code: &mut dyn DeviceCode,
        accessed: &mut Accessed,
        tracer: &mut Option<Tracer>,
    ) -> CodeState {
        self.with_memory(by, (accessed, tracer), |memory| code.run(memory))
    }

    /// Whether code still waits for memory to change. Pages stay where they are.
    fn is_spinning(&mut self, by: Processor, code: &mut dyn DeviceCode) -> bool {
        self.lend();
        // Code that looks again may write.
        self.repeats.forget();
        let (mut accessed, mut tracer) = (Accessed::default(), None);
        let spins =
            self.with_memory(by, (&mut accessed, &mut tracer), |memory| code.is_spinning(memory));
        self.note_accessed(by, accessed.slots);
        spins
    }

    /// A device accessed 2 MiB slots.
    fn note_accessed(&mut self, by: Processor, slots: BTreeSet<u64>) {
        let pages = BLOCK_BYTES / PAGE_BYTES;
        for slot in slots {
            let first = slot.saturating_mul(pages);
            self.pager.note_accessed(by, first..first.saturating_add(pages));
        }
    }

    /// Shows a device's memory to code.
    fn with_memory<T>(
        &mut self,
        by: Processor,
        (accessed, tracer): (&mut Accessed, &mut Option<Tracer>),
        see: impl FnOnce(&DeviceMemory<'_>) -> T,
    ) -> T {
        let contents = RefCell::new(std::mem::take(&mut self.contents));
        let so_far = RefCell::new(std::mem::take(accessed));
        let memory =
            DeviceMemory { sim: self, by, contents, accessed: so_far, tracer: RefCell::default() };
        if let Some(mut tracer) = tracer.take() {
            tracer.begin_round(|page, access| memory.maps(page, access));
            memory.tracer.replace(Some(tracer));
        }
        let seen = see(&memory);
        let DeviceMemory { contents, accessed: now, tracer: traced, .. } = memory;
        *accessed = now.into_inner();
        *tracer = traced.into_inner();
        self.contents = contents.into_inner();
        seen
    }
}

fn lane(wait: DeviceWait) -> LaneWait {
    let DeviceWait { multiprocessor, block, warp, nth, address, access } = wait;
    let access = engine_access(access);
    LaneWait { multiprocessor, block, warp, nth, address, access }
}
