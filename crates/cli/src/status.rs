//! The end of the command: its answer, as text or as JSON, and its exit status.

use std::io::{self, Write};
use std::process::ExitCode;

use pagewise_trace::report::Report;
use serde::Serialize;
use serde_json::{Value, json};

const DIVERGES: u8 = 1;
pub(crate) const USAGE: u8 = 2;
const INVALID_INPUT: u8 = 3;

/// The answer of a command that could do its work.
#[derive(Debug)]
pub(crate) struct Answer {
    /// For people.
    text: String,
    /// The same for programs: an object with `ok`.
    json: Value,
    /// Inputs that could not be read.
    errors: Vec<String>,
    status: u8,
    /// Whether the command has written its result to stdout, so that the text goes to stderr.
    beside_result: bool,
}

impl Answer {
    /// The answer of a command that has done what it was asked. `fields`: a structure or a map.
    pub(crate) fn new(text: String, fields: &impl Serialize) -> Self {
        let mut json = plain(fields);
        json["ok"] = true.into();
        Self { text, json, errors: Vec::new(), status: 0, beside_result: false }
    }

    /// The answer of a comparison. Its status says what was found.
    pub(crate) fn compared(report: &Report, text: String) -> Self {
        let errors = report.traces.iter().filter_map(|trace| trace.error.clone());
        let errors: Vec<String> = errors.collect();
        let status = match (errors.is_empty(), report.ok) {
            (false, _) => INVALID_INPUT,
            (true, false) => DIVERGES,
            (true, true) => 0,
        };
        Self { text, json: plain(report), errors, status, beside_result: false }
    }

    /// The answer of a command that ran a program: the program's status, and a text beside what it
    /// printed.
    pub(crate) fn of_program(status: u8, text: String) -> Self {
        Self { text, json: Value::Null, errors: Vec::new(), status, beside_result: true }
    }

    /// The same answer with another exit status.
    pub(crate) fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// The same answer with one more field in its JSON object.
    pub(crate) fn with(mut self, field: &str, value: &impl Serialize) -> Self {
        self.json[field] = plain(value);
        self
    }

    /// The same answer, of a command that has written its result to stdout.
    pub(crate) fn beside_result(mut self) -> Self {
        self.beside_result = true;
        self
    }

    /// Prints it, and turns it into the exit status.
    pub(crate) fn end(&self, as_json: bool) -> ExitCode {
        let written = match (as_json, self.beside_result) {
            (true, _) => print(&format!("{}\n", self.json)),
            (false, false) => print(&self.text),
            (false, true) => {
                complain(self.text.trim_end());
                true
            }
        };
        self.errors.iter().for_each(|error| complain(error));
        ExitCode::from(if written { self.status } else { INVALID_INPUT })
    }
}

fn plain(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("plain data with string keys")
}

/// The reason why a command cannot do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments make no sense: status 2.
    Usage(String),
    /// Something cannot be read, opened or written: status 3.
    Input(String),
    /// A program could not be run: a status that is none of most programs.
    Started(u8, String),
}

/// Says why a program could not be run, and turns that into the exit status.
pub(crate) fn not_started(status: u8, message: &str) -> ExitCode {
    complain(&format!("pagewise: {message}"));
    ExitCode::from(status)
}

/// Says why a command cannot do its work, and turns that into the exit status.
pub(crate) fn invalid_input(message: &str, as_json: bool) -> ExitCode {
    complain(&format!("pagewise: {message}"));
    failed(INVALID_INPUT, message, as_json)
}

/// The exit status of a failure that stderr tells of already. With `--json`, prints its object.
pub(crate) fn failed(status: u8, message: &str, as_json: bool) -> ExitCode {
    if as_json {
        print(&format!("{}\n", json!({ "ok": false, "status": status, "error": message })));
    }
    ExitCode::from(status)
}

fn complain(message: &str) {
    // A failure here has no place to be told.
    _ = writeln!(io::stderr(), "{message}");
}

/// Prints to stdout; whether that was possible. A reader that has seen enough, as `head` has, is no
/// failure: the status still says what was found.
fn print(output: &str) -> bool {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("pagewise: cannot write the result: {error}"));
            false
        }
        _ => true,
    }
}
