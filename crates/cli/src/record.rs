//! `pagewise record`: carries out a program and writes down what happened.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use pagewise_hal::DriverVersion;
use pagewise_sim::RangeReads;
use pagewise_trace::error::TraceError;
use pagewise_trace::format::{Case, Header, RecordedOn};
use pagewise_trace::limits::WorkLimits;
use pagewise_trace::reader::TraceReader;
use pagewise_trace::record::{Pass, merge, record_within};
use pagewise_trace::run::{Session, Target};
use pagewise_trace::time_limit::TimeLimit;
use pagewise_trace::writer::TraceWriter;
use serde::Serialize;
use tempfile::TempDir;

use crate::args::{BackendArg, PassArg, Record};
use crate::inputs::Source;
use crate::output::{Output, Partial, cannot_write, run_to_end};
use crate::progress::{Progress, Unit};
use crate::standard::is_standard;
use crate::status::{Answer, Failure};
use crate::target::ChosenTarget;

/// The CUDA version for a program without a header.
const DEFAULT_VERSION: DriverVersion = DriverVersion::CUDA_13_0;

/// The extent of a recording.
#[derive(Debug, Serialize)]
struct Recorded {
    output: String,
    family: String,
    cases: u64,
    operations: u64,
}

/// Records, and says what was recorded.
pub(crate) fn record(args: &Record, as_json: bool) -> Result<Answer, Failure> {
    let to_stdout = is_standard(&args.output);
    if to_stdout && as_json {
        let message = "--json and `-o -` both want stdout: write the trace to a file";
        return Err(Failure::Usage(message.to_owned()));
    }
    let observe = args.pass != Some(PassArg::Timed);
    let profile = args.profile.as_deref();
    let target = ChosenTarget::new(args.backend, profile, Some(RangeReads::Driver), observe)?;
    let (source, _copied) = program_source(args)?;
    let progress = Progress::start("recorded", Unit::Bytes, source.bytes());
    let mut program = open_program(&source, args, &progress)?;
    let header = header_of(args, program.header(), &target);
    let mut runs = match (args.backend, args.pass) {
        (BackendArg::Cuda, None) => Runs::InProcesses(Processes::start(args, &source)?),
        _ => Runs::Here(Here::new(args, &target, header.clone(), program.time().clone())),
    };
    let output = Output::create(&args.output)?;
    let writer = TraceWriter::by_extension(output, &args.output, &header);
    let writer = writer.map_err(|error| cannot_write(&args.output, &error))?;
    let (cases, ops) = write_cases(args, &mut program, &mut runs, writer, &progress)?;
    let output = args.output.display().to_string();
    let text = format!("{output}: {ops} operations in {cases} cases, family {}\n", header.family);
    let recorded = Recorded { output, family: header.family, cases, operations: ops };
    let answer = Answer::new(text, &recorded);
    Ok(if to_stdout { answer.beside_result() } else { answer })
}

fn write_cases(
    args: &Record,
    program: &mut TraceReader<'_>,
    runs: &mut Runs<'_>,
    mut writer: TraceWriter<Output>,
    progress: &Progress,
) -> Result<(u64, u64), Failure> {
    let unwritable = |error| cannot_write(&args.output, &error);
    let (mut cases, mut ops) = (0_u64, 0_u64);
    while let Some(case) = program.next_case().map_err(unreadable)? {
        let (observed, timed) = match runs {
            Runs::Here(here) => here.run(&case, &args.program)?,
            Runs::InProcesses(processes) => processes.next(&case)?,
        };
        let recorded = match args.pass {
            Some(PassArg::Timed) => timed.into_iter().next(),
            _ => Some(merge(&observed, &timed).map_err(|why| Failure::Input(why.to_string()))?),
        };
        let Some(recorded) = recorded else { continue };
        writer.whole_case(&recorded).map_err(unwritable)?;
        cases = cases.saturating_add(1);
        ops = ops.saturating_add(recorded.ops.len() as u64);
        progress.case_done();
    }
    writer.finish().map_err(unwritable)?.keep()?;
    Ok((cases, ops))
}

/// The program to carry out. If it comes from standard input and processes of their own are to
/// carry it out, it is a copy, which goes when the folder is dropped.
fn program_source(args: &Record) -> Result<(Source, Option<Partial<TempDir>>), Failure> {
    let source = Source::from(args.program.as_path());
    let in_processes = args.backend == BackendArg::Cuda && args.pass.is_none();
    if source != Source::Stdin || !in_processes {
        return Ok((source, None));
    }
    let folder = Partial::folder().map_err(no_folder)?;
    let path = folder.path().join(format!("{}.jsonl", source.family()));
    let progress = Progress::start("read", Unit::Bytes, None);
    let mut program = open_program(&source, args, &progress)?;
    let unwritable = |error| cannot_write(&path, &error);
    let file = File::create(&path).map_err(unwritable)?;
    let writer = TraceWriter::plain(BufWriter::new(file), program.header());
    let mut writer = writer.map_err(unwritable)?;
    while let Some(case) = program.next_case().map_err(unreadable)? {
        writer.program(&case).map_err(unwritable)?;
        progress.case_done();
    }
    writer.finish().and_then(|mut file| file.flush()).map_err(unwritable)?;
    Ok((Source::File(path), Some(folder)))
}

fn no_folder(error: io::Error) -> Failure {
    Failure::Input(format!("no temporary folder: {error}"))
}

fn open_program<'a>(
    source: &Source,
    args: &Record,
    progress: &'a Progress,
) -> Result<TraceReader<'a>, Failure> {
    let family = source.family();
    let machine = RecordedOn::new(1, DEFAULT_VERSION.0);
    let program = source.program(Header::new(family, machine), progress);
    let times = args.repeat.saturating_add(args.timed_runs);
    Ok(program.map_err(unreadable)?.limited((&args.limits).into(), times))
}

