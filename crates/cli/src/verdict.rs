//! `pagewise verdict`: whether programs fit a GPU, stream through it or thrash, and how far that can
//! be trusted.
//!
//! Every case is carried out on simulated GPUs that keep no contents, so that a program may be
//! larger than this machine. Nothing is compared: results of another GPU are of no interest.

use pagewise_hal::{DeviceId, DriverVersion};
use pagewise_sim::{
    Confidence, EventCapture, GpuProfile, MemoryContents, Pressure, SimBackend, SimConfig, Verdict,
};
use pagewise_trace::error::{Reason, TraceError};
use pagewise_trace::format::{Case, Header, RecordedOn};
use pagewise_trace::replay::replay_within;
use pagewise_trace::time_limit::TimeLimit;
use serde::Serialize;
use serde_json::json;

use crate::inputs::{self, Source};
use crate::progress::{Progress, Unit};
use crate::status::{Answer, Failure};
use crate::{args, sim_target};

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;

/// A program on a GPU, with the verdict.
#[derive(Debug, Serialize)]
struct Found {
    file: String,
    profile: String,
    /// `None` if the driver refuses memory: then the program does not run as it was meant to.
    verdict: Option<Verdict>,
    /// Operations that the driver refuses for want of memory.
    refused: u64,
    #[serde(flatten)]
    pressure: Pressure,
    confidence: Confidence,
}

/// `pagewise verdict`
pub(crate) fn verdict(args: &args::Verdict) -> Result<Answer, Failure> {
    let configs = configs(&args.profile)?;
    let sources = inputs::sources(&args.traces)?;
    let progress = Progress::start("carried out", Unit::Bytes, inputs::total_bytes(&sources));
    let mut found = Vec::new();
    for source in sources {
        let of_source = source.and_then(|source| of_program(&source, &configs, args, &progress));
        found.extend(of_source.map_err(|error| Failure::Input(error.to_string()))?);
    }
    drop(progress);
    Ok(Answer::new(table(&found), &json!({ "verdicts": found })))
}

/// The machines of the profiles that were asked for, or of all that ship and evict.
fn configs(wanted: &[String]) -> Result<Vec<SimConfig>, Failure> {
    let configs: Result<Vec<SimConfig>, String> = if wanted.is_empty() {
        Ok(GpuProfile::all().into_iter().filter(evicts).map(SimConfig::new).collect())
    } else {
        wanted.iter().map(|profile| evicting(profile)).collect()
    };
    let bare =
        |config: SimConfig| config.events(EventCapture::Off).contents(MemoryContents::Skipped);
    Ok(configs.map_err(Failure::Usage)?.into_iter().map(bare).collect())
}

/// Whether managed memory may exceed the device's.
fn evicts(profile: &GpuProfile) -> bool {
    profile.attributes.concurrent_managed_access
}

fn evicting(profile: &str) -> Result<SimConfig, String> {
    let config = sim_target::named("--profile", profile)?;
    if evicts(config.gpu()) {
        return Ok(config);
    }
    Err(format!(
        "--profile {profile}: without concurrent managed access managed memory cannot exceed the \
         device's: compare its size with memory_bytes of `pagewise profiles {profile}`"
    ))
}

fn of_program(
    source: &Source,
    configs: &[SimConfig],
    args: &args::Verdict,
    progress: &Progress,
) -> Result<Vec<Found>, TraceError> {
    let header = Header::new(source.family(), RecordedOn::new(1, DriverVersion::CUDA_13_0.0));
    let reader = source.program(header, progress)?;
    let mut reader = reader.limited((&args.limits).into(), configs.len() as u64);
    let header = reader.header().clone();
    let time = reader.time().clone();
    let mut found: Vec<Found> = configs.iter().map(|config| unused(source, config)).collect();
    while let Some(case) = reader.next_case()? {
        for (found, config) in found.iter_mut().zip(configs) {
            carry_out(found, &sim_target::like(config, &header), &case, &time).map_err(
                |(line, reason)| TraceError::new(source.to_string(), Some(line), reason),
            )?;
        }
        progress.case_done();
    }
    for (found, config) in found.iter_mut().zip(configs) {
        found.verdict = (found.refused == 0).then(|| found.pressure.verdict());
        found.confidence = config.gpu().confidence(&found.pressure);
    }
    Ok(found)
}

/// A program that has done nothing yet.
fn unused(source: &Source, config: &SimConfig) -> Found {
    let pressure = Pressure::default();
    Found {
        file: source.to_string(),
        profile: config.gpu().name.clone(),
        verdict: None,
        refused: 0,
        pressure,
        confidence: config.gpu().confidence(&pressure),
    }
}

/// Carries a case out on a fresh machine. The device and the case under the most pressure count.
fn carry_out(
    found: &mut Found,
    config: &SimConfig,
    case: &Case,
    time: &TimeLimit,
) -> Result<(), (u64, Reason)> {
    let first_line = case.ops.first().map_or(1, |line| line.line);
    let sim = SimBackend::new(config.clone()).map_err(|error| {
        (first_line, Reason::BadHeader(format!("no machine for this program: {error}")))
    })?;
    // The clean-up of the replay frees what the case left, which changes no sums.
    let replayed = replay_within(&sim, case, time, |_, _| {})?;
    let refusals = replayed.observed.iter().filter(|observed| observed.code == OUT_OF_MEMORY);
    found.refused = found.refused.saturating_add(refusals.count() as u64);
    let key = |pressure: &Pressure| {
        let Pressure { peak_bytes, evicted_bytes, returned_bytes, .. } = *pressure;
        (pressure.verdict(), returned_bytes, evicted_bytes, peak_bytes)
    };
    for device in (0..).take(config.device_count() as usize) {
        let Some(pressure) = sim.pressure(DeviceId(device)) else { continue };
        if found.pressure == Pressure::default() || key(&pressure) > key(&found.pressure) {
            found.pressure = pressure;
        }
    }
    Ok(())
}

const HEADINGS: [&str; 7] =
    ["program", "profile", "verdict", "memory", "evicted", "came back", "confidence"];

/// A line for each program and profile.
fn table(found: &[Found]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(found.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..7).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, &width) in row.iter().zip(&widths) {
            text += &format!("{cell:<width$}  ");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn row(found: &Found) -> [String; 7] {
    let Found { file, profile, verdict, refused, pressure, confidence } = found;
    let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
    let verdict = match verdict {
        Some(verdict) => verdict.to_string(),
        None => format!("refused {refused} times"),
    };
    let Confidence { trust, founded, figures, margin } = confidence;
    let percent = 100.0 * margin;
    [
        file.clone(),
        profile.clone(),
        verdict,
        format!("{} of {}", gib(pressure.peak_bytes), gib(pressure.capacity_bytes)),
        gib(pressure.evicted_bytes),
        gib(pressure.returned_bytes),
        format!("{trust}: {founded} of {figures} figures measured, margin {percent:.0} %"),
    ]
}
