//! The arena: real memory behind simulated addresses.
//!
//! Every simulated allocation lies in address space that this module reserved, so that an address
//! is the host's address of the same bytes. Pages cost nothing until they are written. Zones keep
//! kinds of memory apart: managed allocations must be adjacent to managed ones only, as on the
//! driver. A zone is a list of segments, each reserved when the ones before it have no room: an
//! idle machine holds no address space, and no machine takes what another one needs. This module
//! knows no policy: `regions`, `slabs`, `slots` and `pool_regions` place allocations.
//!
//! Segments are private mappings. A process that forks gets a copy of each, so parent and child
//! have a machine of their own. Behind a gate (`host_faults`) they are shared memory in two views, of
//! which a child has neither. Memory that was exported to other processes, or imported, is in files
//! of its own (`shared_memory`), which take the place of parts of a segment; a child shares it as
//! other processes do. Nothing is unmapped before the machine goes, and buffers keep it.
//!
//! Miri backs all of a mapping at once and knows no `madvise`. For it segments are as short as they
//! can be, and memory is cleared byte by byte.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};
use pagewise_hal::{BLOCK_BYTES, PAGE_BYTES};

use crate::host_faults::double_map::DoubleMap;
use crate::host_faults::gate::Gate;
use crate::shared_memory::{SharedFile, map_over, map_private};

/// The reason if there are no addresses left.
pub(crate) const NO_ADDRESSES: &str = "no address space is left: drop machines that are not \
    needed, raise the limit of the process (`ulimit -v`), or ask for less; one machine has 16 TiB \
    for each kind of memory";

/// A kind of memory that has addresses of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    Managed,
    /// Pools of managed memory.
    ManagedPools,
    /// Other pools.
    Pools,
    Device,
    Pinned,
    /// Reserved by `cuMemAddressReserve`.
    Virtual,
}

/// Bytes of private memory that are copied to a shared file at once.
const COPIED_BYTES: usize = 1 << 20;

const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// Address space of one zone, aligned to [`Arena::ALIGNMENT`]. No two segments are adjacent.
#[derive(Debug)]
struct Segment {
    zone: Zone,
    map: Map,
    bytes: u64,
}

/// The memory of a segment.
#[derive(Debug)]
enum Map {
    /// One mapping for the program and the engine.
    Private(MmapRaw),
    /// A view for the program, which is accessible as its pages are, and one for the engine.
    Double(DoubleMap),
}

/// The bytes of memory that has no address: its pages that are not all zero, by number.
pub(crate) type Kept = BTreeMap<u64, Box<[u8]>>;

/// The address space of one machine.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    /// By first address. A segment stays until the machine goes.
    segments: BTreeMap<u64, Segment>,
    /// Mappings of memory that has its bytes at another mapping: by first address, their bytes and
    /// the first address of that one.
    redirects: BTreeMap<u64, (u64, u64)>,
    /// Addresses with the memory of shared files, by first address. They do not overlap.
    shared: BTreeMap<u64, Range<u64>>,
    /// Present with genuine faults of the host: what the program's addresses are kept behind.
    gate: Option<Arc<Gate>>,
    /// Whether bytes are read and written at all.
    skips_contents: bool,
}

impl Arena {
    /// Most address space of a zone. A process has 128 TiB.
    pub(crate) const ZONE_BYTES_MAX: u64 = 16 << 40;
    /// The alignment of segments: 16 va_blocks, as a device reads 16 entries of a page table
    /// together (TIMING-32). So only the distances between addresses matter.
    const ALIGNMENT: u64 = if cfg!(miri) { BLOCK_BYTES } else { 16 * BLOCK_BYTES };
    /// The bytes of a segment if the process may not reserve as many as wanted.
    const BYTES_LIMITED: u64 = 1 << 30;
    /// The bytes of managed memory, from its start, that huge pages may back. The limit bounds the
    /// memory that a sparse program wastes.
    #[cfg(target_os = "linux")]
    const HUGE_PAGES_BYTES: u64 = 512 << 20;

    /// An arena with memory that the program can access, or behind a gate.
    pub(crate) fn behind(gate: Option<Arc<Gate>>) -> Self {
        Self { gate, ..Self::default() }
    }

    /// Makes the arena hold no contents from now on: writes do nothing, and every byte reads as
    /// zero.
    pub(crate) fn skip_contents(&mut self) {
        self.skips_contents = true;
    }

