//! The end of the command: what it prints, and its exit status.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;
use pagewise_trace::report::Report;

use crate::args::Cli;

const DIVERGES: u8 = 1;
pub(crate) const INVALID_INPUT: u8 = 3;

/// Prints what was found. Only printing can fail.
pub(crate) fn show(text: &str) -> ExitCode {
    if print(text) { ExitCode::SUCCESS } else { ExitCode::from(INVALID_INPUT) }
}

/// Prints, and turns the result into the exit status.
pub(crate) fn finish(report: &Report, output: &str) -> ExitCode {
    let written = print(output);
    let errors: Vec<&str> =
        report.traces.iter().filter_map(|trace| trace.error.as_deref()).collect();
    let mut stderr = io::stderr().lock();
    for error in &errors {
        // A failure here has no place to be told.
        _ = writeln!(stderr, "{error}");
    }
    match (errors.is_empty() && written, report.ok) {
        (false, _) => ExitCode::from(INVALID_INPUT),
        (true, false) => ExitCode::from(DIVERGES),
        (true, true) => ExitCode::SUCCESS,
    }
}

/// Prints to stdout; whether that was possible. A reader that has seen enough, as `head` has, is no
/// failure: the status still says what was found.
fn print(output: &str) -> bool {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            _ = writeln!(io::stderr(), "pagewise: cannot write the result: {error}");
            false
        }
        _ => true,
    }
}

/// The reason why a command cannot do its work.
pub(crate) enum Failure {
    /// The arguments make no sense: status 2.
    Usage(String),
    /// Something cannot be read, opened or written: status 3.
    Input(String),
}

#[cfg(feature = "calibrate")]
impl Failure {
    pub(crate) fn into_message(self) -> String {
        match self {
            Self::Usage(message) | Self::Input(message) => message,
        }
    }
}

/// Says why, on stderr.
pub(crate) fn failed(failure: Failure) -> ExitCode {
    match failure {
        Failure::Usage(message) => usage(&message),
        Failure::Input(message) => {
            // A failure here has no place to be told.
            _ = writeln!(io::stderr(), "pagewise: {message}");
            ExitCode::from(INVALID_INPUT)
        }
    }
}

/// Ends with a usage error, status 2.
pub(crate) fn usage(message: &str) -> ! {
    Cli::command().error(ErrorKind::InvalidValue, message).exit()
}
