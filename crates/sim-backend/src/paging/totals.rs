//! Totals of resident pages on each processor. They are kept up as pages come and go, so that
//! reading them costs the same however much memory there is.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "pages that are there are counted; those that go came before"
)]

use super::block::Block;
use super::processor::ProcId;

/// Pages resident on each processor, all ranges together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Totals(Vec<u64>);

impl Totals {
    /// Totals of 0 pages, for this many processors.
    pub(super) fn new(processors: usize) -> Self {
        Self(vec![0; processors])
    }

    /// Pages on a processor.
    #[cfg(test)]
    pub(super) fn on(&self, id: ProcId) -> u64 {
        self.0.get(id.index()).copied().unwrap_or(0)
    }

    #[inline]
    pub(super) fn came(&mut self, id: ProcId, pages: usize) {
        self.0[id.index()] += pages as u64;
    }

    #[inline]
    pub(super) fn left(&mut self, id: ProcId, pages: usize) {
        self.0[id.index()] -= pages as u64;
    }

    /// A block goes, with its pages.
    pub(super) fn gone(&mut self, block: &Block) {
        for id in block.residents().iter() {
            self.left(id, block.resident(id).count());
        }
    }

    /// The change since; only for [`add`](Self::add).
    pub(super) fn since(&self, before: &Self) -> Self {
        Self(self.0.iter().zip(&before.0).map(|(now, then)| now.wrapping_sub(*then)).collect())
    }

    /// Applies a change to the totals.
    pub(super) fn add(&mut self, change: &Self) {
        // Each block of a long range does it.
        for (index, total) in self.0.iter_mut().enumerate() {
            *total = total.wrapping_add(change.0.get(index).copied().unwrap_or(0));
        }
    }
}
