//! Comparison of the observations of a back end with recorded ones.
//!
//! Four levels. *Contract*: code, attributes, sum, access, pools and placement of every operation,
//! where recorded. *Pages*: the host's page table of the buffers that the recording lists.
//! *Events*: the records as multisets of their first seven fields. *Time*: the back end's clock
//! against the recorded median. A field that the recording marks as unstable is not compared.
//!
//! # Real time
//!
//! Which pages thrash is decided by the microsecond, and a recording does not say when each fault
//! came. So an operation that disagrees in pages or records is carried out again at every pace that
//! the recording allows. It *depends on real time* if one of these replays shows exactly what was
//! recorded; then it is neither counted nor a disagreement, but reported. What no pace explains
//! disagrees, and so does every difference at level contract.
//!
//! # Parallel families
//!
//! Where several threads of a GPU fault at once, the order of faults, and with it the number of
//! records, differs from run to run; bytes and pages do not. A trace is a *parallel family* if its
//! header says `parallel`, or if it has kernels or memsets and every one of them is parallel
//! ([`Op::is_parallel`]). The records of those operations are then compared in total, over the
//! whole file; everything else is compared as always. In any other trace a parallel operation is
//! compared like the rest, unless the recording marks its events as unstable.

mod agree;
mod diff;
mod tally;

use std::collections::BTreeMap;

use agree::{reads_agree, unset_or_equal};

pub use tally::Tally;

use crate::format::{Case, MemoryRecord, Observed, Op, OpLine, RecordedOp};
use crate::replay::CaseReplay;
use crate::report::Level;

/// Compares a case. `judge_time`: whether the back end's clock predicts time, rather than having
/// been set by the recording.
#[must_use]
pub fn compare_case(case: &Case, replay: &CaseReplay, judge_time: bool) -> Tally {
    compare(case, replay, &[], judge_time)
}

/// Compares a case with the first of several replays at paces between which the recording does not
/// decide: see the [module](self) on real time. Times are not compared.
pub(crate) fn compare_replays(case: &Case, replays: &[CaseReplay]) -> Tally {
    match replays {
        [] => Tally::default(),
        [replay, others @ ..] => compare(case, replay, others, false),
    }
}

fn compare(case: &Case, replay: &CaseReplay, others: &[CaseReplay], judge_time: bool) -> Tally {
    let mut tally = Tally::of_case(replay.elapsed_ns);
    for (at, (line, got)) in case.ops.iter().zip(&replay.observed).enumerate() {
        tally.ops = tally.ops.saturating_add(1);
        let others = others.iter().filter_map(|other| other.observed.get(at)).collect();
        let op = Compared { case, line, got, others };
        op.contract(&mut tally);
        if replay.has_host_mapped {
            op.pages(&mut tally);
        }
        if replay.has_events {
            op.events(&mut tally);
        }
        if judge_time {
            op.time(&mut tally);
        }
    }
    if replay.has_host_mapped {
        tally.final_pages_differ |= !final_pages_agree(case, replay);
    }
    tally.close_case(case);
    tally
}

/// Which levels are compared, besides contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// The host's page tables.
    pub pages: bool,
    /// The records.
    pub events: bool,
}

impl Levels {
    /// All of them.
    pub const ALL: Self = Self { pages: true, events: true };
}

/// Compares a recording with another of the same operations. What either marks as unstable is not
/// compared; times are not either. The other must have observed the levels that are compared.
///
/// An operation that only one of them has disagrees at level contract.
#[must_use]
pub fn compare_recordings(expected: &Case, got: &Case, levels: Levels) -> Tally {
    let mut expected = expected.clone();
    for (line, other) in expected.ops.iter_mut().zip(&got.ops) {
        let unstable = other.recorded.observed.unstable.iter().cloned();
        line.recorded.observed.unstable.extend(unstable);
    }
    let replay = CaseReplay {
        observed: got.ops.iter().map(|line| line.recorded.observed.clone()).collect(),
        elapsed_ns: 0,
        has_events: levels.events,
        has_host_mapped: levels.pages,
    };
    let mut tally = compare_case(&expected, &replay, false);
    tally.compare_programs(&expected, got);
    tally
}

