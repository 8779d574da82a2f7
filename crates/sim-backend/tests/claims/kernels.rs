//! Kernels: their declared accesses move pages as the accesses of programs do.

use pagewise_hal::{
    Advice, Backend, BackendExt, Code, DeviceAccess, DeviceId, DevicePtr, DeviceTouch, FaultAccess,
    KernelAccess, KernelAccesses, KernelWalk, Location, MemoryEvent, PAGE_BYTES, Processor,
    RangeAttribute, Result, Span, StreamFlags, StreamHandle, StridedSpan,
};
use pagewise_sim::{DiscardedContents, SimBackend, SimConfig};
use proptest::prelude::*;

use crate::common::{MIB, code};

const DEVICE: DeviceId = DeviceId(0);

fn sim() -> SimBackend {
    SimBackend::new(SimConfig::h200()).expect("address space")
}

fn walk(access: KernelAccess, places: &[(Span, u64)]) -> KernelWalk {
    let strided = |&(span, stride_bytes): &(Span, u64)| StridedSpan { span, stride_bytes };
    KernelWalk { access, places: places.iter().map(strided).collect() }
}

fn serial(walks: Vec<KernelWalk>) -> KernelAccesses {
    KernelAccesses { device: DEVICE, blocks: 1, threads: 1, walks }
}

fn run(sim: &SimBackend, kernel: &KernelAccesses) -> Result<()> {
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.kernel_accesses(kernel, StreamHandle::NULL) }
}

/// The records of a machine, with addresses from a base on.
fn records(sim: &SimBackend, base: DevicePtr) -> Vec<MemoryEvent> {
    let events = sim.take_events().expect("kept").into_iter();
    events.map(|event| event.with_address(event.address() - base.0)).collect()
}

#[test]
fn a_kernel_of_one_walk_is_an_access_program() {
    let kinds = [
        (KernelAccess::Load, DeviceAccess::Read),
        (KernelAccess::Store, DeviceAccess::Write(0)),
        (KernelAccess::Atomic, DeviceAccess::AtomicAdd),
    ];
    for (access, as_program) in kinds {
        for (blocks, threads) in [(1, 1), (4, 64), (132, 256)] {
            for stride_bytes in [4, PAGE_BYTES, 20_000] {
                let (one, other) = (sim(), sim());
                let [a, b] = [&one, &other].map(|sim| sim.alloc(6 * MIB).expect("memory"));
                let (device, span) = (DEVICE, a);
                let touch =
                    DeviceTouch { device, span, stride_bytes, access: as_program, blocks, threads };
                // SAFETY: only this test uses the memory, from one thread.
                unsafe { one.device_touch(touch, StreamHandle::NULL) }.expect("inside");
                let walks = vec![walk(access, &[(b, stride_bytes)])];
                let kernel = KernelAccesses { device, blocks, threads, walks };
                run(&other, &kernel).expect("inside");
                assert_eq!(records(&one, a.ptr), records(&other, b.ptr), "{kernel:?}");
                assert_eq!(one.clock_ns(), other.clock_ns(), "{kernel:?}");
            }
        }
    }
}

fn faults(records: &[MemoryEvent]) -> Vec<(u64, FaultAccess)> {
    let fault = |record: &MemoryEvent| match record {
        MemoryEvent::GpuFault { address, access, .. } => Some((address / PAGE_BYTES, *access)),
        _ => None,
    };
    records.iter().filter_map(fault).collect()
}

#[test]
fn an_update_reads_each_place_before_it_writes_it() {
    let sim = sim();
    let span = sim.alloc(2 * MIB).expect("memory");
    sim.advise(span, Advice::SET_READ_MOSTLY, Location::HOST).expect("managed");
    run(&sim, &serial(vec![walk(KernelAccess::Update, &[(span, 65_536)])])).expect("inside");
    let first: Vec<_> = faults(&records(&sim, span.ptr)).into_iter().take(2).collect();
    // Read-mostly pages are mapped for reading only, so the write faults again.
    assert_eq!(first, [(0, FaultAccess::Read), (0, FaultAccess::Write)]);
}

#[test]
fn scattered_places_fault_in_their_order_and_bring_nothing_else() {
    let sim = sim();
    let span = sim.alloc(64 * MIB).expect("memory");
    let byte = |page: u64| (Span::new(span.ptr.offset(page * PAGE_BYTES), 4), 4);
    let pages = [9000_u64, 3, 12_000, 600];
    let kernel = serial(vec![walk(KernelAccess::Store, &pages.map(byte))]);
    run(&sim, &kernel).expect("inside");
    let expected: Vec<_> = pages.iter().map(|&page| (page, FaultAccess::Write)).collect();
    assert_eq!(faults(&records(&sim, span.ptr)), expected);
}

#[test]
fn a_grid_of_several_walks_faults_in_batches_that_mix_them() {
    let sim = sim();
    let [a, b, c] = [(); 3].map(|()| sim.alloc(2 * MIB).expect("memory"));
    for span in [a, b, c] {
        sim.prefetch_to(span, Location::HOST).expect("managed");
    }
    sim.take_events().expect("kept");
    let dense = |access, span| walk(access, &[(span, 4)]);
    let walks = vec![
        dense(KernelAccess::Load, a),
        dense(KernelAccess::Load, b),
        dense(KernelAccess::Store, c),
    ];
    run(&sim, &KernelAccesses { device: DEVICE, blocks: 132, threads: 256, walks })
        .expect("inside");
    let counters = sim.counters();
    assert!((3..=512).contains(&counters.gpu_faults), "{counters:?}");
    for span in [a, b, c] {
        let place = RangeAttribute::LAST_PREFETCH_LOCATION;
        assert_eq!(sim.range_attribute(span, place), Ok(-1), "a kernel is no prefetch");
        let mapped = sim.host_page_map(span).expect("managed");
        assert!(mapped.iter().all(|run| !run.mapped), "all pages went to the device");
    }
}

