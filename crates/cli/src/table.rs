//! The report for people.

use std::fmt::Write;

use pagewise_trace::report::{Aggregate, Count, Divergence, Report, TraceReport};

use crate::divergence;

const HEADINGS: [&str; 8] =
    ["trace", "ops", "contract", "range reads", "pages", "events", "totals", "time"];

/// The table, then the first divergence of each trace in full.
pub(crate) fn full(report: &Report) -> String {
    let mut text = table(report);
    for (trace, divergence) in divergences(report) {
        let words = divergence::words(divergence);
        _ = write!(text, "\n{}:{}: {words}", trace.file, divergence.line);
    }
    text + "\n" + &real_time(report) + &summary(report)
}

/// One screen: the table, and one line for each trace that diverges.
pub(crate) fn shipped(report: &Report) -> String {
    let mut text = "Recordings of an NVIDIA H200, replayed on the simulator:\n\n".to_owned();
    text += &table(report);
    text += "\n";
    for (trace, divergence) in divergences(report) {
        let Divergence { case, line, level, .. } = divergence;
        let level = level.name();
        _ = writeln!(text, "{}:{line}: first divergence, case {case}, level {level}", trace.file);
    }
    text + &real_time(report) + &summary(report)
}

/// The operations that real time decided, a line for each trace.
fn real_time(report: &Report) -> String {
    let mut text = String::new();
    for trace in &report.traces {
        let Some(first) = &trace.real_time.first else { continue };
        let (file, line, case) = (&trace.file, first.line, &first.case);
        _ = match trace.real_time.operations {
            1 => writeln!(text, "{file}:{line}: depends on real time, not judged: case {case}"),
            count => writeln!(
                text,
                "{file}:{line}: the first of {count} operations that depend on real time, not \
                 judged: case {case}"
            ),
        };
    }
    text
}

fn divergences(report: &Report) -> impl Iterator<Item = (&TraceReport, &Divergence)> {
    report.traces.iter().filter_map(|trace| Some((trace, trace.first_divergence.as_ref()?)))
}

pub(crate) fn table(report: &Report) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(report.traces.iter().map(row));
    if report.traces.len() > 1 {
        rows.push(totals(report));
    }
    let used = |column: usize| rows.iter().skip(1).any(|row| !row[column].is_empty());
    let columns: Vec<usize> = (0..HEADINGS.len()).filter(|&column| used(column)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = columns.iter().map(|&column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        for (at, (&column, &width)) in columns.iter().zip(&widths).enumerate() {
            let cell = &row[column];
            _ = match at {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn row(trace: &TraceReport) -> [String; 8] {
    [
        trace.file.clone(),
        if trace.error.is_some() { "invalid".to_owned() } else { trace.ops.to_string() },
        percent(trace.contract),
        percent(trace.range_attributes),
        percent(trace.pages),
        percent(trace.events),
        trace.aggregate.as_ref().map(worst_total).unwrap_or_default(),
        trace.time.median_abs_log2.map(|off| format!("x{:.2}", off.exp2())).unwrap_or_default(),
    ]
}

fn totals(report: &Report) -> [String; 8] {
    let sum = |of: fn(&TraceReport) -> Count| {
        let mut total = Count::default();
        report.traces.iter().for_each(|trace| total.merge(of(trace)));
        percent(total)
    };
    let ops: u64 = report.traces.iter().map(|trace| trace.ops).sum();
    [
        "all".to_owned(),
        ops.to_string(),
        sum(|trace| trace.contract),
        sum(|trace| trace.range_attributes),
        sum(|trace| trace.pages),
        sum(|trace| trace.events),
        String::new(),
        String::new(),
    ]
}

/// Percent with three decimals, rounded down: 100 only if all agree.
fn percent(count: Count) -> String {
    match (count.checked, count.agree) {
        (0, _) => String::new(),
        (checked, agree) if checked == agree => "100 %".to_owned(),
        (checked, agree) => {
            let whole = u128::from(agree).saturating_mul(100_000);
            let thousandths = whole.checked_div(u128::from(checked)).unwrap_or(0);
            format!("{}.{:03} %", thousandths / 1000, thousandths % 1000)
        }
    }
}

/// The total that is furthest off, as the factor by which it is.
fn worst_total(total: &Aggregate) -> String {
    if !total.host_mapped_agree {
        return "pages differ".to_owned();
    }
    let ratios = [total.h2d_bytes_ratio, total.d2h_bytes_ratio, total.gpu_fault_ratio];
    let off = |ratio: f64| ratio.max(f64::MIN_POSITIVE).ln().abs();
    let worst = ratios.into_iter().map(|ratio| ratio.unwrap_or(f64::INFINITY));
    let worst = worst.max_by(|a, b| off(*a).total_cmp(&off(*b))).unwrap_or(1.0);
    // Four digits, so that a small difference does not look like none.
    format!("x{worst:.4}")
}

fn summary(report: &Report) -> String {
    let agree = report.traces.iter().filter(|trace| trace.ok()).count();
    let invalid = report.traces.iter().filter(|trace| trace.error.is_some()).count();
    let diverge = report.traces.len().saturating_sub(agree).saturating_sub(invalid);
    let mut text = format!("{agree} of {} traces agree in everything", report.traces.len());
    if diverge > 0 {
        _ = write!(text, ", {diverge} diverge");
    }
    if invalid > 0 {
        _ = write!(text, ", {invalid} cannot be read");
    }
    let (wall_s, simulated_s) = (report.wall_s, report.simulated_s);
    _ = writeln!(text, ". {simulated_s:.1} s of the machine's time replayed in {wall_s:.1} s.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_reaches_100_only_if_all_agree() {
        let percent = |checked, agree| percent(Count { checked, agree });
        assert_eq!(percent(3, 3), "100 %");
        assert_eq!(percent(10_000_000, 9_999_999), "99.999 %");
        assert_eq!(percent(3, 2), "66.666 %");
        assert_eq!(percent(3, 0), "0.000 %");
        assert_eq!(percent(0, 0), "");
    }
}
