//! Claims about the price of calls that allocate, ask, move, sleep, or are refused.

use super::*;
use crate::cost::calls as cost_calls;

const RANGE: Input = Input::RangeMade { further_devices: 0 };

#[test]
fn an_allocation_costs_by_whether_it_gets_a_range_of_its_own() {
    let packed = priced(Call::AllocManaged, WARM, &[]);
    assert_eq!(packed, figures("allocation", &[("alloc_packed", 1.0)]));
    let own = priced(Call::AllocManaged, WARM, &[RANGE]);
    assert_eq!(own, figures("allocation", &[("alloc", 1.0)]));
    let cold = [("alloc_packed", 1.0), ("alloc_packed_warmth.cold", 1.0)];
    assert_eq!(priced(Call::AllocManaged, COLD, &[]), figures("allocation", &cold));
    let cold = [("alloc", 1.0), ("alloc_warmth.cold", 1.0)];
    let own = priced(Call::AllocManaged, COLD, &[RANGE, RANGE]);
    assert_eq!(own, figures("allocation", &cold));
    let third = Input::RangeMade { further_devices: 2 };
    let figure = priced(Call::AllocManaged, WARM, &[third]);
    assert_eq!(figure["allocation.alloc_further_device"], 2.0);
    assert_eq!(priced(Call::Other, COLD, &[]), figures("fixed", &[("other", 1.0)]));
    assert_eq!(priced(Call::Wait, COLD, &[]), BTreeMap::new());
}

#[test]
fn a_free_costs_by_what_its_blocks_held() {
    let held = HeldBlocks {
        on_device: 2,
        mapped_by_host: 3,
        mapped_by_device: 5,
        with_small_tables: 7,
        device_mappings: 11,
        host_pages: 13,
    };
    let blocks = [
        ("free", 1.0),
        ("free_device_block", 4.0),
        ("free_host_mapped_block", 6.0),
        ("free_device_mapped_block", 10.0),
        ("free_small_tables", 14.0),
        ("free_device_mapping", 22.0),
    ];
    let two = [Input::RangeGone(held), Input::RangeGone(held)];
    assert_eq!(priced(Call::Free, WARM, &two), figures("allocation", &blocks));
    let cold = [("free_cold", 1.0), ("free_warmth.cold", 1.0)];
    let all = [&blocks[..], &cold[..]].concat();
    assert_eq!(priced(Call::Free, COLD, &two), figures("allocation", &all));
    let nothing = [("free", 1.0), ("free_warmth.cold", 1.0)];
    assert_eq!(priced(Call::Free, COLD, &[]), figures("allocation", &nothing));
    for (number, figure) in ["on_device", "mapped_by_host", "mapped_by_device"].iter().enumerate() {
        let one = |wanted| u64::from(number == wanted);
        let held = HeldBlocks {
            on_device: one(0),
            mapped_by_host: one(1),
            mapped_by_device: one(2),
            ..HeldBlocks::default()
        };
        let cold = priced(Call::Free, COLD, &[Input::RangeGone(held)]);
        assert_eq!(cold.get("allocation.free_cold"), Some(&1.0), "{figure}");
    }
}

#[test]
fn reads_of_attributes_that_follow_one_another_find_the_machine_warm_once() {
    let read = |continues| {
        counts(|params| {
            let mut account = Account::new(Call::RangeAttribute, COLD);
            account.continues = continues;
            account.rest(params)
        })
    };
    let first = [("range_attribute", 1.0), ("warmth.cold", 1.0)];
    assert_eq!(read(false), figures("query", &first));
    assert_eq!(read(true), figures("query", &[("range_attribute", 1.0)]));
    let pointer = priced(Call::PointerAttribute, COLD, &[]);
    assert_eq!(pointer, figures("query", &[("pointer_attribute", 1.0)]));
}

#[test]
fn a_prefetch_costs_by_what_moves() {
    let call = Call::Prefetch { ranges: 5, batch: true };
    let first_bytes = 2.0 * 1024.0 * 1024.0;
    let moved = [
        ("call", 1.0),
        ("further_range", 4.0),
        ("acts", 1.0),
        ("copies_to_device", 1.0),
        ("block", 58.0),
        ("device_block", 2.0),
        ("map_host_page", 74.0),
        ("zero_host_page", 22.0),
        ("device_chunk", 34.0),
        ("zero_device_run", 26.0),
        ("unmap_device", 46.0),
        ("copy_run", 4.0),
        ("to_device_byte", 6.0 * PAGE),
        ("copies_between_devices", 1.0),
        ("between_devices_byte", 14.0 * PAGE),
        ("to_host_byte", 10.0 * PAGE),
        ("to_host_first_byte", 10.0 * PAGE),
        ("to_device_first_byte", 6.0 * PAGE),
    ];
    let work = Input::Work(migration());
    assert_eq!(priced(call, WARM, &[work, work]), figures("prefetch", &moved));
    let large = Work { pages_to_device: 600, pages_to_host: 700, ..migration() };
    let large = priced(call, WARM, &[Input::Work(large)]);
    assert_eq!(large["prefetch.to_host_first_byte"], first_bytes);
    assert_eq!(large["prefetch.to_device_first_byte"], first_bytes);
    assert_eq!(large["prefetch.to_host_byte"], 700.0 * PAGE);
    let one = Call::Prefetch { ranges: 1, batch: false };
    let nothing = [("call", 1.0), ("warmth.cold", 1.0)];
    assert_eq!(priced(one, COLD, &[]), figures("prefetch", &nothing));
}

