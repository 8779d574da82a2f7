//! The memory of one pool: where in the pool's addresses an allocation goes, and which 32 MiB
//! chunks are held for it.
//!
//! Pool addresses are not in the recordings; the totals that they do show are all given by this
//! rule: the lowest place, in 512-byte steps, that needs the fewest new chunks. Growth asks for the
//! largest power of two first and gives back on failure, which is visible in the high-water mark
//! (recording `pools`, lines 9, 455, 1188). Offsets are bytes from the start of the pool.

use std::collections::{BTreeMap, BTreeSet};

/// Pools hold memory in units of this many bytes.
pub(crate) const CHUNK_BYTES: u64 = 32 << 20;

const STEP_BYTES: u64 = 512;

/// Longer requests are refused without a search: no device has so much memory.
const LENGTH_MAX: u64 = 1 << 42;

/// Chunks and places of one pool.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    held: BTreeSet<u64>,
    /// Live places: offset to rounded length.
    places: BTreeMap<u64, u64>,
    /// Most bytes ever held since the last reset.
    pub(crate) reserved_high: u64,
}

/// There is no room within the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Chunks {
    /// Bytes held now.
    pub(crate) fn reserved(&self) -> u64 {
        self.held.len() as u64 * CHUNK_BYTES
    }

    /// The chunks that are held, ascending.
    pub(crate) fn held(&self) -> impl Iterator<Item = u64> {
        self.held.iter().copied()
    }

    /// Places `bytes` and takes the chunks that it needs, at most `limit` bytes in all. Returns the
    /// offset and the indices of the new chunks.
    pub(crate) fn take(&mut self, bytes: u64, limit: u64) -> Result<(u64, Vec<u64>), Full> {
        let length = bytes.checked_next_multiple_of(STEP_BYTES).ok_or(Full)?;
        if length > LENGTH_MAX {
            return Err(Full);
        }
        let offset = self.best_place(length);
        let new: Vec<u64> = chunks_of(offset, length).filter(|c| !self.held.contains(c)).collect();
        let growth = new.len() as u64 * CHUNK_BYTES;
        if self.reserved() + growth > limit {
            self.note_failed_growth(self.missing(offset, length), limit);
            return Err(Full);
        }
        self.held.extend(&new);
        self.places.insert(offset, length);
        self.reserved_high = self.reserved_high.max(self.reserved());
        Ok((offset, new))
    }

    /// Frees a place. Its chunks stay until they are released.
    pub(crate) fn give(&mut self, offset: u64) {
        let place = self.places.remove(&offset);
        debug_assert!(place.is_some(), "offset {offset} is not live");
    }

    /// Gives back chunks with nothing in them while more than `keep` bytes are held, highest first.
    /// Returns their indices.
    pub(crate) fn release(&mut self, keep: u64) -> Vec<u64> {
        let empty: Vec<u64> =
            self.held.iter().rev().copied().filter(|&chunk| self.is_empty(chunk)).collect();
        let mut released = Vec::new();
        for chunk in empty {
            if self.reserved() <= keep {
                break;
            }
            self.held.remove(&chunk);
            released.push(chunk);
        }
        released
    }

    /// Whether nothing is held and nothing lives.
    pub(crate) fn is_unused(&self) -> bool {
        self.held.is_empty() && self.places.is_empty()
    }

    /// Forgets the high-water mark.
    pub(crate) fn reset_high(&mut self) {
        self.reserved_high = self.reserved();
    }

    fn is_empty(&self, chunk: u64) -> bool {
        let start = chunk * CHUNK_BYTES;
        let before = self.places.range(..start + CHUNK_BYTES).next_back();
        before.is_none_or(|(&offset, &length)| offset + length <= start)
    }

    /// The lowest place that needs the fewest new chunks. Candidates are the start of each gap and
    /// the start of each held chunk in a gap: between them the count only grows.
    fn best_place(&self, length: u64) -> u64 {
        let mut best = (usize::MAX, 0);
        let mut gap_start = 0u64;
        let ends = self.places.iter().map(|(&offset, &length)| (offset, offset + length));
        for (gap_end, next_start) in ends.chain([(u64::MAX, u64::MAX)]) {
            let held = self.held.range(gap_start.div_ceil(CHUNK_BYTES)..).map(|c| c * CHUNK_BYTES);
            for start in [gap_start].into_iter().chain(held) {
                if start.checked_add(length).is_none_or(|end| end > gap_end) {
                    break;
                }
                let new = chunks_of(start, length).filter(|c| !self.held.contains(c)).count();
                if new < best.0 {
                    best = (new, start);
                }
            }
            gap_start = next_start;
        }
        best.1
    }

    /// Bytes of a place that no held chunk covers.
    fn missing(&self, offset: u64, length: u64) -> u64 {
        let end = offset + length;
        let covered = self.held.iter().map(|chunk| {
            let start = chunk * CHUNK_BYTES;
            (start + CHUNK_BYTES).min(end).saturating_sub(start.max(offset))
        });
        length - covered.sum::<u64>()
    }

    fn note_failed_growth(&mut self, missing: u64, limit: u64) {
        let first_step = (1 << missing.ilog2()).max(CHUNK_BYTES);
        if self.reserved() + first_step <= limit {
            self.reserved_high = self.reserved_high.max(self.reserved() + first_step);
        }
    }
}

