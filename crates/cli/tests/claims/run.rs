//! `pagewise run`: a program on the simulated driver, and the summary of what moved.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use serde_json::Value;

// The library is built because these tests depend on it.
use pagewise_driver as _;

use crate::common::{Files, pagewise, run_with_stdin, status, stderr, stdout, trace};

/// The operations of a program that the driver sees in full: no access is the host's.
const PROGRAM: [&str; 6] = [
    r#"{"op":"alloc_managed","buf":0,"bytes":4194304,"attach_flags":1}"#,
    r#"{"op":"memset","buf":0,"offset":0,"bytes":65536,"value":7}"#,
    r#"{"op":"prefetch","abi":2,"buf":0,"offset":0,"bytes":4194304,"location":{"kind":"host"}}"#,
    r#"{"op":"prefetch","abi":2,"buf":0,"offset":0,"bytes":2097152,"location":{"kind":"device","id":0}}"#,
    r#"{"op":"memset","buf":0,"offset":2097152,"bytes":65536,"value":9}"#,
    r#"{"op":"free","buf":0}"#,
];

const THIS: &str = env!("CARGO_BIN_EXE_pagewise");

/// The command, with the library that cargo built beside the tests.
fn run(arguments: &[&str]) -> Command {
    let test = std::env::current_exe().expect("a test knows its path");
    let mut command = Command::new(THIS);
    command.arg("run").args(arguments).env_remove("PAGEWISE_DRIVER");
    command.env("PAGEWISE_DRIVER_LIBRARY", test.with_file_name("libpagewise_driver.so"));
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the command runs")
}

fn summary(path: &str) -> Value {
    let text = std::fs::read_to_string(path).expect("a summary");
    serde_json::from_str(&text).expect("one JSON object")
}

#[test]
fn input_output_and_status_are_the_program_s() {
    let mut command = run(&["--", "sh", "-c", "cat; echo beside >&2; exit 7"]);
    let output = run_with_stdin(&mut command, b"through");
    assert_eq!((status(&output), stdout(&output).as_str()), (7, "through"));
    let said = "beside\npagewise: the program did not call the CUDA driver\n";
    assert_eq!(stderr(&output), said);
}

#[test]
fn the_summary_has_the_sums_of_the_program_s_records() {
    let files = Files::new();
    let program = files.add("program.jsonl", trace(&PROGRAM));
    let (on_driver, on_sim) = (files.path("driver.jsonl"), files.path("sim.jsonl"));
    let summary_path = files.path("summary.json");
    let record = ["record", "--backend", "cuda", "--pass", "observed", &program, "-o", &on_driver];
    let arguments = [&["--summary", &summary_path, "--", THIS][..], &record].concat();
    let ran = output(&mut run(&arguments));
    assert_eq!(status(&ran), 0, "{}", stderr(&ran));
    assert_eq!(status(&pagewise(&["record", "--repeat", "1", &program, "-o", &on_sim])), 0);

    let text = std::fs::read_to_string(&on_sim).expect("a recording");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let records: Vec<Value> =
        lines.filter_map(|line| line["events"].as_array().cloned()).flatten().collect();
    let of = |kind: &'static str| records.iter().filter(move |record| record[0] == kind);
    let sum = |kind: &'static str| {
        of(kind).map(|record| record[1].as_u64().expect("a number")).sum::<u64>()
    };
    let caused = |kind: &'static str, cause: &str| {
        let caused = of(kind).filter(|record| record[6] == cause);
        caused.map(|record| record[1].as_u64().expect("a number")).sum::<u64>()
    };
    let summary = summary(&summary_path);
    let number = |key: &str| summary[key].as_u64().expect("a number");
    assert_eq!(number("exit"), 0);
    assert_eq!((number("h2d_bytes"), number("d2h_bytes")), (sum("copy_h2d"), sum("copy_d2h")));
    assert_ne!(number("h2d_bytes").min(number("d2h_bytes")), 0);
    assert_eq!(number("gpu_fault_groups"), of("gpu_fault").count() as u64);
    assert_eq!(number("gpu_faults"), sum("gpu_fault"));
    assert_ne!(number("gpu_faults"), 0);
    for (way, kind) in [("h2d", "copy_h2d"), ("d2h", "copy_d2h")] {
        for cause in ["user", "coherence", "prefetch", "eviction"] {
            let bytes = summary["bytes_by_cause"][way][cause].as_u64();
            assert_eq!(bytes, Some(caused(kind, cause)), "{way} {cause}");
        }
    }
    let peak = summary["buffers"][0]["peak_device_bytes"].as_u64();
    assert_eq!(peak, Some((2 << 20) + sum_of_last_memset(&records)), "{summary}");
    assert!(stderr(&ran).contains("host to device"), "{}", stderr(&ran));
}

/// Bytes that the last fill brought to the device, which already held 2 MiB.
fn sum_of_last_memset(records: &[Value]) -> u64 {
    let copies = records.iter().filter(|record| record[0] == "copy_h2d" && record[6] != "user");
    copies.map(|record| record[1].as_u64().expect("a number")).sum()
}

