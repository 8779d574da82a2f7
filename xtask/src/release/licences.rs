//! Dependencies have the licences and the sources that `deny.toml` allows.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::command::{Outcome, cargo, metadata, run};

/// The release that is installed where there is none. Its default features fetch advisories, which
/// this check leaves to the scheduled job.
const VERSION: &str = "0.20.2";

/// Licences, duplicate versions and sources. Installs cargo-deny in the target directory if the
/// machine has none.
pub(crate) fn check() -> Outcome {
    let program = match is_there("cargo-deny") {
        true => PathBuf::from("cargo-deny"),
        false => installed()?,
    };
    let what = ["--log-level", "error", "check", "licenses", "bans", "sources"];
    run(Command::new(program).args(what))
}

fn is_there(program: &str) -> bool {
    let mut asked = Command::new(program);
    asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// The program in the target directory, from an earlier run or made now.
fn installed() -> Outcome<PathBuf> {
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str().ok_or("cargo names no target directory")?;
    let tools = PathBuf::from(target).join("tools");
    let program = tools.join("bin/cargo-deny");
    if !program.exists() {
        let mut install = cargo(&["install", "cargo-deny", "--version", VERSION, "--locked"]);
        install.args(["--no-default-features", "--quiet", "--root"]).arg(&tools);
        // It runs once: optimising it takes longer than it saves.
        run(install.args(["--profile", "dev", "--target-dir"]).arg(tools.join("build")))?;
    }
    Ok(program)
}