/// Indices of the chunks that a place touches.
fn chunks_of(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / CHUNK_BYTES..(offset + length).div_ceil(CHUNK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn reserved_memory_grows_in_whole_chunks() {
        let mut chunks = Chunks::default();
        chunks.take(1, u64::MAX).unwrap();
        assert_eq!(chunks.reserved(), 32 * MIB);
        let mut chunks = Chunks::default();
        chunks.take(66 * MIB, u64::MAX).unwrap();
        assert_eq!(chunks.reserved(), 96 * MIB);
        chunks.take(66 * MIB, u64::MAX).unwrap();
        assert_eq!(chunks.reserved(), 160 * MIB, "it starts in the tail of the first");
    }

    #[test]
    fn a_failed_growth_shows_in_the_high_water_mark_if_its_first_step_fits() {
        let mut chunks = Chunks::default();
        assert_eq!(chunks.take(66 * MIB, 64 * MIB), Err(Full));
        assert_eq!((chunks.reserved(), chunks.reserved_high), (0, 64 * MIB));
        let mut chunks = Chunks::default();
        assert_eq!(chunks.take(66 * MIB, 32 * MIB), Err(Full));
        assert_eq!(chunks.reserved_high, 0);
        assert_eq!(chunks.take(40 * MIB, 32 * MIB), Err(Full));
        assert_eq!(chunks.reserved_high, 32 * MIB, "probed: 32 MiB first, then the rest");
        assert_eq!(chunks.take(u64::MAX, u64::MAX), Err(Full));
    }

    #[test]
    fn a_chunk_with_a_live_byte_stays_and_a_threshold_keeps_whole_chunks() {
        let mut chunks = Chunks::default();
        let (big, _) = chunks.take(66 * MIB, u64::MAX).unwrap();
        let (small, _) = chunks.take(1, u64::MAX).unwrap();
        chunks.give(big);
        assert_eq!(chunks.release(0), [1, 0]);
        assert_eq!(chunks.reserved(), 32 * MIB);
        chunks.give(small);
        assert_eq!(chunks.release(32 * MIB), []);
        assert_eq!(chunks.release(MIB), [2]);
        assert!(chunks.is_unused());
    }

    #[test]
    fn an_allocation_prefers_held_chunks_to_lower_addresses() {
        let mut chunks = Chunks::default();
        let (first, _) = chunks.take(32 * MIB, u64::MAX).unwrap();
        let (second, _) = chunks.take(MIB, u64::MAX).unwrap();
        chunks.give(first);
        chunks.release(0);
        assert_eq!(second, 32 * MIB);
        let (third, new) = chunks.take(MIB, u64::MAX).unwrap();
        assert_eq!((third, new), (33 * MIB, vec![]));
    }
}
