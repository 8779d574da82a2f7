//! Advice: the refusals and their order, and the attributes that reads report.

use pagewise::{Advice, Backend, Location, LocationKind, RangeAttribute, Span};

use crate::{GPU, MIB, Managed, NO_GPU, PAGE, WILD, code, has_locations, is_absent};

fn all_codes(backend: &dyn Backend, span: Span, ordinal: i32) -> [i32; 6] {
    Advice::ALL.map(|advice| code(backend.advise_ordinal(span, advice, ordinal)))
}

fn location_codes(backend: &dyn Backend, span: Span, location: Location) -> [i32; 6] {
    Advice::ALL.map(|advice| code(backend.advise(span, advice, location)))
}

fn read(backend: &dyn Backend, span: Span, attribute: RangeAttribute) -> i32 {
    backend.range_attribute(span, attribute).expect("a managed range")
}

pub fn unknown_advice_is_an_invalid_value(backend: &dyn Backend) {
    let managed = Managed::new(backend, MIB);
    for advice in [0, 7, -1, 99] {
        assert_eq!(code(backend.advise_ordinal(managed.span, Advice(advice), 0)), 1);
        if has_locations(backend) {
            assert_eq!(code(backend.advise(managed.span, Advice(advice), GPU)), 1);
        }
    }
}

pub fn an_empty_range_is_refused_before_an_unknown_ordinal(backend: &dyn Backend) {
    let managed = Managed::new(backend, MIB);
    assert_eq!(all_codes(backend, managed.at(0, 0), 99), [1; 6]);
    assert_eq!(all_codes(backend, Span::default(), 99), [1; 6]);
}

pub fn an_unknown_ordinal_is_refused_before_the_range(backend: &dyn Backend) {
    let managed = Managed::new(backend, MIB);
    for span in [managed.at(0, MIB + 1), Span::new(WILD, PAGE)] {
        assert_eq!(all_codes(backend, span, 99), [1, 1, 101, 1, 101, 101]);
        assert_eq!(all_codes(backend, span, -1), [1; 6]);
    }
}

pub fn advice_that_ignores_the_location_accepts_any_ordinal(backend: &dyn Backend) {
    let managed = Managed::new(backend, MIB);
    assert_eq!(all_codes(backend, managed.span, 99), [0, 0, 101, 0, 101, 101]);
    assert_eq!(all_codes(backend, managed.span, -2), [0, 0, 101, 0, 101, 101]);
}

pub fn an_unknown_device_is_an_invalid_value_in_the_location_form(backend: &dyn Backend) {
    if !has_locations(backend) {
        return;
    }
    let managed = Managed::new(backend, MIB);
    assert_eq!(location_codes(backend, managed.span, NO_GPU), [0, 0, 1, 0, 1, 1]);
    assert_eq!(location_codes(backend, Span::new(WILD, PAGE), NO_GPU), [1; 6]);
}

pub fn the_type_of_a_location_is_checked_even_if_its_id_is_not(backend: &dyn Backend) {
    if !has_locations(backend) {
        return;
    }
    let managed = Managed::new(backend, MIB);
    for kind in [0, 5, 6, -1] {
        let location = Location { kind: LocationKind(kind), id: 0 };
        assert_eq!(location_codes(backend, managed.span, location), [1; 6], "type {kind}");
    }
    let host = Location { kind: LocationKind::HOST, id: 5 };
    assert_eq!(location_codes(backend, managed.span, host), [0; 6]);
}

pub fn a_numa_location_never_reaches_the_memory(backend: &dyn Backend) {
    if !has_locations(backend) {
        return;
    }
    let managed = Managed::new(backend, MIB);
    backend.advise(managed.span, Advice::SET_PREFERRED_LOCATION, GPU).expect("a device");
    for span in [managed.span, managed.at(0, 0), Span::default(), Span::new(WILD, PAGE)] {
        let known = location_codes(backend, span, Location::host_numa(0));
        assert_eq!(known, [0, 0, 0, 0, 1, 1]);
        let current = location_codes(backend, span, Location::HOST_NUMA_CURRENT);
        assert_eq!(current, [0, 0, 0, 0, 1, 1]);
        let unknown = location_codes(backend, span, Location::host_numa(77));
        assert_eq!(unknown, [0, 0, 1, 0, 1, 1]);
    }
    assert_eq!(read(backend, managed.span, RangeAttribute::PREFERRED_LOCATION), 0);
}

