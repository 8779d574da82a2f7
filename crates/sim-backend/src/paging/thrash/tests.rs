//! Claims about thrashing.

use super::super::range::Policy;
use super::super::testing::heard_in;
use super::super::{Access, Discard, GpuMemory, Paging, PagingParams, Relations};
use super::window::LapseWindow;
use super::*;
use crate::GpuProfile;
use pagewise_hal::{MapCause, Processor};

const HOST: Processor = Processor::HOST;
const GPU0: Processor = Processor::device(0);
const US: u64 = 1000;

fn paging() -> Paging {
    paging_with(GpuProfile::h200().paging)
}

fn paging_with(params: PagingParams) -> Paging {
    let gpus = [GpuMemory { capacity_bytes: 1 << 30 }];
    let mut paging = Paging::new(params, &gpus, Relations::pcie_with_nvlink(1));
    paging.create_range(0, 512);
    paging
}

/// Host and GPU write page 0 in turn, `gap_ns` apart; returns the records and the time after.
fn ping_pong(paging: &mut Paging, turns: usize, gap_ns: u64) -> (Vec<MemoryEvent>, u64) {
    let mut records = Vec::new();
    let mut now_ns = 10_000 * US;
    for turn in 0..turns {
        let by = if turn % 2 == 0 { HOST } else { GPU0 };
        now_ns = paging.touch(by, 0, Access::Write, now_ns, &mut records).now_ns + gap_ns;
    }
    (records, now_ns)
}

fn found(records: &[MemoryEvent]) -> bool {
    records.iter().any(|record| matches!(record, MemoryEvent::Thrashing { .. }))
}

fn throttled(records: &[MemoryEvent]) -> usize {
    let is = |record: &&MemoryEvent| matches!(record, MemoryEvent::Throttling { .. });
    records.iter().filter(is).count()
}

#[test]
fn moves_within_the_window_count_and_slower_ones_do_not() {
    assert!(found(&ping_pong(&mut paging(), 8, 100 * US).0));
    assert!(!found(&ping_pong(&mut paging(), 30, 600 * US).0));
}

#[test]
fn one_processor_alone_never_thrashes() {
    let mut paging = paging();
    let mut records = Vec::new();
    for turn in 0..20 {
        let now_ns = turn * 100 * US;
        paging.touch(GPU0, 0, Access::Write, now_ns, &mut records);
        paging.discard(0..512, Discard::Eager, now_ns, &mut records);
    }
    assert!(!found(&records));
}

#[test]
fn a_throttled_processor_goes_on_later_than_it_may() {
    // PAGING-29. The host sleeps half as long again, in whole microseconds; the GPU faults once
    // more. Each opened its window with the fault before the other's.
    let waits_ns = |gap_ns: u64| {
        let (records, _) = ping_pong(&mut paging(), 30, gap_ns);
        let wait_ns = |record: &MemoryEvent| match record {
            MemoryEvent::Throttling { processor, duration_ns, .. } => {
                Some((*processor, *duration_ns))
            }
            _ => None,
        };
        records.iter().filter_map(wait_ns).collect::<Vec<_>>()
    };
    let waits = waits_ns(100 * US);
    // A processor that waits comes 100 us after the window began, which ends at a stamp.
    let left_ns = GpuProfile::h200().paging.thrashing.nap_ns - 100 * US;
    let of = |by: Processor, expected: std::ops::Range<u64>| {
        let is = |(id, ns): &(Processor, u64)| *id == by && expected.contains(ns);
        assert!(waits.iter().any(is), "{by} in {expected:?}: {waits:?}");
    };
    of(HOST, (left_ns - US) * 3 / 2 - US..left_ns * 3 / 2);
    of(GPU0, left_ns + 7 * US - STAMP_NS..left_ns + 7 * US + 1);
}

