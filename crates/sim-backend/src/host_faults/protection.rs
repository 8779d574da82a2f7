//! Page protection: pages of the program's view that are hidden have no permission, and the handler
//! of `SIGSEGV` reports accesses to them.
//!
//! The kernel keeps a record for each run of pages with one protection, and gives a process only so
//! many (`vm.max_map_count`). Where none is left, a whole segment is hidden: the pages that the
//! program still uses are shown again when it does.
//!
//! System calls do not take this way: with a hidden page they fail with `EFAULT`.
#![allow(unsafe_code)]

use std::io::{self, PipeReader, PipeWriter};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fault::{Answer, Fault, Shown};
use super::{handler, registry, sys};

/// The program's views of a machine, and the pipe by which their faults come.
#[derive(Debug)]
pub(super) struct Protection {
    reader: PipeReader,
    writer: PipeWriter,
    views: Mutex<Vec<Range<u64>>>,
}

impl Protection {
    /// Installs the handler.
    pub(super) fn open() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // SAFETY: the descriptor is open. Only reading becomes non-blocking, as the ends are two
        // open files.
        sys::checked(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
        handler::install()?;
        Ok(Self { reader, writer, views: Mutex::default() })
    }

    fn views(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wants the faults of a view.
    pub(super) fn add(&self, view: Range<u64>) {
        registry::add(&view, self.writer.as_raw_fd());
        self.views().push(view);
    }

    /// A view goes.
    pub(super) fn remove(&self, view: &Range<u64>) {
        registry::remove(view);
        self.views().retain(|other| other != view);
    }

    /// Makes pages accessible.
    pub(super) fn show(&self, pages: &Range<u64>, shown: Shown) -> io::Result<()> {
        let protection = match shown {
            Shown::Read => libc::PROT_READ,
            Shown::Write => sys::READ_WRITE,
        };
        sys::protect(pages, protection).or_else(|_| {
            self.hide_view(pages);
            sys::protect(pages, protection)
        })
    }

    /// Takes permission to write from pages that are shown.
    pub(super) fn write_protect(&self, pages: &Range<u64>) {
        if sys::protect(pages, libc::PROT_READ).is_err() {
            self.hide_view(pages);
        }
    }

    /// Makes pages inaccessible.
    pub(super) fn hide(&self, pages: &Range<u64>) {
        if sys::protect(pages, libc::PROT_NONE).is_err() {
            self.hide_view(pages);
        }
    }

    /// Makes the whole view that has the pages inaccessible, which needs no record.
    fn hide_view(&self, pages: &Range<u64>) {
        let view = self.views().iter().find(|view| view.contains(&pages.start)).cloned();
        if let Some(view) = view {
            // It fails only where the program unmapped the view, and then nothing is accessible.
            let _ = sys::protect(&view, libc::PROT_NONE);
        }
    }

    /// The descriptor, to wait for faults.
    pub(super) fn raw(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    /// The next fault, if there is one.
    pub(super) fn next(&self) -> Option<Fault> {
        let message = sys::read_message::<{ handler::MESSAGE_BYTES }>(self.raw())?;
        handler::fault_of(&message)
    }

    pub(super) fn answer(&self, fault: &Fault, answer: Answer) {
        handler::answer(fault, answer);
    }
}
