//! Reads and writes of the memory behind addresses.
//!
//! Every function takes a range that lies in one segment, or in registered memory of the host.
//!
//! Miri knows no `madvise`. For it memory is cleared byte by byte.

use memmap2::UncheckedAdvice;
use pagewise_hal::PAGE_BYTES;

use super::page::{LENGTH, Page};
use super::segments::{Map, Segments};

impl Segments {
    /// Drops the contents of whole pages: they read as zero from now on.
    pub(super) fn clear(&self, address: u64, bytes: u64) {
        if self.is_unused() {
            return;
        }
        if cfg!(miri) {
            return self.fill(address, bytes, &[0]);
        }
        let map = match &self.segment(address, bytes).map {
            Map::Private(map) => map,
            Map::Double(map) => {
                if map.clear(&(address..address + bytes)).is_err() {
                    self.fill(address, bytes, &[0]);
                }
                return;
            }
        };
        let (offset, length) = ((address - map.as_ptr() as u64) as usize, bytes as usize);
        // SAFETY: the range lies in this private anonymous mapping, in which `segment` found it. No
        // safe call clears memory in use: an allocation is cleared when an `unsafe` call frees or
        // unmaps it, and a pool's chunk when it is given back, which needs that it holds no allocation. The
        // simulator's own accesses are behind its lock.
        let advised =
            unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, length) };
        if advised.is_err() {
            self.fill(address, bytes, &[0]);
        }
    }

    /// Writes a value of 1, 2 or 4 bytes over and over. The address is a multiple of its size.
    pub(super) fn fill(&self, address: u64, bytes: u64, pattern: &[u8]) {
        let (place, length) = (self.pointer(address, bytes), bytes as usize);
        if let &[value] = pattern {
            // SAFETY: `pointer` gives mapped memory. Live memory is filled only by `memset`, an
            // `unsafe` call: its caller promises that no other code uses the range. All other
            // callers fill pages that are freed, or that are marked as discarded and so not read.
            return unsafe { place.write_bytes(value, length) };
        }
        let width = pattern.len();
        for offset in (0..length.saturating_sub(width - 1)).step_by(width) {
            // SAFETY: the element ends at or before `length`, in memory that `pointer` found
            // mapped. Only fills get here, which are `unsafe` calls: their caller promised that
            // no other code uses the range.
            unsafe { place.add(offset).copy_from_nonoverlapping(pattern.as_ptr(), width) }
        }
    }

    /// Reads bytes.
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) {
        let place = self.pointer(address, bytes.len() as u64);
        // SAFETY: `pointer` gives mapped memory of as many bytes as the copy has. No reference to
        // the memory is made, because whole pages are read here and a view may hold other bytes of
        // the same page. Bytes written through that view meanwhile may be in the copy or not. Both
        // are right: the copy stands for memory that was left behind, which is shown only once the
        // whole page is discarded, or of memory that is no longer mapped here, or the caller of an
        // `unsafe` copy promised that no other code writes it.
        unsafe { std::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Writes bytes.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) {
        let place = self.pointer(address, bytes.len() as u64);
        // SAFETY: `pointer` gives mapped memory of as many bytes, and `bytes` are in memory of
        // their own. No view of the page exists: it is marked as discarded, or memory has just been
        // mapped there, or no view was asked for before; or the caller of an `unsafe` copy promised
        // that no other code uses it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) }
    }

    /// The bytes of a page, by its number.
    pub(super) fn page(&self, number: u64) -> Page {
        let mut bytes = [0; LENGTH];
        self.read(number * PAGE_BYTES, &mut bytes);
        Page::of(bytes)
    }

    pub(super) fn put_page(&self, number: u64, page: &Page) {
        self.write(number * PAGE_BYTES, &page.bytes());
    }

    /// Copies between ranges, which may overlap.
    pub(super) fn copy(&self, to: u64, from: u64, bytes: u64) {
        let (to, from) = (self.pointer(to, bytes), self.pointer(from, bytes));
        // SAFETY: `pointer` gives mapped memory for both ranges, and `ptr::copy` allows overlap.
        // Only `memcpy` gets here, an `unsafe` call: its caller promises that no other code writes
        // the source or uses the destination.
        unsafe { std::ptr::copy(from, to, bytes as usize) }
    }

    /// The sum of the bytes at `address`, `address + stride`, … below `address + bytes`.
    pub(super) fn sum_strided(&self, address: u64, bytes: u64, stride: u64) -> u64 {
        let place = self.pointer(address, bytes);
        // SAFETY: every step lies below `bytes`, in memory that `pointer` found mapped. Only
        // `host_touch` and `device_touch` get here, both `unsafe`: the caller promised that no
        // other code writes the range meanwhile.
        steps(bytes, stride).map(|step| u64::from(unsafe { place.add(step).read() })).sum()
    }

    /// Writes a byte at `address`, `address + stride`, … below `address + bytes`.
    pub(super) fn write_strided(&self, address: u64, bytes: u64, stride: u64, value: u8) {
        let place = self.pointer(address, bytes);
        for step in steps(bytes, stride) {
            // SAFETY: every step lies below `bytes`, in memory that `pointer` found mapped. Only
            // `host_touch` and `device_touch` get here, both `unsafe`: the caller promised that no
            // other code uses the range meanwhile.
            unsafe { place.add(step).write(value) }
        }
    }

    /// Adds 1 to the little-endian word that holds each of those places. The words lie in memory of
    /// the same segment: [`DeviceTouch::check`](pagewise_hal::DeviceTouch::check).
    pub(super) fn add_strided(&self, address: u64, bytes: u64, stride: u64) {
        let place = self.pointer(address, bytes);
        for step in steps(bytes, stride) {
            // SAFETY: the word lies wholly in the range, which the only caller has checked before,
            // and in this part of it: parts end at multiples of 2 MiB. The caller of `device_touch`
            // promised that no other code uses the range meanwhile.
            unsafe {
                let byte = place.add(step);
                let word = byte.sub(byte.addr() & 3).cast::<[u8; 4]>();
                let value = u32::from_le_bytes(word.read()).wrapping_add(1);
                word.write(value.to_le_bytes());
            }
        }
    }
}

/// The places of a walk, counted from its first byte.
fn steps(bytes: u64, stride: u64) -> impl Iterator<Item = usize> {
    (0..bytes as usize).step_by(usize::try_from(stride).unwrap_or(usize::MAX))
}
