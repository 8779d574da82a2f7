//! The blocks that changed, for those who ask for them.
#![allow(clippy::arithmetic_side_effects, reason = "the number of pages of a block is not 0")]

use super::mask::PAGES;
use crate::journal::Journal;

/// The slots in which pages came, went, or were mapped or unmapped since each asker was last told.
#[derive(Debug, Default)]
pub(super) struct ChangedSlots {
    /// Whether a caller asks at all: without one, a step looks no further.
    is_watched: bool,
    by_asker: [Journal<u64>; 2],
}

/// A caller that is told of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// It enforces the host's access to pages.
    Gate,
    /// It follows how much of each allocation is on devices.
    Follower,
}

impl ChangedSlots {
    /// Notes slots for a caller from now on.
    pub(super) fn watch(&mut self, asker: Asker) {
        self.is_watched = true;
        self.by_asker[asker as usize].begin();
    }

    /// The slots since this was last called, ascending.
    pub(super) fn take(&mut self, asker: Asker) -> Vec<u64> {
        let mut slots = self.by_asker[asker as usize].take();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Notes the slot of a page for those who ask.
    #[inline]
    pub(super) fn note(&mut self, page: u64) {
        if self.is_watched {
            let slot = page / PAGES as u64;
            self.by_asker.iter_mut().for_each(|slots| slots.note(slot));
        }
    }
}
