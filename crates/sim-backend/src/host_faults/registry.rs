//! The program's views of all machines with page protection, for the signal handler.
//!
//! A signal handler may take no lock and allocate nothing. So views stand in a list of entries that
//! live for ever and are used again; an entry is read by its version, which changes whenever the
//! entry does.

use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

/// A view, or room for one.
#[derive(Debug)]
struct Entry {
    /// Even while the entry may be read. Changed with `CHANGES` held.
    version: AtomicU64,
    start: AtomicU64,
    /// 0 if there is no view.
    end: AtomicU64,
    /// Where faults are reported.
    fd: AtomicI32,
    /// The process that has the view.
    process: AtomicU32,
    next: AtomicPtr<Self>,
}

/// The entry that was made last.
static NEWEST: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
/// Held by the thread that changes entries.
static CHANGES: Mutex<()> = Mutex::new(());

impl Entry {
    /// The descriptor, if the entry is of a view that has the address.
    fn of(&self, address: u64, process: u32) -> Option<RawFd> {
        let before = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let end = self.end.load(Ordering::Relaxed);
        let fd = self.fd.load(Ordering::Relaxed);
        let owner = self.process.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before;
        (is_whole && (start..end).contains(&address) && owner == process).then_some(fd)
    }

    fn set(&self, view: &Range<u64>, fd: RawFd, process: u32) {
        self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(view.start, Ordering::Relaxed);
        self.end.store(view.end, Ordering::Relaxed);
        self.fd.store(fd, Ordering::Relaxed);
        self.process.store(process, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    let at = |entry: &AtomicPtr<Entry>| {
        // SAFETY: entries are leaked boxes, so a pointer that is not null is valid for ever.
        unsafe { entry.load(Ordering::Acquire).as_ref() }
    };
    std::iter::successors(at(&NEWEST), move |entry| at(&entry.next))
}

/// Where faults at an address of this process are reported. Safe to call in a signal handler.
pub(super) fn find(address: u64, process: u32) -> Option<RawFd> {
    entries().find_map(|entry| entry.of(address, process))
}

/// Adds a view of this process.
pub(super) fn add(view: &Range<u64>, fd: RawFd) {
    let _changing = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some(free) = entries().find(|entry| entry.end.load(Ordering::Relaxed) == 0) {
        return free.set(view, fd, process);
    }
    let entry = Entry {
        version: AtomicU64::new(0),
        start: AtomicU64::new(view.start),
        end: AtomicU64::new(view.end),
        fd: AtomicI32::new(fd),
        process: AtomicU32::new(process),
        next: AtomicPtr::new(NEWEST.load(Ordering::Acquire)),
    };
    NEWEST.store(Box::into_raw(Box::new(entry)), Ordering::Release);
}

/// Removes a view.
pub(super) fn remove(view: &Range<u64>) {
    let _changing = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |entry: &&Entry| entry.start.load(Ordering::Relaxed) == view.start;
    if let Some(entry) = entries().find(is_it) {
        entry.set(&(0..0), -1, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_found_by_its_addresses_and_process_until_it_is_removed() {
        let here = std::process::id();
        // Addresses that no mapping of this process has: it may run other tests meanwhile.
        let (one, other) = (0x100..0x200, 0x200..0x300);
        add(&one, 40);
        add(&other, 41);
        assert_eq!([0x100, 0x1ff, 0x200].map(|at| find(at, here)), [Some(40), Some(40), Some(41)]);
        assert_eq!((find(0xff, here), find(0x300, here)), (None, None));
        assert_eq!(find(0x100, here.wrapping_add(1)), None, "a child has no views");
        remove(&one);
        assert_eq!((find(0x100, here), find(0x200, here)), (None, Some(41)));
        add(&(0x400..0x500), 42);
        assert_eq!((find(0x100, here), find(0x400, here)), (None, Some(42)), "used again");
        remove(&other);
        remove(&(0x400..0x500));
    }
}
