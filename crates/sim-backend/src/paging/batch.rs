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

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use pagewise_hal::PAGE_BYTES;

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
use crate::arrival::{Arrival, FaultBatch, Missing, Serviced};

#[cfg(test)]
mod steps;
#[cfg(test)]
mod waits;

impl Paging {
    /// An access program of many threads over the memory of a walk.
    pub(crate) fn run_kernel(
        &mut self,
        walk: Walk,
        mut arrival: Arrival<'_>,
        now_ns: u64,
        sink: &mut dyn ReportSink,
    ) -> Touched {
        let who = (ProcId::from(walk.by), walk.access);
        let end_page = walk.first_byte.saturating_add(walk.bytes).div_ceil(PAGE_BYTES);
        let mut touched = Touched { now_ns, ..Touched::default() };
        let mut held = HeldOff::default();
        let mut passed = Passed::new(self.evictions);
        self.advance(now_ns, sink);
        loop {
            let missed = Missed::new(self, who, end_page, passed);
            let batch = arrival.next_batch(&missed);
            passed = missed.passed.into_inner();
            let Some(batch) = batch else { return touched };
            arrival.serviced(self.batch(who, &batch, &mut held, &mut touched, sink));
        }
    }

    /// Services a batch.
    fn batch(
        &mut self,
        (by, access): (ProcId, Access),
        batch: &FaultBatch,
        held: &mut HeldOff,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) -> Serviced {
        let needs = access.needs(by, &self.params);
        touched.faults += 1;
        touched.pass(sink.fault_latency_ns(by.into(), 0));
        self.advance(touched.now_ns, sink);
        let record = fault_record(batch.pages[0], by, access, batch.merged);
        sink.record(record);
        let (mut last, mut in_vain, mut until_ns) = (Serviced::default(), true, None::<u64>);
        let mut rest = &batch.pages[..];
        while let Some(first) = rest.first() {
            let Some(range) = self.ranges.containing(*first) else { break };
            let block = range.block_pages(*first);
            let here = rest.partition_point(|page| *page < block.end);
            let (pages, behind) = rest.split_at(here);
            rest = behind;
            let before = self.accessible(&block, by, needs);
            let throttled = self.service((by, access), pages, held, touched, sink);
            // The device faults on all of them again as soon as one is free.
            until_ns = until_ns.into_iter().chain(throttled).min();
            let after = self.accessible(&block, by, needs);
            let gained = after.minus(before);
            if !gained.is_empty() {
                let faulted = mask_of(pages, block.start);
                last.brought_along = gained.minus(faulted).count() as u64;
                last.complete = after.count() as u64 == block.end - block.start;
                in_vain = false;
            }
        }
        if let Some(until_ns) = until_ns.filter(|_| in_vain) {
            self.hold_off(until_ns, by, record, touched, sink);
        }
        last
    }

    /// The pages of a block that a processor can access.
    fn accessible(&self, block: &Range<u64>, by: ProcId, needs: Protection) -> PageMask {
        self.block(block.start).map_or(PageMask::EMPTY, |block| block.mapped(by, needs))
    }

    /// Services faults on pages of one block, except where they thrash. Returns when the first of
    /// those is free again, if there is one.
    pub(super) fn service(
        &mut self,
        (by, access): (ProcId, Access),
        pages: &[u64],
        held: &mut HeldOff,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) -> Option<u64> {
        self.with_memory(sink, |paging, sink| {
            paging.service_once((by, access), pages, held, touched, sink)
        })
    }

