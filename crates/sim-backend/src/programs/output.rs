//! Receives text of kernels, and messages about them.

/// The receiver of text of kernels, and of messages about them.
pub trait KernelOutput {
    /// Receives the bytes that one `printf` of one thread prints.
    fn print(&self, text: &[u8]);

    /// Receives a message for people, with its end of line.
    fn warn(&self, message: &str);

    /// Receives the value that a kernel gives a conditional handle of a graph
    /// (`cudaGraphSetConditional`).
    fn set_condition(&self, _handle: u64, _value: u32) {}
}
