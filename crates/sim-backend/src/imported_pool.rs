//! A pool of another process: what its file says, none of which is believed without a check.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use pagewise_hal::{ExportedPointer, PAGE_BYTES, ShareableHandle};

use crate::pool_chunks::POOL_CHUNK_BYTES;
use crate::pool_records::{PointerRecord, chunk, pointer, unit};
use crate::shared_memory::SharedFile;
use crate::shared_words::{About, Content, Mark};

/// An imported pool.
#[derive(Debug)]
pub(crate) struct ImportedPool {
    pub(crate) file: SharedFile,
    pub(crate) about: About,
    /// Units of the file that are mapped here, and how often.
    held: BTreeMap<u64, usize>,
}

/// An allocation in the file of its pool.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) record: PointerRecord,
    /// Whole pages that hold it, in order: each range lies in one unit.
    pub(crate) parts: Vec<Range<u64>>,
    /// The units that hold it.
    pub(crate) units: Vec<u64>,
}

impl ImportedPool {
    /// Opens the pool that a descriptor names; `None` if it names none.
    pub(crate) fn open(handle: ShareableHandle) -> Option<Self> {
        let file = SharedFile::of_descriptor(handle)?;
        let about = About::read(&file, Content::Pool)?;
        Some(Self { file, about, held: BTreeMap::new() })
    }

    /// Looks up the live allocation that a blob names, and keeps its memory until
    /// [`leave`](Self::leave). `Ok(None)` if the blob names none.
    pub(crate) fn find(&mut self, exported: &ExportedPointer) -> io::Result<Option<Found>> {
        let Some(record) = self.record_of(exported) else { return Ok(None) };
        let Some(found) = self.place_of(record) else { return Ok(None) };
        self.hold(&found.units)?;
        // The exporter may have freed it before it was held.
        let is_same = self.record_of(exported) == Some(record)
            && self.place_of(record).is_some_and(|again| again.units == found.units);
        if is_same {
            return Ok(Some(found));
        }
        self.leave(&found.units);
        Ok(None)
    }

    fn record_of(&self, exported: &ExportedPointer) -> Option<PointerRecord> {
        let [number, place, id] = Mark::Pointer.words(&exported.0)?;
        (number == self.file.number()).then_some(())?;
        pointer(&self.file, place).filter(|record| record.id == id)
    }

    fn place_of(&self, record: PointerRecord) -> Option<Found> {
        let end = record.end()?.next_multiple_of(PAGE_BYTES);
        let start = record.offset / PAGE_BYTES * PAGE_BYTES;
        let chunks = start / POOL_CHUNK_BYTES..end.div_ceil(POOL_CHUNK_BYTES);
        let (mut parts, mut units) = (Vec::new(), Vec::new());
        for number in chunks {
            let here = chunk(&self.file, number)?;
            let place = unit(here)?;
            let first = number * POOL_CHUNK_BYTES;
            let from = start.max(first) - first;
            let to = end.min(first + POOL_CHUNK_BYTES) - first;
            let part = place.start + from..place.start + to;
            self.file.has(&part).then_some(())?;
            parts.push(part);
            units.push(here);
        }
        Some(Found { record, parts, units })
    }

    fn hold(&mut self, units: &[u64]) -> io::Result<()> {
        for (done, &number) in units.iter().enumerate() {
            let held = unit(number).ok_or(io::ErrorKind::InvalidData.into());
            if let Err(error) = held.and_then(|bytes| self.file.hold(&bytes)) {
                self.leave(units.get(..done).unwrap_or_default());
                return Err(error);
            }
            *self.held.entry(number).or_default() += 1;
        }
        Ok(())
    }

    /// Lets the exporter use the memory of an import again.
    pub(crate) fn leave(&mut self, units: &[u64]) {
        for &number in units {
            let Some(count) = self.held.get_mut(&number) else { continue };
            *count -= 1;
            if *count == 0 {
                self.held.remove(&number);
                if let Some(bytes) = unit(number) {
                    self.file.leave(&bytes);
                }
            }
        }
    }
}
