//! Address space of machines that went, kept for the next ones: a replay makes one for each case.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::MmapRaw;

/// Mappings that nothing wrote, so that all of their bytes are zero.
pub(super) struct Spare(Mutex<Vec<MmapRaw>>);

/// Those of the process.
pub(super) static SPARE: Spare = Spare::new();

impl Spare {
    /// Most mappings that are kept: those of a machine with all kinds of memory.
    const MOST: usize = 4;
    /// Bytes of the longest mapping that is kept: few programs ask for more at once.
    const LONGEST: usize = 1 << 40;

    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn kept(&self) -> MutexGuard<'_, Vec<MmapRaw>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a mapping of so many bytes, if one is kept.
    pub(super) fn take(&self, bytes: usize) -> Option<MmapRaw> {
        let mut kept = self.kept();
        let at = kept.iter().position(|map| map.len() == bytes)?;
        Some(kept.swap_remove(at))
    }

    /// Keeps a mapping that nothing wrote, if there is room.
    pub(super) fn keep(&self, map: MmapRaw) {
        let mut kept = self.kept();
        if kept.len() < Self::MOST && map.len() <= Self::LONGEST {
            kept.push(map);
        }
    }

    /// Gives all address space back to the process.
    pub(super) fn release(&self) {
        self.kept().clear();
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapOptions;
    use pagewise_hal::BLOCK_BYTES;

    use super::*;
    use crate::arena::{Arena, Zone};
    use crate::config::MemoryContents;

    fn map(pages: usize) -> MmapRaw {
        MmapOptions::new().len(pages << 12).map_anon().expect("address space").into()
    }

    #[test]
    fn a_mapping_serves_again_for_its_length_and_four_are_kept_until_they_are_released() {
        let spare = Spare::new();
        let first = map(1);
        let address = first.as_ptr();
        spare.keep(first);
        assert!(spare.take(2 << 12).is_none());
        assert_eq!(spare.take(1 << 12).map(|map| map.as_ptr()), Some(address));
        assert!(spare.take(1 << 12).is_none());
        (1..=5).for_each(|pages| spare.keep(map(pages)));
        assert!(spare.take(5 << 12).is_none() && spare.take(4 << 12).is_some());
        spare.release();
        assert!(spare.kept().is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "reserves 24 GiB")]
    fn memory_that_a_machine_wrote_does_not_serve_the_next() {
        // No other test asks for as many bytes.
        let bytes = 12_347 * BLOCK_BYTES;
        for _ in 0..3 {
            let mut arena = Arena::new(MemoryContents::Described, None);
            let start = arena.grow(Zone::Managed, bytes, bytes).expect("address space").start;
            arena.expose();
            assert_eq!(arena.sum_strided(start, BLOCK_BYTES, 1), 0);
            arena.fill(start, BLOCK_BYTES, &[7]);
        }
    }
}
