//! The end of the command: its answer, as text or as JSON, and its exit status.

use std::io::{self, Write};
use std::process::ExitCode;

use pagewise_trace::report::Report;
use serde::Serialize;
use serde_json::{Value, json};

use crate::usage;

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
    /// Whether the result itself went to stdout, so that the text goes to stderr.
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

    /// The same answer with one more field in its JSON object.
    pub(crate) fn with(mut self, field: &str, value: &impl Serialize) -> Self {
        self.json[field] = plain(value);
        self
    }

    /// The same answer, of a command whose result itself went to stdout.
    pub(crate) fn beside_result(mut self) -> Self {
        self.beside_result = true;
        self
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
}

/// Prints the answer or the failure of a subcommand, or of the command without one, and turns it
/// into the exit status.
pub(crate) fn end(
    answer: Result<Answer, Failure>,
    subcommand: Option<&str>,
    as_json: bool,
) -> ExitCode {
    let answer = match answer {
        Ok(answer) => answer,
        Err(Failure::Usage(message)) => {
            return usage::failed(&usage::error(subcommand, &message), as_json);
        }
        Err(Failure::Input(message)) => {
            complain(&format!("pagewise: {message}"));
            return failed(INVALID_INPUT, &message, as_json);
        }
    };
    let written = match (as_json, answer.beside_result) {
        (true, _) => print(&format!("{}\n", answer.json)),
        (false, false) => print(&answer.text),
        (false, true) => {
            complain(answer.text.trim_end());
            true
        }
    };
    answer.errors.iter().for_each(|error| complain(error));
    ExitCode::from(if written { answer.status } else { INVALID_INPUT })
}

/// The status of a failure that was told on stderr already; as JSON it is an object on stdout too.
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
