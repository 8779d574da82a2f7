//! Memory of graphs: addresses of allocation nodes, and the physical memory behind them.
//!
//! A graph has its own ranges of addresses, so an allocation has the same address at every launch.
//! A later node gets the address of an allocation that was freed before it. Physical memory comes
//! with the first launch and stays until it is trimmed. Both go by blocks of 32 MiB, as an H200
//! with driver 580 was seen to do.

use std::collections::{BTreeMap, BTreeSet};

use pagewise_hal::{DeviceId, DevicePtr, Location, MemoryHandle, PoolHandle, Span};

use crate::outcome::Outcome;
use pagewise_hal::Code;

/// Addresses and physical memory go by this many bytes.
pub(crate) const BLOCK_BYTES: u64 = 32 << 20;
/// Allocations begin at multiples of this many bytes.
const ALIGN_BYTES: u64 = 512;

/// A place for allocations, of which one exists at a time.
#[derive(Debug)]
struct Slot {
    address: u64,
    bytes: u64,
    /// The size of the latest allocation.
    asked: u64,
    /// The node that frees the latest allocation.
    freed_by: Option<usize>,
}

/// A range of addresses of one graph.
#[derive(Debug)]
struct Region {
    bytes: u64,
    device: DeviceId,
    peers: Vec<DeviceId>,
    graph: usize,
    /// Physical memory, while it is mapped.
    memory: Option<MemoryHandle>,
    slots: Vec<Slot>,
}

impl Region {
    /// Bytes that slots take.
    fn taken(&self, start: u64) -> u64 {
        let end = self.slots.last().map_or(start, |slot| slot.address.saturating_add(slot.bytes));
        end.saturating_sub(start)
    }
}

/// Physical memory that a launch needs.
#[derive(Debug, Clone)]
pub(crate) struct Unmapped {
    pub(crate) span: Span,
    pub(crate) device: DeviceId,
    pub(crate) peers: Vec<DeviceId>,
}

/// All memory of graphs.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// By the first address.
    regions: BTreeMap<u64, Region>,
    /// Allocations that exist: address and size.
    live: BTreeMap<u64, u64>,
    /// The most bytes that were mapped on each device, in use and in all.
    peaks: BTreeMap<i32, [u64; 2]>,
    /// The places of pools that the program made.
    pools: BTreeMap<u64, Location>,
}

impl Memory {
    /// A pool comes to be.
    pub(crate) fn note_pool(&mut self, pool: PoolHandle, place: Location) {
        self.pools.insert(pool.as_raw(), place);
    }

    /// A pool is gone.
    pub(crate) fn forget_pool(&mut self, pool: PoolHandle) {
        self.pools.remove(&pool.as_raw());
    }

    /// The place of a pool that the program made.
    pub(crate) fn place_of_pool(&self, pool: PoolHandle) -> Option<Location> {
        self.pools.get(&pool.as_raw()).copied()
    }

    /// A place in the ranges that a graph has, for a node after `before`.
    pub(crate) fn place(
        &mut self,
        (graph, device, peers): (usize, DeviceId, &[DeviceId]),
        bytes: u64,
        before: &BTreeSet<usize>,
    ) -> Option<u64> {
        let padded = bytes.checked_next_multiple_of(ALIGN_BYTES)?;
        let fits = |region: &Region| {
            region.graph == graph && region.device == device && region.peers == peers
        };
        for (&start, region) in self.regions.iter_mut().filter(|(_, region)| fits(region)) {
            let is_free = |slot: &Slot| slot.freed_by.is_some_and(|node| before.contains(&node));
            let mut slots = region.slots.iter_mut();
            if let Some(slot) = slots.find(|slot| slot.bytes >= padded && is_free(slot)) {
                (slot.asked, slot.freed_by) = (bytes, None);
                return Some(slot.address);
            }
            let taken = region.taken(start);
            if region.bytes.saturating_sub(taken) >= padded {
                let address = start.saturating_add(taken);
                region.slots.push(Slot { address, bytes: padded, asked: bytes, freed_by: None });
                return Some(address);
            }
        }
        None
    }

    /// Notes a range of addresses.
    pub(crate) fn add_region(
        &mut self,
        span: Span,
        (graph, device, peers): (usize, DeviceId, &[DeviceId]),
    ) {
        let peers = peers.to_vec();
        let (bytes, memory, slots) = (span.bytes, None, Vec::new());
        self.regions.insert(span.ptr.0, Region { bytes, device, peers, graph, memory, slots });
    }

    fn slot(&self, address: u64) -> Option<(&Region, &Slot)> {
        let (_, region) = self.regions.range(..=address).next_back()?;
        let slot = region.slots.iter().find(|slot| slot.address == address)?;
        Some((region, slot))
    }

    /// Whether a range lies in an allocation of a graph, which exists or not.
    pub(crate) fn covers(&self, address: u64, bytes: u64) -> bool {
        let region = self.regions.range(..=address).next_back();
        region.is_some_and(|(_, region)| {
            region.slots.iter().any(|slot| {
                let offset = address.checked_sub(slot.address);
                offset
                    .and_then(|offset| offset.checked_add(bytes))
                    .is_some_and(|end| end <= slot.asked)
            })
        })
    }

    /// The allocation that an address lies in, if it exists or has memory: address and size.
    pub(crate) fn around(&self, address: u64) -> Option<(u64, u64)> {
        let (_, region) = self.regions.range(..=address).next_back()?;
        region.memory?;
        let mut slots = region.slots.iter();
        let holds = |slot: &&Slot| {
            address.checked_sub(slot.address).is_some_and(|offset| offset < slot.asked)
        };
        slots.find(holds).map(|slot| (slot.address, slot.asked))
    }

