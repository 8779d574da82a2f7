//! A kernel that runs, as the simulator and the executor see it.

use std::sync::{Arc, Mutex};

use pagewise_hal::{FaultAccess, KernelWork};
use pagewise_ptx::execute::{
    AssertFailure, Host, InstructionCounts, Kind, Memory, Report, Run, Stats, Step, Stop, Turn,
    Window,
};
use pagewise_ptx::module::KernelInfo;

use super::heap::{Heap, lock};
use super::output::KernelOutput;
use crate::code_place::{CodePlace, DeviceWait};
use crate::device_code::{CodeState, DeviceCode, DeviceMemory, DeviceWindow};
use crate::kernel_time::{KernelParams, kernel_ns};
use crate::repeats::LaunchIdentity;

/// Instructions of warps that the executor runs at a time.
const BUDGET: u64 = 1 << 24;

/// The figures of a GPU that the time of a kernel depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct GridTime {
    pub(super) params: KernelParams,
    pub(super) multiprocessors: u32,
    /// Blocks of the kernel that one of them holds.
    pub(super) blocks_each: u32,
}

impl GridTime {
    fn ns(&self, work: &KernelWork) -> u64 {
        kernel_ns(work, &self.params, self.multiprocessors, self.blocks_each)
    }
}

/// The end of a kernel.
#[derive(Debug)]
pub(super) enum End {
    Done,
    Trap(Box<Report>),
}

/// A kernel that runs.
#[derive(Debug)]
pub(super) struct Code {
    run: Run,
    heap: Arc<Mutex<Heap>>,
    limits: GridTime,
    /// The blocks and warps of the grid.
    grid: KernelWork,
    /// See [`DeviceCode::identity`].
    identity: Option<LaunchIdentity>,
    /// How often the kernel went on. Windows hold until then.
    generation: u64,
    /// Whether its threads wait for memory to change.
    spins: bool,
    end: Option<End>,
}

/// A kernel with the receiver of its text.
pub(super) struct Running<'a> {
    pub(super) code: &'a mut Code,
    pub(super) output: &'a dyn KernelOutput,
}

/// The process around a kernel.
struct Services<'a> {
    output: &'a dyn KernelOutput,
    heap: &'a Mutex<Heap>,
    /// Whether the kernel used them.
    is_used: bool,
}

/// The simulator's memory while the kernel runs.
struct View<'a> {
    memory: &'a DeviceMemory<'a>,
    is_traced: bool,
    generation: &'a mut u64,
}

impl<'a> View<'a> {
    /// A view without windows of views before.
    fn new(memory: &'a DeviceMemory<'a>, generation: &'a mut u64) -> Self {
        *generation = generation.saturating_add(1);
        Self { memory, is_traced: memory.is_traced(), generation }
    }
}

impl Code {
    pub(super) fn new(
        run: Run,
        heap: Arc<Mutex<Heap>>,
        limits: GridTime,
        grid: KernelWork,
        identity: Option<LaunchIdentity>,
    ) -> Self {
        Self { run, heap, limits, grid, identity, generation: 0, spins: false, end: None }
    }

    /// Whether all its threads wait for memory to change, as far as it ran.
    pub(super) fn spins(&self) -> bool {
        self.spins
    }

    /// How it ended, if it did.
    pub(super) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The kernel's figures.
    pub(super) fn kernel(&self) -> &KernelInfo {
        self.run.kernel().info()
    }

    /// The instructions and bytes so far.
    pub(super) fn work(&self) -> KernelWork {
        let Stats { bytes_read, bytes_written, .. } = self.run.stats();
        let InstructionCounts { fp32, fp64, integer, special, memory, shared, tensor, control } =
            self.run.instructions();
        KernelWork {
            fp32,
            fp64,
            integer,
            special,
            memory,
            shared,
            tensor,
            control,
            bytes_read,
            bytes_written,
            ..self.grid
        }
    }
}

