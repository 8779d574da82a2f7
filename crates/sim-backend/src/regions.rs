//! Address space of managed memory: regions of 32 MiB that hold allocations in units of 2 MiB.
//!
//! Driver 580 takes a region when none has room, and gives it back when it is empty. It looks in the
//! newest region first, and there in the smallest hole that fits, at the lowest address among
//! equals (CONTRACT-13). A region goes where the address space has more room than it needs. The
//! H200's regions descend from the top, these ascend from the start of the zone's first segment. A
//! region that does not fit there goes to the segments after it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pagewise_hal::BLOCK_BYTES;

use crate::floor::at_or_before;
use crate::holes::Holes;

/// Units of a region, unless an allocation needs more.
const REGION_UNITS: u64 = 16;

/// Addresses here are in units of 2 MiB.
#[derive(Debug)]
pub(crate) struct Regions {
    /// The zone's segments, oldest first: their units, and the gaps between their regions.
    segments: Vec<(Range<u64>, Holes)>,
    /// By first unit.
    regions: BTreeMap<u64, Region>,
    /// The regions by the length of their largest hole: their ages with their first units. A region
    /// of more than [`REGION_UNITS`] is one allocation, and has none.
    by_hole: [BTreeSet<(u64, u64)>; REGION_UNITS as usize + 1],
    /// The age of the next region. The newest has the highest.
    next_age: u64,
}

#[derive(Debug)]
struct Region {
    units: u64,
    age: u64,
    /// First unit and length, ascending, never adjacent.
    holes: Vec<(u64, u64)>,
}

impl Region {
    fn largest_hole(&self) -> usize {
        self.holes.iter().map(|hole| hole.1).max().unwrap_or(0) as usize
    }

    fn take(&mut self, units: u64) -> Option<u64> {
        let fitting = self.holes.iter().enumerate().filter(|(_, hole)| hole.1 >= units);
        let (at, &(first, length)) = fitting.min_by_key(|(_, hole)| hole.1)?;
        if length > units {
            self.holes[at] = (first + units, length - units);
        } else {
            self.holes.remove(at);
        }
        Some(first)
    }

    fn give(&mut self, mut first: u64, mut units: u64) {
        let at = self.holes.partition_point(|hole| hole.0 < first);
        if self.holes.get(at).is_some_and(|after| first + units == after.0) {
            units += self.holes.remove(at).1;
        }
        if at > 0 && self.holes[at - 1].0 + self.holes[at - 1].1 == first {
            first = self.holes[at - 1].0;
            units += self.holes[at - 1].1;
            self.holes[at - 1] = (first, units);
        } else {
            self.holes.insert(at, (first, units));
        }
    }
}

impl Default for Regions {
    fn default() -> Self {
        let by_hole = std::array::from_fn(|_| BTreeSet::new());
        Self { segments: Vec::new(), regions: BTreeMap::new(), by_hole, next_age: 0 }
    }
}

impl Regions {
    /// Bytes of a segment that holds an allocation of `bytes`: a region's, or its own, and room to
    /// spare.
    pub(crate) fn segment_bytes(bytes: u64) -> Option<u64> {
        let units = bytes.div_ceil(BLOCK_BYTES).max(REGION_UNITS) + 1;
        units.checked_mul(BLOCK_BYTES)
    }

    /// Adds a segment, all of it free.
    pub(crate) fn add(&mut self, segment: Range<u64>) {
        let units = segment.start / BLOCK_BYTES..segment.end / BLOCK_BYTES;
        let mut gaps = Holes::default();
        gaps.insert(units.start, units.end - units.start);
        self.segments.push((units, gaps));
    }

