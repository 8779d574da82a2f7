//! Every test of the workspace, counted.

use crate::command::{Outcome, cargo, output, watch};

/// Tests that ran.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    passed: u64,
    failed: u64,
}

/// Runs the tests by nextest if it is there, then the doctests, and prints the sum alone on a line.
pub(crate) fn run() -> Outcome {
    let mut counts = Counts::default();
    let nextest = output(&mut cargo(&["nextest", "--version"])).is_ok();
    let units = if nextest {
        println!("cargo-nextest is there: using it");
        let arguments = ["nextest", "run", "--workspace", "--all-features", "--no-fail-fast"];
        watch(cargo(&arguments).env("CARGO_TERM_COLOR", "never"), |line| counts.add_nextest(line))?
    } else {
        println!("cargo-nextest is not installed: using cargo test");
        let arguments =
            ["test", "--workspace", "--all-features", "--all-targets", "--no-fail-fast"];
        watch(&mut cargo(&arguments), |line| counts.add_cargo_test(line))?
    };
    let arguments = ["test", "--doc", "--workspace", "--all-features", "--no-fail-fast"];
    let docs = watch(&mut cargo(&arguments), |line| counts.add_cargo_test(line))?;
    println!("\n{} passed, {} failed", counts.passed, counts.failed);
    if !(units && docs) {
        return Err("tests failed".to_owned());
    }
    if counts.passed == 0 {
        return Err("no test ran".to_owned());
    }
    Ok(())
}

impl Counts {
    /// `Summary [1.2s] 100 tests run: 99 passed, 1 failed, 0 skipped`
    fn add_nextest(&mut self, line: &str) {
        if line.trim_start().starts_with("Summary ") {
            self.add(line);
        }
    }

    /// `test result: ok. 5 passed; 0 failed; 0 ignored; …`
    fn add_cargo_test(&mut self, line: &str) {
        if line.starts_with("test result:") {
            self.add(line);
        }
    }

    fn add(&mut self, line: &str) {
        let count = |what: &str| {
            let before = line.split(what).next().filter(|before| before.len() < line.len())?;
            before.split_whitespace().next_back()?.parse::<u64>().ok()
        };
        self.passed += count(" passed").unwrap_or(0);
        self.failed += count(" failed").unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_runners_summaries_are_counted() {
        let mut counts = Counts::default();
        counts.add_nextest(
            "     Summary [   1.2s] 100 tests run: 97 passed (2 slow), 3 failed, 1 skipped",
        );
        counts.add_cargo_test("test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured");
        counts.add_cargo_test("some test printed 7 passed");
        assert_eq!((counts.passed, counts.failed), (102, 3));
    }
}
