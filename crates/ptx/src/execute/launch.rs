//! The shape of a launch and of the machine that it runs on.

use thiserror::Error;

/// One launch of a kernel.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// Blocks in x, y and z; none is zero.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z; none is zero.
    pub block: [u32; 3],
    /// Bytes of shared memory beyond the kernel's static ones.
    pub dynamic_shared: u32,
    /// The parameters, laid out as [`Parameter`](crate::module::Parameter) says.
    pub params: &'a [u8],
    /// Whether all blocks must be resident together: a grid barrier needs it.
    pub cooperative: bool,
    /// The blocks of a cluster in x, y and z, 16 at most; the grid is a whole number of clusters.
    /// `None`: those that the kernel declares (`.reqnctapercluster`), or no clusters.
    ///
    /// The blocks of a cluster are resident together.
    pub cluster: Option<[u32; 3]>,
}

/// The most that one multiprocessor holds at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmLimits {
    /// Threads.
    pub threads: u32,
    /// Blocks.
    pub blocks: u32,
    /// Registers of 32 bits.
    pub registers: u32,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Bytes of shared memory that the system reserves in each block.
    pub reserved_shared: u32,
    /// The most bytes of shared memory of one block, static and dynamic.
    pub block_shared: u32,
    /// The most threads of one block.
    pub block_threads: u32,
}

/// The machine, and the rules of one run.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many multiprocessors the machine has.
    pub sms: u32,
    /// The limits of each.
    pub limits: SmLimits,
    /// Orders the blocks. Zero starts them in ascending order.
    pub seed: u64,
    /// The most instructions of warps that the grid may execute.
    pub instruction_limit: Option<u64>,
    /// How many instructions a warp executes before the next warp runs.
    pub quantum: u32,
    /// The most bytes of local memory of one thread: `CU_LIMIT_STACK_SIZE`, beyond what the kernel
    /// itself declares.
    pub stack_bytes: u32,
    /// After how many visits of a position by whole warps a piece of the kernel is compiled that begins
    /// there. It takes four times as many within straight code, at the ends of turns, and for parts of warps.
    /// `None` to interpret all. Results, figures and the order of accesses are the same. Without the
    /// feature `jit`, all is interpreted.
    pub compile_after: Option<u32>,
    /// `%gridid`.
    pub grid_id: u64,
    /// The address of 16 bytes of memory, zero before the launch, in which the barrier of a
    /// cooperative grid counts (`%envreg1` and `%envreg2`). Zero: grids have no barrier, and
    /// `grid.sync()` ends them with a trap.
    pub workspace: u64,
}

/// A piece costs about as much to compile as to interpret so often: some 100 us for each instruction, which
/// the interpreter executes in some 14 ns.
const COMPILE_AFTER: u32 = 4000;

impl Default for Config {
    /// An H100's or H200's 132 multiprocessors.
    fn default() -> Self {
        Self {
            sms: 132,
            limits: SmLimits {
                threads: 2048,
                blocks: 32,
                registers: 65536,
                shared: 233_472,
                reserved_shared: 1024,
                block_shared: 232_448,
                block_threads: 1024,
            },
            seed: 0,
            instruction_limit: None,
            quantum: 512,
            stack_bytes: 64 << 10,
            compile_after: Some(COMPILE_AFTER),
            grid_id: 0,
            workspace: 0,
        }
    }
}

/// Refusals of launches.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StartError {
    /// A dimension is zero or larger than a GPU takes (`CUDA_ERROR_INVALID_VALUE`).
    #[error("the grid {grid:?} of blocks {block:?} is not one that a GPU takes")]
    Shape {
        /// The grid that was asked for.
        grid: [u32; 3],
        /// The block that was asked for.
        block: [u32; 3],
    },
    /// The grid is not a whole number of clusters, or these have more than 16 blocks (`CUDA_ERROR_INVALID_CLUSTER_SIZE`).
    #[error("the grid {grid:?} is no whole number of clusters of {cluster:?} blocks, 16 at most")]
    Cluster {
        /// The grid that was asked for.
        grid: [u32; 3],
        /// The cluster that was asked for.
        cluster: [u32; 3],
    },
    /// The kernel declares other clusters (`CUDA_ERROR_INVALID_CLUSTER_SIZE`).
    #[error("the kernel declares {declared}, and the launch has {given:?}")]
    DeclaredCluster {
        /// The directive of the kernel.
        declared: String,
        /// The cluster of the launch.
        given: Option<[u32; 3]>,
    },
    /// The parameters' bytes do not fit the kernel's (`CUDA_ERROR_INVALID_VALUE`).
    #[error("the kernel takes {expected} bytes of parameters, and the launch gives {given}")]
    Parameters {
        /// The bytes that the kernel declares.
        expected: u32,
        /// The bytes that the launch gives.
        given: usize,
    },
    /// One block needs more than a multiprocessor holds, or one cluster more blocks at a time than the
    /// machine holds
    /// (`CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`; `CUDA_ERROR_INVALID_VALUE` for shared memory).
    #[error("the launch needs {needed} {what}, and there are {limit}")]
    Resources {
        /// The resource.
        what: &'static str,
        /// The block's need.
        needed: u64,
        /// The multiprocessor's stock.
        limit: u64,
    },
    /// The blocks of a cooperative launch are not resident together
    /// (`CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`).
    #[error("{blocks} blocks must be resident together, and {resident} are")]
    Cooperative {
        /// The grid's blocks.
        blocks: u64,
        /// How many the machine holds at once.
        resident: u64,
    },
}
