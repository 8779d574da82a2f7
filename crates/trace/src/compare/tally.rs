//! Tallies of agreement, over a case and over a file.

use serde_json::{Value, json};

use super::diff::BothSides;
use crate::format::{Case, Header, MemoryRecord, Op};
use crate::report::{
    Aggregate, Count, Divergence, Level, RealTime, Time, TraceReport, ratio_within_tolerance,
};

/// The comparison so far. Tallies of a file's cases may be merged in any order.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    cases: u64,
    pub(super) ops: u64,
    simulated_ns: u64,
    pub(super) contract: Count,
    pub(super) range_attributes: Count,
    pub(super) pages: Count,
    pub(super) final_pages_differ: bool,
    /// The records of operations with one thread or none.
    events: Count,
    /// The records of operations with several threads. They count unless the family is parallel.
    parallel_events: Count,
    /// Whether a device access program of one thread, or of several, occurred.
    has_serial_access: bool,
    has_parallel_access: bool,
    first: Option<Divergence>,
    first_parallel: Option<Divergence>,
    first_total: Option<Divergence>,
    real_time: RealTime,
    /// The line that was counted there last.
    last_by_time: Option<u64>,
    recorded: Totals,
    predicted: Totals,
    time: Times,
}

/// Totals that are compared for parallel families.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    h2d_bytes: u64,
    d2h_bytes: u64,
    gpu_faults: u64,
}

