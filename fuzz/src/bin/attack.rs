//! A command that runs one target for a number of calls and reports the outcome.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use pagewise_fuzz::campaign::{self, Plan, Turn};
use pagewise_fuzz::{Choices, TARGETS, target};

/// Attacks one target. The status is 1 if anything panicked or memory grew, 3 if a call hung.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which target: `hal`, `c_abi` and so on.
    target: String,
    /// How many calls.
    #[arg(long, default_value_t = 1_000_000)]
    calls: u64,
    /// On how many threads.
    #[arg(long, default_value_t = 8)]
    threads: u64,
    /// Where the bytes come from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Seconds after which a call counts as hanging.
    #[arg(long, default_value_t = 30)]
    call_limit: u64,
    /// Makes this round alone, on one thread.
    #[arg(long)]
    round: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(target) = target(&arguments.target) else {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("there is no target {}: take one of {}", arguments.target, names.join(", "));
        return ExitCode::from(2);
    };
    if let Some(round) = arguments.round {
        let bytes = Choices::bytes_of(arguments.seed, round, target.round_bytes);
        println!("{}", campaign::round(target, &bytes));
        return ExitCode::SUCCESS;
    }
    let outcome = Turn::take().run(
        target,
        Plan {
            calls: arguments.calls,
            threads: arguments.threads,
            seed: arguments.seed,
            call_limit: Duration::from_secs(arguments.call_limit),
            progress: Some(Duration::from_secs(10)),
        },
    );
    println!("{outcome}");
    match outcome.failure() {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            eprintln!("{}: {failure}", target.name);
            ExitCode::FAILURE
        }
    }
}
