//! The paging state of one address space, and the calls that change it.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "pages of live memory, each in its block; ranges and blocks that advice cuts"
)]

use std::collections::VecDeque;
use std::ops::Range;

use pagewise_hal::{PAGE_BYTES, PageRun, Processor};

use super::advice::PolicyChange;
use super::block::Block;
use super::changed_slots::ChangedSlots;
use super::chunks::{CHUNK_BYTES, Chunks};
use super::context::Context;
use super::counters::AccessCounters;
use super::discard::Discard;
use super::groups::{Group, Groups};
use super::invariants;
use super::mask::PageMask;
use super::params::PagingParams;
use super::processor::{ProcId, Relations};
use super::protection::Protection;
use super::range::{Policy, Ranges, VaRange};
use super::report::{ReportSink, Work, WorkCause};
use super::thrash;
use super::thrash::pins::{self, Pin};
use super::thrash::window::LapseWindow;
use super::totals::Totals;
use super::walked::Walked;
use crate::pressure::Pressure;

/// The memory of one GPU that managed pages can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GpuMemory {
    /// Bytes of memory. Only whole 2 MiB chunks count.
    pub(crate) capacity_bytes: u64,
}

/// The paging state of one address space.
#[derive(Debug)]
pub(crate) struct Paging {
    pub(super) params: PagingParams,
    pub(super) relations: Relations,
    pub(super) ranges: Ranges,
    pub(super) lapse: LapseWindow,
    /// Pinned pages, earliest deadline first.
    pub(super) pins: VecDeque<Pin>,
    /// Memory of each GPU.
    pub(super) chunks: Vec<Chunks>,
    /// Chunks of GPUs that were emptied so far.
    pub(super) evictions: u64,
    /// Remote accesses, where they are counted.
    pub(super) counters: AccessCounters,
    pub(super) groups: Groups,
    pub(super) totals: Totals,
    pub(super) walked: Walked,
    pub(super) changed_slots: ChangedSlots,
    /// Whether alike blocks share the work of the first of them, and plain blocks take the short
    /// way. Tests turn it off to see that the outcome is the same.
    #[cfg(test)]
    pub(super) shortcuts: bool,
}

impl Paging {
    /// An empty address space over a host and these GPUs.
    pub(crate) fn new(params: PagingParams, gpus: &[GpuMemory], relations: Relations) -> Self {
        debug_assert_eq!(relations.count(), gpus.len() + 1);
        let lapse = LapseWindow::new(&params.thrashing);
        let chunks = gpus.iter().map(|gpu| Chunks::new(gpu.capacity_bytes)).collect();
        let (ranges, pins) = (Ranges::default(), VecDeque::new());
        let totals = Totals::new(relations.count());
        Self {
            params,
            relations,
            ranges,
            lapse,
            pins,
            chunks,
            evictions: 0,
            counters: AccessCounters::default(),
            groups: Groups::default(),
            totals,
            walked: Walked::default(),
            changed_slots: ChangedSlots::default(),
            #[cfg(test)]
            shortcuts: true,
        }
    }

    /// Adds a range: one managed allocation, or one slab of small ones. It may not overlap
    /// another.
    pub(crate) fn create_range(&mut self, first_page: u64, pages: u64) {
        debug_assert!(pages > 0);
        self.ranges.insert(first_page..first_page + pages);
    }

    /// Whether a page is managed memory.
    pub(crate) fn has_range(&self, page: u64) -> bool {
        self.ranges.containing(page).is_some()
    }

    /// Removes a range that [`create_range`](Self::create_range) added, with all its parts
    /// (PAGING-13).
    pub(crate) fn destroy_range(&mut self, first_page: u64, pages: u64) {
        let pages = first_page..first_page + pages;
        for range in self.ranges.remove(&pages) {
            for block in range.blocks() {
                self.totals.gone(block);
                self.changed_slots.note(block.first_page());
                for id in (0..self.relations.count() as u8).map(ProcId) {
                    if !block.mapped(id, Protection::Read).is_empty() {
                        self.walked.forget(id);
                    }
                }
            }
        }
        self.chunks.iter_mut().for_each(|chunks| chunks.free(&pages));
        self.counters.forget(&pages);
    }

