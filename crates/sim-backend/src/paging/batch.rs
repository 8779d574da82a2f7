//! Faults of a batch: those of many threads of a device at once.
//!
//! The driver goes through a batch by va_block, in address order, and services all faulted pages of
//! a block together; a batch is one record, of its first page. The [arrival](crate::arrival)
//! of faults decides what comes in a batch; an access program of one thread has one fault in each.
//! PAGING-24 to PAGING-28 are the driver's side of it.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "pages and blocks of live memory; a page lies in the block it was found by"
)]

use pagewise_hal::{PAGE_BYTES, Processor};

use super::access::Access;
use super::block::Block;
use super::context::Context;
use super::engine::Paging;
use super::evict::OwnChunk;
use super::mask::PageMask;
use super::missed::{Known, Missed, MissedByWalk};
use super::prefetcher;
use super::processor::ProcId;
use super::report::{ReportSink, WorkCause};
use super::service;
use super::thrash;
use super::walk::{HeldOff, Touched, Walk, fault_record};
#[cfg(test)]
use crate::arrival::RaisedFault;
use crate::arrival::{Arrival, FaultBatch, FaultedPages, WORD_PAGES};

#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waits;

/// A batch of faults of one walk on these pages.
#[cfg(test)]
fn batch_on(pages: &[u64]) -> FaultBatch {
    let raised: Vec<_> = pages.iter().map(|&page| RaisedFault { page, walk: 0 }).collect();
    FaultBatch::of(&raised)
}

/// Faults on pages of one block.
pub(super) struct Faulted<'a> {
    /// The block begins with this page.
    pub(super) first_page: u64,
    pub(super) pages: &'a PageMask,
    /// Where pages are added that become accessible, and others that already were, if that is of use.
    pub(super) came: Option<&'a mut PageMask>,
}

/// A walk of a kernel: its access, and the page behind its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkReach {
    pub(crate) access: Access,
    pub(crate) end_page: u64,
}

impl Paging {
    /// An access program of many threads over the memory of a walk.
    pub(crate) fn run_kernel(
        &mut self,
        walk: Walk,
        arrival: Arrival<'_>,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) -> Touched {
        let end_page = walk.first_byte.saturating_add(walk.bytes).div_ceil(PAGE_BYTES);
        let reach = WalkReach { access: walk.access, end_page };
        let touched = self.run_walks(walk.by, &[reach], arrival, now_ns, sink);
        self.walked.note(walk.by.into(), walk.pages());
        touched
    }

    /// A kernel of many threads with several walks.
    pub(crate) fn run_walks(
        &mut self,
        by: Processor,
        walks: &[WalkReach],
        mut arrival: Arrival<'_>,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) -> Touched {
        let by = ProcId::from(by);
        let accesses: Vec<Access> = walks.iter().map(|walk| walk.access).collect();
        let mut touched = Touched { now_ns, ..Touched::default() };
        let mut held = HeldOff::default();
        let mut known: Vec<Known> = walks.iter().map(|_| Known::default()).collect();
        let mut came = None;
        self.advance(now_ns, sink);
        loop {
            let of_walk = |(reach, known): (&WalkReach, Known)| {
                Missed::new(self, (by, reach.access), reach.end_page, known)
            };
            let by_walk = walks.iter().zip(known).map(of_walk).collect();
            let missed = MissedByWalk { by_walk, came };
            let Some(batch) = arrival.next_batch(&missed) else { return touched };
            known = missed.into_known();
            let (evictions, has_pins) = (self.evictions, !self.pins.is_empty());
            let who = (by, &accesses[..]);
            let places = self.batch(who, &batch, &mut held, &mut touched, sink);
            // A batch maps pages of its own blocks. One that is evicted may be mapped where it went,
            // and a page is mapped no more when its pin expires.
            let is_only_there = self.evictions == evictions && !has_pins;
            #[cfg(test)]
            let is_only_there = is_only_there && self.shortcuts;
            if is_only_there {
                known.iter_mut().for_each(|known| known.forget_blocks_of(&batch));
                came = Some(places);
            } else {
                known.iter_mut().for_each(Known::forget);
                came = None;
            }
        }
    }

    /// Services a batch. Walks have the accesses that are given, by their number. Returns a page of
    /// each aligned 256 KiB with pages that may have become accessible.
    pub(super) fn batch(
        &mut self,
        (by, accesses): (ProcId, &[Access]),
        batch: &FaultBatch,
        held: &mut HeldOff,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) -> Vec<u64> {
        let mut places = Vec::new();
        touched.faults += 1;
        touched.pass(sink.fault_latency_ns(by.into(), 0));
        self.advance(touched.now_ns, sink);
        let mut faults = batch.in_order();
        let Some(first_page) = faults.first_page() else { return places };
        let on_first = batch.walks_on(first_page).map(|walk| accesses[walk]);
        // The driver services a page once for all accesses, by the strongest.
        let first_access = on_first.max().unwrap_or(Access::Read);
        let record = fault_record(first_page, by, first_access, batch.merged);
        sink.record(record);
        let (mut in_vain, mut until_ns) = (true, None::<u64>);
        while let Some(page) = faults.first_page() {
            let Some(range) = self.ranges.containing(page) else { break };
            let block = range.block_pages(page);
            let of_block = by_access(faults.take_before(block.end), block.start, accesses);
            for (access, pages) in SERVICED.into_iter().zip(&of_block) {
                if pages.is_empty() {
                    continue;
                }
                let mut came = PageMask::EMPTY;
                let faulted = Faulted { first_page: block.start, pages, came: Some(&mut came) };
                let throttled = self.service((by, access), faulted, held, touched, sink);
                // The device faults on all of them again as soon as one is free.
                until_ns = until_ns.into_iter().chain(throttled).min();
                in_vain &= came.is_empty();
                places.extend(places_of(block.start, &came));
                self.walked.note(by, Some(block.clone()));
            }
        }
        if let Some(until_ns) = until_ns.filter(|_| in_vain) {
            self.hold_off(until_ns, by, record, touched, sink);
        }
        places
    }

