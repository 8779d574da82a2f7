//! The first line of a trace.

use std::path::Path;

use pagewise_hal::{Backend, PAGE_BYTES};
use serde::Serialize;
use serde_json::Value;

use super::{FORMAT, VERSION};
use crate::error::Reason;

/// A number that no recording can exceed; keeps a damaged header from asking for a million devices.
const MAX_GPUS: u64 = 32;
const MAX_NUMA_NODES: u64 = 64;

/// The first line of a trace. Optional fields are left out when written, if they are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Header {
    format: &'static str,
    version: u64,
    /// The family of cases.
    pub family: String,
    /// The machine.
    pub recorded_on: RecordedOn,
    /// How often each case was run with observation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u64>,
    /// How often each case was run for the times in `ns`; 0 if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed_runs: Option<u64>,
}

/// The machine that a trace was recorded on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedOn {
    /// The GPU's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// How many of them the cases could use.
    pub gpus: u32,
    /// The driver's package version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The answer of `cuDriverGetVersion`.
    pub cuda_driver_version: i32,
    /// Page size of the host; only 4 KiB is supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_page_bytes: Option<u64>,
    /// NUMA nodes of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_numa_nodes: Option<u32>,
    /// Whether range attributes are those of the pages, as documented, and not the answer of a
    /// driver ([`Capabilities::range_attributes_by_page`]).
    ///
    /// [`Capabilities::range_attributes_by_page`]: pagewise_hal::Capabilities::range_attributes_by_page
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_attributes_by_page: Option<bool>,
    /// The rest, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
}

impl RecordedOn {
    /// The machine of a back end.
    ///
    /// # Errors
    /// As [`Backend::device_count`].
    pub fn of(backend: &dyn Backend) -> pagewise_hal::Result<Self> {
        let capabilities = backend.capabilities();
        let system =
            format!("pagewise {}, back end {}", env!("CARGO_PKG_VERSION"), capabilities.backend);
        Ok(Self {
            host_page_bytes: Some(PAGE_BYTES),
            range_attributes_by_page: Some(capabilities.range_attributes_by_page),
            system: Some(system),
            ..Self::new(backend.device_count()?, capabilities.driver_version.0)
        })
    }

    /// A machine of which no more is known than its devices and the answer of `cuDriverGetVersion`.
    #[must_use]
    pub const fn new(gpus: u32, cuda_driver_version: i32) -> Self {
        Self {
            gpu: None,
            gpus,
            driver: None,
            cuda_driver_version,
            host_page_bytes: None,
            host_numa_nodes: None,
            range_attributes_by_page: None,
            system: None,
        }
    }
}

impl Header {
    /// A header of the current format and version.
    #[must_use]
    pub fn new(family: impl Into<String>, recorded_on: RecordedOn) -> Self {
        let family = family.into();
        Self { format: FORMAT, version: VERSION, family, recorded_on, runs: None, timed_runs: None }
    }

    /// The family of a file that names none: the file's name up to `.jsonl` or the last point.
    ///
    /// ```
    /// use std::path::Path;
    /// use pagewise_trace::format::Header;
    ///
    /// assert_eq!(Header::family_of(Path::new("traces/step.jsonl.zst")), "step");
    /// ```
    #[must_use]
    pub fn family_of(path: &Path) -> String {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        name.strip_suffix(".jsonl").unwrap_or(&name).to_owned()
    }

    /// Reads the first line's JSON value.
    pub(crate) fn from_json(line: &Value) -> Result<Self, Reason> {
        let fields = HeaderFields { of: "", value: line };
        match line.get("format") {
            None => return Err(Reason::MissingHeader),
            Some(Value::String(format)) if format == FORMAT => {}
            Some(other) => return Err(Reason::WrongFormat(plain(other))),
        }
        match line.get("version") {
            None => return Err(fields.missing("version")),
            Some(version) if version.as_u64() == Some(VERSION) => {}
            Some(other) => return Err(Reason::UnsupportedVersion(plain(other))),
        }
        let machine = line.get("recorded_on").ok_or_else(|| fields.missing("recorded_on"))?;
        if !machine.is_object() {
            return Err(fields.wrong("recorded_on", "an object"));
        }
        let mut header = Self::new(
            fields.text("family")?,
            machine_of(&HeaderFields { of: "recorded_on.", value: machine })?,
        );
        header.runs = fields.optional_number("runs", u64::MAX)?;
        header.timed_runs = fields.optional_number("timed_runs", u64::MAX)?;
        Ok(header)
    }
}

fn machine_of(fields: &HeaderFields<'_>) -> Result<RecordedOn, Reason> {
    let gpus = fields.number("gpus", MAX_GPUS)?;
    let nodes = fields.optional_number("host_numa_nodes", MAX_NUMA_NODES)?;
    let host_page_bytes = fields.optional_number("host_page_bytes", u64::MAX)?;
    if host_page_bytes.is_some_and(|bytes| bytes != PAGE_BYTES) {
        return Err(fields.wrong("host_page_bytes", "4096, the only supported page size"));
    }
    Ok(RecordedOn {
        gpu: fields.optional_text("gpu")?,
        gpus: narrow(gpus),
        driver: fields.optional_text("driver")?,
        cuda_driver_version: narrow(fields.number("cuda_driver_version", i32::MAX as u64)?),
        host_page_bytes,
        host_numa_nodes: nodes.map(narrow),
        range_attributes_by_page: fields.optional_flag("range_attributes_by_page")?,
        system: fields.optional_text("system")?,
    })
}

/// For numbers that were checked against their limit.
fn narrow<T: TryFrom<u64>>(number: u64) -> T {
    T::try_from(number).unwrap_or_else(|_| unreachable!("{number} is within its limit"))
}

/// A value as a message shows it: text without quotes, the rest as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Typed access that names the field in every error.
struct HeaderFields<'a> {
    of: &'static str,
    value: &'a Value,
}

impl HeaderFields<'_> {
    fn missing(&self, field: &str) -> Reason {
        Reason::BadHeader(format!("missing field `{}{field}`", self.of))
    }

    fn wrong(&self, field: &str, expected: &str) -> Reason {
        let found = self.value.get(field).map(plain).unwrap_or_default();
        let of = self.of;
        Reason::BadHeader(format!("field `{of}{field}`: expected {expected}, found `{found:.60}`"))
    }

    fn optional_text(&self, field: &str) -> Result<Option<String>, Reason> {
        match self.value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong(field, "text")),
        }
    }

    fn optional_flag(&self, field: &str) -> Result<Option<bool>, Reason> {
        match self.value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(&Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.wrong(field, "true or false")),
        }
    }

    fn text(&self, field: &str) -> Result<String, Reason> {
        self.optional_text(field)?.ok_or_else(|| self.missing(field))
    }

    fn optional_number(&self, field: &str, max: u64) -> Result<Option<u64>, Reason> {
        match self.value.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64().filter(|&number| number <= max) {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(field, &format!("an integer from 0 to {max}"))),
            },
        }
    }

    fn number(&self, field: &str, max: u64) -> Result<u64, Reason> {
        self.optional_number(field, max)?.ok_or_else(|| self.missing(field))
    }
}