#[test]
fn a_call_acts_if_it_maps_or_copies_and_a_discard_if_it_unmaps() {
    let acts = |work: Work| {
        let priced = priced(Call::Prefetch { ranges: 1, batch: false }, WARM, &[Input::Work(work)]);
        priced.contains_key("prefetch.acts")
    };
    let cause = WorkCause::Migration;
    assert!(acts(Work { cause, pages_mapped_host: 1, ..Work::default() }));
    assert!(acts(Work { cause, pages_mapped_device: 1, ..Work::default() }));
    assert!(acts(Work { cause, copies: 1, ..Work::default() }));
    assert!(!acts(Work { cause, unmaps_host: 1, unmaps_device: 1, ..Work::default() }));
    let cause = WorkCause::Discard;
    assert!(acts(Work { cause, unmaps_host: 1, ..Work::default() }));
    assert!(acts(Work { cause, unmaps_device: 1, ..Work::default() }));
    assert!(!acts(Work { cause, blocks: 1, ..Work::default() }));
}

#[test]
fn a_block_is_a_devices_if_pages_that_move_to_it_are_mapped_there() {
    let device_blocks = |work: Work| {
        let call = Call::Prefetch { ranges: 1, batch: false };
        let priced = priced(call, WARM, &[Input::Work(work)]);
        priced.get("prefetch.device_block").copied().unwrap_or(0.0)
    };
    assert_eq!(device_blocks(migration()), 1.0);
    assert_eq!(device_blocks(Work { processor: Some(Processor::HOST), ..migration() }), 0.0);
    assert_eq!(device_blocks(Work { pages_mapped_device: 0, ..migration() }), 0.0);
    assert_eq!(device_blocks(Work { cause: WorkCause::Discard, ..migration() }), 0.0);
}

#[test]
fn a_discard_costs_by_what_is_unmapped() {
    let work = Work { cause: WorkCause::Discard, processor: None, ..migration() };
    let unmapped =
        [("call", 1.0), ("unmap_host_page", 31.0), ("unmap_host", 19.0), ("unmap_device", 23.0)];
    let warm = priced(Call::Discard, WARM, &[Input::Work(work)]);
    assert_eq!(warm, figures("discard", &unmapped));
    let cold = [&unmapped[..], &[("warmth.cold", 1.0), ("acts_cold", 1.0)]].concat();
    assert_eq!(priced(Call::Discard, COLD, &[Input::Work(work)]), figures("discard", &cold));
    let nothing = [("call", 1.0), ("warmth.cold", 1.0)];
    assert_eq!(priced(Call::Discard, COLD, &[]), figures("discard", &nothing));
}

#[test]
fn a_discard_with_a_prefetch_costs_by_what_arrives() {
    let arrived = [
        ("call", 1.0),
        ("prefetch_unmap_host", 19.0),
        ("prefetch_block", 29.0),
        ("prefetch_zero_host_page", 11.0),
        ("prefetch_device_chunk", 17.0),
        ("prefetch_device_block", 1.0),
    ];
    let work = Input::Work(migration());
    let warm = priced(Call::DiscardPrefetch, WARM, &[work]);
    assert_eq!(warm, figures("discard", &arrived));
    let cold = [&arrived[..], &[("warmth.cold", 1.0), ("prefetch_cold", 1.0)]].concat();
    assert_eq!(priced(Call::DiscardPrefetch, COLD, &[work]), figures("discard", &cold));
    let twice = arrived.map(|(figure, count)| match figure {
        "call" => (figure, count),
        _ => (figure, 2.0 * count),
    });
    assert_eq!(priced(Call::DiscardPrefetch, WARM, &[work, work]), figures("discard", &twice));
}

#[test]
fn an_eviction_costs_what_the_migration_of_its_pages_to_the_host_does() {
    let work = Work { cause: WorkCause::Eviction, ..migration() };
    let evicted = [
        ("block", 1.0),
        ("unmap_device", 23.0),
        ("zero_host_page", 11.0),
        ("copy_run", 2.0),
        ("to_host_byte", 5.0 * PAGE),
        ("to_host_first_byte", 5.0 * PAGE),
    ];
    let call = both(figures("plain_memory", &[("call", 1.0)]), figures("prefetch", &evicted));
    assert_eq!(priced(Call::PlainMemory, WARM, &[Input::Work(work)]), call);
}

