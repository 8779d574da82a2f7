//! Pages that an attachment to a stream put in a group of their own.
//!
//! Small allocations share va_blocks. A fault outside all groups does not bring grouped pages
//! along; a fault on a grouped page brings its neighbours as always (observed on an H200 under
//! driver 580, on slabs with attached and other allocations). Allocations with a range of their own
//! lie in a group as a whole or not at all, so they are not kept here.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Paging;
use super::block::Block;
use super::mask::PageMask;

/// Grouped pages, absolute.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeSet<u64>);

impl Groups {
    /// The pages of a block that faults on these pages of it leave alone.
    pub(super) fn left_alone(&self, block: &Block, faulted: PageMask) -> PageMask {
        let mut grouped = PageMask::EMPTY;
        let Range { start, end } = block.pages();
        self.0.range(start..end).for_each(|page| grouped.insert((page - start) as usize));
        if (grouped & faulted).is_empty() { grouped } else { PageMask::EMPTY }
    }
}

impl Paging {
    /// Puts pages in a group, or takes them out of theirs.
    pub(crate) fn group(&mut self, pages: Range<u64>, grouped: bool) {
        if grouped {
            self.groups.0.extend(pages);
        } else {
            // Not one by one: a range may be of any length, and most hold no such page.
            let leaving: Vec<u64> = self.groups.0.range(pages).copied().collect();
            leaving.iter().for_each(|page| _ = self.groups.0.remove(page));
        }
    }
}
