//! The command line.

mod help;
mod values;

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use clap_complete::Shell;
use pagewise_hal::DriverVersion;
use pagewise_sim::RangeReads;
use pagewise_trace::limits::WorkLimits;
use pagewise_trace::program::Family;
use pagewise_trace::run::Clock;

/// CUDA managed memory without a GPU, checked against recordings of real ones.
///
/// Without a command: replays the recordings that ship with pagewise and says what agrees.
#[derive(Debug, Parser)]
#[command(name = "pagewise", version, after_help = help::COMPARED, after_long_help = help::REPLAY)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Print one JSON object instead of text; `--help` lists its keys, to which others may be added
    #[arg(long, global = true, display_order = 100)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replay traces, each case on a fresh back end, and compare with what was recorded
    #[command(after_help = help::COMPARED, after_long_help = help::REPLAY)]
    Replay(Replay),
    /// Fit the simulator's cost model to traces with times, and write a profile that replays can
    /// use
    #[cfg(feature = "calibrate")]
    #[command(after_help = help::CALIBRATED, after_long_help = help::CALIBRATE)]
    Calibrate(Calibrate),
    /// List the GPUs that can be simulated, or print one as a document with the sources of its
    /// figures
    #[command(after_long_help = help::PROFILES)]
    Profiles {
        /// A profile's name, or a file that holds one
        #[arg(value_name = "NAME|FILE")]
        profile: Option<String>,
    },
    /// Say whether programs fit simulated GPUs, stream through them or thrash
    ///
    /// A program fits if nothing is evicted, streams if less than half of what is evicted comes
    /// back, and thrashes otherwise. The confidence counts the figures of the profile behind the
    /// verdict that were measured on the GPU or published for it, and gives the distance from
    /// another verdict. Programs and traces are carried out without contents and not compared.
    #[command(after_help = help::JUDGED, after_long_help = help::VERDICT)]
    Verdict(Verdict),
    /// Say what this machine's CUDA driver offers for managed memory, or what is missing
    #[command(after_help = help::DOCTORED, after_long_help = help::DOCTOR)]
    Doctor(Doctor),
    /// Carry out the operations of a program, or of a trace, and write a trace of what happens
    #[command(after_help = help::RECORDED, after_long_help = help::RECORD)]
    Record(Record),
    /// Compare a GPU with the simulator on random programs, or two recordings
    ///
    /// Without traces: draws programs from a seed, carries each out on the back end and on the
    /// simulator, and compares operation by operation. Goes on after a disagreement, to count them;
    /// the first is shrunk to a small program, which `pagewise record` and `replay` take.
    #[command(after_help = help::COMPARED, after_long_help = help::COMPARE)]
    Compare(Compare),
    /// Run a program on a simulated CUDA driver, and say what moved
    ///
    /// The program finds the simulated driver in place of libcuda.so.1, unless it has the path of
    /// another one built in. Its input, output and exit status are its own; the summary goes to
    /// stderr. Other options of the driver come from the variable PAGEWISE_DRIVER.
    #[command(after_help = help::RAN, after_long_help = help::RUN)]
    Run(Run),
    /// Print the script with which a shell completes the arguments of this command
    #[command(after_long_help = help::COMPLETIONS)]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the manual page
    #[command(after_long_help = help::MAN)]
    Man,
}

impl Command {
    /// The name, as it is given.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Replay(_) => "replay",
            #[cfg(feature = "calibrate")]
            Self::Calibrate(_) => "calibrate",
            Self::Profiles { .. } => "profiles",
            Self::Verdict(_) => "verdict",
            Self::Doctor(_) => "doctor",
            Self::Record(_) => "record",
            Self::Compare(_) => "compare",
            Self::Run(_) => "run",
            Self::Completions { .. } => "completions",
            Self::Man => "man",
        }
    }
}

