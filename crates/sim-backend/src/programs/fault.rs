//! Kernels that ended early.

/// The early end of a kernel: no later call that needs the device works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFault {
    /// The driver's code.
    pub code: i32,
    /// The kernel, the place in its text, the thread, the address and the memory near it.
    pub report: String,
}
