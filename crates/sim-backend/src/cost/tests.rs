//! Claims about the cost model.

use pagewise_hal::{Advice, AttachFlags, Backend, HostAccess, HostTouch, Location, StreamHandle};
use pagewise_hal::{DeviceAccess, DeviceTouch, Processor, RangeAttribute, Span, StreamFlags};

use super::account::whole;
use super::*;
use crate::GpuProfile;
use crate::paging::{Access, HeldBlocks, Walk, Work, WorkCause};
use crate::{SimBackend, SimConfig};

const MIB: u64 = 1 << 20;

fn machine() -> SimBackend {
    SimBackend::new(SimConfig::h200()).expect("a machine")
}

fn alloc(sim: &SimBackend, bytes: u64) -> Span {
    Span::new(sim.alloc_managed(bytes, AttachFlags::GLOBAL).expect("room"), bytes)
}

fn prefetch(sim: &SimBackend, span: Span, to: Location) {
    sim.prefetch(span, to, 0, StreamHandle::NULL).expect("prefetched");
}

fn write(sim: &SimBackend, span: Span) {
    let touch = HostTouch { span, stride_bytes: 4096, access: HostAccess::Write(1) };
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.host_touch(touch) }.expect("written");
}

/// The time of a call.
fn took(sim: &SimBackend, call: impl FnOnce(&SimBackend)) -> u64 {
    let before = sim.clock_ns();
    call(sim);
    sim.clock_ns() - before
}

/// Whether a prediction is within a quarter of the recorded median.
fn is_near(predicted_ns: u64, recorded_ns: u64) -> bool {
    predicted_ns * 4 >= recorded_ns * 3 && predicted_ns * 4 <= recorded_ns * 5
}

#[test]
fn every_call_takes_time_and_so_does_its_refusal() {
    let sim = machine();
    let span = alloc(&sim, 2 * MIB);
    let nowhere = Span::new(span.ptr.offset(1 << 30), 4096);
    for range in [span, nowhere] {
        assert!(took(&sim, |sim| _ = sim.range_attribute(range, RangeAttribute::READ_MOSTLY)) > 0);
        let advise = |sim: &SimBackend| {
            _ = sim.advise(range, Advice::SET_READ_MOSTLY, Location::HOST);
        };
        assert!(took(&sim, advise) > 0);
        let prefetch = |sim: &SimBackend| {
            _ = sim.prefetch(range, Location::HOST, 0, StreamHandle::NULL);
        };
        assert!(took(&sim, prefetch) > 0);
        // SAFETY: each allocation is freed once, and the test does not use it again.
        assert!(took(&sim, |sim| _ = unsafe { sim.free(range.ptr) }) > 0);
    }
    assert!(took(&sim, |sim| sim.sleep_ns(1_000_000)) >= 1_000_000);
}

#[test]
fn a_call_that_moves_more_takes_longer() {
    let times = [1, 2, 8, 64].map(|mib| {
        let sim = machine();
        let span = alloc(&sim, 64 * MIB);
        write(&sim, span);
        took(&sim, |sim| {
            prefetch(
                sim,
                Span::new(span.ptr, mib * MIB),
                Location::device(pagewise_hal::DeviceId(0)),
            )
        })
    });
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
}

#[test]
fn a_paced_call_takes_its_pace_whatever_it_does() {
    let sim = machine();
    let span = alloc(&sim, 64 * MIB);
    sim.pace_next_op(77, []);
    assert_eq!(took(&sim, |sim| write(sim, span)), 77);
    sim.pace_next_op(5, []);
    assert_eq!(took(&sim, |sim| sim.sleep_ns(1_000_000)), 5);
    assert!(took(&sim, |sim| write(sim, span)) > 0, "the pace is for one call");
}

#[test]
fn the_pace_of_faults_decides_what_thrashes() {
    const CALL_NS: u64 = 400_000;
    // A page goes back and forth three times. Where faults come late in one call and early in the
    // next, two lie close together and the pair after them does not.
    let thrashing = |waits_ns: [u64; 2]| {
        let sim = machine();
        let span = Span::new(alloc(&sim, 2 * MIB).ptr, 4096);
        for call in 0..6 {
            let wait_ns = waits_ns[call % 2];
            sim.pace_next_op(CALL_NS, [(wait_ns, 0)]);
            match call % 2 {
                0 => write(&sim, span),
                _ => write_by_device(&sim, span),
            }
        }
        assert_eq!(sim.clock_ns(), 6 * CALL_NS + took_by_alloc());
        sim.counters().thrashing_pages
    };
    assert_eq!(thrashing([0, 0]), 16, "each 400 us after the last, 64 KiB at a time");
    assert_eq!(thrashing([0, CALL_NS]), 0, "alternately 800 us and none");
}