/// How much a file may ask for: see `pagewise_trace::limits`.
#[derive(Debug, Args)]
pub(crate) struct Limits {
    /// Refuse a file that asks for more units of work: pages of 4 KiB touched or moved, operations,
    /// records. k, M, G and T are thousands
    #[arg(long, value_name = "N", default_value = "100M", value_parser = values::work)]
    max_work: u64,

    /// Refuse a file with a case that may write more bytes of memory. k, M, G and T are powers of
    /// 1024
    #[arg(long, value_name = "BYTES", default_value = "16G", value_parser = values::bytes)]
    max_memory: u64,

    /// Stop at a file that keeps the command busy for more seconds, before its next line or
    /// operation; 0 is no limit. `record` on a driver: for each of its runs
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = values::seconds)]
    max_seconds: Duration,
}

impl From<&Limits> for WorkLimits {
    fn from(limits: &Limits) -> Self {
        Self { work: limits.max_work, memory_bytes: limits.max_memory, time: limits.max_seconds }
    }
}

impl Limits {
    /// The limits as arguments of another process of this command.
    pub(crate) fn arguments(&self) -> [String; 3] {
        let seconds = match self.max_seconds {
            Duration::MAX => 0.0,
            limited => limited.as_secs_f64(),
        };
        [
            format!("--max-work={}", self.max_work),
            format!("--max-memory={}", self.max_memory),
            format!("--max-seconds={seconds}"),
        ]
    }
}