    fn service_once(
        &mut self,
        (by, access): (ProcId, Access),
        pages: &[u64],
        held: &mut HeldOff,
        touched: &mut Touched,
        sink: &mut dyn ReportSink,
    ) -> Result<Option<u64>, OwnChunk> {
        let Some(first) = pages.first() else { return Ok(None) };
        let Some(range) = self.ranges.containing_mut(*first) else { return Ok(None) };
        let mut block = range.take_or_new(pages[0]);
        let policy = range.policy;
        let needs = access.needs(by, &self.params);
        let faulted = mask_of(pages, block.first_page()).minus(block.mapped(by, needs));
        let cause = (WorkCause::Fault, Some(by));
        let mut context = self.context(&block, policy, cause, touched.now_ns, sink);
        if let Some(plain) = context.plain(&block, by).filter(|_| !faulted.is_empty()) {
            let prefetched = prefetcher::pages_to_prefetch(&context, &mut block, faulted, by);
            let pages = faulted | prefetched;
            let there = self.reserve(&mut block, by, pages, touched.now_ns, sink);
            if there.is_err() {
                self.put(block);
                return there.map(|()| None);
            }
            let mut context = self.context(&block, policy, cause, touched.now_ns, sink);
            report_held(&mut context, &block, faulted, by, held);
            context.arrive_plainly(&mut block, by, plain, pages, prefetched);
            let took_ns = context.finish();
            touched.pass(took_ns);
            self.note_chunks(&block, Some(by));
            self.put(block);
            return Ok(None);
        }
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
            self.note_chunks(&block, Some(plan.destination));
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

/// The pages of one block as a set.
fn mask_of(pages: &[u64], first_page: u64) -> PageMask {
    let mut mask = PageMask::EMPTY;
    pages.iter().for_each(|page| mask.insert((page - first_page) as usize));
    mask
}

/// Stretches of memory in which a kernel misses nothing. Found when they were passed, so that they
/// need not be searched again; they hold until the next eviction.
#[derive(Debug)]
struct Passed {
    /// From, to.
    stretches: BTreeMap<u64, u64>,
    /// Evictions in all when they were found.
    evictions: u64,
}

impl Passed {
    fn new(evictions: u64) -> Self {
        Self { stretches: BTreeMap::new(), evictions }
    }

    /// Those that hold after so many evictions in all.
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

/// How many blocks have their looks kept.
const LOOKS: usize = 32;

/// The pages that a kernel misses, as they are now.
struct Missed<'a> {
    paging: &'a Paging,
    by: ProcId,
    needs: Protection,
    end_page: u64,
    /// The blocks looked at last, by the number of their slot.
    looks: RefCell<[Look; LOOKS]>,
    passed: RefCell<Passed>,
}

impl<'a> Missed<'a> {
    fn new(
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

    /// The block that holds a page.
    fn look(&self, page: u64) -> Ref<'_, Look> {
        let slot = page / PAGES as u64;
        let at = slot as usize % LOOKS;
        let known = |look: &Look| (look.first..look.end).contains(&page);
        if !known(&self.looks.borrow()[at]) {
            self.looks.borrow_mut()[at] = self.look_anew(page, slot * PAGES as u64);
        }
        Ref::map(self.looks.borrow(), |looks| &looks[at])
    }

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

impl Missing for Missed<'_> {
    fn contains(&self, page: u64) -> bool {
        let look = self.look(page);
        page < self.end_page && !look.accessible.contains((page - look.first) as usize)
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
            if let Some((_, end)) = self.passed.borrow().stretches.range(..=at).next_back()
                && *end > at
            {
                at = *end;
                continue;
            }
            let look = self.look(at);
            let clear = look.first + look.accessible.next_clear((at - look.first) as usize) as u64;
            if clear < look.end {
                break Some(clear).filter(|page| *page < self.end_page);
            }
            at = look.end;
            blocks += 1;
        };
        if blocks > 1 {
            self.passed.borrow_mut().stretches.insert(page, at);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GpuMemory, Relations};
    use super::*;
    use crate::GpuProfile;
    use crate::arrival::{Accesses, Threads};
    use pagewise_hal::{CopyCause, MemoryEvent, PageRun, Processor};
    use proptest::prelude::*;

    const HOST: Processor = Processor::HOST;
    const GPU0: Processor = Processor::device(0);
    const PAGES_IN_ALL: u64 = 6 * 512 + 100;

    #[derive(Debug, Clone, Copy)]
    struct Program {
        walk: Walk,
        threads: Threads,
    }

    /// The state after a program: its records, the host's page table, and the holders of each page.
    #[derive(Debug, PartialEq)]
    struct StateAfter {
        records: Vec<MemoryEvent>,
        host: Vec<PageRun>,
        holders: Vec<Vec<Processor>>,
    }

    impl StateAfter {
        fn faults(&self) -> usize {
            let is = |record: &&MemoryEvent| matches!(record, MemoryEvent::GpuFault { .. });
            self.records.iter().filter(is).count()
        }

        fn bytes(&self, wanted: impl Fn(CopyCause) -> bool) -> u64 {
            let bytes = |record: &MemoryEvent| match record {
                MemoryEvent::Copy { bytes, cause, .. } if wanted(*cause) => *bytes,
                _ => 0,
            };
            self.records.iter().map(bytes).sum()
        }
    }

    fn paging(chunks: u64) -> Paging {
        let gpus = [GpuMemory { capacity_bytes: chunks << 21 }];
        let relations = Relations::pcie_with_nvlink(1);
        let mut paging = Paging::new(GpuProfile::h200().paging, &gpus, relations);
        paging.create_range(0, PAGES_IN_ALL);
        paging
    }

    fn run(paging: &mut Paging, program: &Program, seed: u64) -> StateAfter {
        let Program { walk, threads } = *program;
        let mut records = Vec::new();
        if threads == Threads::One {
            paging.walk(walk, 10_000_000, &mut records);
        } else {
            let Walk { first_byte, bytes, stride_bytes, access, .. } = walk;
            let runs_ahead = access != Access::Read;
            let accesses = Accesses { first_byte, bytes, stride_bytes, runs_ahead };
            let params = GpuProfile::h200().arrival;
            let arrival = Arrival::new(&params, &accesses, threads, seed, 0);
            paging.run_kernel(walk, arrival, 10_000_000, &mut records);
        }
        let host = paging.host_mapped(0..PAGES_IN_ALL);
        let holders = (0..PAGES_IN_ALL).map(|page| paging.resident_on(page)).collect();
        StateAfter { records, host, holders }
    }

    /// Pages at random places on the host first, then the program.
    fn run_after(host: &[Range<u64>], program: &Program, seed: u64) -> StateAfter {
        let mut paging = paging(512);
        host.iter().for_each(|pages| paging.migrate(pages.clone(), HOST, 0, &mut Vec::new()));
        run(&mut paging, program, seed)
    }

    fn program() -> impl Strategy<Value = Program> {
        let stride = prop_oneof![Just(4u64), Just(128), Just(4096), Just(65_536), 1..10_000u64];
        let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Atomic)];
        let grid = (1..300u32, 32..1025u32)
            .prop_map(|(blocks, threads)| Threads::Grid { blocks, threads });
        let threads = prop_oneof![4 => grid, 1 => Just(Threads::Bulk)];
        let most = PAGES_IN_ALL * PAGE_BYTES;
        (0..most, 1..most, stride, access, threads).prop_map(
            move |(first_byte, bytes, stride_bytes, access, threads)| {
                let bytes = bytes.min(most - first_byte);
                let stride_bytes = if threads == Threads::Bulk { 4096 } else { stride_bytes };
                let walk = Walk { by: GPU0, first_byte, bytes, stride_bytes, access };
                Program { walk, threads }
            },
        )
    }