impl Totals {
    fn add(&mut self, events: &[MemoryRecord]) {
        for event in events {
            match event.kind.as_str() {
                "copy_h2d" => self.h2d_bytes = self.h2d_bytes.saturating_add(event.value),
                "copy_d2h" => self.d2h_bytes = self.d2h_bytes.saturating_add(event.value),
                "gpu_fault" => self.gpu_faults = self.gpu_faults.saturating_add(1),
                _ => {}
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.h2d_bytes = self.h2d_bytes.saturating_add(other.h2d_bytes);
        self.d2h_bytes = self.d2h_bytes.saturating_add(other.d2h_bytes);
        self.gpu_faults = self.gpu_faults.saturating_add(other.gpu_faults);
    }

    fn ratios(self, recorded: Self) -> [Option<f64>; 3] {
        [
            ratio(self.h2d_bytes, recorded.h2d_bytes),
            ratio(self.d2h_bytes, recorded.d2h_bytes),
            ratio(self.gpu_faults, recorded.gpu_faults),
        ]
    }

    fn json(self) -> Value {
        let Self { h2d_bytes, d2h_bytes, gpu_faults } = self;
        json!({ "h2d_bytes": h2d_bytes, "d2h_bytes": d2h_bytes, "gpu_fault_records": gpu_faults })
    }
}

/// Predicted over recorded; 1 if both are 0, nothing if only the recorded one is.
fn ratio(predicted: u64, recorded: u64) -> Option<f64> {
    match (predicted, recorded) {
        (0, 0) => Some(1.0),
        (_, 0) => None,
        _ => Some(predicted as f64 / recorded as f64),
    }
}

#[derive(Debug, Clone, Default)]
struct Times {
    abs_log2: Vec<f32>,
    predicted_ns: f64,
    recorded_ns: f64,
    /// Operations with a recorded time that were given none.
    unpredicted: u64,
    worst: Option<(f32, Divergence)>,
}

impl Times {
    fn summary(&mut self) -> Time {
        self.abs_log2.sort_unstable_by(f32::total_cmp);
        let at = |percent: usize| {
            let last = self.abs_log2.len().checked_sub(1)?;
            Some(f64::from(self.abs_log2[last.saturating_mul(percent) / 100]))
        };
        Time {
            checked: self.abs_log2.len() as u64,
            median_abs_log2: at(50),
            p90_abs_log2: at(90),
            total_ratio: (self.recorded_ns > 0.0).then(|| self.predicted_ns / self.recorded_ns),
        }
    }
}

impl Tally {
    /// The empty tally of one case.
    pub(super) fn of_case(simulated_ns: u64) -> Self {
        Self { cases: 1, simulated_ns, ..Self::default() }
    }

    /// Notes a disagreement if it is the first of its kind; `sides` is asked only then.
    pub(super) fn note(
        slot: &mut Option<Divergence>,
        case: &Case,
        line: u64,
        level: Level,
        sides: impl FnOnce() -> BothSides,
    ) {
        if slot.as_ref().is_none_or(|first| line < first.line) {
            let (expected, got) = sides();
            let op = case.ops.iter().find(|op| op.line == line);
            let op = op.map_or(Value::Null, |op| op.recorded.op.to_json());
            *slot = Some(Divergence { case: case.name.clone(), line, level, op, expected, got });
        }
    }

    pub(super) fn diverges(
        &mut self,
        case: &Case,
        line: u64,
        level: Level,
        sides: impl FnOnce() -> BothSides,
    ) {
        Self::note(&mut self.first, case, line, level, sides);
    }

    /// Notes the first operation that only one of two recordings has.
    pub(super) fn compare_programs(&mut self, expected: &Case, got: &Case) {
        let ops = |case: &'_ Case, at: usize| case.ops.get(at).map(|line| line.recorded.op.clone());
        let json = |case, at| ops(case, at).map(|op| op.to_json());
        let longest = expected.ops.len().max(got.ops.len());
        let Some(at) = (0..longest).find(|&at| ops(expected, at) != ops(got, at)) else { return };
        self.contract.add(false);
        let line = expected.ops.get(at).map_or(expected.line, |line| line.line);
        self.diverges(expected, line, Level::Contract, || {
            (json!({ "op": json(expected, at) }), json!({ "op": json(got, at) }))
        });
    }

    /// Says that this is no parallel family, whatever its operations: see [`crate::compare`].
    pub(crate) fn compare_exactly(&mut self) {
        self.has_serial_access = true;
    }

    /// Whether nothing disagrees, but for times and the totals of parallel operations.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.first.is_none()
    }

    /// The first disagreement, if there is one, other than of parallel operations.
    #[must_use]
    pub fn first_divergence(&self) -> Option<&Divergence> {
        self.first.as_ref()
    }

    /// Notes an operation of which real time decided pages or records.
    pub(super) fn depends_on_time(
        &mut self,
        case: &Case,
        line: u64,
        level: Level,
        sides: impl FnOnce() -> BothSides,
    ) {
        // An operation may differ at both levels.
        if self.last_by_time != Some(line) {
            self.real_time.operations = self.real_time.operations.saturating_add(1);
            self.last_by_time = Some(line);
        }
        Self::note(&mut self.real_time.first, case, line, level, sides);
    }

    pub(super) fn events_of(&mut self, parallel: bool) -> (&mut Count, &mut Option<Divergence>) {
        if parallel {
            (&mut self.parallel_events, &mut self.first_parallel)
        } else {
            (&mut self.events, &mut self.first)
        }
    }

    pub(super) fn add_totals(&mut self, op: &Op, recorded: &[MemoryRecord], got: &[MemoryRecord]) {
        if matches!(
            op,
            Op::DeviceTouch { .. }
                | Op::KernelAccesses { .. }
                | Op::Launch(_)
                | Op::Memset { .. }
                | Op::MemsetD16 { .. }
                | Op::MemsetD32 { .. }
        ) {
            self.has_parallel_access |= op.is_parallel();
            self.has_serial_access |= !op.is_parallel();
        }
        self.recorded.add(recorded);
        self.predicted.add(got);
    }

    pub(super) fn add_time(&mut self, case: &Case, line: u64, recorded: u64, predicted: u64) {
        if recorded == 0 || predicted == 0 {
            self.time.unpredicted = self.time.unpredicted.saturating_add((recorded > 0).into());
            return;
        }
        let (recorded_ns, predicted_ns) = (recorded as f64, predicted as f64);
        let off = (predicted_ns / recorded_ns).log2().abs() as f32;
        self.time.abs_log2.push(off);
        self.time.predicted_ns += predicted_ns;
        self.time.recorded_ns += recorded_ns;
        if self.time.worst.as_ref().is_none_or(|(worst, _)| off > *worst) {
            let mut worst = None;
            let sides = || (json!({ "ns": recorded }), json!({ "ns": predicted }));
            Self::note(&mut worst, case, line, Level::Time, sides);
            self.time.worst = worst.map(|divergence| (off, divergence));
        }
    }

    /// Called on the tally of one case: notes totals that are off within it.
    pub(super) fn close_case(&mut self, case: &Case) {
        let (recorded, predicted) = (self.recorded, self.predicted);
        let off = !predicted.ratios(recorded).into_iter().all(ratio_within_tolerance);
        if off || self.final_pages_differ {
            Self::note(&mut self.first_total, case, case.line, Level::Aggregate, || {
                (recorded.json(), predicted.json())
            });
        }
    }

    /// The tally of another replay of the same case, with the times of this one, if nothing
    /// disagrees there; else this one.
    pub(crate) fn or_if_it_agrees(self, other: Self) -> Self {
        if !other.agrees() {
            return self;
        }
        Self { time: self.time, simulated_ns: self.simulated_ns, ..other }
    }

    /// Adds the tally of other cases of the same file.
    pub fn merge(&mut self, other: Self) {
        self.cases = self.cases.saturating_add(other.cases);
        self.ops = self.ops.saturating_add(other.ops);
        self.simulated_ns = self.simulated_ns.saturating_add(other.simulated_ns);
        self.contract.merge(other.contract);
        self.range_attributes.merge(other.range_attributes);
        self.pages.merge(other.pages);
        self.final_pages_differ |= other.final_pages_differ;
        self.events.merge(other.events);
        self.parallel_events.merge(other.parallel_events);
        self.has_serial_access |= other.has_serial_access;
        self.has_parallel_access |= other.has_parallel_access;
        earlier(&mut self.first, other.first);
        earlier(&mut self.first_parallel, other.first_parallel);
        earlier(&mut self.first_total, other.first_total);
        self.real_time.operations =
            self.real_time.operations.saturating_add(other.real_time.operations);
        earlier(&mut self.real_time.first, other.real_time.first);
        self.recorded.merge(other.recorded);
        self.predicted.merge(other.predicted);
        self.time.abs_log2.extend(other.time.abs_log2);
        self.time.predicted_ns += other.time.predicted_ns;
        self.time.recorded_ns += other.time.recorded_ns;
        self.time.unpredicted = self.time.unpredicted.saturating_add(other.time.unpredicted);
        if let Some((off, divergence)) = other.time.worst
            && self.time.worst.as_ref().is_none_or(|(worst, _)| off > *worst)
        {
            self.time.worst = Some((off, divergence));
        }
    }

    /// The report on a file. `max_time_error` bounds the median of |log2(predicted / recorded)|;
    /// if it is set, a trace with recorded times but no predictions is not in order.
    #[must_use]
    pub fn report(
        mut self,
        file: String,
        header: Option<&Header>,
        max_time_error: Option<f64>,
        error: Option<String>,
    ) -> TraceReport {
        let named = header.is_some_and(|header| header.family == "parallel");
        let parallel = named || (self.has_parallel_access && !self.has_serial_access);
        let totals = parallel.then(|| self.predicted.ratios(self.recorded));
        let aggregate =
            totals.map(|[h2d_bytes_ratio, d2h_bytes_ratio, gpu_fault_ratio]| Aggregate {
                h2d_bytes_ratio,
                d2h_bytes_ratio,
                gpu_fault_ratio,
                host_mapped_agree: !self.final_pages_differ,
            });
        if !parallel {
            self.events.merge(self.parallel_events);
            earlier(&mut self.first, self.first_parallel.take());
        }
        let mut first = self.first.take();
        if first.is_none() && aggregate.is_some_and(|total| !total.within_tolerance()) {
            first = self.first_total.take();
        }
        let time = self.time.summary();
        let time_ok = max_time_error.is_none_or(|limit| match time.median_abs_log2 {
            Some(median) => median <= limit,
            None => self.time.unpredicted == 0,
        });
        if first.is_none() && !time_ok {
            first = self.time.worst.map(|(_, divergence)| divergence);
        }
        TraceReport {
            file,
            family: header.map(|header| header.family.clone()),
            cases: self.cases,
            ops: self.ops,
            contract: self.contract,
            range_attributes: self.range_attributes,
            pages: self.pages,
            events: self.events,
            time,
            aggregate,
            real_time: self.real_time,
            first_divergence: first,
            error,
            time_ok,
            simulated_ns: self.simulated_ns,
        }
    }
}

fn earlier(slot: &mut Option<Divergence>, other: Option<Divergence>) {
    if let Some(other) = other
        && slot.as_ref().is_none_or(|first| other.line < first.line)
    {
        *slot = Some(other);
    }
}