#[test]
fn a_discarded_page_that_a_kernel_stores_keeps_what_the_host_then_writes_there() {
    let config = SimConfig::h200().discarded_contents(DiscardedContents::Driver);
    let sim = SimBackend::new(config).expect("address space");
    let span = sim.alloc(2 * MIB).expect("memory");
    let stream = sim.stream_create(DEVICE, StreamFlags::NON_BLOCKING).expect("a stream");
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.discard_batch(&[span], 0, stream) }.expect("managed");
    let kernel = serial(vec![walk(KernelAccess::Store, &[(span, PAGE_BYTES)])]);
    run(&sim, &kernel).expect("inside");
    let first = std::ptr::with_exposed_provenance_mut::<u8>(span.ptr.0 as usize);
    // SAFETY: the byte is live memory of the simulator, and only this test uses it.
    unsafe { first.write(77) };
    sim.prefetch_to(span, Location::HOST).expect("managed");
    // SAFETY: the byte is live memory of the simulator, and only this test uses it.
    assert_eq!(unsafe { first.read() }, 77);
}

#[test]
fn kernels_are_refused_before_anything_moves() {
    let sim = SimBackend::new(SimConfig::h200().devices(2)).expect("address space");
    let (span, plain) = (sim.alloc(MIB).expect("memory"), sim.alloc_device(DeviceId(1), MIB));
    let plain = Span::new(plain.expect("memory"), MIB);
    let other = sim.stream_create(DeviceId(1), StreamFlags::NON_BLOCKING).expect("a stream");
    let good = serial(vec![walk(KernelAccess::Store, &[(span, 4096)])]);
    let with = |more: (Span, u64)| {
        serial(vec![walk(KernelAccess::Store, &[(span, 4096)]), walk(KernelAccess::Load, &[more])])
    };
    let behind = Span::new(span.ptr.offset(MIB - 1), 2);
    for (kernel, expected) in [
        (KernelAccesses { device: DeviceId(2), ..good.clone() }, Code::INVALID_DEVICE),
        (KernelAccesses { threads: 0, ..good.clone() }, Code::INVALID_VALUE),
        (with((span, 0)), Code::INVALID_VALUE),
        (with((behind, 1)), Code::ILLEGAL_ADDRESS),
        (with((plain, 1)), Code::ILLEGAL_ADDRESS),
        (with((Span::new(DevicePtr(64), 8), 1)), Code::ILLEGAL_ADDRESS),
    ] {
        assert_eq!(code(run(&sim, &kernel)), expected, "{kernel:?}");
    }
    // SAFETY: only this test uses the memory, from one thread.
    let elsewhere = unsafe { sim.kernel_accesses(&good, other) };
    assert_eq!(code(elsewhere), Code::INVALID_HANDLE);
    assert_eq!(sim.take_events(), Ok(Vec::new()));
    run(&sim, &good).expect("inside");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        cases: 40,
        ..ProptestConfig::default()
    })]

    /// Wherever pages were, the device has all that it accessed, and the host the rest of what it
    /// had, but for pages that came along in the same block.
    #[test]
    fn accessed_pages_are_on_the_device_and_blocks_without_an_access_stay(
        walks in prop::collection::vec(
            (0..4_usize, prop::collection::vec((0..4000_u64, 1..90_000_u64, 1..9000_u64), 1..8)),
            1..4,
        ),
        blocks in 1..20_u32,
        threads in 1..200_u32,
    ) {
        let sim = sim();
        let span = sim.alloc(32 * MIB).expect("memory");
        sim.prefetch_to(span, Location::HOST).expect("managed");
        let kinds = [
            KernelAccess::Load,
            KernelAccess::Store,
            KernelAccess::Update,
            KernelAccess::Atomic,
        ];
        let range = |&(page, bytes, stride): &(u64, u64, u64)| {
            (Span::new(span.ptr.offset(page * PAGE_BYTES + page % 7), bytes), stride)
        };
        let walks: Vec<KernelWalk> = walks
            .iter()
            .map(|(kind, ranges)| {
                walk(kinds[*kind], &ranges.iter().map(range).collect::<Vec<_>>())
            })
            .collect();
        let mut touched = std::collections::BTreeSet::new();
        for StridedSpan { span: part, stride_bytes } in walks.iter().flat_map(|w| &w.places) {
            let places = (0..part.bytes).step_by(*stride_bytes as usize);
            touched.extend(places.map(|at| (part.ptr.0 - span.ptr.0 + at) / PAGE_BYTES));
        }
        sim.take_events().expect("kept");
        run(&sim, &KernelAccesses { device: DEVICE, blocks, threads, walks }).expect("inside");
        let map = sim.host_page_map(span).expect("managed");
        let pages = map.iter().flat_map(|run| std::iter::repeat_n(run.mapped, run.pages as usize));
        for (page, on_host) in pages.enumerate() {
            let (page, block) = (page as u64, page as u64 / 512);
            if touched.contains(&page) {
                prop_assert!(!on_host, "page {page} was accessed");
            } else if !touched.range(block * 512..(block + 1) * 512).any(|_| true) {
                prop_assert!(on_host, "page {page} is of a block without an access");
            }
        }
        for record in sim.take_events().expect("kept") {
            if let MemoryEvent::Copy { from, to, .. } = record {
                prop_assert_eq!((from, to), (Processor::HOST, Processor::device(0)));
            }
        }
    }
}
