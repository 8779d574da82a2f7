//! Kernels that ended early.

use pagewise_hal::Code;
use pagewise_ptx::execute::{Cause, Report};

/// `CUDA_ERROR_ASSERT`, `CUDA_ERROR_ILLEGAL_INSTRUCTION`, `CUDA_ERROR_MISALIGNED_ADDRESS`, `CUDA_ERROR_INVALID_ADDRESS_SPACE`,
/// `CUDA_ERROR_INVALID_PC`, `CUDA_ERROR_LAUNCH_FAILED`, `CUDA_ERROR_LAUNCH_TIMEOUT`
const ASSERT: i32 = 710;
const ILLEGAL_INSTRUCTION: i32 = 715;
const MISALIGNED: i32 = 716;
const ADDRESS_SPACE: i32 = 717;
const NO_FUNCTION: i32 = 718;
const LAUNCH_FAILED: i32 = 719;
const TIMEOUT: i32 = 702;

/// The early end of a kernel: no later call that needs the device works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFault {
    /// The driver's code.
    pub code: i32,
    /// The kernel, the place in its text, the thread, the address and the memory near it.
    pub report: String,
}

impl KernelFault {
    pub(super) fn of(report: &Report) -> Self {
        Self { code: code_of(&report.cause), report: report.to_string() }
    }
}

/// The driver's code of a trap.
const fn code_of(cause: &Cause) -> i32 {
    match cause {
        Cause::Misaligned { .. } => MISALIGNED,
        Cause::NoCluster => ILLEGAL_INSTRUCTION,
        Cause::AddressSpace => ADDRESS_SPACE,
        Cause::NoFunction => NO_FUNCTION,
        // So an H100 with driver 580 answers for ranks beyond a cluster and for blocks that have ended.
        Cause::Trap | Cause::OutsideCluster { .. } | Cause::EndedBlock { .. } => LAUNCH_FAILED,
        Cause::Assert => ASSERT,
        Cause::InstructionLimit | Cause::Deadlock => TIMEOUT,
        _ => Code::ILLEGAL_ADDRESS,
    }
}
