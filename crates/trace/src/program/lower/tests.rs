//! The promises of lowering about any steps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::format::{CopyBatch, CopyPart};
use crate::program::{Family, RandomProgram};

fn programs() -> impl Strategy<Value = Vec<Op>> {
    let version = prop::sample::select(vec![12000, 12020, 12080, 13000]);
    (any::<u64>(), prop::sample::select(Family::ALL.to_vec()), 1..=2u32, version).prop_map(
        |(seed, family, devices, version)| {
            let offers = Offers { devices, version: DriverVersion(version) };
            let case = RandomProgram::new(family, seed, 0, 60, offers).case();
            case.ops.into_iter().map(|line| line.recorded.op).collect()
        },
    )
}

/// Sizes of the buffers that live after each operation, by id, and whether touches reach them.
fn live_after_each(ops: &[Op]) -> Vec<BTreeMap<u32, (u64, bool)>> {
    let pins = |op: &Op| match *op {
        Op::AllocPinned { buf, .. } => Some(buf),
        _ => None,
    };
    let pinned: Vec<u32> = ops.iter().filter_map(pins).collect();
    let mut live = BTreeMap::new();
    let after = |op: &Op| {
        match *op {
            Op::AllocManaged { buf, bytes, attach_flags: 1 | 2 } if bytes > 0 => {
                live.insert(buf, (bytes, true));
            }
            Op::PoolAlloc { buf, bytes, .. } => _ = live.insert(buf, (bytes, true)),
            Op::AllocDevice { buf, bytes, .. } | Op::AllocPinned { buf, bytes, .. } => {
                live.insert(buf, (bytes, false));
            }
            // The call refuses pinned memory, which lives on.
            Op::Free { buf } if pinned.contains(&buf) => {}
            Op::Free { buf } | Op::PoolFree { buf } => _ = live.remove(&buf),
            _ => {}
        }
        live.clone()
    };
    ops.iter().map(after).collect()
}

