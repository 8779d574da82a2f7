//! A divergence as people read it: the call, the case, what was expected and what came.

use crate::common::{Files, json, pagewise, status, stdout};

const PROGRAM: [&str; 3] = [
    r#"{"op":"alloc_managed","buf":0,"bytes":4194304,"attach_flags":1}"#,
    r#"{"op":"host_touch","buf":0,"offset":0,"bytes":2097152,"stride":4096,"access":"write","value":1}"#,
    r#"{"op":"range_attributes","buf":0,"offset":8192,"bytes":4096}"#,
];

/// A recording of the program, and the recording with one text in place of another.
struct Recordings {
    files: Files,
    trace: String,
}

impl Recordings {
    fn new() -> Self {
        let files = Files::new();
        let program = files.add("program.jsonl", PROGRAM.join("\n"));
        let trace = files.path("trace.jsonl");
        let output = pagewise(&["record", &program, "-o", &trace, "--timed-runs", "0"]);
        assert_eq!(status(&output), 0);
        Self { files, trace }
    }

    /// The answer of a replay of the changed recording, and the same as JSON.
    #[track_caller]
    fn replayed(&self, recorded: &str, planted: &str) -> (String, serde_json::Value) {
        let text = std::fs::read_to_string(&self.trace).expect("readable");
        assert!(text.contains(recorded), "{recorded}: {text}");
        let changed = self.files.add("changed.jsonl", text.replacen(recorded, planted, 1));
        let output = pagewise(&["replay", &changed]);
        assert_eq!(status(&output), 1, "{}", stdout(&output));
        let report = json(&pagewise(&["replay", &changed, "--json"]));
        (stdout(&output), report["traces"][0]["first_divergence"].clone())
    }
}

#[track_caller]
fn assert_lines(text: &str, lines: &[&str]) {
    let from = text.lines().skip_while(|line| !line.ends_with(lines[0]));
    let said: Vec<&str> = from.take(lines.len()).collect();
    assert_eq!(said[1..], lines[1..], "{text}");
    assert!(!text.contains(['{', '}', '"']), "no JSON: {text}");
}

#[test]
fn pages_are_shown_as_a_map_of_both_sides() {
    let recordings = Recordings::new();
    let (text, first) = recordings.replayed(r#""0":"512H,512.""#, r#""0":"16.,480H,528.""#);
    assert_lines(
        &text,
        &[
            ":4: case program diverges at level pages",
            "  host_touch: bytes 0..2097152 of buffer 0 (pages 0..512); access write; stride 4096; value 1",
            "  the host's page table of buffer 0 (H mapped, . not):",
            "    pages 0..512, 8 pages for each character, * for unlike ones:",
            "    expected ..HHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHH..",
            "    got      HHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHH",
            "    differ   ^^                                                            ^^",
            "    pages 0..16: expected not mapped, got mapped",
            "    pages 496..512: expected not mapped, got mapped",
        ],
    );
    assert_eq!(first["expected"]["host_mapped"]["0"], "16.,480H,528.", "JSON has it as it was");
    assert_eq!((&first["op"]["op"], &first["op"]["buf"]), (&"host_touch".into(), &0.into()));
}

#[test]
fn records_are_told_in_words_with_a_map_of_their_pages() {
    let recordings = Recordings::new();
    let (text, first) =
        recordings.replayed(r#"["cpu_fault",0,0,65536,"#, r#"["cpu_fault",0,0,4096,"#);
    assert_eq!(first["level"], "events");
    assert_lines(
        &text,
        &[
            ":4: case program diverges at level events",
            "  host_touch: bytes 0..2097152 of buffer 0 (pages 0..512); access write; stride 4096; value 1",
            "  records that were expected, and did not come:",
            "    cpu_fault: page 1 of buffer 0, value 0, host, write",
            "  records that were not expected, and came:",
            "    cpu_fault: page 16 of buffer 0, value 0, host, write",
            "  their pages in buffer 0 (x has such a record):",
            "    pages 1..17, a page for each character:",
            "    expected x...............",
            "    got      ...............x",
        ],
    );
}

#[test]
fn attributes_and_results_are_told_by_name() {
    let recordings = Recordings::new();
    let (text, _) = recordings.replayed(r#""read_mostly":[0,0]"#, r#""read_mostly":[0,1]"#);
    assert_lines(
        &text,
        &[
            ":5: case program diverges at level contract",
            "  range_attributes: bytes 8192..12288 of buffer 0 (page 2)",
            "  attribute read_mostly: expected 1, got 0",
        ],
    );
}

#[test]
fn programs_that_differ_are_told_by_their_calls() {
    let recordings = Recordings::new();
    let text = std::fs::read_to_string(&recordings.trace).expect("readable");
    let other = text.replace("\"offset\":8192", "\"offset\":0");
    let other = recordings.files.add("other.jsonl", other);
    let output = pagewise(&["compare", &recordings.trace, &other]);
    assert_eq!(status(&output), 1);
    assert_lines(
        &stdout(&output),
        &[
            ":5: case program diverges at level contract",
            "  range_attributes: bytes 8192..12288 of buffer 0 (page 2)",
            "  expected range_attributes: bytes 8192..12288 of buffer 0 (page 2)",
            "  got      range_attributes: bytes 0..4096 of buffer 0 (page 0)",
        ],
    );
}
