//! `pagewise calibrate`: fits the figures of the cost model to recordings with times.
//!
//! Each case is replayed twice on the simulator: on the recorded clock, to see what each timed
//! operation did, and on the simulator's own, to see how well it predicts. The fit itself
//! ([`fit`]) works on what was seen. With cases held out it is repeated, each time without a part
//! of the cases, which are then predicted by figures that have never seen them.

mod equation;
mod figures;
mod fit;
mod problem;
mod report;
mod samples;
mod terms;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Instant;

use pagewise_sim::{CostParams, EventCapture, Evidence, GpuProfile, SimConfig};
use pagewise_trace::error::TraceError;
use pagewise_trace::limits::WorkLimits;

use crate::inputs::{self, Source};
use crate::output::{cannot_write, write_file};
use crate::progress::{Progress, Unit};
use crate::standard::is_standard;
use crate::status::{Answer, Failure};
use crate::{args, sim_target};
use figures::Figures;
use fit::Fitted;
use report::{Predictions, Report};
use samples::{Prediction, Recording, Sample, SampleId};
use terms::Probes;

/// The reason why there is no calibration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CalibrateError {
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The traces have no times.
    #[error(
        "nothing to fit: no operation of these traces has a recorded time (field `ns`); record \
         with timed runs"
    )]
    NoTimes,
    /// There are not enough cases to hold some out.
    #[error("--hold-out {folds}: the traces have only {cases} cases")]
    TooFewCases {
        /// Parts asked for.
        folds: usize,
        /// Cases there are.
        cases: usize,
    },
}

impl From<CalibrateError> for Failure {
    fn from(error: CalibrateError) -> Self {
        let message = error.to_string();
        match error {
            CalibrateError::TooFewCases { .. } => Self::Usage(message),
            CalibrateError::Trace(_) | CalibrateError::NoTimes => Self::Input(message),
        }
    }
}

/// `pagewise calibrate`
pub(crate) fn calibrate(args: &args::Calibrate, as_json: bool) -> Result<Answer, Failure> {
    let from = sim_target::named("--from", &args.from).map_err(Failure::Usage)?.gpu().clone();
    let to_stdout = is_standard(&args.output);
    if to_stdout && as_json {
        let message = "--json and `-o -` both want stdout: write the profile to a file";
        return Err(Failure::Usage(message.to_owned()));
    }
    if !to_stdout && (!directory_of(&args.output).is_dir() || args.output.is_dir()) {
        let message = format!("-o {}: not a file in a directory", args.output.display());
        return Err(Failure::Usage(message));
    }
    let traces: Result<Vec<Source>, _> = inputs::sources(&args.traces)?.into_iter().collect();
    let traces = traces.map_err(CalibrateError::Trace)?;
    let limits = (&args.limits).into();
    let hold_out = args.hold_out.map(usize::from);
    let calibration = Calibration { from, traces, hold_out, limits };
    let progress = Progress::start("replayed", Unit::Cases, None);
    let (fitted, report) = calibration.run(&progress)?;
    drop(progress);
    write(&args.output, &calibration.profile(&fitted))?;
    let output = args.output.display().to_string();
    let text = report::text(&report) + &format!("Written to {output}.\n");
    let answer = Answer::new(text, &report).with("output", &output);
    Ok(if to_stdout { answer.beside_result() } else { answer })
}

/// Writes the profile, whole or not at all.
fn write(output: &Path, profile: &GpuProfile) -> Result<(), Failure> {
    let text = profile.to_toml().map_err(|error| cannot_write(output, &io::Error::other(error)));
    write_file(output, text?.as_bytes())
}

