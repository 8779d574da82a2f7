//! The clients that the registries provide, with their own tests, on the simulated driver.

use crate::command::{Outcome, cargo, run, script};

/// Runs every client. Where one cannot be had, says so and goes on, unless this is CI.
pub(crate) fn check() -> Outcome {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let packages = ["pagewise-driver", "pagewise-nvml", "pagewise-cudart-13", "pagewise-cli"];
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    run(cargo(&["build", "--quiet", "--locked"]).args(packages))?;
    script("tests/clients/run")
}
