//! The data of the pages of a va_block that may thrash.

use std::collections::BTreeMap;

use super::super::mask::PageMask;
use super::super::processor::{ProcId, ProcSet};

/// The data of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PageState {
    /// Processors that access the page.
    pub(super) processors: ProcSet,
    /// The stamp of the last event.
    pub(super) last_ns: Option<u64>,
    /// Events that followed each other within the lapse.
    pub(super) events: u8,
    /// Whether one of them was a revocation.
    pub(super) revoked: bool,
    /// Processors that wait.
    pub(super) throttled: ProcSet,
    /// The stamp at which the window ends, if one was opened.
    pub(super) window_end_ns: Option<u64>,
    /// The processor that the window exempts.
    pub(super) exempt: Option<ProcId>,
    /// Throttles since the page was pinned last.
    pub(super) throttles: u8,
    /// Where the page is pinned, and until when.
    pub(super) pinned: Option<(ProcId, u64)>,
}

impl PageState {
    /// Ends the throttling of a processor. The window ends with the last of them (PAGING-127).
    pub(super) fn end_throttle(&mut self, by: ProcId) {
        self.throttled.remove(by);
        if self.throttled == ProcSet::EMPTY {
            self.window_end_ns = None;
        }
    }

    /// Ends the throttling of all processors.
    pub(super) fn end_throttles(&mut self) {
        if self.throttled != ProcSet::EMPTY {
            (self.throttled, self.window_end_ns) = (ProcSet::EMPTY, None);
        }
    }

    /// Forgets the events, the waits and the pin. Throttles stay counted, and the exempt processor
    /// is remembered (PAGING-123).
    fn reset(&mut self) {
        self.end_throttles();
        let Self { window_end_ns, exempt, throttles, .. } = *self;
        *self = Self { window_end_ns, exempt, throttles, ..Self::default() };
    }
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

    /// Forgets that a page thrashes.
    pub(super) fn reset(&mut self, page: usize) {
        let number = page as u16;
        if let Some(pages) = &mut self.pages
            && let Some(state) = pages.get_mut(&number)
        {
            state.reset();
            if *state == PageState::default() {
                pages.remove(&number);
            }
        }
        self.marked = self.marked.minus(PageMask::single(page));
    }
}
