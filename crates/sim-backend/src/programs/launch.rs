//! Launches of kernels in PTX.

use std::sync::Arc;

use pagewise_hal::{
    Backend, Code, DeviceId, Error, KernelWork, LaunchShape, Operation, Result, StreamHandle,
};
use pagewise_ptx::execute::{Config, Launch, StartError, blocks_per_sm};

use super::begun::{BegunKernel, Grid};
use super::limits::GridLimits;
use super::program::ProgramKernel;
use super::workspace::{Workspace, heap_of};
use crate::backend::SimBackend;
use crate::repeats::LaunchIdentity;

/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`, `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`
const OUT_OF_RESOURCES: i32 = 701;
const COOPERATIVE_TOO_LARGE: i32 = 720;
/// `CUDA_ERROR_INVALID_CLUSTER_SIZE`
const INVALID_CLUSTER: i32 = 912;

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
    /// The blocks of a cluster; `None` for those that the kernel declares, or no clusters.
    pub cluster: Option<[u32; 3]>,
    /// `CU_LIMIT_STACK_SIZE`: bytes of local memory of a thread.
    pub stack_bytes: u32,
    /// `CU_LIMIT_MALLOC_HEAP_SIZE`: bytes of the heap that the device gets with its first kernel
    /// that uses one.
    pub heap_bytes: u64,
}

impl SimBackend {
    /// Begins a launch of a kernel: nothing of it has run. `memory` gives the device a heap when a
    /// kernel first needs one; it is this machine, or a wrapper of it that looks at allocations.
    ///
    /// # Errors
    /// `InvalidValue` for a shape or parameters that are not the kernel's; 701
    /// (`LAUNCH_OUT_OF_RESOURCES`); 720 (`COOPERATIVE_LAUNCH_TOO_LARGE`); 912
    /// (`INVALID_CLUSTER_SIZE`); those of allocations for the heap.
    pub fn begin_program(
        &self,
        launch: &ProgramLaunch<'_>,
        memory: &dyn Backend,
        on: StreamHandle,
    ) -> Result<BegunKernel> {
        let ProgramLaunch { kernel, device, shape, is_cooperative, .. } = *launch;
        let needs_heap = is_cooperative || kernel.uses_heap;
        let heap_bytes = needs_heap.then_some(launch.heap_bytes);
        let heap = heap_of(self.heaps(), device, heap_bytes, memory)?;
        let workspace =
            is_cooperative.then(|| Workspace::new(self, Arc::clone(&heap))).transpose()?;
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
        let run = kernel.kernel.start(&of_ptx, &config).map_err(|error| refused(&error))?;
        let (blocks, each) = (product(shape.grid), product(shape.block));
        let grid = Grid {
            device,
            stream: on,
            shape,
            threads: blocks.saturating_mul(each),
            work: KernelWork {
                blocks,
                warps: blocks.saturating_mul(each.div_ceil(32)),
                ..KernelWork::default()
            },
            multiprocessors: limits.multiprocessors,
            blocks_each: held(kernel, shape, &config),
        };
        let params = self.config().gpu().kernels;
        // Heaps and workspaces change with each launch.
        let identity = (!needs_heap).then(|| LaunchIdentity {
            kernel: kernel.identity.clone(),
            device,
            shape,
            cluster: launch.cluster,
            stack_bytes: launch.stack_bytes,
            parameters: launch.parameters.into(),
        });
        Ok(BegunKernel::new(run, heap, workspace, grid, params, identity))
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

/// The error of a launch that cannot start.
fn refused(error: &StartError) -> Error {
    let code = match error {
        StartError::Cooperative { .. } => COOPERATIVE_TOO_LARGE,
        StartError::Cluster { .. } | StartError::DeclaredCluster { .. } => INVALID_CLUSTER,
        StartError::Resources { .. } => OUT_OF_RESOURCES,
        StartError::Shape { .. } | StartError::Parameters { .. } => Code::INVALID_VALUE,
    };
    Error::from_code(Operation::Launch.name(), code).with_detail(error.to_string())
}