    /// Reserves one more segment of a zone and returns its addresses: as many bytes as wanted, or
    /// fewer if the process may not have as many, but never less than needed. `None` if there is no
    /// address space left, of the zone or of the process.
    pub(crate) fn grow(&mut self, zone: Zone, wanted: u64, needed: u64) -> Option<Range<u64>> {
        let of_zone = self.segments.values().filter(|segment| segment.zone == zone);
        let left = Self::ZONE_BYTES_MAX - of_zone.map(|segment| segment.bytes).sum::<u64>();
        let needed = needed.checked_next_multiple_of(BLOCK_BYTES).filter(|&bytes| bytes <= left)?;
        let sizes = if cfg!(miri) { [needed; 3] } else { [wanted, Self::BYTES_LIMITED, needed] };
        let mut sizes = sizes.into_iter().map(|bytes| bytes.clamp(needed, left));
        sizes.find_map(|bytes| self.reserve(zone, bytes).ok())
    }

    fn reserve(&mut self, zone: Zone, bytes: u64) -> io::Result<Range<u64>> {
        if let Some(gate) = &self.gate {
            let map = DoubleMap::new(gate, bytes, Self::ALIGNMENT)?;
            let view = map.view();
            self.segments.insert(view.start, Segment { zone, map: Map::Double(map), bytes });
            return Ok(view);
        }
        // More on both sides keeps what the host places next to it apart.
        let with_guards = usize::try_from(bytes + 2 * Self::ALIGNMENT).map_err(io::Error::other)?;
        let map: MmapRaw = Self::options().len(with_guards).map_anon()?.into();
        let base = (map.as_ptr() as u64 + 1).next_multiple_of(Self::ALIGNMENT);
        let is_first = self.segments.values().all(|segment| segment.zone != zone);
        if zone == Zone::Managed && is_first {
            prefer_huge_pages(&map, base, bytes);
        }
        let segment = Segment { zone, map: Map::Private(map), bytes };
        self.segments.insert(base, segment);
        Ok(base..base + bytes)
    }

    /// Options of a mapping that takes memory, and swap space, only for written pages.
    fn options() -> MmapOptions {
        let mut options = MmapOptions::new();
        if !cfg!(miri) {
            options.no_reserve_swap();
        }
        options
    }

    /// Whether a range touches a segment.
    pub(crate) fn reserves(&self, address: u64, bytes: u64) -> bool {
        let past = address.saturating_add(bytes.max(1));
        let before = self.segments.range(..past).next_back();
        before.is_some_and(|(base, segment)| address < base + segment.bytes)
    }

    /// Drops the contents of whole pages: they read as zero from now on.
    pub(crate) fn clear(&self, address: u64, bytes: u64) {
        if cfg!(miri) {
            return self.fill(address, bytes, 0);
        }
        let map = match &self.segment(address, bytes).map {
            Map::Private(map) => map,
            Map::Double(map) => {
                if map.clear(&(address..address + bytes)).is_err() {
                    self.fill(address, bytes, 0);
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
            self.fill(address, bytes, 0);
        }
    }

    /// Sets every byte of a range.
    pub(crate) fn fill(&self, address: u64, bytes: u64, value: u8) {
        for (place, bytes, _) in self.parts(address, bytes) {
            let (place, length) = self.checked(place, bytes);
            // SAFETY: `checked` gives mapped memory. Live memory is filled only by `memset`, an
            // `unsafe` call: its caller promises that no other code uses the range. All other
            // callers fill pages that are freed, or that are marked as discarded and so not read.
            unsafe { place.write_bytes(value, length) }
        }
    }

    /// Writes a value of 1, 2 or 4 bytes over and over. The range is whole elements.
    pub(crate) fn fill_pattern(&self, address: u64, bytes: u64, pattern: &[u8]) {
        if let &[value] = pattern {
            return self.fill(address, bytes, value);
        }
        let width = pattern.len();
        // The address is a multiple of the width, and parts end at multiples of 2 MiB: no element
        // is in two parts.
        for (place, bytes, _) in self.parts(address, bytes) {
            let (place, length) = self.checked(place, bytes);
            for offset in (0..length.saturating_sub(width - 1)).step_by(width) {
                // SAFETY: the element ends at or before `length`, in memory that `checked` found
                // mapped. Only fills get here, which are `unsafe` calls: their caller promised that
                // no other code uses the range.
                unsafe { place.add(offset).copy_from_nonoverlapping(pattern.as_ptr(), width) }
            }
        }
    }

    /// The bytes of a range.
    pub(crate) fn read(&self, address: u64, bytes: u64) -> Box<[u8]> {
        let (place, length) = self.checked(address, bytes);
        let mut bytes = vec![0; length];
        // SAFETY: `checked` gives mapped memory of `length` bytes, and the copy has as many. No
        // reference to the memory is made, because whole pages are read here and a view may hold
        // other bytes of the same page. Bytes written through that view meanwhile may be in the
        // copy or not. Both are right: the copy stands for memory that was left behind, which is
        // shown only once the whole page is discarded, or of memory that is no longer mapped here.
        unsafe { std::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), length) }
        bytes.into()
    }

