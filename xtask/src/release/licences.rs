//! Dependencies have the licences and the sources that `deny.toml` allows.

use std::path::PathBuf;
use std::process::Command;

use crate::command::{Outcome, cargo, run, succeeds, target_directory};

/// The release that is installed where there is none. Its default features fetch advisories, which
/// this check leaves to the scheduled job.
const VERSION: &str = "0.20.2";

/// Licences, duplicate versions and sources. Installs cargo-deny in the target directory if the
/// machine has none.
pub(crate) fn check() -> Outcome {
    let program = match succeeds(Command::new("cargo-deny").arg("--version")) {
        true => PathBuf::from("cargo-deny"),
        false => installed()?,
    };
    let what = ["--log-level", "error", "check", "licenses", "bans", "sources"];
    run(Command::new(program).args(what))
}

/// The program in the target directory, from an earlier run or made now.
fn installed() -> Outcome<PathBuf> {
    let tools = target_directory()?.join("tools");
    let program = tools.join("bin/cargo-deny");
    if !program.exists() {
        let mut install = cargo(&["install", "cargo-deny", "--version", VERSION, "--locked"]);
        install.args(["--no-default-features", "--quiet", "--root"]).arg(&tools);
        // It runs once: optimising it takes longer than it saves.
        run(install.args(["--profile", "dev", "--target-dir"]).arg(tools.join("build")))?;
    }
    Ok(program)
}
