//! The data of the pages of a va_block that may thrash.

use std::collections::BTreeMap;

use super::super::mask::PageMask;
use super::super::processor::{ProcId, ProcSet};

/// The data of one page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageState {
    pub(super) processors: ProcSet,
    pub(super) last_ns: Option<u64>,
    pub(super) events: u8,
    pub(super) revoked: bool,
    pub(super) throttled: ProcSet,
    pub(super) window_end_ns: u64,
    pub(super) exempt: Option<ProcId>,
    pub(super) throttles: u8,
    pub(super) pinned: Option<(ProcId, u64)>,
}

/// The data of the pages of one block.
#[derive(Debug, Clone, Default)]
pub(crate) struct Thrashing {
    /// `None` until two processors have accessed the block, and again after detection was reset.
    pub(super) pages: Option<BTreeMap<u16, PageState>>,
    pub(super) marked: PageMask,
    pub(super) last_ns: Option<u64>,
    pub(super) resets: u8,
    pub(super) ever_pinned: bool,
}

impl Thrashing {
    /// The pages found to thrash.
    pub(crate) fn marked(&self) -> PageMask {
        self.marked
    }

    pub(super) fn page(&self, page: usize) -> Option<&PageState> {
        self.pages.as_ref()?.get(&(page as u16))
    }

    pub(super) fn forget(&mut self, page: usize) {
        if let Some(pages) = &mut self.pages {
            pages.remove(&(page as u16));
        }
        self.marked = self.marked.minus(PageMask::single(page));
    }
}
