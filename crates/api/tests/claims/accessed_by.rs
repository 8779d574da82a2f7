//! The accessed-by set: a set, checked first, changed as a whole or not at all.
#![cfg(feature = "sim")]

use std::collections::BTreeSet;
use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector, sweep};
use pagewise::intercept::Operation;
use pagewise::{
    AccessedBy, Code, Device, ErrorKind, Host, Machine, ManagedBuffer, Place, Result, SimBackend,
    SimConfig,
};
use proptest::prelude::*;
use proptest::sample::subsequence;

fn three_devices() -> Result<SimBackend> {
    SimBackend::new(SimConfig::h200().devices(3))
}

fn device(ordinal: u32) -> Place {
    Device::new(ordinal).expect("in range").into()
}

fn processors() -> Vec<Place> {
    vec![device(0), device(1), device(2), Place::HOST]
}

fn some_processors() -> impl Strategy<Value = BTreeSet<Place>> {
    subsequence(processors(), 0..=4).prop_map(|places| places.into_iter().collect())
}

/// An operation that changes several members.
type Change = (&'static str, fn(&AccessedBy<'_>, &BTreeSet<Place>) -> Result<()>);
/// An operation's effect on a set.
type Model = fn(&BTreeSet<Place>, &BTreeSet<Place>) -> BTreeSet<Place>;

const CHANGES: [(Change, Model); 6] = [
    (("assign", |set, with| set.assign(with.clone())), |_, with| with.clone()),
    (("clear", |set, _| set.clear()), |_, _| BTreeSet::new()),
    (("extend", |set, with| set.extend(with.clone())), |set, with| set | with),
    (("intersect", |set, with| set.intersect_with(with.clone())), |set, with| set & with),
    (("difference", |set, with| set.difference_with(with.clone())), |set, with| set - with),
    (("symmetric", |set, with| set.symmetric_difference_with(with.clone())), |set, with| {
        set ^ with
    }),
];

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// It is a set: each operation does to it as it does to a set.
    #[test]
    fn it_behaves_as_a_set(start in some_processors(), with in some_processors()) {
        let buffer = ManagedBuffer::<u8>::new(Arc::new(three_devices()?), 8192)?;
        let live = buffer.accessed_by();
        for ((name, change), model) in CHANGES {
            live.assign(start.clone())?;
            change(&live, &with)?;
            prop_assert_eq!(live.to_set()?, model(&start, &with), "{}", name);
        }
        live.assign(start.clone())?;
        prop_assert_eq!(live.union(with.clone())?, &start | &with);
        prop_assert_eq!(live.intersection(with.clone())?, &start & &with);
        prop_assert_eq!(live.difference(with.clone())?, &start - &with);
        prop_assert_eq!(live.symmetric_difference(with.clone())?, &start ^ &with);
        prop_assert_eq!(live.to_set()?, start.clone(), "asking changes nothing");
        prop_assert_eq!((live.len()?, live.is_empty()?), (start.len(), start.is_empty()));
        for place in processors() {
            prop_assert_eq!(live.contains(place)?, start.contains(&place));
        }
        prop_assert_eq!(live.iter()?.collect::<Vec<_>>(), start.into_iter().collect::<Vec<_>>());
    }

    /// Whatever call fails, the members are as before.
    #[test]
    fn a_failure_of_any_call_changes_nothing(start in some_processors(), with in some_processors()) {
        for ((name, change), _) in CHANGES {
            sweep(Code::OUT_OF_MEMORY, three_devices, |backend, failing| {
                let buffer = ManagedBuffer::<u8>::new(backend, 8192)?;
                let live = buffer.accessed_by();
                live.assign(start.clone())?;
                let answer = backend.watch(|| change(&live, &with));
                assert_eq!(answer.is_err(), failing.is_some(), "{name}");
                if let Err(error) = answer {
                    assert_eq!(error.code(), Some(Code::OUT_OF_MEMORY), "{name}: {error}");
                    assert_eq!(live.to_set()?, start, "{name}: {error}");
                }
                Ok(())
            })?;
        }
    }
}