#[test]
fn waits_add_up_over_bursts_until_the_page_is_pinned() {
    // PAGING-123, PAGING-133. A processor that waits to the end of a nap arrives more than a lapse
    // after the last arrival. So each wait ends the burst, and only the count of them stays.
    let waits_before_the_pin = |turns: usize| {
        let (records, _) = ping_pong(&mut paging(), turns, 50 * US);
        let pinned = |record: &MemoryEvent| {
            matches!(record, MemoryEvent::RemoteMap { cause: MapCause::Thrashing, .. })
        };
        let end = records.iter().position(pinned)?;
        Some(throttled(&records[..end]))
    };
    assert_eq!(waits_before_the_pin(30), None);
    let tired = usize::from(GpuProfile::h200().paging.thrashing.pin_threshold);
    assert!(waits_before_the_pin(200).is_some_and(|waits| waits >= tired));
}

#[test]
fn a_page_that_is_pinned_to_the_host_is_mapped_for_all_that_access_it() {
    // PAGING-83: the host's fault maps the GPU too, which then faults no more.
    let mut paging = paging();
    let mut now_ns = 10_000 * US;
    let mut of_host = Vec::new();
    for turn in 0..400 {
        let by = if turn % 2 == 0 { HOST } else { GPU0 };
        let mut records = Vec::new();
        now_ns = paging.touch(by, 0, Access::Write, now_ns, &mut records).now_ns + 50 * US;
        if by == HOST && records.iter().any(|r| matches!(r, MemoryEvent::RemoteMap { .. })) {
            of_host = records;
            break;
        }
    }
    let map = MemoryEvent::RemoteMap {
        address: 0,
        bytes: PAGE_BYTES,
        by: GPU0,
        at: HOST,
        cause: MapCause::Thrashing,
    };
    assert!(of_host.contains(&map), "{of_host:?}");
    assert_eq!(paging.resident_on(0), [HOST]);
    let mut records = Vec::new();
    for by in [GPU0, HOST, GPU0] {
        paging.touch(by, 0, Access::Write, now_ns, &mut records);
    }
    assert_eq!(records, []);
}

#[test]
fn with_a_wider_window_a_page_is_throttled_then_pinned_to_the_host_then_released() {
    let thrashing = ThrashingParams { lapse_ns: 1000 * US, ..GpuProfile::h200().paging.thrashing };
    let mut paging = paging_with(PagingParams { thrashing, ..GpuProfile::h200().paging });
    let (records, now_ns) = ping_pong(&mut paging, 200, 50 * US);
    assert!(throttled(&records) >= 9);
    assert_eq!(paging.resident_on(0), [HOST]);
    assert!(paging.mapping(0, GPU0).is_some() && paging.mapping(0, HOST).is_some());
    paging.advance(now_ns + 200_000 * US, &mut Vec::new());
    assert_eq!(paging.mapping(0, GPU0), None, "the pin ran out");
    assert!(paging.mapping(0, HOST).is_some());
}

#[test]
fn a_migration_ends_the_thrashing_of_its_pages() {
    let mut paging = paging();
    let (records, now_ns) = ping_pong(&mut paging, 6, 100 * US);
    assert!(found(&records));
    for to in [HOST, GPU0] {
        paging.migrate(0..512, to, now_ns, &mut Vec::new());
    }
    let mut records = Vec::new();
    paging.touch(HOST, 0, Access::Write, now_ns, &mut records);
    assert_eq!(throttled(&records), 0);
}

#[test]
fn the_compiled_vote_grows_the_window_to_half_a_second_in_59_evaluations() {
    // PAGING-125.
    let vote = |kind| {
        let params = ThrashingParams { lapse_vote: kind, ..GpuProfile::h200().paging.thrashing };
        let mut window = LapseWindow::new(&params);
        (0..59).for_each(|_| window.cast(&params, 0));
        window.lapse_ns
    };
    assert!(vote(LapseVote::Compiled) > 490_000_000);
    assert!(vote(LapseVote::Intended) < 500_000);
    assert_eq!(vote(LapseVote::Constant), 500_000);
}

