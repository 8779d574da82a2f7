//! Blocks with pages that came or went are told to those who follow managed memory.

use pagewise_hal::{
    Backend, BackendExt, DeviceAccess, DeviceId, DeviceTouch, HostAccess, HostTouch, Location,
    Processor, Span, StreamHandle,
};
use pagewise_sim::{ManagedStep, SimBackend, SimConfig};
use proptest::prelude::*;

const BLOCK: u64 = 2 << 20;
const BYTES: u64 = 6 * BLOCK;

#[derive(Debug, Clone)]
enum Act {
    Prefetch(Location),
    Advise(bool),
    HostTouch(u64),
    DeviceTouch(u64),
    Discard,
    Replace,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        any::<bool>().prop_map(|host| Act::Prefetch(match host {
            true => Location::HOST,
            false => Location::device(DeviceId(0)),
        })),
        any::<bool>().prop_map(Act::Advise),
        prop_oneof![Just(4096), Just(1 << 20)].prop_map(Act::HostTouch),
        prop_oneof![Just(4096), Just(1 << 20)].prop_map(Act::DeviceTouch),
        Just(Act::Discard),
        Just(Act::Replace),
    ]
}

fn carry_out(sim: &SimBackend, whole: &mut Span, (first, pages): (u64, u64), act: &Act) {
    let start = first * 4096;
    let bytes = (pages * 4096).min(BYTES - start);
    let span = Span::new(whole.ptr.offset(start), bytes);
    let stream = StreamHandle::PER_THREAD;
    match *act {
        Act::Prefetch(to) => sim.prefetch_to(span, to).expect("managed"),
        Act::Advise(on) => {
            let advice = if on {
                pagewise_hal::Advice::SET_READ_MOSTLY
            } else {
                pagewise_hal::Advice::UNSET_READ_MOSTLY
            };
            sim.advise(span, advice, Location::HOST).expect("managed");
        }
        Act::HostTouch(stride_bytes) => {
            let touch = HostTouch { span, stride_bytes, access: HostAccess::Write(1) };
            // SAFETY: only this test knows the memory.
            unsafe { sim.host_touch(touch) }.map(drop).expect("managed");
        }
        Act::DeviceTouch(stride_bytes) => {
            let (device, access) = (DeviceId(0), DeviceAccess::Write(2));
            let touch = DeviceTouch { device, span, stride_bytes, access, blocks: 1, threads: 1 };
            // SAFETY: only this test knows the memory.
            unsafe { sim.device_touch(touch, stream) }.map(drop).expect("managed");
        }
        // SAFETY: only this test knows the memory.
        Act::Discard => unsafe { sim.discard_batch(&[span], 0, stream) }.expect("managed"),
        Act::Replace => {
            // SAFETY: only this test knows the memory.
            unsafe { sim.free(whole.ptr) }.expect("live memory");
            *whole = sim.alloc(BYTES).expect("memory");
        }
    }
}

/// How much of each block is on the host and on the device.
fn places(sim: &SimBackend, whole: Span) -> Vec<(u64, [u64; 2])> {
    let blocks = (0..BYTES / BLOCK).map(|block| Span::new(whole.ptr.offset(block * BLOCK), BLOCK));
    let on =
        |span: Span| [Processor::HOST, Processor::device(0)].map(|at| sim.resident_bytes(span, at));
    blocks.map(|span| (span.ptr.0, on(span))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn blocks_with_pages_that_came_or_went_are_told_and_so_are_allocations(
        acts in prop::collection::vec((act(), (0..3072_u64, 1..2000_u64)), 1..20),
    ) {
        let sim = SimBackend::new(SimConfig::h200()).expect("address space");
        let mut whole = sim.alloc(BYTES).expect("memory");
        sim.follow_managed();
        for (act, part) in acts {
            let (before, old) = (places(&sim, whole), whole);
            carry_out(&sim, &mut whole, part, &act);
            let changes = sim.take_managed_changes();
            if let Act::Replace = act {
                prop_assert_eq!(changes.steps, [ManagedStep::Gone(old), ManagedStep::Made(whole)]);
                continue;
            }
            prop_assert_eq!(changes.steps, []);
            for (then, now) in before.into_iter().zip(places(&sim, whole)) {
                prop_assert!(then == now || changes.blocks.contains(&now.0), "{act:?} {part:?}");
            }
        }
        prop_assert!(sim.take_managed_changes().blocks.is_empty());
    }
}

#[test]
fn nothing_is_told_before_changes_are_followed() {
    let sim = SimBackend::new(SimConfig::h200()).expect("address space");
    let span = sim.alloc(BYTES).expect("memory");
    sim.prefetch_to(span, Location::HOST).expect("managed");
    assert_eq!(sim.take_managed_changes(), Default::default());
}
