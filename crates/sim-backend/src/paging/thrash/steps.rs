//! Claims about single steps of detection and of the hint, as uvm_policy 4 numbers them.

use super::super::protection::Protection;
use super::super::range::Policy;
use super::super::testing::{Heard, heard_in, heard_on};
use super::super::{PagingParams, Relations};
use super::pins::expired;
use super::tests::make_thrashing;
use super::window::LapseWindow;
use super::*;
use crate::GpuProfile;
use crate::link::{HostLink, PeerLink};
use crate::paging::LapseVote;
use crate::paging::params::ThrashingParams;
use std::collections::VecDeque;

const HOST: ProcId = ProcId::HOST;
const GPU: ProcId = ProcId(1);
const PEER: ProcId = ProcId(2);

/// A window of 512 us in stamps of 64 ns, and three events that make a page thrash.
fn params() -> PagingParams {
    let thrashing = ThrashingParams {
        lapse_ns: 512_000,
        stamp_ns: 64,
        threshold: 3,
        ..GpuProfile::h200().paging.thrashing
    };
    PagingParams { thrashing, ..GpuProfile::h200().paging }
}

fn within<R>(policy: Policy, test: impl FnOnce(&mut Context<'_>) -> R) -> (R, Heard) {
    heard_in(&params(), policy, test)
}

// ---- the window -------------------------------------------------------------------------------

/// The window after each of these gaps, by votes of four.
fn windows(lapse_vote: LapseVote, lapse_ns: u64, gaps_ns: &[u64]) -> Vec<u64> {
    let params = ThrashingParams {
        lapse_vote,
        lapse_ns,
        vote_threshold: 4,
        lapse_min_ns: 650,
        lapse_max_ns: 20_000,
        ..GpuProfile::h200().paging.thrashing
    };
    let mut window = LapseWindow::new(&params);
    let after = gaps_ns.iter().map(|&gap_ns| {
        window.cast(&params, gap_ns);
        window.lapse_ns
    });
    after.collect()
}

const LONG: u64 = 1_000_000;

#[test]
fn four_votes_change_the_window_by_an_eighth_and_count_half_for_the_next_change() {
    let grows = windows(LapseVote::Intended, 800, &[LONG; 8]);
    assert_eq!(grows, [800, 800, 800, 900, 900, 1012, 1012, 1138]);
    let shrinks = windows(LapseVote::Intended, 800, &[0; 8]);
    assert_eq!(shrinks, [800, 800, 800, 700, 700, 650, 650, 650], "no less than the least");
}

#[test]
fn a_change_is_at_most_a_tenth_of_the_largest_window_and_ends_there() {
    let large = windows(LapseVote::Intended, 17_600, &[LONG; 6]);
    assert_eq!(large, [17_600, 17_600, 17_600, 19_600, 19_600, 20_000]);
    // At its largest the window takes votes as before: six up, then ten down to the first change.
    let votes = [&[LONG; 6][..], &[0; 10]].concat();
    let held = windows(LapseVote::Intended, 20_000, &votes);
    assert_eq!(held, [vec![20_000; 15], vec![18_000]].concat());
}

#[test]
fn as_compiled_a_negative_vote_counts_as_enough() {
    let short = windows(LapseVote::Compiled, 800, &[0, 0, 0]);
    assert_eq!(short, [900, 1012, 1138]);
    let mixed = windows(LapseVote::Compiled, 800, &[LONG, 0, LONG, LONG, LONG, LONG]);
    assert_eq!(mixed, [800, 800, 800, 800, 800, 900], "no vote is negative; four are enough");
}

#[test]
fn a_stamp_is_the_time_rounded_down() {
    let params = params().thrashing;
    assert_eq!([0, 63, 64, 100, 128].map(|ns| stamp(&params, ns)), [0, 0, 64, 64, 128]);
}

// ---- thrashing events -------------------------------------------------------------------------

/// Whether page 0 thrashes after arrivals with these gaps between, and how many records say so.
fn arrivals(gaps_ns: &[u64]) -> (bool, usize) {
    let (thrashes, heard) = within(Policy::default(), |context| {
        let mut block = Block::new(0, 512);
        note(context, &mut block, 0..1, HOST, ThrashingEvent::Migration);
        for (turn, gap_ns) in gaps_ns.iter().enumerate() {
            context.now_ns += gap_ns;
            note(context, &mut block, 0..1, [GPU, HOST][turn % 2], ThrashingEvent::Migration);
        }
        block.thrashing_pages().contains(0)
    });
    (thrashes, heard.records.len())
}

#[test]
fn an_event_after_a_rest_does_not_count_and_takes_nothing_from_those_before() {
    assert_eq!(arrivals(&[0, 0, 0, 0]), (true, 1));
    assert_eq!(arrivals(&[0, 0, 0]), (false, 0));
    assert_eq!(arrivals(&[0, 0, 0, 600_000]), (false, 0));
    assert_eq!(arrivals(&[0, 0, 0, 600_000, 0]), (true, 1));
}

#[test]
fn a_page_that_thrashes_is_recorded_once_until_it_rests() {
    assert_eq!(arrivals(&[0; 9]), (true, 1));
    assert_eq!(arrivals(&[0, 0, 0, 0, 600_000]), (false, 1), "forgotten");
}

#[test]
fn a_pinned_page_is_not_forgotten_because_it_rests() {
    let (thrashes, _) = within(Policy::default(), |context| {
        let mut block = Block::new(0, 512);
        block.add_resident(GPU, PageMask::single(0));
        make_thrashing(context, &mut block, 0, &[GPU, PEER]);
        assert_eq!(hint(context, &mut block, 0, GPU), Hint::Pin(GPU));
        context.now_ns += 600_000;
        note(context, &mut block, 0..1, GPU, ThrashingEvent::Migration);
        block.thrashing_pages().contains(0)
    });
    assert!(thrashes);
}

#[test]
fn each_lost_level_of_permission_is_an_event_except_atomics_of_the_host() {
    // PAGING-120. Pages 3 and 4 are mapped, 2 and 3 are taken from.
    let events = |id: ProcId, had: Protection, at_most: Protection| {
        let (events, _) = within(Policy::default(), |context| {
            let mut block = Block::new(0, 512);
            block.add_resident(id, PageMask::range(3..5));
            block.map(id, PageMask::range(3..5), had);
            // Pages are watched once two processors met.
            note(context, &mut block, 2..5, PEER, ThrashingEvent::Migration);
            note(context, &mut block, 2..5, HOST, ThrashingEvent::Migration);
            context.revoke(&mut block, id, PageMask::range(2..4), at_most);
            let thrashing = block.thrashing().expect("watched");
            [2, 3, 4].map(|page| thrashing.page(page).expect("watched").events)
        });
        events
    };
    use Protection::{Atomic, Read, Write};
    for (id, had, at_most, count) in [
        (GPU, Atomic, Read, 2),
        (GPU, Atomic, Write, 1),
        (GPU, Write, Read, 1),
        (GPU, Read, Read, 0),
        (HOST, Atomic, Read, 1),
        (HOST, Atomic, Write, 0),
    ] {
        assert_eq!(events(id, had, at_most), [0, count, 0], "{id:?}: {had:?} to {at_most:?}");
    }
}

#[test]
fn what_is_copied_on_demand_is_forgotten_page_by_page() {
    let (left, _) = within(Policy::default(), |context| {
        let mut block = Block::new(0, 512);
        make_thrashing(context, &mut block, 3, &[HOST, GPU]);
        make_thrashing(context, &mut block, 7, &[HOST, GPU]);
        forget_marked(context, &mut block, &(0..7));
        block.thrashing_pages()
    });
    assert_eq!(left, PageMask::single(7));
}

// ---- the hint ---------------------------------------------------------------------------------

#[test]
fn a_block_starts_afresh_only_when_more_than_an_epoch_has_passed_since_it_last_thrashed() {
    let is_forgotten = |event_ns: u64, fault_ns: u64| {
        let (pages, _) = within(Policy::default(), |context| {
            let mut block = Block::new(0, 512);
            make_thrashing(context, &mut block, 0, &[HOST, GPU]);
            context.now_ns = event_ns;
            note(context, &mut block, 0..1, GPU, ThrashingEvent::Migration);
            context.now_ns = fault_ns;
            hint(context, &mut block, 300, HOST);
            block.thrashing_pages()
        });
        pages.is_empty()
    };
    let epoch_ns = params().thrashing.epoch_ns / 64 * 64;
    assert!(!is_forgotten(0, epoch_ns));
    assert!(is_forgotten(0, epoch_ns + 64));
    assert!(!is_forgotten(640, epoch_ns + 64), "it thrashed once more meanwhile");
}

#[test]
fn a_block_in_which_a_page_was_ever_pinned_does_not_start_afresh() {
    let (pages, _) = within(Policy::default(), |context| {
        let mut block = Block::new(0, 512);
        block.add_resident(GPU, PageMask::single(0));
        make_thrashing(context, &mut block, 0, &[GPU, PEER]);
        assert_eq!(hint(context, &mut block, 0, GPU), Hint::Pin(GPU));
        context.now_ns += params().thrashing.epoch_ns * 2;
        hint(context, &mut block, 300, HOST);
        block.thrashing_pages()
    });
    assert_eq!(pages, PageMask::single(0));
}

#[test]
fn a_turn_lasts_through_its_last_moment_and_nobody_has_two_in_a_row() {
    let params = params().thrashing;
    let after = |now_ns: u64, by: ProcId, exempt: Option<ProcId>| {
        let mut state = PageState { window_end_ns: Some(640), exempt, ..PageState::default() };
        let until_ns = open_window(&mut state, &params, now_ns, by);
        assert!(state.processors.contains(by));
        assert_eq!(state.window_end_ns, Some(until_ns));
        (until_ns, state.exempt)
    };
    let nap_ns = params.nap_ns / 64 * 64;
    assert_eq!(after(640, GPU, Some(HOST)), (640, Some(HOST)));
    assert_eq!(after(640, GPU, None), (640, Some(GPU)));
    assert_eq!(after(704, GPU, Some(HOST)), (704 + nap_ns, Some(GPU)));
    assert_eq!(after(704, GPU, Some(GPU)), (704 + nap_ns, None));
}

/// The hint to the GPU on a page that all of `throttled` wait for in a window of the host, and
/// the data of the page afterwards.
fn after_a_wait(now_ns: u64, throttled: &[ProcId]) -> (Hint, PageState) {
    let (after, _) = within(Policy::default(), |context| {
        let mut block = Block::new(0, 512);
        make_thrashing(context, &mut block, 0, &[HOST, GPU]);
        let mut held = state(Some(HOST), None, 1);
        throttled.iter().for_each(|id| held.throttled.insert(*id));
        let page = block.thrashing_or_new().pages.get_or_insert_default().watched(0);
        let &mut PageState { events, processors, last_ns, .. } = page;
        *page = PageState { events, processors, last_ns, ..held };
        context.now_ns = now_ns;
        let hint = hint(context, &mut block, 0, GPU);
        (hint, *block.thrashing().and_then(|t| t.page(0)).expect("thrashing"))
    });
    after
}

#[test]
fn a_processor_that_is_held_off_waits_until_its_window_ends_and_is_not_counted_again() {
    // PAGING-126.
    let (hint, page) = after_a_wait(UNTIL - 1, &[GPU]);
    assert_eq!((hint, page.throttles), (THROTTLE, 1));
    let (hint, page) = after_a_wait(UNTIL, &[GPU]);
    assert_eq!((hint, page.throttles, page.throttled), (Hint::None, 1, ProcSet::EMPTY));
}

#[test]
fn a_window_ends_with_the_last_processor_that_waits_for_it() {
    // PAGING-127.
    let ends = |throttled: &[ProcId]| {
        let (hint, page) = after_a_wait(UNTIL, throttled);
        (hint, page.exempt, page.window_end_ns)
    };
    let nap_ns = params().thrashing.nap_ns;
    assert_eq!(ends(&[GPU]), (Hint::None, Some(GPU), Some((UNTIL + nap_ns) / 64 * 64)));
    assert_eq!(ends(&[GPU, PEER]), (THROTTLE, Some(HOST), Some(UNTIL)), "the peer still waits");
}

#[test]
fn a_page_that_is_forgotten_remembers_its_throttles_and_the_exempt_processor() {
    // PAGING-123: pages that rest, copies by calls and pins that run out forget all else.
    let forget: [fn(&mut Context<'_>, &mut Block); 2] = [
        |context, block| {
            context.now_ns += 600_000;
            note(context, block, 0..1, GPU, ThrashingEvent::Migration);
        },
        |context, block| forget_marked(context, block, &(0..1)),
    ];
    for forget in forget {
        let (left, _) = within(Policy::default(), |context| {
            let mut block = Block::new(0, 512);
            make_thrashing(context, &mut block, 0, &[HOST, GPU]);
            assert_eq!(hint(context, &mut block, 0, HOST), Hint::None);
            assert!(matches!(hint(context, &mut block, 0, GPU), Hint::Throttle { .. }));
            forget(context, &mut block);
            assert!(block.thrashing_pages().is_empty());
            *block.thrashing().and_then(|t| t.page(0)).expect("remembered")
        });
        let expected = PageState { exempt: Some(HOST), throttles: 1, ..PageState::default() };
        assert_eq!(left, expected);
    }
}

#[test]
fn the_processor_of_the_last_window_waits_when_a_forgotten_page_thrashes_again() {
    // PAGING-123, PAGING-127.
    let first = |again: ProcId| {
        let (hint, _) = within(Policy::default(), |context| {
            let mut block = Block::new(0, 512);
            make_thrashing(context, &mut block, 0, &[HOST, GPU]);
            hint(context, &mut block, 0, HOST);
            context.now_ns += 600_000;
            note(context, &mut block, 0..1, GPU, ThrashingEvent::Migration);
            make_thrashing(context, &mut block, 0, &[HOST, GPU]);
            hint(context, &mut block, 0, again)
        });
        hint
    };
    assert!(matches!(first(HOST), Hint::Throttle { .. }));
    assert_eq!(first(GPU), Hint::None);
}

#[test]
fn each_fault_on_a_thrashing_page_is_a_vote_for_the_window_where_votes_count() {
    // PAGING-125, PAGING-126.
    let window_after_faults = |lapse_vote: LapseVote| {
        let thrashing = ThrashingParams { lapse_vote, vote_threshold: 4, ..params().thrashing };
        let params = PagingParams { thrashing, ..params() };
        let (lapse_ns, _) = heard_in(&params, Policy::default(), |context| {
            let mut block = Block::new(0, 512);
            make_thrashing(context, &mut block, 0, &[HOST, GPU]);
            (0..4).for_each(|_| _ = hint(context, &mut block, 0, HOST));
            context.lapse.lapse_ns
        });
        lapse_ns
    };
    assert_eq!(window_after_faults(LapseVote::Constant), 512_000);
    assert_eq!(window_after_faults(LapseVote::Intended), 512_000 / 8 * 7);
}

/// The hint of steps 7 and 8 for a page that these processors use.
fn decided(by: ProcId, processors: &[ProcId], preferred: Option<ProcId>, state: PageState) -> Hint {
    let policy = Policy { preferred, ..Policy::default() };
    let (hint, _) = within(policy, |context| {
        let mut state = state;
        processors.iter().for_each(|id| state.processors.insert(*id));
        let mut block = Block::new(0, 512);
        block.add_resident(GPU, PageMask::single(0));
        decide(context, &block, &state, 0, by)
    });
    hint.unwrap_or(THROTTLE)
}

const UNTIL: u64 = 6400;
const THROTTLE: Hint = Hint::Throttle { until_ns: UNTIL };

fn state(exempt: Option<ProcId>, pinned: Option<ProcId>, throttles: u8) -> PageState {
    let pinned = pinned.map(|at| (at, 0));
    PageState { exempt, pinned, throttles, window_end_ns: Some(UNTIL), ..PageState::default() }
}

#[test]
fn a_preferred_processor_that_others_cannot_reach_takes_the_page_in_its_turn() {
    // Step 8c: the host cannot reach a device's memory over PCIe.
    let tired = params().thrashing.pin_threshold;
    let hint = |state| decided(GPU, &[HOST, GPU], Some(GPU), state);
    assert_eq!(hint(state(Some(GPU), None, tired)), Hint::Pin(GPU));
    assert_eq!(hint(state(Some(GPU), None, tired - 1)), Hint::None);
    assert_eq!(hint(state(Some(HOST), None, tired)), THROTTLE);
    assert_eq!(hint(state(Some(HOST), Some(GPU), 0)), Hint::Pin(GPU), "it is there");
    assert_eq!(hint(state(Some(HOST), Some(HOST), 0)), THROTTLE);
    assert_eq!(hint(state(Some(GPU), Some(HOST), 0)), Hint::Pin(GPU));
}

#[test]
fn a_preferred_processor_that_all_can_reach_keeps_the_page() {
    // Step 8a.
    let hint = decided(GPU, &[HOST, GPU], Some(HOST), state(Some(GPU), None, 0));
    assert_eq!(hint, Hint::Pin(HOST));
}

#[test]
fn a_pinned_page_stays_where_all_can_reach_it_and_is_waited_for_elsewhere() {
    // Step 8d.
    let hint = |by, exempt, at| decided(by, &[HOST, GPU], None, state(exempt, Some(at), 0));
    assert_eq!(hint(GPU, Some(GPU), HOST), Hint::Pin(HOST), "all can reach the host");
    assert_eq!(hint(HOST, Some(HOST), GPU), Hint::Pin(HOST));
    assert_eq!(hint(GPU, Some(HOST), HOST), Hint::Pin(HOST));
    assert_eq!(hint(HOST, Some(GPU), GPU), THROTTLE);
}

#[test]
fn without_a_home_each_has_its_turn_until_one_was_held_off_too_often() {
    // Step 8e.
    let tired = params().thrashing.pin_threshold;
    let hint = |exempt, throttles| decided(GPU, &[HOST, GPU], None, state(exempt, None, throttles));
    assert_eq!(hint(Some(HOST), tired), THROTTLE);
    assert_eq!(hint(Some(GPU), tired - 1), Hint::None);
    assert_eq!(hint(Some(GPU), tired), Hint::Pin(GPU));
}

#[test]
fn peers_that_reach_each_other_fast_share_the_page_where_it_is() {
    // Step 8b.
    assert!(Relations::pcie_with_nvlink(2).fast_link_to(GPU).contains(PEER));
    for by in [GPU, PEER] {
        let hint = decided(by, &[GPU, PEER], None, state(Some(by), None, 0));
        assert_eq!(hint, Hint::Pin(GPU));
    }
    let with_host = decided(PEER, &[GPU, PEER, HOST], None, state(Some(GPU), None, 0));
    assert_eq!(with_host, THROTTLE, "the host is no peer");
}

#[test]
fn a_wait_counts_once_for_a_processor_and_not_at_all_while_the_page_is_pinned() {
    let throttles = |pinned: Option<(ProcId, u64)>, waits: &[ProcId]| {
        let (throttles, _) = within(Policy::default(), |context| {
            let block = Block::new(0, 512);
            let mut state = PageState { pinned, ..PageState::default() };
            for by in waits {
                settle(context, &block, &mut state, THROTTLE, 0, *by);
                assert!(state.throttled.contains(*by));
            }
            state.throttles
        });
        throttles
    };
    assert_eq!(throttles(None, &[GPU, GPU]), 1);
    assert_eq!(throttles(None, &[GPU, HOST]), 2);
    assert_eq!(throttles(Some((HOST, 0)), &[GPU, PEER]), 0);
}

#[test]
fn a_pin_is_of_its_page_and_ends_the_waits() {
    let (state, pins) = within(Policy::default(), |context| {
        context.now_ns = 1000;
        let block = Block::new(512, 512);
        let mut state = PageState { throttles: 3, ..PageState::default() };
        state.throttled.insert(GPU);
        settle(context, &block, &mut state, Hint::Pin(HOST), 3, GPU);
        (state, context.pins.iter().copied().collect::<Vec<_>>())
    })
    .0;
    let deadline_ns = 1000 + params().thrashing.pin_ns;
    assert_eq!(pins, [Pin { deadline_ns, page: 515 }]);
    assert_eq!((state.throttles, state.throttled), (0, ProcSet::EMPTY));
    assert_eq!(state.pinned, Some((HOST, deadline_ns)));
}

#[test]
fn a_pin_that_is_asked_for_again_lasts_no_longer() {
    // PAGING-134.
    let (deadlines_ns, _) = within(Policy::default(), |context| {
        let mut block = Block::new(0, 512);
        block.add_resident(GPU, PageMask::single(0));
        make_thrashing(context, &mut block, 0, &[GPU, PEER]);
        let mut deadline_ns = |by: ProcId| {
            context.now_ns += 640;
            assert_eq!(hint(context, &mut block, 0, by), Hint::Pin(GPU));
            assert_eq!(context.pins.len(), 1);
            let page = block.thrashing().and_then(|t| t.page(0)).expect("pinned");
            page.pinned.map(|(_, deadline_ns)| deadline_ns)
        };
        [GPU, PEER, GPU].map(&mut deadline_ns)
    });
    assert_eq!(deadlines_ns, [Some(640 + params().thrashing.pin_ns); 3]);
}

#[test]
fn a_pin_that_moves_ends_the_waits_and_one_that_stays_does_not() {
    // PAGING-134.
    let after = |to: ProcId| {
        let (state, _) = within(Policy::default(), |context| {
            let mut block = Block::new(0, 512);
            block.add_resident(HOST, PageMask::single(0));
            let mut state = state(Some(GPU), Some(HOST), 0);
            state.throttled.insert(PEER);
            settle(context, &block, &mut state, Hint::Pin(to), 0, GPU);
            (state.throttled, state.window_end_ns)
        });
        state
    };
    assert_eq!(after(HOST), (ProcSet::single(PEER), Some(UNTIL)));
    assert_eq!(after(GPU), (ProcSet::EMPTY, None));
}

#[test]
fn a_pin_ends_a_little_before_its_time_if_it_is_the_last_one() {
    let params = ThrashingParams { unpin_slack_ns: 10, ..params().thrashing };
    let pin = Pin { deadline_ns: 100, page: 7 };
    let mut pins = VecDeque::from([pin]);
    assert_eq!(expired(&mut pins, &params, 89), None);
    assert_eq!(expired(&mut pins, &params, 90), Some(pin));
    assert_eq!(expired(&mut pins, &params, 90), None, "taken off");
    let released = |deadline_ns: u64| {
        let (pages, _) = within(Policy::default(), |context| {
            let mut block = Block::new(512, 512);
            block.add_resident(GPU, PageMask::single(3));
            make_thrashing(context, &mut block, 3, &[GPU, PEER]);
            assert_eq!(hint(context, &mut block, 3, GPU), Hint::Pin(GPU));
            let pin = context.pins.front().copied().expect("a pin");
            let end = Pin { deadline_ns: pin.deadline_ns + deadline_ns, ..pin };
            release_expired(context, &mut block, end);
            block.thrashing_pages()
        });
        pages.is_empty()
    };
    assert!(released(0));
    assert!(!released(1), "another pin, which is over");
}

#[test]
fn over_fast_links_a_page_stays_unless_its_home_is_one_of_those_that_use_it() {
    // PAGING-130. GPUs without a link of their own reach the host's memory only.
    let coherent = HostLink::NvlinkC2c { native_atomics: true };
    let relations = Relations::new(coherent, PeerLink::None, 3);
    let third = ProcId(3);
    let hint = |home: ProcId| {
        let policy = Policy { preferred: Some(home), ..Policy::default() };
        let (hint, _) = heard_on(&relations, &params(), policy, |context| {
            let mut state = state(Some(GPU), None, 0);
            [GPU, PEER].iter().for_each(|id| state.processors.insert(*id));
            let mut block = Block::new(0, 512);
            block.add_resident(HOST, PageMask::single(0));
            decide(context, &block, &state, 0, GPU)
        });
        hint.unwrap_or(THROTTLE)
    };
    assert_eq!(hint(third), Hint::Pin(HOST));
    assert_eq!(hint(GPU), Hint::None, "its turn");
}
