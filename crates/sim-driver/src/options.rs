//! The driver to simulate, as text: `version=12.2 devices=2 hide=cuMemDiscardBatchAsync`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::faults::plan::{Plan, Rule};
use crate::machine::Recording;
use pagewise_hal::DriverVersion;
use pagewise_sim::{DiscardedContents, GpuProfile, HostFaults, RangeReads, SimConfig};

/// A form of an entry point that the driver pretends not to have.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hidden {
    name: String,
    /// Only the form of this version, or all.
    since: Option<i32>,
}

/// The driver to simulate.
///
/// | key | value | default |
/// | --- | --- | --- |
/// | `profile` | which GPU: the name of its profile, or a file (TOML) that holds one | `h200` |
/// | `version` | what `cuDriverGetVersion` reports, such as `12.2` | the profile's |
/// | `devices` | how many of the GPU; 0 lets `cuInit` fail as a driver without device does | 1 |
/// | `memory` | the memory of each device in bytes, if it is to have less than the profile's; with `KiB`, `MiB`, `GiB` or `TiB` behind the number, or without | the profile's |
/// | `seed` | the seed of the order of faults in kernels of many threads | 0 |
/// | `instructions` | the most instructions of warps of one kernel; one with more is ended with 702 | no limit |
/// | `init` | what `cuInit` returns | 0 |
/// | `hide` | an entry point that is missing: its base name, or `name@12020` for one form of it | – |
/// | `faults` | a file (TOML) that says which calls fail or take longer: the README has its keys | – |
/// | `fail_prefetch` | `n:code`: the nth single prefetch, from 1, answers with the code and does nothing. A plan of one fault | – |
/// | `reads` | `pages` or `driver`: what range-attribute reads answer | `pages` |
/// | `discarded` | `kept` or `driver`: what discarded memory reads as | `kept` |
/// | `host_faults` | how the program's own accesses to memory are seen: `userfaultfd` or `protection`, by genuine faults of that mechanism; `real`, by the first of these that the host has; `declared`, only if `pagewise_driver_host_touch` declares them. A mechanism that the host lacks fails the driver's start | `real` if the host can, else `declared` with a line on stderr |
/// | `log` | `warn` or `off`: whether stderr names each function that is called and not implemented | `warn` |
/// | `trace` | a file, which gets a trace of the calls when the process ends; `.zst` and `.gz` are compressed, `%p` is the number of the process. Until then, and after a crash, `FILE.journal` has them | – |
/// | `journal` | a file, which gets the calls as a journal, of which `pagewise_trace::record::recover` makes the trace | – |
/// | `calls` | a folder, which gets a file `calls-PID.txt` of each process: how often it called each function | – |
/// | `summary` | a folder, which gets a file `summary-PID.json` of each process: what moved so far | – |
///
/// Pairs are separated by spaces, commas or ends of lines; a value with one of these stands in double
/// quotes. Of a key that is given twice the later value holds, but for `hide`, which adds up. A text
/// that begins with `@` names a file that holds the pairs: `PAGEWISE_DRIVER=@driver.txt`.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    gpu: GpuProfile,
    version: Option<DriverVersion>,
    pub(crate) devices: u32,
    seed: Option<u64>,
    instructions: Option<u64>,
    /// A limit on the memory of each device, in bytes.
    memory_bytes: Option<u64>,
    pub(crate) init: i32,
    /// Which calls fail or take longer.
    pub(crate) faults: Plan,
    /// The folder that gets the number of calls of each process.
    pub(crate) calls: Option<PathBuf>,
    hidden: Vec<Hidden>,
    reads: RangeReads,
    discarded: DiscardedContents,
    /// How accesses of the host are seen; `None` is the best that the host has.
    pub(crate) host_faults: Option<HostFaults>,
    /// Whether stderr names functions that are called and not implemented.
    pub(crate) warns: bool,
    pub(crate) recording: Option<Recording>,
    /// The folder that gets the summary of each process.
    pub(crate) summary: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gpu: GpuProfile::h200(),
            version: None,
            devices: 1,
            seed: None,
            instructions: None,
            memory_bytes: None,
            init: 0,
            faults: Plan::default(),
            calls: None,
            hidden: Vec::new(),
            reads: RangeReads::default(),
            discarded: DiscardedContents::default(),
            host_faults: None,
            warns: true,
            recording: None,
            summary: None,
        }
    }
}