    /// Writes bytes.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let (place, length) = self.checked(address, bytes.len() as u64);
        // SAFETY: `checked` gives mapped memory of at least `length` bytes, and `bytes` has as many
        // in memory of its own. No view of the page exists: it is marked as discarded, or memory
        // has just been mapped there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, length) }
    }

    /// Copies between ranges, which may overlap.
    pub(crate) fn copy(&self, destination: u64, source: u64, bytes: u64) {
        let mut done = 0;
        while done < bytes {
            let (to, to_bytes) = self.directed(destination + done, bytes - done);
            let (from, from_bytes) = self.directed(source + done, bytes - done);
            let part = to_bytes.min(from_bytes);
            let (to, length) = self.checked(to, part);
            let (from, _) = self.checked(from, part);
            // SAFETY: `checked` gives mapped memory for both ranges, and `ptr::copy` allows
            // overlap. Only `memcpy` gets here, an `unsafe` call: its caller promises that no other
            // code writes the source or uses the destination.
            unsafe { std::ptr::copy(from, to, length) }
            done += part;
        }
    }

    /// The sum of the bytes at `address`, `address + stride`, … below `address + bytes`.
    pub(crate) fn sum_strided(&self, address: u64, bytes: u64, stride: u64) -> u64 {
        let parts = self.parts(address, bytes).map(|(place, bytes, offset)| {
            let (place, length) = self.checked(place, bytes);
            let steps = steps(offset, length, stride);
            // SAFETY: every step lies below `length`, in memory that `checked` found mapped. Only
            // `host_touch` and `device_touch` get here, both `unsafe`: the caller promised that no
            // other code writes the range meanwhile.
            steps.map(|step| u64::from(unsafe { place.add(step).read() })).sum::<u64>()
        });
        parts.sum()
    }

    /// Writes a byte at `address`, `address + stride`, … below `address + bytes`.
    pub(crate) fn write_strided(&self, address: u64, bytes: u64, stride: u64, value: u8) {
        for (place, bytes, offset) in self.parts(address, bytes) {
            let (place, length) = self.checked(place, bytes);
            for step in steps(offset, length, stride) {
                // SAFETY: every step lies below `length`, in memory that `checked` found mapped.
                // Only `host_touch` and `device_touch` get here, both `unsafe`: the caller promised
                // that no other code uses the range meanwhile.
                unsafe { place.add(step).write(value) }
            }
        }
    }

    /// Adds 1 to the little-endian word that holds each of those places. The words lie in the range:
    /// [`DeviceTouch::check`](pagewise_hal::DeviceTouch::check).
    pub(crate) fn add_strided(&self, address: u64, bytes: u64, stride: u64) {
        for (place, bytes, offset) in self.parts(address, bytes) {
            let (place, length) = self.checked(place, bytes);
            for step in steps(offset, length, stride) {
                // SAFETY: the word lies wholly in the range, which the only caller has checked
                // before, and in this part of it: parts end at multiples of 2 MiB. The caller of
                // `device_touch` promised that no other code uses the range meanwhile.
                unsafe {
                    let byte = place.add(step);
                    let word = byte.sub(byte.addr() & 3).cast::<[u8; 4]>();
                    let value = u32::from_le_bytes(word.read()).wrapping_add(1);
                    word.write(value.to_le_bytes());
                }
            }
        }
    }

    /// Lets the bytes of a mapping be those of another one, as long. Both start at multiples of
    /// 2 MiB.
    pub(crate) fn redirect(&mut self, address: u64, bytes: u64, to: u64) {
        self.redirects.insert(address, (bytes, to));
    }

    /// A mapping has bytes of its own again, or is gone.
    pub(crate) fn direct(&mut self, address: u64) {
        self.redirects.remove(&address);
    }

    /// Takes the bytes of whole pages out of the arena: they read as zero from now on.
    pub(crate) fn take_contents(&self, address: u64, bytes: u64) -> Kept {
        if self.skips_contents {
            return Kept::new();
        }
        let pages = (0..bytes / PAGE_BYTES).map(|page| (page, address + page * PAGE_BYTES));
        let read = pages.map(|(page, place)| (page, self.read(place, PAGE_BYTES)));
        let kept = read.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)).collect();
        self.clear(address, bytes);
        kept
    }

    /// Puts bytes that were taken out at an address where there are zeros.
    pub(crate) fn put_contents(&self, address: u64, kept: Kept) {
        for (page, bytes) in kept {
            self.write(address + page * PAGE_BYTES, &bytes);
        }
    }

    /// Moves whole pages into a shared file, from an offset on, where there are zeros. The
    /// addresses have the file's memory from now on.
    ///
    /// # Errors
    /// If the host has no memory or no mapping left; the pages are as they were then.
    pub(crate) fn lend(
        &mut self,
        addresses: &Range<u64>,
        file: &SharedFile,
        offset: u64,
    ) -> io::Result<()> {
        self.copy_to_file(addresses, file, offset)?;
        self.share(addresses, file, offset)
    }

    /// Copies whole pages to a shared file, from an offset on, where there are zeros.
    ///
    /// # Errors
    /// If the host has no memory left.
    pub(crate) fn copy_to_file(
        &self,
        addresses: &Range<u64>,
        file: &SharedFile,
        offset: u64,
    ) -> io::Result<()> {
        if self.skips_contents {
            return Ok(());
        }
        for address in addresses.clone().step_by(COPIED_BYTES) {
            let bytes = self.read(address, (addresses.end - address).min(COPIED_BYTES as u64));
            // Pages of zeros take no memory in the file.
            let is_zero = |page: &[u8]| *page == ZEROS[..page.len()];
            let pages: Vec<&[u8]> = bytes.chunks(PAGE_BYTES as usize).collect();
            let mut at = 0;
            for alike in pages.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
                let run = at..at + alike.iter().map(|page| page.len()).sum::<usize>();
                if !is_zero(alike[0]) {
                    let to = offset + (address - addresses.start) + at as u64;
                    file.write(to, &bytes[run.clone()])?;
                }
                at = run.end;
            }
        }
        Ok(())
    }

    /// Puts the bytes of a shared file at whole pages, in place of what they hold.
    ///
    /// # Errors
    /// If the host has no mapping left.
    pub(crate) fn share(
        &mut self,
        addresses: &Range<u64>,
        file: &SharedFile,
        offset: u64,
    ) -> io::Result<()> {
        match &self.segment(addresses.start, addresses.end - addresses.start).map {
            // SAFETY: `segment` found the addresses in a mapping of this arena. What they hold is in
            // the file, or the memory was not handed out yet.
            Map::Private(_) => unsafe { map_over(addresses, file, offset)? },
            Map::Double(map) => file.map_in_views(map, addresses, offset)?,
        }
        self.shared.insert(addresses.start, addresses.clone());
        Ok(())
    }

    /// Takes addresses back from shared files: they have private memory of zeros. Other processes
    /// keep what they mapped.
    pub(crate) fn reclaim(&mut self, addresses: &Range<u64>) {
        let inside: Vec<_> =
            self.shared.range(addresses.clone()).map(|(_, at)| at.clone()).collect();
        for part in inside {
            let bytes = part.end - part.start;
            let done = match &self.segment(part.start, bytes).map {
                // SAFETY: `segment` found the addresses in a mapping of this arena. An `unsafe` call
                // freed the memory, and its caller promised not to use it any more.
                Map::Private(_) => unsafe { map_private(&part) },
                Map::Double(map) => map.reclaim(&part),
            };
            self.shared.remove(&part.start);
            if done.is_err() {
                // The process has no mapping left. The addresses keep the file's memory.
                self.fill(part.start, bytes, 0);
            }
        }
    }

    /// The address that has the bytes of an address, and for how many of `bytes` from there on.
    fn directed(&self, address: u64, bytes: u64) -> (u64, u64) {
        if let Some((&start, &(length, to))) = self.redirects.range(..=address).next_back()
            && address - start < length
        {
            return (to + (address - start), bytes.min(length - (address - start)));
        }
        let next = self.redirects.range(address..).next();
        (address, next.map_or(bytes, |(&start, _)| bytes.min(start - address)))
    }

    /// The engine's pointer to a byte of live memory, and for how many of `bytes` from there on it
    /// leads to what the device sees. `None` if contents are skipped.
    pub(crate) fn window(&self, address: u64, bytes: u64) -> Option<(*mut u8, u64)> {
        let (place, length) = self.directed(address, bytes);
        let (at, length) = self.checked(place, length);
        (length > 0).then_some((at, length as u64))
    }

    /// The parts of a range by the addresses that have their bytes: the address, the length, and
    /// the offset in the range.
    fn parts(&self, address: u64, bytes: u64) -> impl Iterator<Item = (u64, u64, u64)> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            if offset == bytes {
                return None;
            }
            let (place, length) = self.directed(address + offset, bytes - offset);
            let part = (place, length, offset);
            offset += length;
            Some(part)
        })
    }

    /// The pointer and length by which a range is read and written. The length is 0 if contents are
    /// skipped. Callers have found the range in a live allocation. Memory that no segment holds is
    /// host memory that was registered: the caller of `host_register`, which is `unsafe`, promised
    /// that it is live until it is unregistered.
    fn checked(&self, address: u64, bytes: u64) -> (*mut u8, usize) {
        let place = if self.holding(address).is_some() {
            match &self.segment(address, bytes).map {
                Map::Private(map) => {
                    let offset = (address - map.as_ptr() as u64) as usize;
                    // SAFETY: `segment` found the whole range inside the mapping, so the offset
                    // lies inside it too.
                    unsafe { map.as_mut_ptr().add(offset) }
                }
                Map::Double(map) => {
                    std::ptr::with_exposed_provenance_mut(map.engine_address(address) as usize)
                }
            }
        } else {
            std::ptr::with_exposed_provenance_mut(address as usize)
        };
        (place, if self.skips_contents { 0 } else { bytes as usize })
    }

    /// The segment that an address is in.
    fn holding(&self, address: u64) -> Option<(u64, &Segment)> {
        let (&base, segment) = self.segments.range(..=address).next_back()?;
        (address - base < segment.bytes).then_some((base, segment))
    }

    /// Whether the bytes of an address are those of another.
    pub(crate) fn is_redirected(&self, address: u64) -> bool {
        self.directed(address, 1).0 != address
    }

    /// Has memory behind whole pages.
    pub(crate) fn populate(&self, pages: &Range<u64>) -> io::Result<()> {
        match self.holding(pages.start) {
            Some((_, Segment { map: Map::Double(map), .. })) => map.populate(pages),
            _ => Ok(()),
        }
    }

    /// The address at which the engine accesses a byte that the program names.
    pub(crate) fn engine_address(&self, address: u64) -> u64 {
        match self.holding(address) {
            Some((_, Segment { map: Map::Double(map), .. })) => map.engine_address(address),
            _ => address,
        }
    }

    /// The segment that a range is in.
    ///
    /// # Panics
    /// If the range is not inside one: the address space handed out a wrong address.
    fn segment(&self, address: u64, bytes: u64) -> &Segment {
        let found = self.holding(address);
        let found = found.filter(|(base, segment)| bytes <= segment.bytes - (address - base));
        let Some((_, segment)) = found else {
            panic!("{address:#x}+{bytes} is outside of every segment");
        };
        segment
    }
}

