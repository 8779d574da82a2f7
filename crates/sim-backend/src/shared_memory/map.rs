//! The calls of the kernel that put a file's memory at addresses.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::SharedFile;

fn place_of(addresses: &Range<u64>) -> (*mut std::ffi::c_void, usize) {
    let bytes = addresses.end.saturating_sub(addresses.start) as usize;
    (std::ptr::with_exposed_provenance_mut(addresses.start as usize), bytes)
}

/// Puts the bytes of a file from an offset on at whole pages of addresses, in place of the memory
/// that is there.
///
/// # Safety
/// The addresses are mapped and the caller's, and the caller gives up what they hold.
pub(crate) unsafe fn map_over(
    addresses: &Range<u64>,
    file: &SharedFile,
    offset: u64,
) -> io::Result<()> {
    let (place, bytes) = place_of(addresses);
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the caller promised that the addresses are its own and that it gives up what they
    // hold.
    unsafe { mmap(place, bytes, protection, flags, file.memory(), offset)? };
    Ok(())
}

/// Puts private memory of zeros at whole pages of addresses, in place of the memory that is there.
///
/// # Safety
/// As [`map_over`].
pub(crate) unsafe fn map_private(addresses: &Range<u64>) -> io::Result<()> {
    let (place, bytes) = place_of(addresses);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the caller promised that the addresses are its own and that it gives up what they
    // hold.
    unsafe { mmap_anonymous(place, bytes, protection, flags)? };
    Ok(())
}
