//! Genuine faults of the host: the pages that a fault shows, and those that are hidden when the
//! mapping of the host goes.
//!
//! The host may access managed pages as the engine maps them, and other memory as its kind allows.
//! An access to a managed page that it may not access yet is serviced as a host access program of one
//! byte is; an access to memory that it can never access is refused.

use std::io;
use std::ops::Range;

use pagewise_hal::{DevicePtr, HostTouch, PAGE_BYTES, PAGES_PER_BLOCK, Processor, Span};

use crate::arrival::Threads;
use crate::host_faults::fault::{Answer, Fault, Shown};
use crate::host_faults::gate::Gate;
use crate::host_view::addresses;
use crate::pager::{Access, AccessProgram, HostAccess};
use crate::paging::{Asker, PageMask};
use crate::refusal::{Checked, illegal_address};
use crate::sim::Sim;
use crate::space::MemoryKind;

/// The need of a fault.
enum Need {
    /// The memory does not migrate.
    Plain,
    /// The host may not touch the page.
    Refusal,
    /// The engine moves the page or maps it.
    Service,
    /// The host may access these pages of the slot, and the page is among them.
    Showing(HostAccess),
}

impl Sim {
    /// The answer to a fault that needs no change of pages: an access that the host may make, or one
    /// that it can never make. `None` if the engine has to service it.
    pub(crate) fn answer_at_once(&mut self, fault: &Fault) -> Option<Answer> {
        match self.need_of(fault) {
            Need::Plain => Some(self.show_plain(fault)),
            Need::Refusal => Some(Answer::Refused),
            Need::Service => None,
            Need::Showing(access) => {
                let writes = self.writes(fault);
                Some(self.show_managed(page_of(fault), &access, writes))
            }
        }
    }

    /// Whether the engine has to service a fault.
    pub(crate) fn moves_pages(&self, fault: &Fault) -> bool {
        matches!(self.need_of(fault), Need::Service)
    }

    fn need_of(&self, fault: &Fault) -> Need {
        let page = page_of(fault);
        if !self.pager.has_range(page) {
            return Need::Plain;
        }
        let (slot, within) = place_of(page);
        let access = self.pager.host_access(slot);
        let allowed = if self.writes(fault) { access.write } else { access.read };
        match self.check_host_may_touch(byte_of(page)) {
            Err(_) => Need::Refusal,
            Ok(()) if !allowed.contains(within) => Need::Service,
            Ok(()) => Need::Showing(access),
        }
    }

    /// Hides all managed memory, so that the host's next access to each 2 MiB is a fault.
    pub(crate) fn watch_host(&mut self) {
        if let Some(view) = &mut self.host_view {
            view.watch();
        }
    }

    /// The access of a fault as an access program of one byte. A write leaves the byte as it is.
    pub(crate) fn touch_of(&self, fault: &Fault) -> HostTouch {
        let span = Span::new(DevicePtr(fault.address), 1);
        let value = || self.arena.byte(span.ptr.0);
        let access = match self.writes(fault) {
            true => pagewise_hal::HostAccess::Write(value()),
            false => pagewise_hal::HostAccess::Read,
        };
        HostTouch { span, stride_bytes: 1, access }
    }

    /// Services a fault on managed memory as a host access program of one byte does. The thread that
    /// faulted still waits.
    pub(crate) fn host_fault(&mut self, fault: &Fault) -> Checked<()> {
        let (page, writes) = (page_of(fault), self.writes(fault));
        self.run_on_managed(AccessProgram {
            by: Processor::HOST,
            span: byte_of(page),
            stride_bytes: 1,
            access: if writes { Access::Write } else { Access::Read },
            threads: Threads::One,
        });
        let (slot, within) = place_of(page);
        let access = self.pager.host_access(slot);
        let allowed = if writes { access.write } else { access.read };
        let answer = match allowed.contains(within) {
            true => self.show_managed(page, &access, writes),
            false => Answer::Refused,
        };
        match answer {
            Answer::Served => Ok(()),
            Answer::Refused => illegal_address("the host did not get the page"),
        }
    }

    /// Hides what the host may no longer access, before other processors use it. Returns the pages
    /// of changed slots that the host can still write without a fault.
    pub(crate) fn settle_host_view(&mut self) -> Vec<Span> {
        let Some(view) = &mut self.host_view else { return Vec::new() };
        view.allow_refused();
        let mut changed = self.pager.take_changed_slots(Asker::Gate);
        let is_exclusive = self.exclusive.is_some();
        if is_exclusive {
            // Whether the host may access memory depends on the work of devices too.
            changed = view.slots();
        }
        let mut writable = Vec::new();
        for slot in changed {
            if view.shown(slot).read.is_empty() {
                continue;
            }
            let now = if is_exclusive { HostAccess::NONE } else { self.pager.host_access(slot) };
            let left = view.restrict(slot, &now);
            writable.extend(left.runs().map(|run| span_of(&addresses(slot, &run))));
        }
        writable
    }