fn header_of(args: &Record, program: &Header, target: &ChosenTarget) -> Header {
    let mut wanted = program.recorded_on.clone();
    wanted.gpus = args.devices.unwrap_or(wanted.gpus);
    wanted.cuda_driver_version =
        args.ceiling.map_or(wanted.cuda_driver_version, |ceiling| ceiling.0);
    let family = args.family.clone().unwrap_or_else(|| program.family.clone());
    let mut header = Header::new(family, target.describe(&wanted));
    (header.runs, header.timed_runs) = (Some(args.repeat), Some(args.timed_runs));
    header
}

fn unreadable(error: TraceError) -> Failure {
    Failure::Input(error.to_string())
}

/// How many observed and timed runs each case gets.
fn runs_of(args: &Record) -> (usize, usize) {
    match args.pass {
        None => (args.repeat as usize, args.timed_runs as usize),
        Some(PassArg::Observed) => (1, 0),
        Some(PassArg::Timed) => (0, 1),
    }
}

/// Where the runs of a case come from: observed ones, then timed ones.
enum Runs<'a> {
    Here(Here<'a>),
    InProcesses(Processes),
}

// ---- in this process --------------------------------------------------------------------------

/// Runs on back ends of this process.
struct Here<'a> {
    target: &'a dyn Target,
    header: Header,
    /// The program's share of the time.
    time: TimeLimit,
    observed: usize,
    /// For each run, the back end that its cases with pools share: pools outlive a case.
    pools: Vec<Option<Session>>,
}

impl<'a> Here<'a> {
    fn new(args: &Record, target: &'a dyn Target, header: Header, time: TimeLimit) -> Self {
        let (observed, timed) = runs_of(args);
        let pools = (0..observed.saturating_add(timed)).map(|_| None).collect();
        Self { target, header, time, observed, pools }
    }

    fn run(&mut self, program: &Case, file: &Path) -> Result<(Vec<Case>, Vec<Case>), Failure> {
        let mut runs = Vec::with_capacity(self.pools.len());
        for run in 0..self.pools.len() {
            let pass = if run < self.observed { Pass::Observed } else { Pass::Timed };
            let session = self.session(run, program)?;
            let recorded = record_within(&*session.backend, program, pass, &self.time);
            if program.uses_pools() {
                self.pools[run] = Some(session);
            }
            runs.push(recorded.map_err(|(line, reason)| {
                unreadable(TraceError::new(file.display().to_string(), Some(line), reason))
            })?);
        }
        let timed = runs.split_off(self.observed);
        Ok((runs, timed))
    }

    /// The run's shared back end if the case uses pools, else a fresh one.
    fn session(&mut self, run: usize, program: &Case) -> Result<Session, Failure> {
        if let Some(session) = self.pools[run].take_if(|_| program.uses_pools()) {
            return Ok(session);
        }
        self.target
            .open(&self.header)
            .map_err(|error| Failure::Input(format!("no back end to record on: {error}")))
    }
}

// ---- in processes of their own ----------------------------------------------------------------

/// Runs in processes of their own, one for each: a driver keeps its default pools, and what it
/// placed where, as long as the process lives, and the profiler slows it down for good.
struct Processes {
    observed: Vec<TraceReader<'static>>,
    timed: Vec<TraceReader<'static>>,
    /// Holds the traces of the runs while they are read.
    _folder: Partial<TempDir>,
}

impl Processes {
    /// Carries all runs out, one after another.
    fn start(args: &Record, program: &Source) -> Result<Self, Failure> {
        let folder = Partial::folder().map_err(no_folder)?;
        let (observed, timed) = runs_of(args);
        let run = |pass: &str, count: usize| {
            (0..count)
                .map(|number| {
                    let output = folder.path().join(format!("{pass}-{number}.jsonl"));
                    run_once(args, program, pass, &output)?;
                    // This command wrote it itself.
                    let run = TraceReader::open(&output).map_err(unreadable)?;
                    Ok::<_, Failure>(run.limited(WorkLimits::UNLIMITED, 0))
                })
                .collect::<Result<Vec<_>, _>>()
        };
        let (observed, timed) = (run("observed", observed)?, run("timed", timed)?);
        Ok(Self { observed, timed, _folder: folder })
    }

    fn next(&mut self, program: &Case) -> Result<(Vec<Case>, Vec<Case>), Failure> {
        let next = |runs: &mut Vec<TraceReader<'static>>| {
            runs.iter_mut()
                .map(|run| match run.next_case().map_err(unreadable)? {
                    Some(case) => Ok(case),
                    None => {
                        Err(Failure::Input(format!("a run ended before case {}", program.name)))
                    }
                })
                .collect::<Result<Vec<_>, Failure>>()
        };
        Ok((next(&mut self.observed)?, next(&mut self.timed)?))
    }
}

/// One run of all cases in a process of its own.
fn run_once(args: &Record, program: &Source, pass: &str, output: &Path) -> Result<(), Failure> {
    let failed = |why: String| Failure::Input(format!("a run of the program failed: {why}"));
    let this = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(this);
    command.args(["record", "--backend", "cuda", "--pass", pass, "--output"]).arg(output);
    if let Some(devices) = args.devices {
        command.args(["--devices", &devices.to_string()]);
    }
    if let Some(ceiling) = args.ceiling {
        command.args(["--ceiling", &ceiling.to_string()]);
    }
    command.args(args.limits.arguments());
    command.arg("--").arg(program.as_argument()).stdout(Stdio::null());
    match run_to_end(&mut command) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(format!("{status}; what it said is above"))),
        Err(error) => Err(failed(error.to_string())),
    }
}
