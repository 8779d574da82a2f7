//! The simulator as the target of a replay.

use std::path::Path;
use std::sync::Arc;

use pagewise_hal::{DriverVersion, PAGE_BYTES, Result};
use pagewise_sim::{
    DiscardedContents, GpuProfile, MemoryContents, RangeReads, SimBackend, SimConfig,
};
use pagewise_trace::format::{Header, RecordedOn};
use pagewise_trace::pace::Pace;
use pagewise_trace::run::{Session, Target};

/// A profile file is a handful of numbers.
const MAX_PROFILE_BYTES: u64 = 1 << 20;

/// Opens simulators that resemble the recorded machine.
#[derive(Debug)]
pub(crate) struct SimTarget {
    config: SimConfig,
    /// As the trace says if there is no choice.
    reads: Option<RangeReads>,
}

impl SimTarget {
    /// `profile`: a name or a file; the H200 if there is none.
    pub(crate) fn new(
        profile: Option<&str>,
        reads: Option<RangeReads>,
    ) -> std::result::Result<Self, String> {
        let config = match profile {
            None => SimConfig::h200(),
            Some(profile) => named("--profile", profile)?,
        };
        // Sums of bytes are compared, also those of discarded memory.
        let config = config.discarded_contents(DiscardedContents::Driver);
        Ok(Self { config: described(config), reads })
    }

    /// The same target with this seed, if there is one.
    pub(crate) fn seeded(self, seed: Option<u64>) -> Self {
        match seed {
            None => self,
            Some(seed) => Self { config: self.config.seed(seed), ..self },
        }
    }

    /// The simulated machine that resembles the one of a program.
    pub(crate) fn describe(&self, program: &RecordedOn) -> RecordedOn {
        RecordedOn {
            gpu: Some(format!("{} (simulated)", self.config.gpu().name)),
            host_page_bytes: Some(PAGE_BYTES),
            host_numa_nodes: Some(program.host_numa_nodes.unwrap_or(1)),
            system: Some(concat!("pagewise ", env!("CARGO_PKG_VERSION")).to_owned()),
            ..RecordedOn::new(program.gpus, program.cuda_driver_version)
        }
    }
}

impl Target for SimTarget {
    fn open(&self, header: &Header) -> Result<Session> {
        let config = like(&self.config, header);
        let config = config.range_reads(self.reads.unwrap_or_else(|| reads_of(header)));
        let backend = Arc::new(SimBackend::new(config)?);
        let paced = Arc::clone(&backend);
        let pace = move |pace: Pace| paced.pace_next_op(pace.call_ns, pace.faults);
        Ok(Session { backend, pace: Some(Box::new(pace)) })
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}

/// The same machine with contents that are described, unless its file says that it has none: replays
/// make calls, and no other accesses.
fn described(config: SimConfig) -> SimConfig {
    match config == config.clone().contents(MemoryContents::Real) {
        true => config.contents(MemoryContents::Described),
        false => config,
    }
}

/// The answers of range attributes in a trace: a driver's, unless it says otherwise.
fn reads_of(header: &Header) -> RangeReads {
    match header.recorded_on.range_attributes_by_page {
        Some(true) => RangeReads::Pages,
        _ => RangeReads::Driver,
    }
}

/// The machine with as many devices as the recorded one, and its driver.
pub(crate) fn like(config: &SimConfig, header: &Header) -> SimConfig {
    let machine = &header.recorded_on;
    config
        .clone()
        .devices(machine.gpus)
        .driver_version(DriverVersion(machine.cuda_driver_version))
        .host_numa_nodes(machine.host_numa_nodes.unwrap_or(1))
}

/// The machine that a profile's name or a file says. `asked`: by which argument, for messages.
pub(crate) fn named(asked: &str, profile: &str) -> std::result::Result<SimConfig, String> {
    if let Some(config) = SimConfig::profile(profile) {
        return Ok(config);
    }
    let path = Path::new(profile);
    if !path.is_file() {
        let names: Vec<_> = GpuProfile::all().into_iter().map(|profile| profile.name).collect();
        let names = names.join(", ");
        return Err(format!("{asked} {profile}: neither a file nor one of: {names}"));
    }
    from_file(path).map_err(|reason| format!("{asked} {profile}: {reason}"))
}

/// A profile, or a whole machine (`SimConfig`): that has its profile under `gpu`. JSON by the
/// file's extension or its first character, else TOML.
fn from_file(path: &Path) -> std::result::Result<SimConfig, String> {
    let bytes = path.metadata().map_err(|error| error.to_string())?.len();
    if bytes > MAX_PROFILE_BYTES {
        return Err(format!("{bytes} bytes are too many for a profile"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let table: toml::Table = if is_json || text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| error.to_string())?
    } else {
        text.parse().map_err(|error: toml::de::Error| error.to_string())?
    };
    if table.contains_key("gpu") {
        return table.try_into().map_err(|error| error.to_string());
    }
    let text = table.to_string();
    GpuProfile::from_toml(&text).map(SimConfig::new).map_err(|error| error.to_string())
}
