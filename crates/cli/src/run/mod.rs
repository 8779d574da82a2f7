//! `pagewise run`: any program on a simulated driver, and what moved.

mod child;
mod loader;
mod start;
mod summary;
mod sweep;
mod traces;

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};

use self::loader::Loader;
use self::start::{OWN_FAILURE, not_started};
use self::summary::Summary;
use crate::args::Run;
use crate::output::write_file;
use crate::status::{Answer, Failure};

/// Shells add this to the number of the signal that ended a program.
const BY_SIGNAL: i32 = 128;

/// Runs a program to its end. The answer's status is the program's.
pub(crate) fn run(args: &Run, as_json: bool) -> Result<Answer, Failure> {
    if args.sweep.sweep {
        return sweep::sweep(args, &options(args)?);
    }
    if as_json {
        let message = "--json and the program both want stdout: use --summary FILE";
        return Err(Failure::Usage(message.to_owned()));
    }
    let options = options(args)?;
    let own = |why: String| Failure::Started(OWN_FAILURE, why);
    let loader = Loader::new().map_err(own)?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    loader.prepare(&mut command, &options, args.trace.is_some());
    let status = child::run(&mut command).map_err(|error| not_started(&args.command[0], &error))?;
    let exit = exit_of(status);
    let summary = Summary::collect(loader.folder(), exit).map_err(own)?;
    if let Some(path) = &args.trace {
        traces::write(loader.folder(), path)?;
    }
    if let Some(path) = &args.summary {
        write_file(path, format!("{}\n", summary.json()).as_bytes())?;
    }
    Ok(Answer::of_program(u8::try_from(exit).unwrap_or(OWN_FAILURE), summary.to_string()))
}

fn exit_of(status: ExitStatus) -> i32 {
    let by_signal = || status.signal().map(|signal| BY_SIGNAL.saturating_add(signal));
    status.code().or_else(by_signal).unwrap_or(i32::from(OWN_FAILURE))
}

/// The options of the simulated driver, as text: later ones win over those of the environment.
fn options(args: &Run) -> Result<String, Failure> {
    let mut options = std::env::var(loader::OPTIONS).unwrap_or_default();
    let mut set = |key: &str, value: Option<String>| -> Result<(), Failure> {
        let Some(value) = value else { return Ok(()) };
        if value.contains('"') {
            return Err(Failure::Usage(format!("{key} {value}: a value cannot hold quotes")));
        }
        options.push_str(&format!(" {key}=\"{value}\""));
        Ok(())
    };
    set("profile", args.profile.clone())?;
    set("devices", args.devices.map(|count| count.to_string()))?;
    set("version", args.driver.map(|version| version.to_string()))?;
    set("memory", args.memory.map(|bytes| bytes.to_string()))?;
    set("host_faults", args.host_faults.clone())?;
    set("seed", args.seed.map(|seed| seed.to_string()))?;
    set("faults", args.faults.as_ref().map(|path| path.display().to_string()))?;
    Ok(options)
}
