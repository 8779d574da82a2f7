//! The report of a calibration: for people, and as JSON.

use std::fmt::Write;

use serde::Serialize;

use super::samples::Prediction;

/// How predicted times compare with recorded ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Quality {
    /// Sum of the predictions over sum of the recorded medians.
    pub(crate) total_ratio: f64,
    /// Median of |log2(predicted / recorded)|.
    pub(crate) median_abs_log2: f64,
    /// Its 90th percentile.
    pub(crate) p90_abs_log2: f64,
}

impl Quality {
    /// As `pagewise replay` counts; `None` if there is nothing to compare.
    fn of<'a>(predictions: impl Iterator<Item = &'a Prediction>) -> Option<(usize, Self)> {
        let (mut predicted, mut recorded, mut off) = (0.0, 0.0, Vec::new());
        for prediction in predictions {
            let times = [prediction.predicted_ns, prediction.recorded_ns].map(|ns| ns as f64);
            predicted += times[0];
            recorded += times[1];
            off.push((times[0].max(1.0) / times[1].max(1.0)).log2().abs());
        }
        off.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| off[off.len().saturating_sub(1).saturating_mul(percent) / 100];
        (!off.is_empty()).then(|| {
            let (median_abs_log2, p90_abs_log2) = (at(50), at(90));
            (off.len(), Self { total_ratio: predicted / recorded, median_abs_log2, p90_abs_log2 })
        })
    }
}

/// One recording, or one kind of operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ops: usize,
    /// With the figures of the start.
    pub(crate) before: Quality,
    /// With the fitted figures.
    pub(crate) after: Quality,
    /// Each operation with figures that were fitted without its case.
    pub(crate) held_out: Option<Quality>,
}

/// The result of a calibration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) files: Vec<Row>,
    pub(crate) kinds: Vec<Row>,
    /// How many figures were fitted.
    pub(crate) fitted: usize,
    /// Whether the optimiser came to rest.
    pub(crate) converged: bool,
    /// Names of figures that occur in no operation: they kept their values.
    pub(crate) without_evidence: Vec<String>,
    pub(crate) wall_s: f64,
}

/// Predictions for the same operations.
#[derive(Debug)]
pub(crate) struct Predictions {
    pub(crate) before: Vec<Prediction>,
    pub(crate) after: Vec<Prediction>,
    pub(crate) held_out: Option<Vec<Prediction>>,
}

impl Predictions {
    /// One row over the operations wanted.
    pub(crate) fn row(&self, name: &str, wanted: impl Fn(&Prediction) -> bool) -> Option<Row> {
        let quality = |all: &[Prediction]| Quality::of(all.iter().filter(|one| wanted(one)));
        let (ops, before) = quality(&self.before)?;
        let (_, after) = quality(&self.after)?;
        let held_out = self.held_out.as_deref().and_then(quality).map(|(_, quality)| quality);
        Some(Row { name: name.to_owned(), ops, before, after, held_out })
    }
}

/// The report for people.
pub(crate) fn text(report: &Report) -> String {
    let held_out = report.files.iter().any(|row| row.held_out.is_some());
    let names = report.files.iter().chain(&report.kinds).map(|row| row.name.chars().count());
    let width = names.max().unwrap_or(0);
    let heading = |name: &str| {
        let mut line = format!("{:width$}  {:>6}  {:>20}  {:>20}", name, "ops", "before", "after");
        if held_out {
            _ = write!(line, "  {:>20}", "held out");
        }
        line + "\n"
    };
    let rows = |rows: &[Row]| -> String { rows.iter().map(|row| line(row, width)).collect() };
    let mut text = heading("trace") + &rows(&report.files) + "\n";
    text += &(heading("operation") + &rows(&report.kinds));
    text += "\nEach: total predicted / recorded, then median and 90th percentile of \
             |log2(predicted / recorded)|.\n";
    if held_out {
        text += "Held out: predicted by figures that were fitted without the operation's case.\n";
    }
    _ = writeln!(text, "{} figures fitted in {:.1} s.", report.fitted, report.wall_s);
    if !report.converged {
        text += "The fit did not come to rest: better figures may exist.\n";
    }
    if !report.without_evidence.is_empty() {
        let names = report.without_evidence.join(", ");
        _ = writeln!(text, "No evidence in these traces, kept as they were: {names}.");
    }
    text
}

fn line(row: &Row, width: usize) -> String {
    let cell = |quality: &Quality| {
        let Quality { total_ratio, median_abs_log2, p90_abs_log2 } = quality;
        format!("{total_ratio:>6.3} {median_abs_log2:>6.3} {p90_abs_log2:>6.3}")
    };
    let Row { name, ops, before, after, held_out } = row;
    let mut line = format!("{name:width$}  {ops:>6}  {}  {}", cell(before), cell(after));
    if let Some(held_out) = held_out {
        _ = write!(line, "  {}", cell(held_out));
    }
    line + "\n"
}