    fn host_pages() -> impl Strategy<Value = Vec<Range<u64>>> {
        let piece = (0..PAGES_IN_ALL, 1..900u64)
            .prop_map(|(start, pages)| start..(start + pages).min(PAGES_IN_ALL));
        prop::collection::vec(piece, 0..5)
    }

    fn config() -> ProptestConfig {
        ProptestConfig {
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(5),
            cases: 60,
            ..ProptestConfig::default()
        }
    }

    fn touched(program: &Program) -> impl Iterator<Item = u64> {
        let Walk { first_byte, bytes, stride_bytes, .. } = program.walk;
        (0..bytes).step_by(stride_bytes as usize).map(move |at| (first_byte + at) / PAGE_BYTES)
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn every_page_touched_ends_mapped_for_the_device(
            program in program(),
            host in host_pages(),
            seed in any::<u64>(),
        ) {
            let mut paging = paging(512);
            host.iter().for_each(|pages| paging.migrate(pages.clone(), HOST, 0, &mut Vec::new()));
            run(&mut paging, &program, seed);
            for page in touched(&program) {
                prop_assert!(paging.mapping(page, GPU0).is_some(), "page {page}");
                prop_assert_eq!(paging.resident_on(page), [GPU0]);
            }
        }

        #[test]
        fn the_same_seed_gives_the_same_records(
            program in program(),
            host in host_pages(),
            seed in any::<u64>(),
        ) {
            prop_assert_eq!(run_after(&host, &program, seed), run_after(&host, &program, seed));
        }

        #[test]
        fn dense_programs_move_what_one_thread_moves_in_at_most_twice_its_batches(
            program in program(),
            host in host_pages(),
            seed in any::<u64>(),
        ) {
            // Of sparse programs the prefetcher brings more or less, by the order of faults.
            let Walk { first_byte, bytes, .. } = program.walk;
            let stride_bytes = program.walk.stride_bytes.min(PAGE_BYTES);
            let start = first_byte / 512 / PAGE_BYTES * 512 * PAGE_BYTES;
            let bytes = (first_byte + bytes - start).next_multiple_of(512 * PAGE_BYTES);
            let bytes = bytes.min(PAGES_IN_ALL * PAGE_BYTES - start);
            let walk = Walk { first_byte: start, bytes, stride_bytes, ..program.walk };
            let many = run_after(&host, &Program { walk, ..program }, seed);
            let one = run_after(&host, &Program { walk, threads: Threads::One }, seed);
            prop_assert_eq!(many.bytes(|_| true), one.bytes(|_| true));
            prop_assert_eq!(&many.host, &one.host);
            prop_assert_eq!(&many.holders, &one.holders);
            // Usually far fewer batches; but an H200, too, took 7 for a block that one thread
            // fills in 6 (PAGING-26).
            let (many, one) = (many.faults(), one.faults());
            prop_assert!(many <= 2 * one, "{many} batches, {one} faults");
        }

        #[test]
        fn a_kernel_larger_than_the_device_ends_and_keeps_to_its_memory(
            program in program(),
            seed in any::<u64>(),
        ) {
            let mut paging = paging(2);
            run(&mut paging, &program, seed);
            prop_assert!(paging.device_chunks_in_use(GPU0) <= 2);
        }
    }

