//! Claims about kernels of many threads: the pages that move, the number of batches, and their end.

use super::super::testing::Heard;
use super::super::{GpuMemory, PagingParams, Relations};
use super::*;
use crate::GpuProfile;
use crate::arrival::{Accesses, Threads};
use pagewise_hal::{CopyCause, MemoryEvent, PageRun, Processor};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;

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
    paging_with(GpuProfile::h200().paging, chunks)
}

fn paging_with(params: PagingParams, chunks: u64) -> Paging {
    let gpus = [GpuMemory { capacity_bytes: chunks << 21 }];
    let relations = Relations::pcie_with_nvlink(1);
    let mut paging = Paging::new(params, &gpus, relations);
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
        let arrival = Arrival::new(&params, accesses.by(threads), seed, 0);
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
    let grid =
        (1..300u32, 32..1025u32).prop_map(|(blocks, threads)| Threads::Grid { blocks, threads });
    let threads = prop_oneof![4 => grid, 1 => Just(Threads::Fill), 1 => Just(Threads::Copy)];
    let most = PAGES_IN_ALL * PAGE_BYTES;
    (0..most, 1..most, stride, access, threads).prop_map(
        move |(first_byte, bytes, stride_bytes, access, threads)| {
            let bytes = bytes.min(most - first_byte);
            let stride_bytes =
                if matches!(threads, Threads::Fill | Threads::Copy) { 4096 } else { stride_bytes };
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
    fn only_threads_that_a_batch_served_go_on(
        program in program(),
        host in host_pages(),
        advised in host_pages(),
        chunks in 2..8u64,
        seed in any::<u64>(),
    ) {
        // Advised pages are mapped where they go when they are evicted.
        let after = |shortcuts: bool| {
            let mut paging = paging(chunks);
            paging.shortcuts = shortcuts;
            host.iter().for_each(|pages| paging.migrate(pages.clone(), HOST, 0, &mut Vec::new()));
            for pages in &advised {
                paging.set_accessed_by(pages.clone(), GPU0, true, 0, &mut Vec::new());
            }
            run(&mut paging, &program, seed)
        };
        prop_assert_eq!(after(true), after(false));
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
    let walk =
        Walk { by: GPU0, first_byte: 0, bytes: 6 << 21, stride_bytes: 4096, access: Access::Read };
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
    let MemoryEvent::Copy { address: copied, .. } = outcome.records[1] else { panic!("no copy") };
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

/// A kernel of two warps. The first misses page after page while the second passes all memory at
/// once, and then it comes to a page that was pinned to the host for so long. Returns whether the pin
/// expired, and whether the kernel faulted on that page.
fn kernel_over_a_pinned_page(pin_ns: u64, shortcuts: bool) -> (bool, bool) {
    const HOT: u64 = 4 * 512;
    let mut params = GpuProfile::h200().paging;
    params.prefetch_enable = false;
    (params.thrashing.lapse_ns, params.thrashing.pin_ns) = (1_000_000, pin_ns);
    let mut paging = paging_with(params, 512);
    paging.shortcuts = shortcuts;
    // All pages are on the device but those of the first warp in the first two blocks.
    (0..1024).step_by(64).for_each(|page| {
        paging.migrate(page + 32..page + 64, GPU0, 0, &mut Vec::new());
    });
    paging.migrate(1024..3072, GPU0, 0, &mut Vec::new());
    let mut now_ns = 0;
    while paging.resident_on(HOT) != [HOST] || paging.mapping(HOT, GPU0).is_none() {
        for by in [HOST, GPU0] {
            let touched = paging.touch(by, HOT, Access::Write, now_ns, &mut Vec::new());
            now_ns = touched.now_ns + 50_000;
        }
    }
    let (bytes, stride_bytes) = (3072 << 12, 4096);
    let walk = Walk { by: GPU0, first_byte: 0, bytes, stride_bytes, access: Access::Read };
    let accesses = Accesses { first_byte: 0, bytes, stride_bytes, runs_ahead: false };
    let params = GpuProfile::h200().arrival;
    let threads = Threads::Grid { blocks: 2, threads: 32 };
    // Unlike a list of records, this takes time.
    let mut heard = Heard::default();
    let arrival = Arrival::new(&params, accesses.by(threads), 1, 0);
    paging.run_kernel(walk, arrival, now_ns, &mut heard);
    let faults_there = |record: &MemoryEvent| match record {
        MemoryEvent::GpuFault { address, .. } => *address == HOT << 12,
        _ => false,
    };
    (paging.pins.is_empty(), heard.records.iter().any(faults_there))
}

#[test]
fn a_kernel_misses_a_page_whose_pin_expires_after_other_threads_passed_it() {
    let outcome = |pin_ns| {
        let outcome = kernel_over_a_pinned_page(pin_ns, true);
        assert_eq!(outcome, kernel_over_a_pinned_page(pin_ns, false), "{pin_ns}");
        outcome
    };
    let outcomes: BTreeSet<_> = (0..20).map(|step| outcome(100_000 + 150_000 * step)).collect();
    assert!(outcomes.is_superset(&[(true, true), (false, false)].into()), "{outcomes:?}");
}
