//! Trying a mutant: the tests that reach it run until one fails.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::group::Group;
use super::list::Number;
use super::tree::cargo_in_tree;
use crate::command::Outcome;
use crate::harness::{self, Binary};

/// How many tests run at once.
const WORKERS: usize = 2;
/// A test that takes longer than this runs after all shorter ones, and alone.
const SHORT: Duration = Duration::from_millis(100);
/// A test hangs that takes this much longer than without a mutant, and a while.
const SLOWER: u32 = 8;
const AT_LEAST: Duration = Duration::from_secs(8);
/// A test that takes more memory counts as one that allocates without end.
const RESIDENT_BYTES_MAX: u64 = 4 << 30;

/// A test, and what it does with no mutant chosen.
#[derive(Debug)]
struct Test {
    binary: usize,
    name: String,
    takes: Duration,
    reaches: BTreeSet<Number>,
}

/// The tests of a group, the shortest first.
#[derive(Debug)]
pub(super) struct Tests {
    binaries: Vec<Binary>,
    tests: Vec<Test>,
}

impl Tests {
    /// Builds the tests, and runs each once with no mutant chosen: all have to pass.
    pub(super) fn of(group: &Group) -> Outcome<Self> {
        let mut command = cargo_in_tree(&["test", "--no-run", "--all-features"]);
        let binaries = harness::build(command.args(&group.tests))?;
        let mut all = Vec::new();
        for (number, binary) in binaries.iter().enumerate() {
            let names = binary.names()?;
            let takes_part = |name: &String| !group.skip.iter().any(|end| name.ends_with(end));
            all.extend(names.into_iter().filter(takes_part).map(|name| (number, name)));
        }
        let tests = on_all_workers(all.len(), |index| {
            let (binary, name) = &all[index];
            run_once(&binaries[*binary], *binary, name, index)
        });
        let mut tests = tests.into_iter().collect::<Outcome<Vec<_>>>()?;
        tests.sort_by_key(|test| test.takes);
        let longest = tests.iter().map(|test| test.takes).max().unwrap_or_default();
        println!("{}: {} tests, the longest takes {longest:.1?}", group.name, tests.len());
        Ok(Self { binaries, tests })
    }

    /// Says of each mutant whether a test notices it. Prints the others as they are found.
    pub(super) fn notice<'m>(
        &self,
        mutants: &[Number],
        name: impl Fn(Number) -> &'m str + Sync,
    ) -> Vec<bool> {
        let done = AtomicUsize::new(0);
        on_all_workers(mutants.len(), |index| {
            let noticed = self.notices(mutants[index]);
            if !noticed {
                println!("missed: {}", name(mutants[index]));
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(100) {
                println!("{done} of {} mutants tried", mutants.len());
            }
            noticed
        })
    }

    fn notices(&self, mutant: Number) -> bool {
        let reaching = || self.tests.iter().filter(|test| test.reaches.contains(&mutant));
        let short = |binary: usize| {
            reaching().filter(move |test| test.binary == binary && test.takes <= SHORT)
        };
        let together = (0..self.binaries.len()).map(|binary| short(binary).collect::<Vec<_>>());
        let alone = reaching().filter(|test| test.takes > SHORT).map(|test| vec![test]);
        let mut runs: Vec<Vec<&Test>> =
            together.chain(alone).filter(|run| !run.is_empty()).collect();
        runs.sort_by_key(|run| run.iter().map(|test| test.takes).sum::<Duration>());
        runs.iter().any(|run| self.fails(run, mutant))
    }

    /// Runs tests of one binary until one fails or hangs.
    fn fails(&self, tests: &[&Test], mutant: Number) -> bool {
        let mut command = command(&self.binaries[tests[0].binary]);
        command.args(["--fail-fast", "--exact"]);
        command.args(tests.iter().map(|test| &test.name));
        command.env("PAGEWISE_MUTANT", mutant.to_string());
        let takes: Duration = tests.iter().map(|test| test.takes).sum();
        !succeeds_within(&mut command, takes * SLOWER + AT_LEAST)
    }
}

