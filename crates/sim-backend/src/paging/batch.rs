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

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use pagewise_hal::{PAGE_BYTES, Processor};

use super::access::Access;
use super::block::Block;
use super::context::Context;
use super::engine::Paging;
use super::evict::OwnChunk;
use super::mask::{PAGES, PageMask};
use super::prefetcher;
use super::processor::ProcId;
use super::protection::Protection;
use super::report::{ReportSink, WorkCause};
use super::service;
use super::thrash;
use super::walk::{HeldOff, Touched, Walk, fault_record};
use crate::arrival::{Arrival, FaultBatch, Missing, Nearby, RaisedFault, Vicinity};

#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waits;

/// A batch of faults of one walk on these pages.
#[cfg(test)]
fn batch_on(pages: &[u64]) -> FaultBatch {
    FaultBatch::of(pages.iter().map(|&page| RaisedFault { page, walk: 0 }).collect())
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
        let mut passed: Vec<Passed> = walks.iter().map(|_| Passed::new(self.evictions)).collect();
        let mut came = Vicinity::ANYWHERE;
        self.advance(now_ns, sink);
        loop {
            let of_walk = |(reach, passed): (&WalkReach, Passed)| {
                Missed::new(self, (by, reach.access), reach.end_page, passed)
            };
            let by_walk = walks.iter().zip(passed).map(of_walk).collect();
            let missed = MissedByWalk { by_walk, came };
            let batch = arrival.next_batch(&missed);
            let of_walk = |missed: Missed<'_>| missed.passed.into_inner();
            passed = missed.by_walk.into_iter().map(of_walk).collect();
            let Some(batch) = batch else { return touched };
            let evictions = self.evictions;
            let who = (by, &accesses[..]);
            self.batch(who, &batch, &mut held, &mut touched, sink);
            // A batch maps pages of its own blocks. One that is evicted may be mapped where it went.
            let of_batch = || batch.raised.iter().map(|fault| fault.page).collect();
            came = if self.evictions == evictions { of_batch() } else { Vicinity::ANYWHERE };
            #[cfg(test)]
            if !self.shortcuts {
                came = Vicinity::ANYWHERE;
            }
        }
    }

    /// Services a batch. Walks have the accesses that are given, by their number.
    pub(super) fn batch(
        &mut self,
        (by, accesses): (ProcId, &[Access]),
        batch: &FaultBatch,
        held: &mut HeldOff,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) {
        touched.faults += 1;
        touched.pass(sink.fault_latency_ns(by.into(), 0));
        self.advance(touched.now_ns, sink);
        let mut rest = &batch.raised[..];
        let Some(on_first) = rest.chunk_by(|a, b| a.page == b.page).next() else { return };
        let first_access = strongest(on_first, accesses);
        let record = fault_record(on_first[0].page, by, first_access, batch.merged);
        sink.record(record);
        let (mut in_vain, mut until_ns) = (true, None::<u64>);
        while let Some(first) = rest.first() {
            let Some(range) = self.ranges.containing(first.page) else { break };
            let block = range.block_pages(first.page);
            let here = rest.partition_point(|fault| fault.page < block.end);
            let (of_block, behind) = rest.split_at(here);
            rest = behind;
            for (access, pages) in by_access(of_block, block.start, accesses) {
                if pages.is_empty() {
                    continue;
                }
                let needs = access.needs(by, &self.params);
                let before = self.accessible(&block, by, needs);
                let throttled =
                    self.service((by, access), (block.start, &pages), held, touched, sink);
                // The device faults on all of them again as soon as one is free.
                until_ns = until_ns.into_iter().chain(throttled).min();
                let after = self.accessible(&block, by, needs);
                in_vain &= after.minus(before).is_empty();
                self.walked.note(by, Some(block.clone()));
            }
        }
        if let Some(until_ns) = until_ns.filter(|_| in_vain) {
            self.hold_off(until_ns, by, record, touched, sink);
        }
    }

    /// The pages of a block that a processor can access.
    fn accessible(&self, block: &Range<u64>, by: ProcId, needs: Protection) -> PageMask {
        self.block(block.start).map_or(PageMask::EMPTY, |block| block.mapped(by, needs))
    }

    /// Services faults on pages of the block that begins with `first_page`, except where they thrash.
    /// Returns when the first of those is free again, if there is one.
    pub(super) fn service(
        &mut self,
        (by, access): (ProcId, Access),
        (first_page, pages): (u64, &PageMask),
        held: &mut HeldOff,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) -> Option<u64> {
        self.with_memory(sink, |paging, sink| {
            paging.service_once((by, access), (first_page, pages), held, touched, sink)
        })
    }

    fn service_once(
        &mut self,
        (by, access): (ProcId, Access),
        (first_page, pages): (u64, &PageMask),
        held: &mut HeldOff,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) -> Result<Option<u64>, OwnChunk> {
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

/// The strongest access of faults on one page: the driver services a page once for all of them.
fn strongest(faults: &[RaisedFault], accesses: &[Access]) -> Access {
    faults.iter().map(|fault| accesses[fault.walk]).max().unwrap_or(Access::Read)
}

/// The pages of a block that is faulted on so, by the strongest access that faults on each: in the
/// order in which the driver services them.
fn by_access(
    faults: &[RaisedFault],
    first_page: u64,
    accesses: &[Access],
) -> [(Access, PageMask); 3] {
    let [mut reads, mut writes, mut atomics] = [PageMask::EMPTY; 3];
    for fault in faults {
        let of_access = match accesses[fault.walk] {
            Access::Read => &mut reads,
            Access::Write => &mut writes,
            Access::Atomic => &mut atomics,
        };
        of_access.insert((fault.page - first_page) as usize);
    }
    let writes = writes.minus(atomics);
    let reads = reads.minus(writes | atomics);
    [(Access::Atomic, atomics), (Access::Write, writes), (Access::Read, reads)]
}

/// Stretches of memory in which a kernel misses nothing. Found when they were passed, so that they
/// need not be searched again; they hold until the next eviction.
#[derive(Debug)]
pub(super) struct Passed {
    /// From, to.
    stretches: BTreeMap<u64, u64>,
    /// The total number of evictions when the stretches were found.
    evictions: u64,
}

impl Passed {
    pub(super) fn new(evictions: u64) -> Self {
        Self { stretches: BTreeMap::new(), evictions }
    }

    /// The stretches that still hold after this total number of evictions.
    fn after(self, evictions: u64) -> Self {
        if self.evictions == evictions { self } else { Self::new(evictions) }
    }
}

/// A block: its pages, and those of them that are accessible.
#[derive(Clone, Copy, Default)]
struct Look {
    first: u64,
    end: u64,
    accessible: PageMask,
}

/// Pages that an entry of a page table describes: 64 KiB.
const ENTRY_PAGES: u64 = 16;
/// Entries that the device reads together.
const GROUP_ENTRIES: u64 = 8;

/// How many blocks have their looks kept.
const LOOKS: usize = 32;

/// The pages that a kernel misses, as they are now.
pub(super) struct Missed<'a> {
    paging: &'a Paging,
    by: ProcId,
    needs: Protection,
    end_page: u64,
    /// The blocks looked at last, by the number of their slot.
    looks: RefCell<[Look; LOOKS]>,
    passed: RefCell<Passed>,
}