impl DeviceCode for Running<'_> {
    fn run(&mut self, memory: &DeviceMemory<'_>) -> CodeState {
        let Code { run, heap, generation, spins, identity, .. } = &mut *self.code;
        let mut services = Services { output: self.output, heap, is_used: false };
        let mut view = View::new(memory, generation);
        *spins = false;
        let identity = identity.take();
        let end = loop {
            let started = run.started();
            match run.step(&mut view, &mut services, BUDGET) {
                Step::Paused if run.outstanding().is_empty() => {
                    // Blocks that begin are no wait.
                    if started == run.started() && run.is_spinning(&mut view, &mut services) {
                        *spins = true;
                        return CodeState::Spins;
                    }
                }
                // Warps that run may spin until one that waits has its page.
                Step::Paused | Step::Waiting => return CodeState::Waits,
                Step::Done(_) => break End::Done,
                Step::Trap(report) => break End::Trap(report),
            }
        };
        let is_plain = matches!(end, End::Done) && !services.is_used;
        self.code.identity = identity.filter(|_| is_plain);
        self.code.end = Some(end);
        CodeState::Ended { ran_ns: self.code.limits.ns(&self.code.work()) }
    }

    fn is_spinning(&mut self, memory: &DeviceMemory<'_>) -> bool {
        let Code { run, heap, generation, .. } = &mut *self.code;
        let mut services = Services { output: self.output, heap, is_used: false };
        run.is_spinning(&mut View::new(memory, generation), &mut services)
    }

    fn identity(&self) -> Option<&LaunchIdentity> {
        self.code.identity.as_ref()
    }

    fn end_as_before(&mut self) {
        self.code.end = Some(End::Done);
    }

    fn waiting(&self) -> Vec<DeviceWait> {
        let mut waits: Vec<DeviceWait> = self
            .code
            .run
            .outstanding()
            .iter()
            .map(|one| DeviceWait {
                multiprocessor: one.sm,
                block: one.block,
                warp: one.warp,
                nth: one.nth,
                address: one.address,
                access: access(one.kind),
            })
            .collect();
        waits.sort_by_key(|wait| (wait.multiprocessor, wait.block, wait.warp, wait.nth));
        waits
    }
}

const fn access(kind: Kind) -> FaultAccess {
    match kind {
        Kind::Read => FaultAccess::Read,
        Kind::Write => FaultAccess::Write,
        Kind::Atomic => FaultAccess::Atomic,
    }
}

impl Memory for View<'_> {
    fn window(&mut self, address: u64, _: u32, kind: Kind) -> Result<Window, Stop> {
        match self.memory.window(address, access(kind)) {
            DeviceWindow::Here { start, bytes, at, is_alone } => {
                // SAFETY: the simulator's window holds until `run` returns. After that the
                // generation is another one. The simulator's memory has no Rust references.
                let window = unsafe { Window::new(start, bytes, at) };
                // SAFETY: the machine is locked while the code runs, and the host does not access a
                // device's memory.
                Ok(if is_alone { unsafe { window.alone() } } else { window })
            }
            DeviceWindow::Missing => Err(Stop::Wait),
            DeviceWindow::Refused => Err(Stop::Refused(self.memory.nearest(address))),
        }
    }

    fn generation(&self) -> u64 {
        *self.generation
    }

    fn watches_turns(&self) -> bool {
        self.is_traced
    }

    fn turn(&mut self, Turn { slot, block, warp }: Turn) {
        if self.memory.turn(CodePlace { slot, block, warp }) {
            *self.generation = self.generation.saturating_add(1);
        }
    }
}

impl Host for Services<'_> {
    fn print(&mut self, text: &[u8]) {
        self.is_used = true;
        self.output.print(text);
    }

    fn assert_failed(&mut self, failure: &AssertFailure) {
        self.is_used = true;
        let AssertFailure { message, file, line, function, block, thread } = failure;
        let [bx, by, bz] = block;
        let [tx, ty, tz] = thread;
        let text = format!(
            "{file}:{line}: {function}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] \
             Assertion `{message}` failed.\n"
        );
        self.output.warn(&text);
    }

    fn set_condition(&mut self, handle: u64, value: u32) {
        self.is_used = true;
        self.output.set_condition(handle, value);
    }

    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        self.is_used = true;
        lock(self.heap).allocate(bytes)
    }

    fn free(&mut self, address: u64) -> bool {
        self.is_used = true;
        lock(self.heap).free(address)
    }
}
