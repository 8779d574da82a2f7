//! The data of the pages of a va_block that may thrash.

use super::super::mask::{PAGES, PageMask};
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

/// The data of watched pages. A fault looks for its page by a table, which takes 1 KiB.
#[derive(Debug, Clone)]
pub(super) struct WatchedPages {
    /// For each page of a block one more than its place among the states; 0 if it has none.
    places: Box<[u16; PAGES]>,
    states: Vec<PageState>,
}

impl Default for WatchedPages {
    fn default() -> Self {
        Self { places: Box::new([0; PAGES]), states: Vec::new() }
    }
}

impl WatchedPages {
    fn place(&self, page: usize) -> Option<usize> {
        usize::from(self.places[page]).checked_sub(1)
    }

    /// The data of a page, which is watched from now on.
    #[inline]
    pub(super) fn watched(&mut self, page: usize) -> &mut PageState {
        let place = self.place(page).unwrap_or_else(|| {
            self.states.push(PageState::default());
            self.places[page] = self.states.len() as u16;
            self.states.len() - 1
        });
        &mut self.states[place]
    }
}

/// The data of the pages of one block.
#[derive(Debug, Clone, Default)]
pub(crate) struct Thrashing {
    /// `None` until two processors have accessed the block, and again after detection was reset.
    pub(super) pages: Option<WatchedPages>,
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
        let pages = self.pages.as_ref()?;
        pages.states.get(pages.place(page)?)
    }

    /// Forgets that a page thrashes.
    pub(super) fn reset(&mut self, page: usize) {
        if let Some(pages) = &mut self.pages
            && let Some(place) = pages.place(page)
        {
            pages.states[place].reset();
        }
        self.marked = self.marked.minus(PageMask::single(page));
    }
}