impl Options {
    /// The environment variable that holds the options.
    pub const VARIABLE: &'static str = "PAGEWISE_DRIVER";

    /// The version that `cuDriverGetVersion` reports.
    pub(crate) fn version(&self) -> DriverVersion {
        self.version.unwrap_or(self.gpu.driver_version)
    }

    /// The GPU's name, as `cuDeviceGetName` gives it.
    pub(crate) fn gpu_name(&self) -> &str {
        &self.gpu.name
    }

    /// The configuration of the simulator behind the entry points. A driver too old to be simulated
    /// answers as 12.0: all that matters of it is the version that it reports.
    pub(crate) fn config(&self) -> SimConfig {
        let mut gpu = self.gpu.clone();
        gpu.memory_bytes =
            self.memory_bytes.map_or(gpu.memory_bytes, |most| most.min(gpu.memory_bytes));
        SimConfig::new(gpu)
            .devices(self.devices)
            .seed(self.seed.unwrap_or(0))
            .instruction_limit(self.instructions)
            .driver_version(self.version().max(DriverVersion::CUDA_12_0))
            .range_reads(self.reads)
            .discarded_contents(self.discarded)
            .host_faults(self.host_faults.unwrap_or(HostFaults::Real))
    }

    /// Whether the options limit the memory of each device.
    pub(crate) fn limits_memory(&self) -> bool {
        self.memory_bytes.is_some()
    }

    /// The ordinals of the devices.
    pub(crate) fn ordinals(&self) -> std::ops::Range<i32> {
        0..i32::try_from(self.devices).unwrap_or(i32::MAX)
    }

    pub(crate) fn hides(&self, name: &str, since: i32) -> bool {
        let same = |hidden: &Hidden| hidden.since.is_none_or(|only| only == since);
        self.hidden.iter().any(|hidden| hidden.name == name && same(hidden))
    }

    /// Sets one option.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "profile" => self.gpu = profile(value)?,
            "version" => self.version = Some(expect("a version such as 12.2", version(value))?),
            "devices" => self.devices = expect("a number of devices", value.parse().ok())?,
            "memory" => self.memory_bytes = Some(expect("bytes, such as 8GiB", bytes(value))?),
            "seed" => self.seed = Some(expect("an integer from 0 on", value.parse().ok())?),
            "instructions" => {
                let wanted = "a number of instructions of warps, at least 1";
                let limit = value.parse().ok().filter(|limit| *limit > 0);
                self.instructions = Some(expect(wanted, limit)?);
            }
            "init" => self.init = expect("a CUresult", value.parse().ok())?,
            "faults" => {
                let Plan { rules, memory_limit_bytes } = Plan::read(Path::new(value))?;
                self.faults.rules.extend(rules);
                self.faults.memory_limit_bytes =
                    memory_limit_bytes.or(self.faults.memory_limit_bytes);
            }
            "fail_prefetch" => {
                let (nth, code) = expect("number:code, such as 2:1", failing(value))?;
                self.faults.rules.push(Rule::nth("cuMemPrefetchAsync", nth, code));
            }
            "calls" => self.calls = Some(value.into()),
            "hide" => {
                let wanted = "an entry point, or one form of it such as cuMemAdvise@12020";
                self.hidden.push(expect(wanted, hidden(value))?);
            }
            "reads" => {
                let reads = match value {
                    "pages" => Some(RangeReads::Pages),
                    "driver" => Some(RangeReads::Driver),
                    _ => None,
                };
                self.reads = expect("pages or driver", reads)?;
            }
            "discarded" => {
                let contents = match value {
                    "kept" => Some(DiscardedContents::Kept),
                    "driver" => Some(DiscardedContents::Driver),
                    _ => None,
                };
                self.discarded = expect("kept or driver", contents)?;
            }
            "host_faults" => {
                let wanted = "real, userfaultfd, protection or declared";
                self.host_faults = Some(expect(wanted, host_faults(value))?);
            }
            "log" => {
                let warns = match value {
                    "warn" => Some(true),
                    "off" => Some(false),
                    _ => None,
                };
                self.warns = expect("warn or off", warns)?;
            }
            "trace" => self.recording = Some(Recording::Trace(value.into())),
            "journal" => self.recording = Some(Recording::Journal(value.into())),
            "summary" => self.summary = Some(value.into()),
            _ => return Err(format!("no such option; there are {}", KEYS.join(", "))),
        }
        Ok(())
    }
}

