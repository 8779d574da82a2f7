//! Comparison of two back ends on the same program, operation by operation.
//!
//! One back end is the reference: what it does counts as recorded. A reference that is not
//! deterministic, such as a GPU, is asked several times, and what it does not do every time is not
//! compared. The other back end is told how long each operation took on such a reference, where it
//! can be told ([`Session::pace`]), as what thrashes depends on time.
//!
//! Records of an operation of several threads ([`is_parallel`](crate::format::RecordedOp::is_parallel))
//! differ from run to run in number and size, not in what they add up to: of those the bytes copied
//! each way are compared. What a read of discarded memory adds up to is not compared (see
//! `indeterminate`).

use pagewise_hal::Backend;

use crate::compare::{Levels, Tally, compare_case, compare_copied_bytes};
use crate::error::Reason;
use crate::format::{Case, Observed};
use crate::indeterminate::Indeterminate;
use crate::record::{Pass, merge, record_case};
use crate::run::Session;
use crate::time_limit::TimeLimit;

/// How two back ends are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The levels, besides contract; those that a back end does not show are left out.
    pub levels: Levels,
    /// How often the reference carries a program out; at least once.
    pub repeat: u32,
}

impl Rules {
    /// All levels; a reference that is not deterministic is asked twice.
    #[must_use]
    pub fn of_reference(reference: &dyn Backend) -> Self {
        let repeat = if reference.capabilities().deterministic { 1 } else { 2 };
        Self { levels: Levels::ALL, repeat }
    }
}

/// Carries a program out on both and compares. Neither may hold buffers of the caller's.
///
/// # Errors
/// If the program cannot be a recording, as [`record_case`] says: line and reason.
pub fn compare_backends(
    reference: &dyn Backend,
    other: &Session,
    program: &Case,
    rules: Rules,
) -> Result<Tally, (u64, Reason)> {
    let run = |_| record_case(reference, program, Pass::Observed);
    let runs = (0..rules.repeat.max(1)).map(run).collect::<Result<Vec<_>, _>>()?;
    let recorded =
        merge(&runs, &[]).map_err(|differ| (program.line, Reason::BadField(differ.to_string())))?;
    let shown = reference.capabilities();
    let mut replay = other.replay(&recorded, !shown.deterministic, &TimeLimit::NONE)?;
    replay.has_events &= rules.levels.events && shown.events;
    replay.has_host_mapped &= rules.levels.pages && shown.host_page_map;
    let exact = without_chance(&recorded);
    let mut tally = compare_case(&exact, &replay, false);
    tally.compare_exactly();
    if replay.has_events {
        let all: Vec<Vec<&Observed>> = (0..recorded.ops.len())
            .map(|at| runs.iter().map(|run| &run.ops[at].recorded.observed).collect())
            .collect();
        compare_copied_bytes(&recorded, &all, &replay, &mut tally);
    }
    Ok(tally)
}

/// The recording without what is no promise: records of parallel operations, and sums of memory
/// with indeterminate contents.
fn without_chance(recorded: &Case) -> Case {
    let mut case = recorded.clone();
    let mut indeterminate = Indeterminate::default();
    for line in &mut case.ops {
        let parallel = line.recorded.is_parallel();
        let unstable = &mut line.recorded.observed.unstable;
        if parallel {
            unstable.push("events".to_owned());
        }
        if indeterminate.is_read_by(&line.recorded.op) {
            unstable.push("sum".to_owned());
        }
        indeterminate.follow(&line.recorded);
    }
    case
}
