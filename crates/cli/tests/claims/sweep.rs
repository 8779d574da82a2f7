//! `pagewise run --sweep`: each call of a program fails once, and a table has the end of each run.

use std::process::Command;

use serde_json::Value;

// The library is built because these tests depend on it.
use pagewise_driver as _;

use crate::common::{Files, json, status, stderr, stdout, trace};

const THIS: &str = env!("CARGO_BIN_EXE_pagewise");

/// A program of few calls.
const PROGRAM: [&str; 2] =
    [r#"{"op":"alloc_managed","buf":0,"bytes":4096,"attach_flags":1}"#, r#"{"op":"free","buf":0}"#];

/// The command, with the library that cargo built beside the tests.
fn sweep(arguments: &[&str], script: &str) -> Command {
    let test = std::env::current_exe().expect("a test knows its path");
    let mut command = Command::new(THIS);
    command.args(["run", "--sweep"]).args(arguments).args(["--", "sh", "-c", script]);
    command.env_remove("PAGEWISE_DRIVER");
    command.env("PAGEWISE_DRIVER_LIBRARY", test.with_file_name("libpagewise_driver.so"));
    command
}

/// A script that carries the program out, and what it does afterwards if that failed.
fn script(files: &Files, otherwise: &str) -> String {
    let program = files.add("program.jsonl", trace(&PROGRAM));
    let recording = files.path("recording.jsonl");
    format!("{THIS} record --backend cuda --pass observed {program} -o {recording} || {otherwise}")
}

fn runs(report: &Value) -> &[Value] {
    report["runs"].as_array().expect("runs")
}

#[test]
fn each_call_fails_once_and_the_rest_is_said_to_be_left_out() {
    let files = Files::new();
    let mut command = sweep(&["--json", "--sweep-max", "9"], &script(&files, "exit 7"));
    let swept = command.output().expect("the command runs");
    assert_eq!(status(&swept), 0, "{}", stderr(&swept));
    let report = json(&swept);
    assert_eq!((&report["code"], runs(&report).len()), (&2.into(), 9), "{report:#}");
    assert!(report["left_out"].as_u64() > Some(0), "{report:#}");
    let of_init = |run: &&Value| run["call"] == "cuInit" && run["nth"] == 0;
    let init = runs(&report).iter().find(of_init).expect("the program calls cuInit");
    assert_eq!(init["end"]["exit"], 7, "{report:#}");
    assert_eq!(report["without_fault"]["exit"], 0);
}

/// A script that runs a program of the driver, and does something else first if it ran before.
fn second_time(files: &Files, name: &str, otherwise: &str) -> String {
    let ran = files.path(name);
    format!("test -e {ran} && {otherwise}; touch {ran}; {THIS} doctor")
}

#[test]
fn a_program_that_crashes_or_hangs_with_a_fault_is_found() {
    let files = Files::new();
    let script = second_time(&files, "crashes", "kill -9 $$");
    let crashed = sweep(&["--sweep-max", "2"], &script).output().expect("the command runs");
    assert_eq!(status(&crashed), 1, "{}", stderr(&crashed));
    assert!(stdout(&crashed).contains("2 by a signal"), "{}", stdout(&crashed));
    let script = second_time(&files, "hangs", "sleep 600");
    let arguments = ["--sweep-max", "1", "--timeout", "6"];
    let hung = sweep(&arguments, &script).output().expect("the command runs");
    assert_eq!(status(&hung), 1, "{}", stderr(&hung));
    assert!(stdout(&hung).contains("1 timed out"), "{}", stdout(&hung));
}

#[test]
fn arguments_that_contradict_a_sweep_are_refused() {
    for arguments in [&["--sweep-code", "CUDA_OOPS"][..], &["--trace", "x.jsonl"]] {
        let refused = sweep(arguments, "true").output().expect("the command runs");
        assert_eq!(status(&refused), 2, "{}", stderr(&refused));
    }
    let ended = sweep(&[], "kill -9 $$").output().expect("the command runs");
    assert_eq!(status(&ended), 125, "{}", stderr(&ended));
}
