//! Batches of copies.

use pagewise_hal::CopyAttributes;

use super::part::{Part, Stream};

/// One copy of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyPart {
    /// The buffer that is written, and the first byte in it.
    pub to: (u32, u64),
    /// The buffer that is read, and the first byte in it.
    pub from: (u32, u64),
    /// How many bytes.
    pub bytes: u64,
}

impl CopyPart {
    /// The part that is written.
    #[must_use]
    pub const fn written(&self) -> Part {
        Part { buf: self.to.0, offset: self.to.1, bytes: self.bytes }
    }

    /// The part that is read.
    #[must_use]
    pub const fn read(&self) -> Part {
        Part { buf: self.from.0, offset: self.from.1, bytes: self.bytes }
    }
}

/// The arguments of a batch of copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyBatch {
    /// The copies.
    pub copies: Vec<CopyPart>,
    /// The sets of attributes.
    pub attributes: Vec<CopyAttributes>,
    /// The index of the first copy of each set.
    pub attribute_starts: Vec<u64>,
    /// The stream.
    pub stream: Stream,
}
