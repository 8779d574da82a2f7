//! The allocations of a machine, found by address.
//!
//! The module owns the addresses of every kind of memory and the table of live allocations. It
//! knows nothing of pages, of policy, or of the accounting of pools.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use pagewise_hal::{BLOCK_BYTES, DeviceId, DevicePtr, MemoryHandle, PAGE_BYTES, PoolHandle, Span};

use crate::arena::{Arena, Zone};
use crate::floor::at_or_before;
use crate::journal::Journal;
use crate::lendable::Lendable;
use crate::regions::Regions;
use crate::slabs::Slabs;
use crate::slots::Slots;

/// The kind of memory of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// `cuMemAllocManaged`
    Managed,
    /// `cuMemAlloc`
    Device(DeviceId),
    /// `cuMemHostAlloc`
    Pinned,
    /// `cuIpcOpenMemHandle`: memory that another process allocated, for the device that opened it.
    Opened(DeviceId),
    /// Memory of a pool.
    Pool(PoolHandle),
    /// `cuMemMap`: physical memory at reserved addresses.
    Mapped(MemoryHandle),
    /// `cuMemHostRegister`: memory of other code, outside of the arena.
    Registered,
}

/// A live allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) start: u64,
    /// As requested: neither rounded to 512 bytes nor to pages.
    pub(crate) bytes: u64,
    pub(crate) kind: MemoryKind,
    /// The number of the allocation. It is never used twice.
    pub(crate) id: u64,
}

impl Allocation {
    pub(crate) fn span(&self) -> Span {
        Span::new(DevicePtr(self.start), self.bytes)
    }

    /// Whether `span` starts in this allocation and does not pass its end.
    pub(crate) fn contains(&self, span: Span) -> bool {
        span.ptr.0 >= self.start && span.end().is_some_and(|end| end <= self.start + self.bytes)
    }
}

/// An allocation that appeared or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Made(Allocation),
    Gone(Allocation),
}

/// A range of managed addresses, as the paging engine knows it: an allocation, or a slab of small
/// ones. A slab is created with its first allocation and removed with its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ManagedRange {
    pub(crate) first_page: u64,
    pub(crate) pages: u64,
}

impl ManagedRange {
    /// The bytes of device memory that the range takes if all of it is there: whole blocks.
    pub(crate) fn device_bytes(self) -> u64 {
        (self.pages * PAGE_BYTES).next_multiple_of(BLOCK_BYTES)
    }
}

/// Live allocations by their first address.
pub(crate) type Live = BTreeMap<u64, Allocation>;

/// The live allocation that holds an address.
#[inline]
pub(crate) fn containing(live: &Live, ptr: DevicePtr) -> Option<&Allocation> {
    let (_, allocation) = at_or_before(live, ptr.0)?;
    (ptr.0 < allocation.start + allocation.bytes).then_some(allocation)
}

/// The addresses and the live allocations of a machine.
#[derive(Debug, Default)]
pub(crate) struct Space {
    live: Lendable<Live>,
    managed: Regions,
    slabs: Slabs,
    device: Slots,
    pinned: Slots,
    last_id: u64,
    recent: Recent,
    journal: Journal<Step>,
}

/// The addresses of the managed allocation found last: most calls in a row ask for the same. It is
/// no state: searches find the same with it and without.
#[derive(Default)]
struct Recent(Cell<(u64, u64)>);

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recent")
    }
}

/// The address space that is reserved for managed memory at once, unless an allocation needs more.
/// Few programs need a second segment, and a process has room for a hundred machines.
const MANAGED_SEGMENT_BYTES: u64 = 512 << 30;

/// The address space that is reserved at once for device memory, and for pinned memory: more than
/// most devices have.
const PLAIN_SEGMENT_BYTES: u64 = 256 << 30;

