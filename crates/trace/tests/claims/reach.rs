//! The reach of a case: an offset in a foreign trace leads to the case's own memory only.

use std::sync::{Arc, Mutex};

use pagewise_hal::mock::{MockBackend, permit_free};
use pagewise_hal::{
    Capabilities, Code, DevicePtr, DriverVersion, Error, PoolHandle, Result, StreamHandle,
};
use pagewise_trace::replay::replay_case;

use crate::common::{read, with_ops};

const START: DevicePtr = DevicePtr(0x20_0000);

const ALLOC: &str = r#"{"op":"alloc_managed","buf":0,"bytes":8192,"attach_flags":1,"code":0}"#;

/// A back end with memory at `START`, and the addresses at which it was asked to use contents.
fn watched() -> (MockBackend, Arc<Mutex<Vec<DevicePtr>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let note = {
        let asked = Arc::clone(&asked);
        move |ptr: DevicePtr| -> Result<()> {
            asked.lock().expect("unpoisoned").push(ptr);
            Ok(())
        }
    };
    let mut mock = MockBackend::new();
    let capabilities = Capabilities::of_driver("mock", DriverVersion::CUDA_13_0);
    mock.expect_capabilities().returning(move || capabilities.clone());
    mock.expect_device_count().returning(|| Ok(1));
    mock.expect_clock_ns().returning(|| 0);
    mock.expect_alloc_managed().returning(|_, _| Ok(START));
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock compares handles
    // and dereferences none.
    mock.expect_stream_create().returning(|_, _| Ok(unsafe { StreamHandle::from_raw(0x57) }));
    mock.expect_stream_destroy().returning(|_| Ok(()));
    let used = note.clone();
    mock.expect_memset().returning(move |span, _, _| used(span.ptr));
    let used = note.clone();
    mock.expect_memcpy().returning(move |to, from, _, _| used(to).and(used(from)));
    let used = note.clone();
    mock.expect_memset_d16().returning(move |span, _, _| used(span.ptr));
    let used = note.clone();
    mock.expect_memset_d32().returning(move |span, _, _| used(span.ptr));
    let used = note.clone();
    mock.expect_memcpy_batch()
        .returning(move |copies, _, _, _| used(copies[0].destination).and(used(copies[0].source)));
    let used = note.clone();
    mock.expect_host_touch().returning(move |touch| used(touch.span.ptr).map(|()| 0));
    let used = note.clone();
    mock.expect_device_touch().returning(move |touch, _| used(touch.span.ptr).map(|()| 0));
    let used = note.clone();
    mock.expect_kernel_accesses()
        .returning(move |kernel, _| used(kernel.walks[0].places[0].span.ptr));
    let used = note.clone();
    mock.expect_discard_batch().returning(move |spans, _, _| used(spans[0].ptr));
    let used = note.clone();
    mock.expect_discard_prefetch_batch().returning(move |spans, _, _, _, _| used(spans[0].ptr));
    let used = note.clone();
    mock.expect_stream_attach().returning(move |_, span, _| used(span.ptr));
    let used = note.clone();
    mock.expect_host_unregister().returning(used);
    mock.expect_ipc_close_mem_handle().returning(note);
    permit_free(&mut mock);
    (mock, asked)
}

fn uses(buf: u32, offset: u64, bytes: u64) -> [String; 11] {
    let part = format!(r#""buf":{buf},"offset":{offset},"bytes":{bytes}"#);
    let range = format!("[{buf},{offset},{bytes}]");
    let place = r#""locations":[{"kind":"host"}],"location_starts":[0]"#;
    let stream = r#""flags":0,"stream":"stream""#;
    let device = r#""device":0,"blocks":1,"threads":1"#;
    let ends =
        format!(r#""dst_buf":{buf},"dst_offset":{offset},"src_buf":{buf},"src_offset":{offset}"#);
    let touch = r#""stride":1,"access":"read","code":0"#;
    [
        format!(r#"{{"op":"memset",{part},"value":1,"code":0}}"#),
        format!(r#"{{"op":"memcpy",{ends},"bytes":{bytes},"code":0}}"#),
        format!(r#"{{"op":"memset_d16",{part},"value":1,"code":0}}"#),
        format!(r#"{{"op":"memset_d32",{part},"value":1,"code":0}}"#),
        format!(
            r#"{{"op":"memcpy_batch","copies":[[{buf},{offset},{buf},{offset},{bytes}]],"attribute_sets":[{{"order":1}}],"attribute_starts":[0],"stream":"stream","code":0}}"#
        ),
        format!(r#"{{"op":"host_touch",{part},{touch},"sum":0}}"#),
        format!(r#"{{"op":"device_touch",{device},{part},{touch}}}"#),
        format!(
            r#"{{"op":"kernel_accesses",{device},"walks":[{{"access":"store","ranges":[[{buf},{offset},{bytes},1]]}}],"code":0}}"#
        ),
        format!(r#"{{"op":"discard_batch","ranges":[{range}],{stream},"code":0}}"#),
        format!(
            r#"{{"op":"discard_prefetch_batch","ranges":[{range}],{place},{stream},"code":0}}"#
        ),
        format!(r#"{{"op":"stream_attach",{part},{stream},"code":0}}"#),
    ]
}

fn asked_by(ops: &[String]) -> Vec<DevicePtr> {
    let (mock, asked) = watched();
    let all: Vec<&str> = [ALLOC].into_iter().chain(ops.iter().map(String::as_str)).collect();
    let cases = read(with_ops(&all).as_bytes()).expect("valid");
    let _ = replay_case(&mock, &cases[0], |_, _| {});
    let asked = asked.lock().expect("unpoisoned");
    asked.clone()
}

#[test]
fn calls_that_use_contents_get_memory_of_the_case_or_the_null_address() {
    assert_eq!(asked_by(&uses(0, 4096, 4096)), [START.offset(4096); 13]);
    for (buf, offset, bytes) in [(0, 4096, 4097), (0, 1 << 30, 1), (99, 1 << 30, 1)] {
        let asked = asked_by(&uses(buf, offset, bytes));
        assert_eq!(asked, [DevicePtr::NULL; 13], "{buf} + {offset}, {bytes} bytes");
    }
}

#[test]
fn what_others_registered_or_opened_stays_so() {
    let ops = [
        r#"{"op":"host_unregister","buf":99,"offset":1073741824,"code":713}"#,
        r#"{"op":"ipc_close_mem_handle","buf":99,"offset":1073741824,"code":1}"#,
    ];
    assert_eq!(asked_by(&ops.map(String::from)), [DevicePtr::NULL]);
}

#[test]
fn a_case_destroys_no_pool_that_it_did_not_make() {
    let (mut mock, _) = watched();
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock compares handles
    // and dereferences none.
    mock.expect_pool_current().returning(|_, _| Ok(unsafe { PoolHandle::from_raw(0x99) }));
    mock.expect_pool_destroy().times(1).returning(|pool| {
        assert_eq!(pool, PoolHandle::NULL, "that is somebody else's");
        Err(Error::from_code("pool_destroy", Code::INVALID_VALUE))
    });
    let ops = [
        r#"{"op":"pool_get_current","pool":0,"location":{"kind":"device","id":0},"alloc_type":"managed","same_as":[],"code":0}"#,
        r#"{"op":"pool_destroy","pool":0,"code":1}"#,
    ];
    let cases = read(with_ops(&ops).as_bytes()).expect("valid");
    let codes = replay_case(&mock, &cases[0], |_, _| {}).observed.into_iter().map(|seen| seen.code);
    assert_eq!(codes.collect::<Vec<_>>(), [0, Code::INVALID_VALUE]);
}
