//! Programs: traces that may lack results, a header and a first case.

use pagewise_trace::format::{Case, Header, RecordedOn};
use pagewise_trace::reader::TraceReader;
use pagewise_trace::writer::TraceWriter;

use crate::common::{HEADER, OPS, tiny};

fn default() -> Header {
    let machine = RecordedOn::new(4, 12080);
    Header::new("default", machine)
}

fn program(text: &str) -> (Header, Vec<Case>) {
    let mut reader =
        TraceReader::program("program.jsonl", text.as_bytes(), default()).expect("a program");
    let mut cases = Vec::new();
    while let Some(case) = reader.next_case().unwrap_or_else(|error| panic!("{error}")) {
        cases.push(case);
    }
    (reader.header().clone(), cases)
}

fn error(text: &str) -> String {
    let reader = TraceReader::program("program.jsonl", text.as_bytes(), default());
    reader.and_then(|mut reader| reader.next_case()).expect_err("invalid").to_string()
}

/// The operations of the tiny trace without results, as the writer puts them.
fn without_results() -> String {
    let (_, cases) = program(&tiny());
    let mut writer = TraceWriter::plain(Vec::new(), &default()).expect("in memory");
    for line in &cases[0].ops {
        writer.op(&line.recorded.op).expect("in memory");
    }
    let text = String::from_utf8(writer.finish().expect("in memory")).expect("UTF-8");
    text.split_once('\n').expect("a header").1.to_owned()
}

#[test]
fn every_operation_can_stand_without_results_header_and_case() {
    let text = without_results();
    assert!(!text.contains("\"code\"") && !text.contains("attributes\":"), "{text}");
    let (header, cases) = program(&text);
    assert_eq!((header, cases.len(), cases[0].ops.len()), (default(), 1, OPS.len()));
    let (_, original) = program(&tiny());
    let ops =
        |case: &Case| case.ops.iter().map(|line| line.recorded.op.clone()).collect::<Vec<_>>();
    assert_eq!(ops(&cases[0]), ops(&original[0]));
    assert_eq!((cases[0].name.as_str(), cases[0].line, cases[0].ops[0].line), ("program", 1, 1));
}

#[test]
fn a_header_and_cases_are_used_where_they_are_given() {
    let (header, cases) = program(&format!("{HEADER}\n{{\"case\":\"a\"}}\n{}", without_results()));
    assert_eq!((header.family.as_str(), header.recorded_on.gpus), ("tiny", 1));
    assert_eq!((cases.len(), cases[0].name.as_str()), (1, "a"));
    let (header, cases) = program(&format!("{{\"case\":\"a\"}}\n{}", without_results()));
    assert_eq!((header, cases[0].name.as_str()), (default(), "a"));
}

#[test]
fn ids_may_be_used_twice_as_an_allocation_may_be_meant_to_fail() {
    let (_, cases) = program(&format!("{}\n{}", OPS[0], OPS[0]));
    assert_eq!(cases[0].ops.len(), 2);
}

#[test]
fn what_is_no_program_is_refused_with_its_line() {
    assert!(error("").contains("empty"));
    assert!(error("[1]\n").contains("program.jsonl:1: missing header"));
    assert!(error("{\"op\":\"explode\"}\n").contains("program.jsonl:1: unknown op"));
    assert!(error(&format!("{}\n{{}}\n", OPS[0])).contains("program.jsonl:2: neither"));
    assert!(error("{\"op\":\"free\"}").contains("missing field `buf`"));
}
