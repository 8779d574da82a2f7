//! Memory that the process shares with other processes: exported pools and imported ones.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use pagewise_hal::{PoolHandle, SHARED_BLOB_BYTES, ShareableHandle};

use crate::descriptor::Descriptor;

/// Memory that the process shares, with itself.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    pub(crate) exports: BTreeMap<PoolHandle, Descriptor>,
    /// Imported pools, and the pools that they are.
    pub(crate) imports: BTreeMap<PoolHandle, PoolHandle>,
    /// Addresses of imported allocations.
    pub(crate) mapped: BTreeSet<u64>,
}

impl Sharing {
    /// One more handle of a pool.
    pub(crate) fn export(&mut self, pool: PoolHandle) -> io::Result<ShareableHandle> {
        let descriptor = match self.exports.entry(pool) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Descriptor::new()?),
        };
        descriptor.duplicate()
    }
}

/// A blob says which allocation of which pool it is.
pub(crate) fn blob(words: [u64; 2]) -> [u8; SHARED_BLOB_BYTES] {
    let mut bytes = [0; SHARED_BLOB_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
