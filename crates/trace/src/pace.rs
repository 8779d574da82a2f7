//! The recorded pace: how long operations took on the recorded machine.
//!
//! A recording's times are of two kinds that need not fit: the time of a call is the lowest of
//! several runs, the records and their times are of one. And it does not say all: when within a
//! call each fault came, and, if it has no `start_ns`, how long the recorder took between two
//! operations. `Unknowns` are guesses at that. Where two guesses give an operation different
//! records, real time decided which of them was recorded.

use crate::format::RecordedOp;

/// The least time of a kernel besides its faults.
const KERNEL_NS: u64 = 16_000;

/// A driver that is awake serves most faults of a device in this time (medians of the shipped
/// recordings, from the third fault of a call on: 15 to 31 us). What a fault takes longer, it waits.
const SERVICE_NS: u64 = 20_000;

/// The times that a recording does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unknowns {
    /// Between two operations the recorder looks at page tables and asks for records. Only where
    /// the recording does not say when they began.
    between_ns: u64,
    /// Which part of the time of a host's fault passes before the driver looks at it, in tenths.
    host_wait_tenths: u64,
    /// Which part of a kernel's time that no fault takes is before the first of them, in tenths.
    kernel_start_tenths: u64,
    /// How many of its other faults the first fault of a host's call takes as long as.
    host_first: u64,
}

impl Unknowns {
    /// Chosen with the recording `thrash`. Its operations follow each other without a sleep.
    pub(crate) const LIKELY: Self =
        Self { between_ns: 60_000, host_wait_tenths: 6, kernel_start_tenths: 5, host_first: 1 };

    /// Guesses that a recording speaks against as little. The time between two operations is
    /// unknown: up to twice the likely one. The parts can be anything, and the first fault of a call
    /// takes longer than the others, as the kernel's first does in every recording.
    pub(crate) fn possible() -> impl Iterator<Item = Self> {
        let between = [0, 20_000, 40_000, 60_000, 80_000, 100_000, 120_000].into_iter();
        let waits = [0, 5, 10];
        let starts = [1, 5, 9];
        let firsts = [1, 2, 3];
        between.flat_map(move |between_ns| {
            waits.into_iter().flat_map(move |host_wait_tenths| {
                starts.into_iter().flat_map(move |kernel_start_tenths| {
                    firsts.into_iter().map(move |host_first| Self {
                        between_ns,
                        host_wait_tenths,
                        kernel_start_tenths,
                        host_first,
                    })
                })
            })
        })
    }

    /// How many [`possible`](Self::possible) ones there are.
    pub(crate) const POSSIBLE: u64 = 7 * 3 * 3 * 3;
}

/// How long an operation took, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    /// To the beginning of the next one.
    pub call_ns: u64,
    /// Each of its faults, in their order, as far as they are known: until the driver looks at it,
    /// and from then on.
    pub faults: Vec<(u64, u64)>,
}

impl Pace {
    /// The pace of an operation before `next`, the next of its case. None without a recorded time.
    pub(crate) fn of(
        record: &RecordedOp,
        next: Option<&RecordedOp>,
        unknowns: Unknowns,
    ) -> Option<Self> {
        let observed = &record.observed;
        let recorded_ns = observed.ns_profiled?;
        let next_start_ns = next.and_then(|next| next.observed.start_ns);
        let to_next_ns = next_start_ns
            .zip(observed.start_ns)
            .map(|(next_ns, this_ns)| next_ns.saturating_sub(this_ns));
        let until_next = |call_ns: u64| match to_next_ns {
            // A kernel takes at least as long as its faults, whatever the clocks say.
            Some(ns) => ns.max(call_ns),
            None => call_ns.saturating_add(unknowns.between_ns),
        };
        if record.is_parallel() {
            return Some(Self { call_ns: until_next(recorded_ns), faults: Vec::new() });
        }
        let times = |kind| {
            let events = observed.events.iter().filter(move |event| event.kind.as_str() == kind);
            events.map(|event| event.ns)
        };
        let of_host = times("cpu_fault").count();
        let served_ns =
            recorded_ns.saturating_sub(times("throttling").fold(0, u64::saturating_add));
        let (call_ns, faults) = match of_host.checked_sub(1) {
            Some(others) => (recorded_ns, host_faults(served_ns, others, unknowns)),
            None => kernel(recorded_ns, &times("gpu_fault").collect::<Vec<_>>(), unknowns),
        };
        Some(Self { call_ns: until_next(call_ns), faults })
    }
}

/// A number of tenths of a time.
fn tenths(ns: u64, tenths: u64) -> u64 {
    let rest = (ns % 10).saturating_mul(tenths) / 10;
    (ns / 10).saturating_mul(tenths).saturating_add(rest)
}

/// Faults of the host have no times: they share what the call did not wait.
fn host_faults(served_ns: u64, others: usize, unknowns: Unknowns) -> Vec<(u64, u64)> {
    let shares = (others as u64).saturating_add(unknowns.host_first);
    let each_ns = served_ns.checked_div(shares).unwrap_or(0);
    let first = host_fault(each_ns.saturating_mul(unknowns.host_first), unknowns);
    let mut faults = vec![first];
    faults.resize(others.saturating_add(1), host_fault(each_ns, unknowns));
    faults
}

fn host_fault(ns: u64, unknowns: Unknowns) -> (u64, u64) {
    let wait_ns = tenths(ns, unknowns.host_wait_tenths);
    (wait_ns, ns.saturating_sub(wait_ns))
}

