//! The services of the process that kernels call.

/// A failed `assert` of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssertFailure {
    /// The condition's text.
    pub message: String,
    /// The source file.
    pub file: String,
    /// The line in it.
    pub line: u32,
    /// The function.
    pub function: String,
    /// The block: x, y, z.
    pub block: [u32; 3],
    /// The thread in the block: x, y, z.
    pub thread: [u32; 3],
}

/// The services of the process that kernels call.
pub trait Host {
    /// Receives the bytes that one `printf` of one thread prints.
    fn print(&mut self, text: &[u8]);

    /// Receives a failed assertion. The kernel ends after it.
    fn assert_failed(&mut self, failure: &AssertFailure);

    /// Reserves `bytes` bytes of the device heap, aligned to 16; `None` if the heap is full.
    fn allocate(&mut self, bytes: u64) -> Option<u64>;

    /// Frees what [`Host::allocate`] gave; false if it never gave that address.
    fn free(&mut self, address: u64) -> bool;

    /// Sets the value of a conditional handle of a graph: `cudaGraphSetConditional`. A host without
    /// graphs has no such handle.
    fn set_condition(&mut self, _handle: u64, _value: u32) {}

    /// `%globaltimer`, in nanoseconds, after the grid has executed `instructions` warp instructions.
    fn nanoseconds(&mut self, instructions: u64) -> u64 {
        instructions
    }
}
