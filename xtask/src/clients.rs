//! The clients that the registries provide, with their own tests, on the simulated driver.

use crate::command::{Outcome, build_workspace, script};

/// Runs every client. Where one cannot be had, says so and goes on, unless this is CI.
pub(crate) fn check() -> Outcome {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    build_workspace()?;
    script("tests/clients/run")
}
