//! The project's commands.
//!
//! `cargo xtask test` runs every test; `cargo xtask ci` runs everything that must hold before a
//! change lands. Needs nothing but Rust. `cargo xtask mutants` is for a scheduled job.

mod arrows;
mod checks;
mod circles;
mod clients;
mod command;
mod files;
mod harness;
mod instructions;
mod mutants;
mod peers;
mod prose;
mod release;
mod subject;
mod suite;
mod tally;

use std::process::ExitCode;
use std::time::Instant;

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
        /// The values of property tests in an earlier run; without it the seed chooses them.
        #[arg(long)]
        properties: Option<u64>,
    },
    /// Everything that must hold before a change lands: see CONTRIBUTING.md.
    Ci {
        /// These steps alone, such as `packages`.
        steps: Vec<String>,
    },
    /// Checks the message of a commit: for git, as the hook `commit-msg`.
    CommitMsg {
        /// The file that holds the message.
        message: std::path::PathBuf,
    },
    /// Lists the circles between files of a crate.
    Circles,
    /// Compares the public API of each library with the text in docs/api.
    Api {
        /// Writes the texts anew instead.
        #[arg(long)]
        write: bool,
    },
    /// Lists sentences of comments and documents that hide their subject or their reason.
    Prose,
    /// Plants mutants in the code, and says which of them no test notices.
    Mutants(mutants::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test { seed, properties } => suite::run(seed, properties),
        Task::Ci { steps } => ci(&steps),
        Task::CommitMsg { message } => subject::check(&message),
        Task::Circles => circles::check(),
        Task::Api { write: true } => release::write_public_api(),
        Task::Api { write: false } => release::public_api(),
        Task::Prose => prose::check(),
        Task::Mutants(arguments) => mutants::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// A step of the gate: its name and what it does.
type Step = (&'static str, fn() -> Outcome);

/// The seed of property tests in the gate, where a failure must be the same again. `cargo xtask test`
/// draws other values each time.
const PROPERTIES: u64 = 1;

/// The cheapest first, so that what fails often fails soon.
const STEPS: &[Step] = &[
    ("formatting", checks::formatting),
    ("prose", prose::check),
    ("arrows", arrows::check),
    ("circles", circles::check),
    ("dependencies", checks::dependencies),
    ("lints", checks::lints),
    ("features", checks::features),
    ("cudarc", checks::cudarc),
    ("documentation", checks::documentation),
    ("public API", release::public_api),
    ("packages", release::packages),
    ("peers", peers::check),
    ("clients", clients::check),
    ("main command", checks::main_command),
    ("tests", || suite::run(None, Some(PROPERTIES))),
];

/// Steps that take long and rarely fail: `.ci/slow` names them.
const SLOW_STEPS: &[Step] = &[
    ("licences", release::licences),
    ("oldest compiler", release::oldest_compiler),
    ("cudarc versions", checks::cudarc_versions),
    ("determinism", checks::determinism),
    ("schedules", checks::schedules),
    ("instructions", instructions::check),
];

/// Runs the steps that are named, all of the gate if none is, and prints how long each took; stops
/// at the first that fails.
fn ci(named: &[String]) -> Outcome {
    let all = || STEPS.iter().chain(SLOW_STEPS);
    let known = |name: &String| all().any(|(step, _)| step == name);
    if let Some(unknown) = named.iter().find(|name| !known(name)) {
        let names: Vec<_> = all().map(|(step, _)| *step).collect();
        return Err(format!("there is no step {unknown:?}, but: {}", names.join(", ")));
    }
    let begin = Instant::now();
    let mut times = Vec::new();
    let is_meant = |step: &str| named.iter().any(|name| name == step);
    let meant: Vec<&Step> = match named.is_empty() {
        true => STEPS.iter().collect(),
        false => all().filter(|(name, _)| is_meant(name)).collect(),
    };
    for (name, step) in meant {
        let begin = Instant::now();
        step().map_err(|failure| format!("{name}: {failure}"))?;
        times.push(format!("{name} {} s", begin.elapsed().as_secs()));
    }
    println!("xtask: {} s in all: {}", begin.elapsed().as_secs(), times.join(", "));
    Ok(())
}
