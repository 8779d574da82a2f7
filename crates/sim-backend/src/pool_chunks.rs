//! The memory of one pool: the place of each allocation in the pool's addresses, and the 32 MiB
//! chunks that are held for them. Offsets are bytes from the start of the pool.
//!
//! CONTRACT-92 is the rule. Freed memory is *pending* until work is waited for, or until an
//! allocation finds no room; free ranges settle by address. An allocation takes the smallest free
//! range that it fits into, the one that has been free for longest among equals: of the pending
//! ones; else of the settled ones, if the chunks behind it are held; else everything settles, and
//! it takes the smallest of all, or new addresses. Free ranges merge with neighbours of their kind;
//! a settled one at the end of the addresses counts as new. Releasing chunks leaves free ranges as
//! they are. Growth asks for the largest power of two first and gives back on failure, which the
//! high-water mark shows (CONTRACT-89).

use std::collections::{BTreeMap, BTreeSet};

/// Pools hold memory in units of this many bytes.
pub(crate) const POOL_CHUNK_BYTES: u64 = 32 << 20;

const STEP_BYTES: u64 = 512;

/// Longer requests are refused without a search: no device has so much memory.
const LENGTH_MAX: u64 = 1 << 42;

/// Chunks and places of one pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct PoolChunks {
    held: BTreeSet<u64>,
    /// Live places: offset to rounded length.
    places: BTreeMap<u64, u64>,
    /// Freed since work was waited for.
    pending: FreeRanges,
    /// Free below `end`, and settled.
    settled: FreeRanges,
    /// Where new addresses begin.
    end: u64,
    /// The end of the last chunk that was ever held.
    held_end: u64,
    /// Most bytes ever held since the last reset.
    pub(crate) reserved_high: u64,
}

/// Free ranges, in the order in which they came to be: offset and length.
#[derive(Debug, Clone, Default)]
struct FreeRanges(Vec<(u64, u64)>);

impl FreeRanges {
    /// Adds a range, merged with its neighbours.
    fn add(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        let (mut first, mut last) = (offset, end);
        self.0.retain(|&(other, room)| {
            let touches = other + room == offset || other == end;
            if touches {
                (first, last) = (first.min(other), last.max(other + room));
            }
            !touches
        });
        self.0.push((first, last - first));
    }

    /// The smallest range that is long enough, the oldest among equals.
    fn smallest(&self, length: u64) -> Option<u64> {
        let fitting = self.0.iter().filter(|(_, room)| *room >= length);
        fitting.min_by_key(|(_, room)| *room).map(|&(offset, _)| offset)
    }

    /// Takes the first bytes of the range that starts here, if there is one.
    fn take(&mut self, offset: u64, length: u64) {
        if let Some(at) = self.0.iter().position(|&(start, _)| start == offset) {
            let (start, room) = self.0.remove(at);
            if room > length {
                self.0.push((start + length, room - length));
            }
        }
    }
}

