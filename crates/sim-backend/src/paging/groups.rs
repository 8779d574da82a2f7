//! Pages that an attachment to a stream put in a group of their own.
//!
//! Small allocations share va_blocks. A fault brings grouped pages along only if they are in one run
//! of its group with it; pages in no group always come (PAGING-253). Allocations with a range of
//! their own lie in a group as a whole or not at all, so they are not kept here.
#![allow(clippy::arithmetic_side_effects, reason = "pages of one piece of a block, at most 512")]

use std::collections::BTreeMap;
use std::ops::Range;

use super::block::Block;
use super::mask::PageMask;

/// Which group pages are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// Memory that was attached to a stream or the host and is attached to all again.
    Global,
    /// The group of memory that is attached to one stream.
    Stream(u64),
}

/// Grouped pages, absolute.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<u64, Group>);

impl Groups {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The runs of pages in a group.
    pub(super) fn grouped(&self, group: Group) -> Vec<Range<u64>> {
        let all = runs(self.0.iter()).into_iter();
        all.filter(|(_, other)| *other == group).map(|(run, _)| run).collect()
    }

    /// Puts pages in a group, or takes them out of theirs.
    pub(super) fn put(&mut self, pages: Range<u64>, group: Option<Group>) {
        if let Some(group) = group {
            self.0.extend(pages.map(|page| (page, group)));
        } else {
            // Not one by one: a range may be of any length, and most hold no such page.
            let leaving: Vec<u64> = self.0.range(pages).map(|(page, _)| *page).collect();
            leaving.iter().for_each(|page| _ = self.0.remove(page));
        }
    }

    /// The pages of a block that faults on these pages of it leave alone.
    pub(super) fn left_alone(&self, block: &Block, faulted: PageMask) -> PageMask {
        let Range { start, end } = block.pages();
        let mut left = PageMask::EMPTY;
        if self.0.is_empty() {
            return left;
        }
        for (run, _) in runs(self.0.range(start..end)) {
            let run = PageMask::range((run.start - start) as usize..(run.end - start) as usize);
            if (run & faulted).is_empty() {
                left |= run;
            }
        }
        left
    }
}

/// Adjacent pages of one group.
fn runs<'a>(pages: impl Iterator<Item = (&'a u64, &'a Group)>) -> Vec<(Range<u64>, Group)> {
    let mut runs: Vec<(Range<u64>, Group)> = Vec::new();
    for (&page, &group) in pages {
        match runs.last_mut() {
            Some((last, other)) if last.end == page && *other == group => last.end += 1,
            _ => runs.push((page..page + 1, group)),
        }
    }
    runs
}
