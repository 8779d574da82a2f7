//! One fault on one page: decide, then act.
//!
//! [`plan`] decides where the page goes and what comes along; [`apply`] moves and maps. Between
//! them the caller provides memory at the destination. The order of effects is that of
//! rules_paging 5: thrashing hint, residency, prefetch tree, duplications, moves, permissions,
//! revocations, mappings of the faulting processor, mappings of accessed-by processors, end of
//! discards. Source of the parts: uvm_policy 2.3 to 2.8.

use pagewise_hal::{CopyCause, FaultAccess, MapCause};

use super::block::{Block, Protection};
use super::context::Context;
use super::mask::PageMask;
use super::moves::Reason;
use super::params::PagingParams;
use super::prefetcher;
use super::processor::ProcId;
use super::residency;
use super::thrash::{self, Hint};

/// What a processor does with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Updates atomically.
    Atomic,
}

impl Access {
    /// Whether the page changes.
    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }

    /// The permission that satisfies the access. The host's writes ask for atomics, a kernel's
    /// atomics only for writing (uvm_policy 2.7, rules_paging 2 rule 5).
    pub(crate) fn needs(self, by: ProcId, params: &PagingParams) -> Protection {
        match self {
            Self::Read => Protection::Read,
            _ if by.is_host() => Protection::Atomic,
            Self::Atomic if !params.weak_atomics_need_write_only => Protection::Atomic,
            Self::Write | Self::Atomic => Protection::Write,
        }
    }
}

impl From<Access> for FaultAccess {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Self::Read,
            Access::Write => Self::Write,
            Access::Atomic => Self::Atomic,
        }
    }
}

impl TryFrom<FaultAccess> for Access {
    type Error = FaultAccess;

    /// Prefetch instructions do not count as accesses.
    fn try_from(access: FaultAccess) -> Result<Self, FaultAccess> {
        match access {
            FaultAccess::Read => Ok(Self::Read),
            FaultAccess::Write => Ok(Self::Write),
            FaultAccess::Atomic => Ok(Self::Atomic),
            other => Err(other),
        }
    }
}

/// What is to be done about a fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    by: ProcId,
    needs: Protection,
    /// Where the pages go.
    pub(super) destination: ProcId,
    /// The faulted page.
    faulted: PageMask,
    /// What the prefetcher adds.
    prefetched: PageMask,
    /// Those that go as further copies.
    duplicated: PageMask,
    pinned: bool,
}

impl Plan {
    /// All pages of the service.
    pub(super) fn pages(&self) -> PageMask {
        self.faulted | self.prefetched
    }
}

/// Decides about a fault of `by` on a page, or says until when `by` has to wait.
pub(super) fn plan(
    context: &mut Context<'_>,
    block: &mut Block,
    page: usize,
    by: ProcId,
    access: Access,
) -> Result<Plan, u64> {
    let hint = thrash::hint(context, block, page, by);
    if let Hint::Throttle { until_ns } = hint {
        return Err(until_ns);
    }
    let selection = residency::select(context, block, page, by, access, hint);
    let destination = selection.destination;
    let faulted = PageMask::single(page);
    let prefetched = prefetcher::pages_to_prefetch(context, block, faulted, destination);
    // Prefetched pages are duplicated wherever reads are, also along with a write
    // (rules_paging 2, detail 2).
    let along = if context.policy.read_mostly { prefetched } else { PageMask::EMPTY };
    let duplicated = if selection.duplicate { faulted | along } else { along };
    let pinned = matches!(hint, Hint::Pin(_));
    let needs = access.needs(by, context.params);
    Ok(Plan { by, needs, destination, faulted, prefetched, duplicated, pinned })
}

/// Carries a plan out.
pub(super) fn apply(context: &mut Context<'_>, block: &mut Block, plan: &Plan) {
    let Plan { by, destination, .. } = *plan;
    let pages = plan.pages();
    let pinned = if plan.pinned { plan.faulted } else { PageMask::EMPTY };
    let reason = Reason { cause: CopyCause::Coherence, prefetched: plan.prefetched, pinned };
    if !plan.duplicated.is_empty() {
        context.duplicate_pages(block, destination, plan.duplicated, &reason);
    }
    let moved = pages.minus(plan.duplicated);
    let arrived = if moved.is_empty() {
        PageMask::EMPTY
    } else {
        context.move_pages(block, destination, moved, &reason)
    };

    let asked = context.promoted(block, by, destination, plan.faulted, plan.needs);
    let along = context.promoted(block, by, destination, plan.prefetched, Protection::Read);
    let levels = [0, 1, 2].map(|level| asked[level] | along[level]);
    for (level, protection) in levels.into_iter().zip(Protection::ALL) {
        let stayed = level.minus(arrived);
        context.revoke_conflicting(block, by, destination, stayed, protection);
    }
    if by.is_host() {
        context.unmap(block, by, pages);
    }
    let cause = if plan.pinned { MapCause::Thrashing } else { MapCause::Policy };
    for (level, protection) in levels.into_iter().zip(Protection::ALL) {
        context.map(block, by, level, protection, Some(cause));
    }
    for (level, protection) in levels.into_iter().zip(Protection::ALL) {
        context.map_accessed_by(block, by, destination, level, protection);
    }
    block.remove_discarded(levels[1] | levels[2]);
}
