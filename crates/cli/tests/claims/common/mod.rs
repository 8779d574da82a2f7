//! Helpers that the tests of the command share: running it, and files for it.

use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub(crate) const HEADER: &str = r#"{"format":"pagewise-trace","version":1,"family":"tiny","recorded_on":{"gpus":1,"cuda_driver_version":13000}}"#;

pub(crate) fn pagewise(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewise"));
    command.args(arguments).output().expect("the binary runs")
}

/// Runs the command with these bytes on standard input.
pub(crate) fn with_stdin(arguments: &[&str], bytes: &[u8]) -> Output {
    run_with_stdin(Command::new(env!("CARGO_BIN_EXE_pagewise")).args(arguments), bytes)
}

/// Runs this command with these bytes on standard input.
pub(crate) fn run_with_stdin(command: &mut Command, bytes: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that refuses its arguments does not read.
    _ = stdin.write_all(bytes);
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

pub(crate) fn status(output: &Output) -> i32 {
    output.status.code().expect("not killed by a signal")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("exactly one JSON value")
}

/// A directory with one file for each test, so that they do not meet.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn add(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), bytes).expect("writable");
        self.path(name)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    pub(crate) fn directory(&self) -> String {
        self.0.path().display().to_string()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("readable");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.expect("readable").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    }
}

pub(crate) fn trace(ops: &[&str]) -> String {
    format!("{HEADER}\n{{\"case\":\"one\"}}\n{}\n", ops.join("\n"))
}

pub(crate) fn recording(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/traces/h200-580");
    let file = std::fs::File::open(data.join(name)).expect("a recording of the checkout");
    let mut text = String::new();
    zstd::Decoder::new(file).expect("zstd").read_to_string(&mut text).expect("UTF-8");
    text
}