    #[test]
    fn wide_kernels_take_less_than_half_of_the_batches_of_one_thread() {
        let walk = Walk {
            by: GPU0,
            first_byte: 0,
            bytes: 6 << 21,
            stride_bytes: 4096,
            access: Access::Read,
        };
        let faults = |threads| run_after(&[], &Program { walk, threads }, 1).faults();
        for (blocks, threads) in [(132, 1024), (264, 256)] {
            assert!(2 * faults(Threads::Grid { blocks, threads }) < faults(Threads::One));
        }
        assert_eq!(faults(Threads::One), 36);
    }

    #[test]
    fn a_batch_is_one_record_of_its_first_page() {
        let walk = Walk {
            by: GPU0,
            first_byte: 0,
            bytes: 512 << 12,
            stride_bytes: 4096,
            access: Access::Read,
        };
        let threads = Threads::Grid { blocks: 1, threads: 512 };
        let outcome = run_after(&[0..300, 300..512], &Program { walk, threads }, 1);
        let first = outcome.records.iter().position(|e| matches!(e, MemoryEvent::Copy { .. }));
        assert_eq!(first, Some(1), "{:?}", &outcome.records[..3]);
        let MemoryEvent::GpuFault { address, .. } = outcome.records[0] else { panic!("no fault") };
        let MemoryEvent::Copy { address: copied, .. } = outcome.records[1] else {
            panic!("no copy")
        };
        assert_eq!(address, copied);
        assert!(outcome.bytes(|cause| cause == CopyCause::Coherence) > 8 * 4096);
    }

    #[test]
    fn a_kernel_waits_for_pages_that_thrash_and_the_wait_is_reported() {
        let mut paging = paging(512);
        let write = |by, threads| {
            let (first_byte, bytes, stride_bytes) = (0, 16 << 12, 4096);
            let walk = Walk { by, first_byte, bytes, stride_bytes, access: Access::Write };
            Program { walk, threads }
        };
        let kernel = write(GPU0, Threads::Grid { blocks: 1, threads: 32 });
        let mut records = Vec::new();
        for _ in 0..20 {
            records.extend(run(&mut paging, &write(HOST, Threads::One), 1).records);
            records.extend(run(&mut paging, &kernel, 1).records);
        }
        let waits = |record: &&MemoryEvent| match record {
            MemoryEvent::Throttling { processor, duration_ns, .. } => {
                *processor == GPU0 && *duration_ns > 0
            }
            _ => false,
        };
        assert!(records.iter().any(|record| matches!(record, MemoryEvent::Thrashing { .. })));
        assert!(records.iter().filter(waits).count() > 0);
        assert!((0..16).all(|page| paging.mapping(page, GPU0).is_some()));
    }
}