    /// Brings pages to a processor and maps them there, as a prefetch call does.
    pub(crate) fn migrate(
        &mut self,
        pages: Range<u64>,
        to: Processor,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) {
        self.advance(now_ns, sink);
        let to = ProcId::from(to);
        let maps = !to.is_host() || self.params.migration_maps_host;
        let pieces = self.ranges.pieces(&pages);
        // The driver goes over several blocks twice, first to move and then to map. The second pass
        // brings blocks back that were evicted in between (PAGING-174).
        let passes = if maps && pieces.len() > 1 { 2 } else { 1 };
        for pass in 1..=passes {
            let maps_now = maps && pass == passes;
            self.on_each(&pieces, sink, |paging, piece, sink| {
                paging.migrate_piece(piece, to, maps_now, now_ns, sink);
            });
        }
    }

    fn migrate_piece(
        &mut self,
        piece: &Range<u64>,
        to: ProcId,
        maps: bool,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) {
        self.with_memory(sink, |paging, sink| {
            let Some((mut block, policy, within)) = paging.take_piece(piece) else { return Ok(()) };
            let home = policy.preferred.filter(|_| policy.read_mostly).unwrap_or(to);
            let to_home = if home == to { PageMask::EMPTY } else { within & block.discarded() };
            let there = paging
                .reserve(&mut block, to, within.minus(to_home), now_ns, sink)
                .and_then(|()| paging.reserve(&mut block, home, to_home, now_ns, sink));
            if there.is_ok() {
                let cause = (WorkCause::Migration, Some(to));
                let mut context = paging.context(&block, policy, cause, now_ns, sink);
                context.migrate(&mut block, to, within);
                if maps {
                    context.work.blocks = 1;
                    context.map_migrated(&mut block, to, within);
                }
                context.finish();
            }
            paging.put(block);
            there
        });
    }

    /// Declares the contents of pages no longer needed. `cuMemDiscardBatchAsync` is eager; the
    /// discard half of `cuMemDiscardAndPrefetchBatchAsync` is lazy, and the migration that follows
    /// copies nothing (see [`Discard`]).
    pub(crate) fn discard(
        &mut self,
        pages: Range<u64>,
        manner: Discard,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) {
        self.advance(now_ns, sink);
        let pieces = self.ranges.pieces(&pages);
        self.on_each(&pieces, sink, |paging, piece, sink| {
            let cause = (WorkCause::Discard, None);
            paging.on_piece(piece, cause, now_ns, sink, |context, block, within| {
                context.discard(block, within, manner);
            });
        });
    }

    /// Sets or withdraws the preferred location of pages.
    pub(crate) fn set_preferred(
        &mut self,
        pages: Range<u64>,
        to: Option<Processor>,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) {
        self.advise(pages, PolicyChange::Preferred(to.map(ProcId::from)), now_ns, sink);
    }

    /// Adds a processor to those that keep a mapping of pages, or removes it.
    pub(crate) fn set_accessed_by(
        &mut self,
        pages: Range<u64>,
        by: Processor,
        on: bool,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) {
        self.advise(pages, PolicyChange::AccessedBy(by.into(), on), now_ns, sink);
    }

    /// Begins or ends read duplication of pages.
    pub(crate) fn set_read_mostly(
        &mut self,
        pages: Range<u64>,
        on: bool,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) {
        self.advise(pages, PolicyChange::ReadMostly(on), now_ns, sink);
    }

    /// The host's page table for pages, as runs; adjacent runs differ.
    pub(crate) fn host_mapped(&self, pages: Range<u64>) -> Vec<PageRun> {
        let mut runs: Vec<PageRun> = Vec::new();
        let mut push = |pages: u64, mapped: bool| match runs.last_mut() {
            _ if pages == 0 => {}
            Some(last) if last.mapped == mapped => last.pages += pages,
            _ => runs.push(PageRun { pages, mapped }),
        };
        let mut at = pages.start;
        let ranges = self.ranges.overlapping(&pages);
        for block in ranges.flat_map(|range| range.blocks_in(pages.clone())) {
            let mapped = block.mapped(ProcId::HOST, Protection::Read)
                & PageMask::range(within(block, &pages));
            for run in mapped.runs() {
                let start = block.first_page() + run.start as u64;
                push(start - at, false);
                push(run.len() as u64, true);
                at = start + run.len() as u64;
            }
        }
        push(pages.end.saturating_sub(at), false);
        runs
    }

    /// How many of these pages are resident on a processor.
    pub(crate) fn resident_among(&self, pages: Range<u64>, on: ProcId) -> u64 {
        let ranges = self.ranges.overlapping(&pages);
        let blocks = ranges.flat_map(|range| range.blocks_in(pages.clone()));
        blocks.map(|block| block.resident(on).count_in(within(block, &pages)) as u64).sum()
    }

