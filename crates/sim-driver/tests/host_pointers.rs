//! Programs in C on the simulated driver, which reach its memory by plain pointers.
//!
//! Each runs in a process of its own, once with each mechanism for faults that this host has. What
//! moved must be what a program moves that declares the same accesses.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use pagewise_hal::{Backend, BackendExt, DeviceId, HostAccess, HostTouch, Location, Span};
use pagewise_sim::{
    DiscardedContents, HostFaults, RangeReads, SimBackend, SimConfig, host_fault_support,
};
use pagewise_trace::compare::compare_case;
use pagewise_trace::format::{Case, Op};
use pagewise_trace::reader::TraceReader;
use pagewise_trace::record::recover;
use pagewise_trace::replay::replay_case;
use serde_json::Value;

const PAGE: u64 = 4096;
const BLOCK: u64 = 2 << 20;
const BLOCKS: u64 = 4;
const SIGSEGV: i32 = 11;

/// The program, compiled once for all tests of this process.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host_pointers/host.c");
        let path = folder.path().join("host");
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", source, "-o"]).arg(&path);
        let done = compiler.args(["-ldl", "-lpthread"]).output().expect("a C compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        (folder, path)
    });
    path
}

/// The library, which cargo builds beside the tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let name = "libpagewise_driver.so";
    let folders = test.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    found.expect("cargo builds the library beside the tests")
}

/// A run of the program: how it ended, and the files that it left.
struct Run {
    output: Output,
    folder: tempfile::TempDir,
}

impl Run {
    fn of(what: &str, mechanism: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path().display();
        let files = format!("summary=\"{here}\" trace=\"{here}/run.jsonl\"");
        let options = format!("log=off host_faults={mechanism} {files}");
        let mut command = Command::new(program());
        command.arg(library()).args([what, &format!("{here}/file")]);
        let output = command.env("PAGEWISE_DRIVER", options).output().expect("a process");
        Self { output, folder }
    }

    fn said(&self) -> String {
        let Output { stdout, stderr, .. } = &self.output;
        [stdout, stderr].map(|text| String::from_utf8_lossy(text)).concat()
    }

    fn succeeded(self) -> Self {
        assert!(self.output.status.success(), "{:?}: {}", self.output.status, self.said());
        self
    }

    fn summaries(&self) -> Vec<Value> {
        let files = std::fs::read_dir(self.folder.path()).expect("the folder is there");
        let paths = files.map(|file| file.expect("a file").path());
        let summaries = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
        let text = |path| std::fs::read_to_string(path).expect("a summary");
        summaries.map(|path| serde_json::from_str(&text(path)).expect("JSON")).collect()
    }

    fn summary(&self) -> Value {
        let [summary] = <[Value; 1]>::try_from(self.summaries()).expect("one process");
        summary
    }

    /// The trace, made of its journal if the process crashed.
    fn trace(&self) -> Case {
        let path = self.folder.path().join("run.jsonl");
        if !path.exists() {
            recover(&self.folder.path().join("run.jsonl.journal"), &path).expect("a journal");
        }
        let mut reader = TraceReader::open(&path).expect("a trace");
        reader.next_case().expect("valid").expect("a case")
    }
}

/// The mechanisms that this host has, as the driver's options name them. A missing one is named in
/// the output.
fn mechanisms() -> Vec<&'static str> {
    let has = |faults| SimBackend::new(SimConfig::h200().host_faults(faults));
    let known =
        [("userfaultfd", HostFaults::Userfaultfd), ("protection", HostFaults::PageProtection)];
    let there = known.into_iter().filter(|&(name, faults)| match has(faults) {
        Ok(_) => true,
        Err(error) => {
            println!("partly skipped: {name}: {error}");
            false
        }
    });
    there.map(|(name, _)| name).collect()
}

/// A simulator that gets the accesses by declarations, in the order in which one thread makes them.
struct Declared {
    sim: SimBackend,
    span: Span,
}

impl Declared {
    fn new() -> Self {
        let sim = SimBackend::new(SimConfig::h200()).expect("address space");
        let span = sim.alloc(BLOCKS * BLOCK).expect("memory");
        Self { sim, span }
    }

