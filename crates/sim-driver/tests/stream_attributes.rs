//! Attributes of streams, as an H200 with driver 580 (CUDA 13.0) answered a probe on 23 November 2026.

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::{from_mut, from_ref, null_mut, without_provenance_mut};

use common::start;
use pagewise_driver::*;

const WINDOW: c_int = 1;
const POLICY: c_int = 3;

/// `CUaccessPolicyWindow`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Window {
    base: usize,
    bytes: usize,
    hit_ratio: f32,
    hit_property: c_int,
    miss_property: c_int,
}

const NONE: Window =
    Window { base: 0, bytes: 0, hit_ratio: 0.0, hit_property: 0, miss_property: 0 };

fn created() -> *mut c_void {
    let mut stream = null_mut();
    // SAFETY: the place is a local.
    assert_eq!(unsafe { cuStreamCreate(&raw mut stream, 0) }, 0);
    stream
}

fn get<T>(stream: *mut c_void, attribute: c_int, mut value: T) -> (c_int, T) {
    // SAFETY: the place is a local, as large as the attribute's value.
    let code = unsafe { cuStreamGetAttribute(stream, attribute, from_mut(&mut value).cast()) };
    (code, value)
}

fn set<T>(stream: *mut c_void, attribute: c_int, value: &T) -> c_int {
    // SAFETY: the place is a value of the attribute.
    unsafe { cuStreamSetAttribute(stream, attribute, from_ref(value).cast()) }
}

#[test]
fn a_new_stream_has_no_window_no_policy_and_the_first_domain() {
    start();
    let stream = created();
    assert_eq!(get(stream, WINDOW, Window { bytes: 9, ..NONE }), (0, NONE));
    assert_eq!(get(stream, POLICY, 9), (0, -1));
    assert_eq!(get(stream, 9, [9_u8; 2]), (0, [0, 1]));
    assert_eq!(get(stream, 10, 9), (0, 0));
    for unknown in [0, 2, 4, 5, 6, 7, 11, 12, 13, 14, 15, 16] {
        assert_eq!(get(stream, unknown, [9_u64; 8]), (1, [9; 8]), "{unknown}");
        assert_eq!(set(stream, unknown, &[1_u64; 8]), 1, "{unknown}");
    }
}

#[test]
fn a_window_is_kept_and_a_refused_one_changes_nothing() {
    start();
    let (stream, default) = (created(), null_mut());
    let window = Window { base: 16, bytes: 4096, hit_ratio: 0.5, hit_property: 2, ..NONE };
    for stream in [stream, default, without_provenance_mut(2)] {
        assert_eq!(set(stream, WINDOW, &window), 0);
        for refused in [
            Window { bytes: (128 << 20) + 1, ..window },
            Window { hit_ratio: 2.0, ..window },
            Window { hit_ratio: -1.0, ..window },
            Window { miss_property: 2, ..window },
        ] {
            assert_eq!(set(stream, WINDOW, &refused), 1, "{refused:?}");
        }
        assert_eq!(get(stream, WINDOW, NONE), (0, window));
        let largest = Window { bytes: 128 << 20, ..window };
        assert_eq!((set(stream, WINDOW, &largest), get(stream, WINDOW, NONE)), (0, (0, largest)));
        assert_eq!(set(stream, WINDOW, &NONE), 0);
    }
    assert_eq!(set(default, POLICY, &1), 1);
}

#[test]
fn a_copy_of_attributes_takes_the_window_and_the_priority() {
    start();
    let (from, to) = (created(), created());
    let window = Window { base: 16, bytes: 4096, hit_ratio: 0.25, hit_property: 1, ..NONE };
    assert_eq!((set(from, WINDOW, &window), set(from, 8, &-3)), (0, 0));
    assert_eq!(cuStreamCopyAttributes(to, from), 0);
    assert_eq!(get(to, WINDOW, NONE), (0, window));
    assert_eq!(get(to, 8, 0), (0, -3));
}
