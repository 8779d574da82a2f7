//! How long operations took on the recorded machine.
//!
//! A recording's times are of two kinds that need not fit: the time of a call is the lowest of
//! several runs, the records and their times are of one.

use crate::format::Record;

/// Between two operations the recorder looks at page tables and asks for records. Chosen with the
/// recording `thrash`, whose operations follow each other without a sleep.
const BETWEEN_NS: u64 = 60_000;

/// What a kernel takes at least besides its faults.
const KERNEL_NS: u64 = 16_000;

/// A driver that is awake serves most faults of a device in this time (medians of the shipped
/// recordings, from the third fault of a call on: 15 to 31 us). What a fault takes longer, it waits.
const SERVICE_NS: u64 = 20_000;

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
    /// None without a recorded time.
    pub(crate) fn of(record: &Record) -> Option<Self> {
        let observed = &record.observed;
        let recorded_ns = observed.ns_profiled?;
        if record.is_parallel() {
            return Some(Self { call_ns: recorded_ns + BETWEEN_NS, faults: Vec::new() });
        }
        let times = |kind| {
            let events = observed.events.iter().filter(move |event| event.kind.as_str() == kind);
            events.map(|event| event.ns)
        };
        let of_host = times("cpu_fault").count();
        let served_ns = recorded_ns.saturating_sub(times("throttling").sum());
        let (call_ns, faults) = match served_ns.checked_div(of_host as u64) {
            Some(each_ns) => (recorded_ns, vec![host_fault(each_ns); of_host]),
            None => kernel(recorded_ns, &times("gpu_fault").collect::<Vec<_>>()),
        };
        Some(Self { call_ns: call_ns + BETWEEN_NS, faults })
    }
}

/// Faults of the host have no times: they share what the call did not wait.
fn host_fault(ns: u64) -> (u64, u64) {
    let wait_ns = ns * 3 / 5;
    (wait_ns, ns - wait_ns)
}

/// A kernel of one thread. Half of what no fault takes is before the first.
fn kernel(recorded_ns: u64, faults_ns: &[u64]) -> (u64, Vec<(u64, u64)>) {
    if faults_ns.is_empty() {
        return (recorded_ns, Vec::new());
    }
    let served_ns: u64 = faults_ns.iter().sum();
    let call_ns = recorded_ns.max(served_ns + KERNEL_NS);
    let mut before_ns = (call_ns - served_ns) / 2;
    let split = |&fault_ns: &u64| {
        let service_ns = SERVICE_NS.min(fault_ns / 2);
        (std::mem::take(&mut before_ns) + fault_ns - service_ns, service_ns)
    };
    (call_ns, faults_ns.iter().map(split).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::TraceReader;

    /// The pace of a line of a recording.
    fn pace(op: &str) -> Option<Pace> {
        let header = r#"{"format":"pagewise-trace","version":1,"family":"tiny","recorded_on":{"gpus":1,"cuda_driver_version":13000}}"#;
        let text = format!("{header}\n{{\"case\":\"one\"}}\n{{{op},\"code\":0}}\n");
        let mut reader = TraceReader::new("tiny.jsonl", text.as_bytes()).expect("a header");
        let case = reader.next_case().expect("a valid case").expect("a case");
        Pace::of(&case.ops[0].record)
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
    fn a_fault_of_a_device_waits_for_all_but_its_service() {
        let pace = device(1, 400_000, [270_000, 30_000]);
        assert_eq!(pace.call_ns, 460_000);
        assert_eq!(pace.faults, [(300_000, 20_000), (15_000, 15_000)]);
    }

    #[test]
    fn a_call_lasts_at_least_as_long_as_its_faults() {
        let pace = device(1, 100_000, [270_000, 30_000]);
        assert_eq!(pace.call_ns, 300_000 + KERNEL_NS + BETWEEN_NS);
        let faults_ns: u64 = pace.faults.iter().map(|(wait, service)| wait + service).sum();
        assert!(faults_ns < pace.call_ns);
    }

    #[test]
    fn faults_of_many_threads_overlap_and_have_no_pace_of_their_own() {
        assert_eq!(device(2, 400_000, [270_000, 30_000]).faults, []);
    }
}