#[test]
fn a_program_that_is_killed_leaves_its_summary() {
    let files = Files::new();
    let program = files.add("program.jsonl", trace(&PROGRAM));
    let (recording, path) = (files.path("recording.jsonl"), files.path("summary.json"));
    let script = format!(
        "{THIS} record --backend cuda --pass observed {program} -o {recording}; kill -9 $$"
    );
    let ran = output(&mut run(&["--summary", &path, "--", "sh", "-c", &script]));
    assert_eq!(status(&ran), 128 + 9);
    let summary = summary(&path);
    assert_eq!((&summary["exit"], &summary["processes"]), (&137.into(), &1.into()));
    assert_ne!(summary["d2h_bytes"], 0);
}

#[test]
fn the_trace_of_a_program_replays_whether_it_ends_or_is_killed() {
    let files = Files::new();
    let program = files.add("program.jsonl", trace(&PROGRAM));
    let (recording, path) = (files.path("recording.jsonl"), files.path("run.jsonl.zst"));
    let record = format!("{THIS} record --backend cuda --pass observed {program} -o {recording}");
    for (end, expected) in [("true", 0), ("kill -9 $$", 137)] {
        let script = format!("{record}; {end}");
        let ran = output(&mut run(&["--trace", &path, "--", "sh", "-c", &script]));
        assert_eq!(status(&ran), expected, "{}", stderr(&ran));
        let replayed = pagewise(&["replay", "--json", &path]);
        let report = crate::common::json(&replayed);
        assert_eq!(status(&replayed), 0, "{report:#}");
        let events = &report["traces"][0]["events"];
        assert!(events["checked"].as_u64() >= Some(PROGRAM.len() as u64), "{report:#}");
    }
    let two = format!("{record}; {record}");
    assert_eq!(status(&output(&mut run(&["--trace", &path, "--", "sh", "-c", &two]))), 0);
    let second = files.path("run.2.jsonl.zst");
    let read = |path: &str| std::fs::read(path).expect("a trace");
    assert_eq!(read(&second), read(&path), "the same program twice");
}

#[test]
fn a_trace_that_the_driver_is_asked_for_is_complete_when_the_process_ends() {
    let files = Files::new();
    let program = files.add("program.jsonl", trace(&PROGRAM));
    let (recording, path) = (files.path("recording.jsonl"), files.path("of-%p.jsonl"));
    let record = ["record", "--backend", "cuda", "--pass", "observed", &program, "-o", &recording];
    let mut command = run(&[&["--", THIS][..], &record].concat());
    assert_eq!(status(&output(command.env("PAGEWISE_DRIVER", format!("trace={path}")))), 0);
    let names = files.names();
    let trace = names.iter().find(|name| name.starts_with("of-")).expect("a trace");
    assert!(trace.ends_with(".jsonl") && !trace.contains('%'), "no journal is left: {names:?}");
    assert_eq!(status(&pagewise(&["replay", &files.path(trace)])), 0);
}

#[test]
fn options_reach_the_driver_and_wrong_ones_are_named() {
    let machine = ["--devices", "3", "--driver", "12.4", "--memory", "8G", "--profile", "l4"];
    let doctor = ["--", THIS, "doctor"];
    let ran = output(&mut run(&[&machine[..], &doctor].concat()));
    let report = stdout(&ran).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(report.contains("12.4") && report.contains("8192 MiB"), "{report}");
    assert_eq!(report.matches("8192 MiB").count(), 3, "{report}");
    let ran = output(run(&doctor).env("PAGEWISE_DRIVER", "devices=1 colour=red"));
    assert!(stderr(&ran).contains("\"colour=red\""), "{}", stderr(&ran));
    let ran = output(&mut run(&["--profile", "a\"b", "--", "true"]));
    assert_eq!(status(&ran), 2, "{}", stderr(&ran));
}

#[test]
fn a_program_that_cannot_run_has_a_status_of_its_own() {
    let files = Files::new();
    let text = files.add("not-a-program", "text");
    std::fs::set_permissions(&text, Permissions::from_mode(0o644)).expect("its own file");
    let no_library = |command: &mut Command| {
        output(command.env("PAGEWISE_DRIVER_LIBRARY", "/nowhere/libpagewise_driver.so"))
    };
    for (ran, expected, said) in [
        (output(&mut run(&["--", "/nowhere/program"])), 127, "/nowhere/program"),
        (output(&mut run(&["--", &text])), 126, "not-a-program"),
        (no_library(&mut run(&["--", "true"])), 125, "there is no such file"),
        (output(&mut run(&["--json", "--", "true"])), 2, "--summary FILE"),
        (output(&mut run(&["true"])), 2, "Usage: pagewise run"),
    ] {
        assert_eq!(status(&ran), expected, "{}", stderr(&ran));
        assert!(stderr(&ran).contains(said), "{}", stderr(&ran));
    }
}