    fn part(&self, pages: u64) -> Span {
        Span::new(self.span.ptr, pages * PAGE)
    }

    /// An access to each page.
    fn host(&self, pages: u64, access: HostAccess) {
        for page in 0..pages {
            let span = Span::new(self.span.ptr.offset(page * PAGE), 1);
            // SAFETY: only this test uses the memory, from one thread.
            unsafe { self.sim.host_touch(HostTouch { span, stride_bytes: 1, access }) }
                .expect("an access");
        }
    }

    fn to_device(&self, pages: u64) {
        self.sim.prefetch_to(self.part(pages), Location::device(DeviceId(0))).expect("a prefetch");
    }

    fn fill(&self, pages: u64) {
        let stream = pagewise_hal::StreamHandle::LEGACY;
        // SAFETY: only this test uses the memory, from one thread.
        unsafe { self.sim.memset(self.part(pages), 9, stream) }.expect("a fill");
    }

    /// The accesses of the program that is run as `threads`.
    fn threads(&self) {
        let all = BLOCKS * BLOCK / PAGE;
        self.host(all, HostAccess::Write(1));
        self.to_device(all);
        self.host(all, HostAccess::Read);
    }

    fn assert_moved_as(&self, summary: &Value) {
        let counters = self.sim.counters();
        let number = |key: &str| summary[key].as_u64().expect("a number");
        assert_eq!(number("cpu_faults"), counters.cpu_faults, "{summary}");
        assert_eq!(number("h2d_bytes"), counters.to_device.bytes, "{summary}");
        assert_eq!(number("d2h_bytes"), counters.to_host.bytes, "{summary}");
        let causes = |way: &str| {
            ["user", "coherence", "prefetch"].map(|cause| &summary["bytes_by_cause"][way][cause])
        };
        let by = counters.to_host_by;
        assert_eq!(causes("d2h"), [by.user, by.coherence, by.prefetch], "{summary}");
        let by = counters.to_device_by;
        assert_eq!(causes("h2d"), [by.user, by.coherence, by.prefetch], "{summary}");
        assert_ne!(counters.cpu_faults, 0);
    }
}

/// Asserts that a replay on a simulator does what a program did.
fn assert_replays(case: &Case) {
    let config = SimConfig::h200()
        .range_reads(RangeReads::Pages)
        .discarded_contents(DiscardedContents::Kept);
    let sim = SimBackend::new(config).expect("address space");
    let replayed = replay_case(&sim, case, |_, _| ());
    let tally = compare_case(case, &replayed, false);
    assert!(tally.agrees(), "{:?}", tally.first_divergence());
}

fn host_touches(case: &Case) -> u64 {
    let ops = case.ops.iter().map(|line| &line.recorded.op);
    ops.filter(|op| matches!(op, Op::HostTouch { .. })).count() as u64
}

#[test]
fn threads_with_plain_pointers_move_what_declared_accesses_move() {
    for mechanism in mechanisms() {
        let run = Run::of("threads", mechanism).succeeded();
        let declared = Declared::new();
        declared.threads();
        declared.assert_moved_as(&run.summary());
    }
}

#[test]
fn accesses_are_operations_of_the_trace_and_replay() {
    for mechanism in mechanisms() {
        let run = Run::of("threads", mechanism).succeeded();
        let case = run.trace();
        assert_eq!(run.summary()["cpu_faults"], host_touches(&case), "{mechanism}");
        assert_replays(&case);
    }
}

#[test]
fn accesses_are_not_seen_if_only_declared_ones_are() {
    let run = Run::of("threads", "declared").succeeded();
    let summary = run.summary();
    assert_eq!((&summary["cpu_faults"], &summary["d2h_bytes"]), (&0.into(), &0.into()));
    assert_eq!(summary["host_faults"], "declared");
    assert_eq!(host_touches(&run.trace()), 0);
}

