//! The arena: memory behind simulated addresses, and its contents.
//!
//! Every simulated allocation lies in address space that this module reserved, so that an address
//! is the host's address of the same bytes. Pages cost nothing until they are written. Zones keep
//! kinds of memory apart: managed allocations must be adjacent to managed ones only, as on the
//! driver. A zone is a list of segments, each reserved when the ones before it have no room: an
//! idle machine holds no address space, and no machine takes what another one needs. This module
//! knows no policy: `regions`, `slabs`, `slots` and `pool_regions` place allocations.
//!
//! Contents are in that memory. On a machine that describes them (`MemoryContents::Described`) they
//! are not, until the program or the code of a kernel asks for the bytes: then all that was
//! described is written to memory, and stays there.

mod described;
mod files;
mod memory;
mod page;
mod segments;
mod spare;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use described::Described;
use page::LENGTH;
use pagewise_hal::PAGE_BYTES;
use segments::Segments;

pub(crate) use self::page::Page;
pub(crate) use self::segments::Zone;
use crate::config::MemoryContents;
use crate::floor::at_or_before;
use crate::host_faults::gate::Gate;
use crate::shared_memory::SharedFile;

/// The reason if there are no addresses left.
pub(crate) const NO_ADDRESSES: &str = "no address space is left: drop machines that are not \
    needed, raise the limit of the process (`ulimit -v`), or ask for less; one machine has 16 TiB \
    for each kind of memory";

/// The bytes of memory that has no address: its pages that are not all zero, by number.
pub(crate) type Kept = BTreeMap<u64, Page>;

/// The address space of one machine.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    segments: Segments,
    /// Mappings of memory that has its bytes at another mapping: by first address, their bytes and
    /// the first address of that one.
    redirects: BTreeMap<u64, (u64, u64)>,
    contents: Contents,
}

/// The contents of the segments. Those of registered memory are always in that memory.
#[derive(Debug, Default)]
enum Contents {
    /// In their memory.
    #[default]
    Real,
    Described(Described),
    /// Nowhere: writes do nothing, and every byte reads as zero.
    Skipped,
}

