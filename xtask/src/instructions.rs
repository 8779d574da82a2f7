//! Counts of instructions of operations, within their budgets.
//!
//! Times here are noisy and counts are not: Valgrind counts the instructions of a program that does
//! an operation so often, and of one that does it more often. The difference is the operation's.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::command::{Outcome, cargo, run, succeeds, target_directory};

/// The budgets.
const BUDGETS: &str = "benches/budgets.toml";

/// An operation may take so much more than its budget.
const TOLERANCE: f64 = 1.05;

#[derive(Debug, Deserialize)]
struct Budgets {
    budget: Vec<Budget>,
}

/// The instructions that an operation may take.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    /// The operation, in words.
    name: String,
    /// The package and the example that do it, and the features of the package.
    package: String,
    example: String,
    #[serde(default)]
    features: String,
    /// The row of the example.
    row: String,
    /// Two counts of operations.
    counts: [u64; 2],
    /// The instructions of one.
    instructions: f64,
}

impl Budget {
    /// The program that does the operation. Those of one package and example take each other's place.
    fn program(&self) -> [&str; 3] {
        [&self.package, &self.example, &self.features]
    }
}

/// Each operation takes at most 5 % more instructions than its budget says.
pub(crate) fn check() -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: budgets are of x86-64");
        return Ok(());
    }
    if !succeeds(Command::new("valgrind").arg("--version")) {
        // CI installs it.
        return match std::env::var_os("CI") {
            Some(_) => Err("valgrind is not installed".to_owned()),
            None => {
                println!("skipped: valgrind is not installed, which counts instructions");
                Ok(())
            }
        };
    }
    let text = fs::read_to_string(BUDGETS).map_err(|error| format!("{BUDGETS}: {error}"))?;
    let budgets: Budgets = toml::from_str(&text).map_err(|error| format!("{BUDGETS}: {error}"))?;
    let folder = target_directory()?.join("release/examples");
    let mut failures = Vec::new();
    for of_program in budgets.budget.chunk_by(|a, b| a.program() == b.program()) {
        build(&of_program[0])?;
        for budget in of_program {
            let spent = spent(budget, &folder)?;
            let share = spent / budget.instructions;
            println!("{:60} {spent:10.1} of {:10.1}", budget.name, budget.instructions);
            if share > TOLERANCE {
                let percent = 100.0 * share;
                failures.push(format!("{} takes {percent:.0} % of its budget", budget.name));
            }
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!("{}; {BUDGETS} says what each may take", failures.join(", "))),
    }
}

/// Builds the example of a budget without link-time optimisation, as the gate builds the rest: a count is for
/// comparison with its budget, and such a build takes a third of the time. An incremental build would
/// inline less.
fn build(budget: &Budget) -> Outcome {
    let [package, example, features] = budget.program();
    let mut cargo = cargo(&["build", "--quiet", "--release", "--locked"]);
    cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_RELEASE_LTO", "off");
    cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    run(cargo.args(["--package", package, "--example", example, "--features", features]))
}

/// The instructions of one operation.
fn spent(budget: &Budget, folder: &Path) -> Outcome<f64> {
    let program = folder.join(&budget.example);
    let [few, many] = budget.counts;
    let count = |operations: u64| count(&program, &budget.row, operations);
    let (few_spent, many_spent) = std::thread::scope(|threads| {
        let few_spent = threads.spawn(|| count(few));
        let many_spent = count(many);
        (few_spent.join().unwrap_or_else(|_| Err("a count panicked".to_owned())), many_spent)
    });
    let (few_spent, many_spent) = (few_spent?, many_spent?);
    Ok((many_spent as f64 - few_spent as f64) / (many as f64 - few as f64))
}

/// The instructions of a program that does so many operations.
fn count(program: &Path, row: &str, operations: u64) -> Outcome<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(program).args([row, &operations.to_string()]);
    let output = valgrind.output().map_err(|error| format!("{valgrind:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split("Collected : ").nth(1));
    let count = collected.and_then(|count| count.trim().parse().ok());
    let count = count.filter(|_| output.status.success());
    count.ok_or_else(|| format!("{valgrind:?} counted nothing ({}): {said}", output.status))
}
