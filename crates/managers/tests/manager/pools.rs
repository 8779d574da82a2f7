//! Shares: the pools, and the manager's use of them.

use std::sync::Arc;

use pagewise::inject::{Fault, FaultInjector};
use pagewise::intercept::Operation;
use pagewise::{Code, Device, ErrorKind, Machine};
use pagewise_managers::manager::{
    ArrayRequest, Dtype, InstanceId, LimitMode, MIN_AUTOPOOL_SIZE, ManagerError, ManagerOptions,
    MemoryManager, Pools, Registration, Result, Warning,
};
use proptest::prelude::*;

/// A manager of 8 GiB, whatever the device has.
pub(crate) fn manager_of_8_gib() -> Result<MemoryManager> {
    let options = ManagerOptions::new().total_bytes(8 << 30);
    MemoryManager::with_options(Machine::from(pagewise::sim()?), Device::FIRST, options)
}

fn auto() -> Registration {
    Registration::new()
}

fn manual(proportion: f64) -> Registration {
    Registration::new().proportion(proportion)
}

#[test]
fn shares_follow_each_change() -> Result<()> {
    let manager = manager_of_8_gib()?;
    let of = |ids: &[InstanceId]| -> Result<Vec<f64>> {
        ids.iter().map(|&id| manager.proportion(id)).collect()
    };
    let a = manager.register(auto())?;
    assert_eq!((of(&[a])?, manager.cap(a)?), (vec![1.0], 8 << 30));
    let b = manager.register(auto())?;
    assert_eq!(of(&[a, b])?, [0.5, 0.5]);
    let c = manager.register(manual(0.5))?;
    assert_eq!((of(&[a, b, c])?, manager.cap(c)?), (vec![0.25, 0.25, 0.5], 4 << 30));
    manager.set_manual_proportion(c, 0.4)?;
    assert_eq!(of(&[a, b, c])?, [0.3, 0.3, 0.4]);
    manager.set_manual_limit_mode(b, 0.3)?;
    assert_eq!(of(&[a, b, c])?, [0.3, 0.3, 0.4]);
    let refused = manager.register(manual(0.3)).unwrap_err();
    assert!(matches!(refused, ManagerError::AutoPoolTooSmall { .. }), "{refused}");
    assert_eq!((manager.manual_pool(), manager.auto_pool()), (vec![b, c], vec![a]));
    assert_eq!((manager.manual_pool_proportion(), manager.auto_pool_proportion()), (0.7, 0.3));
    manager.release_instance(c)?;
    assert_eq!(of(&[a, b])?, [0.7, 0.3]);
    Ok(())
}

#[test]
fn a_peer_gets_what_a_share_leaves() -> Result<()> {
    let manager = manager_of_8_gib()?;
    let (a, b) = (manager.register(auto())?, manager.register(auto())?);
    manager.set_manual_proportion(a, 0.01)?;
    assert_eq!(manager.proportion(b)?, 0.99);
    manager.set_manual_proportion(a, 0.25)?;
    assert_eq!((manager.proportion(a)?, manager.proportion(b)?), (0.25, 0.75));
    Ok(())
}

/// The first version of cubie left it in both pools (issue 576).
#[test]
fn adding_a_member_puts_it_into_the_pool_that_was_asked_for() -> Result<()> {
    let mut pools = Pools::new();
    pools.add_auto("a")?;
    assert_eq!(pools.add_manual("b", 0.25)?, None, "nothing to warn of");
    assert_eq!((pools.proportion("a"), pools.proportion("b")), (Some(0.75), Some(0.25)));
    pools.add_manual("a", 0.5)?;
    pools.add_auto("b")?;
    assert_eq!((pools.is_manual("a"), pools.is_manual("b")), (true, false));
    assert_eq!(pools.cap("c", 1000), None, "a stranger has no share");
    match pools.add_manual("a", 0.96).unwrap_err() {
        ManagerError::AutoPoolTooSmall { left, .. } => assert!((left - 0.04).abs() < 1e-9),
        error => panic!("{error}"),
    }
    let warning = pools.add_manual("b", 0.5)?;
    assert_eq!(warning, Some(Warning::ManualPoolLarge { manual: 1.0 }));
    Ok(())
}

