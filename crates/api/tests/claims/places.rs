//! Places: their values, and their form in calls of a back end.
#![cfg(feature = "sim")]

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use pagewise::{
    Device, DriverVersion, ErrorKind, Host, Location, LocationKind, Machine, ManagedBuffer,
    NumaNode, Place, SimBackend, SimConfig, Stream,
};
use proptest::prelude::*;

fn any_place() -> impl Strategy<Value = Place> {
    let number = 0..=i32::MAX.cast_unsigned();
    prop_oneof![
        number.clone().prop_map(|n| Device::new(n).expect("in range").into()),
        Just(Place::HOST),
        number.prop_map(|n| Host::node(n).expect("in range").into()),
        Just(Host::CurrentNode.into()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_place_survives_as_a_location(place in any_place()) {
        prop_assert_eq!(Place::of_location(place.into()), Some(place));
    }

    #[test]
    fn equal_places_hash_and_sort_alike(a in any_place(), b in any_place()) {
        prop_assert_eq!(a == b, HashSet::from([a, b]).len() == 1);
        prop_assert_eq!(a == b, BTreeSet::from([a, b]).len() == 1);
        prop_assert_eq!(a == b, Location::from(a) == Location::from(b));
    }
}

#[test]
fn the_forms_of_the_host_differ_from_each_other_and_from_nothing_else() {
    let node = Host::node(1).unwrap();
    assert_eq!(Host::default(), Host::Any);
    assert_eq!(node, Host::Node(NumaNode::new(1).unwrap()));
    assert_eq!(HashSet::from([Host::Any, node, Host::CurrentNode, node]).len(), 3);
    assert_ne!(Place::from(Device::FIRST), Place::from(Host::node(0).unwrap()));
    let texts = [Host::Any, node, Host::CurrentNode].map(|host| host.to_string());
    assert_eq!(texts, ["host", "host node 1", "host current node"]);
}

#[test]
fn numbers_that_no_c_int_holds_are_refused_where_the_place_is_made() {
    for number in [1 << 31, u32::MAX] {
        let errors = [
            Device::new(number).unwrap_err(),
            Host::node(number).unwrap_err(),
            NumaNode::try_from(number).unwrap_err(),
        ];
        for error in errors {
            assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidValue, None), "{error}");
            assert!(error.to_string().contains("2147483647"), "{error}");
        }
    }
    assert_eq!(Device::new(i32::MAX.cast_unsigned()).unwrap().id().0, i32::MAX);
}

#[test]
fn answers_that_name_no_place_are_none() {
    let of = |kind, id| Place::of_location(Location { kind, id });
    assert_eq!(of(LocationKind::INVALID, 0), None);
    assert_eq!(of(LocationKind::DEVICE, -2), None);
    assert_eq!(of(LocationKind::INVISIBLE, 0), None);
    assert_eq!(of(LocationKind::HOST, -1), Some(Place::HOST), "the id of the host means nothing");
}

#[test]
fn a_machine_hands_out_the_devices_that_it_has() {
    let machine = Machine::from(Arc::new(SimBackend::new(SimConfig::h200().devices(2)).unwrap()));
    assert_eq!(machine.devices().unwrap(), [Device::FIRST, Device::new(1).unwrap()]);
    let error = machine.device(2).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidDevice, None));
    assert!(error.to_string().contains("device 2 does not exist: the machine has 2"), "{error}");
}

#[test]
fn a_numa_node_before_cuda_12_2_is_refused_before_the_driver_is_asked() {
    let config = SimConfig::h200().driver_version(DriverVersion::CUDA_12_0);
    let machine = Machine::from(Arc::new(SimBackend::new(config).unwrap()));
    let buffer = ManagedBuffer::<u8>::zeroed(&machine, 4096).unwrap();
    let stream = Stream::legacy_default(&machine);
    for place in [Host::node(0).unwrap(), Host::CurrentNode].map(Place::from) {
        for error in [
            buffer.prefetch(place, &stream).unwrap_err(),
            buffer.set_preferred_location(Some(place)).unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, None), "{error}");
            assert!(error.to_string().contains("12.2"), "{error}");
        }
    }
    buffer.prefetch(Place::HOST, &stream).unwrap();
    assert_eq!(buffer.last_prefetch_location().unwrap(), Some(Place::HOST));
    buffer.set_preferred_location(Some(Device::FIRST.into())).unwrap();
    assert_eq!(buffer.preferred_location().unwrap(), Some(Device::FIRST.into()));
    buffer.set_preferred_location(None).unwrap();
    assert_eq!(buffer.preferred_location().unwrap(), None);
}

#[test]
#[cfg(feature = "serde")]
fn places_serialize_by_value_and_wrong_ones_do_not_deserialize() {
    let node = Place::from(Host::node(3).unwrap());
    for (place, text) in [
        (Place::from(Device::FIRST), r#"{"device":0}"#),
        (Place::HOST, r#"{"host":"any"}"#),
        (node, r#"{"host":{"node":3}}"#),
        (Host::CurrentNode.into(), r#"{"host":"current_node"}"#),
    ] {
        assert_eq!(serde_json::to_string(&place).unwrap(), text);
        assert_eq!(serde_json::from_str::<Place>(text).unwrap(), place);
    }
    let error = serde_json::from_str::<Place>(r#"{"device":4294967295}"#).unwrap_err();
    assert!(error.to_string().contains("above 2147483647"), "{error}");
    assert!(serde_json::from_str::<Place>(r#"{"device":-1}"#).is_err());
}