/// Lets a page go back and forth between processors, all at once, until it thrashes.
pub(in super::super) fn make_thrashing(
    context: &mut Context<'_>,
    block: &mut Block,
    page: usize,
    between: &[ProcId],
) {
    for id in between.iter().cycle().take(5) {
        note(context, block, page..page + 1, *id, ThrashingEvent::Migration);
    }
    assert!(block.thrashing_pages().contains(page));
}

const HOST_ID: ProcId = ProcId::HOST;
const GPUS: [ProcId; 2] = [ProcId(1), ProcId(2)];

/// A window that is a multiple of the resolution of time stamps: the driver's 500 us is not.
const WINDOW_NS: u64 = 512 * US;
const STAMP_NS: u64 = 64;

fn with_window() -> PagingParams {
    let thrashing = ThrashingParams { lapse_ns: WINDOW_NS, ..GpuProfile::h200().paging.thrashing };
    assert_eq!((thrashing.stamp_ns, thrashing.threshold), (STAMP_NS, 3));
    PagingParams { thrashing, ..GpuProfile::h200().paging }
}

/// Whether a page thrashes that arrives on host and GPU in turn, with these gaps between.
fn thrashes(gaps_ns: [u64; 4]) -> bool {
    let (thrashes, _) = heard_in(&with_window(), Policy::default(), |context| {
        let mut block = Block::new(0, 512);
        note(context, &mut block, 0..1, HOST_ID, ThrashingEvent::Migration);
        for (turn, gap_ns) in gaps_ns.into_iter().enumerate() {
            context.now_ns += gap_ns;
            let id = [GPUS[0], HOST_ID][turn % 2];
            note(context, &mut block, 0..1, id, ThrashingEvent::Migration);
        }
        block.thrashing_pages().contains(0)
    });
    thrashes
}

#[test]
fn arrivals_exactly_a_window_apart_still_count() {
    // PAGING-121, PAGING-122: at most one lapse ago, for the block and for the page.
    assert!(thrashes([0; 4]));
    for at in 0..4 {
        let with_gap = |gap_ns: u64| {
            let mut gaps_ns = [0; 4];
            gaps_ns[at] = gap_ns;
            thrashes(gaps_ns)
        };
        assert!(with_gap(WINDOW_NS), "gap {at}");
        assert!(!with_gap(WINDOW_NS + STAMP_NS), "gap {at}");
    }
}

#[test]
fn a_fault_exactly_a_window_after_the_last_arrival_opens_a_turn() {
    // PAGING-126: a gap above the lapse gives no hint. PAGING-127: any other opens a window.
    let second = |gap_ns: u64| {
        let (hints, _) = heard_in(&with_window(), Policy::default(), |context| {
            let mut block = Block::new(0, 512);
            make_thrashing(context, &mut block, 0, &[HOST_ID, GPUS[0]]);
            context.now_ns += gap_ns;
            [HOST_ID, GPUS[0]].map(|by| hint(context, &mut block, 0, by))
        });
        assert_eq!(hints[0], Hint::None, "the first to fault goes on");
        hints[1]
    };
    let nap_ns = GpuProfile::h200().paging.thrashing.nap_ns;
    let until_ns = (WINDOW_NS + nap_ns) / STAMP_NS * STAMP_NS;
    assert_eq!(second(WINDOW_NS), Hint::Throttle { until_ns });
    assert_eq!(second(WINDOW_NS + STAMP_NS), Hint::None, "the page is at rest");
}

#[test]
fn a_gap_of_exactly_the_window_votes_for_a_longer_one() {
    // PAGING-125: a gap below the lapse votes down, all others up.
    let thrashing = ThrashingParams {
        lapse_vote: LapseVote::Intended,
        lapse_ns: WINDOW_NS,
        ..GpuProfile::h200().paging.thrashing
    };
    let after = |gap_ns: u64| {
        let mut window = LapseWindow::new(&thrashing);
        (0..thrashing.vote_threshold).for_each(|_| window.cast(&thrashing, gap_ns));
        window.lapse_ns
    };
    assert!(after(WINDOW_NS) > WINDOW_NS);
    assert!(after(WINDOW_NS - STAMP_NS) < WINDOW_NS);
}

