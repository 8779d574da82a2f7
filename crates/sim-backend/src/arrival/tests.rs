use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::multiprocessor::Multiprocessor;
use super::rounds::Raises;
use super::*;
use crate::GpuProfile;
use crate::places::Places;

const PAGE: u64 = pagewise_hal::PAGE_BYTES;

/// Pages that are missing, of those below an end.
#[derive(Debug, Clone)]
struct Memory {
    missing: BTreeSet<u64>,
    end: u64,
}

impl Missing for Memory {
    fn next(&self, _: usize, page: u64) -> Option<u64> {
        self.missing.range(page..self.end.max(page)).next().copied()
    }

    fn mapped_near(&self, page: u64) -> Nearby {
        let mapped = |pages: u64| {
            let first = page / pages * pages;
            (first..(first + pages).min(self.end)).any(|page| !self.missing.contains(&page))
        };
        match () {
            () if mapped(128) => Nearby::Group,
            () if mapped(256) => Nearby::Pair,
            () if mapped(512) => Nearby::Block,
            () => Nearby::Nothing,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Kernel {
    accesses: Accesses,
    threads: Threads,
}

impl Kernel {
    fn memory(&self) -> Memory {
        let end = (self.accesses.first_byte + self.accesses.bytes).div_ceil(PAGE);
        Memory { missing: (0..end).collect(), end }
    }

    /// The pages that it touches.
    fn pages(&self) -> BTreeSet<u64> {
        let Accesses { first_byte, bytes, stride_bytes, .. } = self.accesses;
        let stride =
            if matches!(self.threads, Threads::Fill | Threads::Copy) { 1 } else { stride_bytes };
        (0..bytes).step_by(stride as usize).map(|at| (first_byte + at) / PAGE).collect()
    }

    /// All batches, if each is serviced by `service`.
    fn run(
        &self,
        seed: u64,
        mut memory: Memory,
        mut service: impl FnMut(&FaultBatch, &mut Memory),
    ) -> Vec<FaultBatch> {
        let params = GpuProfile::h200().arrival;
        let mut arrival = Arrival::new(&params, self.accesses.by(self.threads), seed, 0);
        let mut batches = Vec::new();
        while let Some(batch) = arrival.next_batch(&memory) {
            service(&batch, &mut memory);
            batches.push(batch);
            assert!(batches.len() < 1_000_000, "no end");
        }
        batches
    }

    /// All batches, if the faulted pages come and nothing else.
    fn run_plainly(&self, seed: u64) -> Vec<FaultBatch> {
        self.run(seed, self.memory(), |batch, memory| {
            batch.pages().into_iter().for_each(|page| _ = memory.missing.remove(&page));
        })
    }
}

fn kernel() -> impl Strategy<Value = Kernel> {
    let stride = prop_oneof![Just(4u64), Just(128), Just(4096), Just(65_536), 1..10_000u64];
    let grid =
        (1..300u32, 1..1100u32).prop_map(|(blocks, threads)| Threads::Grid { blocks, threads });
    let threads = prop_oneof![4 => grid, 1 => Just(Threads::Fill), 1 => Just(Threads::Copy)];
    (0..20_000u64, 1..3_000_000u64, stride, any::<bool>(), threads).prop_map(
        |(first_byte, bytes, stride_bytes, runs_ahead, threads)| {
            let accesses = Accesses { first_byte, bytes, stride_bytes, runs_ahead };
            Kernel { accesses, threads }
        },
    )
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(11),
        cases: 60,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_page_touched_faults_and_no_other(kernel in kernel(), seed in any::<u64>()) {
        let faulted: BTreeSet<u64> =
            kernel.run_plainly(seed).into_iter().flat_map(|batch| batch.pages()).collect();
        prop_assert_eq!(faulted, kernel.pages());
    }

    #[test]
    fn a_batch_has_at_most_256_faults_on_ascending_pages(kernel in kernel(), seed in any::<u64>()) {
        for batch in kernel.run_plainly(seed) {
            prop_assert!(batch.faults <= 256 && batch.pages().len() as u64 <= batch.faults);
            let pages = batch.pages();
            prop_assert!(pages.is_sorted_by(|a, b| a < b) && !pages.is_empty());
            prop_assert!((1..=batch.faults).contains(&batch.merged));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_batches(kernel in kernel(), seed in any::<u64>()) {
        prop_assert_eq!(kernel.run_plainly(seed), kernel.run_plainly(seed));
    }

    #[test]
    fn a_kernel_ends_even_if_hardly_any_page_fits(
        kernel in kernel(),
        seed in any::<u64>(),
        room in 1..5usize,
    ) {
        let Kernel { mut accesses, threads } = kernel;
        accesses.bytes = accesses.bytes.min(200_000);
        let kernel = Kernel { accesses, threads };
        let mut there = VecDeque::new();
        kernel.run(seed, kernel.memory(), |batch, memory| {
            for page in batch.pages() {
                memory.missing.remove(&page);
                there.push_back(page);
                if there.len() > room {
                    memory.missing.extend(there.pop_front());
                }
            }
        });
    }
}

fn wide(runs_ahead: bool) -> Kernel {
    let accesses = Accesses { first_byte: 0, bytes: 8 << 20, stride_bytes: 4096, runs_ahead };
    Kernel { accesses, threads: Threads::Grid { blocks: 132, threads: 1024 } }
}

#[test]
fn another_seed_or_another_kernel_of_the_same_gives_other_batches() {
    assert_ne!(wide(true).run_plainly(1), wide(true).run_plainly(2));
    let params = GpuProfile::h200().arrival;
    let first = |nth| {
        let Kernel { accesses, threads } = wide(true);
        Arrival::new(&params, accesses.by(threads), 1, nth).next_batch(&wide(true).memory())
    };
    assert_ne!(first(0), first(1));
}

#[test]
fn a_warp_that_reads_misses_its_32_pages_and_one_that_writes_up_to_56() {
    // Published: 56 outstanding faults of one uTLB (Allen and Ge, SC'21).
    let params = GpuProfile::h200().arrival;
    let raised = |runs_ahead| {
        let Kernel { accesses, .. } = wide(runs_ahead);
        let grid = Grid::new(&params, accesses.by(Threads::Grid { blocks: 1, threads: 32 }));
        let memory = wide(runs_ahead).memory();
        let mut multiprocessor = Multiprocessor::default();
        let around = OnGrid { grid: &grid, missing: &memory, replays: 0 };
        assert!(multiprocessor.take(0, &around, |_| 0));
        Raises::<OnGrid<'_, Memory>>::begin(&mut multiprocessor);
        let next = || multiprocessor.raise(&params, &around);
        std::iter::from_fn(next).map(|fault| fault.page).collect::<BTreeSet<u64>>()
    };
    assert_eq!(raised(false), (0..32).collect());
    assert_eq!(raised(true), (0..56).collect());
}

/// The faults of one multiprocessor on its first page, by the time of the walk to it.
fn merged(stride_bytes: u64, runs_ahead: bool, threads: u32) -> [u64; 4] {
    let mut params = GpuProfile::h200().arrival;
    params.walk_ns.map(|walk_ns| {
        params.walk_ns = [walk_ns; 4];
        let accesses = Accesses { first_byte: 0, bytes: 1 << 20, stride_bytes, runs_ahead };
        let threads = Threads::Grid { blocks: 1, threads };
        let mut arrival = Arrival::new(&params, accesses.by(threads), 1, 0);
        arrival.next_batch(&missing(256)).expect("faults").merged
    })
}

#[test]
fn faults_that_come_during_the_walk_to_their_page_are_merged() {
    // TIMING-32, recorded: entries at hand, half at hand, another page of the va_block, none.
    assert_eq!(merged(128, false, 32), [4, 9, 16, 16], "a warp that reads 4 KiB at once");
    assert_eq!(merged(4, false, 256), [2, 4, 4, 4], "8 warps that read 1 KiB");
    assert_eq!(merged(4, true, 32), [1, 1, 11, 4], "a warp that writes line after line");
    assert_eq!(merged(4, true, 1024), [2, 5, 13, 13], "32 warps that write a line each");
}

/// The faults that a fill or copy of bytes from a page's start has on this page in its first batch.
fn bulk_merged(bytes: u64, threads: Threads, runs_ahead: bool) -> u64 {
    let params = GpuProfile::h200().arrival;
    let accesses = Accesses { first_byte: 0, bytes, stride_bytes: 4096, runs_ahead };
    let batch = Arrival::new(&params, accesses.by(threads), 1, 0).next_batch(&missing(256));
    batch.expect("faults").merged
}

#[test]
fn small_fills_and_copies_merge_as_many_faults_as_on_an_h200() {
    // TIMING-33, recorded on untouched memory.
    let sizes = [1, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];
    let all = |threads, writes| sizes.map(|bytes| bulk_merged(bytes, threads, writes));
    assert_eq!(all(Threads::Fill, true), [1, 1, 2, 4, 8, 13, 13, 13, 26]);
    assert_eq!(all(Threads::Copy, false), [1, 1, 1, 2, 4, 8, 16, 16, 16], "read");
    assert_eq!(all(Threads::Copy, true), [1, 1, 2, 4, 8, 16, 32, 32, 32], "written");
}

/// The first batch of a fill or copy of untouched memory.
fn bulk_batch(bytes: u64, threads: Threads, runs_ahead: bool) -> FaultBatch {
    let params = GpuProfile::h200().arrival;
    let accesses = Accesses { first_byte: 0, bytes, stride_bytes: 4096, runs_ahead };
    let batch = Arrival::new(&params, accesses.by(threads), 1, 0).next_batch(&missing(4096));
    batch.expect("faults")
}

#[test]
fn every_multiprocessor_reads_a_page_of_a_large_copy_at_once_and_a_quarter_of_one_of_a_small_one() {
    // TIMING-34 and 35, recorded: 35 to 37 pages of 512 KiB; 107 to 126 pages from 1 MiB on.
    let pages = |bytes| bulk_batch(bytes, Threads::Copy, false).pages().len();
    assert!((33..=37).contains(&pages(512 << 10)), "{}", pages(512 << 10));
    for mib in [1, 2, 4, 8] {
        assert!((107..=132).contains(&pages(mib << 20)), "{mib} MiB: {}", pages(mib << 20));
        let merged = bulk_batch(mib << 20, Threads::Copy, false).merged;
        assert!((1..=3).contains(&merged), "recorded: 1 to 3; {merged}");
    }
}

#[test]
fn faults_come_one_by_one_after_16_rounds_in_which_no_page_came() {
    let params = GpuProfile::h200().arrival;
    let Kernel { accesses, threads } = wide(true);
    let mut arrival = Arrival::new(&params, accesses.by(threads), 1, 0);
    let memory = wide(true).memory();
    let faults: Vec<u64> =
        (0..20).filter_map(|_| Some(arrival.next_batch(&memory)?.faults)).collect();
    assert!(faults[..17].iter().all(|&faults| faults > 1), "{faults:?}");
    assert_eq!(faults[17..], [1; 3]);
}

#[test]
fn nothing_missing_is_no_batch() {
    let memory = Memory { missing: BTreeSet::new(), end: 2048 };
    assert_eq!(wide(true).run(1, memory, |_, _| {}), []);
}

#[test]
fn a_million_blocks_take_work_by_pages_and_not_by_threads() {
    let accesses = Accesses { first_byte: 0, bytes: 1 << 40, stride_bytes: 1, runs_ahead: true };
    let threads = Threads::Grid { blocks: u32::MAX, threads: u32::MAX };
    let end = accesses.bytes / PAGE;
    let memory = Memory { missing: [7, 1 << 20, end - 1].into(), end };
    let batches = Kernel { accesses, threads }.run(1, memory, |batch, memory| {
        batch.pages().into_iter().for_each(|page| _ = memory.missing.remove(&page));
    });
    let pages: Vec<u64> = batches.into_iter().flat_map(|batch| batch.pages()).collect();
    assert_eq!(BTreeSet::from_iter(pages), BTreeSet::from([7, 1 << 20, end - 1]));
}

#[test]
fn units_that_are_through_make_room_for_others() {
    // A warp a page, twice, of which 20,000 come one after the other.
    let accesses =
        Accesses { first_byte: 0, bytes: 80 << 20, stride_bytes: 128, runs_ahead: false };
    let params = GpuProfile::h200().arrival;
    let by = accesses.by(Threads::Grid { blocks: 10_000, threads: 32 });
    let mut arrival = Arrival::new(&params, by, 1, 0);
    let mut memory = Kernel { accesses, threads: Threads::Fill }.memory();
    while let Some(batch) = arrival.next_batch(&memory) {
        let [waiting, kept, waiters] = arrival.units.counts();
        assert!(waiting > 0 && kept <= 2 * waiting, "{kept} kept for {waiting}");
        assert!((waiting..=3 * waiting + 256).contains(&waiters), "{waiters} for {waiting}");
        batch.pages().into_iter().for_each(|page| _ = memory.missing.remove(&page));
    }
}

// ---- several walks ----------------------------------------------------------------------------

/// Pages that are missing for every walk, below an end.
fn missing(pages: u64) -> Memory {
    Memory { missing: (0..pages).collect(), end: pages }
}

/// A walk of 4-byte places over 64 pages from a page on.
fn walk_at(page: u64, runs_ahead: RunsAhead) -> WalkAccesses {
    WalkAccesses { places: Places::even(page * PAGE, 4, 64 * PAGE / 4), runs_ahead }
}

/// The first batch of a kernel.
fn first_batch(walks: Vec<WalkAccesses>, (blocks, threads): (u32, u32)) -> FaultBatch {
    let params = GpuProfile::h200().arrival;
    let kernel = KernelWalks::Program { blocks, threads, walks };
    Arrival::new(&params, kernel, 1, 0).next_batch(&missing(400)).expect("faults")
}

#[test]
fn a_thread_waits_for_what_it_read_before_it_writes() {
    use RunsAhead::{Freely, ToReads};
    let walks_of = |kinds: &[RunsAhead]| {
        let walk = |(at, kind): (usize, &RunsAhead)| walk_at(at as u64 * 100, *kind);
        let batch = first_batch(kinds.iter().enumerate().map(walk).collect(), (1, 32));
        batch.raised().iter().map(|fault| fault.walk).collect::<BTreeSet<usize>>()
    };
    assert_eq!(walks_of(&[ToReads, ToReads, Freely]), [0, 1].into(), "both reads, no write");
    assert_eq!(walks_of(&[ToReads, Freely, ToReads]), [0].into());
    assert_eq!(walks_of(&[Freely, ToReads]), [0, 1].into(), "a write holds nothing up");
}

/// Scattered places, and the pages that they are on.
fn scattered() -> impl Strategy<Value = Places> {
    let range = (0..200_000_u64, 1..30_000_u64, prop_oneof![Just(4_u64), 1..9000_u64]);
    prop::collection::vec(range, 1..40).prop_map(|ranges| {
        let range = |(start, bytes, stride_bytes)| {
            let span = pagewise_hal::Span::new(pagewise_hal::DevicePtr(start), bytes);
            pagewise_hal::StridedSpan { span, stride_bytes }
        };
        Places::of(&ranges.into_iter().map(range).collect::<Vec<_>>())
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn each_walk_of_a_kernel_faults_on_exactly_its_own_pages(
        walks in prop::collection::vec((scattered(), any::<bool>()), 1..4),
        blocks in 1..40_u32,
        threads in 1..300_u32,
        seed in any::<u64>(),
    ) {
        let params = GpuProfile::h200().arrival;
        let page_of = |places: &Places, at| places.address(at) / PAGE;
        let touched: Vec<BTreeSet<u64>> = walks
            .iter()
            .map(|(places, _)| (0..places.count()).map(|at| page_of(places, at)).collect())
            .collect();
        let runs_ahead = |reads| if reads { RunsAhead::ToReads } else { RunsAhead::Freely };
        let accesses = |(places, reads)| WalkAccesses { places, runs_ahead: runs_ahead(reads) };
        let walks = walks.into_iter().map(accesses).collect();
        let kernel = KernelWalks::Program { blocks, threads, walks };
        let mut arrival = Arrival::new(&params, kernel, seed, 0);
        // Each walk has pages of its own here, also where addresses are the same.
        let mut memory = MemoryByWalk(touched.iter().map(|_| missing(60)).collect());
        let mut faulted = vec![BTreeSet::new(); touched.len()];
        while let Some(batch) = arrival.next_batch(&memory) {
            for fault in batch.raised() {
                memory.0[fault.walk].missing.remove(&fault.page);
                faulted[fault.walk].insert(fault.page);
            }
        }
        prop_assert_eq!(faulted, touched);
    }
}

struct MemoryByWalk(Vec<Memory>);

impl Missing for MemoryByWalk {
    fn next(&self, walk: usize, page: u64) -> Option<u64> {
        self.0[walk].next(0, page)
    }

    fn mapped_near(&self, page: u64) -> Nearby {
        self.0[0].mapped_near(page)
    }
}

// ---- the model that was fitted ----------------------------------------------------------------

/// The pages that come to the device after a batch.
#[derive(Debug, Clone, Copy)]
enum Service {
    /// The pages that faulted.
    Pages,
    /// Of each page that faulted, the aligned 64 KiB.
    Groups,
    /// The pages that faulted, and they push each other out: this many stay.
    Room(usize),
}

impl Service {
    fn of(self, batch: &FaultBatch, memory: &mut Memory, there: &mut VecDeque<u64>) {
        for page in batch.pages() {
            let first = page / 16 * 16;
            let pages =
                if matches!(self, Self::Groups) { first..first + 16 } else { page..page + 1 };
            pages.for_each(|page| _ = memory.missing.remove(&page));
            if let Self::Room(pages) = self {
                there.push_back(page);
                if there.len() > pages {
                    memory.missing.extend(there.pop_front());
                }
            }
        }
    }
}

/// The number of batches, the faults in them, and a digest (FNV-1a) of all that they say.
fn outline(walks: KernelWalks, service: Service, first_missing: u64, pages: u64) -> [u64; 3] {
    let params = GpuProfile::h200().arrival;
    let mut memory = Memory { missing: (first_missing..pages).collect(), end: pages };
    let mut arrival = Arrival::new(&params, walks, 5, 3);
    let (mut count, mut faults, mut digest) = (0, 0, 0xcbf2_9ce4_8422_2325_u64);
    let mut there = VecDeque::new();
    while let Some(batch) = arrival.next_batch(&memory) {
        let raised = batch.raised().into_iter().flat_map(|fault| [fault.page, fault.walk as u64]);
        for word in raised.chain([batch.merged, batch.faults]) {
            digest = (digest ^ word).wrapping_mul(0x0100_0000_01b3);
        }
        (count, faults) = (count + 1, faults + batch.faults);
        service.of(&batch, &mut memory, &mut there);
    }
    [count, faults, digest]
}

/// The figures of [`ArrivalParams`] were fitted with these batches (TIMING-31 to TIMING-35). A
/// change of the model that changes one of them needs a new fit, and then new rows here.
#[test]
fn batches_are_those_that_the_figures_were_fitted_with() {
    let program = |stride_bytes, runs_ahead, blocks, threads| {
        let accesses = Accesses { first_byte: 96, bytes: 3 << 20, stride_bytes, runs_ahead };
        accesses.by(Threads::Grid { blocks, threads })
    };
    let bulk = |bytes, threads, runs_ahead| {
        Accesses { first_byte: 96, bytes, stride_bytes: 4096, runs_ahead }.by(threads)
    };
    let walks = |kinds: &[RunsAhead]| {
        let walk = |(at, kind): (usize, &RunsAhead)| walk_at(at as u64 * 100, *kind);
        let walks = kinds.iter().enumerate().map(walk).collect();
        KernelWalks::Program { blocks: 3, threads: 96, walks }
    };
    use RunsAhead::{Freely, No, ToReads};
    use Service::{Groups, Pages, Room};
    let rows = [
        (program(4, true, 132, 1024), Pages, 0, [29, 3816, 0xde73_9dc3_01b5_ef90]),
        (program(4, false, 132, 1024), Groups, 0, [9, 1573, 0xc4f0_eef5_0625_cc04]),
        (program(128, false, 16, 256), Pages, 100, [36, 7508, 0x46c5_6367_8d7d_b37c]),
        (program(128, true, 400, 33), Groups, 0, [5, 1280, 0x405c_7ac3_b248_a470]),
        (program(4096, true, 300, 1024), Pages, 0, [153, 768, 0x8878_9f7c_34ee_e5fc]),
        (program(4096, false, 7, 96), Groups, 130, [4, 496, 0x6da3_045f_9149_3b7e]),
        (program(10_000, true, 2, 5), Pages, 0, [46, 315, 0xd5bc_422b_49a7_4282]),
        (program(60, true, 5000, 100), Pages, 400, [11, 2588, 0xf69f_963d_eb19_46f2]),
        (program(4, true, 1, 5000), Room(3), 700, [51, 412, 0x8923_0b02_b0a9_6c41]),
        (program(4096, false, 40, 64), Room(20), 600, [16, 168, 0x9842_a868_4371_3aa5]),
        (bulk(3 << 20, Threads::Fill, true), Pages, 0, [32, 4395, 0xad84_b808_e633_272d]),
        (bulk(70_001, Threads::Fill, true), Groups, 0, [2, 262, 0x5501_d721_9263_5993]),
        (bulk(3 << 20, Threads::Copy, false), Groups, 0, [7, 1537, 0x9e1e_f7d3_7c44_9620]),
        (bulk(3 << 20, Threads::Copy, true), Pages, 200, [16, 2733, 0xcc1d_8d7d_47cb_e3bf]),
        (bulk(300_000, Threads::Copy, false), Pages, 0, [5, 556, 0xfb54_9040_655b_bdc5]),
        (program(4, false, 5000, 100), Pages, 0, [24, 3615, 0x35e8_740a_6d2e_4b11]),
        (program(4, true, 3000, 256), Groups, 300, [4, 539, 0x6203_ea07_2e65_5acc]),
        (walks(&[ToReads, ToReads, Freely]), Pages, 0, [189, 1076, 0x2830_023c_e685_f579]),
        (walks(&[Freely, No, ToReads]), Groups, 0, [13, 81, 0x0f3b_5748_a8ad_74fc]),
    ];
    let is = rows.map(|(walks, service, first, row)| (outline(walks, service, first, 769), row));
    let changed: Vec<_> = is.iter().enumerate().filter(|(_, (is, row))| is != row).collect();
    assert!(changed.is_empty(), "{changed:#?}");
}