impl Space {
    /// Places a managed allocation. Returns it with its range, if one was created for it; `None` if
    /// there is no address space left.
    pub(crate) fn place_managed(
        &mut self,
        arena: &mut Arena,
        bytes: u64,
    ) -> Option<(Allocation, Option<ManagedRange>)> {
        if !Slabs::packs(bytes) {
            let start = self.take_managed(arena, bytes)?;
            let range =
                ManagedRange { first_page: start / PAGE_BYTES, pages: bytes.div_ceil(PAGE_BYTES) };
            return Some((self.enter(start, bytes, MemoryKind::Managed), Some(range)));
        }
        if let Some(start) = self.slabs.take(bytes) {
            return Some((self.enter(start, bytes, MemoryKind::Managed), None));
        }
        let slab = self.take_managed(arena, BLOCK_BYTES)?;
        self.slabs.add(slab);
        let start = self.slabs.take(bytes)?;
        Some((self.enter(start, bytes, MemoryKind::Managed), Some(slab_range(slab))))
    }

    /// Places device or pinned memory; `None` if there is no address space left.
    pub(crate) fn place_plain(
        &mut self,
        arena: &mut Arena,
        bytes: u64,
        kind: MemoryKind,
    ) -> Option<Allocation> {
        let (zone, slots) = match kind {
            MemoryKind::Device(_) => (Zone::Device, &mut self.device),
            _ => (Zone::Pinned, &mut self.pinned),
        };
        let start = take_plain(slots, arena, zone, bytes)?;
        if zone == Zone::Device {
            arena.prefer_huge_pages(start, bytes);
        }
        Some(self.enter(start, bytes, kind))
    }

    fn take_managed(&mut self, arena: &mut Arena, bytes: u64) -> Option<u64> {
        self.managed.take(bytes).or_else(|| {
            let needed = Regions::segment_bytes(bytes)?;
            self.managed.add(arena.grow(Zone::Managed, MANAGED_SEGMENT_BYTES, needed)?);
            self.managed.take(bytes)
        })
    }

    /// Notes an allocation at an address that a pool chose.
    pub(crate) fn enter(&mut self, start: u64, bytes: u64, kind: MemoryKind) -> Allocation {
        self.last_id += 1;
        let allocation = Allocation { start, bytes, kind, id: self.last_id };
        let before = self.live.insert(start, allocation);
        debug_assert!(before.is_none(), "two allocations at {start:#x}");
        self.journal.note(Step::Made(allocation));
        allocation
    }

    /// The allocations that appear and go, for a caller that follows them.
    pub(crate) fn journal(&mut self) -> &mut Journal<Step> {
        &mut self.journal
    }

    /// Live managed allocations by address, without those of pools.
    pub(crate) fn managed(&self) -> impl Iterator<Item = &Allocation> {
        self.live.values().filter(|allocation| allocation.kind == MemoryKind::Managed)
    }

