//! Real memory behind simulated addresses.
//!
//! One reservation of address space holds every simulated allocation, so that an address is the
//! host's address of the same bytes. Pages cost nothing until they are written. Zones keep kinds
//! of memory apart: managed allocations must be adjacent to managed ones only, as on the driver.
//! This module knows no policy: who gets which address is `slots`' and `slabs`' business.

use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};
use pagewise_hal::BLOCK_BYTES;

/// A kind of memory that has addresses of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    Managed,
    Pools,
    Device,
    Pinned,
}

/// How many reservations the process holds.
static LIVE: AtomicUsize = AtomicUsize::new(0);

impl Drop for Arena {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A reservation of address space, 2 MiB aligned.
#[derive(Debug)]
pub(crate) struct Arena {
    map: MmapRaw,
    base: u64,
    bytes: u64,
    /// Whether bytes are read and written at all.
    skips_contents: bool,
}

impl Arena {
    /// Wanted address space of a lone machine: room for 16 TiB of managed memory.
    const BYTES_WANTED: u64 = 32 << 40;
    /// Each machine that lives already halves that, this many times at most: a process has 128 TiB,
    /// and a test runner may hold a machine for each of many threads.
    const HALVINGS_MAX: usize = 6;
    /// How much of managed memory, from its start, may be backed by huge pages. Bounds what a
    /// sparse program wastes.
    #[cfg(target_os = "linux")]
    const HUGE_PAGES_BYTES: u64 = 512 << 20;
    /// Below this a reservation is refused.
    const BYTES_MIN: u64 = 1 << 30;

    /// Reserves address space: as much as wanted, or as the process's limits allow.
    pub(crate) fn reserve() -> std::io::Result<Self> {
        let live = LIVE.load(Ordering::Relaxed);
        let mut bytes = Self::BYTES_WANTED >> live.min(Self::HALVINGS_MAX);
        loop {
            match Self::try_reserve(bytes) {
                Ok(arena) => return Ok(arena),
                Err(error) if bytes <= Self::BYTES_MIN => return Err(error),
                Err(_) => bytes /= 2,
            }
        }
    }

    /// From now on addresses are all that there is: nothing is written, everything reads as zero.
    pub(crate) fn skip_contents(&mut self) {
        self.skips_contents = true;
    }

    fn try_reserve(bytes: u64) -> std::io::Result<Self> {
        let with_slack = usize::try_from(bytes + BLOCK_BYTES).map_err(std::io::Error::other)?;
        let map: MmapRaw = MmapOptions::new().len(with_slack).no_reserve_swap().map_anon()?.into();
        let base = (map.as_ptr() as u64).next_multiple_of(BLOCK_BYTES);
        LIVE.fetch_add(1, Ordering::Relaxed);
        let arena = Self { map, base, bytes, skips_contents: false };
        arena.prefer_huge_pages();
        Ok(arena)
    }

    /// Asks for huge pages where managed allocations go first: a dense touch of 2 MiB then costs
    /// the host one page fault instead of 512. Only there, because a sparse touch commits 2 MiB.
    fn prefer_huge_pages(&self) {
        #[cfg(target_os = "linux")]
        {
            let (offset, length) = self.place(self.base, Self::HUGE_PAGES_BYTES);
            // Without huge pages everything works, only slower.
            let _ = self.map.advise_range(memmap2::Advice::HugePage, offset, length);
        }
    }

    /// First address and length of a zone: half of the space is managed memory's.
    pub(crate) fn zone(&self, zone: Zone) -> (u64, u64) {
        let eighth = self.bytes / 8;
        let (first, count) = match zone {
            Zone::Managed => (0, 4),
            Zone::Pools => (4, 2),
            Zone::Device => (6, 1),
            Zone::Pinned => (7, 1),
        };
        (self.base + first * eighth, count * eighth)
    }

