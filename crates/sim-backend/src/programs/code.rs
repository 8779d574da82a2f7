//! A kernel that runs, as the simulator and the executor see it.

use std::sync::Mutex;

use pagewise_hal::{FaultAccess, KernelWork};
use pagewise_ptx::execute::{
    AssertFailure, Host, InstructionCounts, Kind, Memory, Report, Run, Stats, Step, Stop, Turn,
    Window,
};

use super::heap::{Heap, lock};
use super::output::KernelOutput;
use crate::code_place::{CodePlace, DeviceWait};
use crate::device_code::{CodeState, DeviceCode, DeviceMemory, DeviceWindow};
use crate::kernel_time::{KernelParams, kernel_ns};

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
pub(super) struct Code<'a> {
    run: Run,
    services: Services<'a>,
    limits: GridTime,
    /// The blocks and warps of the grid.
    grid: KernelWork,
    /// How often the kernel went on. Windows hold until then.
    generation: u64,
    end: Option<End>,
}

/// The process around a kernel.
struct Services<'a> {
    output: &'a dyn KernelOutput,
    heap: &'a Mutex<Heap>,
}

/// The simulator's memory while the kernel runs.
struct View<'a> {
    memory: &'a DeviceMemory<'a>,
    is_traced: bool,
    generation: u64,
}

impl<'a> Code<'a> {
    pub(super) fn new(
        run: Run,
        output: &'a dyn KernelOutput,
        heap: &'a Mutex<Heap>,
        limits: GridTime,
        grid: KernelWork,
    ) -> Self {
        Self { run, services: Services { output, heap }, limits, grid, generation: 0, end: None }
    }

    /// How it ended, if it did.
    pub(super) fn end(self) -> Option<End> {
        self.end
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

impl DeviceCode for Code<'_> {
    fn run(&mut self, memory: &DeviceMemory<'_>) -> CodeState {
        self.generation = self.generation.saturating_add(1);
        let (is_traced, generation) = (memory.is_traced(), self.generation);
        let mut view = View { memory, is_traced, generation };
        let end = loop {
            match self.run.step(&mut view, &mut self.services, BUDGET) {
                Step::Paused if self.run.outstanding().is_empty() => {}
                // Warps that run may spin until one that waits has its page.
                Step::Paused | Step::Waiting => {
                    self.generation = view.generation;
                    return CodeState::Waits;
                }
                Step::Done(_) => break End::Done,
                Step::Trap(report) => break End::Trap(report),
            }
        };
        self.end = Some(end);
        self.generation = view.generation;
        CodeState::Ended { ran_ns: self.limits.ns(&self.work()) }
    }

    fn waiting(&self) -> Vec<DeviceWait> {
        let mut waits: Vec<DeviceWait> = self
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
            DeviceWindow::Here { start, bytes, at } => {
                // SAFETY: the simulator's window holds until `run` returns. After that the
                // generation is another one. The simulator's memory has no Rust references.
                Ok(unsafe { Window::new(start, bytes, at) })
            }
            DeviceWindow::Missing => Err(Stop::Wait),
            DeviceWindow::Refused => Err(Stop::Refused(self.memory.nearest(address))),
        }
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn turn(&mut self, Turn { slot, block, warp }: Turn) {
        if self.is_traced && self.memory.turn(CodePlace { slot, block, warp }) {
            self.generation = self.generation.saturating_add(1);
        }
    }
}

impl Host for Services<'_> {
    fn print(&mut self, text: &[u8]) {
        self.output.print(text);
    }

    fn assert_failed(&mut self, failure: &AssertFailure) {
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
        self.output.set_condition(handle, value);
    }

    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        lock(self.heap).allocate(bytes)
    }

    fn free(&mut self, address: u64) -> bool {
        lock(self.heap).free(address)
    }
}
