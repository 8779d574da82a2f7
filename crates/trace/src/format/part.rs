//! A part of a buffer, and the stream of an operation.

/// The stream of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// A non-blocking stream, one per device and case.
    NonBlocking,
    /// The legacy default stream.
    Legacy,
}

/// A part of a buffer, or of the address space if the id is not live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The buffer.
    pub buf: u32,
    /// Bytes from its start.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}
