//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pagewise_hal::DriverVersion;
use pagewise_sim::RangeReads;
use pagewise_trace::run::Clock;

/// CUDA managed memory without a GPU, checked against recordings of real ones.
///
/// Without a command: replays the recordings that ship with pagewise and says what agrees.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const EXIT_STATUS: &str =
    "Exit status: 0 all agree, 1 something diverges, 2 usage, 3 a trace cannot be read.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replay traces, each case on a fresh back end, and compare with what was recorded
    #[command(after_help = EXIT_STATUS)]
    Replay(Replay),
    /// List the GPUs that can be simulated, or print one as a document with the sources of its
    /// figures
    Profiles {
        /// A profile's name, or a file that holds one
        #[arg(value_name = "NAME|FILE")]
        profile: Option<String>,
    },
    /// Say what this machine's CUDA driver offers for managed memory, or what is missing
    #[command(after_help = "Exit status: 0, with or without a driver.")]
    Doctor(Doctor),
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Look at the driver as if it were no newer than this version, such as 12.2
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub(crate) max_version: Option<DriverVersion>,
}

/// `12.2`
fn version(text: &str) -> Result<DriverVersion, String> {
    let parts = text.split_once('.').and_then(|(major, minor)| {
        Some(DriverVersion::new(major.parse().ok()?, minor.parse().ok()?))
    });
    match parts {
        Some(version) if version >= DriverVersion::CUDA_12_0 => Ok(version),
        _ => Err("expected a version of CUDA from 12.0 on, such as 12.2".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// What to replay on
    #[arg(long, value_enum, default_value_t = Backend::Sim)]
    pub(crate) backend: Backend,

    /// The simulated GPU: a profile's name, or a file (JSON or TOML) that holds one
    ///
    /// The number of devices and the driver's version are always those of the recording.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) profile: Option<String>,

    /// What kernels of many threads draw the order of their faults from; the profile's if not given
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,

    /// Judge times too: the median of |log2(predicted / recorded)| may not exceed this
    #[arg(long, value_name = "X", value_parser = limit)]
    pub(crate) max_time_error: Option<f64>,

    /// What range-attribute reads answer: what the driver reports, or the truth page by page
    #[arg(long, value_enum, default_value_t = RangeReadsArg::Driver)]
    pub(crate) range_reads: RangeReadsArg,

    /// The clock: the recording's (nothing is predicted then), the model's, or the recording's
    /// where it has no times to predict
    #[arg(long, value_enum, default_value_t = ClockArg::Auto)]
    pub(crate) clock: ClockArg,

    /// Traces (plain, gzip or zstd), or directories of *.jsonl, *.jsonl.zst and *.jsonl.gz
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
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

fn limit(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(limit) if limit.is_finite() && limit >= 0.0 => Ok(limit),
        _ => Err("expected a number of at least 0".to_owned()),
    }
}