#[test]
fn system_calls_reach_memory_on_the_device_as_the_mechanism_allows() {
    for mechanism in mechanisms() {
        let run = Run::of("files", mechanism);
        if mechanism == "protection" || !host_fault_support().system_calls {
            assert!(run.said().contains("write(file"), "{mechanism}: {}", run.said());
            continue;
        }
        let run = run.succeeded();
        let declared = Declared::new();
        let pages = BLOCK / PAGE;
        declared.threads();
        for access in [HostAccess::Read, HostAccess::Write(9)] {
            declared.fill(pages);
            declared.to_device(pages);
            declared.host(pages, access);
        }
        declared.assert_moved_as(&run.summary());
        assert_replays(&run.trace());
    }
}

#[test]
fn memory_of_a_device_ends_a_program_by_a_segmentation_fault() {
    for mechanism in mechanisms() {
        let run = Run::of("device", mechanism);
        assert_eq!(run.output.status.signal(), Some(SIGSEGV), "{mechanism}: {}", run.said());
        assert_eq!(run.said().trim(), "reached");
        assert_eq!(run.summary()["cpu_faults"], 0);
    }
}

#[test]
fn page_locked_and_registered_memory_is_accessible_without_faults() {
    for mechanism in mechanisms() {
        let run = Run::of("plain", mechanism).succeeded();
        assert_eq!(run.summary()["cpu_faults"], 0, "{mechanism}");
    }
}

#[test]
fn copies_of_pageable_memory_leave_the_same_trace_and_counts_with_each_mechanism() {
    // The driver looks up the program's own memory, which lies elsewhere in each process.
    let work = |run: &Run| -> Vec<_> {
        let ops = run.trace().ops.into_iter();
        ops.filter(|line| !matches!(line.recorded.op, Op::PointerAttributes { .. })).collect()
    };
    let declared = Run::of("copies", "declared").succeeded();
    let (expected, mut summary) = (work(&declared), declared.summary());
    for mechanism in mechanisms() {
        let run = Run::of("copies", mechanism).succeeded();
        let done = work(&run);
        assert_eq!(done.iter().zip(&expected).find(|(a, b)| a != b), None, "{mechanism}");
        assert_eq!(done.len(), expected.len(), "{mechanism}");
        summary["host_faults"] = run.summary()["host_faults"].clone();
        assert_eq!(run.summary(), summary, "{mechanism}");
    }
}

#[test]
fn copies_of_pageable_memory_go_through_one_page_locked_buffer() {
    let case = Run::of("copies", "declared").succeeded().trace();
    let count = |is: fn(&Op) -> bool| case.ops.iter().filter(|line| is(&line.recorded.op)).count();
    assert_eq!(count(|op| matches!(op, Op::Memcpy { .. })), 4);
    assert_eq!(count(|op| matches!(op, Op::AllocPinned { .. })), 1);
}

#[test]
fn a_child_gets_not_initialized_from_every_call_and_its_parent_goes_on() {
    for mechanism in mechanisms() {
        let run = Run::of("forks", mechanism).succeeded();
        assert_eq!(run.summaries().len(), 1, "{mechanism}: children write none");
    }
}

#[test]
fn a_child_of_a_process_that_did_not_initialise_has_a_driver_of_its_own() {
    for mechanism in mechanisms().into_iter().chain(["declared"]) {
        let run = Run::of("forks first", mechanism).succeeded();
        assert_eq!(run.summaries().len(), 2, "{mechanism}");
    }
}

#[test]
fn a_program_that_crashes_leaves_its_last_faults_in_summary_and_trace() {
    for mechanism in mechanisms() {
        let run = Run::of("crash", mechanism);
        assert_eq!(run.output.status.signal(), Some(SIGSEGV), "{mechanism}: {}", run.said());
        assert_eq!(run.summary()["cpu_faults"], 3, "{mechanism}");
        let case = run.trace();
        assert_eq!(host_touches(&case), 3, "{mechanism}");
        assert_replays(&case);
    }
}

#[test]
fn a_handler_of_the_program_gets_the_program_s_own_faults() {
    for mechanism in mechanisms() {
        Run::of("handles", mechanism).succeeded();
    }
}

#[test]
fn memory_that_is_locked_and_advised_keeps_its_contents() {
    for mechanism in mechanisms() {
        Run::of("advises", mechanism).succeeded();
    }
}