/// A kernel of one thread.
fn kernel(recorded_ns: u64, faults_ns: &[u64], unknowns: Unknowns) -> (u64, Vec<(u64, u64)>) {
    if faults_ns.is_empty() {
        return (recorded_ns, Vec::new());
    }
    let served_ns = faults_ns.iter().copied().fold(0, u64::saturating_add);
    let call_ns = recorded_ns.max(served_ns.saturating_add(KERNEL_NS));
    let mut before_ns = tenths(call_ns.saturating_sub(served_ns), unknowns.kernel_start_tenths);
    let split = |&fault_ns: &u64| {
        let service_ns = SERVICE_NS.min(fault_ns / 2);
        let waited_ns = fault_ns.saturating_sub(service_ns);
        (std::mem::take(&mut before_ns).saturating_add(waited_ns), service_ns)
    };
    (call_ns, faults_ns.iter().map(split).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::TraceReader;

    #[test]
    fn the_possible_guesses_are_as_many_as_said_and_differ() {
        let mut all: Vec<Unknowns> = Unknowns::possible().collect();
        assert_eq!(all.len() as u64, Unknowns::POSSIBLE);
        while let Some(one) = all.pop() {
            assert!(!all.contains(&one));
        }
    }

    /// The pace of a line of a recording.
    fn pace(op: &str) -> Option<Pace> {
        let header = r#"{"format":"pagewise-trace","version":1,"family":"tiny","recorded_on":{"gpus":1,"cuda_driver_version":13000}}"#;
        let text = format!("{header}\n{{\"case\":\"one\"}}\n{{{op},\"code\":0}}\n");
        let mut reader = TraceReader::new("tiny.jsonl", text.as_bytes()).expect("a header");
        let case = reader.next_case().expect("a valid case").expect("a case");
        let [line, later @ ..] = &case.ops[..] else { panic!("no operation") };
        Pace::of(&line.recorded, later.first().map(|line| &line.recorded), Unknowns::LIKELY)
    }

    const HOST: &str = r#""op":"host_touch","buf":0,"offset":0,"bytes":8192,"stride":4096,"access":"read","ns_profiled":100000"#;

    fn device(blocks: u64, recorded_ns: u64, faults_ns: [u64; 2]) -> Pace {
        let [first, second] = faults_ns.map(|ns| format!(r#"["gpu_fault",1,0,0,0,0,"read",{ns}]"#));
        let op = format!(
            r#""op":"device_touch","device":0,"buf":0,"offset":0,"bytes":8192,"stride":4096,"access":"read","blocks":{blocks},"threads":1,"ns_profiled":{recorded_ns},"events":[{first},{second}]"#
        );
        pace(&op).expect("a recorded time")
    }

    #[test]
    fn without_a_recorded_time_there_is_no_pace() {
        assert_eq!(pace(r#""op":"sleep","ms":1"#), None);
    }

    #[test]
    fn faults_of_the_host_share_what_the_call_did_not_wait() {
        let fault = r#"["cpu_fault",0,0,0,-1,-1,"read",0]"#;
        let waited = r#"["throttling",0,0,0,-1,0,1,40000]"#;
        let op = format!("{HOST},\"events\":[{fault},{waited},{fault}]");
        let expected = Pace { call_ns: 160_000, faults: vec![(18_000, 12_000); 2] };
        assert_eq!(pace(&op), Some(expected));
        let expected = Pace { call_ns: 160_000, faults: Vec::new() };
        assert_eq!(pace(HOST), Some(expected), "no fault, nothing to share");
    }

    #[test]
    fn where_the_recording_says_when_operations_began_nothing_is_guessed() {
        let next = r#""op":"sleep","ms":1"#;
        let two = |this: &str, next_start: &str| {
            let lines = format!("{HOST}{this},\"code\":0}}\n{{{next}{next_start}");
            pace(&lines).expect("a recorded time").call_ns
        };
        assert_eq!(two(r#","start_ns":5000"#, r#","start_ns":112000"#), 107_000);
        assert_eq!(
            two(r#","start_ns":5000"#, r#","start_ns":7000"#),
            100_000,
            "not less than it took"
        );
        let guessed_ns = 100_000 + Unknowns::LIKELY.between_ns;
        assert_eq!(two("", r#","start_ns":112000"#), guessed_ns);
        assert_eq!(two(r#","start_ns":5000"#, ""), guessed_ns);
    }

    #[test]
    fn a_fault_of_a_device_waits_for_all_but_its_service() {
        let pace = device(1, 400_000, [270_000, 30_000]);
        assert_eq!(pace.call_ns, 460_000);
        assert_eq!(pace.faults, [(300_000, 20_000), (15_000, 15_000)]);
    }

    #[test]
    fn a_call_lasts_at_least_as_long_as_its_faults() {
        let pace = device(1, 100_000, [270_000, 30_000]);
        assert_eq!(pace.call_ns, 300_000 + KERNEL_NS + Unknowns::LIKELY.between_ns);
        let faults_ns: u64 = pace.faults.iter().map(|(wait, service)| wait + service).sum();
        assert!(faults_ns < pace.call_ns);
    }

    #[test]
    fn faults_of_many_threads_overlap_and_have_no_pace_of_their_own() {
        assert_eq!(device(2, 400_000, [270_000, 30_000]).faults, []);
    }
}
