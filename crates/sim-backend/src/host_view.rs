//! The pages that the program's view shows, with genuine faults of the host (`host_faults`).
//!
//! The view never shows more than the host may access, and may show less. Decides nothing:
//! `faulting` says what the host may access.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use pagewise_hal::{PAGE_BYTES, PAGES_PER_BLOCK};

use crate::host_faults::fault::Fault;
use crate::host_faults::gate::Gate;
use crate::pager::HostAccess;
use crate::paging::PageMask;

/// The program's view of one machine.
#[derive(Debug)]
pub(crate) struct HostView {
    gate: Arc<Gate>,
    /// By 2 MiB slot of managed memory: at least the pages that are shown.
    shown: BTreeMap<u64, HostAccess>,
    /// Pages that were refused, and of which no fault arrives until they are allowed again.
    barred: Vec<u64>,
    /// Pages that were shown until they were hidden to see the next access, by slot.
    before: BTreeMap<u64, PageMask>,
}

impl HostView {
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        Self { gate, shown: BTreeMap::new(), barred: Vec::new(), before: BTreeMap::new() }
    }

    /// The gate, to show memory that does not migrate, and to hide it.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// The pages of a slot that a fault on one of them shows, as far as the host may access them: an
    /// aligned window, and a wider one of pages that were shown before they were hidden to be watched.
    pub(crate) fn window(&mut self, slot: u64, page: usize) -> PageMask {
        let aligned =
            |pages: usize| PageMask::range(page / pages * pages..(page / pages + 1) * pages);
        let window = aligned(self.gate.window_pages());
        let Some(before) = self.before.get_mut(&slot) else { return window };
        let again = *before & aligned(AGAIN_PAGES);
        *before = before.minus(again);
        if before.is_empty() {
            self.before.remove(&slot);
        }
        window | again
    }

    /// Hides all pages, so that the next access to each slot is seen.
    pub(crate) fn watch(&mut self) {
        for slot in self.slots() {
            let shown = self.shown(slot).read;
            *self.before.entry(slot).or_insert(PageMask::EMPTY) |= shown;
            self.restrict(slot, &HostAccess::NONE);
        }
    }

    /// At least the pages that are shown of a slot.
    pub(crate) fn shown(&self, slot: u64) -> HostAccess {
        self.shown.get(&slot).copied().unwrap_or(HostAccess::NONE)
    }

    /// Notes pages of a slot that are about to be shown, besides those that are.
    pub(crate) fn will_show(&mut self, slot: u64, pages: &HostAccess) {
        let shown = self.shown.entry(slot).or_insert(HostAccess::NONE);
        shown.read |= pages.read;
        shown.write |= pages.write;
    }

    /// The slots with pages that are shown, ascending.
    pub(crate) fn slots(&self) -> Vec<u64> {
        self.shown.keys().copied().collect()
    }

    /// Lets faults of refused pages arrive again.
    pub(crate) fn allow_refused(&mut self) {
        self.barred.drain(..).for_each(|page| self.gate.allow(page));
    }

    /// Hides what the host may no longer access in a slot; returns the pages that it can still
    /// write without a fault.
    pub(crate) fn restrict(&mut self, slot: u64, now: &HostAccess) -> PageMask {
        let Some(shown) = self.shown.get_mut(&slot) else { return PageMask::EMPTY };
        let lost = shown.read.minus(now.read);
        let protected = (shown.write & now.read).minus(now.write);
        shown.read &= now.read;
        shown.write &= now.write;
        let (writable, is_over) = (shown.write, shown.read.is_empty());
        if is_over {
            self.shown.remove(&slot);
        }
        lost.runs().for_each(|run| self.gate.hide(&addresses(slot, &run)));
        protected.runs().for_each(|run| self.gate.write_protect(&addresses(slot, &run)));
        writable
    }

    /// Notes that no fault of a page arrives until it is allowed again.
    pub(crate) fn barred(&mut self, fault: &Fault) {
        self.barred.push(fault.address / PAGE_BYTES * PAGE_BYTES);
    }
}

/// The pages that a fault shows at most of those that were shown before: 512 KiB. Each takes some 0.6
/// us, and a fault 40.
const AGAIN_PAGES: usize = 128;

/// The addresses of a run of pages of a 2 MiB slot.
pub(crate) fn addresses(slot: u64, run: &Range<usize>) -> Range<u64> {
    let first = slot * PAGES_PER_BLOCK;
    (first + run.start as u64) * PAGE_BYTES..(first + run.end as u64) * PAGE_BYTES
}
