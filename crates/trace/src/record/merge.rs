//! Merging of several runs of the same case into one recording.

use std::fmt;

use crate::compare::same_records;
use crate::format::{Case, Observed, Timing};

/// Runs that cannot be merged, because they are not of the same program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differ {
    /// The case of the first run.
    pub case: String,
}

impl fmt::Display for Differ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "case `{}`: its runs are not of the same operations", self.case)
    }
}

impl std::error::Error for Differ {}

/// Merges runs of one case.
///
/// - Results, records, page tables and `start_ns` are those of the first of `observed`; what differs in any
///   other is named in `unstable`.
/// - `ns_profiled` is the lowest of `observed`.
/// - `ns` is minimum, median and maximum over `timed`; absent if there are none.
///
/// # Errors
/// If a run is of another program, or there is no observed run.
pub fn merge(observed: &[Case], timed: &[Case]) -> Result<Case, Differ> {
    let Some((first, others)) = observed.split_first() else {
        return Err(Differ { case: String::new() });
    };
    let same_ops = |other: &Case| {
        let pairs = || first.ops.iter().zip(&other.ops);
        first.name == other.name
            && first.ops.len() == other.ops.len()
            && pairs().all(|(a, b)| a.recorded.op == b.recorded.op)
    };
    if !others.iter().chain(timed).all(same_ops) {
        return Err(Differ { case: first.name.clone() });
    }
    let mut merged = first.clone();
    for (at, line) in merged.ops.iter_mut().enumerate() {
        let at = |case: &'_ Case| case.ops[at].recorded.observed.clone();
        let target = &mut line.recorded.observed;
        for other in others.iter().map(at) {
            note_differences(target, &other);
            target.ns_profiled = target.ns_profiled.min(other.ns_profiled);
        }
        target.ns = timing(timed.iter().filter_map(|case| at(case).ns).collect());
    }
    Ok(merged)
}

/// Adds the names of the fields that differ to `unstable`.
fn note_differences(first: &mut Observed, other: &Observed) {
    let differs = [
        ("code", first.code != other.code),
        ("offset_in_2mib", first.offset_in_2mib != other.offset_in_2mib),
        ("sum", first.sum != other.sum),
        ("attributes", first.attributes != other.attributes),
        ("access_flags", first.access_flags != other.access_flags),
        ("same_as", first.same_as != other.same_as),
        ("events", !same_records(&first.events, &other.events)),
        ("host_mapped", first.host_mapped != other.host_mapped),
    ];
    for (field, _) in differs.into_iter().filter(|&(_, differs)| differs) {
        if !first.is_unstable(field) {
            first.unstable.push(field.to_owned());
        }
    }
}

fn timing(runs: Vec<Timing>) -> Option<Timing> {
    let mut ns: Vec<u64> = runs.into_iter().map(|run| run.median).collect();
    ns.sort_unstable();
    let (&min, &max) = (ns.first()?, ns.last()?);
    Some(Timing { min, median: ns[ns.len() / 2], max })
}
