//! The faults of one processor on pages of one block: decide, then act.
//!
//! [`plan`] decides where the pages go and what comes along; [`apply`] moves and maps. Between
//! them the caller provides memory at the destination. The order of effects is that of PAGING-21:
//! thrashing hint, residency, prefetch tree, duplications, moves, permissions, revocations,
//! mappings of the faulting processor, mappings of accessed-by processors, end of discards.

use pagewise_hal::{CopyCause, MapCause};

use super::access::Access;
use super::block::Block;
use super::context::Context;
use super::mask::PageMask;
use super::moves::Reason;
use super::prefetcher;
use super::processor::{ProcId, ProcSet};
use super::protection::Protection;
use super::residency;
use super::thrash::{self, Hint};

/// The plan for faults with pages that go to one processor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    by: ProcId,
    needs: Protection,
    /// Where the pages go.
    pub(super) destination: ProcId,
    /// The faulted pages.
    pub(super) faulted: PageMask,
    /// Pages that the prefetcher adds.
    prefetched: PageMask,
    /// Pages that are duplicated, not moved.
    duplicated: PageMask,
    /// Faulted pages that thrash and are held where they go.
    pinned: PageMask,
}

impl Plan {
    fn new(by: ProcId, needs: Protection, destination: ProcId) -> Self {
        let none = PageMask::EMPTY;
        let (faulted, prefetched, duplicated, pinned) = (none, none, none, none);
        Self { by, needs, destination, faulted, prefetched, duplicated, pinned }
    }

    /// All pages of the service.
    pub(super) fn pages(&self) -> PageMask {
        self.faulted | self.prefetched
    }
}

/// The plan for faults on pages of one block.
#[derive(Debug, Clone, Default)]
pub(super) struct Plans {
    /// Usually the only one.
    first: Option<Plan>,
    others: Vec<Plan>,
    /// Pages on which the processor has to wait.
    pub(super) throttled: PageMask,
    /// Until when, for the page that is free first.
    pub(super) until_ns: Option<u64>,
}

impl Plans {
    /// In the order in which they are carried out: by destination, host first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Plan> {
        self.first.iter().chain(&self.others)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Plan> {
        self.first.iter_mut().chain(&mut self.others)
    }

    /// The plan for a destination, which `new` begins if there is none.
    fn towards(&mut self, destination: ProcId, new: impl FnOnce() -> Plan) -> &mut Plan {
        let (first, others) = (&mut self.first, &mut self.others);
        if first.as_ref().is_some_and(|first| destination < first.destination) {
            others.splice(..0, first.take());
        }
        let at = match &first {
            Some(first) if first.destination != destination => {
                others.partition_point(|plan| plan.destination < destination)
            }
            _ => return first.get_or_insert_with(new),
        };
        if others.get(at).is_none_or(|plan| plan.destination != destination) {
            others.insert(at, new());
        }
        &mut others[at]
    }
}

/// Decides about faults of `by` on pages of a block, all of the same kind. The prefetcher adds
/// pages only if all go to the same place (PAGING-100).
pub(super) fn plan(
    context: &mut Context<'_>,
    block: &mut Block,
    faulted: PageMask,
    by: ProcId,
    access: Access,
) -> Plans {
    let mut plans = Plans::default();
    let needs = access.needs(by, context.params);
    for page in faulted.pages() {
        let hint = thrash::hint(context, block, page, by);
        if let Hint::Throttle { until_ns } = hint {
            plans.throttled.insert(page);
            plans.until_ns = Some(plans.until_ns.map_or(until_ns, |other| other.min(until_ns)));
            continue;
        }
        let selection = residency::select(context, block, page, by, access, hint);
        let destination = selection.destination;
        let plan = plans.towards(destination, || Plan::new(by, needs, destination));
        plan.faulted.insert(page);
        if selection.duplicate {
            plan.duplicated.insert(page);
        }
        if matches!(hint, Hint::Pin(_)) {
            plan.pinned.insert(page);
        }
    }
    let alone = plans.others.is_empty();
    for plan in plans.iter_mut().filter(|_| alone) {
        plan.prefetched = prefetcher::pages_to_prefetch(
            context.by_policy(),
            block,
            plan.faulted,
            plan.destination,
        );
        // Prefetched pages are duplicated wherever reads are, also along with a write (PAGING-67).
        if context.policy.read_mostly {
            plan.duplicated.insert_mask(plan.prefetched);
        }
    }
    plans
}

