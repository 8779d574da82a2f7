//! Locks of an open file on some of its bytes, which the kernel drops when no process has it open.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_short};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A lock, or a question about locks, of bytes.
fn lock_of(kind: c_int, bytes: &Range<u64>) -> io::Result<libc::flock> {
    let as_offset = |bytes: u64| libc::off_t::try_from(bytes).map_err(io::Error::other);
    // SAFETY: `flock` is numbers, of which zeros are values.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as c_short;
    lock.l_whence = libc::SEEK_SET as c_short;
    lock.l_start = as_offset(bytes.start)?;
    lock.l_len = as_offset(bytes.end.saturating_sub(bytes.start))?;
    Ok(lock)
}

fn carry_out(file: BorrowedFd<'_>, call: c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the call reads and writes one `flock`.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), call, &raw mut *lock) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes a read lock of this open file. Others hold no write locks, so it does not wait.
pub(super) fn lock(file: BorrowedFd<'_>, bytes: &Range<u64>) -> io::Result<()> {
    carry_out(file, libc::F_OFD_SETLK, &mut lock_of(libc::F_RDLCK, bytes)?)
}

/// Gives it back.
pub(super) fn unlock(file: BorrowedFd<'_>, bytes: &Range<u64>) {
    if let Ok(mut lock) = lock_of(libc::F_UNLCK, bytes) {
        // It fails only if the kernel has no memory. The lock then ends with the open file.
        let _ = carry_out(file, libc::F_OFD_SETLK, &mut lock);
    }
}

/// Whether another open file has a lock on some of the bytes. Unknown counts as yes.
pub(super) fn is_locked_elsewhere(file: BorrowedFd<'_>, bytes: &Range<u64>) -> bool {
    let Ok(mut lock) = lock_of(libc::F_WRLCK, bytes) else { return true };
    carry_out(file, libc::F_OFD_GETLK, &mut lock).is_err()
        || c_int::from(lock.l_type) != libc::F_UNLCK
}
