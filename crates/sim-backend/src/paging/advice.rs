//! The effect of advice on the blocks that exist. It creates no block and, except at the end of
//! read duplication, moves no page.
//!
//! The caller has split the ranges and sets the policy; which policy a function sees matters and
//! is said there. PAGING-150 to PAGING-156 are the driver's rules.

use pagewise_hal::{CopyCause, MapCause};

use super::block::Block;
use super::context::Context;
use super::mask::PageMask;
use super::moves::Reason;
use super::processor::ProcId;
use super::protection::Protection;
use super::range::Policy;
use super::report::Advised;

/// An advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyChange {
    /// Where pages should be; `None` withdraws it.
    Preferred(Option<ProcId>),
    /// Whether a processor should keep a mapping.
    AccessedBy(ProcId, bool),
    /// Whether reads make copies.
    ReadMostly(bool),
}

impl PolicyChange {
    /// Whether the advice acts again on a range that has it already. Accessed-by maps all of such
    /// a range anew, also the part of it that the call does not name.
    pub(super) fn repeats(self) -> bool {
        matches!(self, Self::AccessedBy(_, true))
    }

    /// The name of the advice in reports of work.
    pub(super) fn advised(self) -> Advised {
        match self {
            Self::Preferred(Some(to)) if !to.is_host() => Advised::PreferredDevice,
            Self::Preferred(_) => Advised::PreferredElsewhere,
            Self::AccessedBy(_, false) => Advised::AccessedByEnd,
            Self::AccessedBy(by, true) if by.is_host() => Advised::AccessedByHost,
            Self::AccessedBy(_, true) => Advised::AccessedByDevice,
            Self::ReadMostly(true) => Advised::ReadMostly,
            Self::ReadMostly(false) => Advised::ReadMostlyEnd,
        }
    }

    /// The policy after the advice.
    pub(super) fn apply(self, policy: &Policy) -> Policy {
        let mut policy = *policy;
        match self {
            Self::Preferred(to) => policy.preferred = to,
            Self::AccessedBy(by, true) => policy.accessed_by.insert(by),
            Self::AccessedBy(by, false) => policy.accessed_by.remove(by),
            Self::ReadMostly(on) => policy.read_mostly = on,
        }
        policy
    }
}

impl Context<'_> {
    /// Counts what an advice is about to look at in a block. Accessed-by does not look at
    /// read-mostly blocks.
    pub(super) fn count_advised(&mut self, block: &Block, advice: PolicyChange) {
        if self.policy.read_mostly && matches!(advice, PolicyChange::AccessedBy(..)) {
            return;
        }
        self.work.blocks = 1;
        let valid = block.resident_anywhere().minus(block.discarded());
        let on_host = block.resident(ProcId::HOST);
        self.work.pages_held_host = (valid & on_host).count() as u64;
        self.work.pages_held_device = valid.minus(on_host).count() as u64;
        if advice == PolicyChange::ReadMostly(false) {
            self.work.pages_collapsed = block.duplicated().count() as u64;
        }
    }

    /// Does to a block what an advice that changed its range's policy does. The policy in sight is
    /// the new one, except at the end of read duplication.
    pub(super) fn advised(
        &mut self,
        block: &mut Block,
        advice: PolicyChange,
        old_preferred: Option<ProcId>,
    ) {
        match advice {
            PolicyChange::Preferred(_) => self.preferred_changed(block, old_preferred),
            PolicyChange::AccessedBy(by, true) => self.accessed_by_added(block, by),
            PolicyChange::AccessedBy(_, false) => {}
            PolicyChange::ReadMostly(true) => self.read_mostly_set(block),
            PolicyChange::ReadMostly(false) => self.read_mostly_unset(block),
        }
    }

    /// The preferred location changed from `old`; the policy is the new one already (PAGING-150,
    /// PAGING-151).
    fn preferred_changed(&mut self, block: &mut Block, old: Option<ProcId>) {
        if self.policy.read_mostly {
            return;
        }
        if let Some(old) = old.filter(|old| self.policy.accessed_by.contains(*old)) {
            self.accessed_by_added(block, old);
        }
        if let Some(new) = self.policy.preferred {
            let remote = block.mapped(new, Protection::Read).minus(block.resident(new));
            self.unmap(block, new, remote);
        }
    }

    /// Maps what is resident for a processor of the accessed-by set: one that joined it
    /// (PAGING-152), or all of them after an eviction (EVICTION-20).
    pub(super) fn accessed_by_added(&mut self, block: &mut Block, id: ProcId) {
        if self.policy.read_mostly {
            return;
        }
        let pages = block.resident_anywhere().minus(block.duplicated()).minus(block.discarded());
        self.map_highest(block, id, pages, Some(MapCause::Policy));
    }

    /// Read duplication begins; the policy is the new one already. Holders keep their pages, to
    /// read; remote mappings go (PAGING-154).
    fn read_mostly_set(&mut self, block: &mut Block) {
        for holder in block.residents().iter() {
            let held = block.resident(holder);
            self.duplicate_pages(block, holder, held, &Reason::of(CopyCause::User));
        }
    }

    /// Read duplication ends; the policy is still the old one, so accessed-by processors get back
    /// mappings of their own memory only (PAGING-156).
    fn read_mostly_unset(&mut self, block: &mut Block) {
        let duplicated = block.duplicated();
        self.collapse(block, duplicated);
        for id in self.policy.accessed_by.iter() {
            let pages = block.resident(id).minus(block.discarded());
            self.map_highest(block, id, pages, Some(MapCause::Policy));
        }
    }

    /// Leaves one copy of duplicated pages: the preferred location's if it has one, else that of
    /// the processor with the lowest number (PAGING-155).
    fn collapse(&mut self, block: &mut Block, duplicated: PageMask) {
        let mut left = duplicated;
        let holders = block.residents();
        let home = self.policy.preferred.filter(|home| holders.contains(*home));
        for id in home.into_iter().chain(holders.iter()) {
            let kept = left & block.resident(id);
            if !kept.is_empty() {
                self.move_pages(block, id, kept, &Reason::of(CopyCause::User));
                left = left.minus(kept);
            }
        }
    }
}
