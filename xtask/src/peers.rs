//! The managers beside the projects that they are modelled on: random scenarios that those
//! projects' own Python has carried out.

use crate::command::{Outcome, cargo, run, script};

/// Compares every peer. Where its packages cannot be had, says so and goes on, unless this is CI.
pub(crate) fn check() -> Outcome {
    run(&mut cargo(&["build", "--quiet", "--locked", "--package", "pagewise-peers"]))?;
    script("tests/peers/run")
}
