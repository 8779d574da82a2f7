//! One run of a case.

use pagewise_hal::Backend;

use crate::error::Reason;
use crate::format::{Case, OpLine, RecordedOp};
use crate::reader::Live;
use crate::replay::{CaseRun, Observation};
use crate::time_limit::TimeLimit;

/// The purpose of a run of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// To see everything: results, records, page tables; its times are `start_ns` and
    /// `ns_profiled`.
    Observed,
    /// To measure times: its times are `ns`, and nothing but results is looked at.
    Timed,
}

/// Carries out the operations of a program, whatever results it holds, and gives them with their
/// results. Everything that the case leaves allocated is freed, but for pools.
///
/// `observed` on a back end that reports neither records nor page tables leaves those out.
///
/// # Errors
/// The line and [`Reason::IdUsedTwice`] if an operation allocates a buffer under the id of one that
/// lives, which a trace cannot express. Its allocations are freed all the same.
pub fn record_case(
    backend: &dyn Backend,
    program: &Case,
    pass: Pass,
) -> Result<Case, (u64, Reason)> {
    record_within(backend, program, pass, &TimeLimit::NONE)
}

/// [`record_case`], for a program from a file with limited time.
///
/// # Errors
/// As [`record_case`]; the line and [`Reason::TooMuchTime`] if the time is over before an
/// operation. Its allocations are freed all the same.
pub fn record_within(
    backend: &dyn Backend,
    program: &Case,
    pass: Pass,
    time: &TimeLimit,
) -> Result<Case, (u64, Reason)> {
    let _busy = time.busy();
    let observation = match pass {
        Pass::Observed => Observation::Full,
        Pass::Timed => Observation::ResultsOnly,
    };
    let mut run = CaseRun::new(backend, observation);
    let mut live = Live::default();
    let stopped = program.ops.iter().try_for_each(|line| {
        let op = line.recorded.op.clone();
        let recorded = time.check(op.name()).and_then(|()| {
            let observed = run.step(&op).clone();
            live.check(&RecordedOp { op, observed }, line.line)
        });
        recorded.map_err(|why| (line.line, why))
    });
    let replay = run.finish();
    stopped?;
    let ops = program.ops.iter().zip(replay.observed).map(|(line, mut observed)| {
        let ns = observed.ns.take();
        match pass {
            Pass::Observed => observed.ns_profiled = ns.map(|ns| ns.median),
            Pass::Timed => (observed.ns, observed.start_ns) = (ns, None),
        }
        OpLine { line: line.line, recorded: RecordedOp { op: line.recorded.op.clone(), observed } }
    });
    let ops = ops.collect();
    Ok(Case { name: program.name.clone(), line: program.line, ops, text_bytes: 0 })
}