fn took_by_alloc() -> u64 {
    took(&machine(), |sim| _ = alloc(sim, 2 * MIB))
}

fn write_by_device(sim: &SimBackend, span: Span) {
    let access = DeviceAccess::Write(1);
    let device = pagewise_hal::DeviceId(0);
    let touch = DeviceTouch { device, span, stride_bytes: 4096, access, blocks: 1, threads: 1 };
    // SAFETY: only this test uses the memory, from one thread.
    unsafe { sim.device_touch(touch, StreamHandle::NULL) }.expect("written");
}

#[test]
fn the_same_calls_take_the_same_time() {
    let run = || {
        let sim = machine();
        let span = alloc(&sim, 8 * MIB);
        write(&sim, span);
        sim.sleep_ns(2_000_000);
        prefetch(&sim, span, Location::HOST);
        sim.clock_ns()
    };
    assert_eq!(run(), run());
}

#[test]
fn an_h200_takes_what_was_recorded() {
    // Recordings `timing`, case `touch_cold_host`, op 2, and `prefetch_sizes`, op 1.
    let sim = machine();
    let mut span = Span::new(pagewise_hal::DevicePtr(0), 0);
    assert!(is_near(took(&sim, |sim| span = alloc(sim, 2 * MIB)), 45_086));
    let page = Span::new(span.ptr, 4096);
    assert!(is_near(took(&sim, |sim| write(sim, page)), 255_794));
    // Recordings `migrate`, `advise`, `small`, `discard`: sleeps of 1 ms.
    assert!(is_near(took(&sim, |sim| sim.sleep_ns(1_000_000)), 1_066_423));
}

#[test]
fn memory_that_a_free_gave_back_is_zeroed_faster_unless_the_machine_slept() {
    let second_write = |pause_ns: u64| {
        let sim = machine();
        let first = alloc(&sim, 2 * MIB);
        write(&sim, first);
        // SAFETY: each allocation is freed once, and the test does not use it again.
        unsafe { sim.free(first.ptr) }.expect("freed");
        let second = alloc(&sim, 2 * MIB);
        if pause_ns > 0 {
            sim.sleep_ns(pause_ns);
        }
        took(&sim, |sim| write(sim, second))
    };
    // 512 pages; what else a sleep costs is far less.
    assert!(second_write(0) + 50_000 < second_write(1_000));
}

#[test]
fn only_as_much_as_the_kernel_keeps_at_hand_is_zeroed_faster() {
    let costs = GpuProfile::h200().cost.host_touch;
    let took = |freed_mib: u64, wanted_mib: u64| {
        let sim = machine();
        let first = alloc(&sim, freed_mib * MIB);
        write(&sim, first);
        // SAFETY: each allocation is freed once, and the test does not use it again.
        unsafe { sim.free(first.ptr) }.expect("freed");
        let second = alloc(&sim, wanted_mib * MIB);
        took(&sim, |sim| write(sim, second)) as f64
    };
    let saved = 512.0 * (costs.zero_page - costs.zero_warm_page);
    let (small, large) = (took(2, 8), took(64, 8));
    assert!((small - large).abs() < saved / 2.0, "{small} and {large}");
}

#[test]
fn an_observed_call_has_the_time_that_it_took() {
    let sim = machine();
    sim.observe_costs();
    let device = Location::device(pagewise_hal::DeviceId(0));
    let span = alloc(&sim, 8 * MIB);
    let calls: [&dyn Fn(); 6] = [
        &|| write(&sim, span),
        &|| prefetch(&sim, Span::new(span.ptr, 4 * MIB), device),
        &|| sim.advise(span, Advice::SET_READ_MOSTLY, device).expect("advised"),
        &|| write(&sim, span),
        &|| sim.sleep_ns(2_000_000),
        &|| prefetch(&sim, span, Location::HOST),
    ];
    drop(sim.take_cost_observations());
    for call in calls {
        let before_ns = sim.clock_ns();
        call();
        let took = (sim.clock_ns() - before_ns) as f64;
        let seen = sim.take_cost_observations();
        let again: f64 = seen.iter().map(|one| one.ns(&GpuProfile::h200().cost)).sum();
        // Each fault is rounded to whole nanoseconds when it is charged.
        assert!(!seen.is_empty() && (took - again).abs() <= took * 0.001, "{took} and {again}");
    }
}

