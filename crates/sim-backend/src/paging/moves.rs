//! Moves and copies of pages within one va_block, and their records.
//!
//! A *move* leaves the pages on the destination alone; a *duplication* leaves the other copies.
//! Both unmap first, copy second, and settle residency last (PAGING-60 to PAGING-66). Nothing
//! is mapped here.
#![allow(clippy::arithmetic_side_effects, reason = "one step counts pages of one block")]

use std::ops::Range;

use pagewise_hal::{CopyCause, MemoryEvent, PAGE_BYTES};

use super::block::Block;
use super::chunks::List;
use super::context::Context;
use super::mask::{Counts, PAGES, PageMask};
use super::processor::ProcId;
use super::protection::Protection;
use super::report::{CopySums, Holding};
use super::thrash::{self, ThrashingEvent};

/// The reason of a move, and the pages that only the prefetcher added.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reason {
    /// Cause of the pages that were not prefetched.
    pub(super) cause: CopyCause,
    /// Pages that the prefetcher added.
    pub(super) prefetched: PageMask,
    /// Pages that go to where thrashing detection pinned them; these moves do not count as
    /// thrashing.
    pub(super) pinned: PageMask,
}

impl Reason {
    /// For pages that were all asked for.
    pub(super) fn of(cause: CopyCause) -> Self {
        Self { cause, prefetched: PageMask::EMPTY, pinned: PageMask::EMPTY }
    }

    /// Whether a processor's accesses made the pages move.
    #[inline]
    fn is_by_fault(&self) -> bool {
        matches!(self.cause, CopyCause::Coherence | CopyCause::AccessCounters)
    }
}