fn apart(a: Part, b: Part) -> bool {
    a.buf != b.buf || a.offset.max(b.offset) >= (a.offset + a.bytes).min(b.offset + b.bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn accesses_stay_within_live_buffers_and_end_soon(ops in programs()) {
        for (op, live) in ops.iter().zip(live_after_each(&ops)) {
            let known = |part: Part| live.get(&part.buf).copied().unwrap_or((0, false));
            let within = |part: Part| part.offset + part.bytes <= known(part).0;
            let inside = |part: Part| within(part) && known(part).1;
            match *op {
                Op::HostTouch { part, stride, .. } => {
                    prop_assert!(inside(part) && part.bytes > 0);
                    prop_assert!(part.bytes.div_ceil(stride) <= MAX_SERIAL_ACCESSES);
                }
                Op::DeviceTouch { part, stride, blocks, threads, .. } => {
                    prop_assert!(inside(part) && part.bytes > 0);
                    let serial = blocks * threads == 1;
                    let few = part.bytes.div_ceil(stride) <= MAX_SERIAL_ACCESSES;
                    prop_assert!(!serial || few);
                }
                Op::Memset { part, .. } => prop_assert!(inside(part)),
                Op::MemsetD16 { part, .. } | Op::MemsetD32 { part, .. } => {
                    prop_assert!(within(part));
                }
                Op::Memcpy { to, from, bytes, .. } => {
                    let copy = CopyPart { to, from, bytes };
                    prop_assert!(within(copy.written()) && within(copy.read()));
                    prop_assert!(apart(copy.written(), copy.read()));
                }
                Op::MemcpyBatch(CopyBatch { ref copies, .. }) => {
                    for (at, copy) in copies.iter().enumerate() {
                        prop_assert!(within(copy.written()) && within(copy.read()));
                        prop_assert!(apart(copy.written(), copy.read()));
                        for other in copies.iter().enumerate().filter(|(other, _)| *other != at) {
                            let used = [other.1.written(), other.1.read()];
                            prop_assert!(used.iter().all(|&used| apart(copy.written(), used)));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_ids_are_used_once(ops in programs()) {
        for live in live_after_each(&ops) {
            prop_assert!(live.values().map(|(bytes, _)| bytes).sum::<u64>() <= MAX_LIVE_BYTES);
            prop_assert!(live.len() <= MAX_LIVE_BUFFERS);
        }
        let ids: Vec<u32> = ops.iter().filter_map(Op::allocates).collect();
        prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(!ids.contains(&WILD.buf));
    }

    #[test]
    fn what_would_end_the_process_is_never_asked(ops in programs()) {
        let mut discarded = false;
        for (op, live) in ops.iter().zip(live_after_each(&ops)) {
            discarded |= matches!(op, Op::DiscardBatch { .. } | Op::DiscardPrefetchBatch(_));
            match op {
                Op::StreamAttach { part, flags, .. } => {
                    prop_assert!(matches!(flags, 1 | 2 | 4) && live.contains_key(&part.buf));
                }
                Op::DeviceTouch { access: DeviceAccess::AtomicAdd, part, .. } => {
                    prop_assert!(!discarded);
                    prop_assert!(part.offset % 4 == 0 && part.bytes % 4 == 0, "refused: {part:?}");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn every_part_of_a_program_is_a_program() {
    let offers = Offers { devices: 2, version: DriverVersion::CUDA_13_0 };
    for family in Family::ALL {
        let mut program = RandomProgram::new(family, 1, 2, 40, offers);
        let mut sizes = Vec::new();
        // Every program fails, so the smallest program there is remains.
        let smallest = program.shrink(10_000, |case| {
            sizes.push(case.ops.len());
            true
        });
        assert!(smallest.ops.len() <= 4, "{family}: {:?}", smallest.ops);
        assert!(sizes.len() > 5, "{family}");
    }
}

#[test]
fn the_same_seed_and_number_give_the_same_program_and_others_another() {
    let offers = Offers { devices: 1, version: DriverVersion::CUDA_13_0 };
    let case = |seed, number| RandomProgram::new(Family::Movement, seed, number, 40, offers).case();
    assert_eq!(case(5, 7), case(5, 7));
    assert_ne!(case(5, 7).ops, case(5, 8).ops);
    assert_ne!(case(5, 7).ops, case(6, 7).ops);
}

/// A partly filled or copied block leaves to chance which pages come along.
#[test]
fn fills_and_copies_of_managed_memory_reach_all_pages_of_its_blocks() {
    let offers = Offers { devices: 1, version: DriverVersion::CUDA_13_0 };
    let mut checked = [0; 3];
    for number in 0..60 {
        let case = RandomProgram::new(Family::Copies, 4, number, 40, offers).case();
        let ops: Vec<Op> = case.ops.into_iter().map(|line| line.recorded.op).collect();
        let sizes: BTreeMap<u32, u64> = ops
            .iter()
            .filter_map(|op| match *op {
                Op::AllocManaged { buf, bytes, .. } => Some((buf, bytes)),
                _ => None,
            })
            .collect();
        let mut assert_whole = |kind: usize, part: Part| {
            let Some(&size) = sizes.get(&part.buf).filter(|_| part.bytes > 0) else { return };
            let end = part.offset + part.bytes;
            let last_page = |at: u64| at.div_ceil(PAGE_BYTES);
            assert!(part.offset.is_multiple_of(BLOCK_BYTES), "{part:?}");
            let is_whole = end.is_multiple_of(BLOCK_BYTES) || last_page(end) == last_page(size);
            assert!(is_whole, "{part:?} of {size}");
            checked[kind] += 1;
        };
        for op in &ops {
            match op {
                Op::MemsetD16 { part, .. } if part.offset.is_multiple_of(2) => {
                    assert_whole(0, *part)
                }
                Op::MemsetD32 { part, .. } if part.offset.is_multiple_of(4) => {
                    assert_whole(1, *part)
                }
                Op::MemcpyBatch(batch) => batch
                    .copies
                    .iter()
                    .flat_map(|copy| [copy.written(), copy.read()])
                    .for_each(|part| assert_whole(2, part)),
                _ => {}
            }
        }
    }
    assert!(checked.iter().all(|&count| count > 100), "{checked:?}");
}