/// Carries a plan out.
pub(super) fn apply(context: &mut Context<'_>, block: &mut Block, plan: &Plan) {
    let &Plan { by, destination, prefetched, pinned, .. } = plan;
    let pages = plan.pages();
    let reason = Reason { cause: CopyCause::Coherence, prefetched, pinned };
    if !plan.duplicated.is_empty() {
        context.duplicate_pages(block, destination, plan.duplicated, &reason);
    }
    let moved = pages.minus(plan.duplicated);
    let arrived = if moved.is_empty() {
        PageMask::EMPTY
    } else {
        context.move_pages(block, destination, moved, &reason)
    };

    // Pages of the prefetch region are mapped as if they were read.
    let mut levels = context.promoted(block, by, destination, plan.faulted, plan.needs);
    if !prefetched.is_empty() {
        let read = context.promoted(block, by, destination, prefetched, Protection::Read);
        levels.iter_mut().zip(read).for_each(|(level, read)| *level |= read);
    }
    // Most faults map all of their pages to one level.
    let used = |level: &(&PageMask, Protection)| !level.0.is_empty();
    let levels_used = || levels.iter().zip(Protection::ALL).filter(used);
    for (level, protection) in levels_used() {
        let stayed = level.minus(arrived);
        context.revoke_conflicting(block, by, destination, stayed, protection);
    }
    if by.is_host() {
        context.unmap(block, by, pages);
    }
    for (level, protection) in levels_used() {
        if !pinned.is_empty() {
            context.map(block, by, *level & pinned, protection, Some(MapCause::Thrashing));
        }
        context.map(block, by, level.minus(pinned), protection, Some(MapCause::Policy));
    }
    let others_follow = context.policy.accessed_by != ProcSet::EMPTY || !pinned.is_empty();
    for (level, protection) in levels_used().filter(|_| others_follow) {
        let who = (by, destination);
        for page in (*level & pinned).pages() {
            let thrashing = thrash::processors(block, page);
            context.map_others(block, who, PageMask::single(page), protection, thrashing);
        }
        context.map_others(block, who, level.minus(pinned), protection, ProcSet::EMPTY);
    }
    block.remove_discarded(levels[1] | levels[2]);
    context.mark_if_all_discarded(block, by);
}

#[cfg(test)]
mod tests {
    use super::super::params::PagingParams;
    use super::super::testing::{Heard, heard_in};
    use super::super::{Discard, GpuMemory, Paging, Relations, WorkCause};
    use super::*;
    use crate::GpuProfile;
    use crate::paging::range::Policy;
    use pagewise_hal::{MemoryEvent, Processor};

    const HOST: Processor = Processor::HOST;
    const GPU0: Processor = Processor::device(0);

    /// One block on a machine with one GPU.
    fn paging() -> Paging {
        let gpus = [GpuMemory { capacity_bytes: 1 << 30 }];
        let relations = Relations::pcie_with_nvlink(1);
        let mut paging = Paging::new(GpuProfile::h200().paging, &gpus, relations);
        paging.create_range(0, 512);
        paging
    }

    /// Pages that a migration of the block to a processor copies, by the access that `by` made to
    /// page 7 after the whole block was discarded.
    fn copied_after(by: Processor, access: Access, home: Option<Processor>, to: Processor) -> u64 {
        let mut paging = paging();
        paging.set_preferred(0..512, home, 0, &mut Vec::new());
        paging.migrate(0..512, HOST, 0, &mut Vec::new());
        paging.discard(0..512, Discard::Eager, 0, &mut Vec::new());
        paging.touch(by, 7, access, 0, &mut Vec::new());
        let mut records: Vec<MemoryEvent> = Vec::new();
        paging.migrate(0..512, to, 0, &mut records);
        let bytes = |record: &MemoryEvent| match record {
            MemoryEvent::Copy { bytes, .. } => *bytes,
            _ => 0,
        };
        records.iter().map(bytes).sum::<u64>() / 4096
    }

