//! The kernel's mechanism: faults on the program's view arrive at a descriptor.
//!
//! The program's view has no page table entries at first. An access without one, or a write without
//! write permission, waits in the kernel until it is answered; that is true of accesses that the
//! kernel makes for a system call too, if the descriptor may see them.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::fault::{Fault, Shown};
use super::sys::{self, PageAdvice};
use super::uffd_abi as abi;
use super::uffd_abi::Operation;

const PAGE: u64 = pagewise_hal::PAGE_BYTES;

/// Where a descriptor came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The system call, with the right to see faults of system calls.
    Call,
    /// `/dev/userfaultfd`.
    Device,
    /// The system call, for the program's own accesses only.
    CallForUserMode,
}

/// A descriptor for faults.
#[derive(Debug)]
pub(super) struct Userfaultfd {
    fd: OwnedFd,
    pub(super) source: Source,
}

impl Userfaultfd {
    /// Opens a descriptor that can do all that is needed, from the first source that gives one.
    /// The errors are those of all sources, in their order.
    pub(super) fn open() -> Result<Self, [io::Error; 3]> {
        let [call, device, user] =
            [Source::Call, Source::Device, Source::CallForUserMode].map(|source| {
                let opened = descriptor(source).map(|fd| Self { fd, source });
                opened.and_then(|opened| opened.shake_hands().map(|()| opened))
            });
        match (call, device, user) {
            (Ok(opened), ..) | (_, Ok(opened), _) | (_, _, Ok(opened)) => Ok(opened),
            (Err(call), Err(device), Err(user)) => Err([call, device, user]),
        }
    }

    /// Whether system calls with hidden pages wait for them too.
    pub(super) fn serves_system_calls(&self) -> bool {
        self.source != Source::CallForUserMode
    }

    fn shake_hands(&self) -> io::Result<()> {
        let features = abi::FEATURE_MISSING_SHMEM
            | abi::FEATURE_MINOR_SHMEM
            | abi::FEATURE_EXACT_ADDRESS
            | abi::FEATURE_WP_SHMEM;
        let mut api = abi::Api { api: abi::API, features, ioctls: 0 };
        self.carry_out(&mut api)
    }

    fn carry_out<T: Operation>(&self, argument: &mut T) -> io::Result<()> {
        // SAFETY: the number and the structure belong together, as the kernel's header defines
        // them. The operations of this module change page table entries of ranges that are the
        // machine's own, and no contents.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), T::NUMBER as _, argument) };
        sys::checked(done).map(drop)
    }

    /// Wants the faults of a range.
    pub(super) fn register(&self, range: &Range<u64>) -> io::Result<()> {
        let mode = abi::REGISTER_MISSING | abi::REGISTER_MINOR | abi::REGISTER_WP;
        self.carry_out(&mut abi::Register { span: span(range), mode, ioctls: 0 })
    }

    /// Gives pages that have memory behind them page table entries, those that have none. Threads
    /// that wait for them go on waiting until they are [woken](Self::wake).
    pub(super) fn show(&self, pages: &Range<u64>, shown: Shown) -> io::Result<()> {
        let protects = if shown == Shown::Read { abi::CONTINUE_WP } else { 0 };
        let mode = protects | abi::CONTINUE_DONT_WAKE;
        let (mut at, mut longest) = (pages.start, u64::MAX);
        while at < pages.end {
            let end = at.saturating_add(longest).min(pages.end);
            let mut left = abi::Continue { span: span(&(at..end)), mode, mapped: 0 };
            let done = self.carry_out(&mut left);
            let mapped = u64::try_from(left.mapped).unwrap_or(0);
            match done {
                Ok(()) => at = end,
                Err(_) if mapped > 0 => at = at.saturating_add(mapped),
                // This page has an entry.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    at = at.saturating_add(PAGE);
                }
                // The program told parts of the range apart, as `mlock` does: page by page.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) && longest > PAGE => {
                    longest = PAGE;
                }
                // The address space is being changed: once more.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives pages write permission, or takes it.
    pub(super) fn set_writable(&self, pages: &Range<u64>, writable: bool) -> io::Result<()> {
        let mode = if writable { abi::WRITE_PROTECT_DONT_WAKE } else { abi::WRITE_PROTECT };
        loop {
            match self.carry_out(&mut abi::WriteProtect { span: span(pages), mode }) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                answer => return answer,
            }
        }
    }

    /// Takes page table entries away.
    pub(super) fn hide(&self, pages: &Range<u64>) {
        // It fails only where the program unmapped the view, and then nothing is accessible.
        let _ = sys::advise(pages, PageAdvice::Forget);
    }

    /// Lets threads that wait for a page access it again.
    pub(super) fn wake(&self, page: u64) {
        let mut span = abi::Span { start: page, bytes: PAGE };
        // It fails only where the program unmapped the view; the kernel has woken them then.
        let _ = self.carry_out(&mut span);
    }

    /// The descriptor, to wait for faults.
    pub(super) fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// The next fault, if there is one.
    pub(super) fn next(&self) -> Option<Fault> {
        let message = sys::read_message::<{ abi::MESSAGE_BYTES }>(self.fd.as_raw_fd())?;
        let (flags, address) = abi::fault_of(&message)?;
        let writes = flags & (abi::FAULT_WRITE | abi::FAULT_WP) != 0;
        Some(Fault { address, writes: Some(writes), waiter: 0 })
    }
}

fn span(range: &Range<u64>) -> abi::Span {
    abi::Span { start: range.start, bytes: range.end.saturating_sub(range.start) }
}

fn descriptor(source: Source) -> io::Result<OwnedFd> {
    const FLAGS: i32 = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let flags = match source {
        Source::Call => FLAGS,
        Source::CallForUserMode => FLAGS | abi::USER_MODE_ONLY,
        Source::Device => {
            let device = OpenOptions::new().read(true).write(true).open("/dev/userfaultfd")?;
            // SAFETY: the operation takes flags by value and makes a descriptor.
            let fd = unsafe { libc::ioctl(device.as_raw_fd(), abi::NEW as _, FLAGS) };
            let fd = sys::checked(fd)?;
            // SAFETY: the operation made the descriptor, and no other code has it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    };
    // SAFETY: the call takes flags by value and makes a descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let fd = sys::checked(i32::try_from(fd).unwrap_or(-1))?;
    // SAFETY: the call made the descriptor, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