    /// Hides memory that does not migrate, of which the host's access changed.
    pub(crate) fn hide_from_host(&self, span: Span) {
        if let (Some(view), Some(end)) = (&self.host_view, span.end()) {
            view.gate().hide(&(span.ptr.0..end));
        }
    }

    /// Faults of a page were refused, and arrive no more until they are allowed again.
    pub(crate) fn barred(&mut self, fault: &Fault) {
        if let Some(view) = &mut self.host_view {
            view.barred(fault);
        }
    }

    /// Whether the access writes. If the machine does not say: a page that is shown already faults
    /// only if it is written.
    fn writes(&self, fault: &Fault) -> bool {
        let (slot, within) = place_of(page_of(fault));
        let is_shown = || {
            let view = self.host_view.as_ref();
            view.is_some_and(|view| view.shown(slot).read.contains(within))
        };
        fault.writes.unwrap_or_else(is_shown)
    }

    /// Shows a managed page that the host may access, with those around it that it may access too.
    fn show_managed(&mut self, page: u64, access: &HostAccess, writes: bool) -> Answer {
        let Some(view) = &mut self.host_view else { return Answer::Refused };
        let (slot, within) = place_of(page);
        let window = view.window(slot, within);
        let known = view.shown(slot);
        let (readable, writable) = (access.read & window, access.write & window);
        let this = PageMask::single(within);
        let fresh = readable.minus(known.read) | this;
        let mut raised = (writable & known.read).minus(known.write);
        if writes {
            raised.insert_mask(this);
        }
        let news = [
            (fresh & writable, Some(Shown::Write)),
            (fresh.minus(writable), Some(Shown::Read)),
            (raised, None),
        ];
        let gate = view.gate().clone();
        view.will_show(slot, &HostAccess { read: readable, write: writable });
        // From then on the host may write them.
        for run in ((fresh & writable) | raised).runs() {
            self.before_write(span_of(&addresses(slot, &run)));
        }
        for (pages, shown) in news {
            for run in pages.runs() {
                let run = addresses(slot, &run);
                let done = match shown {
                    Some(shown) => self.show_run(&gate, &run, shown),
                    None => gate.allow_writes(&run),
                };
                if done.is_err() {
                    return Answer::Refused;
                }
            }
        }
        Answer::Served
    }

    /// Shows memory that does not migrate, as far as the host may access it.
    fn show_plain(&self, fault: &Fault) -> Answer {
        let page = page_of(fault);
        let bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
        let reaches = |a: &&_| self.reaches(Processor::HOST, a);
        let found = self.space.overlapping(bytes.clone()).find(reaches);
        let (Some(view), Some(allocation)) = (&self.host_view, found) else {
            return Answer::Refused;
        };
        let is_mapped = matches!(allocation.kind, MemoryKind::Mapped(_));
        let writable = !is_mapped || self.mappings.admits(Processor::HOST, allocation.span(), true);
        // The bytes of a redirected mapping are at other addresses.
        let is_elsewhere = is_mapped && self.arena.is_redirected(bytes.start);
        if is_elsewhere || fault.writes == Some(true) && !writable {
            return Answer::Refused;
        }
        let (slot, _) = place_of(page);
        let whole = allocation.span().pages_outward();
        let first = whole.start.max(slot * PAGES_PER_BLOCK);
        let end = whole.end.min((slot + 1) * PAGES_PER_BLOCK);
        let shown = if writable { Shown::Write } else { Shown::Read };
        let pages = first * PAGE_BYTES..end * PAGE_BYTES;
        match self.show_run(view.gate(), &pages, shown) {
            Ok(()) => Answer::Served,
            Err(_) => Answer::Refused,
        }
    }

    fn show_run(&self, gate: &Gate, pages: &Range<u64>, shown: Shown) -> io::Result<()> {
        if gate.shows_only_memory() {
            self.arena.populate(pages)?;
        }
        gate.show(pages, shown)
    }
}

fn page_of(fault: &Fault) -> u64 {
    fault.address / PAGE_BYTES
}

/// The 2 MiB slot of a page, and its place there.
fn place_of(page: u64) -> (u64, usize) {
    (page / PAGES_PER_BLOCK, (page % PAGES_PER_BLOCK) as usize)
}

fn byte_of(page: u64) -> Span {
    Span::new(DevicePtr(page * PAGE_BYTES), 1)
}

fn span_of(addresses: &Range<u64>) -> Span {
    Span::new(DevicePtr(addresses.start), addresses.end - addresses.start)
}
