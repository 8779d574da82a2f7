//! Address space of pools: a region for each pool that holds memory.
//!
//! A region is reserved when a pool needs one and none is free. It goes from pool to pool: a pool
//! that is destroyed gives its region back, and one without memory may lose it.

use std::ops::Range;

use crate::arena::{Arena, Zone};
use crate::pool_chunks::POOL_CHUNK_BYTES;

/// Most regions of a kind of pools, and so most of them that can hold memory at once.
const REGIONS_MAX: usize = 16;

/// Least address space of a pool, unless the process may not have as much. Driver 580 takes
/// 265 GiB for a managed pool.
const REGION_BYTES_MIN: u64 = 256 << 30;

/// Most address space of a pool, whatever the device has.
const REGION_BYTES_MAX: u64 = 1 << 40;

/// Regions of one kind of pools.
#[derive(Debug, Clone)]
pub(crate) struct PoolRegions {
    zone: Zone,
    /// The bytes of a region.
    bytes: u64,
    /// Oldest first, and whether a pool has it.
    regions: Vec<(Range<u64>, bool)>,
}

impl PoolRegions {
    /// Regions that have room for all of a device's memory.
    pub(crate) fn new(zone: Zone, device_bytes: u64) -> Self {
        let bytes = device_bytes.clamp(REGION_BYTES_MIN, REGION_BYTES_MAX).next_power_of_two();
        Self { zone, bytes, regions: Vec::new() }
    }

    /// The oldest region that no pool has, reserved if need be. `None` if there are too many, or
    /// the process has no address space left for a pool that holds `bytes`.
    pub(crate) fn free(&mut self, arena: &mut Arena, bytes: u64) -> Option<Range<u64>> {
        let mut free = self.regions.iter().filter(|(_, taken)| !taken);
        if let Some((region, _)) = free.next() {
            return Some(region.clone());
        }
        if self.regions.len() == REGIONS_MAX {
            return None;
        }
        let needed = bytes.clamp(1, self.bytes).next_multiple_of(POOL_CHUNK_BYTES);
        let region = arena.grow(self.zone, self.bytes, needed)?;
        self.regions.push((region.clone(), false));
        Some(region)
    }

    /// A pool has the region from now on.
    pub(crate) fn take(&mut self, region: &Range<u64>) {
        self.set(region, true);
    }

    /// No pool has it any more.
    pub(crate) fn give(&mut self, region: &Range<u64>) {
        self.set(region, false);
    }

    fn set(&mut self, region: &Range<u64>, is_taken: bool) {
        let known = self.regions.iter_mut().find(|(other, _)| other == region);
        match known {
            Some((_, taken)) => *taken = is_taken,
            None => debug_assert!(false, "{region:x?} is no region of a pool"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_used_again_before_another_is_reserved() {
        let mut arena = Arena::default();
        let mut regions = PoolRegions::new(Zone::Pools, 3 << 38);
        let first = regions.free(&mut arena, 1).expect("address space");
        assert_eq!(first.end - first.start, 1 << 40, "all of the device's memory");
        assert_eq!(regions.free(&mut arena, 1), Some(first.clone()), "nobody took it");
        regions.take(&first);
        let second = regions.free(&mut arena, 1).expect("address space");
        assert_ne!(first, second);
        regions.take(&second);
        regions.give(&first);
        assert_eq!(regions.free(&mut arena, u64::MAX), Some(first));
    }
}
