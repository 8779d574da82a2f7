//! Ctrl-C, and the signal that ends a process, in the middle of a command.
#![cfg(unix)]

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Files, pagewise, status, stdout};

/// A program that takes long enough to be interrupted.
fn long_program() -> String {
    let turns = [
        r#"{"op":"host_touch","buf":3,"offset":0,"bytes":2097152,"stride":4096,"access":"write","value":7}"#,
        r#"{"op":"device_touch","device":0,"buf":3,"offset":0,"bytes":2097152,"stride":4096,"access":"read","blocks":1,"threads":1}"#,
    ];
    let begin = r#"{"op":"alloc_managed","buf":3,"bytes":2097152,"attach_flags":1}"#;
    [&[begin], &turns.repeat(5_000)[..]].concat().join("\n")
}

const LONG: [&str; 7] = ["record", "--repeat", "100", "--timed-runs", "100", "--max-work", "1T"];

/// Sends the signal once the command is busy, and waits for its end.
fn interrupted(signal: &str, command: &mut Command, is_busy: impl Fn() -> bool) -> Output {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
    let mut child = command.spawn().expect("the binary runs");
    let patience = Instant::now() + Duration::from_secs(60);
    while !is_busy() {
        assert!(Instant::now() < patience, "it does not get busy");
        assert!(child.try_wait().expect("a child").is_none(), "it ends before it is busy");
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().expect("kill runs").success());
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > patience {
            _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it ended")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewise"));
    command.args(arguments);
    command
}

#[test]
fn an_interrupted_recording_leaves_the_older_one_and_no_partial_file() {
    for signal in ["-INT", "-TERM"] {
        let files = Files::new();
        let program = files.add("long.jsonl", long_program());
        let trace = files.add("trace.jsonl", "an older recording");
        let mut record = command(&[&LONG[..], &[&program, "-o", &trace]].concat());
        let output = interrupted(signal, &mut record, || files.names().len() == 3);
        assert_eq!(status(&output), 130, "{signal}");
        assert_eq!(files.names(), ["long.jsonl", "trace.jsonl"], "the partial file is gone");
        assert_eq!(std::fs::read_to_string(trace).expect("readable"), "an older recording");
    }
}

#[test]
fn an_interrupted_recording_prints_no_part_of_its_trace() {
    let files = Files::new();
    let program = files.add("long.jsonl", long_program());
    let mut record = command(&[&LONG[..], &[&program, "-o", "-"]].concat());
    let begun = Instant::now();
    let output = interrupted("-INT", &mut record, || begun.elapsed() > Duration::from_millis(500));
    assert!(!output.status.success());
    assert_eq!(stdout(&output), "");
}

/// The folder of its processes' traces goes, and so do the processes.
#[test]
#[cfg(target_os = "linux")]
fn an_interrupted_recording_of_a_driver_leaves_nothing_of_its_processes() {
    // The library is built because these tests depend on it.
    use pagewise_driver as _;

    let library = std::env::current_exe().expect("a test knows its path");
    let (files, kept) = (Files::new(), Files::new());
    let program = kept.add("long.jsonl", long_program());
    let mut record = command(&["record", "--backend", "cuda", &program, "-o"]);
    record
        .arg(kept.path("trace.jsonl"))
        .env("PAGEWISE_LIBCUDA", library.with_file_name("libpagewise_driver.so"))
        .env("PAGEWISE_DRIVER", "version=13.0 reads=driver")
        .env("PAGEWISE_CUPTI", "/nowhere/libcupti.so.13")
        .env("TMPDIR", files.directory());
    let partial_in = |folder: &String| {
        let entries = std::fs::read_dir(files.path(folder));
        entries.into_iter().flatten().next().is_some()
    };
    let output = interrupted("-INT", &mut record, || files.names().iter().any(partial_in));
    assert_eq!(status(&output), 130);
    assert_eq!(files.names(), [""; 0], "the folder is gone");
    assert_eq!(kept.names(), ["long.jsonl"], "there is no trace, nor a part of one");
}

/// A shell that `pagewise run` starts, and its number.
#[cfg(target_os = "linux")]
struct Started {
    files: Files,
    command: std::process::Child,
    program: String,
}

/// Runs a shell that says when it is asked to end, and with which number it runs.
#[cfg(target_os = "linux")]
fn started() -> Started {
    let files = Files::new();
    let (number, asked) = (files.path("number"), files.path("asked"));
    let script = format!(
        "trap 'echo yes > {asked}; exit 3' TERM; echo $$ > {number}.part; mv {number}.part {number};
         while :; do sleep 0.02; done"
    );
    let library = std::env::current_exe().expect("a test knows its path");
    let mut command = command(&["run", "--", "sh", "-c", &script]);
    command.env("PAGEWISE_DRIVER_LIBRARY", library.with_file_name("libpagewise_driver.so"));
    let mut command = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let program = eventually(|| std::fs::read_to_string(&number).ok());
    assert!(command.try_wait().expect("a child").is_none(), "the command waits for its program");
    Started { files, command, program: program.trim().to_owned() }
}

/// The first answer, within a minute.
#[cfg(target_os = "linux")]
fn eventually<T>(mut answer: impl FnMut() -> Option<T>) -> T {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        match answer() {
            Some(answer) => return answer,
            None => assert!(Instant::now() < patience, "nothing happens"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_request_to_end_reaches_the_program_of_a_run_and_its_status_is_the_runs() {
    let mut started = started();
    let id = started.command.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    let status = eventually(|| started.command.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(3));
    assert_eq!(std::fs::read_to_string(started.files.path("asked")).expect("written"), "yes\n");
}

#[test]
#[cfg(target_os = "linux")]
fn the_program_of_a_run_that_is_killed_ends_too() {
    let mut started = started();
    started.command.kill().expect("it runs");
    started.command.wait().expect("a child");
    let stat = format!("/proc/{}/stat", started.program);
    // A process that ended stays as a zombie until its new parent asks for its status.
    let ended = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    eventually(|| ended().then_some(()));
    assert!(!std::path::Path::new(&started.files.path("asked")).exists(), "it had no choice");
}

#[test]
fn an_interrupted_comparison_leaves_whole_programs_only() {
    let files = Files::new();
    let trying = files.path("trying.jsonl");
    let compare = ["compare", "--backend", "sim", "--ops", "1000000", "--family", "calls"];
    let mut compare = command(&[&compare[..], &["--trying", &trying]].concat());
    let output = interrupted("-INT", &mut compare, || std::path::Path::new(&trying).exists());
    assert_eq!(status(&output), 130);
    assert_eq!(files.names(), ["trying.jsonl"]);
    let recorded = files.path("recorded.jsonl");
    assert_eq!(status(&pagewise(&["record", &trying, "-o", &recorded])), 0);
}