#[test]
fn a_change_reads_once_and_gives_advice_for_what_differs_only() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(three_devices()?));
    let machine = Machine::from(&backend);
    machine.device_count()?;
    let buffer = ManagedBuffer::<u8>::new(&machine, 8192)?;
    let live = buffer.accessed_by();
    live.assign([device(0), device(1)])?;
    let _ = backend.take_calls();
    live.assign([device(1), device(2)])?;
    let calls = backend.take_calls();
    let operations: Vec<_> = calls.iter().map(|call| call.operation()).collect();
    assert_eq!(operations, [Operation::RangeAccessedBy, Operation::Advise, Operation::Advise]);
    let places: Vec<_> =
        calls[1..].iter().map(|call| call.location().and_then(Place::of_location)).collect();
    assert_eq!(places, [Some(device(0)), Some(device(2))], "removals first");
    live.assign([device(2), device(1), device(2)])?;
    assert_eq!(backend.take_calls().len(), 1, "nothing differs, however it is written");
    live.clear()?;
    assert_eq!(backend.take_calls().len(), 3, "one read, two removals");
    Ok(())
}

#[test]
fn everything_is_checked_before_anything_is_done() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(three_devices()?));
    let buffer = ManagedBuffer::<u8>::new(&backend, 8192)?;
    let live = buffer.accessed_by();
    live.assign([device(0), Place::HOST])?;
    let before = live.to_set()?;
    let _ = backend.take_calls();
    for (bad, kind) in [
        (Place::from(Host::node(0)?), ErrorKind::InvalidValue),
        (Place::from(Host::CurrentNode), ErrorKind::InvalidValue),
        (device(3), ErrorKind::InvalidDevice),
    ] {
        let changes = [
            live.assign([device(0), bad]),
            live.extend([device(2), bad]),
            live.intersect_with([bad]),
            live.difference_with([device(0), bad]),
            live.symmetric_difference_with([bad, Place::HOST]),
            live.insert(bad),
            live.remove(bad),
        ];
        for answer in changes {
            let error = answer.unwrap_err();
            assert_eq!((error.kind(), error.code()), (kind, None), "{error}");
        }
    }
    assert_eq!(backend.take_calls(), [], "the back end was not asked for anything");
    assert_eq!(live.to_set()?, before);
    assert!(!live.contains(Host::node(0)?)?);
    Ok(())
}

/// An addition maps pages, and to take it back unmaps also those that something else had mapped.
#[test]
fn an_addition_that_was_taken_back_is_said_to_unmap_and_a_removal_is_not() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(three_devices()?));
    let buffer = ManagedBuffer::<u8>::new(&backend, 8192)?;
    let live = buffer.accessed_by();
    let fails = |members: &[u32]| -> Result<String> {
        backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::Advise).nth(1));
        let error = live.assign(members.iter().map(|&n| device(n))).unwrap_err().to_string();
        assert!(error.contains("the members are as before"), "{error}");
        Ok(error)
    };
    let added = fails(&[0, 1])?;
    assert!(added.contains("if device 0 kept parts"), "{added}");
    live.assign([device(0)])?;
    let removed = fails(&[1])?;
    assert!(!removed.contains("kept parts"), "{removed}");
    Ok(())
}

#[test]
fn what_cannot_be_taken_back_is_said() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(three_devices()?));
    let buffer = ManagedBuffer::<u8>::new(&backend, 8192)?;
    let live = buffer.accessed_by();
    live.assign([device(0)])?;
    // Taking device 0 out works, making device 1 a member fails, and so does taking that back.
    backend.arm(Fault::new(Code::OUT_OF_MEMORY).on(Operation::Advise).nth(1));
    backend.arm(Fault::new(Code::NOT_PERMITTED).on(Operation::Advise).nth(2));
    let error = live.assign([device(1)]).unwrap_err();
    assert_eq!(error.code(), Some(Code::OUT_OF_MEMORY), "the first failure is reported");
    assert!(error.to_string().contains("device 0 is no member any more"), "{error}");
    assert_eq!(live.to_set()?, BTreeSet::new());
    Ok(())
}

#[test]
fn only_what_keeps_all_of_a_range_mapped_is_a_member() -> Result<()> {
    let buffer = ManagedBuffer::<u8>::new(pagewise::sim()?, 8192)?;
    buffer.range(..4096)?.accessed_by().insert(Device::FIRST)?;
    assert!(buffer.range(..4096)?.accessed_by().contains(Device::FIRST)?);
    assert!(!buffer.accessed_by().contains(Device::FIRST)?);
    buffer.accessed_by().remove(Device::FIRST)?;
    assert!(buffer.range(..4096)?.accessed_by().is_empty()?, "removing reaches parts");
    assert_eq!(format!("{:?}", buffer.accessed_by()), "{}");
    Ok(())
}
