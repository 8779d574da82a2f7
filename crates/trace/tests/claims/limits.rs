//! Limits of what a trace may ask for, which hold before it is carried out.

use std::path::Path;
use std::time::Duration;

use pagewise_trace::limits::WorkLimits;
use pagewise_trace::reader::TraceReader;

use crate::common::{HEADER, with_ops};

const LIMITS: WorkLimits =
    WorkLimits { work: 1_000_000, memory_bytes: 1 << 30, time: Duration::MAX };

/// The error of a trace under these limits, or none.
fn refused(text: &str, limits: WorkLimits, times: u64) -> Option<String> {
    let reader = TraceReader::new("tiny", text.as_bytes()).expect("a header");
    let mut reader = reader.limited(limits, times);
    loop {
        match reader.next_case() {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(error) => return Some(error.to_string()),
        }
    }
}

fn alloc(buf: u32, bytes: u64) -> String {
    format!(r#"{{"op":"alloc_managed","buf":{buf},"bytes":{bytes},"attach_flags":1,"code":0}}"#)
}

fn prefetch(buf: u32, bytes: u64) -> String {
    format!(
        r#"{{"op":"prefetch","abi":1,"buf":{buf},"offset":0,"bytes":{bytes},"location":{{"ordinal":0}},"code":0}}"#
    )
}

fn touch(kind: &str, bytes: u64, stride: u64, access: &str, blocks: u32) -> String {
    format!(
        r#"{{"op":"{kind}","device":0,"buf":0,"offset":0,"bytes":{bytes},"stride":{stride},"access":"{access}","value":1,"blocks":{blocks},"threads":1,"code":0}}"#
    )
}

fn ops(ops: &[String]) -> String {
    with_ops(&ops.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn an_operation_that_asks_for_too_much_is_refused_at_its_line() {
    let text = ops(&[alloc(0, 8 << 40), prefetch(0, 8 << 40)]);
    let message = refused(&text, WorkLimits::default(), 1).expect("8 TiB are too much");
    assert!(message.starts_with("tiny:4: too much work: up to this prefetch"), "{message}");
    assert!(message.contains("100000000 are allowed") && message.contains("--max-work"));
    assert_eq!(refused(&text, WorkLimits::UNLIMITED, 1), None);
}

#[test]
fn every_operation_that_goes_over_pages_counts_them() {
    let (named, part) = (8 << 30_u64, "\"buf\":0,\"offset\":0");
    let range = format!("[0,0,{named}]");
    let batch = r#""locations":[{"kind":"device","id":0}],"location_starts":[0],"flags":0,"stream":"stream","code":0"#;
    let going = [
        prefetch(0, named),
        format!(r#"{{"op":"prefetch_batch","ranges":[{range}],{batch}}}"#),
        format!(r#"{{"op":"discard_prefetch_batch","ranges":[{range}],{batch}}}"#),
        format!(
            r#"{{"op":"discard_batch","ranges":[{range}],"flags":0,"stream":"null","code":0}}"#
        ),
        format!(r#"{{"op":"memset",{part},"bytes":{named},"value":1,"code":0}}"#),
        format!(
            r#"{{"op":"memcpy","dst_buf":0,"dst_offset":0,"src_buf":0,"src_offset":0,"bytes":{named},"code":0}}"#
        ),
        format!(r#"{{"op":"memset_d16",{part},"bytes":{named},"value":1,"code":0}}"#),
        format!(r#"{{"op":"memset_d32",{part},"bytes":{named},"value":1,"code":0}}"#),
        format!(
            r#"{{"op":"memcpy_batch","copies":[[0,0,0,0,{named}]],"attribute_sets":[{{"order":1}}],"attribute_starts":[0],"stream":"stream","code":0}}"#
        ),
        touch("host_touch", named, 4096, "read", 1),
        touch("host_touch", named, 4096, "write", 1),
        touch("device_touch", named, 1, "atomic_add", 1),
        touch("device_touch", named, 4096, "read", 64),
        format!(
            r#"{{"op":"kernel_accesses","device":0,"blocks":1,"threads":1,"walks":[{{"access":"load","ranges":[[0,0,{named},4096]]}}],"code":0}}"#
        ),
    ];
    for op in going {
        let text = ops(&[alloc(0, named), op.clone()]);
        let limits = WorkLimits { memory_bytes: u64::MAX, ..LIMITS };
        let message = refused(&text, limits, 1).unwrap_or_else(|| panic!("{op} was let through"));
        assert!(message.starts_with("tiny:4: too much work"), "{message}");
    }
}

#[test]
fn bytes_that_no_buffer_has_cost_nothing() {
    let text =
        ops(&[alloc(0, 4096), prefetch(0, u64::MAX), prefetch(7, u64::MAX), alloc(1, u64::MAX)]);
    assert_eq!(refused(&text, LIMITS, 1), None);
}

#[test]
fn what_the_file_says_of_results_hides_nothing() {
    let failed = |op: String| op.replace("\"code\":0", "\"code\":2");
    let big = || alloc(0, 8 << 40);
    let wrong_free = r#"{"op":"free_pinned","buf":0,"code":0}"#.to_owned();
    for hiding in [
        vec![failed(big()), prefetch(0, 8 << 40)],
        vec![failed(big()), failed(alloc(0, 0)), prefetch(0, 8 << 40)],
        vec![big(), wrong_free, prefetch(0, 8 << 40)],
    ] {
        let message = refused(&ops(&hiding), WorkLimits::default(), 1).expect("too much");
        assert!(message.contains("too much work: up to this prefetch"), "{message}");
    }
}

#[test]
fn a_buffer_that_was_freed_counts_no_more() {
    let free = || r#"{"op":"free","buf":0,"code":0}"#.to_owned();
    let rounds = (0..1000).flat_map(|_| [alloc(0, 1 << 30), free()]);
    let text = ops(&rounds.chain([alloc(0, 4096), prefetch(0, 1 << 40)]).collect::<Vec<_>>());
    assert_eq!(refused(&text, LIMITS, 1), None);
}

#[test]
fn cases_operations_text_and_sleep_count_too() {
    let cases = format!("{HEADER}\n{}", "{\"case\":\"x\"}\n".repeat(20_000));
    let message = refused(&cases, LIMITS, 1).expect("too many cases");
    assert!(message.contains("too much work: up to this case"), "{message}");
    let live: Vec<String> = (0..2_000).map(|buf| alloc(buf, 4096)).collect();
    let message = refused(&ops(&live), LIMITS, 1).expect("each looks at all page tables");
    assert!(message.contains("up to this alloc_managed"), "{message}");
    let sleep = [r#"{"op":"sleep","ms":18446744073709551615,"code":0}"#];
    assert!(refused(&with_ops(&sleep), LIMITS, 1).is_some());
    let blanks = format!("{HEADER}\n{{\"case\":\"x\"}}\n{}", "\n".repeat(1 << 16));
    let few = WorkLimits { work: 1006, ..LIMITS };
    let text = format!("{blanks}{{\"op\":\"sleep\",\"ms\":0,\"code\":0}}\n");
    assert!(refused(&text, few, 1).expect("too much text").contains("up to this line"));
    let get =
        r#"{"op":"pool_get_default","pool":1,"location":{"kind":"host"},"alloc_type":1,"code":0}"#;
    assert!(refused(&with_ops(&[get; 2_000]), LIMITS, 1).is_some(), "answers name all before");
}

#[test]
fn a_file_pays_for_the_cases_that_it_has() {
    for cases in [0, 1, 3] {
        let text = format!("{HEADER}\n{}", "{\"case\":\"x\"}\n".repeat(cases));
        let limits = WorkLimits { work: 1000 * cases as u64, ..LIMITS };
        assert_eq!(refused(&text, limits, 1), None, "{cases} cases");
        let reader = TraceReader::new("tiny", text.as_bytes()).expect("a header");
        let mut reader = reader.limited(limits, 1);
        while reader.next_case().expect("within the limits").is_some() {}
        assert_eq!(reader.work(), limits.work);
    }
    let program = r#"{"op":"sleep","ms":0}"#;
    let default = TraceReader::new("tiny", HEADER.as_bytes()).expect("a header").header().clone();
    let mut reader = TraceReader::program("tiny", program.as_bytes(), default).expect("a program");
    assert_eq!(reader.next_case().expect("valid").expect("a case").ops.len(), 1);
    assert_eq!(reader.work(), 1001, "a program without a case is one");
}

#[test]
fn a_small_file_of_millions_of_empty_cases_is_refused_after_a_hundred_thousand() {
    let text = format!("{HEADER}\n{}", "{\"case\":\"x\"}\n".repeat(3_000_000));
    let packed = zstd::encode_all(text.as_bytes(), 1).expect("in memory");
    assert!(packed.len() < 64 << 10, "{} bytes", packed.len());
    let mut reader = TraceReader::new("tiny", packed.as_slice()).expect("a header");
    let mut cases = 0;
    let error = loop {
        match reader.next_case() {
            Ok(case) => cases += u32::from(case.expect("not the whole file").ops.is_empty()),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("too much work: up to this case"), "{error}");
    assert!((90_000..=100_000).contains(&cases), "{cases} cases were handed out");
}

#[test]
fn what_is_carried_out_many_times_counts_as_often() {
    let text = ops(&[alloc(0, 1 << 30), prefetch(0, 1 << 30)]);
    assert_eq!(refused(&text, LIMITS, 3), None);
    assert!(refused(&text, LIMITS, 4).is_some());
    let much = ops(&[alloc(0, 8 << 40), prefetch(0, 8 << 40)]);
    assert_eq!(refused(&much, LIMITS, 0), None, "nobody carries it out");
}

#[test]
fn memory_that_a_case_may_write_is_limited() {
    let write = |bytes| ops(&[alloc(0, 1 << 30), touch("host_touch", bytes, 4096, "write", 1)]);
    assert_eq!(refused(&write(1 << 29), LIMITS, 1), None);
    let few = WorkLimits { memory_bytes: 1 << 28, ..LIMITS };
    let message = refused(&write(1 << 29), few, 1).expect("too much memory");
    assert!(message.starts_with("tiny:4: too much memory: with this host_touch"), "{message}");
    assert!(message.contains("--max-memory"), "{message}");
    let read = ops(&[alloc(0, 1 << 30), touch("host_touch", 1 << 29, 4096, "read", 1)]);
    assert_eq!(refused(&read, few, 1), None, "memory that is only read takes none");
    let one = ops(&[alloc(0, 1 << 30), touch("host_touch", 1 << 29, 1 << 29, "write", 1)]);
    assert_eq!(refused(&one, few, 1), None, "one page is written");
}

#[test]
fn the_shipped_recordings_stay_far_below_the_default_limits() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/traces/h200-580");
    let (mut work, mut memory_bytes) = (0, 0);
    for entry in folder.read_dir().expect("the checkout has its recordings") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "zst") {
            continue;
        }
        let mut reader = TraceReader::open(&path).expect("a header");
        while reader.next_case().expect("within the limits").is_some() {
            memory_bytes = memory_bytes.max(reader.case_memory_bytes());
        }
        println!("{}: {} units", path.display(), reader.work());
        work = work.max(reader.work());
    }
    println!("most: {work} units, {memory_bytes} bytes");
    let limits = WorkLimits::default();
    assert!(work > 0 && work < limits.work / 10, "{work}");
    assert!(memory_bytes > 0 && memory_bytes < limits.memory_bytes / 10, "{memory_bytes}");
}
