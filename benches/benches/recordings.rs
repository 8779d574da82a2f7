//! A bench of the shipped recordings: each operation against the time that the H200 took for it.
//!
//! Elements are recorded nanoseconds, sleeps left out: 50 Gelem/s is 1/50 of the machine's time.
//! Reading the recording and making a machine for each case are not measured. Once with pages only,
//! once with the contents that calls write, as a replay has them, and once with these in memory,
//! which mostly measures how fast this machine zeroes memory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pagewise::{DriverVersion, EventCapture, MemoryContents, SimBackend, SimConfig};
use pagewise_trace::format::{Case, Header, Op};
use pagewise_trace::reader::TraceReader;
use pagewise_trace::replay::{CaseRun, Observation};

/// Recorded nanoseconds of the operations of a case.
fn recorded_ns(case: &Case) -> u64 {
    let awake = case.ops.iter().filter(|line| !matches!(line.recorded.op, Op::Sleep { .. }));
    let ns = awake.map(|line| {
        let observed = &line.recorded.observed;
        observed.ns.map_or(observed.ns_profiled.unwrap_or(0), |ns| ns.median)
    });
    ns.sum()
}

fn machine(header: &Header) -> SimConfig {
    let machine = &header.recorded_on;
    SimConfig::h200()
        .devices(machine.gpus)
        .driver_version(DriverVersion(machine.cuda_driver_version))
        .events(EventCapture::Off)
}

/// Carries out all cases, each on a machine of its own.
fn carry_out(config: &SimConfig, cases: &[Case]) -> Duration {
    let mut elapsed = Duration::ZERO;
    for case in cases {
        let sim = SimBackend::new(config.clone()).expect("address space");
        let start = Instant::now();
        let mut run = CaseRun::new(&sim, Observation::ResultsOnly);
        for line in &case.ops {
            run.prepare(&line.recorded.op);
            run.step(&line.recorded.op);
        }
        drop(run.finish());
        elapsed += start.elapsed();
    }
    elapsed
}

fn recordings(criterion: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces/h200-580");
    let files = folder.read_dir().expect("the shipped recordings").flatten();
    let is_trace = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "zst");
    let mut paths: Vec<PathBuf> = files.map(|file| file.path()).filter(is_trace).collect();
    paths.sort();
    let mut group = criterion.benchmark_group("recordings");
    group.sample_size(10);
    for path in paths {
        let mut reader = TraceReader::open(&path).expect("a recording");
        let config = machine(reader.header());
        let cases: Vec<Case> = std::iter::from_fn(|| reader.next_case().expect("whole")).collect();
        let name = path.file_name().expect("a file").to_string_lossy();
        let name = name.split('.').next().expect("a name").to_owned();
        group.throughput(Throughput::Elements(cases.iter().map(recorded_ns).sum()));
        for (mode, contents) in [
            ("pages", MemoryContents::Skipped),
            ("contents", MemoryContents::Described),
            ("memory", MemoryContents::Real),
        ] {
            let config = config.clone().contents(contents);
            group.bench_function(format!("{name}, {mode}"), |bench| {
                bench.iter_custom(|times| (0..times).map(|_| carry_out(&config, &cases)).sum());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, recordings);
criterion_main!(benches);
