//! The managers beside the projects that they are modelled on: random scenarios that those
//! projects' own Python has carried out.

use crate::command::{Outcome, build_workspace, script};

/// Compares every peer. Where its packages cannot be had, says so and goes on, unless this is CI.
pub(crate) fn check() -> Outcome {
    build_workspace()?;
    script("tests/peers/run")
}