    /// Refuses an address that no node can free: of no allocation of a graph, or of one that a node
    /// of its graph frees.
    pub(crate) fn check_free_node(&self, address: u64) -> Outcome {
        match self.slot(address) {
            Some((_, slot)) if slot.freed_by.is_none() => Ok(()),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Notes that a node frees an allocation.
    pub(crate) fn set_freed_by(&mut self, graph: usize, address: u64, node: usize) {
        let region = self.regions.range_mut(..=address).next_back();
        if let Some((_, region)) = region.filter(|(_, region)| region.graph == graph)
            && let Some(slot) = region.slots.iter_mut().find(|slot| slot.address == address)
        {
            slot.freed_by = Some(node);
        }
    }

    /// Whether an address belongs to memory of graphs.
    pub(crate) fn owns(&self, address: u64) -> bool {
        self.slot(address).is_some()
    }

    /// Whether an allocation exists.
    pub(crate) fn is_live(&self, address: u64) -> bool {
        self.live.contains_key(&address)
    }

    /// An allocation comes to be.
    pub(crate) fn begin(&mut self, address: u64, bytes: u64) -> Outcome {
        if self.live.insert(address, bytes).is_some() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    /// An allocation ends.
    pub(crate) fn end(&mut self, address: u64) -> Outcome {
        self.live.remove(&address).map(drop).ok_or(Code::INVALID_VALUE)
    }

    /// Ranges of graphs that have no physical memory, of these addresses.
    pub(crate) fn unmapped(&self, addresses: &[u64]) -> Vec<Unmapped> {
        let starts: BTreeSet<u64> = addresses
            .iter()
            .filter_map(|&address| self.regions.range(..=address).next_back())
            .filter(|(_, region)| region.memory.is_none())
            .map(|(&start, _)| start)
            .collect();
        let region = |start: &u64| {
            let region = self.regions.get(start)?;
            let span = Span::new(DevicePtr(*start), region.bytes);
            Some(Unmapped { span, device: region.device, peers: region.peers.clone() })
        };
        starts.iter().filter_map(region).collect()
    }

    /// A range has physical memory.
    pub(crate) fn set_mapped(&mut self, span: Span, memory: MemoryHandle) {
        let Some(region) = self.regions.get_mut(&span.ptr.0) else { return };
        let device = region.device;
        region.memory = Some(memory);
        let mapped = self.mapped_bytes(device);
        let peaks = self.peaks.entry(device.0).or_default();
        *peaks = peaks.map(|peak| peak.max(mapped));
    }

    /// Ranges of a device without an allocation that exists: those that a trim takes the memory of,
    /// and whether their addresses go as well, because no graph uses them.
    pub(crate) fn idle(
        &self,
        device: DeviceId,
        is_used: impl Fn(usize) -> bool,
    ) -> Vec<(Span, bool)> {
        let is_idle = |start: u64, region: &Region| {
            let end = start.saturating_add(region.bytes);
            region.device == device && self.live.range(start..end).next().is_none()
        };
        let regions = self.regions.iter().filter(|(start, region)| is_idle(**start, region));
        regions
            .map(|(&start, region)| {
                (Span::new(DevicePtr(start), region.bytes), !is_used(region.graph))
            })
            .collect()
    }

    /// Takes the physical memory of a range, and the range too if `is_gone`.
    pub(crate) fn unmap(&mut self, span: Span, is_gone: bool) -> Option<MemoryHandle> {
        if is_gone {
            return self.regions.remove(&span.ptr.0)?.memory;
        }
        self.regions.get_mut(&span.ptr.0)?.memory.take()
    }

    /// Bytes of physical memory that graphs have on a device.
    pub(crate) fn mapped_bytes(&self, device: DeviceId) -> u64 {
        let regions = self.regions.values();
        let mapped = regions.filter(|region| region.device == device && region.memory.is_some());
        mapped.fold(0, |sum, region| sum.saturating_add(region.bytes))
    }

    /// The most bytes there were: in use, or in all.
    pub(crate) fn peak_bytes(&self, device: DeviceId, of_all: bool) -> u64 {
        self.peaks.get(&device.0).map_or(0, |peaks| peaks[usize::from(of_all)])
    }

    /// Begins a new peak.
    pub(crate) fn reset_peak(&mut self, device: DeviceId, of_all: bool) {
        let now = self.mapped_bytes(device);
        self.peaks.entry(device.0).or_default()[usize::from(of_all)] = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: (usize, DeviceId, &[DeviceId]) = (7, DeviceId(0), &[]);

    #[test]
    fn allocations_lie_side_by_side_and_take_the_place_of_what_was_freed_before() {
        let mut memory = Memory::default();
        assert_eq!(memory.place(OWNER, 100, &BTreeSet::new()), None);
        memory.add_region(Span::new(DevicePtr(BLOCK_BYTES), BLOCK_BYTES), OWNER);
        let first = memory.place(OWNER, 100, &BTreeSet::new());
        let second = memory.place(OWNER, 100, &BTreeSet::new());
        assert_eq!((first, second), (Some(BLOCK_BYTES), Some(BLOCK_BYTES + 512)));
        memory.set_freed_by(7, BLOCK_BYTES, 3);
        assert_eq!(memory.place(OWNER, 100, &BTreeSet::from([4])), Some(BLOCK_BYTES + 1024));
        assert_eq!(memory.place(OWNER, 100, &BTreeSet::from([3])), Some(BLOCK_BYTES));
        assert_eq!(memory.place(OWNER, BLOCK_BYTES, &BTreeSet::new()), None, "no room");
    }
}