#[test]
fn memory_that_a_free_gave_back_is_zeroed_at_its_own_price_until_it_is_used_up() {
    let held = |host_pages| Input::RangeGone(HeldBlocks { host_pages, ..HeldBlocks::default() });
    let zeroed = |host_pages: &[u64], pages_zeroed_host| {
        let work =
            Input::Work(Work { cause: WorkCause::Migration, pages_zeroed_host, ..Work::default() });
        let mut inputs: Vec<_> = host_pages.iter().map(|&pages| held(pages)).collect();
        inputs.extend([work, work]);
        let priced = priced(Call::Prefetch { ranges: 1, batch: false }, WARM, &inputs);
        let count = |figure: &str| priced.get(figure).copied().unwrap_or(0.0);
        [count("prefetch.zero_warm_host_page"), count("prefetch.zero_host_page")]
    };
    assert_eq!(zeroed(&[], 10), [0.0, 20.0]);
    assert_eq!(zeroed(&[3, 4], 10), [7.0, 13.0]);
    assert_eq!(zeroed(&[15], 10), [15.0, 5.0]);
    assert_eq!(zeroed(&[25], 10), [20.0, 0.0]);
    assert_eq!(zeroed(&[300, 300], 400), [512.0, 288.0], "2 MiB are kept at hand");
}

#[test]
fn a_refused_call_costs_by_its_kind_and_nothing_else_but_evictions() {
    let refused = |call| {
        counts(|params| {
            let mut account = Account::new(call, COLD);
            account.count(params, &Input::Work(migration()));
            account.refused = true;
            account.rest(params)
        })
    };
    let touch = Call::DeviceTouch { threads: 1, bulk: false };
    let cases: [(&[Call], &str); 7] = [
        (&[Call::AllocManaged, Call::PlainMemory, Call::Free], "refused_allocation"),
        (&[Call::Advise], "refused_advice"),
        (&[Call::Prefetch { ranges: 1, batch: false }], "refused_prefetch"),
        (
            &[Call::Prefetch { ranges: 1, batch: true }, Call::Discard, Call::DiscardPrefetch],
            "refused_batch",
        ),
        (&[Call::RangeAttribute], "refused_range_attribute"),
        (&[Call::PointerAttribute], "refused_pointer_attribute"),
        (&[Call::HostTouch, touch, Call::Other], "refused"),
    ];
    for (calls, figure) in cases {
        for &call in calls {
            assert_eq!(refused(call), figures("fixed", &[(figure, 1.0)]), "{call:?}");
        }
    }
    assert_eq!(refused(Call::Wait), BTreeMap::new());
}

#[test]
fn a_sleep_costs_once_and_by_its_length() {
    let sleep = counts(|params| cost_calls::sleep(&params.fixed, 7));
    assert_eq!(sleep, figures("fixed", &[("sleep", 1.0), ("sleep_ns", 7.0)]));
}

#[test]
fn state_has_a_price_for_each_way_to_find_the_machine() {
    let found = |warmth| {
        let mut priced = priced(Call::HostTouch, warmth, &[]);
        assert_eq!(priced.remove("host_touch.call"), Some(1.0));
        priced
    };
    let asleep = |others, long| found(Warmth::AfterSleep { others, long });
    let figure = |figure: &str, count: f64| figures("host_touch.warmth", &[(figure, count)]);
    assert_eq!(asleep(0, false), figure("after_sleep.0", 1.0));
    assert_eq!(asleep(1, false), figure("after_sleep.1", 1.0));
    assert_eq!(asleep(9, false), figure("after_sleep.2", 1.0));
    let long = figures("host_touch.warmth", &[("after_sleep.0", 1.0), ("after_long_sleep", 1.0)]);
    assert_eq!(asleep(0, true), long);
    assert_eq!(found(Warmth::Cold { first: true }), figure("first", 1.0));
    assert_eq!(found(COLD), figure("cold", 1.0));
    let paused = |pause_ns, row| {
        let found = found(Warmth::Warm { pause_ns, row });
        let count = |figure: &str| found.get(figure).copied().unwrap_or(0.0);
        [count("host_touch.warmth.paused"), count("host_touch.warmth.forgotten")]
    };
    assert_eq!(paused(0, 1), [0.0, 0.0]);
    assert_eq!(paused(100_000, 1)[0], 0.5);
    assert_eq!(paused(1_000_000, 4), [0.25, 0.1], "a fifth of a millisecond is all that counts");
    assert_eq!(paused(1_000_000, 0)[0], 1.0);
    assert_eq!(paused(25_000_000, 1)[1], 0.5);
    assert_eq!(paused(400_000_000, 1)[1], 1.0);
}
