//! Claims about single batches, and about the pages that a kernel misses.

use std::ops::Range;

use super::super::testing::Heard;
use super::super::{GpuMemory, Relations};
use super::*;
use crate::GpuProfile;
use crate::arrival::{Accesses, Threads};
use pagewise_hal::{MemoryEvent, Processor};

const HOST: Processor = Processor::HOST;
const GPU0: Processor = Processor::device(0);
const US: u64 = 1000;

/// A machine with one GPU of so many chunks, and managed memory at these pages.
fn paging(chunks: u64, pages: Range<u64>) -> Paging {
    let gpus = [GpuMemory { capacity_bytes: chunks << 21 }];
    let mut paging = Paging::new(GpuProfile::h200().paging, &gpus, Relations::pcie_with_nvlink(1));
    paging.create_range(pages.start, pages.end - pages.start);
    paging
}

/// Takes records that no claim reads.
fn unread() -> Vec<MemoryEvent> {
    Vec::new()
}

#[test]
fn a_kernel_counts_each_recorded_batch_of_faults_once() {
    let mut paging = paging(8, 0..1024);
    let (first_byte, bytes, stride_bytes) = (0, 1024 * PAGE_BYTES, 1);
    let accesses = Accesses { first_byte, bytes, stride_bytes, runs_ahead: true };
    let params = GpuProfile::h200().arrival;
    let arrival = Arrival::new(&params, accesses.by(Threads::Fill), 1, 0);
    let walk = Walk { by: GPU0, first_byte, bytes, stride_bytes, access: Access::Write };
    let mut records = Vec::new();
    let touched = paging.run_kernel(walk, arrival, 0, &mut records);
    let is_fault = |record: &&MemoryEvent| matches!(record, MemoryEvent::GpuFault { .. });
    let recorded = records.iter().filter(is_fault).count() as u64;
    assert!(recorded > 1);
    assert_eq!(touched.faults, recorded);
}

// ---- batches ----------------------------------------------------------------------------------

/// Services one batch of a GPU's writes to these pages.
fn batch(
    paging: &mut Paging,
    pages: Vec<u64>,
    held: &mut HeldOff,
    now_ns: u64,
) -> (Touched, Heard) {
    let batch = batch_on(&pages);
    let mut touched = Touched { now_ns, ..Touched::default() };
    let mut heard = Heard::default();
    let who = (ProcId::from(GPU0), &[Access::Write][..]);
    paging.batch(who, &batch, held, &mut touched, &mut heard);
    (touched, heard)
}

#[test]
fn a_fault_on_a_page_that_is_mapped_by_then_is_no_work() {
    // PAGING-27.
    let mut paging = paging(8, 0..512);
    let mut work = || {
        let (touched, heard) = batch(&mut paging, vec![7], &mut HeldOff::default(), 0);
        assert_eq!((touched.faults, heard.records.len()), (1, 1), "a record all the same");
        heard.work.len()
    };
    assert_eq!((work(), work()), (2, 0), "memory and service at first");
}

#[test]
fn a_wait_is_recorded_for_those_pages_of_a_batch_only_that_were_held_off() {
    // Page 517 goes back and forth, in the second block; 612 and 700 do not.
    let mut paging = paging(8, 0..1024);
    paging.migrate(512..1024, HOST, 0, &mut unread());
    let mut now_ns = 10_000 * US;
    for by in [HOST, GPU0, HOST, GPU0, HOST, GPU0, HOST] {
        now_ns = paging.touch(by, 517, Access::Write, now_ns, &mut unread()).now_ns + 50 * US;
    }
    let waits = |heard: &Heard| {
        let wait = |record: &MemoryEvent| match record {
            MemoryEvent::Throttling { address, duration_ns, .. } => {
                Some((address / PAGE_BYTES, *duration_ns))
            }
            _ => None,
        };
        heard.records.iter().filter_map(wait).collect::<Vec<_>>()
    };
    let mut held = HeldOff::default();
    let (touched, heard) = batch(&mut paging, vec![517, 612], &mut held, now_ns);
    assert_eq!((touched.throttles, waits(&heard)), (0, vec![]), "612 goes on");
    let since_ns = *held.get(&517).expect("held off");
    assert_eq!(held.len(), 1);
    let (_, heard) = batch(&mut paging, vec![517, 700], &mut held, since_ns + 5000 * US);
    let [(517, waited_ns)] = waits(&heard)[..] else { panic!("{:?}", waits(&heard)) };
    assert!(waited_ns >= 5000 * US, "{waited_ns}");
    assert!(held.is_empty());
}

