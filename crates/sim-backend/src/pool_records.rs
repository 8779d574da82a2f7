//! The records of an exported pool's file: where its memory lies, and which allocations were
//! exported.
//!
//! Each record is written at once. Only the exporter writes them, and importers believe none
//! without a check.

use std::io;
use std::ops::Range;

use crate::pool_chunks::POOL_CHUNK_BYTES;
use crate::shared_memory::SharedFile;

/// The chunks of a pool's addresses: 8 bytes each.
const CHUNKS_AT: u64 = 4096;
/// The addresses of a pool end here: 1 TiB.
const CHUNKS_MAX: u64 = 1 << 15;
/// The exported allocations: 32 bytes each.
const POINTERS_AT: u64 = 512 << 10;
const POINTER_BYTES: u64 = 32;
/// The most exported allocations of a pool at a time.
pub(crate) const POINTERS_MAX: u64 = 1 << 14;
/// Where memory begins, in units of a chunk.
pub(crate) const UNITS_AT: u64 = 1 << 20;

/// An exported allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PointerRecord {
    /// Not 0, and never used twice by a pool.
    pub(crate) id: u64,
    /// From the start of the pool's addresses.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl PointerRecord {
    fn check_word(&self) -> u64 {
        !(self.id ^ self.offset.rotate_left(21) ^ self.bytes.rotate_left(42))
    }

    /// The first byte past the allocation; `None` if a pool has no such addresses.
    pub(crate) fn end(&self) -> Option<u64> {
        let end = self.offset.checked_add(self.bytes)?;
        (self.bytes > 0 && end <= CHUNKS_MAX.checked_mul(POOL_CHUNK_BYTES)?).then_some(end)
    }
}

/// The bytes of a unit of a file.
pub(crate) fn unit(number: u64) -> Option<Range<u64>> {
    let start = number.checked_mul(POOL_CHUNK_BYTES)?.checked_add(UNITS_AT)?;
    Some(start..start.checked_add(POOL_CHUNK_BYTES)?)
}

fn chunk_at(chunk: u64) -> Option<u64> {
    (chunk < CHUNKS_MAX).then_some(CHUNKS_AT.checked_add(chunk.checked_mul(8)?)?)
}

fn pointer_at(place: u64) -> Option<u64> {
    let offset = place.checked_mul(POINTER_BYTES)?;
    (place < POINTERS_MAX).then_some(POINTERS_AT.checked_add(offset)?)
}

fn no_room() -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}

/// Writes in which unit of the file the memory of a chunk lies; `None` if it is gone.
pub(crate) fn set_chunk(file: &SharedFile, chunk: u64, unit: Option<u64>) -> io::Result<()> {
    let at = chunk_at(chunk).ok_or_else(no_room)?;
    file.set_words(at, &[unit.and_then(|unit| unit.checked_add(1)).unwrap_or(0)])
}

/// The unit of the file in which the memory of a chunk lies.
pub(crate) fn chunk(file: &SharedFile, chunk: u64) -> Option<u64> {
    let [word] = file.words(chunk_at(chunk)?)?;
    word.checked_sub(1)
}

/// Writes an exported allocation; `None` if it is gone.
pub(crate) fn set_pointer(
    file: &SharedFile,
    place: u64,
    record: Option<&PointerRecord>,
) -> io::Result<()> {
    let at = pointer_at(place).ok_or_else(no_room)?;
    let words = record.map(|record| [record.id, record.offset, record.bytes, record.check_word()]);
    file.set_words(at, &words.unwrap_or_default())
}

/// The exported allocation at a place.
pub(crate) fn pointer(file: &SharedFile, place: u64) -> Option<PointerRecord> {
    let [id, offset, bytes, check] = file.words(pointer_at(place)?)?;
    let record = PointerRecord { id, offset, bytes };
    (id != 0 && check == record.check_word() && record.end().is_some()).then_some(record)
}
