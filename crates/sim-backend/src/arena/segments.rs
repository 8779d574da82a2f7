//! Address space of a machine, reserved piece by piece, and the pointers by which it is accessed.
//!
//! Segments are private mappings. A process that forks gets a copy of each, so parent and child
//! have a machine of their own. Behind a gate (`host_faults`) they have two views, the program's and the
//! engine's, of which a child has neither. Memory that was exported to other processes, or imported, is in files
//! of its own (`shared_memory`), which take the place of parts of a segment; a child shares it as
//! other processes do. Nothing is unmapped before the machine goes, and buffers keep it.
//!
//! Miri backs all of a mapping at once. For it segments are as short as they can be.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use pagewise_hal::BLOCK_BYTES;

use super::spare::SPARE;
use crate::floor::at_or_before;
use crate::host_faults::double_map::{Accessed, DoubleMap};
use crate::host_faults::gate::Gate;

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

/// Address space of one zone, aligned to [`Segments::ALIGNMENT`]. No two segments are adjacent.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) zone: Zone,
    pub(super) map: Map,
    pub(super) bytes: u64,
}

/// The memory of a segment.
#[derive(Debug)]
pub(super) enum Map {
    /// One mapping for the program and the engine.
    Private(MmapRaw),
    /// A view for the program, which is accessible as its pages are, and one for the engine.
    Double(DoubleMap),
}

/// All segments of a machine.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// By first address. A segment stays until the machine goes.
    by_address: BTreeMap<u64, Segment>,
    /// Addresses with the memory of shared files, by first address. They do not overlap.
    pub(super) shared: BTreeMap<u64, Range<u64>>,
    /// Present with genuine faults of the host: what the program's addresses are kept behind.
    gate: Option<Arc<Gate>>,
    /// The memory is all zeros, as neither calls nor the program write it yet.
    is_unused: bool,
    /// The first addresses of managed memory that were reserved.
    first_managed: Option<u64>,
    /// Huge pages may back device memory below.
    huge_until: u64,
}

impl Segments {
    /// Most address space of a zone. A process has 128 TiB.
    pub(super) const ZONE_BYTES_MAX: u64 = 16 << 40;
    /// The alignment of segments: 16 va_blocks, as a device reads 16 entries of a page table
    /// together (TIMING-32). So only the distances between addresses matter.
    const ALIGNMENT: u64 = if cfg!(miri) { BLOCK_BYTES } else { 16 * BLOCK_BYTES };
    /// The bytes of a segment if the process may not reserve as many as wanted.
    const BYTES_LIMITED: u64 = 1 << 30;
    /// The bytes of managed memory, from its start, that huge pages may back. The limit bounds the
    /// memory that a sparse program wastes.
    const HUGE_PAGES_BYTES: u64 = 512 << 20;
    /// Likewise of device memory, which kernels mostly fill.
    const HUGE_DEVICE_BYTES: u64 = 2 << 30;

    pub(super) fn behind(gate: Option<Arc<Gate>>) -> Self {
        let mut segments = Self::default();
        segments.gate = gate;
        segments
    }

    /// Segments with memory that nothing uses before [`begin_use`](Self::begin_use).
    pub(super) fn unused() -> Self {
        let mut segments = Self::default();
        segments.is_unused = true;
        segments
    }

    /// From now on calls or the program may write the memory.
    pub(super) fn begin_use(&mut self) {
        if std::mem::take(&mut self.is_unused) {
            self.prefer_huge_managed_pages();
        }
    }

    /// Whether the memory is all zeros, as nothing wrote it yet.
    pub(super) fn is_unused(&self) -> bool {
        self.is_unused
    }

