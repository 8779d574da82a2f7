//! The results of tests, read off the output of the standard library's harness.
//!
//! A test that cannot check its claim on this machine prints a line `skipped: WHY`; one that checks
//! only a part of it, `partly skipped: WHY`.

use std::fmt;

const SKIPPED: &str = "skipped: ";
const PARTLY: &str = "partly skipped: ";

/// Tests that ran.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    pub(crate) failed: usize,
    skips: Vec<Skip>,
}

/// A test that did not check all of its claim.
#[derive(Debug, PartialEq, Eq)]
struct Skip {
    test: String,
    why: String,
    is_whole: bool,
}

impl Tally {
    /// Adds what one program of tests printed.
    pub(crate) fn add(&mut self, program: &str, text: &str, succeeded: bool) {
        let failed_before = self.failed;
        let (mut test, mut of_passed) = (None, false);
        for line in text.lines() {
            match line {
                "successes:" => (test, of_passed) = (None, true),
                "failures:" => (test, of_passed) = (None, false),
                _ if line.starts_with("test result: ") => self.add_counts(line),
                _ => {}
            }
            if let Some(name) =
                line.strip_prefix("---- ").and_then(|l| l.strip_suffix(" stdout ----"))
            {
                test = Some(name);
            }
            if let Some((name, why)) = ignored(line) {
                // The harness does not count it as passed.
                self.passed += 1;
                self.skip(program, name, why, true);
            } else if let Some(name) = test.filter(|_| of_passed) {
                if let Some(why) = line.strip_prefix(SKIPPED) {
                    self.skip(program, name, why, true);
                } else if let Some(why) = line.strip_prefix(PARTLY) {
                    self.skip(program, name, why, false);
                }
            }
        }
        // It ended before it said what failed.
        if !succeeded && self.failed == failed_before {
            self.failed += 1;
        }
    }

    /// `test result: ok. 5 passed; 0 failed; 0 ignored; …`
    fn add_counts(&mut self, line: &str) {
        let count = |what: &str| {
            let (before, _) = line.split_once(what)?;
            before.rsplit(' ').next()?.parse::<usize>().ok()
        };
        self.passed += count(" passed").unwrap_or(0);
        self.failed += count(" failed").unwrap_or(0);
    }

    /// Notes the first reason of each test.
    fn skip(&mut self, program: &str, test: &str, why: &str, is_whole: bool) {
        let test = format!("{program} {test}");
        if self.skips.iter().all(|skip| skip.test != test) {
            self.skips.push(Skip { test, why: why.to_owned(), is_whole });
        }
    }

    fn skipped(&self) -> usize {
        self.skips.iter().filter(|skip| skip.is_whole).count()
    }

    /// Tests that checked their claim, or a part of it.
    pub(crate) fn passed(&self) -> usize {
        self.passed.saturating_sub(self.skipped())
    }
}

/// `test NAME ... ignored, WHY`
fn ignored(line: &str) -> Option<(&str, &str)> {
    let (name, why) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    Some((name, why.strip_prefix(", ").unwrap_or("ignored")))
}

impl fmt::Display for Tally {
    /// Each skipped test with its reason, then the counts alone on a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Skip { test, why, is_whole } in &self.skips {
            writeln!(f, "{}{test}: {why}", if *is_whole { SKIPPED } else { PARTLY })?;
        }
        write!(f, "{} passed, {} failed, {} skipped", self.passed(), self.failed, self.skipped())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const TEXT: &str = "
running 5 tests
test a ... ok
test b ... ok
test c ... ok
test d ... ignored, takes an hour
test e ... FAILED

successes:

---- a stdout ----
CUDA 12.0
skipped: no driver
skipped: no driver

---- c stdout ----
partly skipped: no records

successes:
    a
    b
    c

failures:

---- e stdout ----
skipped: before it failed

failures:
    e

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
";

    #[test]
    fn what_was_skipped_is_counted_apart_and_listed_with_its_reason() {
        let mut tally = Tally::default();
        tally.add("x", TEXT, false);
        let expected = "skipped: x d: takes an hour\nskipped: x a: no driver\n\
            partly skipped: x c: no records\n2 passed, 1 failed, 2 skipped";
        assert_eq!(tally.to_string(), expected);
        assert_eq!(tally.passed(), 2);
    }

    #[test]
    fn a_program_that_ends_without_a_result_counts_as_a_failure() {
        let mut tally = Tally::default();
        tally.add("x", "running 2 tests\ntest a ... ok\n", false);
        tally.add("y", "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured", true);
        assert_eq!(tally.to_string(), "5 passed, 1 failed, 0 skipped");
    }

    /// Only if it is told to: it is run by the next test.
    #[test]
    fn says_that_it_was_skipped() {
        if std::env::var_os("XTASK_TEST_SKIPS").is_some() {
            println!("skipped: the harness is tried");
        }
    }

    #[test]
    fn the_harness_prints_what_is_read_here() {
        let this = std::env::current_exe().expect("this program");
        let mut harness = Command::new(this);
        harness.args(["--exact", "tally::tests::says_that_it_was_skipped", "--show-output"]);
        let ran = harness.env("XTASK_TEST_SKIPS", "1").output().expect("it runs");
        let mut tally = Tally::default();
        tally.add("xtask", &String::from_utf8_lossy(&ran.stdout), ran.status.success());
        let expected = "skipped: xtask tally::tests::says_that_it_was_skipped: \
            the harness is tried\n0 passed, 0 failed, 1 skipped";
        assert_eq!(tally.to_string(), expected);
    }
}
