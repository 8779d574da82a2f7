//! The `pagewise` command: replays recordings of real GPUs and says what agrees.
//!
//! Exit status: 0 all agree, 1 something diverges, 2 usage, 3 a trace cannot be read or exceeds a
//! limit; of `run`, the program's. Results go to stdout, everything else to stderr.
// Numbers come from files and arguments of the caller.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod args;
#[cfg(feature = "calibrate")]
mod calibrate;
mod compare;
mod divergence;
mod doctor;
mod inputs;
mod manual;
mod output;
mod page_map;
mod profiles;
mod programs;
mod progress;
mod record;
mod run;
mod shipped;
mod signals;
mod sim_target;
mod standard;
mod status;
mod table;
mod target;
mod usage;
mod verdict;

use std::process::ExitCode;
use std::time::Duration;

use args::{Command, Replay};
use pagewise_sim::RangeReads;
use pagewise_trace::limits::WorkLimits;
use pagewise_trace::report::Report;
use pagewise_trace::run::{Input, Options, Target};
use progress::{Progress, Unit};
use sim_target::SimTarget;
use status::{Answer, Failure};
use target::ChosenTarget;

fn main() -> ExitCode {
    let cli = match usage::parsed() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let json = cli.json;
    let answer = match &cli.command {
        Some(Command::Replay(args)) => replay_traces(args),
        #[cfg(feature = "calibrate")]
        Some(Command::Calibrate(args)) => calibrate::calibrate(args, json),
        Some(Command::Profiles { profile }) => profiles::profiles(profile.as_deref()),
        Some(Command::Verdict(args)) => verdict::verdict(args),
        Some(Command::Doctor(args)) => Ok(doctor::doctor(args.max_version)),
        Some(Command::Record(args)) => record::record(args, json),
        Some(Command::Compare(args)) => compare::compare(args),
        Some(Command::Run(args)) => run::run(args, json),
        Some(Command::Completions { shell }) => Ok(manual::completions(*shell)),
        Some(Command::Man) => Ok(manual::page()),
        None => replay_shipped(),
    };
    match answer {
        Ok(answer) => answer.end(json),
        Err(Failure::Input(message)) => status::invalid_input(&message, json),
        Err(Failure::Usage(message)) => {
            let subcommand = cli.command.as_ref().map(Command::name);
            usage::failed(&usage::error(subcommand, &message), json)
        }
        Err(Failure::Started(status, message)) => status::not_started(status, &message),
    }
}

fn replay_traces(args: &Replay) -> Result<Answer, Failure> {
    let reads = args.range_reads.map(RangeReads::from);
    let target = ChosenTarget::new(args.backend, args.profile.as_deref(), reads, true)?;
    let target = target.seeded(args.seed);
    let options = Options {
        clock: args.clock.into(),
        max_time_error: args.max_time_error,
        limits: (&args.limits).into(),
        jobs: args.jobs,
    };
    let sources = inputs::sources(&args.traces)?;
    let progress = Progress::start("replayed", Unit::Bytes, inputs::total_bytes(&sources));
    let report = replay(inputs::inputs(sources, &progress), &target, options, &progress);
    Ok(Answer::compared(&report, table::full(&report)))
}

/// `pagewise` alone: the recordings that ship with the project, on the simulator.
fn replay_shipped() -> Result<Answer, Failure> {
    let target = SimTarget::new(None, None).map_err(Failure::Usage)?;
    // They come with the command: however slow the machine, they are carried out.
    let limits = WorkLimits { time: Duration::MAX, ..WorkLimits::default() };
    let options = Options { limits, ..Options::default() };
    let progress = Progress::start("replayed", Unit::Bytes, Some(shipped::total_bytes()));
    let report = replay(shipped::inputs(&progress), &target, options, &progress);
    Ok(Answer::compared(&report, table::shipped(&report)))
}

fn replay(
    inputs: Vec<Input<'_>>,
    target: &dyn Target,
    options: Options,
    progress: &Progress,
) -> Report {
    pagewise_trace::run::run(inputs, target, options, &|| progress.case_done())
}
