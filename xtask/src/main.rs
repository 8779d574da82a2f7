//! The project's commands.
//!
//! `cargo xtask test` runs every test; `cargo xtask ci` runs everything that must hold before a
//! change lands. Needs nothing but Rust.

mod checks;
mod command;
mod harness;
mod suite;
mod tally;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use command::Outcome;

#[derive(Parser)]
#[command(about = "The project's commands")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs every test of the workspace, shuffled and on 8 threads, then the doctests.
    Test {
        /// The order of an earlier run: the number that it printed.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Formatting, lints, features, tests, documentation, dependency proofs, the main command.
    Ci,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test { seed } => suite::run(seed),
        Task::Ci => ci(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The cheapest first, so that what fails often fails soon.
fn ci() -> Outcome {
    checks::formatting()?;
    checks::dependencies()?;
    checks::lints()?;
    checks::features()?;
    checks::cudarc()?;
    checks::documentation()?;
    checks::main_command()?;
    checks::determinism()?;
    checks::schedules()?;
    suite::run(None)
}
