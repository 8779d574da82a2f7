//! Records from a stand-in for CUPTI, which a C compiler makes: one process for each variant, as
//! CUPTI is found once in a process.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Command;

use pagewise_cuda::Cupti;
use pagewise_hal::{CopyCause, FaultAccess, MemoryEvent, Processor};

/// Set in the processes that the tests start.
const EXPECTED: &str = "PAGEWISE_TEST_EXPECTED";

fn stand_in(folder: &Path, defines: &[&str]) -> PathBuf {
    let library = folder.join("libcupti.so.13");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-in/cupti.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", source, "-o"]).arg(&library);
    compiler.args(defines);
    let made = compiler.status().expect("a C compiler, which the zstd crate needs too");
    assert!(made.success());
    library
}

/// Runs `in_a_process_of_its_own` on a stand-in, which must show `expected`.
fn show(defines: &[&str], by_folder: bool, expected: &str) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let library = stand_in(folder.path(), defines);
    let chosen = if by_folder { folder.path() } else { library.as_path() };
    let child = Command::new(std::env::current_exe().expect("this test"))
        .args(["in_a_process_of_its_own", "--exact", "--nocapture"])
        .env("PAGEWISE_CUPTI", chosen)
        .env(EXPECTED, expected)
        .output()
        .expect("this test runs");
    let text = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn in_a_process_of_its_own() {
    let Ok(expected) = std::env::var(EXPECTED) else { return };
    let cupti = Cupti::open().expect("the stand-in");
    assert_eq!(cupti.version(), 130_000);
    assert!(cupti.path().ends_with("libcupti.so.13"), "{}", cupti.path());
    assert_eq!(cupti.drain(), Ok(Vec::new()), "nothing is recorded before the start");
    let shown = match cupti.start() {
        Err(reason) => reason.to_string(),
        Ok(()) => {
            cupti.start().expect("a second start does nothing");
            match Cupti::open().expect("the same library").drain() {
                Err(error) => error.to_string(),
                Ok(events) => {
                    assert_eq!(events, two_records());
                    cupti.stop().expect("started");
                    assert_eq!(cupti.drain(), Ok(two_records()), "what the stop flushed");
                    assert_eq!(cupti.drain(), Ok(Vec::new()), "stopped");
                    cupti.stop().expect("a second stop does nothing");
                    "records".to_owned()
                }
            }
        }
    };
    assert!(shown.contains(&expected), "{shown}");
}

/// The second of the three records is of another kind of activity.
fn two_records() -> Vec<MemoryEvent> {
    let address = 0x20_0000;
    let copy = MemoryEvent::Copy {
        address,
        bytes: 8192,
        from: Processor::HOST,
        to: Processor::device(0),
        cause: CopyCause::User,
        duration_ns: 5,
    };
    vec![copy, MemoryEvent::CpuFault { address, access: FaultAccess::Read }]
}

#[test]
fn records_of_both_layouts_are_read() {
    show(&["-DRECORD_BYTES=64"], false, "records");
    show(&["-DRECORD_BYTES=104"], true, "records");
}

#[test]
fn a_refusal_says_why() {
    show(&["-DREFUSE=35"], false, "NVreg_RestrictProfilingToAdminUsers");
}

#[test]
fn lost_records_are_an_error() {
    show(&["-DDROPPED=3"], false, "CUPTI dropped 3 records");
}

#[test]
fn an_unknown_cause_is_an_error() {
    show(&["-DFLAGS=77"], false, "a record that is not known");
}