/// The keys, for messages.
const KEYS: [&str; 18] = [
    "profile",
    "version",
    "devices",
    "memory",
    "seed",
    "instructions",
    "init",
    "faults",
    "fail_prefetch",
    "calls",
    "hide",
    "reads",
    "discarded",
    "host_faults",
    "log",
    "trace",
    "journal",
    "summary",
];

/// The longest file of a profile, as `pagewise` takes it.
const PROFILE_BYTES_MAX: u64 = 1 << 20;

/// The value of an option, or what it should have been.
fn expect<T>(wanted: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("expected {wanted}"))
}

fn profile(text: &str) -> Result<GpuProfile, String> {
    if let Some(profile) = GpuProfile::named(text) {
        return Ok(profile);
    }
    if !Path::new(text).is_file() {
        let names: Vec<_> = GpuProfile::all().into_iter().map(|profile| profile.name).collect();
        return Err(format!("expected a file or one of {}", names.join(", ")));
    }
    let bytes = Path::new(text).metadata().map_err(|error| error.to_string())?.len();
    if bytes > PROFILE_BYTES_MAX {
        return Err(format!("{bytes} bytes are too many for a profile"));
    }
    let document = std::fs::read_to_string(text).map_err(|error| error.to_string())?;
    GpuProfile::from_toml(&document).map_err(|error| error.to_string())
}

fn host_faults(text: &str) -> Option<HostFaults> {
    match text {
        "real" => Some(HostFaults::Real),
        "userfaultfd" => Some(HostFaults::Userfaultfd),
        "protection" => Some(HostFaults::PageProtection),
        "declared" => Some(HostFaults::Declared),
        _ => None,
    }
}