/// Asks for huge pages for the first addresses of managed memory: a dense touch of 2 MiB then costs
/// the host one page fault instead of 512. Other addresses get none, because a sparse touch would
/// commit 2 MiB.
fn prefer_huge_pages(map: &MmapRaw, base: u64, bytes: u64) {
    #[cfg(target_os = "linux")]
    if !cfg!(miri) {
        let offset = (base - map.as_ptr() as u64) as usize;
        let length = bytes.min(Arena::HUGE_PAGES_BYTES) as usize;
        // Without huge pages everything works, only slower.
        let _ = map.advise_range(memmap2::Advice::HugePage, offset, length);
    }
}

/// The places of a walk in a part of its range, `offset` bytes from where it began.
fn steps(offset: u64, length: usize, stride: u64) -> impl Iterator<Item = usize> {
    let as_index = |number| usize::try_from(number).unwrap_or(usize::MAX);
    let over = offset % stride;
    let first = if over == 0 { 0 } else { stride - over };
    (as_index(first).min(length)..length).step_by(as_index(stride))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown(arena: &mut Arena, zone: Zone) -> u64 {
        arena.grow(zone, 1 << 30, 1).expect("address space").start
    }

    #[test]
    fn cleared_memory_reads_as_zero() {
        let mut arena = Arena::default();
        let base = grown(&mut arena, Zone::Managed);
        assert_eq!(base % BLOCK_BYTES, 0);
        arena.fill(base, 8192, 7);
        arena.clear(base, 4096);
        assert_eq!(arena.sum_strided(base, 8192, 1), 7 * 4096);
    }

    #[test]
    fn an_atomic_add_wraps_over_the_whole_word() {
        let mut arena = Arena::default();
        let base = grown(&mut arena, Zone::Device);
        arena.fill(base, 4, 0xff);
        arena.fill(base + 4, 4, 1);
        arena.add_strided(base, 4, 4);
        assert_eq!(arena.sum_strided(base, 8, 1), 4);
    }

    #[test]
    fn redirected_bytes_are_read_and_written_where_they_lie() {
        let mut arena = Arena::default();
        let base = arena.grow(Zone::Virtual, 4 * BLOCK_BYTES, 4 * BLOCK_BYTES).unwrap().start;
        let at = |block: u64| base + block * BLOCK_BYTES;
        arena.redirect(at(1), BLOCK_BYTES, at(3));
        arena.write_strided(at(0), 3 * BLOCK_BYTES, 3, 1);
        let places = (3 * BLOCK_BYTES).div_ceil(3);
        assert_eq!(arena.sum_strided(at(0), 3 * BLOCK_BYTES, 3), places);
        assert_eq!(arena.sum_strided(at(0), 3 * BLOCK_BYTES, 1), places, "and nowhere else");
        arena.fill(at(1), BLOCK_BYTES, 0);
        assert_eq!(arena.sum_strided(at(3), BLOCK_BYTES, 1), 0);
        arena.fill(at(0), BLOCK_BYTES + 8, 2);
        arena.copy(at(2), at(0) + 4096, BLOCK_BYTES);
        assert_eq!(arena.sum_strided(at(2), BLOCK_BYTES, 1), 2 * (BLOCK_BYTES - 4096 + 8));
        let kept = arena.take_contents(at(2), BLOCK_BYTES);
        assert_eq!(arena.sum_strided(at(2), BLOCK_BYTES, 1), 0);
        arena.put_contents(at(0), kept);
        arena.direct(at(1));
        assert_eq!(arena.sum_strided(at(1), BLOCK_BYTES, 1), 0, "its own");
    }

    #[test]
    fn segments_lie_apart_and_are_whole_at_both_ends() {
        let mut arena = Arena::default();
        let zones = [Zone::Managed, Zone::ManagedPools, Zone::Pools, Zone::Device, Zone::Pinned];
        for zone in [zones, zones].concat() {
            let segment = arena.grow(zone, BLOCK_BYTES, 1).expect("address space");
            assert_eq!(segment.end - segment.start, BLOCK_BYTES);
            arena.fill(segment.start, 1, 1);
            arena.fill(segment.end - 1, 1, 1);
            assert_eq!(arena.sum_strided(segment.start, BLOCK_BYTES, BLOCK_BYTES - 1), 2);
        }
        let starts: Vec<u64> = arena.segments.keys().copied().collect();
        assert_eq!(starts.len(), 10);
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] > BLOCK_BYTES), "{starts:x?}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "reserves 16 TiB")]
    fn a_zone_ends_at_16_tib_and_leaves_others_alone() {
        let mut arena = Arena::default();
        assert_eq!(arena.grow(Zone::Managed, BLOCK_BYTES, u64::MAX), None);
        assert_eq!(arena.grow(Zone::Managed, BLOCK_BYTES, Arena::ZONE_BYTES_MAX + 1), None);
        let most = Arena::ZONE_BYTES_MAX - BLOCK_BYTES;
        assert!(arena.grow(Zone::Managed, BLOCK_BYTES, most).is_some());
        let last = arena.grow(Zone::Managed, 1 << 40, 1).expect("the zone's last block");
        assert_eq!(last.end - last.start, BLOCK_BYTES);
        assert_eq!(arena.grow(Zone::Managed, BLOCK_BYTES, 1), None);
        assert!(arena.grow(Zone::Device, BLOCK_BYTES, 1).is_some());
    }
}