#[test]
fn a_block_forgets_its_thrashing_pages_after_a_quiet_epoch_so_many_times_and_no_more() {
    // PAGING-124.
    let params = GpuProfile::h200().paging;
    let (forgotten, _) = heard_in(&params, Policy::default(), |context| {
        let mut block = Block::new(0, 512);
        let forgets = |_| {
            make_thrashing(context, &mut block, 0, &[HOST_ID, GPUS[0]]);
            context.now_ns += params.thrashing.epoch_ns + STAMP_NS;
            // A fault on another page of the block is enough.
            hint(context, &mut block, 300, HOST_ID);
            block.thrashing_pages().is_empty()
        };
        (0..7).map(forgets).collect::<Vec<_>>()
    });
    let resets = usize::from(params.thrashing.max_resets);
    assert_eq!(forgotten, [vec![true; resets], vec![false; 7 - resets]].concat());
}

#[test]
fn after_a_fresh_start_two_processors_have_to_meet_again() {
    // PAGING-121: pages that one GPU alone loses permissions on thrash before the fresh start and
    // not after it.
    let params = GpuProfile::h200().paging;
    let (thrashes, _) = heard_in(&params, Policy::default(), |context| {
        let mut block = Block::new(0, 512);
        let lose_alone = |context: &mut Context<'_>, block: &mut Block| {
            for _ in 0..7 {
                note(context, block, 0..1, GPUS[0], ThrashingEvent::Revocation);
            }
            block.thrashing_pages().contains(0)
        };
        note(context, &mut block, 8..9, HOST_ID, ThrashingEvent::Revocation);
        let met = lose_alone(context, &mut block);
        context.now_ns += params.thrashing.epoch_ns + STAMP_NS;
        hint(context, &mut block, 300, GPUS[0]);
        let alone = lose_alone(context, &mut block);
        note(context, &mut block, 8..9, HOST_ID, ThrashingEvent::Revocation);
        [met, alone, lose_alone(context, &mut block)]
    });
    assert_eq!(thrashes, [true, false, true]);
}

#[test]
fn a_pinned_page_that_lost_permissions_is_for_one_processor_at_a_time() {
    // PAGING-128. Of NVLink peers both may use a page that only moved.
    let second = |event: ThrashingEvent| {
        let (hints, _) = heard_in(&GpuProfile::h200().paging, Policy::default(), |context| {
            let mut block = Block::new(0, 512);
            block.add_resident(GPUS[0], PageMask::single(0));
            make_thrashing(context, &mut block, 0, &GPUS);
            note(context, &mut block, 0..1, GPUS[1], event);
            context.now_ns += STAMP_NS;
            GPUS.map(|by| hint(context, &mut block, 0, by))
        });
        assert_eq!(hints[0], Hint::Pin(GPUS[0]));
        hints[1]
    };
    assert_eq!(second(ThrashingEvent::Migration), Hint::Pin(GPUS[0]));
    let until_ns = STAMP_NS + GpuProfile::h200().paging.thrashing.nap_ns;
    let until_ns = until_ns / STAMP_NS * STAMP_NS;
    assert_eq!(second(ThrashingEvent::Revocation), Hint::Throttle { until_ns });
}

#[test]
fn a_page_that_is_released_stays_mapped_for_accessed_by_processors() {
    // PAGING-135.
    let thrashing = ThrashingParams { lapse_ns: 1000 * US, ..GpuProfile::h200().paging.thrashing };
    for accessed_by in [false, true] {
        let params = PagingParams { thrashing: thrashing.clone(), ..GpuProfile::h200().paging };
        let mut paging = paging_with(params);
        let (_, now_ns) = ping_pong(&mut paging, 200, 50 * US);
        paging.set_accessed_by(0..512, GPU0, accessed_by, now_ns, &mut Vec::new());
        assert!(paging.mapping(0, GPU0).is_some(), "pinned to the host");
        paging.advance(now_ns + 200_000 * US, &mut Vec::new());
        assert_eq!(paging.mapping(0, GPU0).is_some(), accessed_by);
    }
}
