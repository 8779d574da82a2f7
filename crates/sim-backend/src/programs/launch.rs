//! Launches of kernels in PTX.

use pagewise_hal::{
    Backend, Code, DeviceId, Error, KernelWork, LaunchShape, Operation, RecordedLaunch, Result,
    StreamHandle,
};
use pagewise_ptx::execute::{Cause, Config, Launch, Report, StartError, blocks_per_sm};

use super::code::{Code as KernelCode, End, GridTime};
use super::fault::KernelFault;
use super::limits::GridLimits;
use super::output::KernelOutput;
use super::program::ProgramKernel;
use super::workspace::{Workspace, heap_of};
use crate::backend::SimBackend;

/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`, `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`
const OUT_OF_RESOURCES: i32 = 701;
const COOPERATIVE_TOO_LARGE: i32 = 720;
/// `CUDA_ERROR_INVALID_CLUSTER_SIZE`
const INVALID_CLUSTER: i32 = 912;
/// `CUDA_ERROR_ASSERT`, `CUDA_ERROR_MISALIGNED_ADDRESS`, `CUDA_ERROR_INVALID_ADDRESS_SPACE`,
/// `CUDA_ERROR_INVALID_PC`, `CUDA_ERROR_LAUNCH_FAILED`, `CUDA_ERROR_LAUNCH_TIMEOUT`
const ASSERT: i32 = 710;
const MISALIGNED: i32 = 716;
const ADDRESS_SPACE: i32 = 717;
const NO_FUNCTION: i32 = 718;
const LAUNCH_FAILED: i32 = 719;
const TIMEOUT: i32 = 702;

/// The least bytes of local memory of a thread beyond what its kernel declares.
const STACK_BYTES_MIN: u32 = 64 << 10;

/// One launch of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct ProgramLaunch<'a> {
    /// The kernel.
    pub kernel: &'a ProgramKernel,
    /// The device that runs it.
    pub device: DeviceId,
    /// Grid, block and dynamic shared memory.
    pub shape: LaunchShape,
    /// The bytes of all parameters, each at its offset.
    pub parameters: &'a [u8],
    /// Whether all blocks must be resident together.
    pub is_cooperative: bool,
    /// The blocks of a cluster, if the launch has clusters.
    pub cluster: Option<[u32; 3]>,
    /// `CU_LIMIT_STACK_SIZE`: bytes of local memory of a thread.
    pub stack_bytes: u32,
    /// `CU_LIMIT_MALLOC_HEAP_SIZE`: bytes of the heap that the device gets with its first kernel
    /// that uses one.
    pub heap_bytes: u64,
}

impl SimBackend {
    /// Launches a kernel of a program, and runs it to its end. `memory` gives the device a heap when
    /// a kernel first needs one; it is this machine, or a wrapper of it that looks at allocations.
    ///
    /// # Errors
    /// `InvalidValue` for a shape or parameters that are not the kernel's; 701
    /// (`LAUNCH_OUT_OF_RESOURCES`); 720 (`COOPERATIVE_LAUNCH_TOO_LARGE`); 912
    /// (`INVALID_CLUSTER_SIZE`); those of
    /// [`run_code`](Self::run_code), and of allocations for the heap. A kernel that ends early is an
    /// answer: the launch itself succeeded.
    ///
    /// # Safety
    /// No other code may use the memory that the kernel accesses while it runs. The memory of the
    /// kernel's program is live.
    pub unsafe fn launch_program(
        &self,
        launch: &ProgramLaunch<'_>,
        memory: &dyn Backend,
        output: &dyn KernelOutput,
        on: StreamHandle,
    ) -> Result<Option<KernelFault>> {
        let run = |code: &mut KernelCode<'_>, threads| {
            // SAFETY: `run_code` asks that no other code uses the memory, as this function does.
            unsafe { self.run_code(launch.device, threads, code, on) }
        };
        Ok(self.execute(launch, memory, output, run)?.0)
    }

    /// Launches a kernel as [`launch_program`](Self::launch_program) does, and notes its accesses. The
    /// launch that it gives moves the same pages without the kernel's code.
    ///
    /// # Errors
    /// As [`launch_program`](Self::launch_program).
    ///
    /// # Safety
    /// As [`launch_program`](Self::launch_program).
    pub unsafe fn trace_program(
        &self,
        launch: &ProgramLaunch<'_>,
        memory: &dyn Backend,
        output: &dyn KernelOutput,
        on: StreamHandle,
    ) -> Result<(Option<KernelFault>, RecordedLaunch)> {
        let run = |code: &mut KernelCode<'_>, threads| {
            // SAFETY: `trace_code` asks that no other code uses the memory, as this function does.
            let traced = unsafe { self.trace_code(launch.device, threads, code, on) };
            traced.map(|traced| (traced, code.work()))
        };
        let (fault, (traced, work)) = self.execute(launch, memory, output, run)?;
        let ProgramLaunch { kernel, device, shape, .. } = *launch;
        let info = kernel.kernel.info();
        let limits = GridLimits::of(self.config().gpu());
        let config = Config { limits: limits.of_multiprocessor(), ..Config::default() };
        let recorded = RecordedLaunch {
            device,
            kernel: info.name.clone(),
            grid: shape.grid,
            block: shape.block,
            registers: info.registers,
            shared_bytes: info.static_shared.saturating_add(shape.shared_bytes),
            multiprocessors: limits.multiprocessors,
            blocks_each: held(kernel, shape, &config),
            work,
            ranges: traced.ranges,
            accesses: traced.accesses,
        };
        Ok((fault, recorded))
    }

    /// Prepares a launch and lets `run` run its code, with the count of threads.
    fn execute<T>(
        &self,
        launch: &ProgramLaunch<'_>,
        memory: &dyn Backend,
        output: &dyn KernelOutput,
        run: impl FnOnce(&mut KernelCode<'_>, u64) -> Result<T>,
    ) -> Result<(Option<KernelFault>, T)> {
        let ProgramLaunch { kernel, device, shape, is_cooperative, .. } = *launch;
        let needs_heap = is_cooperative || kernel.uses_heap;
        let heap_bytes = needs_heap.then_some(launch.heap_bytes);
        let heap = heap_of(self.heaps(), device, heap_bytes, memory)?;
        let workspace = is_cooperative.then(|| Workspace::new(self, &heap)).transpose()?;
        let limits = GridLimits::of(self.config().gpu());
        let config = Config {
            sms: limits.multiprocessors,
            limits: limits.of_multiprocessor(),
            stack_bytes: launch.stack_bytes.max(STACK_BYTES_MIN),
            instruction_limit: self.config().instruction_limit,
            workspace: workspace.as_ref().map_or(0, |workspace| workspace.address),
            ..Config::default()
        };
        let of_ptx = Launch {
            grid: shape.grid,
            block: shape.block,
            dynamic_shared: shape.shared_bytes,
            params: launch.parameters,
            cooperative: is_cooperative,
            cluster: launch.cluster,
        };
        let grid = kernel.kernel.start(&of_ptx, &config).map_err(|error| refused(&error))?;
        let (blocks, each) = (product(shape.grid), product(shape.block));
        let warps = blocks.saturating_mul(each.div_ceil(32));
        let work = KernelWork { blocks, warps, ..KernelWork::default() };
        let time = GridTime {
            params: self.config().gpu().kernels,
            multiprocessors: limits.multiprocessors,
            blocks_each: held(kernel, shape, &config),
        };
        let mut code = KernelCode::new(grid, output, &heap, time, work);
        let ran = run(&mut code, blocks.saturating_mul(each))?;
        let fault = match code.end() {
            Some(End::Trap(report)) => Some(fault(&report)),
            Some(End::Done) | None => None,
        };
        Ok((fault, ran))
    }
}

/// How many there are of what three dimensions measure.
fn product(of: [u32; 3]) -> u64 {
    of.iter().fold(1, |all, one| all.saturating_mul(u64::from(*one)))
}

/// Blocks of a kernel that a multiprocessor holds.
fn held(kernel: &ProgramKernel, shape: LaunchShape, config: &Config) -> u32 {
    let threads = u32::try_from(product(shape.block)).unwrap_or(u32::MAX);
    blocks_per_sm(kernel.kernel.info(), config, threads, shape.shared_bytes).max(1)
}

fn fault(report: &Report) -> KernelFault {
    KernelFault { code: code_of(&report.cause), report: report.to_string() }
}

/// The driver's code of a trap.
const fn code_of(cause: &Cause) -> i32 {
    match cause {
        Cause::Misaligned { .. } => MISALIGNED,
        Cause::AddressSpace => ADDRESS_SPACE,
        Cause::NoFunction => NO_FUNCTION,
        Cause::Trap => LAUNCH_FAILED,
        Cause::Assert => ASSERT,
        Cause::InstructionLimit | Cause::Deadlock => TIMEOUT,
        _ => Code::ILLEGAL_ADDRESS,
    }
}

/// The error of a launch that cannot start.
fn refused(error: &StartError) -> Error {
    let code = match error {
        StartError::Cooperative { .. } => COOPERATIVE_TOO_LARGE,
        StartError::Cluster { .. } => INVALID_CLUSTER,
        StartError::Resources { .. } => OUT_OF_RESOURCES,
        StartError::Shape { .. } | StartError::Parameters { .. } => Code::INVALID_VALUE,
    };
    Error::from_code(Operation::Launch.name(), code).with_detail(error.to_string())
}
