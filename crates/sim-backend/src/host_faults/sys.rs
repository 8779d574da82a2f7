//! The calls of the kernel that host faults need, with errors as `io::Error`.
//!
//! Addresses are numbers here: the views are used through pointers that `double_map` makes.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The answer of a call of the C library that is -1 after an error.
pub(super) fn checked(answer: c_int) -> io::Result<c_int> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Shared memory without a name, all zeros, that takes memory only for pages that are used.
pub(super) fn shared_memory(bytes: u64) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string, and the flag is one that the call has.
    let fd = checked(unsafe { libc::memfd_create(c"pagewise".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the call made the descriptor, and no other code has it.
    let memory = unsafe { OwnedFd::from_raw_fd(fd) };
    let bytes = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open.
    checked(unsafe { libc::ftruncate(memory.as_raw_fd(), bytes) })?;
    Ok(memory)
}

/// The memory behind addresses.
#[derive(Debug, Clone, Copy)]
pub(super) enum Backing<'a> {
    /// Shared memory, from an offset on.
    Shared(BorrowedFd<'a>, u64),
    /// Memory of its own, all zeros.
    Private,
}

impl Backing<'_> {
    /// The arguments of `mmap` for it: flags, descriptor and offset.
    fn parts(self) -> io::Result<(c_int, RawFd, libc::off_t)> {
        match self {
            Self::Shared(memory, offset) => {
                let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
                Ok((libc::MAP_SHARED | libc::MAP_NORESERVE, memory.as_raw_fd(), offset))
            }
            Self::Private => {
                Ok((libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0))
            }
        }
    }
}

/// Reserves addresses, which are not accessible.
pub(super) fn reserve(bytes: usize) -> io::Result<usize> {
    map(Backing::Private, bytes, libc::PROT_NONE)
}

/// Maps memory wherever there is room.
pub(super) fn map(backing: Backing<'_>, bytes: usize, protection: c_int) -> io::Result<usize> {
    let (flags, fd, offset) = backing.parts()?;
    // SAFETY: the kernel chooses addresses that are free.
    mapped(unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset) })
}

/// Maps memory at an address.
///
/// # Safety
/// The range is the caller's, who gives up what it holds, and no code uses it.
pub(super) unsafe fn map_at(
    address: usize,
    backing: Backing<'_>,
    bytes: usize,
    protection: c_int,
) -> io::Result<()> {
    let (flags, fd, offset) = backing.parts()?;
    let place = std::ptr::with_exposed_provenance_mut(address);
    let flags = flags | libc::MAP_FIXED;
    // SAFETY: the caller promised that the range is its own and that no code uses it.
    mapped(unsafe { libc::mmap(place, bytes, protection, flags, fd, offset) }).map(drop)
}

fn mapped(place: *mut libc::c_void) -> io::Result<usize> {
    if place == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(place.expose_provenance())
}

/// Gives addresses back.
///
/// # Safety
/// They are the caller's, and no code uses them any more.
pub(super) unsafe fn unmap(address: usize, bytes: usize) {
    let place = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller promised that the range is its own and no longer used. The call fails only
    // for ranges that are not whole pages.
    unsafe { libc::munmap(place, bytes) };
}

/// Reading and writing.
pub(super) const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Changes the protection of pages of a program's view.
pub(super) fn protect(pages: &Range<u64>, protection: c_int) -> io::Result<()> {
    let (place, bytes) = place_of(pages);
    // SAFETY: the range is part of a program's view, of which pages are accessible or not as the
    // engine says. Code that uses them waits for its fault to be serviced.
    checked(unsafe { libc::mprotect(place, bytes, protection) }).map(drop)
}

/// Advice about pages that keeps their contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageAdvice {
    /// Take the page table entries of shared memory away.
    Forget,
    /// Children get no mapping.
    NotInChildren,
    /// Have memory behind each page.
    Populate,
    /// Have huge pages behind private memory.
    HugePages,
}

/// Gives advice about pages of a view.
pub(super) fn advise(pages: &Range<u64>, advice: PageAdvice) -> io::Result<()> {
    let (place, bytes) = place_of(pages);
    let advice = match advice {
        PageAdvice::Forget => libc::MADV_DONTNEED_LOCKED,
        PageAdvice::NotInChildren => libc::MADV_DONTFORK,
        PageAdvice::Populate => libc::MADV_POPULATE_WRITE,
        PageAdvice::HugePages => libc::MADV_HUGEPAGE,
    };
    // SAFETY: none of this advice changes contents: `Forget` is given about shared memory only.
    checked(unsafe { libc::madvise(place, bytes, advice) }).map(drop)
}

/// Drops the contents of private memory: it reads as zeros from now on.
///
/// # Safety
/// The range is the caller's, who gives up what it holds.
pub(super) unsafe fn drop_contents(pages: &Range<u64>) -> io::Result<()> {
    let (place, bytes) = place_of(pages);
    // SAFETY: the caller promised that the range is its own and that its contents may go.
    checked(unsafe { libc::madvise(place, bytes, libc::MADV_DONTNEED) }).map(drop)
}

fn place_of(pages: &Range<u64>) -> (*mut libc::c_void, usize) {
    let bytes = pages.end.saturating_sub(pages.start) as usize;
    (std::ptr::with_exposed_provenance_mut(pages.start as usize), bytes)
}

/// Takes memory out of shared memory: it reads as zeros from now on, in all views.
pub(super) fn punch_hole(memory: &OwnedFd, offset: u64, bytes: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let bytes = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open. The caller owns the memory.
    checked(unsafe { libc::fallocate(memory.as_raw_fd(), mode, offset, bytes) }).map(drop)
}

/// The bytes of a page of the host.
pub(super) fn page_bytes() -> u64 {
    // SAFETY: the call has no precondition.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(0)
}

/// A descriptor that a call to [`signal`] makes readable for ever.
pub(super) fn stop_signal() -> io::Result<OwnedFd> {
    // SAFETY: the flags are those of the call.
    let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the call made the descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a descriptor of [`stop_signal`] readable.
pub(super) fn signal(stop: &OwnedFd) {
    let one = 1_u64;
    // SAFETY: 8 bytes are read from a value of 8 bytes. The write fails only if the descriptor is
    // readable already.
    unsafe { libc::write(stop.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

/// Waits until one of two descriptors is readable; returns whether each is.
pub(super) fn wait_for(one: RawFd, other: RawFd) -> [bool; 2] {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries = [entry(one), entry(other)];
    // SAFETY: the array has as many entries as the call is told.
    unsafe { libc::poll(entries.as_mut_ptr(), 2, -1) };
    entries.map(|entry| entry.revents & libc::POLLIN != 0)
}

/// Reads one message of exactly `N` bytes; `None` if there is none.
pub(super) fn read_message<const N: usize>(from: RawFd) -> Option<[u8; N]> {
    let mut message = [0; N];
    // SAFETY: at most `N` bytes are written to an array of `N` bytes.
    let read = unsafe { libc::read(from, message.as_mut_ptr().cast(), N) };
    (usize::try_from(read) == Ok(N)).then_some(message)
}