impl<'a> Missed<'a> {
    pub(super) fn new(
        paging: &'a Paging,
        (by, access): (ProcId, Access),
        end_page: u64,
        passed: Passed,
    ) -> Self {
        let needs = access.needs(by, &paging.params);
        let looks = RefCell::default();
        let passed = RefCell::new(passed.after(paging.evictions));
        Self { paging, by, needs, end_page, looks, passed }
    }

    /// The answer of `read` about the block that holds a page.
    #[inline]
    fn look<T>(&self, page: u64, read: impl FnOnce(&Look) -> T) -> T {
        let slot = page / PAGES as u64;
        let look = &mut self.looks.borrow_mut()[slot as usize % LOOKS];
        if !(look.first..look.end).contains(&page) {
            *look = self.look_anew(page, slot * PAGES as u64);
        }
        read(look)
    }

    #[cold]
    fn look_anew(&self, page: u64, slot: u64) -> Look {
        let Some(range) = self.paging.ranges.containing(page) else {
            // Where there is nothing, nothing faults.
            return Look { first: slot, end: slot + PAGES as u64, accessible: !PageMask::EMPTY };
        };
        let Range { start: first, end } = range.block_pages(page);
        let mapped = |block: &Block| block.mapped(self.by, self.needs);
        Look { first, end, accessible: range.block(page).map_or(PageMask::EMPTY, mapped) }
    }
}