/// A fill with attached memory charges one migration and itself; a copy looks at two ranges.
#[test]
fn memory_attached_to_a_stream_migrates_once_for_a_copy() {
    let charged = |work: &dyn Fn(&SimBackend, StreamHandle, [Span; 2])| {
        let sim = machine();
        let stream = sim
            .stream_create(pagewise_hal::DeviceId(0), StreamFlags::NON_BLOCKING)
            .expect("a stream");
        let [attached, from, to] = [4 * MIB, MIB, MIB].map(|bytes| alloc(&sim, bytes));
        write(&sim, attached);
        // SAFETY: only the host accessed the memory before, and the test keeps to the attachment.
        unsafe { sim.stream_attach(stream, attached, AttachFlags::SINGLE) }.expect("attached");
        sim.observe_costs();
        work(&sim, stream, [from, to]);
        sim.take_cost_observations().len()
    };
    let fill = charged(&|sim, stream, [_, to]| {
        // SAFETY: only this test uses the memory, from one thread.
        unsafe { sim.memset(to, 1, stream) }.expect("filled");
    });
    let copy = charged(&|sim, stream, [from, to]| {
        // SAFETY: only this test uses the memory, from one thread.
        unsafe { sim.memcpy(to.ptr, from.ptr, MIB, stream) }.expect("copied");
    });
    assert_eq!((fill, copy), (2, 2));
}

#[test]
fn an_observed_time_is_proportional_to_prices() {
    let sim = machine();
    sim.observe_costs();
    let span = alloc(&sim, 8 * MIB);
    write(&sim, span);
    let mut free = GpuProfile::h200().cost;
    let mut dear = free;
    (dear.host_touch.zero_page, dear.host_touch.fault_fresh) = (4_000.0, 20_000.0);
    (free.host_touch.zero_page, free.host_touch.fault_fresh) = (0.0, 0.0);
    let seen = sim.take_cost_observations();
    let write = seen.last().expect("the write");
    let middle = |a: f64, b: f64| (a + b) / 2.0;
    let mut half = free;
    half.host_touch.zero_page = 2_000.0;
    half.host_touch.fault_fresh = 10_000.0;
    let expected = middle(write.ns(&free), write.ns(&dear));
    assert!((write.ns(&half) - expected).abs() < expected * 1e-9);
    assert!(write.ns(&dear) > write.ns(&free));
}

#[test]
fn nobody_observes_unless_asked() {
    let sim = machine();
    alloc(&sim, 2 * MIB);
    assert!(sim.take_cost_observations().is_empty());
}

#[test]
fn a_fault_takes_its_time_while_the_program_runs() {
    let mut meter = Meter::new(GpuProfile::h200().cost);
    let device = Processor::device(0);
    meter.begin(Call::DeviceTouch { threads: 1, bulk: false }, 0);
    assert!(meter.fault_latency_ns(device, 0) > 0);
    let work = Work { processor: Some(device), pages_to_device: 1, copies: 1, ..Work::default() };
    assert!(meter.work(&work) > 0);
}

#[test]
fn a_sleep_never_ends_early() {
    let mut costs = GpuProfile::h200().cost;
    (costs.fixed.sleep, costs.fixed.sleep_ns) = (100.0, 0.5);
    let mut meter = Meter::new(costs);
    assert_eq!(meter.sleep(1_000), 1_000, "the model alone would say 600");
    assert_eq!(meter.sleep(100), 150);
}

