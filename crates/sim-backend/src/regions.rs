//! Address space of managed memory: regions of 32 MiB that hold allocations in units of 2 MiB.
//!
//! Driver 580 takes a region when none has room, and gives it back when it is empty. It looks in the
//! newest region first, and there in the smallest hole that fits, at the lowest address among
//! equals (CONTRACT-13). A region goes where the address space has more room than it needs. The
//! H200's regions descend from the top, these ascend from the start of the zone's first segment. A
//! region that does not fit there goes to the segments after it.

use std::collections::BTreeMap;
use std::ops::Range;

use pagewise_hal::BLOCK_BYTES;

/// Units of a region, unless an allocation needs more.
const REGION_UNITS: u64 = 16;

/// Addresses here are in units of 2 MiB.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// The zone's segments, oldest first.
    segments: Vec<Range<u64>>,
    /// By first unit.
    regions: BTreeMap<u64, Region>,
    /// First units, oldest first.
    ages: Vec<u64>,
}

#[derive(Debug)]
struct Region {
    units: u64,
    /// First unit and length, ascending, never adjacent.
    holes: Vec<(u64, u64)>,
}

impl Region {
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

impl Regions {
    /// Bytes of a segment that holds an allocation of `bytes`: a region's, or its own, and room to
    /// spare.
    pub(crate) fn segment_bytes(bytes: u64) -> Option<u64> {
        let units = bytes.div_ceil(BLOCK_BYTES).max(REGION_UNITS) + 1;
        units.checked_mul(BLOCK_BYTES)
    }

    /// Adds a segment, all of it free.
    pub(crate) fn add(&mut self, segment: Range<u64>) {
        self.segments.push(segment.start / BLOCK_BYTES..segment.end / BLOCK_BYTES);
    }

    /// Takes units for `bytes`, or `None` if no segment has room.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let units = bytes.div_ceil(BLOCK_BYTES);
        for first in self.ages.iter().rev() {
            let region = self.regions.get_mut(first)?;
            if let Some(unit) = region.take(units) {
                return Some(unit * BLOCK_BYTES);
            }
        }
        let length = units.max(REGION_UNITS);
        let first = self.gap_beyond(length)?;
        let mut region = Region { units: length, holes: vec![(first, length)] };
        let unit = region.take(units)?;
        self.regions.insert(first, region);
        self.ages.push(first);
        Some(unit * BLOCK_BYTES)
    }

    /// Gives them back.
    pub(crate) fn give(&mut self, address: u64, bytes: u64) {
        let unit = address / BLOCK_BYTES;
        let found = self.regions.range_mut(..=unit).next_back();
        let Some((&first, region)) = found else {
            debug_assert!(false, "{address:#x} is in no region");
            return;
        };
        region.give(unit, bytes.div_ceil(BLOCK_BYTES));
        if region.holes == [(first, region.units)] {
            self.regions.remove(&first);
            self.ages.retain(|&other| other != first);
        }
    }

    /// The first gap between the regions of a segment that is longer than this.
    fn gap_beyond(&self, units: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let mut first = segment.start;
            for (&next, region) in self.regions.range(segment.clone()) {
                if next - first > units {
                    return Some(first);
                }
                first = next + region.units;
            }
            (segment.end - first > units).then_some(first)
        })
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
}
