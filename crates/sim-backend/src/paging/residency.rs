//! The selection of a residency: the processor that a faulted page goes to.
//!
//! PAGING-40 to PAGING-47 in their order. Steps for memory that is not managed by the driver, for
//! other processes and for access counters are not modelled. Changes nothing.

use super::access::Access;
use super::block::Block;
use super::context::Context;
use super::processor::ProcId;
use super::thrash::Hint;

/// Where a page goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Selection {
    /// The processor that will hold the page.
    pub(super) destination: ProcId,
    /// Whether the copies elsewhere stay.
    pub(super) duplicate: bool,
}

/// Selects the residency of a page on which `by` faulted.
pub(super) fn select(
    context: &Context<'_>,
    block: &Block,
    page: usize,
    by: ProcId,
    access: Access,
    hint: Hint,
) -> Selection {
    if context.policy.read_mostly {
        // PAGING-40, PAGING-41: reads copy; writes collapse to the writer.
        return Selection { destination: by, duplicate: !access.writes() };
    }
    let destination = destination(context, block, page, by, hint);
    Selection { destination, duplicate: false }
}

fn destination(
    context: &Context<'_>,
    block: &Block,
    page: usize,
    by: ProcId,
    hint: Hint,
) -> ProcId {
    let (policy, relations) = (&context.policy, context.relations);
    if policy.preferred == Some(by) {
        return by; // PAGING-42
    }
    if let Hint::Pin(pinned) = hint {
        return pinned; // PAGING-43
    }
    let reachable_home = policy.preferred.filter(|home| relations.can_access(by, *home));
    let Some(closest) = relations.closest(by, block.residents_of(page)) else {
        return reachable_home.unwrap_or(by); // PAGING-44
    };
    if policy.accessed_by.contains(by) && relations.can_access(by, closest) {
        return closest; // PAGING-45
    }
    if closest != by
        && let Some(home) = reachable_home
    {
        return home; // PAGING-46
    }
    by // PAGING-47
}

#[cfg(test)]
mod tests {
    use super::super::mask::PageMask;
    use super::super::processor::ProcSet;
    use super::super::range::Policy;
    use super::super::testing::with_context;
    use super::*;

    const HOST: ProcId = ProcId::HOST;
    const GPU0: ProcId = ProcId(1);
    const GPU1: ProcId = ProcId(2);

    /// Where page 0, resident on `at`, goes when `by` reads it.
    fn goes(policy: Policy, at: &[ProcId], by: ProcId) -> ProcId {
        selection(policy, at, by, Access::Read).destination
    }

    fn selection(policy: Policy, at: &[ProcId], by: ProcId, access: Access) -> Selection {
        let mut block = Block::new(0, 512);
        at.iter().for_each(|id| block.add_resident(*id, PageMask::single(0)));
        with_context(policy, |context| select(context, &block, 0, by, access, Hint::None))
    }

    fn preferred(id: ProcId) -> Policy {
        Policy { preferred: Some(id), ..Policy::default() }
    }

    #[test]
    fn without_policy_the_page_comes_to_the_toucher() {
        assert_eq!(goes(Policy::default(), &[HOST], GPU0), GPU0);
        assert_eq!(goes(Policy::default(), &[GPU0], HOST), HOST);
        assert_eq!(goes(Policy::default(), &[], GPU0), GPU0);
    }

    #[test]
    fn a_preferred_location_keeps_or_draws_the_page_if_the_toucher_reaches_it() {
        assert_eq!(goes(preferred(HOST), &[], GPU0), HOST);
        assert_eq!(goes(preferred(HOST), &[HOST], GPU0), HOST);
        assert_eq!(goes(preferred(HOST), &[GPU0], GPU0), GPU0);
        assert_eq!(goes(preferred(GPU0), &[HOST], GPU0), GPU0);
        assert_eq!(goes(preferred(GPU0), &[GPU0], HOST), HOST);
        assert_eq!(goes(preferred(GPU0), &[HOST], GPU1), GPU0);
    }

    #[test]
    fn accessed_by_maps_where_the_page_is_but_does_not_place_it() {
        let policy = Policy { accessed_by: ProcSet::single(GPU0), ..Policy::default() };
        assert_eq!(goes(policy, &[HOST], GPU0), HOST);
        assert_eq!(goes(policy, &[], GPU0), GPU0);
    }

    #[test]
    fn read_mostly_copies_on_reads_and_collapses_to_the_writer() {
        let policy = Policy { read_mostly: true, ..preferred(HOST) };
        let read = selection(policy, &[HOST], GPU0, Access::Read);
        assert_eq!(read, Selection { destination: GPU0, duplicate: true });
        let write = selection(policy, &[HOST, GPU0], GPU1, Access::Write);
        assert_eq!(write, Selection { destination: GPU1, duplicate: false });
    }

    #[test]
    fn a_pin_wins_over_everything_but_the_own_preferred_location() {
        let block = Block::new(0, 512);
        let hint = Hint::Pin(HOST);
        let pinned = |policy| {
            with_context(policy, |context| select(context, &block, 0, GPU0, Access::Read, hint))
        };
        assert_eq!(pinned(preferred(GPU1)).destination, HOST);
        assert_eq!(pinned(preferred(GPU0)).destination, GPU0);
    }
}