impl Context<'_> {
    /// Makes `destination` the only holder of pages. Returns the pages that moved.
    pub(super) fn move_pages(
        &mut self,
        block: &mut Block,
        destination: ProcId,
        pages: PageMask,
        reason: &Reason,
    ) -> PageMask {
        let arriving = pages.minus(block.resident(destination));
        let duplicated = block.duplicated() & pages;
        for id in block.mappers().iter() {
            // Duplicated pages stay mapped at the destination (PAGING-60).
            let unmap = if id == destination { arriving } else { arriving | duplicated };
            self.unmap(block, id, unmap);
        }
        self.populate(block, destination, pages);
        self.copy_pages(block, destination, arriving, reason, false);
        let copied = arriving & block.resident_anywhere().minus(block.discarded());
        for id in block.residents().without(destination).iter() {
            self.leave(block, id, pages);
        }
        self.arrive(block, destination, arriving, copied);
        if !duplicated.is_empty() {
            block.remove_duplicated(duplicated);
        }
        self.mark_if_held(block, destination);
        arriving
    }

    /// Gives `destination` a copy of pages; the other holders keep theirs and lose write
    /// permission.
    pub(super) fn duplicate_pages(
        &mut self,
        block: &mut Block,
        destination: ProcId,
        pages: PageMask,
        reason: &Reason,
    ) {
        self.enter_duplication(block, pages.minus(block.duplicated()));
        self.populate(block, destination, pages);
        let arriving = pages.minus(block.resident(destination));
        let nowhere = arriving.minus(block.resident_anywhere()).minus(block.discarded());
        self.copy_pages(block, destination, arriving, reason, true);
        let copied = arriving & block.resident_anywhere().minus(block.discarded());
        for holder in block.residents().iter() {
            // A page that is not copied shows the destination's memory; the holder keeps its own.
            let kept = arriving.minus(copied) & block.resident(holder);
            self.note_holding(block, holder, kept, Holding::Left);
        }
        self.arrive(block, destination, arriving, copied);
        // Discarded pages count as copied (PAGING-66).
        block.add_duplicated(arriving.minus(nowhere));
        self.mark_if_held(block, destination);
    }

    /// Prepares pages that are not duplicated yet: only their holder keeps a mapping, to read.
    fn enter_duplication(&mut self, block: &mut Block, pages: PageMask) {
        for holder in block.residents().iter() {
            let held = pages & block.resident(holder);
            if held.is_empty() {
                continue;
            }
            for id in block.mappers().without(holder).iter() {
                self.unmap(block, id, held);
            }
            self.revoke(block, holder, held, Protection::Read);
        }
    }

    /// Copies pages that are not at the destination, from the closest holder each. Discarded pages
    /// are not copied (PAGING-193).
    fn copy_pages(
        &mut self,
        block: &mut Block,
        destination: ProcId,
        pages: PageMask,
        reason: &Reason,
        keeps_source: bool,
    ) {
        let mut left = pages.minus(block.discarded());
        // The closest can be copied from directly: pages that have to be staged are on none of them.
        let direct = self.relations.copies_from(destination);
        for from in self.relations.by_closeness(destination, block.residents()) {
            if left.is_empty() {
                break;
            }
            let run = left & block.resident(from);
            if run.is_empty() {
                continue;
            }
            if !direct.contains(from) {
                self.copy_runs(block, from, ProcId::HOST, run, reason, Leg::First);
                self.populate(block, ProcId::HOST, run);
                if keeps_source {
                    self.arrive(block, ProcId::HOST, run, run);
                }
                self.copy_runs(block, ProcId::HOST, destination, run, reason, Leg::Last);
            } else {
                let leg = if keeps_source { Leg::First } else { Leg::Last };
                self.copy_runs(block, from, destination, run, reason, leg);
            }
            left = left.minus(run);
        }
    }

    /// Copies pages between two processors: one record per run of adjacent pages of one cause.
    /// Returns how many pages.
    pub(super) fn copy_runs(
        &mut self,
        block: &mut Block,
        from: ProcId,
        to: ProcId,
        pages: PageMask,
        reason: &Reason,
        leg: Leg,
    ) -> usize {
        if pages.is_empty() {
            return 0;
        }
        let each_is_noted = !self.note_copied_together(block, to, reason, leg);
        if each_is_noted || self.wants.copies {
            self.report_runs(block, (from, to), pages, reason, each_is_noted.then_some(leg));
        }
        let counts = pages.counts_by(&reason.prefetched);
        self.count_runs((from, to), reason.cause, counts)
    }

    /// Counts copied runs: those that were asked for, and those that the prefetcher added. Returns
    /// how many pages.
    pub(super) fn count_runs(
        &mut self,
        (from, to): (ProcId, ProcId),
        cause: CopyCause,
        [asked, prefetched]: [Counts; 2],
    ) -> usize {
        if !self.wants.copies {
            let way = (from.into(), to.into());
            self.sink.copies(&CopySums { way, cause, asked, prefetched });
        }
        let copied = asked.pages + prefetched.pages;
        self.count_copied(from, to, (asked.runs + prefetched.runs) as u64, copied as u64);
        copied
    }

    /// Reports the records of copied runs, if they are wanted, and tells thrashing detection about
    /// each of this leg.
    pub(super) fn report_runs(
        &mut self,
        block: &mut Block,
        (from, to): (ProcId, ProcId),
        pages: PageMask,
        reason: &Reason,
        noted: Option<Leg>,
    ) {
        let one_cause = reason.prefetched.is_empty();
        let mut at = pages.next_set(0);
        while at < PAGES {
            let prefetched = !one_cause && reason.prefetched.contains(at);
            let change = if prefetched {
                reason.prefetched.next_clear(at)
            } else if one_cause {
                PAGES
            } else {
                reason.prefetched.next_set(at)
            };
            let run = at..pages.next_clear(at).min(change);
            at = pages.next_set(run.end);
            if self.wants.copies {
                self.emit(MemoryEvent::Copy {
                    address: block.address(run.start),
                    bytes: run.len() as u64 * PAGE_BYTES,
                    from: from.into(),
                    to: to.into(),
                    cause: if prefetched { CopyCause::Prefetch } else { reason.cause },
                    duration_ns: 0,
                });
            }
            if let Some(leg) = noted {
                self.note_copied(block, to, run, reason, leg);
            }
        }
    }

    /// Tells thrashing detection about the runs of one copy, if it has to know no more than that
    /// there were some. `false`, and nothing is done, if it has to know each.
    fn note_copied_together(
        &mut self,
        block: &mut Block,
        to: ProcId,
        reason: &Reason,
        leg: Leg,
    ) -> bool {
        if block.thrashing().is_some() || !reason.pinned.is_empty() {
            return false;
        }
        let is_move_by_fault = reason.is_by_fault() && leg == Leg::Last && !self.policy.read_mostly;
        !is_move_by_fault || thrash::note_together(self, block, to)
    }

    /// Tells thrashing detection about one copied run.
    fn note_copied(
        &mut self,
        block: &mut Block,
        to: ProcId,
        run: Range<usize>,
        reason: &Reason,
        leg: Leg,
    ) {
        if reason.cause == CopyCause::Eviction {
            return;
        }
        if !reason.is_by_fault() || leg == Leg::First || self.policy.read_mostly {
            thrash::forget_marked(self, block, &run);
        } else if reason.pinned.is_empty() || reason.pinned.count_in(run.clone()) < run.len() {
            thrash::note(self, block, run, to, ThrashingEvent::Migration);
        }
    }

    /// Makes pages resident, of which those in `copied` bring their contents along.
    fn arrive(&mut self, block: &mut Block, id: ProcId, pages: PageMask, copied: PageMask) {
        let fresh = pages.minus(copied);
        if self.wants.holdings {
            self.note_holding(block, id, pages & copied, Holding::Copied);
            self.note_holding(block, id, fresh, Holding::Shown);
        }
        if !fresh.is_empty() {
            self.work.pages_fresh += fresh.count() as u64;
        }
        let news = pages.minus(block.resident(id));
        if !news.is_empty() {
            self.totals.came(id, news.count());
            block.add_resident(id, news);
        }
    }

    /// Ends the residency of pages. The memory behind them stays. With its last page the chunk
    /// of a full block becomes unused.
    pub(super) fn leave(&mut self, block: &mut Block, id: ProcId, pages: PageMask) {
        let held = block.holds_any(id);
        self.end_residency(block, id, pages);
        if held && !block.holds_any(id) {
            self.mark(block, id, List::Unused);
        }
    }

    /// The same without a word to the lists of chunks.
    pub(super) fn end_residency(&mut self, block: &mut Block, id: ProcId, pages: PageMask) {
        let leaving = pages & block.resident(id);
        if leaving.is_empty() {
            return;
        }
        self.totals.left(id, leaving.count());
        self.note_holding(block, id, leaving, Holding::Left);
        block.remove_resident(id, leaving);
    }

    /// Says what a processor's memory holds of pages from now on.
    #[inline]
    pub(super) fn note_holding(
        &mut self,
        block: &Block,
        id: ProcId,
        pages: PageMask,
        now: Holding,
    ) {
        if self.wants.holdings && !pages.is_empty() {
            self.sink.holding(block.first_page(), pages, id.into(), now);
        }
    }

    /// Provides host memory for pages, and counts what is new and what has to be zeroed. Memory
    /// of devices has been provided before (see `evict`).
    pub(super) fn populate(&mut self, block: &mut Block, id: ProcId, pages: PageMask) {
        if !id.is_host() || block.is_populated(id) {
            return;
        }
        let new = pages.minus(block.populated(id));
        if new.is_empty() {
            return;
        }
        let given = block.host_chunks_for(new);
        let valid = block.resident_anywhere().minus(block.resident(id)).minus(block.discarded());
        if !given.minus(valid).is_empty() {
            self.work.pages_zeroed_host += given.count() as u64;
        }
        self.work.pages_populated_host += given.count() as u64;
        block.populate(id, given);
    }

    /// Takes pages out of a processor's page table.
    #[inline]
    pub(super) fn unmap(&mut self, block: &mut Block, id: ProcId, pages: PageMask) {
        if !block.maps_any(id) {
            return;
        }
        let mapped = block.mapped(id, Protection::Read) & pages;
        if !mapped.is_empty() {
            self.count_unmapped(id, mapped.count());
            block.lower(id, mapped, None);
        }
    }

    /// Lowers a processor's permission on pages, and tells thrashing detection.
    pub(super) fn revoke(
        &mut self,
        block: &mut Block,
        id: ProcId,
        pages: PageMask,
        at_most: Protection,
    ) {
        // Each level lost is a thrashing event (PAGING-120).
        for lost in [Protection::Atomic, Protection::Write] {
            if lost <= at_most || (id.is_host() && lost == Protection::Atomic) {
                continue;
            }
            for run in (block.mapped(id, lost) & pages).runs() {
                thrash::note(self, block, run, id, ThrashingEvent::Revocation);
            }
        }
        if id.is_host() && at_most == Protection::Read {
            let writable = block.mapped(id, Protection::Write) & pages;
            self.work.pages_revoked_host += writable.count() as u64;
        }
        block.lower(id, pages, Some(at_most));
    }
}

