//! `pagewise run --sweep`: a program runs once for each call of the driver, with that call failing.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pagewise_hal::code_name;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use super::loader::Loader;
use super::start::{OWN_FAILURE, not_started};
use crate::args::{Run, SweepArgs};
use crate::signals::when_asked_to_end;
use crate::status::{Answer, Failure};

/// The status if some run crashed or hung.
const BROKEN: u8 = 1;

/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(5);

/// Whether the user interrupted the sweep.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The end of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum End {
    Exit(i32),
    Signal(i32),
    TimedOut,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => write!(f, "status {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::TimedOut => f.write_str("timed out"),
        }
    }
}

/// The outcome of one run: its end, and a digest of what it printed on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outcome {
    end: End,
    output: u64,
}

/// One call that fails: a function, and which of its calls, from 0.
#[derive(Debug, Serialize)]
struct Site {
    call: String,
    nth: u64,
}

/// One run of the sweep.
#[derive(Debug, Serialize)]
struct Swept {
    #[serde(flatten)]
    site: Site,
    end: End,
    same_output: bool,
}

/// A sweep, as its JSON object has it.
#[derive(Debug, Serialize)]
struct Report {
    code: i32,
    without_fault: End,
    runs: Vec<Swept>,
    left_out: usize,
}

/// Sweeps a program. The status is 1 if a run crashed or hung.
pub(super) fn sweep(args: &Run, options: &str) -> Result<Answer, Failure> {
    if args.trace.is_some() || args.summary.is_some() {
        let message = "--sweep runs the program many times: --trace and --summary are of one run";
        return Err(Failure::Usage(message.to_owned()));
    }
    // Without it, an interrupted sweep leaves a program running: no reason to refuse.
    _ = when_asked_to_end(|| INTERRUPTED.store(true, Ordering::Relaxed));
    let own = |why: String| Failure::Started(OWN_FAILURE, why);
    let loader = Loader::new().map_err(own)?;
    let runner = Runner { args, loader: &loader, timeout: args.sweep.timeout };
    let folder = loader.folder().display().to_string();
    let without = runner.run(&format!("{options} calls=\"{folder}\""))?;
    if !matches!(without.end, End::Exit(_)) {
        return Err(own(format!("without a fault the program ends by itself: {}", without.end)));
    }
    let mut sites = sites(loader.folder()).map_err(own)?;
    let most = usize::try_from(args.sweep.max).unwrap_or(usize::MAX);
    let left_out = sites.len().saturating_sub(most);
    sites.truncate(most);
    let plan = loader.folder().join("plan.toml");
    let mut runs = Vec::new();
    for site in sites {
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Err(own(format!("interrupted after {} runs", runs.len())));
        }
        write_plan(&plan, &site, args.sweep.code)?;
        let outcome = runner.run(&format!("{options} faults=\"{}\"", plan.display()))?;
        let same_output = outcome.output == without.output;
        runs.push(Swept { site, end: outcome.end, same_output });
    }
    let report = Report { code: args.sweep.code, without_fault: without.end, runs, left_out };
    let status = if report.is_broken() { BROKEN } else { 0 };
    Ok(Answer::new(report.text(), &report).with_status(status))
}

/// Runs the program with options of the driver.
struct Runner<'a> {
    args: &'a Run,
    loader: &'a Loader,
    timeout: Duration,
}

impl Runner<'_> {
    fn run(&self, options: &str) -> Result<Outcome, Failure> {
        let path = self.loader.folder().join("stdout");
        let unwritable = |error: std::io::Error| {
            Failure::Started(OWN_FAILURE, format!("{}: {error}", path.display()))
        };
        let stdout = File::create(&path).map_err(unwritable)?;
        let mut command = Command::new(&self.args.command[0]);
        command.args(&self.args.command[1..]);
        self.loader.prepare(&mut command, options, false);
        // A group of its own, so that a run that hangs ends with all processes that it started.
        command.process_group(0).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
        let mut child =
            command.spawn().map_err(|error| not_started(&self.args.command[0], &error))?;
        let end = wait(&mut child, self.timeout)
            .map_err(|error| Failure::Started(OWN_FAILURE, error.to_string()))?;
        Ok(Outcome { end, output: digest(&path).map_err(unwritable)? })
    }
}