#[test]
fn a_reading_warp_s_records_merge_as_many_faults_as_on_an_h200() {
    // TIMING-32: the first records of recording `parallel`, line 204.
    let mut paging = paging(8, 0..1024);
    let (first_byte, bytes, stride_bytes) = (0, 1024 * PAGE_BYTES, 128);
    let accesses = Accesses { first_byte, bytes, stride_bytes, runs_ahead: false };
    let params = GpuProfile::h200().arrival;
    let threads = Threads::Grid { blocks: 1, threads: 32 };
    let arrival = Arrival::new(&params, accesses.by(threads), 1, 0);
    let walk = Walk { by: GPU0, first_byte, bytes, stride_bytes, access: Access::Read };
    let mut records = Vec::new();
    paging.run_kernel(walk, arrival, 0, &mut records);
    let faults = records.iter().filter_map(|record| match record {
        MemoryEvent::GpuFault { address, merged, .. } => Some((address / PAGE_BYTES, *merged)),
        _ => None,
    });
    let block = [(0, 16), (16, 4), (32, 4), (64, 4), (128, 9), (256, 16)];
    let next = [(512, 4), (528, 4), (544, 4), (576, 4), (640, 9), (768, 16)];
    assert_eq!(faults.collect::<Vec<_>>(), [block, next].concat());
}

// ---- missing pages ----------------------------------------------------------------------------

/// Memory with a hole: blocks 1 and 2, and 900 pages from block 5 on. The GPU maps blocks 1, 2
/// and 5, and the first 10 pages of block 6.
fn with_a_hole() -> Paging {
    let mut paging = paging(8, 512..1536);
    paging.create_range(2560, 900);
    for pages in [512..1536, 2560..3082] {
        paging.migrate(pages, GPU0, 0, &mut unread());
    }
    paging
}

fn missed(paging: &Paging, end_page: u64) -> Missed<'_> {
    Missed::new(paging, (ProcId::from(GPU0), Access::Read), end_page, Known::default())
}

#[test]
fn a_kernel_misses_unmapped_pages_of_its_memory_and_no_page_of_a_hole() {
    let paging = with_a_hole();
    let missed = missed(&paging, 3400);
    let missing = [1535, 1600, 2100, 2560, 3081, 3082, 3399, 3400];
    let missing = missing.map(|page| missed.contains(page));
    assert_eq!(missing, [false, false, false, false, false, true, true, false]);
}

#[test]
fn the_next_missing_page_lies_behind_mapped_blocks_and_holes_and_before_the_end() {
    let paging = with_a_hole();
    let next = |page: u64, end_page: u64| missed(&paging, end_page).next(page);
    for page in [512, 1100, 1535, 1600, 2100, 2600, 3082] {
        assert_eq!(next(page, 3400), Some(3082), "from {page}");
    }
    assert_eq!(next(3100, 3400), Some(3100));
    assert_eq!(next(512, 3083), Some(3082));
    assert_eq!([next(512, 3082), next(3075, 3082), next(512, 600)], [None; 3]);
    assert_eq!(next(3460, 4000), None, "nothing is there");
}

/// The stretches that are known after a search.
fn stretches(known: &Known) -> Vec<(u64, u64)> {
    known.passed.clone()
}

#[test]
fn a_search_is_remembered_if_it_passed_more_than_one_block() {
    let paging = with_a_hole();
    let passed = |page: u64| {
        let missed = missed(&paging, 3400);
        assert_eq!(missed.next(page), Some(3082));
        stretches(&missed.into_known())
    };
    assert_eq!(passed(3075), [], "within block 6");
    assert_eq!(passed(2600), [], "one block");
    assert_eq!(passed(2100), [(2100, 3072)]);
    assert_eq!(passed(600), [(600, 3072)]);
}

#[test]
fn stretches_that_meet_are_one() {
    let mut known = Known::default();
    for (from, to) in [(10, 20), (40, 50), (60, 70), (5, 10), (45, 55), (0, 2), (20, 40), (80, 90)]
    {
        known.pass(from, to);
    }
    assert_eq!(stretches(&known), [(0, 2), (5, 55), (60, 70), (80, 90)]);
    let behind = [1, 2, 3, 5, 54, 55, 56, 65, 75, 95].map(|page| known.behind_passed(page));
    assert_eq!(behind, [2, 2, 3, 55, 55, 55, 56, 70, 75, 95]);
    known.pass(0, 100);
    assert_eq!(stretches(&known), [(0, 100)]);
}

#[test]
fn looks_at_the_blocks_of_a_batch_are_forgotten_after_it() {
    let mut paging = with_a_hole();
    let who = (ProcId::from(GPU0), Access::Read);
    let contains = |paging: &Paging, known: Known| {
        let missed = Missed::new(paging, who, 3400, known);
        let (is_missed, others) = (missed.contains(3100), missed.contains(600));
        (is_missed, others, missed.into_known())
    };
    let (.., known) = contains(&paging, Known::default());
    paging.migrate(3100..3101, GPU0, 0, &mut unread());
    let (is_missed, others, mut known) = contains(&paging, known);
    assert_eq!((is_missed, others), (true, false), "as it was when it was looked at");
    known.forget_blocks_of(&batch_on(&[3100]));
    let (is_missed, others, _) = contains(&paging, known);
    assert_eq!((is_missed, others), (false, false));
}