/// Which part of a copy this is, for thrashing detection: only arrivals of moves count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leg {
    /// A copy that leaves its source, or the way to the host of a staged copy.
    First,
    /// A move's arrival.
    Last,
}

#[cfg(test)]
mod tests {
    use super::super::range::Policy;
    use super::super::testing::heard_in;
    use super::super::thrash::tests::make_thrashing;
    use super::*;
    use crate::GpuProfile;
    use pagewise_hal::Processor;

    const HOST: Processor = Processor::HOST;
    const GPU0: Processor = Processor::device(0);

    /// A page, the processor, and what its memory holds of the page from then on.
    type Change = (usize, Processor, Holding);

    /// Three pages, of which the host holds 0 and 1, and 1 is discarded. Returns the reports
    /// when they go to a GPU, which of them arrive without a copy, and the block afterwards.
    fn to_gpu(act: fn(&mut Context<'_>, &mut Block, PageMask)) -> (Vec<Change>, u64, Block) {
        let policy = Policy { read_mostly: true, ..Policy::default() };
        let ((block, fresh), heard) = heard_in(&GpuProfile::h200().paging, policy, |context| {
            let mut block = Block::new(0, 512);
            block.add_resident(ProcId::HOST, PageMask::range(0..2));
            context.totals.came(ProcId::HOST, 2);
            block.add_discarded(PageMask::single(1));
            act(context, &mut block, PageMask::range(0..3));
            (block, context.work.pages_fresh)
        });
        let changes = heard.holdings.iter().flat_map(|&(_, pages, processor, now)| {
            pages.pages().map(|page| (page, processor, now)).collect::<Vec<_>>()
        });
        (changes.collect(), fresh, block)
    }

    #[test]
    fn a_move_copies_what_has_contents_and_the_source_keeps_a_stale_copy_of_it() {
        let (changes, fresh, block) = to_gpu(|context, block, pages| {
            context.move_pages(block, ProcId(1), pages, &Reason::of(CopyCause::User));
        });
        let left = [(0, HOST, Holding::Left), (1, HOST, Holding::Left)];
        let copied = [(0, GPU0, Holding::Copied)];
        let shown = [(1, GPU0, Holding::Shown), (2, GPU0, Holding::Shown)];
        assert_eq!(changes, [&left[..], &copied, &shown].concat());
        assert_eq!(fresh, 2);
        assert_eq!(block.resident(ProcId::HOST), PageMask::EMPTY);
    }

    #[test]
    fn a_duplication_says_nothing_of_holders_whose_pages_were_copied() {
        let (changes, fresh, block) = to_gpu(|context, block, pages| {
            context.duplicate_pages(block, ProcId(1), pages, &Reason::of(CopyCause::User));
        });
        // A page that is not copied shows the destination's memory; the host keeps its own.
        let left = [(1, HOST, Holding::Left)];
        let copied = [(0, GPU0, Holding::Copied)];
        let shown = [(1, GPU0, Holding::Shown), (2, GPU0, Holding::Shown)];
        assert_eq!(changes, [&left[..], &copied, &shown].concat());
        assert_eq!(fresh, 2);
        // Discarded pages count as duplicated, pages that were nowhere do not (PAGING-66).
        assert_eq!(block.duplicated(), PageMask::range(0..2));
    }

    #[test]
    fn host_memory_that_is_new_is_counted_and_zeroed_once() {
        let ((first, second), _) =
            heard_in(&GpuProfile::h200().paging, Policy::default(), |context| {
                let mut block = Block::new(0, 512);
                let mut counts = || {
                    context.populate(&mut block, ProcId::HOST, PageMask::range(0..3));
                    (context.work.pages_zeroed_host, context.work.pages_populated_host)
                };
                (counts(), counts())
            });
        assert!(first.0 >= 3 && first.0 == first.1, "{first:?}");
        assert_eq!(first, second, "the second time it is there");
    }

    #[test]
    fn host_pages_that_lose_permission_to_write_are_counted_and_keep_the_rest() {
        let ((revoked, block), _) =
            heard_in(&GpuProfile::h200().paging, Policy::default(), |context| {
                let mut block = Block::new(0, 512);
                block.add_resident(ProcId::HOST, PageMask::range(0..4));
                context.map(
                    &mut block,
                    ProcId::HOST,
                    PageMask::range(0..4),
                    Protection::Atomic,
                    None,
                );
                let pages = PageMask::range(2..6);
                context.revoke(&mut block, ProcId::HOST, pages, Protection::Write);
                let before = context.work.pages_revoked_host;
                context.revoke(&mut block, ProcId::HOST, pages, Protection::Read);
                ([before, context.work.pages_revoked_host], block)
            });
        assert_eq!(revoked, [0, 2], "only what may no longer be written");
        assert_eq!(block.mapped(ProcId::HOST, Protection::Write), PageMask::range(0..2));
        assert_eq!(block.mapped(ProcId::HOST, Protection::Read), PageMask::range(0..4));
    }

    const GPU: ProcId = ProcId(1);

    #[test]
    fn the_destination_of_a_move_keeps_the_mappings_of_copies_that_it_has() {
        // PAGING-60.
        let policy = Policy { read_mostly: true, ..Policy::default() };
        let (block, _) = heard_in(&GpuProfile::h200().paging, policy, |context| {
            let mut block = Block::new(0, 512);
            let pages = PageMask::range(0..2);
            for id in [ProcId::HOST, GPU] {
                block.add_resident(id, pages);
                context.totals.came(id, 2);
                block.map(id, pages, Protection::Read);
            }
            block.add_duplicated(pages);
            let reason = Reason::of(CopyCause::Coherence);
            context.move_pages(&mut block, GPU, PageMask::single(0), &reason);
            block
        });
        assert_eq!(block.mapped(GPU, Protection::Read), PageMask::range(0..2));
        assert_eq!(block.mapped(ProcId::HOST, Protection::Read), PageMask::single(1));
    }

    #[test]
    fn a_duplication_leaves_the_mappings_of_other_pages() {
        let policy = Policy { read_mostly: true, ..Policy::default() };
        let (block, _) = heard_in(&GpuProfile::h200().paging, policy, |context| {
            let mut block = Block::new(0, 512);
            block.add_resident(GPU, PageMask::range(0..2));
            context.totals.came(GPU, 2);
            for id in [GPU, ProcId(2)] {
                block.map(id, PageMask::range(0..2), Protection::Write);
            }
            let reason = Reason::of(CopyCause::Coherence);
            context.duplicate_pages(&mut block, ProcId::HOST, PageMask::single(0), &reason);
            block
        });
        assert_eq!(block.mapped(GPU, Protection::Read), PageMask::range(0..2));
        assert_eq!(block.mapped(GPU, Protection::Write), PageMask::single(1));
        assert_eq!(block.mapped(ProcId(2), Protection::Write), PageMask::single(1));
    }

    #[test]
    fn a_move_provides_no_memory_of_a_device() {
        let ((block, work), _) =
            heard_in(&GpuProfile::h200().paging, Policy::default(), |context| {
                let mut block = Block::new(0, 512);
                context.populate(&mut block, GPU, PageMask::range(0..3));
                (block, context.work)
            });
        assert_eq!(block.populated(GPU), PageMask::EMPTY);
        assert_eq!((work.pages_populated_host, work.pages_zeroed_host), (0, 0));
    }

    #[test]
    fn only_moves_by_faults_and_evictions_leave_a_copied_page_marked_as_thrashing() {
        // PAGING-136.
        use CopyCause::{AccessCounters, Coherence, Eviction, User};
        for (cause, leg, read_mostly, stays) in [
            (Coherence, Leg::Last, false, true),
            (AccessCounters, Leg::Last, false, true),
            (Eviction, Leg::First, true, true),
            (User, Leg::Last, false, false),
            (Coherence, Leg::First, false, false),
            (Coherence, Leg::Last, true, false),
        ] {
            let policy = Policy { read_mostly, ..Policy::default() };
            let (thrashes, _) = heard_in(&GpuProfile::h200().paging, policy, |context| {
                let mut block = Block::new(0, 512);
                make_thrashing(context, &mut block, 3, &[ProcId::HOST, GPU]);
                context.note_copied(&mut block, GPU, 3..4, &Reason::of(cause), leg);
                block.thrashing_pages().contains(3)
            });
            assert_eq!(thrashes, stays, "{cause:?}, {leg:?}, read-mostly: {read_mostly}");
        }
    }

    #[test]
    fn the_arrival_of_a_page_where_it_is_pinned_does_not_count_as_thrashing() {
        // PAGING-120.
        let thrashes = |pinned: PageMask| {
            let (params, policy) = (GpuProfile::h200().paging, Policy::default());
            let (thrashes, _) = heard_in(&params, policy, |context| {
                let mut block = Block::new(0, 512);
                let reason = Reason { pinned, ..Reason::of(CopyCause::Coherence) };
                for to in [GPU, ProcId::HOST, GPU, ProcId::HOST, GPU] {
                    context.note_copied(&mut block, to, 3..4, &reason, Leg::Last);
                }
                block.thrashing_pages().contains(3)
            });
            thrashes
        };
        assert!(thrashes(PageMask::EMPTY) && thrashes(PageMask::single(4)));
        assert!(!thrashes(PageMask::single(3)));
    }
}
