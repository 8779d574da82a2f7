//! Free runs of address space, found by address and by length.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::floor::at_or_before;

/// Free runs that do not overlap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holes {
    /// Length by first address.
    by_address: BTreeMap<u64, u64>,
    /// Lengths with first addresses: the shortest first, and the lowest among equals.
    by_length: BTreeSet<(u64, u64)>,
}

impl Holes {
    pub(crate) fn insert(&mut self, first: u64, length: u64) {
        self.by_address.insert(first, length);
        self.by_length.insert((length, first));
    }

    /// Removes the hole that starts here, and returns its length.
    fn remove(&mut self, first: u64) -> Option<u64> {
        let length = self.by_address.remove(&first)?;
        self.by_length.remove(&(length, first));
        Some(length)
    }

    /// Takes from the start of the shortest hole of at least this length, the lowest among equals.
    pub(crate) fn take_shortest(&mut self, length: u64) -> Option<u64> {
        let &(_, first) = self.by_length.range((length, 0)..).next()?;
        self.take_at(first, length).then_some(first)
    }

    /// The start of the lowest hole of at least this length. Looks once at each length that holes
    /// have: 724 in 512 GiB of slots at the very most, and one or two in most programs.
    pub(crate) fn lowest(&self, length: u64) -> Option<u64> {
        let mut lowest: Option<u64> = None;
        let mut least = length;
        while let Some(&(length, first)) = self.by_length.range((least, 0)..).next() {
            lowest = Some(lowest.map_or(first, |other| other.min(first)));
            least = length.saturating_add(1);
        }
        lowest
    }

    /// Takes a run if all of it is in one hole, and says whether it was.
    pub(crate) fn take_at(&mut self, start: u64, length: u64) -> bool {
        let Some((first, &whole)) = at_or_before(&self.by_address, start) else {
            return false;
        };
        let before = start - first;
        let Some(after) = whole.checked_sub(before).and_then(|rest| rest.checked_sub(length))
        else {
            return false;
        };
        self.remove(first);
        if before > 0 {
            self.insert(first, before);
        }
        if after > 0 {
            self.insert(start + length, after);
        }
        true
    }

    /// Gives a run back, which merges with its neighbours that lie inside the bounds. Returns the
    /// hole that holds it now.
    pub(crate) fn give(&mut self, start: u64, length: u64, bounds: Range<u64>) -> (u64, u64) {
        let (mut first, mut length) = (start, length);
        let before = self.by_address.range(bounds.start..start).next_back();
        if let Some((&hole, &hole_length)) = before {
            debug_assert!(hole + hole_length <= start, "freed twice");
            if hole + hole_length == start {
                self.remove(hole);
                first = hole;
                length += hole_length;
            }
        }
        let after = first + length;
        if after < bounds.end {
            length += self.remove(after).unwrap_or(0);
        }
        self.insert(first, length);
        (first, length)
    }

    /// Forgets a hole.
    pub(crate) fn forget(&mut self, first: u64) {
        self.remove(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holes() -> Holes {
        let mut holes = Holes::default();
        for (first, length) in [(0, 3), (10, 8), (30, 3), (40, 20)] {
            holes.insert(first, length);
        }
        holes
    }

    #[test]
    fn the_lowest_hole_is_found_among_all_that_are_long_enough() {
        let found = [1, 3, 4, 9, 20, 21].map(|length| holes().lowest(length));
        assert_eq!(found, [Some(0), Some(0), Some(10), Some(40), Some(40), None]);
    }

    #[test]
    fn the_shortest_hole_that_fits_is_taken() {
        let taken = [1, 3, 4, 9, 21].map(|length| holes().take_shortest(length));
        assert_eq!(taken, [Some(0), Some(0), Some(10), Some(40), None]);
        let mut holes = holes();
        holes.take_shortest(2);
        assert_eq!(holes.take_shortest(1), Some(2), "the rest is the shortest now");
    }

    #[test]
    fn a_run_merges_with_neighbours_inside_the_bounds_only() {
        let mut all = holes();
        assert_eq!(all.give(3, 7, 0..100), (0, 18));
        let mut some = holes();
        assert_eq!(some.give(3, 7, 3..10), (3, 7));
        assert_eq!(some.lowest(8), Some(10), "its neighbours are as they were");
    }
}
