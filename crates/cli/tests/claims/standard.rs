//! `-` as a trace to read, and as one to write.

use std::io::Write as _;

use crate::common::{Files, json, pagewise, status, stderr, stdout, trace, with_stdin};

const OPS: [&str; 2] = [
    r#"{"op":"alloc_managed","buf":0,"bytes":4096,"attach_flags":1,"code":0}"#,
    r#"{"op":"free","buf":0,"code":0}"#,
];

fn gzipped(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("in memory");
    encoder.finish().expect("in memory")
}

#[test]
fn a_trace_on_standard_input_is_replayed_whatever_its_compression() {
    let text = trace(&OPS);
    let zipped = zstd::encode_all(text.as_bytes(), 1).expect("in memory");
    for bytes in [text.clone().into_bytes(), gzipped(&text), zipped] {
        let output = with_stdin(&["replay", "-", "--json"], &bytes);
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        let report = json(&output);
        assert_eq!(
            (&report["traces"][0]["file"], &report["traces"][0]["ops"]),
            (&"-".into(), &2.into())
        );
    }
    let bad = with_stdin(&["replay", "-"], trace(&["oops"]).as_bytes());
    assert_eq!(status(&bad), 3);
    assert!(stderr(&bad).starts_with("-:3: not JSON"), "{}", stderr(&bad));
}

#[test]
fn one_of_two_compared_recordings_may_come_from_standard_input() {
    let files = Files::new();
    let (text, other) = (trace(&OPS), trace(&[&OPS[0].replace("\"code\":0", "\"code\":1")]));
    let file = files.add("a.jsonl", &text);
    assert_eq!(status(&with_stdin(&["compare", &file, "-"], text.as_bytes())), 0);
    assert_eq!(status(&with_stdin(&["compare", "-", &file], other.as_bytes())), 1);
}

#[test]
fn standard_input_is_read_once() {
    for arguments in [["compare", "-", "-"], ["replay", "-", "-"]] {
        let output = with_stdin(&arguments, trace(&OPS).as_bytes());
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains("can be read once"), "{}", stderr(&output));
    }
}

#[test]
fn a_program_is_recorded_from_standard_input_to_standard_output() {
    let program = OPS.map(|op| op.replace(",\"code\":0", "")).join("\n");
    let files = Files::new();
    let file = files.add("stdin.jsonl", &program);
    let expected = files.path("expected.jsonl");
    let few = ["--timed-runs", "0"];
    assert_eq!(status(&pagewise(&[&["record", &file, "-o", &expected], &few[..]].concat())), 0);
    let output = with_stdin(&[&["record", "-", "-o", "-"], &few[..]].concat(), program.as_bytes());
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let expected = std::fs::read_to_string(expected).expect("readable");
    assert_eq!(stdout(&output), expected, "the trace and nothing else");
    let said = stderr(&output);
    assert!(said.contains("-: 2 operations in 1 cases, family stdin"), "{said}");
    assert_eq!(files.names(), ["expected.jsonl", "stdin.jsonl"], "there is no file called -");
    let through = with_stdin(&["replay", "-"], &output.stdout);
    assert_eq!(status(&through), 0, "{}", stdout(&through));
}

#[test]
fn a_program_that_fails_leaves_standard_output_empty() {
    let program = [OPS[0], OPS[0]].join("\n");
    let output = with_stdin(&["record", "-", "-o", "-"], program.as_bytes());
    assert_eq!((status(&output), stdout(&output).as_str()), (3, ""));
    assert!(stderr(&output).contains("-:2: buffer id 0 used twice"), "{}", stderr(&output));
}

#[test]
fn other_files_than_the_answer_do_not_go_to_standard_output() {
    for option in ["--save", "--programs", "--trying"] {
        let output = pagewise(&["compare", "--backend", "sim", "--ops", "10", option, "-"]);
        assert_eq!(status(&output), 2, "{option}");
        assert!(stderr(&output).contains("one of this name is `./-`"), "{}", stderr(&output));
    }
}