pub fn a_range_must_end_in_the_allocation_that_it_starts_in(backend: &dyn Backend) {
    let first = Managed::new(backend, 2 * MIB);
    let second = Managed::new(backend, 2 * MIB + 100);
    let advise = |span| code(backend.advise_ordinal(span, Advice::SET_READ_MOSTLY, 0));
    assert_eq!(advise(first.at(2 * MIB - 1, 1)), 0);
    assert_eq!(advise(first.at(2 * MIB - 1, 2)), 1);
    assert_eq!(advise(second.at(2 * MIB, 100)), 0);
    assert_eq!(advise(second.at(2 * MIB, 101)), 1, "by the bytes requested, not by the page");
    assert_eq!(advise(second.at(u64::MAX, 2)), 1);
}

pub fn advice_is_reported_for_every_page_that_the_range_touches(backend: &dyn Backend) {
    let managed = Managed::new(backend, 2 * MIB);
    backend.advise_ordinal(managed.at(PAGE + 1, PAGE), Advice::SET_READ_MOSTLY, 0).expect("inside");
    let reads = [0, 1, 2, 3]
        .map(|page| read(backend, managed.at(page * PAGE, PAGE), RangeAttribute::READ_MOSTLY));
    assert_eq!(reads, [0, 1, 1, 0]);
}

pub fn accessed_by_lists_devices_then_the_host_then_nothing(backend: &dyn Backend) {
    let managed = Managed::new(backend, 2 * MIB);
    let list = || {
        let mut out = [7; 4];
        backend.range_accessed_by(managed.span, &mut out).expect("a managed range");
        out
    };
    assert_eq!(list(), [-2; 4]);
    backend.advise_ordinal(managed.span, Advice::SET_ACCESSED_BY, -1).expect("the host");
    assert_eq!(list(), [-1, -2, -2, -2]);
    backend.advise_ordinal(managed.span, Advice::SET_ACCESSED_BY, 0).expect("a device");
    assert_eq!(list(), [0, -1, -2, -2]);
    assert_eq!(code(backend.range_accessed_by(managed.span, &mut [])), 1);
}

pub fn a_short_accessed_by_list_holds_the_first_processors(backend: &dyn Backend) {
    let managed = Managed::new(backend, 2 * MIB);
    for processor in [-1, 0] {
        backend.advise_ordinal(managed.span, Advice::SET_ACCESSED_BY, processor).expect("known");
    }
    let mut one = [7];
    backend.range_accessed_by(managed.span, &mut one).expect("a managed range");
    assert_eq!(one, [0]);
}

pub fn unset_advice_leaves_nothing_to_report(backend: &dyn Backend) {
    let managed = Managed::new(backend, 2 * MIB);
    for (set, unset, attribute, on, off) in [
        (Advice::SET_READ_MOSTLY, Advice::UNSET_READ_MOSTLY, RangeAttribute::READ_MOSTLY, 1, 0),
        (
            Advice::SET_PREFERRED_LOCATION,
            Advice::UNSET_PREFERRED_LOCATION,
            RangeAttribute::PREFERRED_LOCATION,
            0,
            -2,
        ),
    ] {
        backend.advise_ordinal(managed.span, set, 0).expect("a device");
        assert_eq!(read(backend, managed.span, attribute), on);
        backend.advise_ordinal(managed.span, unset, 0).expect("a device");
        assert_eq!(read(backend, managed.span, attribute), off);
    }
}

pub fn a_failed_call_changes_nothing(backend: &dyn Backend) {
    let managed = Managed::new(backend, 2 * MIB);
    let before = read(backend, managed.span, RangeAttribute::READ_MOSTLY);
    assert_eq!(all_codes(backend, managed.at(0, 2 * MIB + 1), 0), [1; 6]);
    assert_eq!(read(backend, managed.span, RangeAttribute::READ_MOSTLY), before);
    assert_eq!(read(backend, managed.span, RangeAttribute::PREFERRED_LOCATION), -2);
}

pub fn the_location_form_is_absent_before_cuda_12_2(backend: &dyn Backend) {
    if has_locations(backend) {
        return;
    }
    let managed = Managed::new(backend, MIB);
    assert!(is_absent(backend.advise(managed.span, Advice::SET_READ_MOSTLY, GPU)));
    let types = RangeAttribute::PREFERRED_LOCATION_TYPE;
    assert_eq!(code(backend.range_attribute(managed.span, types)), 1);
}