#[test]
fn a_call_that_needs_room_waits_for_the_evictions_even_if_it_is_refused() {
    let costs = GpuProfile::h200().cost;
    let work = Work {
        cause: WorkCause::Eviction,
        processor: Some(Processor::device(0)),
        pages_to_host: 512,
        copies: 1,
        unmaps_device: 1,
        ..Work::default()
    };
    let eviction_ns = calls::eviction(&costs.prefetch, &work, tally::Zeroed::default());
    assert!(eviction_ns > costs.prefetch.to_host_byte * 512.0 * 4096.0);
    let takes = |call: Call, refused: bool, evictions: usize| {
        let mut meter = Meter::new(costs);
        meter.begin(call, 0);
        (0..evictions).for_each(|_| assert_eq!(meter.work(&work), 0, "not at once"));
        meter.end(0, 0, refused)
    };
    let touch = Call::DeviceTouch { threads: 1, bulk: false };
    let prefetch = Call::Prefetch { ranges: 1, batch: false };
    for call in [touch, prefetch, Call::PlainMemory] {
        for refused in [false, true] {
            let longer_ns = takes(call, refused, 3) - takes(call, refused, 0);
            assert!(longer_ns.abs_diff(whole(3.0 * eviction_ns)) <= 1, "{call:?}: {longer_ns}");
        }
    }
}

#[test]
fn times_are_rounded_to_the_nearest_nanosecond() {
    let rounded = [0.0, 0.4, 0.5, 1.4, 2.5, 1e30].map(whole);
    assert_eq!(rounded, [0, 0, 1, 1, 3, crate::clock::END_NS]);
}

/// A meter with prices of 0, but for those that `set` changes.
fn priced(set: impl Fn(&mut CostParams)) -> Meter {
    let mut params = prices::nothing();
    set(&mut params);
    Meter::new(params)
}

/// The time of a call in which nothing happens.
fn empty_call(meter: &mut Meter, call: Call, start_ns: u64) -> u64 {
    meter.begin(call, start_ns);
    let end_ns = meter.end(start_ns, start_ns, false);
    meter.remember(end_ns);
    end_ns - start_ns
}

#[test]
fn a_call_without_a_class_of_its_own_leaves_the_machine_as_it_was() {
    let mut meter = priced(|params| params.advice.no_memory_after_sleep = 5.0);
    meter.sleep(1);
    for unnoticed in [Call::Other, Call::Wait] {
        assert_eq!(empty_call(&mut meter, unnoticed, 0), 0);
        assert_eq!(empty_call(&mut meter, Call::Advise, 0), 5, "{unnoticed:?}");
        meter.sleep(1);
    }
    assert_eq!(empty_call(&mut meter, Call::PointerAttribute, 0), 0);
    assert_eq!(empty_call(&mut meter, Call::Advise, 0), 0, "somebody woke the machine");
}

#[test]
fn each_class_of_calls_is_cold_on_its_own() {
    let mut meter = priced(|params| {
        let classes = [
            &mut params.allocation.alloc_packed_warmth,
            &mut params.allocation.free_warmth,
            &mut params.query.warmth,
            &mut params.prefetch.warmth,
            &mut params.discard.warmth,
            &mut params.host_touch.warmth,
            &mut params.device_touch.warmth,
        ];
        classes.into_iter().for_each(|class| class.first = 3.0);
    });
    let classes = [
        Call::AllocManaged,
        Call::Free,
        Call::RangeAttribute,
        Call::Prefetch { ranges: 1, batch: false },
        Call::Discard,
        Call::HostTouch,
        Call::DeviceTouch { threads: 1, bulk: false },
    ];
    for call in classes {
        assert_eq!(empty_call(&mut meter, call, 0), 3, "{call:?}, the first");
        assert_eq!(empty_call(&mut meter, call, 0), 0, "{call:?}, the second");
    }
    assert_eq!(empty_call(&mut meter, Call::DiscardPrefetch, 0), 0, "as a discard before it");
}

#[test]
fn an_allocation_with_a_range_and_one_from_a_slab_are_different_classes() {
    let mut meter = priced(|params| {
        params.allocation.alloc_warmth.first = 3.0;
        params.allocation.alloc_packed_warmth.first = 5.0;
    });
    let mut alloc = |ranges: usize| {
        meter.begin(Call::AllocManaged, 0);
        (0..ranges).for_each(|_| meter.range_made());
        let end_ns = meter.end(0, 0, false);
        meter.remember(end_ns);
        end_ns
    };
    assert_eq!([alloc(1), alloc(0), alloc(1), alloc(0)], [3, 5, 0, 0]);
}

#[test]
fn a_read_that_follows_a_read_does_not_pay_for_the_state_again() {
    let mut meter = priced(|params| {
        params.query.warmth.paused = 8.0;
        params.query.range_attribute = 1.0;
    });
    let read = Call::RangeAttribute;
    empty_call(&mut meter, read, 0);
    assert_eq!(empty_call(&mut meter, read, 1_000_000), 1);
    empty_call(&mut meter, Call::Free, 1_000_000);
    assert_eq!(empty_call(&mut meter, read, 2_000_000), 5, "half of 8, as the third in a row");
}

