//! The result of replaying, as data: what `pagewise replay --json` prints.

use serde::Serialize;
use serde_json::Value;

/// How far the totals of a parallel family may be off.
pub const AGGREGATE_TOLERANCE: f64 = 0.10;

/// The result of a run over several traces.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Whether every trace could be read and agrees.
    pub ok: bool,
    /// One entry for each trace, in the order given.
    pub traces: Vec<TraceReport>,
    /// Real time that the run took.
    pub wall_s: f64,
    /// Time that passed on the clocks of the back ends.
    pub simulated_s: f64,
}

/// The result of one trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceReport {
    /// The file as it was named.
    pub file: String,
    /// The family that its header names; absent if there was no readable header.
    pub family: Option<String>,
    /// Cases replayed.
    pub cases: u64,
    /// Operations replayed.
    pub ops: u64,
    /// Codes, attributes, sums, access, pools.
    pub contract: Count,
    /// The range-attribute reads among them.
    pub range_attributes: Count,
    /// Host page tables.
    pub pages: Count,
    /// Unified-memory records.
    pub events: Count,
    /// Predicted times.
    pub time: Time,
    /// Totals, for parallel families only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Aggregate>,
    /// Operations that depend on real time; left out if there are none.
    #[serde(skip_serializing_if = "RealTime::is_none")]
    pub real_time: RealTime,
    /// The first operation, in file order, that disagrees.
    pub first_divergence: Option<Divergence>,
    /// The reason why the trace could not be read or replayed to its end, as `file:line: reason`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the time is within the limit that was set; true if none was.
    #[serde(skip)]
    pub time_ok: bool,
    /// Nanoseconds that passed on the back ends' clocks.
    #[serde(skip)]
    pub simulated_ns: u64,
}

impl TraceReport {
    /// Whether the trace was read to its end and agrees: contract, pages and events, the totals of
    /// a parallel family within [`AGGREGATE_TOLERANCE`], and times if they are judged.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.error.is_none()
            && self.contract.all_agree()
            && self.pages.all_agree()
            && self.events.all_agree()
            && self.aggregate.as_ref().is_none_or(Aggregate::within_tolerance)
            && self.time_ok
    }
}

/// Operations with pages or records that depend on real time, of which the recording does not say
/// enough: see [`compare`](crate::compare). They count neither as checked nor as agreeing.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RealTime {
    /// How many.
    pub operations: u64,
    /// The first of them in file order: the recorded outcome, and that of the likely pace.
    pub first: Option<Divergence>,
}

impl RealTime {
    fn is_none(&self) -> bool {
        self.operations == 0
    }
}

/// How many were compared, and how many of them are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Count {
    /// Operations compared.
    pub checked: u64,
    /// Compared operations that agree.
    pub agree: u64,
}

impl Count {
    /// Counts one operation.
    pub fn add(&mut self, agrees: bool) {
        self.checked = self.checked.saturating_add(1);
        self.agree = self.agree.saturating_add(agrees.into());
    }

    /// Counts those of another.
    pub fn merge(&mut self, other: Self) {
        self.checked = self.checked.saturating_add(other.checked);
        self.agree = self.agree.saturating_add(other.agree);
    }

    /// Whether nothing disagrees.
    #[must_use]
    pub fn all_agree(self) -> bool {
        self.agree == self.checked
    }
}

/// Predicted against recorded time. Absent figures: nothing was predicted or recorded.
///
/// Sleeps are left out: their time is given, not predicted.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Time {
    /// Operations with a recorded median and a prediction above 0.
    pub checked: u64,
    /// Median of |log2(predicted / recorded median)|.
    pub median_abs_log2: Option<f64>,
    /// Its 90th percentile.
    pub p90_abs_log2: Option<f64>,
    /// Sum of the predictions over sum of the medians.
    pub total_ratio: Option<f64>,
}

/// Totals over a whole file, predicted over recorded. 1 where both are 0; absent where only the
/// recorded total is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Aggregate {
    /// Bytes copied from host to device.
    pub h2d_bytes_ratio: Option<f64>,
    /// Bytes copied from device to host.
    pub d2h_bytes_ratio: Option<f64>,
    /// Records of GPU faults.
    pub gpu_fault_ratio: Option<f64>,
    /// Whether the host page tables at the end of every case are equal.
    pub host_mapped_agree: bool,
}

impl Aggregate {
    /// Whether every total is within [`AGGREGATE_TOLERANCE`] and the page tables agree.
    #[must_use]
    pub fn within_tolerance(&self) -> bool {
        let ratios = [self.h2d_bytes_ratio, self.d2h_bytes_ratio, self.gpu_fault_ratio];
        self.host_mapped_agree && ratios.into_iter().all(ratio_within_tolerance)
    }
}

pub(crate) fn ratio_within_tolerance(ratio: Option<f64>) -> bool {
    // A little more than the tolerance, so that a ratio of exactly 1.1 passes whatever its bits.
    ratio.is_some_and(|ratio| (ratio - 1.0).abs() <= AGGREGATE_TOLERANCE + 1e-9)
}

/// At which level something disagrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Level {
    /// Result codes, attributes, sums, access, pools, placement.
    Contract,
    /// Host page tables.
    Pages,
    /// Unified-memory records.
    Events,
    /// Totals of a parallel family.
    Aggregate,
    /// Times, if they are judged.
    Time,
}

impl Level {
    /// The name in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contract => "contract",
            Self::Pages => "pages",
            Self::Events => "events",
            Self::Aggregate => "aggregate",
            Self::Time => "time",
        }
    }
}

/// An operation that disagrees, with nothing but the fields that differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Divergence {
    /// The case.
    pub case: String,
    /// The line of the operation; of the case at level `aggregate`.
    pub line: u64,
    /// The level.
    pub level: Level,
    /// The operation without its results, as a trace has it; null at level `aggregate`.
    pub op: Value,
    /// The recorded value.
    pub expected: Value,
    /// The back end's value.
    pub got: Value,
}
