//! The gate between a program and the memory of a machine: what both mechanisms do.
//!
//! Decides nothing: `faulting` says which pages are to be shown. Ranges are addresses of whole
//! pages in the program's view.

use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use pagewise_hal::PAGE_BYTES;

use super::fault::{Answer, Fault, Shown};
use super::protection::Protection;
use super::sys;
use super::userfaultfd::{Source, Userfaultfd};

/// The mechanism of a gate.
#[derive(Debug)]
enum Mechanism {
    Userfaultfd(Userfaultfd),
    Protection(Protection),
}

/// The gate of one machine.
#[derive(Debug)]
pub(crate) struct Gate {
    mechanism: Mechanism,
    /// Readable once the machine goes.
    stop: OwnedFd,
    /// The process that made the machine.
    process: u32,
}

impl Gate {
    pub(super) fn by_userfaultfd() -> Result<Self, [io::Error; 3]> {
        let opened = Userfaultfd::open()?;
        let failed = |error: io::Error| {
            let again = || io::Error::from(error.kind());
            [again(), again(), error]
        };
        Self::new(Mechanism::Userfaultfd(opened)).map_err(failed)
    }

    pub(super) fn by_protection() -> io::Result<Self> {
        Self::new(Mechanism::Protection(Protection::open()?))
    }

    fn new(mechanism: Mechanism) -> io::Result<Self> {
        Ok(Self { mechanism, stop: sys::stop_signal()?, process: std::process::id() })
    }

    /// Whether this process is a child of the one that made the machine.
    pub(crate) fn is_in_child(&self) -> bool {
        self.process != std::process::id()
    }

    /// Whether system calls with hidden pages wait for them, as other accesses do.
    pub(super) fn serves_system_calls(&self) -> bool {
        match &self.mechanism {
            Mechanism::Userfaultfd(fd) => fd.serves_system_calls(),
            Mechanism::Protection(_) => false,
        }
    }

    /// Where the descriptor came from, of userfaultfd.
    pub(super) fn source(&self) -> Option<Source> {
        match &self.mechanism {
            Mechanism::Userfaultfd(fd) => Some(fd.source),
            Mechanism::Protection(_) => None,
        }
    }

    /// Most pages that one fault shows. With userfaultfd a shown page takes memory.
    pub(crate) fn window_pages(&self) -> usize {
        match &self.mechanism {
            Mechanism::Userfaultfd(_) => 16,
            Mechanism::Protection(_) => 512,
        }
    }

    /// The protection with which a program's view is mapped.
    pub(super) fn protection_at_first(&self) -> c_int {
        match &self.mechanism {
            Mechanism::Userfaultfd(_) => sys::READ_WRITE,
            Mechanism::Protection(_) => libc::PROT_NONE,
        }
    }

    /// Wants the faults of a program's view, of which no page is shown yet.
    pub(super) fn admit(&self, view: Range<u64>) -> io::Result<()> {
        match &self.mechanism {
            Mechanism::Userfaultfd(fd) => fd.register(&view),
            Mechanism::Protection(views) => {
                views.add(view);
                Ok(())
            }
        }
    }

    /// Wants the faults of pages of a view that are mapped anew.
    pub(super) fn admit_again(&self, pages: &Range<u64>) -> io::Result<()> {
        match &self.mechanism {
            Mechanism::Userfaultfd(fd) => fd.register(pages),
            Mechanism::Protection(_) => Ok(()),
        }
    }

    /// A program's view is about to be unmapped.
    pub(super) fn dismiss(&self, view: &Range<u64>) {
        if let Mechanism::Protection(views) = &self.mechanism {
            views.remove(view);
        }
    }

    /// Whether pages need memory behind them before they are shown.
    pub(crate) fn shows_only_memory(&self) -> bool {
        matches!(self.mechanism, Mechanism::Userfaultfd(_))
    }

    /// Makes hidden pages accessible. Pages that are shown stay as they are, or become so too.
    pub(crate) fn show(&self, pages: &Range<u64>, shown: Shown) -> io::Result<()> {
        match &self.mechanism {
            Mechanism::Userfaultfd(fd) => fd.show(pages, shown),
            Mechanism::Protection(views) => views.show(pages, shown),
        }
    }

    /// Makes pages writable that are shown for reading.
    pub(crate) fn allow_writes(&self, pages: &Range<u64>) -> io::Result<()> {
        match &self.mechanism {
            Mechanism::Userfaultfd(fd) => fd.set_writable(pages, true),
            Mechanism::Protection(views) => views.show(pages, Shown::Write),
        }
    }

    /// Takes permission to write from pages that are shown.
    pub(crate) fn write_protect(&self, pages: &Range<u64>) {
        match &self.mechanism {
            Mechanism::Userfaultfd(fd) => {
                if fd.set_writable(pages, false).is_err() {
                    fd.hide(pages);
                }
            }
            Mechanism::Protection(views) => views.write_protect(pages),
        }
    }

    /// Makes pages inaccessible.
    pub(crate) fn hide(&self, pages: &Range<u64>) {
        match &self.mechanism {
            Mechanism::Userfaultfd(fd) => fd.hide(pages),
            Mechanism::Protection(views) => views.hide(pages),
        }
    }

    /// Answers a fault. Returns whether the page has to be [allowed](Self::allow) again before its
    /// next fault is reported.
    pub(crate) fn answer(&self, fault: &Fault, answer: Answer) -> bool {
        match &self.mechanism {
            Mechanism::Userfaultfd(fd) => {
                let page = fault.address / PAGE_BYTES * PAGE_BYTES;
                // The access is made again either way, and without permission it ends in the
                // segmentation fault of any wrong address.
                let is_barred = answer == Answer::Refused;
                if is_barred {
                    bar(page);
                }
                fd.wake(page);
                is_barred
            }
            Mechanism::Protection(views) => {
                views.answer(fault, answer);
                false
            }
        }
    }

    /// Lets faults of a page be reported again that was refused.
    pub(crate) fn allow(&self, page: u64) {
        // It fails only where the program unmapped the view.
        let _ = sys::protect(&(page..page.saturating_add(PAGE_BYTES)), self.protection_at_first());
    }

    /// Waits for the next fault; `None` once the machine goes.
    pub(super) fn next(&self) -> Option<Fault> {
        let (faults, next): (_, &dyn Fn() -> Option<Fault>) = match &self.mechanism {
            Mechanism::Userfaultfd(fd) => (fd.raw(), &|| fd.next()),
            Mechanism::Protection(views) => (views.raw(), &|| views.next()),
        };
        loop {
            let [has_fault, stops] = sys::wait_for(faults, self.stop.as_raw_fd());
            if let Some(fault) = has_fault.then(next).flatten() {
                return Some(fault);
            }
            if stops {
                return None;
            }
        }
    }

    /// Lets [`next`](Self::next) return `None` for ever, once no fault waits.
    pub(super) fn stop(&self) {
        sys::signal(&self.stop);
    }
}

/// Takes all permissions from a page.
fn bar(page: u64) {
    if sys::protect(&(page..page.saturating_add(PAGE_BYTES)), libc::PROT_NONE).is_err() {
        // The faulting thread would wait for ever, or fault for ever.
        eprintln!(
            "pagewise: an access to {page:#x} is not allowed, and the kernel has no room to say \
             so: raise vm.max_map_count"
        );
        std::process::abort();
    }
}