#[test]
fn an_instance_is_in_one_pool() -> Result<()> {
    let manager = manager_of_8_gib()?;
    let id = manager.register(auto())?;
    manager.set_manual_proportion(id, 0.5)?;
    assert_eq!((manager.manual_pool(), manager.auto_pool()), (vec![id], vec![]));
    manager.set_manual_limit_mode(id, 0.7)?;
    assert_eq!(manager.proportion(id)?, 0.5, "it had a share already");
    manager.set_auto_limit_mode(id)?;
    manager.set_auto_limit_mode(id)?;
    assert_eq!((manager.manual_pool(), manager.auto_pool()), (vec![], vec![id]));
    assert!(!manager.settings(id)?.is_manual);
    Ok(())
}

/// 3.9.3 and 3.9.5: cubie leaves a refused instance registered, without a pool; takes 0.0 for auto;
/// and changes the pool before it fails on an integer.
#[test]
fn a_refused_registration_leaves_nothing() -> Result<()> {
    let manager = manager_of_8_gib()?;
    let first = manager.register(manual(0.5))?;
    let object = Arc::new(());
    for bad in [1.5, -0.1, 0.0, f64::NAN, f64::INFINITY, 1e-30] {
        let registration = manual(bad).object(&object).stream_group("new");
        let refused = manager.register(registration).unwrap_err();
        assert!(matches!(refused, ManagerError::InvalidProportion(_)), "{bad}: {refused}");
    }
    let refused = manager.register(manual(0.6).object(&object)).unwrap_err();
    assert_eq!(refused, ManagerError::ProportionsExceedOne(1.1));
    assert_eq!((manager.instances(), manager.manual_pool()), (vec![first], vec![first]));
    assert!(manager.get_available_memory("new").is_err(), "the group was not made");
    let id = manager.register(manual(0.5).object(&object))?;
    assert_eq!(manager.proportion(id)?, 0.5, "and not registered already");
    Ok(())
}

/// 3.9.4: cubie leaves it in neither pool.
#[test]
fn a_refused_share_leaves_the_old_one() -> Result<()> {
    let manager = manager_of_8_gib()?;
    let (a, b) = (manager.register(manual(0.5))?, manager.register(auto())?);
    for bad in [1.5, 0.0, -1.0, f64::NAN] {
        assert!(manager.set_manual_proportion(b, bad).is_err());
        assert!(manager.set_manual_limit_mode(b, bad).is_err());
    }
    assert!(manager.set_manual_proportion(b, 0.6).is_err(), "more than is left");
    assert!(manager.set_manual_proportion(a, 0.96).is_err(), "too little would be left for b");
    assert_eq!((manager.proportion(a)?, manager.proportion(b)?), (0.5, 0.5));
    assert_eq!((manager.manual_pool(), manager.auto_pool()), (vec![a], vec![b]));
    let c = manager.register(manual(0.4))?;
    manager.set_manual_proportion(b, 0.1)?;
    assert!(manager.set_manual_proportion(c, 0.41).is_err());
    manager.set_manual_proportion(c, 0.38)?;
    assert!(manager.set_auto_limit_mode(b).is_ok());
    Ok(())
}

#[test]
fn shares_above_95_percent_warn_alone_and_are_refused_in_company() -> Result<()> {
    let manager = manager_of_8_gib()?;
    let a = manager.register(manual(0.97))?;
    assert_eq!(manager.take_warnings(), [Warning::ManualPoolLarge { manual: 0.97 }]);
    assert!(matches!(manager.register(auto()), Err(ManagerError::AutoPoolTooSmall { .. })));
    manager.set_manual_proportion(a, 0.95)?;
    assert_eq!(manager.take_warnings(), []);
    let b = manager.register(auto())?;
    assert_eq!(manager.proportion(b)?, MIN_AUTOPOOL_SIZE, "0.05 is enough");
    let refused = manager.set_manual_proportion(a, 0.951).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidValue);
    Ok(())
}