/// Calls a function for each number below a count, on several threads.
fn on_all_workers<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(count));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = work(index);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Runs one test with no mutant chosen, and notes what it reaches.
fn run_once(binary: &Binary, number: usize, name: &str, index: usize) -> Outcome<Test> {
    let reached = std::env::temp_dir().join(format!("pagewise-{}-{index}", std::process::id()));
    let begin = Instant::now();
    let mut command = command(binary);
    command.args(["--exact", name]).env("PAGEWISE_MUTANTS_REACHED", &reached);
    if !succeeds_within(&mut command, harness::LONGEST) {
        return Err(format!("{}: {name} fails with no mutant chosen", binary.name));
    }
    let takes = begin.elapsed();
    let reaches = read_reached(&reached)?;
    Ok(Test { binary: number, name: name.to_owned(), takes, reaches })
}

/// Reads the numbers in a file and removes it; no file, no number.
fn read_reached(path: &Path) -> Outcome<BTreeSet<Number>> {
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

fn command(binary: &Binary) -> Command {
    let mut command = binary.command_by(limited);
    command.args(["--test-threads", "1"]);
    // A failure is enough: the smallest example is neither read nor kept.
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true").env("RUST_BACKTRACE", "0");
    command
}

/// Starts a program with a limit of processor time: a mutant that runs for ever ends even if this
/// program was killed and no longer watches it.
fn limited(program: &OsStr) -> Command {
    if !cfg!(unix) {
        return Command::new(program);
    }
    let mut shell = Command::new("sh");
    let line = format!("ulimit -t {}; exec \"$0\" \"$@\"", harness::LONGEST.as_secs());
    shell.args(["-c", &line]).arg(program);
    shell
}

/// The memory that a process holds, in bytes; 0 where `/proc` does not say it.
fn resident_bytes(process: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// How long the threads of a process have waited for a processor, added up; 0 where `/proc` does not
/// say it.
fn waited(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let waited = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok()
    });
    Duration::from_nanos(waited.sum())
}

/// Whether a command ends well in time and takes no more memory than [`RESIDENT_BYTES_MAX`].
fn succeeds_within(command: &mut Command, longest: Duration) -> bool {
    succeeds_with(command, longest, RESIDENT_BYTES_MAX)
}

/// The same with another limit of memory. With the command end the processes that it started.
fn succeeds_with(command: &mut Command, longest: Duration, most_bytes: u64) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let Ok(mut child) = command.spawn() else { return false };
    let begin = Instant::now();
    let mut until = longest;
    for look in 0_u32.. {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => thread::sleep(Duration::from_millis(2)),
            Err(_) => break,
        }
        if begin.elapsed() >= until {
            // A machine with other work to do makes the test slow, and not the mutant.
            until = longest + waited(child.id()).min(longest * SLOWER);
            if begin.elapsed() >= until {
                break;
            }
        }
        // Reading a file takes longer than asking for the end.
        if look % 64 == 63 && resident_bytes(child.id()) > most_bytes {
            break;
        }
    }
    // A process that has ended meanwhile needs no end.
    if cfg!(unix) {
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_worked_on_once_and_results_keep_their_order() {
        assert_eq!(on_all_workers(9, |index| index * 2), [0, 2, 4, 6, 8, 10, 12, 14, 16]);
    }

    #[cfg(unix)]
    #[test]
    fn a_command_that_hangs_does_not_succeed_and_ends() {
        let shell = |line: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            command
        };
        let short = Duration::from_millis(300);
        assert!(succeeds_within(&mut shell("exit 0"), harness::LONGEST));
        assert!(!succeeds_within(&mut shell("exit 1"), harness::LONGEST));
        let begin = Instant::now();
        assert!(!succeeds_within(&mut shell("sleep 60 & sleep 60"), short));
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_command_that_takes_too_much_memory_does_not_succeed_and_ends() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let begin = Instant::now();
        assert!(!succeeds_with(&mut command, harness::LONGEST, 1));
        assert!(begin.elapsed() < Duration::from_secs(30));
        assert!(resident_bytes(std::process::id()) > 1 << 20);
    }

    #[cfg(unix)]
    #[test]
    fn a_limited_command_has_its_arguments_and_its_environment() {
        let shell = || limited(OsStr::new("sh"));
        let mut command = shell();
        command.args(["-c", "test \"$PAGEWISE_GIVEN $1\" = 'a b c'", "sh"]);
        command.env("PAGEWISE_GIVEN", "a");
        assert!(succeeds_within(command.arg("b c"), harness::LONGEST));
        let line = format!("test $(ulimit -t) = {}", harness::LONGEST.as_secs());
        assert!(succeeds_within(shell().args(["-c", &line]), harness::LONGEST));
    }
}
