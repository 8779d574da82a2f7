//! The managers beside the projects that they are modelled on: random scenarios that those
//! projects' own Python has carried out.

use std::env;
use std::process::Command;

use crate::command::{Outcome, cargo, run, target_directory};

/// The status of `tests/peers/run` where Python or the registry of packages cannot be used.
const UNAVAILABLE: i32 = 75;

/// Compares every peer. Where its packages cannot be had, says so and goes on, unless this is CI
/// (the variable `CI` is set), which has to have them.
pub(crate) fn check() -> Outcome {
    run(&mut cargo(&["build", "--quiet", "--locked", "--package", "pagewise-peers"]))?;
    let script = "tests/peers/run";
    let status = Command::new(script).arg(target_directory()?).status();
    let status = status.map_err(|error| format!("{script}: {error}"))?;
    match (status.code(), env::var_os("CI").is_some()) {
        (Some(0), _) => Ok(()),
        (Some(UNAVAILABLE), false) => {
            println!("skipped: the peers' packages cannot be had (above)");
            Ok(())
        }
        _ => Err(format!("{script}: {status}")),
    }
}