    /// Drops the contents of whole pages: they read as zero from now on.
    pub(crate) fn clear(&self, address: u64, bytes: u64) {
        let (offset, length) = self.place(address, bytes);
        // SAFETY: the range lies in this private anonymous mapping, and the simulator's lock is
        // held, so nobody in the simulator reads it; users gave up the range when they freed it.
        let advised =
            unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, length) };
        if advised.is_err() {
            self.fill(address, bytes, 0);
        }
    }

    /// Sets every byte of a range.
    pub(crate) fn fill(&self, address: u64, bytes: u64, value: u8) {
        let (place, length) = self.checked(address, bytes);
        // SAFETY: `checked` gives live, writable memory; the caller of the Backend method promised
        // that nobody else uses the range.
        unsafe { place.write_bytes(value, length) }
    }

    /// The bytes of a range.
    pub(crate) fn read(&self, address: u64, bytes: u64) -> Box<[u8]> {
        let (place, length) = self.checked(address, bytes);
        // SAFETY: as in `fill`; the copy is made before the lock is given up.
        unsafe { std::slice::from_raw_parts(place, length) }.into()
    }

    /// Writes bytes.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let (place, length) = self.checked(address, bytes.len() as u64);
        // SAFETY: as in `fill`; `bytes` was copied out of the range and does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, length) }
    }

    /// Copies between ranges, which may overlap.
    pub(crate) fn copy(&self, destination: u64, source: u64, bytes: u64) {
        let (to, length) = self.checked(destination, bytes);
        let (from, _) = self.checked(source, bytes);
        // SAFETY: as in `fill`; `ptr::copy` allows overlap.
        unsafe { std::ptr::copy(from, to, length) }
    }

    /// The sum of the bytes at `address`, `address + stride`, … below `address + bytes`.
    pub(crate) fn sum_strided(&self, address: u64, bytes: u64, stride: u64) -> u64 {
        let (place, length) = self.checked(address, bytes);
        let steps = steps(length, stride);
        // SAFETY: every step lies below `bytes`; see `fill`.
        steps.map(|step| u64::from(unsafe { place.add(step).read() })).sum()
    }

    /// Writes one byte at each of those places.
    pub(crate) fn write_strided(&self, address: u64, bytes: u64, stride: u64, value: u8) {
        let (place, length) = self.checked(address, bytes);
        for step in steps(length, stride) {
            // SAFETY: as in `sum_strided`.
            unsafe { place.add(step).write(value) }
        }
    }

    /// Adds 1 to the little-endian word that holds each of those places.
    pub(crate) fn add_strided(&self, address: u64, bytes: u64, stride: u64) {
        let (place, length) = self.checked(address, bytes);
        for step in steps(length, stride) {
            // SAFETY: an aligned word that holds a byte of a mapping lies in the mapping, whose
            // ends are page-aligned.
            unsafe {
                let byte = place.add(step);
                let word = byte.sub(byte.addr() & 3).cast::<[u8; 4]>();
                let value = u32::from_le_bytes(word.read()).wrapping_add(1);
                word.write(value.to_le_bytes());
            }
        }
    }

    /// Where the bytes of a range are read and written: no bytes at all if contents are skipped.
    /// Host memory that was registered lies elsewhere; whoever registered it promised that it is
    /// live.
    fn checked(&self, address: u64, bytes: u64) -> (*mut u8, usize) {
        let place = if self.holds(address) {
            let (offset, _) = self.place(address, bytes);
            // SAFETY: `place` keeps the range inside the mapping.
            unsafe { self.map.as_mut_ptr().add(offset) }
        } else {
            std::ptr::with_exposed_provenance_mut(address as usize)
        };
        (place, if self.skips_contents { 0 } else { bytes as usize })
    }

    /// Whether an address is the arena's own.
    fn holds(&self, address: u64) -> bool {
        (self.base..self.base + self.bytes).contains(&address)
    }

    /// Offset and length of a range in the mapping.
    ///
    /// # Panics
    /// If the range is not inside: the address space handed out a wrong address.
    fn place(&self, address: u64, bytes: u64) -> (usize, usize) {
        let start = self.map.as_ptr() as u64;
        assert!(
            address >= self.base && address + bytes <= self.base + self.bytes,
            "{address:#x}+{bytes} is outside the arena"
        );
        ((address - start) as usize, bytes as usize)
    }
}

fn steps(length: usize, stride: u64) -> impl Iterator<Item = usize> {
    let stride = usize::try_from(stride).unwrap_or(usize::MAX);
    (0..length).step_by(stride)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleared_memory_reads_as_zero() {
        let arena = Arena::reserve().unwrap();
        let (base, _) = arena.zone(Zone::Managed);
        assert_eq!(base % BLOCK_BYTES, 0);
        arena.fill(base, 8192, 7);
        arena.clear(base, 4096);
        assert_eq!(arena.sum_strided(base, 8192, 1), 7 * 4096);
    }

    #[test]
    fn an_atomic_add_wraps_over_the_whole_word() {
        let arena = Arena::reserve().unwrap();
        let (base, _) = arena.zone(Zone::Device);
        arena.fill(base, 4, 0xff);
        arena.add_strided(base + 2, 1, 4);
        assert_eq!(arena.sum_strided(base, 4, 1), 0);
    }

    #[test]
    fn a_process_has_room_for_a_hundred_machines_at_once() {
        let arenas: Vec<_> = (0..100).map(|_| Arena::reserve().unwrap()).collect();
        let least = arenas.iter().map(|arena| arena.bytes).min();
        assert!(least >= Some(256 << 30), "{least:?}");
    }

    #[test]
    fn zones_do_not_overlap() {
        let arena = Arena::reserve().unwrap();
        let zones = [Zone::Managed, Zone::Pools, Zone::Device, Zone::Pinned];
        for pair in zones.windows(2) {
            let (first, length) = arena.zone(pair[0]);
            assert_eq!(first + length, arena.zone(pair[1]).0);
        }
    }
}
