//! Packages build with the oldest compiler that they promise to build with.

use std::process::Command;

use super::published;
use crate::command::{Outcome, run, succeeds};

/// Checks every package, with all features, by the compiler of its `rust-version`. Says so and goes
/// on if that compiler is not here and cannot be fetched.
pub(crate) fn check() -> Outcome {
    let packages = published()?;
    let version = &packages[0].rust_version;
    if packages.iter().any(|package| package.rust_version != *version) {
        return Err("packages differ in rust-version: set it in the workspace".to_owned());
    }
    if !is_there(version) && !fetch(version) {
        println!("skipped: Rust {version} is not here and cannot be fetched");
        return Ok(());
    }
    let mut check = Command::new("rustup");
    // A folder of its own: what another compiler built cannot be used.
    check.args(["run", version, "cargo", "check", "--quiet", "--locked", "--all-features"]);
    check.args(["--target-dir", "target/oldest"]);
    check.args(packages.iter().flat_map(|package| ["--package", &package.name]));
    // rustup sets these for the compiler that builds this program.
    for variable in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC"] {
        check.env_remove(variable);
    }
    run(&mut check)
}

fn is_there(version: &str) -> bool {
    succeeds(Command::new("rustup").args(["run", version, "rustc", "--version"]))
}

fn fetch(version: &str) -> bool {
    let install = ["toolchain", "install", version, "--profile", "minimal", "--no-self-update"];
    succeeds(Command::new("rustup").args(install))
}
