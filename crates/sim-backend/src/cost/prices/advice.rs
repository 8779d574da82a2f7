//! Claims about the price of advice.

use super::*;
use crate::paging::Advised;

/// Advice to one block, with every count another number.
fn advised(advised: Advised) -> Work {
    Work {
        cause: WorkCause::Advice(advised),
        blocks: 2,
        pages_held_host: 3,
        pages_held_device: 5,
        pages_revoked_host: 7,
        pages_collapsed: 11,
        ranges_advised: 13,
        ranges_split: 17,
        blocks_split: 19,
        mapped_blocks_split: 23,
        ..Work::default()
    }
}

/// The figures of advice to one block, without those that every advice has.
fn of_advice(work: Work) -> BTreeMap<String, f64> {
    let cuts = [
        ("call", 1.0),
        ("range", 13.0),
        ("range_split", 17.0),
        ("block_split", 19.0),
        ("mapped_block_split", 23.0),
    ];
    let mut priced = priced(Call::Advise, WARM, &[Input::Work(work)]);
    for (figure, count) in figures("advice", &cuts) {
        assert_eq!(priced.remove(&figure), Some(count), "{figure}");
    }
    priced
}

#[test]
fn advice_costs_by_what_it_does_to_each_block() {
    let cases: [(Advised, &[(&str, f64)]); 7] = [
        (Advised::PreferredElsewhere, &[("preferred_block", 2.0), ("preferred_host_page", 3.0)]),
        (
            Advised::PreferredDevice,
            &[
                ("preferred_block", 2.0),
                ("preferred_host_page", 3.0),
                ("preferred_device_block", 2.0),
            ],
        ),
        (
            Advised::ReadMostly,
            &[
                ("read_mostly_host_block", 2.0),
                ("read_mostly_device_block", 2.0),
                ("revoked_host_page", 7.0),
            ],
        ),
        (
            Advised::ReadMostlyEnd,
            &[
                ("read_mostly_end_block", 2.0),
                ("read_mostly_end_host_block", 2.0),
                ("collapsed_block", 2.0),
            ],
        ),
        (
            Advised::AccessedByDevice,
            &[("accessed_by_device_block", 2.0), ("accessed_by_device_page", 8.0)],
        ),
        (
            Advised::AccessedByHost,
            &[
                ("accessed_by_host_block", 2.0),
                ("accessed_by_host_page", 3.0),
                ("accessed_by_host_device_page", 5.0),
            ],
        ),
        (Advised::AccessedByEnd, &[]),
    ];
    for (advice, expected) in cases {
        assert_eq!(of_advice(advised(advice)), figures("advice", expected), "{advice:?}");
    }
}

#[test]
fn what_no_page_of_a_block_has_costs_nothing_for_the_block() {
    let nowhere = |advice| Work {
        pages_held_host: 0,
        pages_held_device: 0,
        pages_revoked_host: 0,
        pages_collapsed: 0,
        ..advised(advice)
    };
    assert_eq!(of_advice(nowhere(Advised::ReadMostly)), BTreeMap::new());
    let preferred = figures("advice", &[("preferred_block", 2.0)]);
    assert_eq!(of_advice(nowhere(Advised::PreferredDevice)), preferred);
    let end = figures("advice", &[("read_mostly_end_block", 2.0)]);
    assert_eq!(of_advice(nowhere(Advised::ReadMostlyEnd)), end);
}

#[test]
fn advice_that_reaches_no_memory_has_a_price_of_its_own() {
    let asleep = Warmth::AfterSleep { others: 0, long: false };
    assert_eq!(priced(Call::Advise, WARM, &[]), figures("advice", &[("no_memory", 1.0)]));
    assert_eq!(priced(Call::Advise, COLD, &[]), figures("advice", &[("no_memory", 1.0)]));
    let after_sleep = [("no_memory", 1.0), ("no_memory_after_sleep", 1.0)];
    assert_eq!(priced(Call::Advise, asleep, &[]), figures("advice", &after_sleep));
}

#[test]
fn advice_acts_after_a_sleep_if_there_is_something_to_act_on() {
    let wakes = |work: Work, warmth| {
        let priced = priced(Call::Advise, warmth, &[Input::Work(work)]);
        priced.get("advice.acts_after_sleep") == Some(&1.0)
    };
    let asleep = Warmth::AfterSleep { others: 0, long: false };
    let one = |advice| Work { cause: WorkCause::Advice(advice), ..Work::default() };
    for advice in [Advised::PreferredDevice, Advised::PreferredElsewhere] {
        assert!(wakes(Work { pages_held_host: 1, ..one(advice) }, asleep));
        assert!(!wakes(Work { blocks: 1, pages_held_device: 1, ..one(advice) }, asleep));
    }
    assert!(wakes(Work { pages_collapsed: 1, ..one(Advised::ReadMostlyEnd) }, asleep));
    assert!(!wakes(Work { blocks: 1, ..one(Advised::ReadMostlyEnd) }, asleep));
    assert!(!wakes(advised(Advised::AccessedByEnd), asleep));
    for advice in [Advised::ReadMostly, Advised::AccessedByDevice, Advised::AccessedByHost] {
        assert!(wakes(Work { blocks: 1, ..one(advice) }, asleep));
        assert!(!wakes(Work { pages_held_host: 1, ..one(advice) }, asleep));
        assert!(wakes(Work { blocks: 1, ..one(advice) }, COLD), "slept, but not just now");
        assert!(!wakes(Work { blocks: 1, ..one(advice) }, Warmth::Cold { first: true }));
        assert!(!wakes(Work { blocks: 1, ..one(advice) }, WARM));
    }
    let acting = Work { blocks: 1, ..one(Advised::ReadMostly) };
    let both = [Input::Work(acting), Input::Work(one(Advised::ReadMostly))];
    assert!(priced(Call::Advise, asleep, &both).contains_key("advice.acts_after_sleep"), "once");
}