#[test]
fn decimal_shares_add_up_exactly() -> Result<()> {
    let mut pools = Pools::new();
    for id in 0..9 {
        pools.set_manual(id, 0.1)?;
    }
    assert_eq!(pools.manual_pool_proportion(), 0.9, "not 0.8999999999999999");
    pools.set_manual(9, 0.1)?;
    assert_eq!((pools.manual_pool_proportion(), pools.auto_pool_proportion()), (1.0, 0.0));
    assert!(pools.set_manual(10, 1e-15).is_err());
    let mut thirds = Pools::new();
    (0..3).try_for_each(|id| thirds.set_auto(id))?;
    assert_eq!(thirds.cap(0, 3 << 30), Some(1 << 30), "auto shares are exact");
    Ok(())
}

/// On the percents that people write, shares and caps are those of binary arithmetic.
#[test]
fn caps_of_whole_percents_are_those_of_floating_point() -> Result<()> {
    for percent in 1..=100_u32 {
        let share = f64::from(percent) / 100.0;
        let mut pools = Pools::new();
        pools.set_manual((), share)?;
        for total in [1_u64 << 30, 8 << 30, 80 << 30, 150_109_880_320] {
            let float = (share * total as f64) as u64;
            let exact = u64::try_from(u128::from(total) * u128::from(percent) / 100);
            assert_eq!(pools.cap((), total), exact.ok());
            assert!(float.abs_diff(pools.cap((), total).unwrap_or(0)) <= 1, "{percent} {total}");
        }
    }
    Ok(())
}

/// 3.9.9: cubie ignores the argument, and calls on strangers fail in three different ways.
#[test]
fn the_total_is_what_was_said_and_strangers_are_unknown() -> Result<()> {
    let manager = manager_of_8_gib()?;
    assert_eq!(manager.total_bytes()?, 8 << 30);
    let other = manager_of_8_gib()?;
    let stranger = other.register(auto())?;
    let unknown = Err(ManagerError::UnknownInstance(stranger));
    assert_eq!(manager.cap(stranger).map(drop), unknown);
    assert_eq!(manager.proportion(stranger).map(drop), unknown);
    assert_eq!(manager.set_manual_proportion(stranger, 0.5), unknown);
    assert_eq!(manager.set_manual_limit_mode(stranger, 0.5), unknown);
    assert_eq!(manager.set_auto_limit_mode(stranger), unknown);
    assert_eq!(manager.get_stream_group(stranger).map(drop), unknown);
    assert_eq!(manager.get_stream(stranger).map(drop), unknown);
    assert_eq!(manager.change_stream_group(stranger, "x"), unknown);
    assert_eq!(manager.allocate_queue(stranger).map(drop), unknown);
    assert_eq!(manager.free_instance(stranger), unknown);
    assert_eq!(manager.release_instance(stranger), unknown);
    assert_eq!(manager.begin_submission(stranger), unknown);
    assert_eq!(manager.settings(stranger).map(drop), unknown);
    Ok(())
}

