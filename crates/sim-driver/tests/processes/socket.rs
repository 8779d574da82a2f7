//! Messages with descriptors, over a Unix socket. A peer that is gone is `None`.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// The descriptors of a message.
pub(crate) const DESCRIPTORS: usize = 2;

/// Room for the header of a control message and its descriptors, aligned as headers are.
type Control = [u64; 8];

const PAYLOAD: u32 = (DESCRIPTORS * size_of::<RawFd>()) as u32;

fn message(parts: *mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: the header is numbers and pointers, of which zeros are values.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = parts;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the function only computes.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(PAYLOAD) } as _;
    header
}

/// Sends bytes with descriptors.
pub(crate) fn send(socket: &UnixStream, bytes: &[u8], with: [RawFd; DESCRIPTORS]) -> Option<()> {
    let mut parts = [IoSlice::new(bytes)];
    let mut control: Control = [0; 8];
    let header = message(parts.as_mut_ptr().cast(), &mut control);
    // SAFETY: the header has room for one control message, and an `IoSlice` is an `iovec`. All of it
    // outlives the call.
    let sent = unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        (*first).cmsg_level = libc::SOL_SOCKET;
        (*first).cmsg_type = libc::SCM_RIGHTS;
        (*first).cmsg_len = libc::CMSG_LEN(PAYLOAD) as _;
        libc::CMSG_DATA(first).cast::<[RawFd; DESCRIPTORS]>().write_unaligned(with);
        libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
    };
    (usize::try_from(sent) == Ok(bytes.len())).then_some(())
}

/// Receives exactly as many bytes, with descriptors.
pub(crate) fn receive(socket: &UnixStream, bytes: &mut [u8]) -> Option<[OwnedFd; DESCRIPTORS]> {
    let length = bytes.len();
    let mut parts = [IoSliceMut::new(bytes)];
    let mut control: Control = [0; 8];
    let mut header = message(parts.as_mut_ptr().cast(), &mut control);
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_WAITALL;
    // SAFETY: an `IoSliceMut` is an `iovec`. The kernel fills the header, and the descriptors that it
    // names are this process's.
    unsafe {
        let received = libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags);
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        if usize::try_from(received) != Ok(length) || first.is_null() {
            return None;
        }
        let raw = libc::CMSG_DATA(first).cast::<[RawFd; DESCRIPTORS]>().read_unaligned();
        Some(raw.map(|raw| OwnedFd::from_raw_fd(raw)))
    }
}
