//! A root chunk's name, and the sizes of it and of its pieces.

/// Pages in a root chunk.
pub(super) const ROOT: u16 = 512;

/// Pages in a piece of 64 KiB.
pub(super) const BIG: u16 = 16;

/// A root chunk of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct RootId(pub(super) u32);

impl RootId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}
