//! The driver to simulate, as text: `version=12.2 devices=2 hide=cuMemDiscardBatchAsync`.

use std::str::FromStr;

use pagewise_hal::DriverVersion;
use pagewise_sim::{DiscardedContents, GpuProfile, RangeReads, SimConfig};

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
/// | `profile` | which GPU, by the name of its profile | `h200` |
/// | `version` | what `cuDriverGetVersion` reports, such as `12.2` | the profile's |
/// | `devices` | how many of the GPU; 0 lets `cuInit` fail as a driver without device does | 1 |
/// | `init` | what `cuInit` returns | 0 |
/// | `hide` | an entry point that is missing: its base name, or `name@12020` for one form of it | – |
/// | `fail_prefetch` | `n:code`: the nth single prefetch answers with the code and does nothing | – |
/// | `reads` | `pages` or `driver`: what range-attribute reads answer | `pages` |
/// | `discarded` | `kept` or `driver`: what discarded memory reads as | `kept` |
/// | `log` | `warn` or `off`: whether stderr names each function that is called and not implemented | `warn` |
///
/// Pairs are separated by spaces or commas; `hide` may be repeated.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    gpu: GpuProfile,
    version: Option<DriverVersion>,
    pub(crate) devices: u32,
    pub(crate) init: i32,
    /// Which single prefetch fails, counted from 1, and how.
    pub(crate) fail_prefetch: Option<(u64, i32)>,
    hidden: Vec<Hidden>,
    reads: RangeReads,
    discarded: DiscardedContents,
    /// Whether stderr names functions that are called and not implemented.
    pub(crate) warns: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gpu: GpuProfile::h200(),
            version: None,
            devices: 1,
            init: 0,
            fail_prefetch: None,
            hidden: Vec::new(),
            reads: RangeReads::default(),
            discarded: DiscardedContents::default(),
            warns: true,
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
        SimConfig::new(self.gpu.clone())
            .devices(self.devices)
            .driver_version(self.version().max(DriverVersion::CUDA_12_0))
            .range_reads(self.reads)
            .discarded_contents(self.discarded)
    }

    /// The ordinals of the devices.
    pub(crate) fn ordinals(&self) -> std::ops::Range<i32> {
        0..i32::try_from(self.devices).unwrap_or(i32::MAX)
    }

    pub(crate) fn hides(&self, name: &str, since: i32) -> bool {
        let same = |hidden: &Hidden| hidden.since.is_none_or(|only| only == since);
        self.hidden.iter().any(|hidden| hidden.name == name && same(hidden))
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match (key, value) {
            ("profile", name) => self.gpu = GpuProfile::named(name)?,
            ("version", text) => self.version = Some(version(text)?),
            ("devices", text) => self.devices = text.parse().ok()?,
            ("init", text) => self.init = text.parse().ok()?,
            ("fail_prefetch", text) => {
                let (which, code) = text.split_once(':')?;
                self.fail_prefetch = Some((which.parse().ok()?, code.parse().ok()?));
            }
            ("hide", text) => {
                let (name, since) = match text.split_once('@') {
                    Some((name, since)) => (name, Some(since.parse().ok()?)),
                    None => (text, None),
                };
                self.hidden.push(Hidden { name: name.to_owned(), since });
            }
            ("reads", "pages") => self.reads = RangeReads::Pages,
            ("reads", "driver") => self.reads = RangeReads::Driver,
            ("discarded", "kept") => self.discarded = DiscardedContents::Kept,
            ("discarded", "driver") => self.discarded = DiscardedContents::Driver,
            ("log", "warn") => self.warns = true,
            ("log", "off") => self.warns = false,
            _ => return None,
        }
        Some(())
    }
}

/// `12.2`, or `12020` as the driver writes it.
fn version(text: &str) -> Option<DriverVersion> {
    match text.split_once('.') {
        Some((major, minor)) => Some(DriverVersion::new(major.parse().ok()?, minor.parse().ok()?)),
        None => text.parse().ok().map(DriverVersion),
    }
}

impl FromStr for Options {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        let pairs = text.split([' ', ',', '\n']).filter(|pair| !pair.is_empty());
        for pair in pairs {
            let set = pair.split_once('=').and_then(|(key, value)| options.set(key, value));
            set.ok_or_else(|| {
                format!(
                    "{pair:?} is no option of the simulated driver: they are profile, version, \
                     devices, init, hide, fail_prefetch, reads, discarded and log, as key=value"
                )
            })?;
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
        for wrong in ["profile=abacus", "version", "devices=two", "colour=red", "version=1.x"] {
            let error = wrong.parse::<Options>().unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