    /// Reserves one more segment of a zone and returns its addresses: as many bytes as wanted, or
    /// fewer if the process may not have as many, but never less than needed. `None` if there is no
    /// address space left, of the zone or of the process.
    pub(super) fn grow(&mut self, zone: Zone, wanted: u64, needed: u64) -> Option<Range<u64>> {
        let of_zone = self.by_address.values().filter(|segment| segment.zone == zone);
        let left = Self::ZONE_BYTES_MAX - of_zone.map(|segment| segment.bytes).sum::<u64>();
        let needed = needed.checked_next_multiple_of(BLOCK_BYTES).filter(|&bytes| bytes <= left)?;
        let sizes = if cfg!(miri) { [needed; 3] } else { [wanted, Self::BYTES_LIMITED, needed] };
        let mut sizes = sizes.into_iter().map(|bytes| bytes.clamp(needed, left));
        sizes.find_map(|bytes| self.reserve(zone, bytes).ok())
    }

    fn reserve(&mut self, zone: Zone, bytes: u64) -> io::Result<Range<u64>> {
        if let Some(gate) = &self.gate {
            // The host never accesses a device's memory.
            let accessed = if zone == Zone::Device { Accessed::ByEngine } else { Accessed::ByBoth };
            let map = DoubleMap::new(gate, bytes, Self::ALIGNMENT, accessed)?;
            let view = map.view();
            self.by_address.insert(view.start, Segment { zone, map: Map::Double(map), bytes });
            return Ok(view);
        }
        // More on both sides keeps what the host places next to it apart.
        let with_guards = usize::try_from(bytes + 2 * Self::ALIGNMENT).map_err(io::Error::other)?;
        let map = self.mapping(with_guards)?;
        let base = (map.as_ptr() as u64 + 1).next_multiple_of(Self::ALIGNMENT);
        let segment = Segment { zone, map: Map::Private(map), bytes };
        self.by_address.insert(base, segment);
        if zone == Zone::Managed && self.first_managed.is_none() {
            self.first_managed = Some(base);
            self.prefer_huge_managed_pages();
        }
        Ok(base..base + bytes)
    }

    /// Asks for huge pages for the first addresses of managed memory, once it is used: a dense touch
    /// of 2 MiB then costs the host one page fault instead of 512. Other addresses get none, because
    /// a sparse touch would commit 2 MiB.
    fn prefer_huge_managed_pages(&self) {
        if !self.is_unused
            && let Some(base) = self.first_managed
        {
            let bytes = self.segment(base, 1).bytes.min(Self::HUGE_PAGES_BYTES);
            self.advise_huge_pages(&(base..base + bytes));
        }
    }

