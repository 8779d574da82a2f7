//! Every test of the workspace, counted.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::command::{Outcome, cargo};
use crate::harness::{self, Binary, Order, Ran};
use crate::tally::Tally;

/// How many tests of a program run at once, whatever the machine has: enough to get in each
/// other's way.
pub(crate) const THREADS: usize = 8;

/// How many programs of tests run at once: some have one long test, which leaves processors idle.
const PROGRAMS: usize = 2;

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
    let mut add = |Finished { name, ran, took }: Finished| {
        let before = (tally.passed(), tally.failed);
        tally.add(&name, &ran.text, ran.succeeded);
        succeeded &= ran.succeeded;
        if !ran.succeeded {
            println!("{}", ran.text);
        }
        let (passed, failed) = (tally.passed() - before.0, tally.failed - before.1);
        println!("{name}: {passed} passed, {failed} failed, {:.1} s", took.as_secs_f64());
    };
    let again = format!("--seed {seed} --properties {}", order.properties);
    println!("\n{THREADS} tests at once, shuffled; the same order and values again: {again}");
    run_all(&binaries, order, &mut add)?;
    let begin = Instant::now();
    let ran = doctests()?;
    add(Finished { name: "doctests".to_owned(), ran, took: begin.elapsed() });
    println!("\n{tally}");
    if !succeeded {
        return Err(format!("tests failed; the same order and values again: {again}"));
    }
    if tally.passed() == 0 {
        return Err("no test ran".to_owned());
    }
    Ok(())
}

/// A binary that ran.
struct Finished {
    name: String,
    ran: Ran,
    took: Duration,
}

/// Runs binaries, [`PROGRAMS`] at a time, and gives each when it ends.
fn run_all(binaries: &[Binary], order: Order, add: &mut dyn FnMut(Finished)) -> Outcome {
    let waiting = Mutex::new(binaries.iter());
    let (ended, finished) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..PROGRAMS {
            let (waiting, ended) = (&waiting, ended.clone());
            scope.spawn(move || {
                let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(binary) = next() {
                    let begin = Instant::now();
                    let ran = binary.run(order).map(|ran| Finished {
                        name: binary.name.clone(),
                        ran,
                        took: begin.elapsed(),
                    });
                    if ended.send(ran).is_err() {
                        // Another binary could not be run.
                        return;
                    }
                }
            });
        }
        drop(ended);
        for ran in finished {
            add(ran?);
        }
        Ok(())
    })
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
