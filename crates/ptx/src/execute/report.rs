//! The ends of runs: figures, or the report of a trap.

use std::fmt;

use super::memory::Kind;

/// Figures of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions of warps.
    pub warp_instructions: u64,
    /// Instructions of threads: each counts the lanes that execute it.
    pub thread_instructions: u64,
    /// Bytes that loads read from the caller's memory.
    pub bytes_read: u64,
    /// Bytes that stores and atomics wrote there.
    pub bytes_written: u64,
}

/// The reason that a kernel ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// No allocation holds the address, or it may not be used so (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    IllegalAddress {
        /// How the instruction used it.
        kind: Kind,
        /// The memory's words.
        why: String,
    },
    /// The address is no multiple of the access's size (`CUDA_ERROR_MISALIGNED_ADDRESS`).
    Misaligned {
        /// The size that it should be a multiple of, in bytes.
        bytes: u32,
    },
    /// The address is beyond the block's shared memory (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    OutsideShared {
        /// How many bytes the block has, with those of the system.
        bytes: u32,
    },
    /// The address is in the shared memory of a block that the cluster does not have
    /// (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    OutsideCluster {
        /// How many blocks the cluster has.
        blocks: u32,
    },
    /// The address is in the shared memory of a block of the cluster that has ended
    /// (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    EndedBlock {
        /// The rank of the block in the cluster.
        rank: u32,
    },
    /// An access to shared memory that tells an mbarrier, and no global memory takes part, in a launch without
    /// clusters (`CUDA_ERROR_ILLEGAL_INSTRUCTION`).
    NoCluster,
    /// The address is beyond the thread's local memory (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    OutsideLocal {
        /// How many bytes the thread has.
        bytes: u32,
    },
    /// The address is beyond the parameters (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    OutsideParameters,
    /// An atomic or a barrier object is where the hardware has none (`CUDA_ERROR_INVALID_ADDRESS_SPACE`).
    AddressSpace,
    /// The thread's stack is full (`CUDA_ERROR_ILLEGAL_ADDRESS`, as a GPU without guards says).
    StackOverflow,
    /// The address of an indirect call or branch is no function's (`CUDA_ERROR_INVALID_PC`).
    NoFunction,
    /// `trap` (`CUDA_ERROR_LAUNCH_FAILED`), or `brkpt` without a debugger.
    Trap,
    /// An assertion failed (`CUDA_ERROR_ASSERT`).
    Assert,
    /// The instruction limit is reached (`CUDA_ERROR_LAUNCH_TIMEOUT`).
    InstructionLimit,
    /// No warp can ever go on: threads wait at barriers that others never reach. A GPU hangs.
    Deadlock,
}

/// Where and why a kernel ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The reason.
    pub cause: Cause,
    /// The kernel.
    pub kernel: String,
    /// The line of the module's text.
    pub line: u32,
    /// The file and line of the source that `.loc` gives.
    pub source: Option<(String, u32)>,
    /// The block: x, y, z.
    pub block: [u32; 3],
    /// The thread in the block: x, y, z.
    pub thread: [u32; 3],
    /// The address, if an access is the cause.
    pub address: Option<u64>,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "kernel {} ended: {}", self.kernel, self.cause)?;
        if let Some(address) = self.address {
            write!(out, " at address {address:#x}")?;
        }
        write!(out, "; PTX line {}", self.line)?;
        if let Some((file, line)) = &self.source {
            write!(out, " ({file}:{line})")?;
        }
        write!(out, ", block {:?}, thread {:?}", self.block, self.thread)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IllegalAddress { kind, why } => write!(out, "illegal address ({kind:?}: {why})"),
            Self::Misaligned { bytes } => write!(out, "an access of {bytes} bytes is misaligned"),
            Self::OutsideShared { bytes } => {
                write!(out, "beyond {bytes} bytes of shared memory, with the system's")
            }
            Self::OutsideCluster { blocks } => {
                write!(out, "shared memory of a block beyond the {blocks} of the cluster")
            }
            Self::EndedBlock { rank } => {
                write!(out, "shared memory of block {rank} of the cluster, which has ended")
            }
            Self::NoCluster => {
                write!(out, "an asynchronous access to the cluster in a launch without clusters")
            }
            Self::OutsideLocal { bytes } => write!(out, "beyond {bytes} bytes of local memory"),
            Self::OutsideParameters => write!(out, "beyond the parameters"),
            Self::AddressSpace => write!(out, "no such operation in this address space"),
            Self::StackOverflow => write!(out, "the stack is full"),
            Self::NoFunction => write!(out, "an indirect call to an address without a function"),
            Self::Trap => write!(out, "trap instruction"),
            Self::Assert => write!(out, "an assertion failed"),
            Self::InstructionLimit => write!(out, "the instruction limit is reached"),
            Self::Deadlock => write!(out, "all threads wait at barriers"),
        }
    }
}

/// The result of a step of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The grid is complete.
    Done(Stats),
    /// No resident warp can go on before an access of
    /// [`Run::outstanding`](crate::execute::Run::outstanding) is served.
    Waiting,
    /// The step's budget of instructions is used up; the next step goes on. Warps that run may spin
    /// until an access of [`Run::outstanding`](crate::execute::Run::outstanding) is served.
    Paused,
    /// The kernel ended early. Blocks that had not ended never will.
    Trap(Box<Report>),
}
