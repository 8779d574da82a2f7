//! The host's access to pages as its page table gives it, for a caller that enforces it.
#![allow(clippy::arithmetic_side_effects, reason = "pages of live memory, each in its block")]

use super::changed_slots::Asker;
use super::engine::Paging;
use super::mask::{PAGES, PageMask};
use super::processor::ProcId;
use super::protection::Protection;

/// The pages of a 2 MiB slot that the host may access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostAccess {
    /// To read.
    pub(crate) read: PageMask,
    /// To write; these are among those to read.
    pub(crate) write: PageMask,
}

impl HostAccess {
    /// No page.
    pub(crate) const NONE: Self = Self { read: PageMask::EMPTY, write: PageMask::EMPTY };
}

impl Paging {
    /// Notes the slots of blocks that change, for a caller, from now on.
    pub(crate) fn watch_slots(&mut self, asker: Asker) {
        self.changed_slots.watch(asker);
    }

    /// The 2 MiB slots of blocks that may have changed since the caller last asked, ascending. Empty
    /// unless changes are noted.
    pub(crate) fn take_changed_slots(&mut self, asker: Asker) -> Vec<u64> {
        self.changed_slots.take(asker)
    }

    /// The host's access to the pages of a 2 MiB slot.
    pub(crate) fn host_access(&self, slot: u64) -> HostAccess {
        let mut access = HostAccess::NONE;
        let first = slot * PAGES as u64;
        let pages = first..first + PAGES as u64;
        let ranges = self.ranges.overlapping(&pages);
        for block in ranges.flat_map(|range| range.blocks_in(pages.clone())) {
            let at = (block.first_page() - first) as usize;
            let add = |into: &mut PageMask, protection| {
                let mapped = block.mapped(ProcId::HOST, protection);
                mapped.runs().for_each(|run| into.insert_range(run.start + at..run.end + at));
            };
            add(&mut access.read, Protection::Read);
            add(&mut access.write, Protection::Write);
        }
        access
    }
}
