//! The blocks that changed, for those who ask for them.
#![allow(clippy::arithmetic_side_effects, reason = "the number of pages of a block is not 0")]

use std::fmt;

use super::mask::PAGES;

/// The slots in which pages came, went, or were mapped or unmapped since each asker was last told.
/// Not part of the state of a machine.
#[derive(Default)]
pub(super) struct ChangedSlots {
    /// Whether a caller asks at all: without one, a step looks no further.
    is_watched: bool,
    by_asker: [Option<Vec<u64>>; 2],
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
        self.by_asker[asker as usize].get_or_insert_default();
    }

    /// The slots since this was last called, ascending.
    pub(super) fn take(&mut self, asker: Asker) -> Vec<u64> {
        let slots = self.by_asker[asker as usize].as_mut().map(std::mem::take);
        let mut slots = slots.unwrap_or_default();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Notes the slot of a page for those who ask.
    #[inline]
    pub(super) fn note(&mut self, page: u64) {
        if !self.is_watched {
            return;
        }
        let slot = page / PAGES as u64;
        for slots in self.by_asker.iter_mut().flatten() {
            if slots.last() != Some(&slot) {
                slots.push(slot);
            }
        }
    }
}

impl fmt::Debug for ChangedSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChangedSlots")
    }
}
