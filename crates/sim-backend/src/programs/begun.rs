//! Kernels that have begun.
//!
//! A kernel runs to its end in one call, unless all its threads come to wait for memory that the host
//! or other work changes. Such a kernel goes on in later calls, and the machine is free meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pagewise_hal::{
    Code as ErrorCode, DeviceId, Error, KernelWork, LaunchShape, Operation, RecordedLaunch, Result,
    StreamHandle,
};
use pagewise_ptx::execute::Run;

use super::code::{Code, End, GridTime, Running};
use super::fault::KernelFault;
use super::heap::Heap;
use super::output::KernelOutput;
use super::workspace::Workspace;
use crate::backend::SimBackend;
use crate::kernel_time::KernelParams;
use crate::repeats::LaunchIdentity;

/// The time between two looks at a kernel that waits for memory to change.
pub(crate) const SPIN_PAUSE: Duration = Duration::from_micros(50);

/// The facts of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    pub(super) device: DeviceId,
    pub(super) stream: StreamHandle,
    pub(super) shape: LaunchShape,
    pub(super) threads: u64,
    /// The blocks and warps.
    pub(super) work: KernelWork,
    pub(super) multiprocessors: u32,
    /// Blocks of the kernel that a multiprocessor holds.
    pub(super) blocks_each: u32,
}

/// How far a kernel got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It ended, early if there is a fault.
    Ended(Option<KernelFault>),
    /// Every thread that can run waits in a loop for memory to change.
    Spins,
}

/// A kernel that has begun, and holds what it needs of the device until it is dropped.
#[derive(Debug)]
pub struct BegunKernel {
    code: Code,
    grid: Grid,
    _workspace: Option<Workspace>,
}

impl BegunKernel {
    pub(super) fn new(
        run: Run,
        heap: Arc<Mutex<Heap>>,
        workspace: Option<Workspace>,
        grid: Grid,
        params: KernelParams,
        identity: Option<LaunchIdentity>,
    ) -> Self {
        let Grid { multiprocessors, blocks_each, work, .. } = grid;
        let time = GridTime { params, multiprocessors, blocks_each };
        Self { code: Code::new(run, heap, time, work, identity), grid, _workspace: workspace }
    }

    /// Runs the kernel until it ends, or until all its threads wait for memory to change. A kernel
    /// that ends early is an answer: the launch itself succeeded.
    ///
    /// # Errors
    /// Those of [`SimBackend::run_code`].
    ///
    /// # Safety
    /// No other code may use the memory that the kernel accesses while it runs. The memory of the
    /// kernel's program is live.
    pub unsafe fn go_on(
        &mut self,
        simulator: &SimBackend,
        output: &dyn KernelOutput,
    ) -> Result<Progress> {
        let Grid { device, threads, stream, .. } = self.grid;
        let mut running = Running { code: &mut self.code, output };
        // SAFETY: `run_code` asks that no other code uses the memory, as this function does.
        unsafe { simulator.run_code(device, threads, &mut running, stream) }?;
        Ok(self.progress())
    }

    /// Runs the kernel as [`go_on`](Self::go_on) does, and notes its accesses. The launch that it
    /// gives moves the same pages without the kernel's code.
    ///
    /// # Errors
    /// As [`go_on`](Self::go_on).
    ///
    /// # Safety
    /// As [`go_on`](Self::go_on).
    pub unsafe fn go_on_traced(
        &mut self,
        simulator: &SimBackend,
        output: &dyn KernelOutput,
    ) -> Result<(Progress, RecordedLaunch)> {
        let Grid { device, threads, stream, shape, multiprocessors, blocks_each, work } = self.grid;
        let mut running = Running { code: &mut self.code, output };
        // SAFETY: `trace_code` asks that no other code uses the memory, as this function does.
        let traced = unsafe { simulator.trace_code(device, threads, &mut running, stream) }?;
        let progress = self.progress();
        // The part that ends the kernel has the time of all parts.
        let work = if progress == Progress::Spins { work } else { self.code.work() };
        let info = self.code.kernel();
        let recorded = RecordedLaunch {
            device,
            kernel: info.name.clone(),
            grid: shape.grid,
            block: shape.block,
            registers: info.registers,
            shared_bytes: info.static_shared.saturating_add(shape.shared_bytes),
            multiprocessors,
            blocks_each,
            work,
            ranges: traced.ranges,
            accesses: traced.accesses,
        };
        Ok((progress, recorded))
    }

    /// Runs the kernel to its end. While its threads wait for memory to change, other threads of the
    /// process may use the machine, and change it.
    ///
    /// # Errors
    /// As [`go_on`](Self::go_on).
    ///
    /// # Safety
    /// As [`go_on`](Self::go_on).
    pub(super) unsafe fn finish(
        mut self,
        simulator: &SimBackend,
        output: &dyn KernelOutput,
    ) -> Result<Option<KernelFault>> {
        loop {
            // SAFETY: this function's contract is that of `go_on`.
            if let Progress::Ended(fault) = unsafe { self.go_on(simulator, output) }? {
                return Ok(fault);
            }
            // SAFETY: this function's contract is that of `is_spinning`.
            while unsafe { self.is_spinning(simulator, output) }? {
                std::thread::sleep(SPIN_PAUSE);
            }
        }
    }

    /// Runs the kernel to its end, and notes its accesses.
    ///
    /// # Errors
    /// As [`go_on`](Self::go_on); `NotSupported` if its threads come to wait for memory to change: the
    /// kernel is given up then.
    ///
    /// # Safety
    /// As [`go_on`](Self::go_on).
    pub(super) unsafe fn finish_traced(
        mut self,
        simulator: &SimBackend,
        output: &dyn KernelOutput,
    ) -> Result<(Option<KernelFault>, RecordedLaunch)> {
        // SAFETY: this function's contract is that of `go_on_traced`.
        let (progress, recorded) = unsafe { self.go_on_traced(simulator, output) }?;
        let Progress::Ended(fault) = progress else {
            let why = "the kernel waits for memory that the host or other work changes, which cannot \
                       be recorded as one launch: launch it without a recording";
            return Err(Error::from_code(Operation::LaunchTraced.name(), ErrorCode::NOT_SUPPORTED)
                .with_detail(why));
        };
        Ok((fault, recorded))
    }

    /// Whether a kernel that spun still does. It takes no virtual time.
    ///
    /// # Errors
    /// Those of [`SimBackend::code_spins`].
    ///
    /// # Safety
    /// As [`go_on`](Self::go_on).
    pub unsafe fn is_spinning(
        &mut self,
        simulator: &SimBackend,
        output: &dyn KernelOutput,
    ) -> Result<bool> {
        let mut running = Running { code: &mut self.code, output };
        // SAFETY: `code_spins` asks that no other code uses the memory, as this function does.
        unsafe { simulator.code_spins(self.grid.device, &mut running) }
    }

    fn progress(&self) -> Progress {
        match self.code.end() {
            Some(End::Trap(report)) => Progress::Ended(Some(KernelFault::of(report))),
            None if self.code.spins() => Progress::Spins,
            Some(End::Done) | None => Progress::Ended(None),
        }
    }
}