impl Missed<'_> {
    pub(super) fn mapped_near(&self, page: u64) -> Nearby {
        let near = |of: u64, mapped: &dyn Fn(u64) -> bool| {
            let any = |entries: u64| {
                let first = page / of / entries * entries;
                (first..first + entries).any(mapped)
            };
            match () {
                () if any(GROUP_ENTRIES) => Some(Nearby::Group),
                () if any(2 * GROUP_ENTRIES) => Some(Nearby::Pair),
                () => None,
            }
        };
        let range = self.paging.ranges.containing(page);
        let block = range.and_then(|range| range.block(page));
        let Some((here, first)) = block
            .map(|block| (block.mapped(self.by, Protection::Read), block.first_page()))
            .filter(|(here, _)| !here.is_empty())
        else {
            let whole = |slot: u64| self.is_whole(slot * PAGES as u64);
            return near(PAGES as u64, &whole).unwrap_or(Nearby::Nothing);
        };
        let within = |page: u64| page.saturating_sub(first).min(PAGES as u64) as usize;
        let mapped = |entry: u64| {
            let pages = entry * ENTRY_PAGES..(entry + 1) * ENTRY_PAGES;
            here.count_in(within(pages.start)..within(pages.end)) > 0
                && self.paging.walked.has(self.by, &pages)
        };
        near(ENTRY_PAGES, &mapped).unwrap_or(Nearby::Block)
    }

    /// Whether the device maps all 2 MiB that begin at a page, and has accessed them.
    fn is_whole(&self, page: u64) -> bool {
        let range = self.paging.ranges.containing(page);
        let block = range.and_then(|range| range.block(page));
        block.is_some_and(|block| block.mapped(self.by, Protection::Read).count() == PAGES)
            && self.paging.walked.has(self.by, &(page..page + PAGES as u64))
    }

    #[inline]
    fn contains(&self, page: u64) -> bool {
        page < self.end_page
            && self.look(page, |look| !look.accessible.contains((page - look.first) as usize))
    }

    fn next(&self, page: u64) -> Option<u64> {
        if self.contains(page) {
            return Some(page);
        }
        let (mut at, mut blocks) = (page, 0);
        let found = loop {
            if at >= self.end_page {
                break None;
            }
            let (clear, end) = self.look(at, |look| {
                let clear = look.accessible.next_clear((at - look.first) as usize);
                (look.first + clear as u64, look.end)
            });
            if clear < end {
                break Some(clear).filter(|page| *page < self.end_page);
            }
            at = end;
            blocks += 1;
            if let Some((_, end)) = self.passed.borrow().stretches.range(..=at).next_back() {
                at = at.max(*end);
            }
        };
        if blocks > 1 {
            self.passed.borrow_mut().stretches.insert(page, at);
        }
        found
    }
}

/// The pages that each walk of a kernel misses, and where pages came since the last batch.
struct MissedByWalk<'a> {
    by_walk: Vec<Missed<'a>>,
    came: Vicinity,
}

impl Missing for MissedByWalk<'_> {
    #[inline]
    fn came(&self) -> &Vicinity {
        &self.came
    }

    #[inline]
    fn contains(&self, walk: usize, page: u64) -> bool {
        self.by_walk[walk].contains(page)
    }

    fn next(&self, walk: usize, page: u64) -> Option<u64> {
        self.by_walk[walk].next(page)
    }

    fn mapped_near(&self, page: u64) -> Nearby {
        self.by_walk[0].mapped_near(page)
    }
}
