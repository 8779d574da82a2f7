//! The limits of a recording, its file, and the caller's view of a recorder.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use pagewise_hal::mock::{MockBackend, permit_machine};
use pagewise_hal::{
    AllocationType, AttachFlags, Backend, Capabilities, Code, DevicePtr, DriverVersion, Error,
    EventsSince, FaultAccess, HandleTypes, Location, MemoryEvent, PoolHandle, PoolProps, Span,
    StreamHandle,
};
use pagewise_trace::format::{Case, Header};
use pagewise_trace::reader::{MAX_CASE_OPS, TraceReader};
use pagewise_trace::record::Recorder;

use crate::common::HEADER;

const MS: u64 = 1_000_000;

fn header() -> Header {
    TraceReader::new("header", HEADER.as_bytes()).expect("valid").header().clone()
}

/// A mock with time to sleep, and one buffer.
fn mock() -> MockBackend {
    let mut mock = MockBackend::new();
    mock.expect_sleep_ns().returning(|_| ());
    mock.expect_alloc_managed().returning(|_, _| Ok(DevicePtr(0x20_0000)));
    mock
}

fn sleeper() -> MockBackend {
    let mut mock = mock();
    permit_machine(&mut mock);
    mock
}

fn recorded_in(path: &Path) -> Vec<Case> {
    let mut reader = TraceReader::open(path).expect("a trace");
    std::iter::from_fn(|| reader.next_case().expect("valid")).collect()
}

fn free(recorder: &Recorder<MockBackend>, ptr: DevicePtr) {
    // SAFETY: `free` asks that no other code uses the allocation; a mock's address has no memory
    // behind it.
    unsafe { recorder.free(ptr).expect("the mock frees") };
}

#[test]
fn a_long_case_of_a_file_ends_when_nothing_lives_and_another_one_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.jsonl.zst");
    let recorder = Recorder::to_file(sleeper(), &path, &header()).expect("writable");
    let ptr = recorder.alloc_managed(4096, AttachFlags::GLOBAL).expect("the mock gives memory");
    (0..12_000).for_each(|_| recorder.sleep_ns(MS));
    free(&recorder, ptr);
    (0..10_005).for_each(|_| recorder.sleep_ns(MS));
    let written = recorder.finish().expect("writable");
    assert_eq!((written.cases, written.ops, written.left_out), (3, 22_007, 0));
    let cases: Vec<_> = recorded_in(&path).into_iter().map(|c| (c.name, c.ops.len())).collect();
    let expected = [("part 1", 12_002), ("part 2", 10_000), ("part 3", 5)];
    assert_eq!(cases, expected.map(|(name, ops)| (name.to_owned(), ops)));
    assert!(recorder.finish().is_err(), "it has ended");
}

#[test]
fn a_case_has_no_more_operations_than_a_reader_takes_and_later_calls_are_left_out() {
    let recorder = Recorder::new(sleeper());
    let ptr = recorder.alloc_managed(4096, AttachFlags::GLOBAL).expect("the mock gives memory");
    (1..MAX_CASE_OPS).for_each(|_| recorder.sleep_ns(MS));
    assert_eq!(recorder.left_out(), 0);
    recorder.sleep_ns(MS);
    free(&recorder, ptr);
    assert_eq!(recorder.left_out(), 2);
    assert_eq!(recorder.take_case("full").ops.len(), MAX_CASE_OPS);
    recorder.sleep_ns(MS);
    assert_eq!(recorder.take_case("next").ops.len(), 1);
    assert_eq!(recorder.left_out(), 2);
}

#[test]
fn records_that_no_line_holds_are_left_out_and_their_operation_is_not() {
    let mut mock = mock();
    let mut capabilities = Capabilities::of_driver("mock", DriverVersion::CUDA_13_0);
    capabilities.events = true;
    mock.expect_capabilities().returning(move || capabilities.clone());
    let asked = AtomicU64::new(0);
    mock.expect_events_since().returning(move |_| {
        let fault = MemoryEvent::CpuFault { address: 0x20_0000, access: FaultAccess::Read };
        // The second time an operation has just ended.
        let count = if asked.fetch_add(1, Ordering::Relaxed) == 1 { 150_000 } else { 1 };
        let mut seen = EventsSince::default();
        seen.events = vec![fault; count];
        Ok(seen)
    });
    permit_machine(&mut mock);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.jsonl");
    let recorder = Recorder::to_file(mock, &path, &header()).expect("writable");
    recorder.alloc_managed(4096, AttachFlags::GLOBAL).expect("the mock gives memory");
    recorder.sleep_ns(MS);
    assert_eq!(recorder.finish().expect("writable").left_out, 1);
    let cases = recorded_in(&path);
    let observed: Vec<_> = cases[0].ops.iter().map(|line| &line.recorded.observed).collect();
    assert_eq!((observed[0].events.len(), observed[1].events.len()), (0, 1));
    assert!(observed[0].is_unstable("events") && !observed[1].is_unstable("events"));
}

#[test]
fn a_call_that_was_made_stays_made_if_the_wait_after_it_fails() {
    let mut mock = mock();
    let pool = PoolHandle::checked(7);
    mock.expect_pool_create().returning(move |_| Ok(pool));
    mock.expect_pool_alloc().returning(|_, _, _| Ok(DevicePtr(0x400_0000)));
    mock.expect_discard_batch().returning(|_, _, _| Ok(()));
    let lost = || Error::from_code("stream_synchronize", 719);
    mock.expect_stream_synchronize().returning(move |_| Err(lost()));
    permit_machine(&mut mock);
    let recorder = Recorder::new(mock);
    let stream = StreamHandle::PER_THREAD;
    let props = PoolProps {
        allocation_type: AllocationType::MANAGED,
        location: Location::HOST,
        handle_types: HandleTypes::empty(),
        max_bytes: 0,
    };
    recorder.pool_create(props).expect("the mock makes pools");
    let ptr = recorder.pool_alloc(pool, 4096, stream).expect("the memory is not lost");
    // SAFETY: a discard asks that no code uses the range, a free that no work uses it later; a
    // mock's address has no memory behind it.
    unsafe {
        let span = Span::new(ptr, 4096);
        recorder.discard_batch(&[span], 0, stream).expect("the contents are gone");
        recorder.free_async(ptr, stream).expect("it is not to be freed again");
    }
    let case = recorder.take_case("waits");
    let codes: Vec<_> = case.ops.iter().map(|line| line.recorded.observed.code).collect();
    assert_eq!(codes, [Code::SUCCESS, 719, 719, 719], "the trace says what the wait said");
}

#[test]
fn a_recorder_that_is_dropped_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.jsonl");
    drop(Recorder::to_file(sleeper(), &path, &header()).expect("writable"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
}
