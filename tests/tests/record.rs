//! What is recorded on a back end is what a replay on it finds again.

use std::path::PathBuf;

use pagewise::{DiscardedContents, DriverVersion, RangeReads, SimBackend, SimConfig};
use pagewise_trace::compare::{Levels, Tally, compare_case, compare_recordings};
use pagewise_trace::format::{Case, Header, Op};
use pagewise_trace::reader::TraceReader;
use pagewise_trace::record::{Pass, merge, record_case};
use pagewise_trace::replay::replay_case;
use pagewise_trace::report::TraceReport;

fn shipped(family: &str) -> TraceReader<'static> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/traces/h200-580");
    TraceReader::open(&folder.join(format!("{family}.jsonl.zst"))).expect("a recording")
}

fn simulator(header: &Header) -> SimBackend {
    let config = SimConfig::h200()
        .devices(header.recorded_on.gpus)
        .driver_version(DriverVersion(header.recorded_on.cuda_driver_version))
        .range_reads(RangeReads::Driver)
        .discarded_contents(DiscardedContents::Driver);
    SimBackend::new(config).expect("address space")
}

/// Records a shipped recording's program on the simulator and compares the two recordings.
fn recorded_again(family: &str) -> TraceReport {
    let mut reader = shipped(family);
    let header = reader.header().clone();
    let shared = simulator(&header);
    let mut tally = Tally::default();
    while let Some(case) = reader.next_case().expect("a case") {
        let fresh = simulator(&header);
        let backend = if case.uses_pools() { &shared } else { &fresh };
        let again = record_case(backend, &case, Pass::Observed).expect("a program");
        tally.merge(compare_recordings(&case, &again, Levels::ALL));
    }
    tally.report(family.to_owned(), Some(&header), None, None)
}

#[test]
fn programs_of_shipped_recordings_record_the_same_on_the_simulator() {
    let families = ["contract", "attrs", "migrate", "advise", "discard", "small", "pools"];
    for family in families.into_iter().chain(["two-gpu-peer", "two-gpu-attrs"]) {
        let report = recorded_again(family);
        assert!(report.contract.checked > 900, "{family}: {report:?}");
        assert!(report.pages.checked > 400, "{family}: {report:?}");
        assert!(report.ok(), "{family}: {:?}", report.first_divergence);
    }
}

fn first_case(family: &str) -> (Header, Case) {
    let mut reader = shipped(family);
    let case = reader.next_case().expect("a case").expect("one case at least");
    (reader.header().clone(), case)
}

fn run(header: &Header, case: &Case, pass: Pass) -> Case {
    record_case(&simulator(header), case, pass).expect("a program")
}

#[test]
fn two_runs_on_the_simulator_leave_nothing_unstable_and_times_that_are_equal() {
    let (header, case) = first_case("migrate");
    let observed = [(), ()].map(|()| run(&header, &case, Pass::Observed));
    let timed = [(), (), ()].map(|()| run(&header, &case, Pass::Timed));
    let merged = merge(&observed, &timed).expect("runs of one program");
    for line in &merged.ops {
        let observed = &line.record.observed;
        let ns = observed.ns.expect("three timed runs");
        assert!(observed.unstable.is_empty(), "line {}", line.line);
        assert_eq!((Some(ns.min), Some(ns.max)), (observed.ns_profiled, observed.ns_profiled));
    }
    assert!(timed[0].ops.iter().all(|line| line.record.observed.events.is_empty()));
    assert!(observed[0].ops.iter().any(|line| !line.record.observed.events.is_empty()));
}

#[test]
fn what_differs_between_runs_is_marked_and_the_lowest_time_is_kept() {
    let (header, case) = first_case("migrate");
    let first = run(&header, &case, Pass::Observed);
    let mut second = first.clone();
    let touched = first.ops.iter().position(|line| !line.record.observed.events.is_empty());
    let touched = touched.expect("a fault");
    let other = &mut second.ops[touched].record.observed;
    other.events.pop();
    other.code = 1;
    other.ns_profiled = Some(7);
    let merged = merge(&[first.clone(), second], &[]).expect("runs of one program");
    for (at, (line, was)) in merged.ops.iter().zip(&first.ops).enumerate() {
        let (observed, was) = (&line.record.observed, &was.record.observed);
        assert_eq!(observed.unstable.is_empty(), at != touched, "operation {at}");
        assert_eq!((&observed.events, observed.code), (&was.events, was.code));
    }
    let observed = &merged.ops[touched].record.observed;
    assert_eq!(observed.unstable, ["code", "events"]);
    assert_eq!((observed.ns_profiled, observed.ns), (Some(7), None));
}

#[test]
fn runs_of_different_programs_are_not_merged() {
    let (header, case) = first_case("migrate");
    let first = run(&header, &case, Pass::Observed);
    let mut shorter = first.clone();
    shorter.ops.pop();
    let mut renamed = first.clone();
    renamed.name = "another".to_owned();
    for other in [shorter, renamed] {
        assert!(merge(&[first.clone(), other], &[]).is_err());
    }
    assert!(merge(&[], &[first]).is_err());
}

/// The program for what no shipped recording has: see `tests/data/programs/README.md`.
#[test]
fn the_fresh_program_has_pools_contents_and_attachment_and_replays_as_it_was_recorded() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/programs/fresh.jsonl");
    let none = Header::new("none", shipped("migrate").header().recorded_on.clone());
    let mut reader = TraceReader::open_program(&path, none).expect("a program");
    let header = reader.header().clone();
    assert_eq!((header.family.as_str(), header.recorded_on.gpus), ("fresh", 1));
    let mut seen: Vec<&str> = Vec::new();
    let mut attached = Vec::new();
    let mut tally = Tally::default();
    while let Some(case) = reader.next_case().expect("a case") {
        let recorded = run(&header, &case, Pass::Observed);
        let again = replay_case(&simulator(&header), &recorded, |_, _| ());
        tally.merge(compare_case(&recorded, &again, false));
        for line in &recorded.ops {
            seen.push(line.record.op.name());
            if let Op::StreamAttach { flags, .. } = line.record.op {
                assert!(matches!(flags, 1 | 2 | 4), "flags {flags} end the process on a GPU");
                attached.push(flags);
            }
        }
    }
    for (name, least) in [
        ("pool_alloc", 50),
        ("memset", 100),
        ("memcpy", 50),
        ("prefetch", 100),
        ("stream_attach", 100),
    ] {
        assert!(seen.iter().filter(|&&other| other == name).count() >= least, "{name}");
    }
    assert!([1, 2, 4].iter().all(|flags| attached.contains(flags)));
    assert!(tally.agrees(), "{:?}", tally.first_divergence());
}