#[test]
fn memory_that_a_free_gave_back_is_known_to_later_calls() {
    let mut meter = priced(|params| {
        params.prefetch.zero_host_page = 100.0;
        params.prefetch.zero_warm_host_page = 1.0;
    });
    meter.begin(Call::Free, 0);
    meter.range_gone(&HeldBlocks { host_pages: 3, ..HeldBlocks::default() });
    meter.end(0, 0, false);
    meter.remember(0);
    let mut zeroed = || {
        meter.begin(Call::Prefetch { ranges: 1, batch: false }, 0);
        meter.work(&Work { cause: WorkCause::Migration, pages_zeroed_host: 2, ..Work::default() });
        let end_ns = meter.end(0, 0, false);
        meter.remember(end_ns);
        end_ns
    };
    assert_eq!([zeroed(), zeroed(), zeroed()], [2, 101, 200]);
}

#[test]
fn an_observed_call_and_sleep_can_be_priced_again() {
    let mut meter = priced(|params| params.query.range_attribute = 1.0);
    meter.observe();
    empty_call(&mut meter, Call::RangeAttribute, 0);
    meter.sleep(10);
    empty_call(&mut meter, Call::RangeAttribute, 0);
    meter.begin(Call::Advise, 0);
    meter.end(0, 0, true);
    let mut params = prices::nothing();
    params.query.range_attribute = 2.0;
    params.query.warmth.first = 30.0;
    params.query.warmth.after_sleep = [400.0; 3];
    params.fixed.sleep_ns = 0.5;
    params.fixed.refused_advice = 6.0;
    let observed = meter.take_observations();
    let again: Vec<f64> = observed.iter().map(|one| one.ns(&params)).collect();
    assert_eq!(again, [32.0, 5.0, 402.0, 6.0]);
    assert!(meter.take_observations().is_empty(), "each is given once");
}

#[test]
fn a_call_priced_again_knows_what_the_call_before_it_left() {
    let mut meter = priced(|params| params.query.range_attribute = 1.0);
    meter.observe();
    empty_call(&mut meter, Call::RangeAttribute, 0);
    empty_call(&mut meter, Call::RangeAttribute, 1_000_000);
    meter.begin(Call::Free, 0);
    meter.range_gone(&HeldBlocks { host_pages: 3, ..HeldBlocks::default() });
    meter.end(0, 0, false);
    meter.remember(0);
    for _ in 0..2 {
        meter.begin(Call::Prefetch { ranges: 1, batch: false }, 0);
        meter.work(&Work { cause: WorkCause::Migration, pages_zeroed_host: 2, ..Work::default() });
        meter.end(0, 0, false);
        meter.remember(0);
    }
    let mut params = prices::nothing();
    params.query.warmth.paused = 30.0;
    params.prefetch.zero_host_page = 100.0;
    params.prefetch.zero_warm_host_page = 1.0;
    let again: Vec<f64> = meter.take_observations().iter().map(|one| one.ns(&params)).collect();
    let [_, second_read, _, recycled, rest] = again[..] else { panic!("{again:?}") };
    assert_eq!(second_read, 0.0, "a read that follows a read does not pay for the pause");
    assert_eq!([recycled, rest], [2.0, 101.0], "3 pages of the free were at hand");
}

#[test]
fn accesses_are_counted_anew_from_where_a_program_begins() {
    let device = Processor::device(0);
    let walk =
        Walk { by: device, first_byte: 0, bytes: 1 << 20, stride_bytes: 4, access: Access::Read };
    let waited = |begins_anew: bool| {
        let mut meter = priced(|params| {
            params.device_touch.fault_gap = 100.0;
            params.device_touch.gap_read = 1.0;
            params.device_touch.wake_cold = 8.0;
        });
        meter.begin(Call::DeviceTouch { threads: 1, bulk: false }, 0);
        meter.walks(&walk);
        meter.fault_latency_ns(device, 0);
        if begins_anew {
            meter.walks(&walk);
        }
        meter.fault_latency_ns(device, 51)
    };
    assert_eq!([waited(false), waited(true)], [4, 0]);
}