/// Compares the bytes that each parallel operation copied each way, and adds that to the records
/// compared. `runs` holds, for each operation, what several runs observed: where they do not agree,
/// nothing is compared.
pub fn compare_copied_bytes(
    case: &Case,
    runs: &[Vec<&Observed>],
    replay: &CaseReplay,
    tally: &mut Tally,
) {
    for ((line, runs), got) in case.ops.iter().zip(runs).zip(&replay.observed) {
        let mut totals = runs.iter().map(|run| copied_bytes(&run.events));
        let Some(recorded) = totals.next().filter(|_| line.recorded.is_parallel()) else {
            continue;
        };
        if totals.any(|other| other != recorded) {
            continue;
        }
        let predicted = copied_bytes(&got.events);
        let (count, first) = tally.events_of(false);
        count.add(recorded == predicted);
        if recorded != predicted {
            Tally::note(first, case, line.line, Level::Events, || {
                (diff::copied(&recorded), diff::copied(&predicted))
            });
        }
    }
}

/// Bytes by kind of copy, source and destination.
fn copied_bytes(events: &[MemoryRecord]) -> BTreeMap<(&str, i64, i64), u64> {
    let mut bytes = BTreeMap::new();
    for event in events.iter().filter(|event| event.kind.as_str().starts_with("copy_")) {
        let total: &mut u64 = bytes.entry((event.kind.as_str(), event.src, event.dst)).or_default();
        *total = total.saturating_add(event.value);
    }
    bytes
}

/// The last operation of the case with recorded and stable page tables decides.
fn final_pages_agree(case: &Case, replay: &CaseReplay) -> bool {
    let mut ends = case.ops.iter().zip(&replay.observed).rev();
    ends.find(|(line, _)| compares_pages(&line.recorded.observed))
        .is_none_or(|(line, got)| pages_agree(&line.recorded.observed, got))
}

/// One operation and what the back end showed.
struct Compared<'a> {
    case: &'a Case,
    line: &'a OpLine,
    got: &'a Observed,
    /// The observations at other paces.
    others: Vec<&'a Observed>,
}

impl Compared<'_> {
    fn record(&self) -> &RecordedOp {
        &self.line.recorded
    }

    fn contract(&self, tally: &mut Tally) {
        let differs = contract_differs(&self.record().observed, self.got);
        let agrees = differs.is_empty();
        tally.contract.add(agrees);
        if matches!(self.record().op, Op::RangeAttributes { .. }) {
            tally.range_attributes.add(agrees);
        }
        if !agrees {
            tally.diverges(self.case, self.line.line, Level::Contract, || {
                diff::contract(&differs, &self.record().observed, self.got)
            });
        }
    }

    fn pages(&self, tally: &mut Tally) {
        let recorded = &self.record().observed;
        if !compares_pages(recorded) {
            return;
        }
        let agrees = pages_agree(recorded, self.got);
        if !agrees && self.others.iter().any(|other| pages_agree(recorded, other)) {
            return tally.depends_on_time(self.case, self.line.line, Level::Pages, || {
                diff::pages(recorded, self.got)
            });
        }
        tally.pages.add(agrees);
        if !agrees {
            tally.diverges(self.case, self.line.line, Level::Pages, || {
                diff::pages(recorded, self.got)
            });
        }
    }

    fn events(&self, tally: &mut Tally) {
        let recorded = &self.record().observed;
        let parallel = self.record().op.is_parallel();
        tally.add_totals(&self.record().op, &recorded.events, &self.got.events);
        if recorded.is_unstable("events") {
            return;
        }
        let agrees = events_agree(recorded, self.got);
        if !agrees && self.others.iter().any(|other| events_agree(recorded, other)) {
            return tally.depends_on_time(self.case, self.line.line, Level::Events, || {
                diff::events(recorded, self.got)
            });
        }
        let (count, first) = tally.events_of(parallel);
        count.add(agrees);
        if !agrees {
            Tally::note(first, self.case, self.line.line, Level::Events, || {
                diff::events(recorded, self.got)
            });
        }
    }

    fn time(&self, tally: &mut Tally) {
        let recorded = &self.record().observed;
        if matches!(self.record().op, Op::Sleep { .. }) || recorded.is_unstable("ns") {
            return;
        }
        if let (Some(recorded), Some(predicted)) = (recorded.ns, self.got.ns) {
            tally.add_time(self.case, self.line.line, recorded.median, predicted.median);
        }
    }
}