    /// The holders of a page, host first, then the GPUs by ordinal.
    #[cfg(test)]
    pub(crate) fn resident_on(&self, page: u64) -> Vec<Processor> {
        let Some(block) = self.block(page) else { return Vec::new() };
        let holders = block.residents_of((page - block.first_page()) as usize);
        holders.iter().map(Processor::from).collect()
    }

    /// How a processor maps a page.
    #[cfg(test)]
    pub(crate) fn mapping(&self, page: u64, by: Processor) -> Option<Protection> {
        let block = self.block(page)?;
        let page = (page - block.first_page()) as usize;
        let allows = |p: &Protection| block.mapped(by.into(), *p).contains(page);
        Protection::ALL.into_iter().rev().find(allows)
    }

    /// Pages of all ranges that are resident on a processor.
    #[cfg(test)]
    pub(crate) fn resident_pages(&self, on: Processor) -> u64 {
        self.totals.on(on.into())
    }

    /// Root chunks of 2 MiB that hold managed memory on a GPU, resident or not.
    pub(crate) fn device_chunks_in_use(&self, gpu: Processor) -> u64 {
        let gpu = gpu.device_ordinal().and_then(|ordinal| self.chunks.get(ordinal as usize));
        gpu.map_or(0, Chunks::in_use)
    }

    /// The use that managed pages made of a GPU's memory so far.
    pub(crate) fn pressure(&self, gpu: usize) -> Option<Pressure> {
        let chunks = self.chunks.get(gpu)?;
        let turnover = chunks.turnover();
        Some(Pressure {
            capacity_bytes: chunks.capacity() * CHUNK_BYTES,
            peak_bytes: turnover.peak_chunks * CHUNK_BYTES,
            evicted_bytes: turnover.evicted_pages * PAGE_BYTES,
            returned_bytes: turnover.returned_pages * PAGE_BYTES,
        })
    }

    /// Moves the time to `now_ns`, and releases pages with expired pins.
    #[inline]
    pub(crate) fn advance(&mut self, now_ns: u64, sink: &mut dyn ReportSink) {
        if !self.pins.is_empty() {
            self.release_expired(now_ns, sink);
        }
    }

    fn release_expired(&mut self, now_ns: u64, sink: &mut dyn ReportSink) {
        while let Some(pin) = pins::expired(&mut self.pins, &self.params.thrashing, now_ns) {
            let Some(range) = self.ranges.containing_mut(pin.page) else { continue };
            let Some(mut block) = range.take(pin.page) else { continue };
            let policy = range.policy;
            let mut context = self.context(&block, policy, (WorkCause::Unpin, None), now_ns, sink);
            thrash::release_expired(&mut context, &mut block, pin);
            context.finish();
            self.put(block);
        }
    }

    #[inline]
    pub(super) fn block(&self, page: u64) -> Option<&Block> {
        self.ranges.containing(page)?.block(page)
    }

    #[inline]
    pub(super) fn put(&mut self, block: Block) {
        if cfg!(debug_assertions)
            && let Some(broken) = invariants::violation(&block, &self.relations)
        {
            panic!("the paging engine broke an invariant: {broken}");
        }
        self.changed_slots.note(block.first_page());
        if let Some(range) = self.ranges.containing_mut(block.first_page()) {
            range.put(block);
        }
    }

