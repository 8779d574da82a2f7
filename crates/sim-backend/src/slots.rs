//! Address space in units of 2 MiB.

use std::ops::Range;

use pagewise_hal::BLOCK_BYTES;

use crate::holes::Holes;

/// Hands out runs of 2 MiB slots of one zone: of its oldest segment that has room, the lowest
/// address first.
///
/// Freed runs merge with free neighbours and are used again before new addresses are taken. For
/// memory with addresses that no recording shows; managed memory has `regions`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    /// Oldest first: the addresses of each segment, and those that are free.
    segments: Vec<(Range<u64>, Holes)>,
}

impl Slots {
    /// Adds a segment of whole slots, all of it free.
    pub(crate) fn add(&mut self, addresses: Range<u64>) {
        let mut free = Holes::default();
        free.insert(addresses.start, addresses.end - addresses.start);
        self.segments.push((addresses, free));
    }

    /// Takes the first run of slots that holds `bytes`, or `None` if no segment has room.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let wanted = bytes.checked_next_multiple_of(BLOCK_BYTES)?;
        self.segments.iter_mut().find_map(|(_, free)| {
            let first = free.lowest(wanted)?;
            free.take_at(first, wanted).then_some(first)
        })
    }

    /// Takes the run at an address if it is free, and says whether it was.
    pub(crate) fn take_at(&mut self, address: u64, bytes: u64) -> bool {
        let Some(wanted) = bytes.checked_next_multiple_of(BLOCK_BYTES) else { return false };
        let mut segments = self.segments.iter_mut();
        let segment = segments.find(|(addresses, _)| addresses.contains(&address));
        segment.is_some_and(|(_, free)| free.take_at(address, wanted))
    }

    /// Gives a run back.
    pub(crate) fn give(&mut self, address: u64, bytes: u64) {
        let mut segments = self.segments.iter_mut();
        match segments.find(|(addresses, _)| addresses.contains(&address)) {
            Some((addresses, free)) => {
                free.give(address, bytes.next_multiple_of(BLOCK_BYTES), addresses.clone());
            }
            None => debug_assert!(false, "{address:#x} is in no segment"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_runs_merge_and_are_reused_lowest_first() {
        let mut slots = Slots::default();
        slots.add(0..64 * BLOCK_BYTES);
        let runs: Vec<u64> = (0..4).map(|_| slots.take(1).unwrap()).collect();
        assert_eq!(runs, [0, 1, 2, 3].map(|n| n * BLOCK_BYTES));
        slots.give(runs[2], 1);
        slots.give(runs[1], 1);
        assert_eq!(slots.take(BLOCK_BYTES + 1), Some(runs[1]));
        assert_eq!(slots.take(1), Some(4 * BLOCK_BYTES));
        assert_eq!(slots.take(61 * BLOCK_BYTES), None);
        assert_eq!(slots.take(u64::MAX), None);
    }

    #[test]
    fn a_run_is_taken_at_an_address_only_if_all_of_it_is_free() {
        let mut slots = Slots::default();
        slots.add(0..8 * BLOCK_BYTES);
        assert!(slots.take_at(2 * BLOCK_BYTES, BLOCK_BYTES + 1));
        assert!(!slots.take_at(BLOCK_BYTES, 2 * BLOCK_BYTES), "its second half is taken");
        assert!(!slots.take_at(7 * BLOCK_BYTES, 2 * BLOCK_BYTES), "past the end");
        assert!(!slots.take_at(9 * BLOCK_BYTES, 1), "in no segment");
        assert!(slots.take_at(4 * BLOCK_BYTES, 4 * BLOCK_BYTES));
        assert_eq!(slots.take(2 * BLOCK_BYTES), Some(0), "what lies before it");
        assert_eq!(slots.take(1), None);
    }

    #[test]
    fn a_run_lies_in_one_segment_and_goes_back_there() {
        let mut slots = Slots::default();
        slots.add(4 * BLOCK_BYTES..6 * BLOCK_BYTES);
        slots.add(2 * BLOCK_BYTES..4 * BLOCK_BYTES);
        assert_eq!(slots.take(3 * BLOCK_BYTES), None, "they are neighbours, and two mappings");
        assert_eq!(slots.take(1), Some(4 * BLOCK_BYTES), "the older comes first");
        assert_eq!(slots.take(2 * BLOCK_BYTES), Some(2 * BLOCK_BYTES));
        slots.give(4 * BLOCK_BYTES, 1);
        slots.give(2 * BLOCK_BYTES, 2 * BLOCK_BYTES);
        assert_eq!(slots.take(3 * BLOCK_BYTES), None);
        assert_eq!(slots.take(2 * BLOCK_BYTES), Some(4 * BLOCK_BYTES));
    }
}