// ---- equality ---------------------------------------------------------------------------------

/// The fields of the contract that differ, of those that are recorded and stable.
fn contract_differs(recorded: &Observed, got: &Observed) -> Vec<&'static str> {
    let agree = [
        ("code", recorded.code == code_of_reads(recorded, got)),
        ("offset_in_2mib", unset_or_equal(&recorded.offset_in_2mib, &got.offset_in_2mib)),
        ("sum", unset_or_equal(&recorded.sum, &got.sum)),
        ("access_flags", unset_or_equal(&recorded.access_flags, &got.access_flags)),
        ("same_as", unset_or_equal(&sorted(&recorded.same_as), &sorted(&got.same_as))),
        ("attributes", attributes_agree(recorded, got)),
    ];
    let differ =
        agree.into_iter().filter(|&(field, agrees)| !agrees && !recorded.is_unstable(field));
    differ.map(|(field, _)| field).collect()
}

/// The code, of attribute reads the first failure among those that are recorded: a recording may
/// hold some of the attributes, and a replay reads all.
fn code_of_reads(recorded: &Observed, got: &Observed) -> i32 {
    let (Some(names), Some(reads)) = (&recorded.attributes, &got.attributes) else {
        return got.code;
    };
    if got.code == 0 || names.0.len() == reads.0.len() {
        return got.code;
    }
    let mut codes = names.0.iter().filter_map(|(name, _)| Some(reads.get(name.as_str())?.0));
    codes.find(|&code| code != 0).unwrap_or(0)
}

fn sorted(pools: &Option<Vec<u32>>) -> Option<Vec<u32>> {
    pools.clone().map(|mut pools| {
        pools.sort_unstable();
        pools
    })
}

fn attributes_agree(recorded: &Observed, got: &Observed) -> bool {
    let Some(recorded) = &recorded.attributes else { return true };
    recorded.0.iter().all(|(name, read)| {
        let other = got.attributes.as_ref().and_then(|got| got.get(name.as_str()));
        other.is_some_and(|other| reads_agree(read, other))
    })
}

fn compares_pages(recorded: &Observed) -> bool {
    !recorded.host_mapped.is_empty() && !recorded.is_unstable("host_mapped")
}

fn pages_agree(recorded: &Observed, got: &Observed) -> bool {
    recorded.host_mapped.iter().all(|(buf, map)| got.host_mapped.get(buf) == Some(map))
}

fn events_agree(recorded: &Observed, got: &Observed) -> bool {
    same_records(&recorded.events, &got.events)
}

/// Whether records are equal as multisets of their first seven fields.
#[must_use]
pub fn same_records(recorded: &[MemoryRecord], got: &[MemoryRecord]) -> bool {
    if recorded.len() != got.len() {
        return false;
    }
    // Most are in the same order: only the rest is sorted.
    let same = recorded.iter().zip(got).take_while(|(a, b)| a.key() == b.key()).count();
    let (recorded, got) = (in_order(&recorded[same..]), in_order(&got[same..]));
    recorded.iter().zip(got).all(|(a, b)| a.key() == b.key())
}

/// Records in an order by their keys, with numbers that tell most of them apart first: names take
/// longer to compare.
fn in_order(records: &[MemoryRecord]) -> Vec<&MemoryRecord> {
    let numbers = |of: &MemoryRecord| (of.offset, of.value, of.buf, of.src, of.dst);
    let mut sorted: Vec<&MemoryRecord> = records.iter().collect();
    sorted.sort_unstable_by(|a, b| numbers(a).cmp(&numbers(b)).then_with(|| a.key().cmp(&b.key())));
    sorted
}
