//! The heap of a device: memory that kernels get by `malloc`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagewise_hal::{DeviceId, Result};

/// The alignment of what `malloc` gives, in bytes.
const ALIGNMENT: u64 = 16;

/// The heaps of a machine, by device. A device has one from its first kernel that uses one on.
#[derive(Debug, Default)]
pub(crate) struct Heaps(Mutex<BTreeMap<i32, Arc<Mutex<Heap>>>>);

impl Heaps {
    /// The heap of a device. `make` gives the memory of a new one, and its bytes.
    pub(super) fn of(
        &self,
        device: DeviceId,
        make: impl FnOnce() -> Result<(u64, u64)>,
    ) -> Result<Arc<Mutex<Heap>>> {
        let mut heaps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(heap) = heaps.get(&device.0) {
            return Ok(Arc::clone(heap));
        }
        let (start, bytes) = make()?;
        let heap = Arc::new(Mutex::new(Heap::new(start, bytes)));
        heaps.insert(device.0, Arc::clone(&heap));
        Ok(heap)
    }
}

/// The heap, for one use.
pub(super) fn lock(heap: &Mutex<Heap>) -> MutexGuard<'_, Heap> {
    heap.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A heap: one piece of device memory.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    /// Free ranges by first address, with their bytes. No two are adjacent.
    free: BTreeMap<u64, u64>,
    /// Bytes by first address of what is in use.
    used: BTreeMap<u64, u64>,
}

impl Heap {
    /// A heap of memory that nothing uses.
    pub(crate) fn new(start: u64, bytes: u64) -> Self {
        Self { free: BTreeMap::from([(start, bytes)]), used: BTreeMap::new() }
    }

    /// The first free range that is long enough; `None` for no bytes, or without room.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).filter(|bytes| *bytes > 0)?;
        let (&start, &room) = self.free.iter().find(|(_, room)| **room >= bytes)?;
        self.free.remove(&start);
        if room > bytes {
            self.free.insert(start.saturating_add(bytes), room.saturating_sub(bytes));
        }
        self.used.insert(start, bytes);
        Some(start)
    }

    /// Frees what `allocate` gave. False if it never gave the address, or if it is free already.
    pub(crate) fn free(&mut self, address: u64) -> bool {
        let Some(mut bytes) = self.used.remove(&address) else { return false };
        let mut start = address;
        if let Some((&before, &room)) = self.free.range(..address).next_back()
            && before.saturating_add(room) == address
        {
            self.free.remove(&before);
            (start, bytes) = (before, bytes.saturating_add(room));
        }
        if let Some(room) = self.free.remove(&start.saturating_add(bytes)) {
            bytes = bytes.saturating_add(room);
        }
        self.free.insert(start, bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_is_whole_again() {
        let mut heap = Heap::new(0x1000, 256);
        let all: Vec<u64> = std::iter::from_fn(|| heap.allocate(20)).collect();
        assert_eq!(all, (0..8).map(|nth| 0x1000 + 32 * nth).collect::<Vec<_>>());
        for address in [3, 1, 2, 0, 7, 5, 4, 6].map(|nth| all[nth]) {
            assert!(heap.free(address) && !heap.free(address));
        }
        assert_eq!(heap.allocate(256), Some(0x1000));
    }

    #[test]
    fn no_bytes_and_too_many_have_no_place() {
        let mut heap = Heap::new(0x1000, 64);
        assert_eq!(
            (heap.allocate(0), heap.allocate(65), heap.allocate(u64::MAX)),
            (None, None, None)
        );
        assert!(!heap.free(0x1000));
    }
}