fn directory_of(file: &Path) -> &Path {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The figures to calibrate, and their sources.
#[derive(Debug)]
pub(crate) struct Calibration {
    /// The start.
    pub(crate) from: GpuProfile,
    pub(crate) traces: Vec<Source>,
    /// Into how many parts the cases are divided to be held out, if at all.
    pub(crate) hold_out: Option<usize>,
    /// The limits of each trace.
    pub(crate) limits: WorkLimits,
}

/// Each case is replayed to see what it does, and before and after the fit.
const REPLAYS: u64 = 3;

impl Calibration {
    /// Fits, and says how well.
    pub(crate) fn run(&self, progress: &Progress) -> Result<(Fitted, Report), CalibrateError> {
        let start = Instant::now();
        progress.doing("reading");
        let recordings = self.read(progress)?;
        let cases: usize = recordings.iter().map(Recording::cases).sum();
        progress.expect((cases as u64).saturating_mul(self.replays()));
        let replays = Replays { recordings: &recordings, from: &self.from, progress };
        let samples = replays.samples()?;
        progress.doing("fitting");
        let all: Vec<&Sample> = samples.iter().collect();
        let fitted = fit::fit(&self.from.cost, &all);
        let before = replays.predictions(&self.from.cost, &|_| true)?;
        let after = replays.predictions(&fitted.params, &|_| true)?;
        let held_out = match self.hold_out {
            Some(folds) => Some(replays.held_out(&samples, folds)?),
            None => None,
        };
        let predictions = Predictions { before, after, held_out };
        let report = Report {
            files: by_file(&recordings, &predictions),
            kinds: by_kind(&predictions),
            fitted: fitted.figures.len(),
            converged: fitted.converged,
            without_evidence: fitted.without_evidence.clone(),
            wall_s: start.elapsed().as_secs_f64(),
        };
        Ok((fitted, report))
    }

    /// The start with the fitted figures, and where they come from.
    fn profile(&self, fitted: &Fitted) -> GpuProfile {
        let mut profile = GpuProfile { cost: fitted.params, ..self.from.clone() };
        let names: Vec<_> = self.traces.iter().map(Source::file_name).collect();
        let text =
            format!("pagewise calibrate from {}, traces {}", self.from.name, names.join(", "));
        profile.sources.set("cost", Evidence::Calibrated, &text);
        let known: BTreeSet<String> = fitted.figures.iter().map(|name| field(name)).collect();
        for field in fitted.without_evidence.iter().map(|name| field(name)) {
            if let Some(source) = self.from.sources.of(&field).filter(|_| !known.contains(&field)) {
                profile.sources.set(field, source.evidence, source.text);
            }
        }
        profile
    }

    /// How often each case is replayed.
    fn replays(&self) -> u64 {
        // Once more for cases that were held out.
        REPLAYS.saturating_add(u64::from(self.hold_out.is_some()))
    }

    fn read(&self, progress: &Progress) -> Result<Vec<Recording>, CalibrateError> {
        let read = |source| Recording::read(source, self.limits, self.replays(), progress);
        let read = self.traces.iter().map(read);
        let recordings: Vec<Recording> = read.collect::<Result<_, _>>()?;
        if recordings.iter().all(|recording| recording.timed_ops() == 0) {
            return Err(CalibrateError::NoTimes);
        }
        let cases = recordings.iter().map(Recording::cases).sum();
        match self.hold_out {
            Some(folds) if folds > cases => Err(CalibrateError::TooFewCases { folds, cases }),
            _ => Ok(recordings),
        }
    }
}

/// The field of a profile that holds a figure, alone or in a list.
fn field(figure: &str) -> String {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let field = figure.rsplit_once('.').filter(|(_, last)| is_number(last));
    format!("cost.{}", field.map_or(figure, |(field, _)| field))
}

/// A machine that keeps no records, as they are not looked at.
fn machine(profile: GpuProfile) -> SimConfig {
    SimConfig::new(profile).events(EventCapture::Off)
}

/// Replays of all recordings.
struct Replays<'a> {
    recordings: &'a [Recording],
    from: &'a GpuProfile,
    progress: &'a Progress,
}

impl Replays<'_> {
    fn samples(&self) -> Result<Vec<Sample>, TraceError> {
        let machine = machine(self.from.clone());
        let probes = Probes::new(&Figures::new(&self.from.cost));
        let mut samples = Vec::new();
        for (file, recording) in self.recordings.iter().enumerate() {
            let mut keep = |sample| samples.push(sample);
            let case_done = || self.progress.case_done();
            recording.observe(file, &machine, &probes, &mut keep, &case_done)?;
        }
        Ok(samples)
    }

    fn predictions(
        &self,
        costs: &CostParams,
        wanted: &dyn Fn(SampleId) -> bool,
    ) -> Result<Vec<Prediction>, TraceError> {
        let config = machine(GpuProfile { cost: *costs, ..self.from.clone() });
        let mut predictions = Vec::new();
        for (file, recording) in self.recordings.iter().enumerate() {
            let case_done = || self.progress.case_done();
            predictions.extend(recording.predict(file, &config, wanted, &case_done)?);
        }
        Ok(predictions)
    }

    /// Predictions for all operations, each by figures that were fitted without its case.
    fn held_out(&self, samples: &[Sample], folds: usize) -> Result<Vec<Prediction>, TraceError> {
        let mut predictions = Vec::new();
        for fold in 0..folds {
            self.progress.doing("fitting");
            let is_in = |id: SampleId| self.fold(id, folds) == fold;
            let others: Vec<&Sample> = samples.iter().filter(|one| !is_in(one.id)).collect();
            let fitted = fit::fit(&self.from.cost, &others);
            predictions.extend(self.predictions(&fitted.params, &is_in)?);
        }
        Ok(predictions)
    }

    /// Cases are dealt out in turn, so that each part has some of every recording.
    fn fold(&self, id: SampleId, folds: usize) -> usize {
        let before: usize = self.recordings[..id.file].iter().map(Recording::cases).sum();
        before.saturating_add(id.case).checked_rem(folds).unwrap_or(0)
    }
}

fn by_file(recordings: &[Recording], predictions: &Predictions) -> Vec<report::Row> {
    let row = |(file, recording): (usize, &Recording)| {
        let name = Path::new(&recording.file).file_name().unwrap_or_default().to_string_lossy();
        predictions.row(&name, |one| one.id.file == file && one.id.is_judged())
    };
    recordings.iter().enumerate().filter_map(row).collect()
}

fn by_kind(predictions: &Predictions) -> Vec<report::Row> {
    let mut kinds: Vec<&str> = predictions.before.iter().map(|one| one.id.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.iter().filter_map(|kind| predictions.row(kind, |one| one.id.kind == *kind)).collect()
}
