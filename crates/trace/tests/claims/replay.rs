//! Replaying a case, seen from the back end's side, and comparing its results.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pagewise_hal::mock::MockBackend;
use pagewise_hal::{
    AttachFlags, Backend, Capabilities, Code, CopyCause, DevicePtr, DriverVersion, Error,
    EventsSince, MemoryEvent, PageRun, PoolHandle, Processor, Result, StreamHandle,
};
use pagewise_trace::compare::compare_case;
use pagewise_trace::format::{Case, Header, Observed};
use pagewise_trace::record::{Pass, Recorder, record_case};
use pagewise_trace::replay::{CaseReplay, Moment, replay_case};
use pagewise_trace::report::{Level, TraceReport};
use pagewise_trace::run::{Clock, Input, Options, Session, Target, run};

use crate::common::{HEADER, read, with_ops};

/// A mock with a clock, one device and buffers 4 MiB apart that live until they are freed.
fn mock() -> MockBackend {
    let mut capabilities = Capabilities::of_driver("mock", DriverVersion::CUDA_13_0);
    capabilities.events = true;
    capabilities.host_page_map = true;
    let mut mock = MockBackend::new();
    mock.expect_capabilities().returning(move || capabilities.clone());
    mock.expect_device_count().returning(|| Ok(1));
    let clock = AtomicU64::new(0);
    mock.expect_clock_ns().returning(move || clock.fetch_add(7, Ordering::Relaxed));
    let next = AtomicU64::new(4 << 20);
    mock.expect_alloc_managed().returning(move |bytes, _| match bytes {
        0 => Err(Error::from_code("alloc_managed", Code::INVALID_VALUE)),
        _ => Ok(DevicePtr(next.fetch_add(4 << 20, Ordering::Relaxed))),
    });
    mock.expect_host_page_map().returning(|span| {
        let pages = span.bytes.div_ceil(4096);
        // Split where nothing changes, and longer than the buffer: both must be put right.
        Ok(vec![PageRun { pages: 1, mapped: true }, PageRun { pages: pages + 3, mapped: true }])
    });
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock compares handles
    // and dereferences none.
    mock.expect_stream_create().returning(|_, _| Ok(unsafe { StreamHandle::from_raw(0x57) }));
    mock
}

/// Lets everything else of a simple case pass.
fn permit(mock: &mut MockBackend) {
    mock.expect_take_events().returning(|| Ok(Vec::new()));
    mock.expect_events_since().returning(|_| Ok(EventsSince::default()));
    mock.expect_stream_destroy().returning(|_| Ok(()));
    pagewise_hal::mock::permit_free(mock);
}

fn replay(mock: &MockBackend, ops: &[&str]) -> CaseReplay {
    let cases = read(with_ops(ops).as_bytes()).expect("valid");
    replay_case(mock, &cases[0], |_, _| {})
}

const ALLOC: &str = r#"{"op":"alloc_managed","buf":0,"bytes":8192,"attach_flags":1,"code":0}"#;
const PREFETCH: &str = r#"{"op":"prefetch","abi":1,"buf":0,"offset":4096,"bytes":4096,"location":{"ordinal":0},"code":0}"#;

#[test]
fn an_id_that_is_not_live_stands_for_the_offset() {
    let mut mock = mock();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    mock.expect_prefetch_ordinal().returning(move |span, _, stream| {
        log.lock().expect("unpoisoned").push((span.ptr.0, stream.as_raw()));
        Ok(())
    });
    permit(&mut mock);
    let free = r#"{"op":"free","buf":0,"code":0}"#;
    replay(&mock, &[PREFETCH, ALLOC, PREFETCH, free, PREFETCH]);
    let seen = seen.lock().expect("unpoisoned").clone();
    assert_eq!(seen, [(4096, 0x57), ((4 << 20) + 4096, 0x57), (4096, 0x57)]);
}