    /// Takes units for `bytes`, or `None` if no segment has room.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let units = bytes.div_ceil(BLOCK_BYTES);
        let first = match self.newest_with_room(units) {
            Some(first) => first,
            None => self.add_region(units)?,
        };
        let unit = self.change(first, |region| region.take(units))??;
        Some(unit * BLOCK_BYTES)
    }

    /// Gives them back.
    pub(crate) fn give(&mut self, address: u64, bytes: u64) {
        let unit = address / BLOCK_BYTES;
        let Some((first, _)) = at_or_before(&self.regions, unit) else {
            debug_assert!(false, "{address:#x} is in no region");
            return;
        };
        self.change(first, |region| region.give(unit, bytes.div_ceil(BLOCK_BYTES)));
        if self.regions.get(&first).is_some_and(|region| region.holes == [(first, region.units)]) {
            self.remove_region(first);
        }
    }

    /// The first unit of the newest region with a hole of at least so many units.
    fn newest_with_room(&self, units: u64) -> Option<u64> {
        let with_room = self.by_hole.get(usize::try_from(units).ok()?..)?;
        let newest = with_room.iter().filter_map(BTreeSet::last).max();
        newest.map(|&(_, first)| first)
    }

    /// Makes a region in the first gap that is longer than needed, and returns its first unit.
    fn add_region(&mut self, units: u64) -> Option<u64> {
        let units = units.max(REGION_UNITS);
        let beyond = units.checked_add(1)?;
        let first = self.segments.iter_mut().find_map(|(_, gaps)| {
            let first = gaps.lowest(beyond)?;
            gaps.take_at(first, units).then_some(first)
        })?;
        let region = Region { units, age: self.next_age, holes: vec![(first, units)] };
        self.next_age += 1;
        self.note_hole(first, &region);
        self.regions.insert(first, region);
        Some(first)
    }

    fn remove_region(&mut self, first: u64) {
        let Some(region) = self.regions.remove(&first) else { return };
        self.forget_hole(first, &region);
        let mut segments = self.segments.iter_mut();
        if let Some((units, gaps)) = segments.find(|(units, _)| units.contains(&first)) {
            gaps.give(first, region.units, units.clone());
        }
    }

    /// Changes a region, and notes its largest hole.
    fn change<T>(&mut self, first: u64, act: impl FnOnce(&mut Region) -> T) -> Option<T> {
        let mut region = self.regions.remove(&first)?;
        self.forget_hole(first, &region);
        let done = act(&mut region);
        self.note_hole(first, &region);
        self.regions.insert(first, region);
        Some(done)
    }

    fn note_hole(&mut self, first: u64, region: &Region) {
        if let Some(others) = self.by_hole.get_mut(region.largest_hole()) {
            others.insert((region.age, first));
        }
    }

    fn forget_hole(&mut self, first: u64, region: &Region) {
        if let Some(others) = self.by_hole.get_mut(region.largest_hole()) {
            others.remove(&(region.age, first));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(regions: &mut Regions, units: u64) -> u64 {
        regions.take(units * BLOCK_BYTES).expect("room") / BLOCK_BYTES
    }

    fn give(regions: &mut Regions, unit: u64, units: u64) {
        regions.give(unit * BLOCK_BYTES, units * BLOCK_BYTES);
    }

    fn regions(units: u64) -> Regions {
        let mut regions = Regions::default();
        regions.add(0..units * BLOCK_BYTES);
        regions
    }

    #[test]
    fn what_the_first_segment_has_no_room_for_goes_to_the_next_wherever_that_lies() {
        let mut regions = Regions::default();
        regions.add(1000 * BLOCK_BYTES..1040 * BLOCK_BYTES);
        assert_eq!(take(&mut regions, 16), 1000);
        assert_eq!(take(&mut regions, 16), 1016);
        assert_eq!(regions.take(16 * BLOCK_BYTES), None);
        let wanted = Regions::segment_bytes(16 * BLOCK_BYTES);
        assert_eq!(wanted, Some(17 * BLOCK_BYTES));
        regions.add(0..17 * BLOCK_BYTES);
        assert_eq!(take(&mut regions, 16), 0);
        give(&mut regions, 1016, 16);
        assert_eq!(take(&mut regions, 3), 1016, "the older segment comes first");
        assert_eq!(Regions::segment_bytes(u64::MAX), None);
    }

    #[test]
    fn the_smallest_hole_of_the_newest_region_is_taken() {
        let mut regions = regions(1000);
        let old: Vec<u64> = [4, 1, 10].map(|units| take(&mut regions, units)).to_vec();
        assert_eq!(old, [0, 4, 5]);
        let new: Vec<u64> = [2, 1, 4, 1, 3].map(|units| take(&mut regions, units)).to_vec();
        assert_eq!(new, [16, 18, 19, 23, 24]);
        give(&mut regions, 16, 2);
        give(&mut regions, 19, 4);
        give(&mut regions, 4, 1);
        assert_eq!(take(&mut regions, 1), 16, "not the exact hole of the older region");
        assert_eq!(take(&mut regions, 5), 27);
        assert_eq!(take(&mut regions, 5), 32, "no hole is as long");
    }

    #[test]
    fn an_empty_region_goes_back_and_its_place_needs_room_to_spare() {
        let mut regions = regions(1000);
        let blocks = [16, 16, 16].map(|units| take(&mut regions, units));
        assert_eq!(blocks, [0, 16, 32]);
        give(&mut regions, 0, 16);
        assert_eq!(take(&mut regions, 1), 48, "the gap is not longer than a region");
        give(&mut regions, 16, 16);
        assert_eq!(take(&mut regions, 16), 0);
    }

    #[test]
    fn what_needs_more_than_a_region_gets_one_of_its_size() {
        let mut regions = regions(100);
        assert_eq!(take(&mut regions, 40), 0);
        assert_eq!(take(&mut regions, 1), 40);
        assert_eq!(regions.take(60 * BLOCK_BYTES), None);
        give(&mut regions, 0, 40);
        assert_eq!(take(&mut regions, 30), 0);
    }

    /// The rule as it reads: all regions from the newest on, then all gaps from the lowest on.
    #[derive(Default)]
    struct Scan {
        /// First unit, units and holes, oldest first.
        regions: Vec<(u64, Region)>,
    }

    impl Scan {
        fn take(&mut self, units: u64, end: u64) -> Option<u64> {
            if let Some(unit) = self.regions.iter_mut().rev().find_map(|(_, one)| one.take(units)) {
                return Some(unit);
            }
            let length = units.max(REGION_UNITS);
            let mut taken: Vec<(u64, u64)> =
                self.regions.iter().map(|(first, one)| (*first, first + one.units)).collect();
            taken.push((end, end));
            taken.sort_unstable();
            let mut first = 0;
            for (next, after) in taken {
                if next - first > length {
                    let mut region = Region { units: length, age: 0, holes: vec![(first, length)] };
                    let unit = region.take(units);
                    self.regions.push((first, region));
                    return unit;
                }
                first = after;
            }
            None
        }

        fn give(&mut self, unit: u64, units: u64) {
            let holds =
                |(first, one): &&mut (u64, Region)| (*first..*first + one.units).contains(&unit);
            let (_, region) = self.regions.iter_mut().find(holds).expect("a region");
            region.give(unit, units);
            self.regions.retain(|(first, one)| one.holes != [(*first, one.units)]);
        }
    }

    #[test]
    fn addresses_are_those_of_a_scan_over_all_regions_and_gaps() {
        let (mut regions, mut scan) = (regions(400), Scan::default());
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = state >> 33;
            if random.is_multiple_of(2) && !live.is_empty() {
                let (unit, units) = live.swap_remove((random >> 1) as usize % live.len());
                give(&mut regions, unit, units);
                scan.give(unit, units);
                continue;
            }
            let units = [1, 1, 2, 3, 5, 8, 16, 17, 40][(random >> 1) as usize % 9];
            let unit = regions.take(units * BLOCK_BYTES).map(|address| address / BLOCK_BYTES);
            assert_eq!(unit, scan.take(units, 400));
            live.extend(unit.map(|unit| (unit, units)));
        }
    }
}
