//! Small managed allocations: many in one 2 MiB slab, which is one va_block (PAGING-11).
//!
//! The driver packs requests below 2 MiB into shared slabs at 512-byte steps, in the smallest hole
//! that fits over all slabs; only if none fits is there a new slab. Holes merge when their
//! neighbours are freed, and a slab goes back when its last allocation does (CONTRACT-11).

use pagewise_hal::BLOCK_BYTES;

use crate::holes::Holes;

/// Sizes are rounded up to this many bytes.
pub(crate) const STEP_BYTES: u64 = 512;

/// The holes of all slabs.
#[derive(Debug, Default)]
pub(crate) struct Slabs {
    holes: Holes,
}

impl Slabs {
    /// Whether a request is packed. The rounded size decides.
    pub(crate) const fn packs(bytes: u64) -> bool {
        bytes <= BLOCK_BYTES - STEP_BYTES
    }

    /// Takes `bytes` from the smallest hole that fits, or `None` if a new slab is needed.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        self.holes.take_shortest(bytes.next_multiple_of(STEP_BYTES))
    }

    /// Adds an empty slab.
    pub(crate) fn add(&mut self, slab: u64) {
        debug_assert_eq!(slab % BLOCK_BYTES, 0, "slabs are aligned");
        self.holes.insert(slab, BLOCK_BYTES);
    }

    /// Gives an allocation back. Returns its slab if that is now empty, and forgets the slab.
    pub(crate) fn give(&mut self, address: u64, bytes: u64) -> Option<u64> {
        let slab = address / BLOCK_BYTES * BLOCK_BYTES;
        let bytes = bytes.next_multiple_of(STEP_BYTES);
        let (hole, length) = self.holes.give(address, bytes, slab..slab + BLOCK_BYTES);
        if length < BLOCK_BYTES {
            return None;
        }
        self.holes.forget(hole);
        Some(slab)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_into_the_smallest_hole_that_fits() {
        let mut slabs = Slabs::default();
        slabs.add(0);
        let blocks: Vec<u64> = [8192, 512, 4096, 512].map(|b| slabs.take(b).unwrap()).to_vec();
        assert_eq!(blocks, [0, 8192, 8704, 12800]);
        assert_eq!(slabs.give(0, 8192), None);
        assert_eq!(slabs.give(8704, 4096), None);
        assert_eq!(slabs.take(4000), Some(8704));
        assert_eq!(slabs.take(4097), Some(0));
    }

    #[test]
    fn an_empty_slab_is_given_back_whole() {
        let mut slabs = Slabs::default();
        slabs.add(BLOCK_BYTES);
        let first = slabs.take(100).unwrap();
        let second = slabs.take(100).unwrap();
        assert_eq!(slabs.give(first, 100), None);
        assert_eq!(slabs.give(second, 100), Some(BLOCK_BYTES));
        assert_eq!(slabs.take(100), None);
    }

    #[test]
    fn holes_of_adjacent_slabs_do_not_merge() {
        let mut slabs = Slabs::default();
        slabs.add(0);
        slabs.add(BLOCK_BYTES);
        let all = BLOCK_BYTES - STEP_BYTES;
        let (a, b) = (slabs.take(all).unwrap(), slabs.take(all).unwrap());
        assert_eq!((a, b), (0, BLOCK_BYTES));
        assert!(!Slabs::packs(BLOCK_BYTES - 511));
        assert!(Slabs::packs(all));
        assert_eq!(slabs.give(b, all), Some(BLOCK_BYTES));
        assert_eq!(slabs.take(1024), None);
    }
}
