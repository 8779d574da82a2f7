//! Every test of the workspace, counted.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::command::{Outcome, cargo};
use crate::harness::{self, Order, Ran};
use crate::tally::Tally;

/// How many tests of a program run at once, whatever the machine has: enough to get in each
/// other's way.
pub(crate) const THREADS: usize = 8;

/// Runs every program of tests, shuffled, then the doctests; prints what was skipped and why, and
/// the sums alone on the last line.
///
/// The seed chooses the order, and the values of property tests unless `properties` does.
pub(crate) fn run(seed: Option<u64>, properties: Option<u64>) -> Outcome {
    let begin = Instant::now();
    let binaries = harness::build_all()?;
    println!("built in {} s", begin.elapsed().as_secs());
    let seed = seed.unwrap_or_else(any_seed);
    let order = Order { threads: THREADS, seed, properties: properties.unwrap_or(seed) };
    let mut tally = Tally::default();
    let mut succeeded = true;
    let mut begin = Instant::now();
    let mut add = |name: &str, ran: Ran| {
        let before = (tally.passed(), tally.failed);
        tally.add(name, &ran.text, ran.succeeded);
        succeeded &= ran.succeeded;
        if !ran.succeeded {
            println!("{}", ran.text);
        }
        let (passed, failed) = (tally.passed() - before.0, tally.failed - before.1);
        let took = begin.elapsed().as_secs_f64();
        println!("{name}: {passed} passed, {failed} failed, {took:.1} s");
        begin = Instant::now();
    };
    let again = format!("--seed {seed} --properties {}", order.properties);
    println!("\n{THREADS} tests at once, shuffled; the same order and values again: {again}");
    for binary in &binaries {
        add(&binary.name, binary.run(order)?);
    }
    add("doctests", doctests()?);
    println!("\n{tally}");
    if !succeeded {
        return Err(format!("tests failed; the same order and values again: {again}"));
    }
    if tally.passed() == 0 {
        return Err("no test ran".to_owned());
    }
    Ok(())
}

/// Examples of the documentation, each a program of its own.
fn doctests() -> Outcome<Ran> {
    let arguments = ["test", "--doc", "--workspace", "--all-features", "--locked"];
    harness::run_within(cargo(&arguments).arg("--no-fail-fast"), harness::LONGEST)
}

/// Another one each time.
fn any_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
