//! The recordings of a real H200, replayed on the simulator: floors that may only rise.

use std::path::PathBuf;
use std::sync::Arc;

use pagewise::{DiscardedContents, DriverVersion, RangeReads, Result, SimBackend, SimConfig};
use pagewise_trace::format::Header;
use pagewise_trace::report::{Count, TraceReport};
use pagewise_trace::run::{Input, Options, Session, Target, run};

struct Simulator;

impl Target for Simulator {
    fn open(&self, header: &Header) -> Result<Session> {
        let machine = &header.recorded_on;
        let config = SimConfig::h200()
            .devices(machine.gpus)
            .driver_version(DriverVersion(machine.cuda_driver_version))
            .range_reads(RangeReads::Driver)
            .discarded_contents(DiscardedContents::Driver);
        let backend = Arc::new(SimBackend::new(config)?);
        let paced = Arc::clone(&backend);
        Ok(Session { backend, pace: Some(Box::new(move |ns| paced.pace_next_op(ns))) })
    }
}

fn replay(family: &str) -> TraceReport {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/traces/h200-580");
    let inputs = vec![Input::file(folder.join(format!("{family}.jsonl.zst")))];
    let mut report = run(inputs, &Simulator, Options::default(), &|| {});
    report.traces.remove(0)
}

fn missed(count: Count) -> u64 {
    count.checked - count.agree
}

/// Contract and range reads: all. Pages and events: at most so many operations differ.
fn assert_agrees(family: &str, pages: u64, events: u64) {
    let report = replay(family);
    let (contract, reads) = (missed(report.contract), missed(report.range_attributes));
    assert!(report.contract.checked > 0, "{family}: nothing was checked");
    assert_eq!((contract, reads), (0, 0), "{family}: {:?}", report.first_divergence);
    let differ = (missed(report.pages), missed(report.events));
    assert!(
        differ.0 <= pages && differ.1 <= events,
        "{family}: {differ:?} of pages and events differ: {:?}",
        report.first_divergence
    );
}

#[test]
fn calls_answer_as_recorded() {
    for family in ["contract", "attrs", "two-gpu-contract", "two-gpu-attrs"] {
        assert_agrees(family, 0, 1);
    }
}

#[test]
fn pools_answer_as_recorded() {
    assert_agrees("pools", 0, 2);
}

#[test]
fn small_allocations_share_pages_as_recorded() {
    assert_agrees("small", 0, 0);
}

#[test]
fn pages_move_as_recorded() {
    for family in ["migrate", "advise", "timing"] {
        assert_agrees(family, 0, 2);
    }
}

#[test]
fn pages_move_between_devices_as_recorded() {
    for family in ["two-gpu-migrate", "two-gpu-advise", "two-gpu-peer"] {
        assert_agrees(family, 0, 2);
    }
}

#[test]
fn discarded_pages_move_as_recorded() {
    let report = replay("discard");
    assert_eq!(missed(report.pages) + missed(report.events), 0, "{:?}", report.first_divergence);
}