/// `8GiB`, or a number of bytes.
fn bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let split = units.iter().find_map(|&(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = split.unwrap_or((text, 0));
    number.parse::<u64>().ok()?.checked_mul(1_u64.checked_shl(shift)?)
}

/// `2:1`: the second prefetch answers 1. The number is counted from 0 afterwards.
fn failing(text: &str) -> Option<(u64, i32)> {
    let (which, code) = text.split_once(':')?;
    Some((which.parse::<u64>().ok()?.checked_sub(1)?, code.parse().ok()?))
}

/// `cuMemAdvise`, or `cuMemAdvise@12020`.
fn hidden(text: &str) -> Option<Hidden> {
    let (name, since) = match text.split_once('@') {
        Some((name, since)) => (name, Some(since.parse().ok()?)),
        None => (text, None),
    };
    Some(Hidden { name: name.to_owned(), since })
}

/// `12.2`, or `12020` as the driver writes it.
fn version(text: &str) -> Option<DriverVersion> {
    match text.split_once('.') {
        Some((major, minor)) => Some(DriverVersion::new(major.parse().ok()?, minor.parse().ok()?)),
        None => text.parse().ok().map(DriverVersion),
    }
}

/// The pairs of a text, with quotes taken off.
fn pairs(text: &str) -> Vec<String> {
    let mut pairs = vec![String::new()];
    let mut quoted = false;
    for character in text.chars() {
        match character {
            '"' => quoted = !quoted,
            ' ' | ',' | '\n' | '\r' | '\t' if !quoted => pairs.push(String::new()),
            _ => pairs.iter_mut().next_back().into_iter().for_each(|pair| pair.push(character)),
        }
    }
    pairs.retain(|pair| !pair.is_empty());
    pairs
}

impl FromStr for Options {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.trim().strip_prefix('@') {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            return match text.trim_start().starts_with('@') {
                true => Err(format!("{path}: a file of options cannot name another one")),
                false => text.parse().map_err(|why| format!("{path}: {why}")),
            };
        }
        let mut options = Self::default();
        for pair in pairs(text) {
            let (key, value) = pair.split_once('=').unwrap_or((&pair, ""));
            options.set(key, value).map_err(|why| format!("option {pair:?}: {why}"))?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nonsense_is_named() {
        let options: Options =
            "version=12.2, devices=2 hide=cuMemFree hide=cuMemAdvise@12020".parse().unwrap();
        assert_eq!((options.version(), options.devices), (DriverVersion::CUDA_12_2, 2));
        assert!(options.hides("cuMemFree", 3020) && options.hides("cuMemAdvise", 12020));
        assert!(!options.hides("cuMemAdvise", 8000));
        assert_eq!("".parse(), Ok(Options::default()));
        let profile: Options = "profile=H200".parse().unwrap();
        assert_eq!(profile.version(), DriverVersion::CUDA_13_0);
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("long.toml");
        std::fs::write(&long, vec![b'#'; 2 << 20]).unwrap();
        let long = format!("profile={}", long.display());
        for (wrong, wanted) in [
            (long.as_str(), "too many for a profile"),
            ("profile=abacus", "one of h200"),
            ("version", "12.2"),
            ("devices=two", "a number of devices"),
            ("colour=red", "there are profile"),
            ("version=1.x", "12.2"),
            ("memory=8GB", "8GiB"),
            ("memory=18446744073709551615KiB", "8GiB"),
            ("seed=-1", "from 0 on"),
            ("instructions=0", "at least 1"),
            ("host_faults=some", "real, userfaultfd, protection or declared"),
        ] {
            let error = format!("devices=2 {wrong}").parse::<Options>().unwrap_err();
            assert!(error.contains(wrong) && error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn every_key_is_listed() {
        for key in KEYS {
            let error = Options::default().set(key, "\0").err();
            assert!(error.is_none_or(|why| !why.contains("no such option")), "{key}");
        }
    }

    #[test]
    fn memory_is_a_limit_below_the_profile_s() {
        let memory = |text: &str| text.parse::<Options>().unwrap().config().gpu().memory_bytes;
        assert_eq!(memory("memory=8GiB"), 8 << 30);
        assert_eq!(memory("memory=4096"), 4096);
        assert_eq!(memory("memory=4096TiB"), memory(""));
    }

    #[test]
    fn a_file_holds_options_and_quotes_hold_what_separates() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("driver.txt");
        std::fs::write(&file, "devices=3\nsummary=\"folder a b,c\"\n").unwrap();
        let options: Options = format!("@{}", file.display()).parse().unwrap();
        assert_eq!(options.devices, 3);
        assert_eq!(options.summary.as_deref(), Some(Path::new("folder a b,c")));
        std::fs::write(&file, format!("@{}", file.display())).unwrap();
        let error = format!("@{}", file.display()).parse::<Options>().unwrap_err();
        assert!(error.contains("cannot name another"), "{error}");
        let error = "@/no/such/file".parse::<Options>().unwrap_err();
        assert!(error.contains("/no/such/file"), "{error}");
    }
}