    #[inline]
    pub(super) fn context<'a>(
        &'a mut self,
        block: &Block,
        policy: Policy,
        (cause, processor): (WorkCause, Option<ProcId>),
        now_ns: u64,
        sink: &'a mut dyn ReportSink,
    ) -> Context<'a> {
        let processor = processor.map(Processor::from);
        let block = block.first_page();
        let work =
            Work { cause, processor, block, read_mostly: policy.read_mostly, ..Work::default() };
        Context {
            params: &self.params,
            relations: &self.relations,
            policy,
            now_ns,
            work,
            wants: sink.wants(),
            sink,
            pins: &mut self.pins,
            lapse: &mut self.lapse,
            totals: &mut self.totals,
            chunks: &mut self.chunks,
            groups: &self.groups,
            walked: &mut self.walked,
            #[cfg(test)]
            shortcuts: self.shortcuts,
        }
    }

    /// Runs a step on the pages of one block, and creates the block if it does not exist.
    pub(super) fn on_piece(
        &mut self,
        piece: &Range<u64>,
        cause: (WorkCause, Option<ProcId>),
        now_ns: u64,
        sink: &mut dyn ReportSink,
        act: impl FnOnce(&mut Context<'_>, &mut Block, PageMask),
    ) {
        let Some((block, policy, within)) = self.take_piece(piece) else { return };
        self.on_taken((block, policy), cause, now_ns, sink, |context, block| {
            act(context, block, within);
        });
    }

    /// Like [`on_piece`](Self::on_piece), but does nothing if the block does not exist.
    pub(super) fn on_existing(
        &mut self,
        piece: &Range<u64>,
        cause: (WorkCause, Option<ProcId>),
        now_ns: u64,
        sink: &mut dyn ReportSink,
        act: impl FnOnce(&mut Context<'_>, &mut Block, PageMask),
    ) {
        let Some(range) = self.ranges.containing_mut(piece.start) else { return };
        let Some(block) = range.take(piece.start) else { return };
        let (policy, within) = (range.policy, piece_of(&block, piece));
        self.on_taken((block, policy), cause, now_ns, sink, |context, block| {
            act(context, block, within);
        });
    }

    /// Runs a step on a block that was taken out of its range, and gives the block back.
    fn on_taken(
        &mut self,
        (mut block, policy): (Block, Policy),
        cause: (WorkCause, Option<ProcId>),
        now_ns: u64,
        sink: &mut dyn ReportSink,
        act: impl FnOnce(&mut Context<'_>, &mut Block),
    ) {
        let mut context = self.context(&block, policy, cause, now_ns, sink);
        act(&mut context, &mut block);
        context.finish();
        self.put(block);
    }

    /// Takes the block of a piece out of its range, with the range's policy and the piece's pages.
    /// Creates the block if it does not exist.
    pub(super) fn take_piece(&mut self, piece: &Range<u64>) -> Option<(Block, Policy, PageMask)> {
        let range = self.ranges.containing_mut(piece.start)?;
        let block = range.take_or_new(piece.start);
        let within = piece_of(&block, piece);
        Some((block, range.policy, within))
    }

    /// The runs of pages in a group.
    pub(crate) fn grouped(&self, group: Group) -> Vec<Range<u64>> {
        self.groups.grouped(group)
    }

    /// Whether there are pages in groups.
    pub(crate) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Puts pages in a group, or takes them out of theirs.
    pub(crate) fn group(&mut self, pages: Range<u64>, group: Option<Group>) {
        self.groups.put(pages, group);
    }

    fn advise(
        &mut self,
        pages: Range<u64>,
        advice: PolicyChange,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) {
        self.advance(now_ns, sink);
        if pages.is_empty() {
            return; // An advice for no bytes succeeds and splits nothing.
        }
        let differs = |policy: &Policy| advice.apply(policy) != *policy;
        let cuts = [pages.start, pages.end].map(|at| {
            let cut = self.ranges.split_at(at, differs);
            if cut.blocks > 0 {
                self.chunks.iter_mut().for_each(|chunks| chunks.split_at(at));
            }
            cut
        });
        let cause = WorkCause::Advice(advice.advised());
        let mut work = Work { cause, ..Work::default() };
        for cut in cuts {
            work.ranges_split += cut.ranges;
            work.blocks_split += cut.blocks;
            work.mapped_blocks_split += cut.mapped_blocks;
        }
        let affected: Vec<_> = self.ranges.overlapping(&pages).map(VaRange::pages).collect();
        for range_pages in affected {
            let Some(range) = self.ranges.containing_mut(range_pages.start) else { continue };
            let old = range.policy;
            let new = advice.apply(&old);
            if old == new && !advice.repeats() {
                continue;
            }
            work.ranges_advised += u64::from(old != new);
            range.policy = new;
            let seen = if advice == PolicyChange::ReadMostly(false) { old } else { new };
            let blocks: Vec<_> = range.blocks().map(Block::pages).collect();
            self.on_each(&blocks, sink, |paging, pages, sink| {
                let Some((mut block, _, _)) = paging.take_piece(pages) else { return };
                let mut context = paging.context(&block, seen, (cause, None), now_ns, sink);
                context.count_advised(&block, advice);
                context.advised(&mut block, advice, old.preferred);
                context.finish();
                paging.put(block);
            });
        }
        sink.work(&work);
    }
}

/// The pages of a piece of a block.
fn piece_of(block: &Block, piece: &Range<u64>) -> PageMask {
    let start = (piece.start - block.first_page()) as usize;
    PageMask::range(start..start + (piece.end - piece.start) as usize)
}

/// The places in a block of those of its pages that are in a range.
fn within(block: &Block, pages: &Range<u64>) -> Range<usize> {
    let place = |page: u64| (page - block.first_page()) as usize;
    let own = block.pages();
    place(own.start.max(pages.start))..place(own.end.min(pages.end))
}