#[cfg(feature = "calibrate")]
#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    /// Where the profile goes (TOML), `-` is standard output; replaced only when the fit has
    /// succeeded
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// The profile to start from: a name, or a file (JSON or TOML)
    ///
    /// Everything but the cost model's figures is copied from it, and so are figures that the
    /// traces say nothing about. A figure that is 0 in it stays 0.
    #[arg(long, value_name = "NAME|FILE", default_value = "h200")]
    pub(crate) from: String,

    /// Also fit N times without one Nth of the cases each, and report how well those are predicted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub(crate) hold_out: Option<u16>,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// Traces (plain, gzip or zstd), or directories of *.jsonl, *.jsonl.zst and *.jsonl.gz; `-` is
    /// standard input
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Look at the driver as if it were no newer than this version, such as 12.2
    #[arg(long, value_name = "VERSION", value_parser = values::version)]
    pub(crate) max_version: Option<DriverVersion>,
}

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The reference: the driver, or the simulator, to see it compared with itself
    #[arg(long, value_enum, default_value_t = BackendArg::Cuda)]
    pub(crate) backend: BackendArg,

    /// The seed of all programs
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,

    /// How many operations in all, sleeps not counted
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = value_parser!(u64).range(1..),
    )]
    pub(crate) ops: u64,

    /// The subjects of the programs, with commas between them; all that the devices suffice for,
    /// if not given
    #[arg(long, value_name = "FAMILY", value_delimiter = ',', value_parser = values::family())]
    pub(crate) family: Vec<Family>,

    /// Entry points up to this CUDA version are used; of a simulated driver, its version
    #[arg(long, value_name = "VERSION", default_value = "13.0", value_parser = values::version)]
    pub(crate) ceiling: DriverVersion,

    /// How many devices the machine has
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = value_parser!(u32).range(1..=32),
    )]
    pub(crate) devices: u32,

    /// The levels that are compared, with commas between them; contract always is
    #[arg(long, value_enum, value_delimiter = ',', default_value = "contract,pages,events")]
    pub(crate) levels: Vec<Level>,

    /// Stop a family once so many of its programs disagree; 0 is never
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) max_disagreements: u64,

    /// How often the reference carries a program out; what differs between runs is not compared.
    /// Twice if the reference is not deterministic, if not given
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=20))]
    pub(crate) repeat: Option<u32>,

    /// About how many steps a program has
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) steps: usize,

    /// How many smaller programs are tried to shrink the first that disagrees
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub(crate) shrink: usize,

    /// Where to write the first shrunk program
    #[arg(long, value_name = "FILE", value_parser = values::file())]
    pub(crate) save: Option<PathBuf>,

    /// Where to write all programs as they are drawn, to record them: operations without results
    #[arg(long, value_name = "FILE", value_parser = values::file())]
    pub(crate) programs: Option<PathBuf>,

    /// Where to keep the program that is being carried out, in case the driver ends the process
    #[arg(long, value_name = "FILE", value_parser = values::file())]
    pub(crate) trying: Option<PathBuf>,

    /// Name each program on stderr before it is carried out
    #[arg(long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// Two recordings of the same program: the expected one, and the one to judge; `-` is standard
    /// input
    #[arg(value_name = "TRACE", num_args = 0..=2)]
    pub(crate) traces: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    Contract,
    Pages,
    Events,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The simulated GPU: a profile's name; h200 if not given
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,

    /// How many of the GPU the machine has
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=32))]
    pub(crate) devices: Option<u32>,

    /// The version of CUDA that the driver has, such as 12.4; the profile's if not given
    #[arg(long, value_name = "VERSION", value_parser = values::version)]
    pub(crate) driver: Option<DriverVersion>,

    /// The memory of each GPU, if it is to have less than the profile's. k, M, G and T are powers
    /// of 1024
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) memory: Option<u64>,

    /// The seed of the order of faults in kernels of many threads; the profile's if not given
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// How the program's own accesses to memory are seen: by genuine faults, of one mechanism or of
    /// the best that this host has, or only if they are declared. If not given: as `real`, or as
    /// `declared` where the host has no such faults
    #[arg(
        long,
        value_name = "HOW",
        value_parser = ["real", "userfaultfd", "protection", "declared"]
    )]
    pub(crate) host_faults: Option<String>,

    /// A plan of calls that fail or take longer (TOML); README of pagewise-driver has its keys
    #[arg(long, value_name = "PLAN", value_parser = values::file())]
    pub(crate) faults: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) sweep: SweepArgs,

    /// Where to write a trace of the program's calls, which `pagewise replay` takes; `.gz` and
    /// `.zst` are compressed. A crash leaves it too. If several processes call the driver, those
    /// after the first get a number: `run.jsonl`, `run.2.jsonl`
    #[arg(long, value_name = "TRACE", value_parser = values::file())]
    pub(crate) trace: Option<PathBuf>,

    /// Where to write the summary as one JSON object
    #[arg(long, value_name = "FILE", value_parser = values::file())]
    pub(crate) summary: Option<PathBuf>,

    /// The program and its arguments, after `--`
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// How a program is swept.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Run the program once as it is, then once for each call of the driver that it made, with that
    /// call failing; print how each run ended
    ///
    /// The program gets no input, and its output is compared and not shown. Its calls must be the
    /// same each time.
    #[arg(long)]
    pub(crate) sweep: bool,

    /// The CUresult that calls fail with in a sweep: its number, or its name in cuda.h
    #[arg(
        long = "sweep-code",
        value_name = "CODE",
        default_value = "CUDA_ERROR_OUT_OF_MEMORY",
        value_parser = values::code,
        requires = "sweep",
    )]
    pub(crate) code: i32,

    /// The most runs of a sweep; the first calls of each function come first
    #[arg(
        long = "sweep-max",
        value_name = "N",
        default_value_t = 1000,
        value_parser = value_parser!(u32).range(1..=i64::from(SweepArgs::MAX)),
        requires = "sweep",
    )]
    pub(crate) max: u32,

    /// Seconds after which a run of a sweep counts as hanging, and is ended; 0 is no limit
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "60",
        value_parser = values::seconds,
        requires = "sweep",
    )]
    pub(crate) timeout: Duration,
}

impl SweepArgs {
    /// The most runs that may be asked for.
    pub(crate) const MAX: u32 = 1_000_000;
}

#[derive(Debug, Args)]
pub(crate) struct Record {
    /// The back end to record on
    #[arg(long, value_enum, default_value_t = BackendArg::Sim)]
    pub(crate) backend: BackendArg,

    /// The simulated GPU: a profile's name, or a file (JSON or TOML) that holds one
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<String>,

