//! Usage errors: each shows the usage of the subcommand that it is about.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Error, Parser as _};

use crate::args::Cli;
use crate::status::{self, USAGE};

/// The parsed arguments of this process; else prints why not, or the help that they ask for.
pub(crate) fn parsed() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|mut error| {
        if !error.use_stderr() {
            // Help, or the version.
            _ = error.print();
            return ExitCode::SUCCESS;
        }
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        if error.get(ContextKind::Usage).is_none() {
            // The parser shows no usage for a wrong value.
            let usage = subcommand_in(&arguments).render_usage();
            error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
        }
        failed(&error, arguments.iter().any(|argument| argument == "--json"))
    })
}

/// A usage error that the parser could not know of. `subcommand`: its name, if there is one.
pub(crate) fn error(subcommand: Option<&str>, message: &str) -> Error {
    find(|name| Some(name) == subcommand).error(ErrorKind::InvalidValue, message)
}

/// Prints a usage error; as JSON too, then without the usage.
pub(crate) fn failed(error: &Error, as_json: bool) -> ExitCode {
    // A failure here has no place to be told.
    _ = error.print();
    let text = error.render().to_string();
    let message = text.split("\n\nUsage:").next().unwrap_or(&text);
    let message = message.strip_prefix("error: ").unwrap_or(message).trim();
    status::failed(USAGE, message, as_json)
}

/// The subcommand that the arguments name first, or the command itself.
fn subcommand_in(arguments: &[OsString]) -> Command {
    // The command itself has no option with a value.
    let is_name = |argument: &&OsString| !argument.to_string_lossy().starts_with('-');
    let first = arguments.iter().find(is_name);
    find(|name| first.is_some_and(|first| first == name))
}

/// The subcommand with such a name, or the command itself.
fn find(wanted: impl Fn(&str) -> bool) -> Command {
    let mut command = Cli::command();
    // Gives subcommands their full names and the options that all of them have.
    command.build();
    let found = command.get_subcommands().find(|subcommand| wanted(subcommand.get_name())).cloned();
    found.unwrap_or(command)
}
