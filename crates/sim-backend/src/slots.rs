//! Address space in units of 2 MiB.

use std::collections::BTreeMap;

use pagewise_hal::BLOCK_BYTES;

/// Hands out runs of 2 MiB slots of one zone, lowest address first.
///
/// Freed runs merge with free neighbours and are used again before new addresses are taken. For
/// memory whose addresses no recording shows; managed memory has `regions`.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Free runs: first address to bytes. Never adjacent.
    free: BTreeMap<u64, u64>,
}

impl Slots {
    /// All of a zone is free.
    pub(crate) fn new((base, bytes): (u64, u64)) -> Self {
        Self { free: BTreeMap::from([(base, bytes / BLOCK_BYTES * BLOCK_BYTES)]) }
    }

    /// Takes the lowest run of slots that holds `bytes`, or `None` if there is none.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let wanted = bytes.checked_next_multiple_of(BLOCK_BYTES)?;
        let (&address, &length) = self.free.iter().find(|&(_, &length)| length >= wanted)?;
        self.free.remove(&address);
        if length > wanted {
            self.free.insert(address + wanted, length - wanted);
        }
        Some(address)
    }

    /// Gives a run back.
    pub(crate) fn give(&mut self, address: u64, bytes: u64) {
        let mut first = address;
        let mut length = bytes.next_multiple_of(BLOCK_BYTES);
        if let Some((&before, &before_length)) = self.free.range(..address).next_back() {
            debug_assert!(before + before_length <= address, "freed twice");
            if before + before_length == address {
                first = before;
                length += before_length;
            }
        }
        if let Some(after_length) = self.free.remove(&(first + length)) {
            length += after_length;
        }
        self.free.insert(first, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_runs_merge_and_are_reused_lowest_first() {
        let mut slots = Slots::new((0, 64 * BLOCK_BYTES));
        let runs: Vec<u64> = (0..4).map(|_| slots.take(1).unwrap()).collect();
        assert_eq!(runs, [0, 1, 2, 3].map(|n| n * BLOCK_BYTES));
        slots.give(runs[2], 1);
        slots.give(runs[1], 1);
        assert_eq!(slots.take(BLOCK_BYTES + 1), Some(runs[1]));
        assert_eq!(slots.take(1), Some(4 * BLOCK_BYTES));
        assert_eq!(slots.take(61 * BLOCK_BYTES), None);
        assert_eq!(slots.take(u64::MAX), None);
    }
}