/// Waits for the end of a run, and ends it itself after the timeout.
fn wait(child: &mut Child, timeout: Duration) -> std::io::Result<End> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let by_signal = status.signal().map(End::Signal);
            return Ok(by_signal.unwrap_or(End::Exit(status.code().unwrap_or_default())));
        }
        if begin.elapsed() >= timeout || INTERRUPTED.load(Ordering::Relaxed) {
            let group = Pid::from_child(child);
            // The program may end in this moment; then there is no group any more.
            _ = kill_process_group(group, Signal::KILL);
            child.wait()?;
            return Ok(End::TimedOut);
        }
        sleep(POLL);
    }
}

/// A digest of a file.
fn digest(path: &Path) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let mut hasher = DefaultHasher::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(hasher.finish());
        }
        // Pieces may be of any length: the digest must not depend on where one ends.
        piece.iter().take(read).for_each(|byte| hasher.write_u8(*byte));
    }
}

/// The calls that the processes of a run made: the first of each function, then the second of each.
/// If several processes called a function, the most calls of one count, as each has its own plan.
fn sites(folder: &Path) -> Result<Vec<Site>, String> {
    let unreadable = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with("calls-") {
            continue;
        }
        let text = std::fs::read_to_string(&path).map_err(unreadable)?;
        for line in text.lines() {
            let (function, count) = line.split_once(' ').unwrap_or((line, "0"));
            let most = calls.entry(function.to_owned()).or_default();
            *most = (*most).max(count.parse().unwrap_or(0));
        }
    }
    let most = calls.values().copied().max().unwrap_or(0);
    let mut sites = Vec::new();
    for nth in 0..most.min(u64::from(SweepArgs::MAX)) {
        let made = calls.iter().filter(|(_, count)| **count > nth);
        sites.extend(made.map(|(call, _)| Site { call: call.clone(), nth }));
    }
    Ok(sites)
}

fn write_plan(path: &Path, Site { call, nth }: &Site, code: i32) -> Result<(), Failure> {
    let text = format!("[[fault]]\ncall = \"{call}\"\nnth = {nth}\ncode = {code}\n");
    std::fs::write(path, text)
        .map_err(|error| Failure::Started(OWN_FAILURE, format!("{}: {error}", path.display())))
}

impl Report {
    fn is_broken(&self) -> bool {
        self.runs.iter().any(|run| !matches!(run.end, End::Exit(_)))
    }

    fn count(&self, is: impl Fn(&Swept) -> bool) -> usize {
        self.runs.iter().filter(|run| is(run)).count()
    }

    /// The table for people: calls of a function in a row that end the same share a line.
    fn text(&self) -> String {
        let code = code_name(self.code).unwrap_or("a code that cuda.h does not name");
        let mut text = format!(
            "Without a fault: {}. Each call below returned {} ({code}) in a run of its own.\n\n",
            self.without_fault, self.code
        );
        let mut by_function: BTreeMap<&str, Vec<&Swept>> = BTreeMap::new();
        for run in &self.runs {
            by_function.entry(&run.site.call).or_default().push(run);
        }
        let width = by_function.keys().map(|name| name.len()).max().unwrap_or(0);
        for (function, runs) in by_function {
            for same in runs.chunk_by(|a, b| (a.end, a.same_output) == (b.end, b.same_output)) {
                let (Some(first), Some(last)) = (same.first(), same.last()) else { continue };
                let calls = match (first.site.nth, last.site.nth) {
                    (from, to) if from == to => format!("call {from}"),
                    (from, to) => format!("calls {from} to {to}"),
                };
                let output = if first.same_output { "same output" } else { "other output" };
                let end = first.end.to_string();
                _ = writeln!(text, "{function:width$}  {calls:16}  {end:10}  {output}");
            }
        }
        text + "\n" + &self.sums()
    }

    fn sums(&self) -> String {
        let hung = self.count(|run| run.end == End::TimedOut);
        let crashed = self.count(|run| matches!(run.end, End::Signal(_)));
        let as_before = |run: &Swept| run.end == self.without_fault;
        let unseen = self.count(|run| as_before(run) && run.same_output);
        let other = self.count(|run| as_before(run) && !run.same_output);
        let reported = self.count(|run| matches!(run.end, End::Exit(_)) && !as_before(run));
        let mut text = format!(
            "{} runs: {reported} ended with another status, {other} as without a fault but with \
             other output, {unseen} as without a fault, {crashed} by a signal, {hung} timed out.\n",
            self.runs.len()
        );
        if self.left_out > 0 {
            _ = writeln!(text, "{} calls were left out: --sweep-max is the limit.", self.left_out);
        }
        text
    }
}
