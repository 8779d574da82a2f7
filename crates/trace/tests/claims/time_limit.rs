//! A file that takes too long is stopped at the right line, and the operations before it count.
//!
//! Wall time comes from a clock of the tests, so no test waits.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pagewise_hal::mock::MockBackend;
use pagewise_hal::{Capabilities, DevicePtr, DriverVersion, Result};
use pagewise_trace::error::{Reason, TraceError};
use pagewise_trace::format::Header;
use pagewise_trace::limits::WorkLimits;
use pagewise_trace::reader::TraceReader;
use pagewise_trace::record::{Pass, record_within};
use pagewise_trace::replay::replay_within;
use pagewise_trace::run::{Clock, Input, Options, Session, Target, run_on};
use pagewise_trace::time_limit::{TimeLimit, WallClock};

use crate::common::{HEADER, read, with_ops};

/// Milliseconds of wall time, which pass when a test says so.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn pass(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }

    fn clock(&self) -> WallClock {
        let Self(ms) = self.clone();
        WallClock::from_fn(move || Duration::from_millis(ms.load(Ordering::Relaxed)))
    }
}

fn seconds(limit: u64) -> WorkLimits {
    WorkLimits { time: Duration::from_secs(limit), ..WorkLimits::default() }
}

fn sleep(ms: u64) -> String {
    format!(r#"{{"op":"sleep","ms":{ms},"code":0}}"#)
}

fn case(name: &str, ops: &[String]) -> String {
    format!("{{\"case\":\"{name}\"}}\n{}\n", ops.join("\n"))
}

/// A back end on which sleeping takes wall time, and what its caller freed.
fn slow_sleeper(hand: &Hand, freed: &Arc<AtomicU64>) -> MockBackend {
    let capabilities = Capabilities::of_driver("mock", DriverVersion::CUDA_13_0);
    let mut mock = MockBackend::new();
    mock.expect_capabilities().returning(move || capabilities.clone());
    mock.expect_device_count().returning(|| Ok(1));
    mock.expect_clock_ns().returning(|| 0);
    mock.expect_alloc_managed().returning(|_, _| Ok(DevicePtr(4 << 20)));
    let hand = hand.clone();
    mock.expect_sleep_ns().returning(move |ns| hand.pass(ns / 1_000_000));
    mock.expect_pool_trim().returning(|_, _| Ok(()));
    let freed = Arc::clone(freed);
    mock.expect_free().returning(move |_| {
        freed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    mock
}

/// Opens such back ends and counts them.
#[derive(Default)]
struct Sleepers {
    hand: Hand,
    opened: AtomicU64,
    paces: Arc<Mutex<u64>>,
}

impl Target for Sleepers {
    fn open(&self, _: &Header) -> Result<Session> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let backend = Arc::new(slow_sleeper(&self.hand, &Arc::default()));
        let paces = Arc::clone(&self.paces);
        let pace = Box::new(move |_| *paces.lock().expect("unpoisoned") += 1);
        Ok(Session { backend, pace: Some(pace) })
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

/// Gives one line at a time, each of which takes a second to come.
struct SlowLines<'a> {
    text: &'a [u8],
    hand: Hand,
}

impl Read for SlowLines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let line = self.text.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let most = line.min(buffer.len());
        let read = (&self.text[..most]).read(buffer)?;
        self.text = &self.text[read..];
        self.hand.pass(if read == line { 1000 } else { 0 });
        Ok(read)
    }
}

fn next_error(mut reader: TraceReader<'_>) -> TraceError {
    loop {
        match reader.next_case() {
            Ok(case) => assert!(case.is_some(), "the file was read to its end"),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_file_that_comes_slowly_is_refused_at_the_line_where_its_time_is_over() {
    let hand = Hand::default();
    let text = with_ops(&[r#"{"op":"sleep","ms":0,"code":0}"#; 100]);
    let lines = SlowLines { text: text.as_bytes(), hand: hand.clone() };
    let reader = TraceReader::new("slow", lines).expect("a header");
    // Time counts from the second line on: line 12 comes after 11 s.
    let error = next_error(reader.limited_on(seconds(10), 1, &hand.clock()));
    assert_eq!(error.line(), Some(12), "{error}");
    let said = error.to_string();
    assert!(said.starts_with("slow:12: too much time: up to this line the file takes 11.0 s and"));
    assert!(said.contains("10 s are allowed") && said.contains("--max-seconds"), "{said}");
}

#[test]
fn what_a_caller_does_between_two_cases_is_not_the_files_time() {
    let hand = Hand::default();
    let text = format!("{HEADER}\n{}", "{\"case\":\"x\"}\n".repeat(5));
    let reader = TraceReader::new("tiny", text.as_bytes()).expect("a header");
    let mut reader = reader.limited_on(seconds(1), 1, &hand.clock());
    while reader.next_case().expect("in time").is_some() {
        hand.pass(60_000);
    }
}

#[test]
fn a_case_stops_before_the_operation_at_which_its_time_is_over() {
    let (hand, freed) = (Hand::default(), Arc::default());
    let alloc = r#"{"op":"alloc_managed","buf":0,"bytes":4096,"attach_flags":1,"code":0}"#;
    let naps = vec![sleep(400); 10];
    let ops: Vec<&str> = [alloc].into_iter().chain(naps.iter().map(String::as_str)).collect();
    let cases = read(with_ops(&ops).as_bytes()).expect("valid");
    let mock = slow_sleeper(&hand, &freed);
    let time = || TimeLimit::new(Duration::from_secs(1), &hand.clock());
    // Lines 4, 5 and 6 sleep; at line 7, 1.2 s are over.
    let (line, reason) = replay_within(&mock, &cases[0], &time(), |_, _| {}).expect_err("late");
    assert!(line == 7 && matches!(reason, Reason::TooMuchTime { at: "sleep", .. }), "{line}");
    assert_eq!(freed.load(Ordering::Relaxed), 1, "nothing stays allocated");
    let recorded = record_within(&mock, &cases[0], Pass::Observed, &time());
    let (line, reason) = recorded.expect_err("late");
    assert!(line == 7 && matches!(reason, Reason::TooMuchTime { at: "sleep", .. }), "{line}");
    assert_eq!(freed.load(Ordering::Relaxed), 2, "nothing stays allocated");
}

#[test]
fn what_was_compared_before_the_time_was_over_is_in_the_report() {
    let target = Sleepers::default();
    let short = || [sleep(300), sleep(300)];
    let text = format!("{HEADER}\n{}{}", case("a", &short()), case("b", &short()));
    let text = format!("{text}{}{}", case("c", &short()), case("d", &short()));
    let options = Options { limits: seconds(1), ..Options::default() };
    let inputs = vec![Input::bytes("long", text.as_bytes())];
    let report = run_on(inputs, &target, options, &target.hand.clock(), &|| ());
    let file = &report.traces[0];
    // Case a takes 0.6 s; b is in its second nap when the time is over, so all of it counts.
    assert_eq!((file.cases, file.ops, file.ok()), (2, 4, false));
    let error = file.error.as_deref().expect("it stopped");
    assert!(error.starts_with("long:9: too much time: up to this line"), "{error}");
    assert_eq!(target.opened.into_inner(), 2, "no case begins without time");
    assert!((report.wall_s - 1.2).abs() < 1e-9, "{}", report.wall_s);
}

#[test]
fn files_have_their_time_each_for_themselves() {
    let target = Sleepers::default();
    let text = format!("{HEADER}\n{}", case("a", &[sleep(900)]));
    let inputs = ["a", "b", "c"].map(|name| Input::bytes(name, text.as_bytes())).into();
    let options = Options { limits: seconds(1), ..Options::default() };
    let report = run_on(inputs, &target, options, &target.hand.clock(), &|| ());
    assert!(report.ok, "{:?}", report.traces[2].error);
}

#[test]
fn cases_that_share_a_back_end_stop_too() {
    let target = Sleepers::default();
    let ops = [sleep(400), r#"{"op":"pool_trim_to","pool":0,"bytes":0,"code":0}"#.to_owned()];
    let text = format!("{HEADER}\n{}", case("a", &ops).repeat(5));
    let options = Options { limits: seconds(1), ..Options::default() };
    let inputs = vec![Input::bytes("pools", text.as_bytes())];
    let report = run_on(inputs, &target, options, &target.hand.clock(), &|| ());
    let error = report.traces[0].error.as_deref().expect("it stopped");
    // The third case, of lines 8 to 10, has slept when 1.2 s are over.
    assert!(error.starts_with("pools:10: too much time: up to this pool_trim_to"), "{error}");
    assert_eq!(report.traces[0].cases, 2);
}

#[test]
fn a_case_that_disagrees_counts_even_if_no_time_is_left_to_ask_why() {
    let target = Sleepers::default();
    // Two replays are made of a case that disagrees, and then one at each of 189 paces.
    let wrong = r#"{"op":"sleep","ms":100,"code":1,"ns_profiled":3}"#.to_owned();
    let text = format!("{HEADER}\n{}", case("a", &[wrong]));
    let options = Options { limits: seconds(1), clock: Clock::Auto, ..Options::default() };
    let inputs = vec![Input::bytes("wrong", text.as_bytes())];
    let report = run_on(inputs, &target, options, &target.hand.clock(), &|| ());
    let file = &report.traces[0];
    assert!(file.error.as_deref().is_some_and(|error| error.starts_with("wrong:3: too much time")));
    assert_eq!((file.cases, file.contract.checked, file.contract.agree), (1, 1, 0));
    assert!(*target.paces.lock().expect("unpoisoned") < 15, "the paces were tried on");
}

#[test]
fn a_sleep_longer_than_the_whole_time_is_refused_before_it_begins() {
    let hand = Hand::default();
    let text = with_ops(&[&sleep(1000), &sleep(2001)]);
    let reader = || TraceReader::new("tiny", text.as_bytes()).expect("a header");
    let error = next_error(reader().limited_on(seconds(2), 1, &hand.clock()));
    assert!(error.to_string().starts_with("tiny:4: too much time: up to this sleep"), "{error}");
    let mut looked_at = reader().limited_on(seconds(2), 0, &hand.clock());
    assert!(looked_at.next_case().is_ok(), "nobody carries it out");
}