/// The place of the contents at one address.
enum Store<'a> {
    Memory(&'a Segments),
    Described(&'a mut Described),
    Nowhere,
}

impl Arena {
    /// Most address space of a zone.
    pub(crate) const ZONE_BYTES_MAX: u64 = Segments::ZONE_BYTES_MAX;

    /// An arena with memory that the program can access, or behind a gate.
    pub(crate) fn new(contents: MemoryContents, gate: Option<Arc<Gate>>) -> Self {
        let (contents, segments) = match (contents, &gate) {
            (MemoryContents::Skipped, _) => (Contents::Skipped, Segments::unused()),
            (MemoryContents::Described, None) => {
                (Contents::Described(Described::default()), Segments::unused())
            }
            _ => (Contents::Real, Segments::behind(gate)),
        };
        Self { segments, contents, ..Self::default() }
    }

    /// Reserves one more segment of a zone and returns its addresses: as many bytes as wanted, or
    /// fewer if the process may not have as many, but never less than needed. `None` if there is no
    /// address space left, of the zone or of the process.
    pub(crate) fn grow(&mut self, zone: Zone, wanted: u64, needed: u64) -> Option<Range<u64>> {
        self.segments.grow(zone, wanted, needed)
    }

    /// Asks for huge pages for an allocation of device memory.
    pub(crate) fn prefer_huge_pages(&mut self, address: u64, bytes: u64) {
        self.segments.prefer_huge_pages(address, bytes);
    }

    /// Whether a range touches a segment.
    pub(crate) fn reserves(&self, address: u64, bytes: u64) -> bool {
        self.segments.reserves(address, bytes)
    }

    /// The program, or the code of a kernel, uses the memory from now on. Described contents are
    /// written to it, and all contents are there.
    pub(crate) fn expose(&mut self) {
        self.segments.begin_use();
        if let Contents::Described(described) = &mut self.contents {
            for (number, page) in described.drain() {
                self.segments.put_page(number, &page);
            }
            self.contents = Contents::Real;
        }
    }

    fn store(&mut self, address: u64) -> Store<'_> {
        match &mut self.contents {
            Contents::Skipped => Store::Nowhere,
            Contents::Described(described) if self.segments.holding(address).is_some() => {
                Store::Described(described)
            }
            _ => Store::Memory(&self.segments),
        }
    }

    /// The description of an address, if it has one.
    fn described(&self, address: u64) -> Option<&Described> {
        match &self.contents {
            Contents::Described(described) if self.segments.holding(address).is_some() => {
                Some(described)
            }
            _ => None,
        }
    }

    /// Drops the contents of whole pages: they read as zero from now on.
    pub(crate) fn clear(&mut self, address: u64, bytes: u64) {
        match &mut self.contents {
            Contents::Described(described) => described.clear(address, bytes),
            // The program may have written memory that calls do not write.
            Contents::Real | Contents::Skipped => self.segments.clear(address, bytes),
        }
    }

    /// Writes a value of 1, 2 or 4 bytes over and over. The range is whole elements.
    pub(crate) fn fill(&mut self, address: u64, bytes: u64, pattern: &[u8]) {
        // The address is a multiple of the value's size, and parts end at multiples of 2 MiB: no
        // element is in two parts.
        let mut places = Places::of(address, bytes, 1);
        while let Some((place, bytes)) = places.next(&self.redirects) {
            match self.store(place) {
                Store::Memory(memory) => memory.fill(place, bytes, pattern),
                Store::Described(described) => described.fill(place, bytes, pattern),
                Store::Nowhere => {}
            }
        }
    }

    /// The byte at an address.
    pub(crate) fn byte(&self, address: u64) -> u8 {
        self.sum_strided(address, 1, 1) as u8
    }

    /// The bytes of a page, by its number.
    pub(crate) fn page(&self, number: u64) -> Page {
        match (&self.contents, self.described(number * PAGE_BYTES)) {
            (Contents::Skipped, _) => Page::ZERO,
            (_, Some(described)) => described.page(number),
            (_, None) => self.segments.page(number),
        }
    }

    /// Writes a page.
    pub(crate) fn put_page(&mut self, number: u64, page: &Page) {
        match self.store(number * PAGE_BYTES) {
            Store::Memory(memory) => memory.put_page(number, page),
            Store::Described(described) => described.put_page(number, page),
            Store::Nowhere => {}
        }
    }

    /// Copies between ranges, which may overlap.
    pub(crate) fn copy(&mut self, destination: u64, source: u64, bytes: u64) {
        let mut done = 0;
        while done < bytes {
            let (to, to_bytes) = directed(&self.redirects, destination + done, bytes - done);
            let (from, from_bytes) = directed(&self.redirects, source + done, bytes - done);
            let part = to_bytes.min(from_bytes);
            self.copy_part(to, from, part);
            done += part;
        }
    }

    fn copy_part(&mut self, to: u64, from: u64, bytes: u64) {
        let is_described = self.described(from).is_some();
        match self.store(to) {
            Store::Nowhere => {}
            Store::Memory(memory) if !is_described => memory.copy(to, from, bytes),
            Store::Described(described) if is_described => described.copy(to, from, bytes),
            _ => {
                let mut buffer = [0; LENGTH];
                for start in (0..bytes).step_by(LENGTH) {
                    let part = &mut buffer[..(bytes - start).min(PAGE_BYTES) as usize];
                    match self.described(from + start) {
                        Some(described) => described.read(from + start, part),
                        None => self.segments.read(from + start, part),
                    }
                    match self.store(to + start) {
                        Store::Described(described) => described.write(to + start, part),
                        _ => self.segments.write(to + start, part),
                    }
                }
            }
        }
    }

    /// The sum of the bytes at `address`, `address + stride`, … below `address + bytes`.
    #[inline]
    pub(crate) fn sum_strided(&self, address: u64, bytes: u64, stride: u64) -> u64 {
        match self.contents {
            Contents::Skipped => 0,
            _ => self.sum_kept(address, bytes, stride),
        }
    }

    fn sum_kept(&self, address: u64, bytes: u64, stride: u64) -> u64 {
        let (mut places, mut sum) = (Places::of(address, bytes, stride), 0);
        while let Some((place, bytes)) = places.next(&self.redirects) {
            sum += match self.described(place) {
                Some(described) => described.sum_strided(place, bytes, stride),
                None => self.segments.sum_strided(place, bytes, stride),
            };
        }
        sum
    }

    /// Writes a byte at `address`, `address + stride`, … below `address + bytes`.
    pub(crate) fn write_strided(&mut self, address: u64, bytes: u64, stride: u64, value: u8) {
        let mut places = Places::of(address, bytes, stride);
        while let Some((place, bytes)) = places.next(&self.redirects) {
            match self.store(place) {
                Store::Memory(memory) => memory.write_strided(place, bytes, stride, value),
                Store::Described(described) => described.write_strided(place, bytes, stride, value),
                Store::Nowhere => {}
            }
        }
    }

    /// Adds 1 to the little-endian word that holds each of those places. The words lie in the range:
    /// [`DeviceTouch::check`](pagewise_hal::DeviceTouch::check).
    pub(crate) fn add_strided(&mut self, address: u64, bytes: u64, stride: u64) {
        let mut places = Places::of(address, bytes, stride);
        while let Some((place, bytes)) = places.next(&self.redirects) {
            match self.store(place) {
                Store::Memory(memory) => memory.add_strided(place, bytes, stride),
                Store::Described(described) => described.add_strided(place, bytes, stride),
                Store::Nowhere => {}
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

    /// Whether the bytes of an address are those of another.
    pub(crate) fn is_redirected(&self, address: u64) -> bool {
        directed(&self.redirects, address, 1).0 != address
    }

    /// Takes the bytes of whole pages out of the arena: they read as zero from now on.
    pub(crate) fn take_contents(&mut self, address: u64, bytes: u64) -> Kept {
        if matches!(self.contents, Contents::Skipped) {
            return Kept::new();
        }
        let first = address / PAGE_BYTES;
        let pages = (0..bytes / PAGE_BYTES).map(|page| (page, self.page(first + page)));
        let kept = pages.filter(|(_, page)| *page != Page::ZERO).collect();
        self.clear(address, bytes);
        kept
    }

    /// Puts bytes that were taken out at an address where there are zeros.
    pub(crate) fn put_contents(&mut self, address: u64, kept: Kept) {
        for (page, bytes) in kept {
            self.put_page(address / PAGE_BYTES + page, &bytes);
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
        &mut self,
        addresses: &Range<u64>,
        file: &SharedFile,
        offset: u64,
    ) -> io::Result<()> {
        self.expose();
        match self.contents {
            Contents::Skipped => Ok(()),
            _ => self.segments.copy_to_file(addresses, file, offset),
        }
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
        self.expose();
        self.segments.share(addresses, file, offset)
    }

    /// Takes addresses back from shared files: they have private memory of zeros. Other processes
    /// keep what they mapped.
    pub(crate) fn reclaim(&mut self, addresses: &Range<u64>) {
        self.segments.reclaim(addresses);
    }

    /// The engine's pointer to a byte of live memory, and for how many of `bytes` from there on it
    /// leads to what the device sees. `None` if contents are skipped. Contents are not described.
    pub(crate) fn window(&self, address: u64, bytes: u64) -> Option<(*mut u8, u64)> {
        debug_assert!(!matches!(self.contents, Contents::Described(_)), "they were exposed");
        let (place, length) = directed(&self.redirects, address, bytes);
        let is_skipped = matches!(self.contents, Contents::Skipped);
        (length > 0 && !is_skipped).then(|| (self.segments.pointer(place, length), length))
    }

    /// Has memory behind whole pages.
    pub(crate) fn populate(&self, pages: &Range<u64>) -> io::Result<()> {
        self.segments.populate(pages)
    }

    /// The address at which the engine accesses a byte that the program names.
    pub(crate) fn engine_address(&self, address: u64) -> u64 {
        self.segments.engine_address(address)
    }
}

/// The places of a walk that are still to come, by the addresses that have their bytes.
struct Places {
    address: u64,
    bytes: u64,
    stride: u64,
}

impl Places {
    fn of(address: u64, bytes: u64, stride: u64) -> Self {
        Self { address, bytes, stride }
    }

    /// The next places with bytes side by side: the address of the first one, and the bytes
    /// from there on.
    fn next(&mut self, redirects: &BTreeMap<u64, (u64, u64)>) -> Option<(u64, u64)> {
        if self.bytes == 0 {
            return None;
        }
        let (place, bytes) = directed(redirects, self.address, self.bytes);
        let gone = bytes.div_ceil(self.stride).saturating_mul(self.stride).min(self.bytes);
        (self.address, self.bytes) = (self.address + gone, self.bytes - gone);
        Some((place, bytes))
    }
}

/// The address that has the bytes of an address, and for how many of `bytes` from there on.
fn directed(redirects: &BTreeMap<u64, (u64, u64)>, address: u64, bytes: u64) -> (u64, u64) {
    if redirects.is_empty() {
        return (address, bytes);
    }
    if let Some((start, &(length, to))) = at_or_before(redirects, address)
        && address - start < length
    {
        return (to + (address - start), bytes.min(length - (address - start)));
    }
    let next = redirects.range(address..).next();
    (address, next.map_or(bytes, |(&start, _)| bytes.min(start - address)))
}

#[cfg(test)]
mod tests {
    use pagewise_hal::BLOCK_BYTES;
    use proptest::prelude::*;

    use super::*;

    fn grown(arena: &mut Arena, zone: Zone) -> u64 {
        arena.grow(zone, 1 << 30, 1).expect("address space").start
    }

    #[test]
    fn cleared_memory_reads_as_zero() {
        let mut arena = Arena::default();
        let base = grown(&mut arena, Zone::Managed);
        assert_eq!(base % BLOCK_BYTES, 0);
        arena.fill(base, 8192, &[7]);
        arena.clear(base, 4096);
        assert_eq!(arena.sum_strided(base, 8192, 1), 7 * 4096);
    }

    #[test]
    fn an_atomic_add_wraps_over_the_whole_word() {
        let mut arena = Arena::default();
        let base = grown(&mut arena, Zone::Device);
        arena.fill(base, 4, &[0xff]);
        arena.fill(base + 4, 4, &[1]);
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
        arena.fill(at(1), BLOCK_BYTES, &[0]);
        assert_eq!(arena.sum_strided(at(3), BLOCK_BYTES, 1), 0);
        arena.fill(at(0), BLOCK_BYTES + 8, &[2]);
        arena.copy(at(2), at(0) + 4096, BLOCK_BYTES);
        assert_eq!(arena.sum_strided(at(2), BLOCK_BYTES, 1), 2 * (BLOCK_BYTES - 4096 + 8));
        let kept = arena.take_contents(at(2), BLOCK_BYTES);
        assert_eq!(arena.sum_strided(at(2), BLOCK_BYTES, 1), 0);
        arena.put_contents(at(0), kept);
        arena.direct(at(1));
        assert_eq!(arena.sum_strided(at(1), BLOCK_BYTES, 1), 0, "its own");
    }

    #[test]
    fn a_segment_is_whole_at_both_ends() {
        let mut arena = Arena::default();
        let segment = arena.grow(Zone::Managed, BLOCK_BYTES, 1).expect("address space");
        arena.fill(segment.start, 1, &[1]);
        arena.fill(segment.end - 1, 1, &[1]);
        assert_eq!(arena.sum_strided(segment.start, BLOCK_BYTES, BLOCK_BYTES - 1), 2);
    }

    /// One call that changes contents, anywhere in three blocks of one segment.
    #[derive(Debug, Clone)]
    enum Change {
        Fill(u64, u64, Vec<u8>),
        Write(u64, u64, u64, u8),
        Add(u64, u64, u64),
        Copy(u64, u64, u64),
        Clear(u64, u64),
    }

    const BYTES: u64 = 3 * BLOCK_BYTES;

    impl Change {
        fn carry_out(&self, arena: &mut Arena, base: u64) {
            match *self {
                Self::Fill(at, bytes, ref value) => arena.fill(base + at, bytes, value),
                Self::Write(at, bytes, stride, value) => {
                    arena.write_strided(base + at, bytes, stride, value);
                }
                Self::Add(at, bytes, stride) => arena.add_strided(base + at, bytes, stride),
                Self::Copy(to, from, bytes) => arena.copy(base + to, base + from, bytes),
                Self::Clear(at, bytes) => arena.clear(base + at, bytes),
            }
        }
    }

    /// Lengths and places: some of whole blocks or pages, some of single bytes.
    fn places() -> impl Strategy<Value = (u64, u64)> {
        let unit = prop_oneof![Just(BLOCK_BYTES), Just(PAGE_BYTES), Just(4)];
        (unit, 0..BYTES, 0..BYTES).prop_map(|(unit, at, bytes)| {
            let at = at / unit * unit;
            (at, (bytes / unit * unit).clamp(unit, BYTES - at))
        })
    }

    fn stride() -> impl Strategy<Value = u64> {
        prop_oneof![Just(4096), Just(8192), Just(4), Just(128), Just(1 << 21), 4_u64..300_000]
    }

    fn change() -> impl Strategy<Value = Change> {
        let value = prop_oneof![Just(1_usize), Just(2), Just(4)];
        let value = value.prop_flat_map(|width| prop::collection::vec(0_u8..3, width));
        prop_oneof![
            (places(), value).prop_map(|((at, bytes), value)| Change::Fill(at, bytes, value)),
            (places(), stride(), 0_u8..3, 0_u64..4096).prop_map(
                |((at, bytes), stride, value, off)| {
                    Change::Write(
                        at + off.min(bytes - 1),
                        bytes - off.min(bytes - 1),
                        stride,
                        value,
                    )
                }
            ),
            (places(), stride())
                .prop_map(|((at, bytes), stride)| { Change::Add(at, bytes, stride / 4 * 4) }),
            (places(), 0..BYTES, any::<bool>()).prop_map(|((to, bytes), from, even)| {
                let from = from.min(BYTES - bytes);
                Change::Copy(to, if even { from / PAGE_BYTES * PAGE_BYTES } else { from }, bytes)
            }),
            places().prop_map(|(at, bytes)| {
                let at = at / PAGE_BYTES * PAGE_BYTES;
                Change::Clear(at, bytes.next_multiple_of(PAGE_BYTES).min(BYTES - at))
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 64,
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        #[cfg_attr(miri, ignore = "reads megabytes")]
        fn described_contents_are_those_of_memory(
            changes in prop::collection::vec(change(), 1..12),
            (at, bytes) in places(),
            stride in stride(),
        ) {
            let arenas = [MemoryContents::Real, MemoryContents::Described];
            let [(mut real, at_real), (mut described, at_described)] = arenas.map(|contents| {
                let mut arena = Arena::new(contents, None);
                let base = arena.grow(Zone::Managed, BYTES, BYTES).expect("address space").start;
                for change in &changes {
                    change.carry_out(&mut arena, base);
                }
                (arena, base)
            });
            prop_assert_eq!(
                real.sum_strided(at_real + at, bytes, stride),
                described.sum_strided(at_described + at, bytes, stride)
            );
            let pages = |arena: &Arena, base: u64| -> Vec<Page> {
                (0..BYTES / PAGE_BYTES).map(|page| arena.page(base / PAGE_BYTES + page)).collect()
            };
            let bytes_of = |pages: &[Page]| -> Vec<_> { pages.iter().map(Page::bytes).collect() };
            let expected = bytes_of(&pages(&real, at_real));
            prop_assert!(bytes_of(&pages(&described, at_described)) == expected);
            described.expose();
            prop_assert!(bytes_of(&pages(&described, at_described)) == expected, "in memory");
            real.clear(at_real, BYTES);
        }
    }

    #[test]
    fn a_described_fill_of_a_tebibyte_takes_no_memory_and_is_cleared() {
        let mut arena = Arena::new(MemoryContents::Described, None);
        let base = arena.grow(Zone::Managed, 1 << 40, 1 << 40).expect("address space").start;
        arena.fill(base, 1 << 40, &[1, 2]);
        arena.write_strided(base, 1 << 40, 1 << 39, 5);
        arena.copy(base + (1 << 39), base, 1 << 39);
        assert_eq!(arena.sum_strided(base, 1 << 40, 1), 3 * (1 << 39) + 2 * 4);
        arena.clear(base + PAGE_BYTES, (1 << 40) - PAGE_BYTES);
        assert_eq!(arena.sum_strided(base, 1 << 40, 1), 3 * PAGE_BYTES / 2 + 4);
    }

    #[test]
    fn copies_between_described_and_registered_memory_go_both_ways() {
        let mut arena = Arena::new(MemoryContents::Described, None);
        let base = arena.grow(Zone::Pinned, BLOCK_BYTES, 1).expect("address space").start;
        let mut host = vec![0_u8; 3 * LENGTH];
        host[LENGTH + 7] = 9;
        let place = host.as_mut_ptr().expose_provenance() as u64;
        arena.copy(base + 1, place, host.len() as u64);
        assert_eq!(arena.byte(base + 1 + PAGE_BYTES + 7), 9);
        arena.fill(base, 2 * PAGE_BYTES, &[3]);
        arena.copy(place, base, 2 * PAGE_BYTES + 2);
        assert_eq!(host.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 2 * 3 * PAGE_BYTES);
    }
}
