//! A root chunk's name, and the sizes of it and of its pieces.

use std::num::NonZeroU32;

/// Pages in a root chunk.
pub(super) const ROOT: u16 = 512;

/// Pages in a piece of 64 KiB.
pub(super) const BIG: u16 = 16;

/// A root chunk of one GPU: its index, and one more, so that no chunk takes no more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct RootId(NonZeroU32);

impl RootId {
    pub(super) const fn new(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    pub(super) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}