#[test]
fn the_code_is_the_first_failure_of_call_and_synchronisation() {
    let mut mock = mock();
    let refuse = |code| move |_, _, _| Err(Error::from_code("prefetch", code));
    mock.expect_prefetch_ordinal().times(1).returning(|_, _, _| Ok(()));
    mock.expect_prefetch_ordinal().times(1).returning(refuse(Code::INVALID_DEVICE));
    mock.expect_stream_synchronize()
        .times(2)
        .returning(|_| Err(Error::from_code("stream_synchronize", Code::ILLEGAL_ADDRESS)));
    permit(&mut mock);
    let codes: Vec<_> = replay(&mock, &[PREFETCH, PREFETCH])
        .observed
        .iter()
        .map(|observed| observed.code)
        .collect();
    assert_eq!(codes, [Code::ILLEGAL_ADDRESS, Code::INVALID_DEVICE]);
}

#[test]
fn everything_live_is_freed_once_at_the_end_by_the_synchronous_free() {
    let mut mock = mock();
    mock.expect_pool_alloc().returning(|_, bytes, _| {
        Ok(if bytes == 0 { DevicePtr::NULL } else { DevicePtr(0x9000_0000) })
    });
    let freed = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&freed);
    mock.expect_free().returning(move |ptr| {
        log.lock().expect("unpoisoned").push(ptr.0);
        Ok(())
    });
    mock.expect_stream_destroy().times(1).returning(|_| Ok(()));
    mock.expect_stream_synchronize().returning(|_| Ok(()));
    mock.expect_take_events().returning(|| Ok(Vec::new()));
    let pool = |buf: u32, bytes: u64| {
        format!(r#"{{"op":"pool_alloc","buf":{buf},"pool":0,"bytes":{bytes},"code":0}}"#)
    };
    let other = ALLOC.replace(r#""buf":0"#, r#""buf":1"#);
    let free = r#"{"op":"free","buf":0,"code":0}"#;
    replay(&mock, &[ALLOC, &other, &pool(2, 4096), &pool(3, 0), free]);
    assert_eq!(*freed.lock().expect("unpoisoned"), [4 << 20, 8 << 20, 0x9000_0000]);
}

#[test]
fn a_buffer_whose_free_failed_stays() {
    let mut mock = mock();
    let refuse = |_| Err(Error::from_code("free", Code::INVALID_VALUE));
    mock.expect_free().times(1).returning(refuse);
    mock.expect_free().times(1).withf(|ptr| ptr.0 == 4 << 20).returning(|_| Ok(()));
    mock.expect_take_events().returning(|| Ok(Vec::new()));
    let free = r#"{"op":"free","buf":0,"code":1}"#;
    let replayed = replay(&mock, &[ALLOC, free]);
    assert_eq!(replayed.observed[1].code, Code::INVALID_VALUE);
    assert_eq!(replayed.observed[1].host_mapped.len(), 1);
}

#[test]
fn events_are_named_after_the_buffers_alive_at_the_end() {
    let mut mock = mock();
    let rounds = AtomicU64::new(0);
    mock.expect_take_events().returning(move || {
        let copy = |address| MemoryEvent::Copy {
            address,
            bytes: 4096,
            from: Processor::HOST,
            to: Processor::device(0),
            cause: CopyCause::User,
            duration_ns: 5,
        };
        Ok(match rounds.fetch_add(1, Ordering::Relaxed) {
            // What an earlier case left: dropped.
            0 => vec![copy(1)],
            // After the first allocation: about it, and about a buffer that comes later.
            1 => vec![copy((4 << 20) + 4096), copy(8 << 20), copy((12 << 20) + 5)],
            _ => Vec::new(),
        })
    });
    permit(&mut mock);
    let other = ALLOC.replace(r#""buf":0"#, r#""buf":1"#);
    let replayed = replay(&mock, &[ALLOC, &other, r#"{"op":"free","buf":0,"code":0}"#]);
    let named: Vec<_> =
        replayed.observed[0].events.iter().map(|event| (event.buf, event.offset)).collect();
    assert_eq!(named, [(-1, 4096), (1, 0), (-1, 5)]);
    assert_eq!(replayed.observed[0].events[0].kind.as_str(), "copy_h2d");
}

#[test]
fn page_maps_have_the_buffers_length_and_joined_runs() {
    let mut mock = mock();
    permit(&mut mock);
    let large = r#"{"op":"alloc_managed","buf":1,"bytes":16777217,"attach_flags":1,"code":0}"#;
    let replayed = replay(&mock, &[ALLOC, large]);
    let maps: BTreeMap<_, _> =
        replayed.observed[1].host_mapped.iter().map(|(buf, map)| (*buf, map.to_string())).collect();
    assert_eq!(maps, BTreeMap::from([(0, "2H".to_owned())]), "and none above 16 MiB");
}

#[test]
fn pools_with_the_same_handle_are_named_and_unknown_pools_are_null() {
    let mut mock = mock();
    // SAFETY: `from_raw` asks for a handle that the back end can take; the mock compares handles
    // and dereferences none.
    mock.expect_pool_default().returning(|_, _| Ok(unsafe { PoolHandle::from_raw(0x99) }));
    mock.expect_pool_access().returning(|pool, _| {
        assert_eq!(pool, PoolHandle::NULL);
        Err(Error::from_code("pool_access", Code::INVALID_VALUE))
    });
    permit(&mut mock);
    let get = |pool: u32| {
        let rest = r#""location":{"kind":"host"},"alloc_type":"pinned","code":0,"same_as":[]"#;
        format!(r#"{{"op":"pool_get_default","pool":{pool},{rest}}}"#)
    };
    let access = r#"{"op":"pool_get_access","pool":7,"location":{"kind":"host"},"code":1,"access_flags":99}"#;
    let replayed = replay(&mock, &[&get(3), &get(5), access]);
    assert_eq!(replayed.observed[0].same_as, Some(vec![]));
    assert_eq!(replayed.observed[1].same_as, Some(vec![3]));
    assert_eq!(replayed.observed[2].access_flags, Some(99));
}

#[test]
fn a_replay_is_watched_before_and_after_each_operation() {
    let mut mock = mock();
    permit(&mut mock);
    let cases = read(with_ops(&[ALLOC, r#"{"op":"free","buf":0,"code":0}"#]).as_bytes());
    let mut seen = Vec::new();
    replay_case(&mock, &cases.expect("valid")[0], |moment, line| seen.push((moment, line.line)));
    let (before, after) = (Moment::Before, Moment::After);
    assert_eq!(seen, [(before, 3), (after, 3), (before, 4), (after, 4)]);
}

// ---- comparing --------------------------------------------------------------------------------

/// Compares recorded lines with what other lines would have shown.
fn compare(recorded: &[&str], got: &[&str]) -> TraceReport {
    let case = read(with_ops(recorded).as_bytes()).expect("valid").remove(0);
    let got = read(with_ops(got).as_bytes()).expect("valid").remove(0);
    let observed: Vec<Observed> = got.ops.into_iter().map(|line| line.recorded.observed).collect();
    let replay = CaseReplay { observed, elapsed_ns: 0, has_events: true, has_host_mapped: true };
    compare_case(&case, &replay, true).report("x".to_owned(), Some(&header()), None, None)
}

fn header() -> Header {
    let text = format!("{HEADER}\n");
    let reader = pagewise_trace::reader::TraceReader::new("x", text.as_bytes());
    reader.expect("a header").header().clone()
}

const FAULT: &str = r#"["gpu_fault",1,0,0,0,0,"read",9]"#;

fn touch(threads: u32, more: &str) -> String {
    let part = r#""device":0,"buf":0,"offset":0,"bytes":1,"stride":1,"access":"read","blocks":1"#;
    format!(r#"{{"op":"device_touch",{part},"threads":{threads},"code":0{more}}}"#)
}

#[test]
fn only_the_fields_that_differ_are_shown() {
    let recorded = r#"{"op":"range_attributes","buf":0,"offset":0,"bytes":1,"code":0,"attributes":{"read_mostly":[0,1],"accessed_by":[0,[-1]]}}"#;
    let report = compare(&[recorded], &[&recorded.replace("[-1]", "[0]")]);
    let first = report.first_divergence.as_ref().expect("a divergence");
    assert_eq!((first.case.as_str(), first.line, first.level), ("one", 3, Level::Contract));
    assert_eq!(first.expected.to_string(), r#"{"attributes":{"accessed_by":[0,[-1]]}}"#);
    assert_eq!(first.got.to_string(), r#"{"attributes":{"accessed_by":[0,[0]]}}"#);
    assert_eq!((report.range_attributes.checked, report.range_attributes.agree), (1, 0));
    assert!(!report.ok());
}

#[test]
fn what_was_recorded_as_null_or_not_at_all_is_not_compared() {
    let recorded = r#"{"op":"pointer_attributes","buf":0,"offset":0,"code":0,"attributes":{"offset_from_range_start":[0,null]}}"#;
    let got = recorded.replace("null", "12").replace(r#""code":0"#, r#""code":0,"sum":3"#);
    assert!(compare(&[recorded], &[&got]).ok());
    assert!(!compare(&[recorded], &[&got.replace("[0,12]", "[1,null]")]).ok());
}

#[test]
fn buffers_that_the_recording_does_not_list_are_not_compared() {
    let recorded = r#"{"op":"sleep","ms":1,"code":0,"host_mapped":{"0":"1H"}}"#;
    let got = r#"{"op":"sleep","ms":1,"code":0,"host_mapped":{"0":"1H","5":"9."}}"#;
    assert!(compare(&[recorded], &[got]).ok());
    let report = compare(&[got], &[recorded]);
    assert_eq!(report.first_divergence.as_ref().expect("a divergence").level, Level::Pages);
}

#[test]
fn events_are_compared_as_multisets_without_their_durations() {
    let other = r#"["cpu_fault",0,0,0,-1,-1,"read",0]"#;
    let recorded = touch(1, &format!(r#","events":[{FAULT},{other},{FAULT}]"#));
    let moved = FAULT.replace(",9]", ",1]");
    assert!(
        compare(&[&recorded], &[&touch(1, &format!(r#","events":[{other},{moved},{FAULT}]"#))])
            .ok()
    );
    let fewer = compare(&[&recorded], &[&touch(1, &format!(r#","events":[{other},{FAULT}]"#))]);
    let first = fewer.first_divergence.as_ref().expect("a divergence");
    assert_eq!(first.level, Level::Events);
    assert_eq!(first.expected.to_string(), r#"{"events":[["gpu_fault",1,0,0,0,0,"read"]]}"#);
    assert_eq!(first.got.to_string(), r#"{"events":[]}"#);
}

#[test]
fn a_field_marked_unstable_is_not_compared() {
    let events = format!(r#","events":[{FAULT}],"host_mapped":{{"0":"1H"}}"#);
    let recorded = touch(1, &format!(r#"{events},"unstable":["events","host_mapped"]"#));
    let report = compare(&[&recorded], &[&touch(1, "")]);
    assert!(report.ok());
    assert_eq!((report.events.checked, report.pages.checked), (0, 0));
}

#[test]
fn a_parallel_family_is_compared_in_total() {
    let faults =
        |count: usize| touch(32, &format!(r#","events":[{}]"#, vec![FAULT; count].join(",")));
    let report = compare(&[&faults(20)], &[&faults(21)]);
    assert_eq!(report.events.checked, 0);
    let aggregate = report.aggregate.expect("parallel");
    assert_eq!(aggregate.gpu_fault_ratio, Some(1.05));
    assert_eq!((aggregate.h2d_bytes_ratio, aggregate.host_mapped_agree), (Some(1.0), true));
    assert!(report.ok());

    let report = compare(&[&faults(20)], &[&faults(30)]);
    assert!(!report.ok(), "more than 10 % off");
    assert_eq!(report.first_divergence.expect("a divergence").level, Level::Aggregate);
}

#[test]
fn a_parallel_kernel_among_serial_ones_is_compared_like_them() {
    let serial = touch(1, "");
    let report = compare(
        &[&serial, &touch(32, "")],
        &[&serial, &touch(32, &format!(r#","events":[{FAULT}]"#))],
    );
    assert_eq!((report.events.checked, report.events.agree), (2, 1));
    assert!(report.aggregate.is_none());
}

#[test]
fn times_without_a_prediction_give_no_figures() {
    let timed = |median: u64| {
        format!(r#"{{"op":"free","buf":9,"code":0,"ns":{{"min":1,"median":{median},"max":9}}}}"#)
    };
    let none = compare(&[&timed(100)], &[&timed(0)]);
    assert_eq!(
        (none.time.checked, none.time.median_abs_log2, none.time.total_ratio),
        (0, None, None)
    );
    let json = serde_json::to_string(&none).expect("JSON");
    assert!(json.contains(r#""time":{"checked":0,"median_abs_log2":null"#), "{json}");
    let half = compare(&[&timed(100), &timed(100)], &[&timed(50), &timed(50)]);
    assert_eq!((half.time.checked, half.time.median_abs_log2), (2, Some(1.0)));
    assert_eq!((half.time.p90_abs_log2, half.time.total_ratio), (Some(1.0), Some(0.5)));
}

// ---- recordings -------------------------------------------------------------------------------

#[test]
fn recordings_with_everything_observed_say_when_each_operation_began() {
    let nap = r#"{"op":"sleep","ms":1,"code":0}"#;
    let cases = read(with_ops(&[ALLOC, nap, nap]).as_bytes()).expect("valid");
    let starts = |case: &Case| -> Vec<Option<u64>> {
        case.ops.iter().map(|line| line.recorded.observed.start_ns).collect()
    };
    let sleeper = || {
        let mut mock = mock();
        mock.expect_sleep_ns().returning(|_| ());
        permit(&mut mock);
        mock
    };
    let recorded = |pass| record_case(&sleeper(), &cases[0], pass).expect("a program");
    let observed = starts(&recorded(Pass::Observed));
    assert!(observed.iter().all(Option::is_some) && observed.is_sorted_by(|a, b| a < b));
    assert_eq!(starts(&recorded(Pass::Timed)), [None; 3], "timed runs are others");

    let recorder = Recorder::new(sleeper());
    for name in ["one", "two"] {
        recorder.alloc_managed(8192, AttachFlags::GLOBAL).expect("the mock gives memory");
        recorder.sleep_ns(1_000_000);
        let noted = starts(&recorder.take_case(name));
        assert!(noted[0] == Some(0) && noted[1] > noted[0], "case {name}: {noted:?}");
    }
}

// ---- many cases -------------------------------------------------------------------------------

/// Counts the back ends that it opens and what each was used for.
#[derive(Default)]
struct Counting {
    /// Whether its sessions may not be used at the same time.
    alone: bool,
    opened: AtomicU64,
    sleeps: Arc<Mutex<Vec<(u64, u64)>>>,
    paced: Arc<AtomicU64>,
}

impl Target for Counting {
    fn open(&self, _: &Header) -> Result<Session> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let mut mock = mock();
        let sleeps = Arc::clone(&self.sleeps);
        mock.expect_sleep_ns().returning(move |ns| {
            sleeps.lock().expect("unpoisoned").push((number, ns / 1_000_000));
        });
        mock.expect_pool_trim().returning(|_, _| Ok(()));
        permit(&mut mock);
        let paced = Arc::clone(&self.paced);
        let pace = Box::new(move |_| _ = paced.fetch_add(1, Ordering::Relaxed));
        Ok(Session { backend: Arc::new(mock), pace: Some(pace) })
    }

    fn is_concurrent(&self) -> bool {
        !self.alone
    }
}

fn sleeps(header: &str, cases: u64, pools: bool) -> String {
    let pool =
        if pools { "{\"op\":\"pool_trim_to\",\"pool\":0,\"bytes\":0,\"code\":0}\n" } else { "" };
    let case = |n| {
        format!(
            "{{\"case\":\"{n}\"}}\n{pool}{{\"op\":\"sleep\",\"ms\":{n},\"code\":0,\"ns_profiled\":3}}\n"
        )
    };
    format!("{header}\n") + &(0..cases).map(case).collect::<String>()
}

#[test]
fn each_case_has_a_back_end_of_its_own() {
    let target = Counting::default();
    let text = sleeps(HEADER, 50, false);
    let inputs = vec![Input::bytes("a", text.as_bytes()), Input::bytes("b", text.as_bytes())];
    let done = AtomicU64::new(0);
    let report =
        run(inputs, &target, Options::default(), &|| _ = done.fetch_add(1, Ordering::Relaxed));
    assert!(report.ok);
    assert_eq!(report.traces.iter().map(|trace| trace.cases).collect::<Vec<_>>(), [50, 50]);
    assert_eq!((target.opened.into_inner(), done.into_inner()), (100, 100));
}

#[test]
fn cases_with_pools_share_one_back_end_in_the_order_of_the_file() {
    let target = Counting::default();
    let text = sleeps(HEADER, 200, true);
    let report = run(vec![Input::bytes("a", text.as_bytes())], &target, Options::default(), &|| ());
    assert!(report.ok);
    assert_eq!(target.opened.into_inner(), 1);
    let seen = target.sleeps.lock().expect("unpoisoned").clone();
    assert_eq!(seen, (0..200).map(|ms| (0, ms)).collect::<Vec<_>>());
}

#[test]
fn cases_run_one_after_another_where_sessions_may_not_be_used_at_the_same_time() {
    let target = Counting { alone: true, ..Counting::default() };
    let text = sleeps(HEADER, 100, false);
    let here = std::thread::current().id();
    let elsewhere = AtomicU64::new(0);
    let count = || {
        _ = elsewhere.fetch_add(u64::from(std::thread::current().id() != here), Ordering::Relaxed)
    };
    let report = run(vec![Input::bytes("a", text.as_bytes())], &target, Options::default(), &count);
    assert!(report.ok);
    let seen = target.sleeps.lock().expect("unpoisoned").clone();
    assert_eq!(seen, (0..100).map(|ms| (ms, ms)).collect::<Vec<_>>());
    assert_eq!(elsewhere.into_inner(), 0);
}

#[test]
fn the_recording_is_the_clock_only_where_it_has_no_times_to_predict() {
    let untimed = HEADER.replace(r#""version":1"#, r#""version":1,"timed_runs":0"#);
    for (header, clock, paced) in [
        (HEADER, Clock::Auto, 0),
        (&untimed, Clock::Auto, 5),
        (&untimed, Clock::Model, 0),
        (HEADER, Clock::Recorded, 5),
    ] {
        let target = Counting::default();
        let text = sleeps(header, 5, false);
        let options = Options { clock, ..Options::default() };
        let report = run(vec![Input::bytes("a", text.as_bytes())], &target, options, &|| ());
        assert!(report.ok);
        assert_eq!(target.paced.load(Ordering::Relaxed), paced, "{clock:?}");
    }
}

#[test]
fn one_invalid_trace_does_not_stop_the_others() {
    let target = Counting::default();
    let good = sleeps(HEADER, 3, false);
    let bad = good.replace(r#"{"case":"2"}"#, "oops");
    let inputs = vec![Input::bytes("bad", bad.as_bytes()), Input::bytes("good", good.as_bytes())];
    let report = run(inputs, &target, Options::default(), &|| ());
    assert!(!report.ok);
    assert!(report.traces[0].error.as_ref().expect("an error").starts_with("bad:6: not JSON"));
    assert_eq!((report.traces[0].cases, report.traces[1].cases), (1, 3));
    assert!(report.traces[1].ok());
}

#[test]
#[should_panic(expected = "broken back end")]
fn a_panic_of_the_back_end_is_passed_on_without_hanging() {
    struct Broken;
    impl Target for Broken {
        fn open(&self, _: &Header) -> Result<Session> {
            panic!("broken back end")
        }

        fn is_concurrent(&self) -> bool {
            true
        }
    }
    let text = sleeps(HEADER, 100, true);
    _ = run(vec![Input::bytes("a", text.as_bytes())], &Broken, Options::default(), &|| ());
}