#[test]
fn without_a_known_total_decisions_are_refused_and_ask_again() -> Result<()> {
    let backend = Arc::new(FaultInjector::around(pagewise::sim()?));
    backend.arm(Fault::new(Code::NO_DEVICE).on(Operation::MemoryInfo).always());
    let manager = MemoryManager::new(&backend, Device::FIRST)?;
    let id = manager.register(manual(0.5))?;
    let is_unknown = |error: ManagerError| matches!(error, ManagerError::TotalUnknown(_));
    assert!(is_unknown(manager.total_bytes().unwrap_err()));
    assert!(is_unknown(manager.cap(id).unwrap_err()));
    assert!(is_unknown(manager.get_available_memory("default").unwrap_err()));
    manager.queue_request(id, [("x", ArrayRequest::new(Dtype::U8, [100]))])?;
    assert!(is_unknown(manager.allocate_queue(id).unwrap_err()));
    assert_eq!((manager.settings(id)?.cap, manager.settings(id)?.proportion), (None, 0.5));
    backend.disarm();
    assert_eq!(manager.cap(id)?, manager.total_bytes()? / 2);
    assert!(manager.allocate_queue(id).is_ok(), "the request had stayed");
    assert!(MemoryManager::new(&backend, Device::new(9)?).is_err(), "no such device");
    Ok(())
}

#[test]
fn modes_are_chosen_by_type_or_name() -> Result<()> {
    let manager = manager_of_8_gib()?;
    assert_eq!(manager.limit_mode(), LimitMode::Passive);
    manager.set_limit_mode("active".parse()?);
    assert_eq!(manager.limit_mode(), LimitMode::Active);
    let refused = "half".parse::<LimitMode>().unwrap_err();
    assert!(refused.to_string().contains("passive, active"), "{refused}");
    Ok(())
}

#[derive(Debug, Clone)]
enum Change {
    Manual(u8, f64),
    Auto(u8),
    Remove(u8),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let share = prop_oneof![
        (1_u32..100).prop_map(|percent| f64::from(percent) / 100.0),
        0.0..1.2_f64,
        Just(0.95),
        Just(0.05),
    ];
    let change = prop_oneof![
        3 => (0..8_u8, share).prop_map(|(who, share)| Change::Manual(who, share)),
        3 => (0..8_u8).prop_map(Change::Auto),
        1 => (0..8_u8).prop_map(Change::Remove),
    ];
    proptest::collection::vec(change, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// After any changes: no member is in two pools, shares come to at most 1 (exactly 1 if a member
    /// shares the rest), the auto pool has its minimum, its members have equal shares, caps come to
    /// at most the total and grow with it, and what was refused changed nothing.
    #[test]
    fn pools_hold_their_rules_after_any_changes(changes in changes(), total in 0_u64..1 << 40) {
        let mut pools = Pools::new();
        for change in changes {
            let before = pools.clone();
            let answer = match change {
                Change::Manual(who, share) => pools.set_manual(who, share).map(drop),
                Change::Auto(who) => pools.set_auto(who),
                Change::Remove(who) => { pools.remove(who); Ok(()) }
            };
            if answer.is_err() {
                prop_assert_eq!(&pools, &before);
            }
            let auto: Vec<u8> = pools.auto_pool().collect();
            let all: Vec<u8> = pools.manual_pool().chain(auto.iter().copied()).collect();
            prop_assert!(auto.iter().all(|&who| !pools.is_manual(who)));
            let sum: f64 = all.iter().filter_map(|&who| pools.proportion(who)).sum();
            prop_assert!(sum <= 1.0 + 1e-12);
            if let Some(&first) = auto.first() {
                prop_assert!((sum - 1.0).abs() < 1e-12);
                prop_assert!(pools.auto_pool_proportion() >= MIN_AUTOPOOL_SIZE);
                let share = pools.proportion(first);
                prop_assert!(auto.iter().all(|&who| pools.proportion(who) == share));
            }
            let cap = |who, total| pools.cap(who, total).unwrap_or(0);
            let caps: u64 = all.iter().map(|&who| cap(who, total)).sum();
            prop_assert!(caps <= total);
            prop_assert!(all.iter().all(|&who| cap(who, total) <= cap(who, total + 1)));
            let larger = |a, b| pools.proportion(a) < pools.proportion(b);
            for (&a, &b) in all.iter().zip(all.iter().skip(1)) {
                prop_assert!(!larger(a, b) || cap(a, total) <= cap(b, total));
            }
        }
    }
}
