//! The blocks that changed, for a caller that enforces the host's access to their pages.
#![allow(clippy::arithmetic_side_effects, reason = "the number of pages of a block is not 0")]

use std::fmt;

use super::mask::PAGES;

/// The slots in which the host's access may have changed. Not part of the state of a machine.
#[derive(Default)]
pub(super) struct HostChanges(Option<Vec<u64>>);

impl HostChanges {
    /// Notes slots from now on.
    pub(super) fn watch(&mut self) {
        self.0.get_or_insert_default();
    }

    /// The slots since this was last called, ascending.
    pub(super) fn take(&mut self) -> Vec<u64> {
        let mut slots = self.0.as_mut().map(std::mem::take).unwrap_or_default();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Notes the slot of a page, if a caller wants to know.
    #[inline]
    pub(super) fn note(&mut self, page: u64) {
        let Some(slots) = &mut self.0 else { return };
        let slot = page / PAGES as u64;
        if slots.last() != Some(&slot) {
            slots.push(slot);
        }
    }
}

impl fmt::Debug for HostChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostChanges")
    }
}