/// There is no room within the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl PoolChunks {
    /// The end of the last chunk that was ever held.
    pub(crate) fn held_end(&self) -> u64 {
        self.held_end
    }

    /// Bytes held now.
    pub(crate) fn reserved(&self) -> u64 {
        self.held.len() as u64 * POOL_CHUNK_BYTES
    }

    /// The chunks that are held, ascending.
    pub(crate) fn held(&self) -> impl Iterator<Item = u64> {
        self.held.iter().copied()
    }

    /// Places `bytes` below the offset `addresses` and takes the chunks that it needs, at most
    /// `limit` bytes in all. Returns the offset and the indices of the new chunks.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        limit: u64,
        addresses: u64,
    ) -> Result<(u64, Vec<u64>), Full> {
        let length = bytes.checked_next_multiple_of(STEP_BYTES).ok_or(Full)?;
        if length > LENGTH_MAX {
            return Err(Full);
        }
        let offset = self.choose(length);
        let new: Vec<u64> = chunks_of(offset, length).filter(|c| !self.held.contains(c)).collect();
        let growth = new.len() as u64 * POOL_CHUNK_BYTES;
        if self.reserved() + growth > limit {
            self.note_failed_growth(self.missing(offset, length), limit);
            return Err(Full);
        }
        if offset + length > addresses {
            return Err(Full);
        }
        let last_end = new.iter().max().map_or(0, |chunk| (chunk + 1) * POOL_CHUNK_BYTES);
        self.held_end = self.held_end.max(last_end);
        self.held.extend(&new);
        self.places.insert(offset, length);
        self.pending.take(offset, length);
        self.settled.take(offset, length);
        self.end = self.end.max(offset + length);
        self.reserved_high = self.reserved_high.max(self.reserved());
        Ok((offset, new))
    }

    /// Frees a place. Its chunks stay until they are released.
    pub(crate) fn give(&mut self, offset: u64) {
        let place = self.places.remove(&offset);
        debug_assert!(place.is_some(), "offset {offset} is not live");
        if let Some(length) = place {
            self.pending.add(offset, length);
        }
    }

    /// Work was waited for: everything that was freed settles, and chunks with nothing in them are
    /// given back while more than `keep` bytes are held, highest first. Returns their indices.
    pub(crate) fn release(&mut self, keep: u64) -> Vec<u64> {
        self.settle();
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
        let start = chunk * POOL_CHUNK_BYTES;
        let before = self.places.range(..start + POOL_CHUNK_BYTES).next_back();
        before.is_none_or(|(&offset, &length)| offset + length <= start)
    }

    /// Where an allocation goes.
    fn choose(&mut self, length: u64) -> u64 {
        if let Some(offset) = self.pending.smallest(length) {
            return offset;
        }
        if let Some(offset) = self.settled.smallest(length)
            && chunks_of(offset, length).all(|chunk| self.held.contains(&chunk))
        {
            return offset;
        }
        self.settle();
        self.settled.smallest(length).unwrap_or(self.end)
    }

    fn settle(&mut self) {
        let mut freed = std::mem::take(&mut self.pending).0;
        freed.sort_unstable();
        for (offset, length) in freed {
            self.settled.add(offset, length);
        }
        let end = self.end;
        if let Some(&(offset, _)) = self.settled.0.iter().find(|(start, room)| start + room == end)
        {
            self.end = offset;
            self.settled.0.retain(|&(start, _)| start != offset);
        }
    }

    /// Bytes of a place that no held chunk covers.
    fn missing(&self, offset: u64, length: u64) -> u64 {
        let end = offset + length;
        let covered = self.held.iter().map(|chunk| {
            let start = chunk * POOL_CHUNK_BYTES;
            (start + POOL_CHUNK_BYTES).min(end).saturating_sub(start.max(offset))
        });
        length - covered.sum::<u64>()
    }

    fn note_failed_growth(&mut self, missing: u64, limit: u64) {
        let first_step = (1 << missing.ilog2()).max(POOL_CHUNK_BYTES);
        if self.reserved() + first_step <= limit {
            self.reserved_high = self.reserved_high.max(self.reserved() + first_step);
        }
    }
}

