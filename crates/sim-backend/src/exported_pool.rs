//! A pool that other processes import: its file, and what is in it.
//!
//! The memory of a chunk moves into the file when an allocation there is exported. What the file
//! says is never read back: other processes can write it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use pagewise_hal::{ExportedPointer, PoolProps, ShareableHandle};

use crate::arena::Arena;
use crate::pool_chunks::POOL_CHUNK_BYTES;
use crate::pool_records::{POINTERS_MAX, PointerRecord, UNITS_AT, set_chunk, set_pointer, unit};
use crate::shared_memory::SharedFile;
use crate::shared_words::{About, Content, Mark};
use crate::space::Allocation;

/// An exported allocation: its place among the records, and its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pointer {
    place: u64,
    id: u64,
}

/// An exported pool.
#[derive(Debug)]
pub(crate) struct ExportedPool {
    file: SharedFile,
    /// Chunks in the file, by address: their number in the pool, and the unit that each has.
    chunks: BTreeMap<u64, (u64, u64)>,
    /// Units that no chunk has.
    free_units: Vec<u64>,
    /// Units of chunks that are gone, which importers may still have.
    left_units: Vec<u64>,
    units: u64,
    /// Exported allocations by address.
    pointers: BTreeMap<u64, Pointer>,
    free_places: Vec<u64>,
    places: u64,
}

impl ExportedPool {
    /// Makes the file of a pool, without memory in it.
    pub(crate) fn new(props: &PoolProps) -> io::Result<Self> {
        let PoolProps { location, handle_types, .. } = *props;
        let about = About { content: Content::Pool, location, bytes: 0, handle_types };
        Ok(Self {
            file: about.create_file(UNITS_AT)?,
            chunks: BTreeMap::new(),
            free_units: Vec::new(),
            left_units: Vec::new(),
            units: 0,
            pointers: BTreeMap::new(),
            free_places: Vec::new(),
            places: 0,
        })
    }

    /// One more descriptor of the pool.
    pub(crate) fn duplicate(&self) -> io::Result<ShareableHandle> {
        self.file.duplicate()
    }

    /// Whether a number is a descriptor of the pool.
    pub(crate) fn is(&self, handle: ShareableHandle) -> bool {
        self.file.is(handle)
    }

    /// The address of the live allocation that a blob names.
    pub(crate) fn address_of(&self, exported: &ExportedPointer) -> Option<u64> {
        let [number, place, id] = Mark::Pointer.words(&exported.0)?;
        let mut known = self.pointers.iter();
        let (&address, _) = known.find(|(_, known)| **known == Pointer { place, id })?;
        (number == self.file.number()).then_some(address)
    }

    /// Exports an allocation: its chunks move into the file. The addresses of the pool start at
    /// `base`.
    pub(crate) fn export(
        &mut self,
        arena: &mut Arena,
        base: u64,
        allocation: &Allocation,
    ) -> io::Result<ExportedPointer> {
        let Allocation { start, bytes, id, .. } = *allocation;
        let pointer = match self.pointers.get(&start) {
            Some(&known) => known,
            None => {
                let offset = start - base;
                let first = offset / POOL_CHUNK_BYTES;
                let end = (offset + bytes).div_ceil(POOL_CHUNK_BYTES);
                (first..end).try_for_each(|chunk| self.take_in(arena, base, chunk))?;
                let place = self.take_place().ok_or(io::ErrorKind::OutOfMemory)?;
                let record = PointerRecord { id, offset, bytes };
                if let Err(error) = set_pointer(&self.file, place, Some(&record)) {
                    self.free_places.push(place);
                    return Err(error);
                }
                let pointer = Pointer { place, id };
                self.pointers.insert(start, pointer);
                pointer
            }
        };
        let words = [self.file.number(), pointer.place, pointer.id];
        Ok(ExportedPointer(Mark::Pointer.blob(words)))
    }

    fn take_place(&mut self) -> Option<u64> {
        if let Some(place) = self.free_places.pop() {
            return Some(place);
        }
        let place = self.places;
        (place < POINTERS_MAX).then(|| {
            self.places += 1;
            place
        })
    }

    /// Moves the memory of a chunk into the file.
    fn take_in(&mut self, arena: &mut Arena, base: u64, chunk: u64) -> io::Result<()> {
        let address = base + chunk * POOL_CHUNK_BYTES;
        if self.chunks.contains_key(&address) {
            return Ok(());
        }
        self.sweep();
        let fresh = self.units;
        let number = self.free_units.last().copied().unwrap_or(fresh);
        let place = unit(number).ok_or(io::ErrorKind::OutOfMemory)?;
        self.file.grow(place.end)?;
        set_chunk(&self.file, chunk, Some(number))?;
        arena.lend(&(address..address + POOL_CHUNK_BYTES), &self.file, place.start)?;
        if self.free_units.pop().is_none() {
            self.units += 1;
        }
        self.chunks.insert(address, (chunk, number));
        Ok(())
    }

    /// An allocation is freed. Nothing of another process begins to use it from now on.
    pub(crate) fn withdraw(&mut self, address: u64) {
        if let Some(Pointer { place, .. }) = self.pointers.remove(&address) {
            // It cannot fail: the record is in the file already.
            let _ = set_pointer(&self.file, place, None);
            self.free_places.push(place);
        }
    }

    /// The pool gives up the memory at these addresses, whole chunks: the arena takes the addresses
    /// back, and importers keep the memory.
    pub(crate) fn give_up(&mut self, addresses: &Range<u64>) {
        let gone: Vec<u64> = self.chunks.range(addresses.clone()).map(|(&at, _)| at).collect();
        for address in gone {
            if let Some((chunk, unit)) = self.chunks.remove(&address) {
                // It cannot fail: the record is in the file already.
                let _ = set_chunk(&self.file, chunk, None);
                self.left_units.push(unit);
            }
        }
        self.sweep();
    }

    /// Frees the units that no importer has any more.
    fn sweep(&mut self) {
        let Self { file, left_units, free_units, .. } = self;
        left_units.retain(|&number| {
            let is_free = unit(number)
                .is_some_and(|bytes| !file.is_held(&bytes) && file.discard(&bytes).is_ok());
            if is_free {
                free_units.push(number);
            }
            !is_free
        });
    }
}
