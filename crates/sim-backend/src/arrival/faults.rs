//! Faults, and the batches in which the driver reads them.

/// A fault of a walk on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct RaisedFault {
    pub(crate) page: u64,
    /// The number of the walk.
    pub(crate) walk: usize,
}

/// Faults that the driver services together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FaultBatch {
    /// The pages with the walks that fault on them, ascending, each pair once.
    pub(crate) raised: Vec<RaisedFault>,
    /// Faults on the first of them.
    pub(crate) merged: u64,
    /// Faults in all.
    pub(crate) faults: u64,
}

#[allow(
    clippy::arithmetic_side_effects,
    reason = "a batch has as many faults as were read; pages are of live memory"
)]
impl FaultBatch {
    pub(crate) fn of(mut raised: Vec<RaisedFault>) -> Self {
        let faults = raised.len() as u64;
        // As one number, faults are compared without a branch.
        let place = |fault: &RaisedFault| u128::from(fault.page) << 64 | fault.walk as u128;
        raised.sort_unstable_by_key(place);
        let on_first = |fault: &&RaisedFault| Some(fault.page) == raised.first().map(|f| f.page);
        let merged = raised.iter().take_while(on_first).count() as u64;
        raised.dedup();
        Self { raised, merged, faults }
    }

    /// The pages, ascending, each once.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u64> {
        self.raised.chunk_by(|a, b| a.page == b.page).map(|faults| faults[0].page)
    }

    pub(super) fn duplicate_percent(&self) -> u32 {
        let duplicates = self.faults - self.pages().count() as u64;
        (duplicates * 100).div_ceil(self.faults.max(1)) as u32
    }

    /// The va_blocks that it touches.
    pub(super) fn blocks(&self) -> u64 {
        let block =
            |fault: &RaisedFault| fault.page * pagewise_hal::PAGE_BYTES / pagewise_hal::BLOCK_BYTES;
        self.raised.chunk_by(|a, b| block(a) == block(b)).count() as u64
    }
}