    /// The trace to write; `.gz` and `.zst` are compressed, `-` is standard output. Replaced only
    /// when all is recorded
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: PathBuf,

    /// How often each case is run with everything observed; what differs is marked as unstable
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = value_parser!(u64).range(1..=100),
    )]
    pub(crate) repeat: u64,

    /// How often each case is run again, unobserved, to measure times
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = value_parser!(u64).range(0..=100),
    )]
    pub(crate) timed_runs: u64,

    /// The number of devices, if not the program's
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=32))]
    pub(crate) devices: Option<u32>,

    /// Entry points up to this CUDA version are used, such as 12.2; of a simulated driver, its
    /// version. If not the program's
    #[arg(long, value_name = "VERSION", value_parser = values::version)]
    pub(crate) ceiling: Option<DriverVersion>,

    /// The family that the header names, if not the program's
    #[arg(long, value_name = "NAME")]
    pub(crate) family: Option<String>,

    /// One run of the cases, observed or timed: what the command starts itself for, as a driver
    /// can be set up only once in a process
    #[arg(long, value_enum, hide = true)]
    pub(crate) pass: Option<PassArg>,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// The program: a trace, of which the results are ignored, or a file of operations without
    /// results (plain, gzip or zstd); `-` is standard input
    pub(crate) program: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The back end to replay on
    #[arg(long, value_enum, default_value_t = BackendArg::Sim)]
    pub(crate) backend: BackendArg,

    /// The simulated GPU: a profile's name, or a file (JSON or TOML) that holds one
    ///
    /// The number of devices and the driver's version are always those of the recording.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<String>,

    /// The seed of the order of faults in kernels of many threads; the profile's if not given
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Judge times too: the median of |log2(predicted / recorded)| may not exceed this
    #[arg(long, value_name = "X", value_parser = values::limit)]
    pub(crate) max_time_error: Option<f64>,

    /// The answers of range-attribute reads: the driver's, or the truth page by page; as the trace
    /// says if not given
    #[arg(long, value_enum)]
    pub(crate) range_reads: Option<RangeReadsArg>,

    /// The clock: the recording's (nothing is predicted then), the model's, or the recording's
    /// where it has no times to predict and for cases that disagree on the model's
    #[arg(long, value_enum, default_value_t = ClockArg::Auto)]
    pub(crate) clock: ClockArg,

    /// Carry out this many cases at a time, at most 256; as many as there are processors if not
    /// given
    ///
    /// The report is the same for every number. Waiting cases take a bounded amount of memory.
    #[arg(long, short, value_name = "N")]
    pub(crate) jobs: Option<NonZero<usize>>,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// Traces (plain, gzip or zstd), or directories of *.jsonl, *.jsonl.zst and *.jsonl.gz; `-` is
    /// standard input
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Verdict {
    /// The simulated GPU: a profile's name, or a file (JSON or TOML) that holds one; may be given
    /// several times. All that ship, but those without concurrent managed access, if not given
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Vec<String>,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// Programs or traces (plain, gzip or zstd), or directories of *.jsonl, *.jsonl.zst and
    /// *.jsonl.gz; `-` is standard input
    #[arg(required = true, value_name = "PROGRAM")]
    pub(crate) traces: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PassArg {
    Observed,
    Timed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendArg {
    /// The simulator
    Sim,
    /// The CUDA driver of this machine
    Cuda,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RangeReadsArg {
    Driver,
    Pages,
}

impl From<RangeReadsArg> for RangeReads {
    fn from(arg: RangeReadsArg) -> Self {
        match arg {
            RangeReadsArg::Driver => Self::Driver,
            RangeReadsArg::Pages => Self::Pages,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockArg {
    Auto,
    Recorded,
    Model,
}

impl From<ClockArg> for Clock {
    fn from(arg: ClockArg) -> Self {
        match arg {
            ClockArg::Auto => Self::Auto,
            ClockArg::Recorded => Self::Recorded,
            ClockArg::Model => Self::Model,
        }
    }
}
