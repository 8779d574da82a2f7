//! The `pagewise` command: replays recordings of real GPUs and says what agrees.
//!
//! Exit status: 0 all agree, 1 something diverges, 2 usage, 3 a trace cannot be read or exceeds a
//! limit. Results go to stdout, everything else to stderr.
// Numbers come from files and arguments of the caller.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod args;
#[cfg(feature = "calibrate")]
mod calibrate;
mod compare;
mod doctor;
mod inputs;
mod output;
mod profiles;
mod progress;
mod record;
mod shipped;
mod sim_target;
mod status;
mod table;
mod target;

use std::process::ExitCode;
use std::time::Duration;

use args::{Cli, Command, Replay};
use clap::Parser;
use pagewise_trace::limits::WorkLimits;
use pagewise_trace::report::Report;
use pagewise_trace::run::{Input, Options, Target, run};
use progress::Progress;
use sim_target::SimTarget;
use status::{failed, finish, show, usage};
use target::ChosenTarget;

fn main() -> ExitCode {
    match Cli::parse().command {
        Some(Command::Replay(replay)) => replay_traces(&replay),
        #[cfg(feature = "calibrate")]
        Some(Command::Calibrate(args)) => calibrate::command(&args),
        Some(Command::Profiles { profile }) => show_profiles(profile.as_deref()),
        Some(Command::Doctor(args)) => show(&doctor::doctor(args.max_version)),
        Some(Command::Record(args)) => match record::record(&args) {
            Ok(summary) => show(&summary),
            Err(failure) => failed(failure),
        },
        Some(Command::Compare(args)) => match compare::compare(&args) {
            Ok((report, text)) => finish(&report, &if args.json { json(&report) } else { text }),
            Err(failure) => failed(failure),
        },
        None => replay_shipped(),
    }
}

fn replay_traces(args: &Replay) -> ExitCode {
    let reads = args.range_reads.into();
    let target = ChosenTarget::new(args.backend, args.profile.as_deref(), reads, true);
    let target = match target.map(|target| target.seeded(args.seed)) {
        Ok(target) => target,
        Err(failure) => return failed(failure),
    };
    let options = Options {
        clock: args.clock.into(),
        max_time_error: args.max_time_error,
        limits: (&args.limits).into(),
    };
    let report = replay(inputs::inputs(&args.traces), &target, options);
    let output = if args.json { json(&report) } else { table::full(&report) };
    finish(&report, &output)
}

fn show_profiles(profile: Option<&str>) -> ExitCode {
    let text = match profile {
        None => profiles::list(),
        Some(profile) => match profiles::document(profile) {
            Ok(text) => text,
            Err(message) => usage(&message),
        },
    };
    show(&text)
}

/// `pagewise` alone: the recordings that ship with the project, on the simulator.
fn replay_shipped() -> ExitCode {
    let reads = args::RangeReadsArg::Driver.into();
    let target = match SimTarget::new(None, reads) {
        Ok(target) => target,
        Err(message) => usage(&message),
    };
    // They come with the command: however slow the machine, they are carried out.
    let limits = WorkLimits { time: Duration::MAX, ..WorkLimits::default() };
    let report = replay(shipped::inputs(), &target, Options { limits, ..Options::default() });
    finish(&report, &table::shipped(&report))
}

fn replay(inputs: Vec<Input<'_>>, target: &dyn Target, options: Options) -> Report {
    let progress = Progress::start("replayed");
    let report = run(inputs, target, options, &|| progress.case_done());
    progress.end();
    report
}

fn json(report: &Report) -> String {
    let text = serde_json::to_string(report);
    text.expect("a report is plain data with string keys") + "\n"
}