/// Indices of the chunks that a place touches.
fn chunks_of(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / POOL_CHUNK_BYTES..(offset + length).div_ceil(POOL_CHUNK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const ALL: u64 = u64::MAX;

    /// Free ranges between live places are too small, so the pool's addresses end before its memory.
    #[test]
    fn no_place_reaches_past_the_addresses_of_the_pool() {
        let mut chunks = PoolChunks::default();
        let take = |chunks: &mut PoolChunks, bytes| chunks.take(bytes, ALL, 256 * MIB);
        let places = [(); 8].map(|()| take(&mut chunks, 32 * MIB).unwrap().0);
        places.iter().step_by(2).for_each(|&place| chunks.give(place));
        assert_eq!(chunks.release(0).len(), 4);
        assert_eq!(take(&mut chunks, 64 * MIB), Err(Full));
        assert_eq!(chunks.reserved(), 128 * MIB);
        assert_eq!(take(&mut chunks, 32 * MIB), Ok((0, vec![0])));
    }

    #[test]
    fn reserved_memory_grows_in_whole_chunks() {
        let mut chunks = PoolChunks::default();
        chunks.take(1, u64::MAX, ALL).unwrap();
        assert_eq!(chunks.reserved(), 32 * MIB);
        let mut chunks = PoolChunks::default();
        chunks.take(66 * MIB, u64::MAX, ALL).unwrap();
        assert_eq!(chunks.reserved(), 96 * MIB);
        chunks.take(66 * MIB, u64::MAX, ALL).unwrap();
        assert_eq!(chunks.reserved(), 160 * MIB, "it starts in the tail of the first");
    }

    #[test]
    fn a_failed_growth_shows_in_the_high_water_mark_if_its_first_step_fits() {
        let mut chunks = PoolChunks::default();
        assert_eq!(chunks.take(66 * MIB, 64 * MIB, ALL), Err(Full));
        assert_eq!((chunks.reserved(), chunks.reserved_high), (0, 64 * MIB));
        let mut chunks = PoolChunks::default();
        assert_eq!(chunks.take(66 * MIB, 32 * MIB, ALL), Err(Full));
        assert_eq!(chunks.reserved_high, 0);
        assert_eq!(chunks.take(40 * MIB, 32 * MIB, ALL), Err(Full));
        assert_eq!(chunks.reserved_high, 32 * MIB, "probed: 32 MiB first, then the rest");
        assert_eq!(chunks.take(u64::MAX, u64::MAX, ALL), Err(Full));
    }

    #[test]
    fn a_chunk_with_a_live_byte_stays_and_a_threshold_keeps_whole_chunks() {
        let mut chunks = PoolChunks::default();
        let (big, _) = chunks.take(66 * MIB, u64::MAX, ALL).unwrap();
        let (small, _) = chunks.take(1, u64::MAX, ALL).unwrap();
        chunks.give(big);
        assert_eq!(chunks.release(0), [1, 0]);
        assert_eq!(chunks.reserved(), 32 * MIB);
        chunks.give(small);
        assert_eq!(chunks.release(32 * MIB), []);
        assert_eq!(chunks.release(MIB), [2]);
        assert!(chunks.is_unused());
    }

    #[test]
    fn what_was_freed_last_is_used_before_what_has_settled() {
        let mut chunks = PoolChunks::default();
        let offsets =
            [MIB, MIB, 2 * MIB, MIB].map(|bytes| chunks.take(bytes, u64::MAX, ALL).unwrap().0);
        assert_eq!(offsets, [0, MIB, 2 * MIB, 4 * MIB]);
        chunks.give(0);
        chunks.release(u64::MAX);
        chunks.give(2 * MIB);
        assert_eq!(chunks.take(MIB, u64::MAX, ALL).unwrap().0, 2 * MIB, "larger, but pending");
        assert_eq!(
            chunks.take(2 * MIB, u64::MAX, ALL).unwrap().0,
            5 * MIB,
            "no free range is as long"
        );
        assert_eq!(
            chunks.take(MIB, u64::MAX, ALL).unwrap().0,
            0,
            "settled: the oldest of its length"
        );
        assert_eq!(chunks.take(MIB, u64::MAX, ALL).unwrap().0, 3 * MIB);
    }

    #[test]
    fn an_allocation_goes_where_it_fits_best_even_if_the_chunk_was_released() {
        let mut chunks = PoolChunks::default();
        let (first, _) = chunks.take(32 * MIB, u64::MAX, ALL).unwrap();
        let (second, _) = chunks.take(MIB, u64::MAX, ALL).unwrap();
        chunks.give(first);
        assert_eq!(chunks.release(0), [0]);
        assert_eq!(second, 32 * MIB);
        assert_eq!(chunks.take(MIB, u64::MAX, ALL).unwrap(), (0, vec![0]));
    }
}