    /// Live allocations of every kind, by address.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Allocation> {
        self.live.values()
    }

    /// Live allocations that have pages among these addresses, registered ones counted by their
    /// pages.
    pub(crate) fn overlapping(&self, bytes: Range<u64>) -> impl Iterator<Item = &Allocation> {
        let before = self.live.range(..bytes.end).rev();
        before.map(|(_, allocation)| allocation).take_while(move |allocation| {
            (allocation.start + allocation.bytes).next_multiple_of(PAGE_BYTES) > bytes.start
        })
    }

    /// The live allocation that holds this address.
    #[inline]
    pub(crate) fn containing(&self, ptr: DevicePtr) -> Option<&Allocation> {
        containing(&self.live, ptr)
    }

    /// The table of live allocations.
    pub(crate) const fn live(&self) -> &Lendable<Live> {
        &self.live
    }

    /// The live allocation that a range starts in, if all of the range is in it. Mappings side by
    /// side hold a range together, as a driver sees them.
    pub(crate) fn holding(&self, span: Span) -> Option<&Allocation> {
        let (first, end) = (self.containing(span.ptr)?, span.end()?);
        let mut last = first;
        while last.start + last.bytes < end {
            let is_mapped = |one: &&Allocation| matches!(one.kind, MemoryKind::Mapped(_));
            let next = self.live.get(&(last.start + last.bytes)).filter(is_mapped);
            last = next.filter(|_| is_mapped(&last))?;
        }
        if first.kind == MemoryKind::Managed {
            self.recent.0.set((first.start, first.start + first.bytes));
        }
        Some(first)
    }

    /// Whether all of a range is in one live allocation of managed memory that is not a pool's.
    #[inline]
    pub(crate) fn is_managed(&self, span: Span) -> bool {
        let (start, end) = self.recent.0.get();
        start <= span.ptr.0 && span.ptr.0 < end && span.bytes <= end - span.ptr.0
            || self.holding(span).is_some_and(|found| found.kind == MemoryKind::Managed)
    }

    /// The live allocation that starts at this address.
    pub(crate) fn starting(&self, ptr: DevicePtr) -> Option<&Allocation> {
        self.live.get(&ptr.0)
    }

    /// Takes whole slots for memory of another process; `None` if there is no address space left.
    pub(crate) fn take_foreign(&mut self, arena: &mut Arena, bytes: u64) -> Option<Range<u64>> {
        let start = take_plain(&mut self.device, arena, Zone::Device, bytes)?;
        Some(start..start + bytes.next_multiple_of(BLOCK_BYTES))
    }

    /// Gives them back.
    pub(crate) fn give_foreign(&mut self, addresses: &Range<u64>) {
        self.device.give(addresses.start, addresses.end - addresses.start);
    }

    /// Forgets an allocation and frees its addresses, except those of pools, of reservations and of
    /// other processes' memory. Returns the managed range that was removed with it, if one was.
    pub(crate) fn remove(&mut self, allocation: &Allocation) -> Option<ManagedRange> {
        let Allocation { start, bytes, kind, .. } = *allocation;
        let removed = self.live.remove(&start);
        self.recent = Recent::default();
        debug_assert!(removed.is_some(), "{start:#x} is not live");
        self.journal.note(Step::Gone(*allocation));
        match kind {
            MemoryKind::Pool(_)
            | MemoryKind::Opened(_)
            | MemoryKind::Registered
            | MemoryKind::Mapped(_) => None,
            MemoryKind::Device(_) => {
                self.device.give(start, bytes);
                None
            }
            MemoryKind::Pinned => {
                self.pinned.give(start, bytes);
                None
            }
            MemoryKind::Managed if Slabs::packs(bytes) => {
                let slab = self.slabs.give(start, bytes)?;
                self.managed.give(slab, BLOCK_BYTES);
                Some(slab_range(slab))
            }
            MemoryKind::Managed => {
                self.managed.give(start, bytes);
                let pages = bytes.div_ceil(PAGE_BYTES);
                Some(ManagedRange { first_page: start / PAGE_BYTES, pages })
            }
        }
    }
}

/// Takes slots of memory that does not migrate, with another segment if need be.
fn take_plain(slots: &mut Slots, arena: &mut Arena, zone: Zone, bytes: u64) -> Option<u64> {
    slots.take(bytes).or_else(|| {
        slots.add(arena.grow(zone, PLAIN_SEGMENT_BYTES, bytes)?);
        slots.take(bytes)
    })
}

const fn slab_range(slab: u64) -> ManagedRange {
    ManagedRange { first_page: slab / PAGE_BYTES, pages: BLOCK_BYTES / PAGE_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_appears_with_its_first_allocation_and_goes_with_its_last() {
        let (mut arena, mut space) = (Arena::default(), Space::default());
        let (first, range) = space.place_managed(&mut arena, 1).unwrap();
        assert_eq!(range.unwrap().pages, 512);
        let (second, none) = space.place_managed(&mut arena, 1).unwrap();
        assert_eq!((second.start - first.start, none), (512, None));
        assert_eq!(space.remove(&first), None);
        assert_eq!(space.remove(&second), range);
    }

    #[test]
    fn an_allocation_ends_after_the_bytes_that_were_requested() {
        let (mut arena, mut space) = (Arena::default(), Space::default());
        let (big, _) = space.place_managed(&mut arena, BLOCK_BYTES + 1).unwrap();
        let span = |offset, bytes| Span::new(DevicePtr(big.start + offset), bytes);
        assert!(big.contains(span(BLOCK_BYTES, 1)));
        assert!(!big.contains(span(BLOCK_BYTES, 2)));
        assert!(!big.contains(span(u64::MAX - big.start, 2)));
        assert!(space.containing(DevicePtr(big.start + BLOCK_BYTES)).is_some());
        assert!(space.containing(DevicePtr(big.start + BLOCK_BYTES + 1)).is_none());
    }
}