    /// Asks for huge pages for the whole blocks of an allocation of device memory, near the start of its
    /// segment. Smaller allocations get none.
    pub(super) fn prefer_huge_pages(&mut self, address: u64, bytes: u64) {
        let Some((base, _)) = self.holding(address) else { return };
        let start = address.next_multiple_of(BLOCK_BYTES).max(self.huge_until);
        let end = (address + bytes).min(base + Self::HUGE_DEVICE_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        if start < end && !self.is_unused {
            self.advise_huge_pages(&(start..end));
            self.huge_until = end;
        }
    }

    /// Asks for huge pages for addresses of a segment. Without them everything works, only slower.
    fn advise_huge_pages(&self, addresses: &Range<u64>) {
        if cfg!(miri) {
            return;
        }
        match &self.segment(addresses.start, 1).map {
            Map::Double(map) => map.prefer_huge_pages(addresses),
            #[cfg(target_os = "linux")]
            Map::Private(map) => {
                let offset = (addresses.start - map.as_ptr() as u64) as usize;
                let length = (addresses.end - addresses.start) as usize;
                let _ = map.advise_range(memmap2::Advice::HugePage, offset, length);
            }
            #[cfg(not(target_os = "linux"))]
            Map::Private(_) => {}
        }
    }

    fn mapping(&self, bytes: usize) -> io::Result<MmapRaw> {
        if self.is_unused
            && let Some(map) = SPARE.take(bytes)
        {
            return Ok(map);
        }
        let map = || Self::options().len(bytes).map_anon();
        let map = map().or_else(|_| {
            SPARE.release();
            map()
        });
        Ok(map?.into())
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
    pub(super) fn reserves(&self, address: u64, bytes: u64) -> bool {
        let past = address.saturating_add(bytes.max(1));
        let before = self.by_address.range(..past).next_back();
        before.is_some_and(|(base, segment)| address < base + segment.bytes)
    }

    /// The segment that an address is in, and its first address.
    pub(super) fn holding(&self, address: u64) -> Option<(u64, &Segment)> {
        let (base, segment) = at_or_before(&self.by_address, address)?;
        (address - base < segment.bytes).then_some((base, segment))
    }

    /// The segment that a range is in.
    ///
    /// # Panics
    /// If the range is not inside one: the address space handed out a wrong address.
    pub(super) fn segment(&self, address: u64, bytes: u64) -> &Segment {
        let found = self.holding(address);
        let found = found.filter(|(base, segment)| bytes <= segment.bytes - (address - base));
        let Some((_, segment)) = found else {
            panic!("{address:#x}+{bytes} is outside of every segment");
        };
        segment
    }

    /// The pointer by which a range is read and written. Callers have found the range in a live
    /// allocation. Memory that no segment holds is host memory that was registered: the caller of
    /// `host_register`, which is `unsafe`, promised that it is live until it is unregistered.
    pub(super) fn pointer(&self, address: u64, bytes: u64) -> *mut u8 {
        if self.holding(address).is_none() {
            return std::ptr::with_exposed_provenance_mut(address as usize);
        }
        match &self.segment(address, bytes).map {
            Map::Private(map) => {
                map.as_mut_ptr().wrapping_add((address - map.as_ptr() as u64) as usize)
            }
            Map::Double(map) => {
                std::ptr::with_exposed_provenance_mut(map.engine_address(address) as usize)
            }
        }
    }

    /// The address at which the engine accesses a byte that the program names.
    pub(super) fn engine_address(&self, address: u64) -> u64 {
        match self.holding(address) {
            Some((_, Segment { map: Map::Double(map), .. })) => map.engine_address(address),
            _ => address,
        }
    }

    /// Has memory behind whole pages.
    pub(super) fn populate(&self, pages: &Range<u64>) -> io::Result<()> {
        match self.holding(pages.start) {
            Some((_, Segment { map: Map::Double(map), .. })) => map.populate(pages),
            _ => Ok(()),
        }
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        if !self.is_unused || cfg!(miri) {
            return;
        }
        for segment in std::mem::take(&mut self.by_address).into_values() {
            if let Map::Private(map) = segment.map {
                SPARE.keep(map);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_lie_apart() {
        let mut segments = Segments::default();
        let zones = [Zone::Managed, Zone::ManagedPools, Zone::Pools, Zone::Device, Zone::Pinned];
        for zone in [zones, zones].concat() {
            let segment = segments.grow(zone, BLOCK_BYTES, 1).expect("address space");
            assert_eq!(segment.start % BLOCK_BYTES, 0);
            assert_eq!(segment.end - segment.start, BLOCK_BYTES);
        }
        let starts: Vec<u64> = segments.by_address.keys().copied().collect();
        assert_eq!(starts.len(), 10);
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] > BLOCK_BYTES), "{starts:x?}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "reserves 16 TiB")]
    fn a_zone_ends_at_16_tib_and_leaves_others_alone() {
        let mut segments = Segments::default();
        assert_eq!(segments.grow(Zone::Managed, BLOCK_BYTES, u64::MAX), None);
        assert_eq!(segments.grow(Zone::Managed, BLOCK_BYTES, Segments::ZONE_BYTES_MAX + 1), None);
        let most = Segments::ZONE_BYTES_MAX - BLOCK_BYTES;
        assert!(segments.grow(Zone::Managed, BLOCK_BYTES, most).is_some());
        let last = segments.grow(Zone::Managed, 1 << 40, 1).expect("the zone's last block");
        assert_eq!(last.end - last.start, BLOCK_BYTES);
        assert_eq!(segments.grow(Zone::Managed, BLOCK_BYTES, 1), None);
        assert!(segments.grow(Zone::Device, BLOCK_BYTES, 1).is_some());
    }
}