    /// Services faults on pages of a block, except where they thrash. Returns when the first of those is
    /// free again, if there is one.
    pub(super) fn service(
        &mut self,
        (by, access): (ProcId, Access),
        mut faulted: Faulted<'_>,
        held: &mut HeldOff,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) -> Option<u64> {
        self.with_memory(sink, |paging, sink| {
            paging.service_once((by, access), &mut faulted, held, touched, sink)
        })
    }

    /// The same, unless the block has to make room for its own pages first.
    fn service_once(
        &mut self,
        (by, access): (ProcId, Access),
        Faulted { first_page, pages, came }: &mut Faulted<'_>,
        held: &mut HeldOff,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) -> Result<Option<u64>, OwnChunk> {
        let first_page = *first_page;
        let mut arrived = |pages| came.iter_mut().for_each(|came| came.insert_mask(pages));
        let Some(range) = self.ranges.containing_mut(first_page) else { return Ok(None) };
        let mut block = range.take_or_new(first_page);
        let policy = range.policy;
        let needs = access.needs(by, &self.params);
        let faulted = pages.minus(block.mapped(by, needs));
        let cause = (WorkCause::Fault, Some(by));
        if !faulted.is_empty() && self.is_plain(policy, &block, by) {
            let by_policy = (&self.params, &self.groups, policy);
            let prefetched = prefetcher::pages_to_prefetch(by_policy, &mut block, faulted, by);
            let pages = faulted | prefetched;
            let there = self.reserve(&mut block, by, pages, touched.now_ns, sink);
            if there.is_err() {
                self.put(block);
                return there.map(|()| None);
            }
            let mut context = self.context(&block, policy, cause, touched.now_ns, sink);
            report_held(&mut context, &block, faulted, by, held);
            context.arrive_plainly(&mut block, by, &pages, prefetched);
            let took_ns = context.finish();
            touched.pass(took_ns);
            self.put(block);
            arrived(pages);
            return Ok(None);
        }
        let mut context = self.context(&block, policy, cause, touched.now_ns, sink);
        let plans = service::plan(&mut context, &mut block, faulted, by, access);
        for page in plans.throttled.pages() {
            held.entry(block.first_page() + page as u64).or_insert(touched.now_ns);
        }
        for plan in plans.iter() {
            let (destination, pages) = (plan.destination, plan.pages());
            let there = self.reserve(&mut block, destination, pages, touched.now_ns, sink);
            if there.is_err() {
                self.put(block);
                return there.map(|()| None);
            }
            let mut context = self.context(&block, policy, cause, touched.now_ns, sink);
            report_held(&mut context, &block, plan.faulted, by, held);
            service::apply(&mut context, &mut block, plan);
            let took_ns = context.finish();
            touched.pass(took_ns);
            arrived(pages);
        }
        self.put(block);
        Ok(plans.until_ns)
    }
}

/// Reports how long the processor was held off pages that are now serviced.
fn report_held(
    context: &mut Context<'_>,
    block: &Block,
    pages: PageMask,
    by: ProcId,
    held: &mut HeldOff,
) {
    if held.is_empty() {
        return;
    }
    for page in pages.pages() {
        let since_ns = held.remove(&(block.first_page() + page as u64));
        let waited_ns = since_ns.map_or(0, |since_ns| context.now_ns.saturating_sub(since_ns));
        if waited_ns > 0 {
            thrash::report_throttle(context, block, page, by, waited_ns);
        }
    }
}

/// A page of each aligned 256 KiB with pages of a block that begins with `first_page`, some twice.
fn places_of(first_page: u64, pages: &PageMask) -> impl Iterator<Item = u64> {
    let start_of = move |word: usize| first_page + word as u64 * WORD_PAGES;
    // Those of a block that begins elsewhere lie in two.
    let is_split = !first_page.is_multiple_of(WORD_PAGES);
    let ends = move |start: u64| [Some(start), is_split.then_some(start + WORD_PAGES - 1)];
    pages.words_in_use().map(start_of).flat_map(ends).flatten()
}

/// Kinds of accesses, the strongest first: the order in which the driver services a block.
const SERVICED: [Access; 3] = [Access::Atomic, Access::Write, Access::Read];

/// The pages of a block that is faulted on so, by the strongest access that faults on each, in the
/// order of [`SERVICED`].
fn by_access(
    faulted: impl Iterator<Item = FaultedPages>,
    first_page: u64,
    accesses: &[Access],
) -> [PageMask; 3] {
    let [mut reads, mut writes, mut atomics] = [PageMask::EMPTY; 3];
    let place = |first: u64| first.cast_signed() - first_page.cast_signed();
    if let [access] = accesses {
        let mut all = PageMask::EMPTY;
        faulted.for_each(|pages| all.insert_word(place(pages.first), pages.bits));
        return SERVICED.map(|kind| if kind == *access { all } else { PageMask::EMPTY });
    }
    for FaultedPages { first, walk, bits } in faulted {
        let of_access = match accesses[walk] {
            Access::Read => &mut reads,
            Access::Write => &mut writes,
            Access::Atomic => &mut atomics,
        };
        of_access.insert_word(place(first), bits);
    }
    writes = writes.minus(atomics);
    reads = reads.minus(writes | atomics);
    [atomics, writes, reads]
}