    #[test]
    fn a_write_ends_a_discard_wherever_the_page_is_and_a_read_does_not() {
        // PAGING-194.
        for (by, home, to) in [(GPU0, None, HOST), (GPU0, Some(HOST), GPU0), (HOST, None, GPU0)] {
            assert_eq!(copied_after(by, Access::Write, home, to), 1, "{by} at {home:?}");
            assert_eq!(copied_after(by, Access::Read, home, to), 0, "{by} at {home:?}");
        }
    }

    #[test]
    fn the_host_takes_a_page_out_of_its_table_before_it_maps_it_with_more_permission() {
        // PAGING-23.
        let mut paging = paging();
        paging.set_read_mostly(0..512, true, 0, &mut Vec::new());
        paging.touch(HOST, 3, Access::Read, 0, &mut Vec::new());
        let mut heard = Heard::default();
        paging.touch(HOST, 3, Access::Write, 0, &mut heard);
        let faults: Vec<_> =
            heard.work.iter().filter(|work| work.cause == WorkCause::Fault).collect();
        let [fault] = faults[..] else { panic!("{faults:?}") };
        assert_eq!((fault.unmaps_host, fault.pages_unmapped_host), (1, 1));
        assert_eq!(fault.pages_mapped_host, 1);
    }

    #[test]
    fn faults_on_several_held_pages_wait_for_the_one_that_is_free_first() {
        let params = GpuProfile::h200().paging;
        let (nap_ns, stamp_ns) = (params.thrashing.nap_ns, params.thrashing.stamp_ns);
        let gpu = ProcId(1);
        for pages in [[0, 9], [9, 0]] {
            let (plans, _) = heard_in(&params, Policy::default(), |context| {
                let mut block = Block::new(0, 512);
                for page in pages {
                    thrash::tests::make_thrashing(context, &mut block, page, &[gpu, ProcId::HOST]);
                }
                // The host's turn at each, one after the other: the GPU has to wait.
                for (turn, page) in pages.into_iter().enumerate() {
                    context.now_ns = (turn as u64 + 1) * stamp_ns;
                    thrash::hint(context, &mut block, page, ProcId::HOST);
                }
                let faulted = PageMask::single(0) | PageMask::single(9);
                plan(context, &mut block, faulted, gpu, Access::Write)
            });
            assert_eq!(plans.throttled.count(), 2);
            let until_ns = (stamp_ns + nap_ns) / stamp_ns * stamp_ns;
            assert_eq!(plans.until_ns, Some(until_ns), "page {} is free first", pages[0]);
        }
    }

    #[test]
    fn the_host_asks_for_atomics_whenever_it_writes_and_a_device_only_where_it_has_to() {
        // uvm_policy 2.7, rules_paging 2 rule 5.
        let needs = |by: ProcId, weak_atomics_need_write_only: bool| {
            let params = PagingParams { weak_atomics_need_write_only, ..GpuProfile::h200().paging };
            [Access::Read, Access::Write, Access::Atomic].map(|access| access.needs(by, &params))
        };
        for weak in [false, true] {
            let host = [Protection::Read, Protection::Atomic, Protection::Atomic];
            assert_eq!(needs(ProcId::HOST, weak), host);
        }
        let device = |atomic| [Protection::Read, Protection::Write, atomic];
        assert_eq!(needs(ProcId(1), true), device(Protection::Write));
        assert_eq!(needs(ProcId(1), false), device(Protection::Atomic));
    }

    #[test]
    fn plans_are_one_for_each_destination_in_ascending_order() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut plans = Plans::default();
            for (page, id) in order.into_iter().chain(order).enumerate() {
                let destination = ProcId(id);
                let new = || Plan::new(ProcId::HOST, Protection::Read, destination);
                plans.towards(destination, new).faulted.insert(page);
            }
            let planned: Vec<_> =
                plans.iter().map(|plan| (plan.destination, plan.faulted.count())).collect();
            assert_eq!(planned, [(ProcId(0), 2), (ProcId(1), 2), (ProcId(2), 2)], "{order:?}");
        }
    }
}
