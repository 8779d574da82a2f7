//! Bad input is refused with file, line and reason, class by class; good input is read.

use std::io::{Cursor, Read, Write};

use pagewise_trace::format::{AttributeValue, Op};
use pagewise_trace::reader::{MAX_CASE_OPS, MAX_LINE_BYTES, TraceReader};
use pagewise_trace::writer::TraceWriter;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::common::{HEADER, OPS, error, read, tiny, with_ops};

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("in memory");
    encoder.finish().expect("in memory")
}

fn zstd(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 1).expect("in memory")
}

// ---- files that are read ----------------------------------------------------------------------

#[test]
fn every_operation_is_read_with_its_line() {
    let cases = read(tiny().as_bytes()).expect("valid");
    assert_eq!(cases.len(), 1);
    assert_eq!((cases[0].name.as_str(), cases[0].line, cases[0].ops.len()), ("one", 2, OPS.len()));
    assert_eq!(cases[0].ops[0].line, 3);
    let Op::Advise { advice, .. } = cases[0].ops[3].recorded.op else { panic!("not advice") };
    assert_eq!(advice, pagewise_hal::Advice::SET_READ_MOSTLY);
    let attributes = cases[0].ops[16].recorded.observed.attributes.as_ref().expect("attributes");
    let list = Some(AttributeValue::List(vec![-2, -2]));
    assert_eq!(attributes.get("accessed_by").expect("read").1, list);
}

#[test]
fn every_operation_is_written_as_it_was_read() {
    let text = tiny();
    let mut reader = TraceReader::new("tiny", text.as_bytes()).expect("valid");
    let mut writer = TraceWriter::plain(Vec::new(), reader.header()).expect("in memory");
    writer.whole_case(&reader.next_case().expect("valid").expect("a case")).expect("in memory");
    let written = String::from_utf8(writer.finish().expect("in memory")).expect("UTF-8");
    for (before, after) in text.lines().zip(written.lines()) {
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        // The one place where two spellings mean the same: names are preferred over numbers.
        let before = before.replace(r#""alloc_type":2"#, r#""alloc_type":"managed""#);
        assert_eq!(value(&before), value(after));
    }
}

#[test]
fn compression_is_told_by_the_first_bytes() {
    let plain = read(tiny().as_bytes()).expect("plain");
    assert_eq!(read(&gzip(&tiny())).expect("gzip"), plain);
    assert_eq!(read(&zstd(&tiny())).expect("zstd"), plain);
}

#[test]
fn unknown_fields_are_ignored_everywhere() {
    let header = HEADER.replace(r#""gpus":1"#, r#""gpus":1,"moon":{"phase":[3]}"#);
    let text = format!(
        "{header}\n{{\"case\":\"one\",\"tide\":1}}\n{}\n",
        r#"{"op":"sleep","ms":1,"later":{"deep":[[{}]]},"code":0}"#
    );
    assert_eq!(read(text.as_bytes()).expect("valid")[0].ops.len(), 1);
}

#[test]
fn blank_lines_and_a_missing_last_newline_are_harmless() {
    let text = format!("{}\n  \n\n", tiny().replace("}\n", "}\r\n"));
    assert_eq!(read(text.as_bytes()).expect("blank lines")[0].ops.len(), OPS.len());
    assert_eq!(read(tiny().trim_end().as_bytes()).expect("no newline")[0].ops.len(), OPS.len());
}

#[test]
fn an_id_may_be_used_again_once_its_buffer_is_freed_or_in_another_case() {
    let alloc = r#"{"op":"alloc_device","buf":8,"bytes":1,"code":0}"#;
    let free = r#"{"op":"free","buf":8,"code":0}"#;
    let text = with_ops(&[alloc, free, alloc, r#"{"case":"two"}"#, alloc]);
    assert_eq!(read(text.as_bytes()).expect("valid").len(), 2);
}

#[test]
fn nothing_follows_an_error() {
    let text = format!("{}{{\"case\":\"two\"}}\n", with_ops(&["{", OPS[0]]));
    let mut reader = TraceReader::new("x", text.as_bytes()).expect("a header");
    assert!(reader.next_case().is_err());
    assert!(reader.next_case().expect("over").is_none());
}

// ---- files that are refused -------------------------------------------------------------------

#[test]
fn an_empty_file_is_refused() {
    assert!(error("").starts_with("tiny.jsonl: the file is empty"), "{}", error(""));
    assert!(error("\n\n").contains("empty"));
    assert!(error(gzip("")).contains("empty"));
    assert!(error(zstd("")).contains("empty"));
}

#[test]
fn a_file_without_a_header_is_refused() {
    let message = error("{\"case\":\"one\"}\n");
    assert_eq!(message, "tiny.jsonl:1: missing header: the first line has no field `format`");
    assert!(error("[1,2]\n").starts_with("tiny.jsonl:1: missing header"));
}

#[test]
fn another_format_or_version_is_refused() {
    let message = error(HEADER.replace("pagewise-trace", "chrome-trace"));
    assert_eq!(message, "tiny.jsonl:1: wrong format `chrome-trace`: expected `pagewise-trace`");
    let message = error(HEADER.replace(r#""version":1"#, r#""version":2"#));
    assert_eq!(message, "tiny.jsonl:1: unsupported version 2: this reader knows version 1");
}

#[test]
fn a_header_field_that_is_missing_or_absurd_is_named() {
    for (field, text) in [
        ("family", HEADER.replace(r#""family":"tiny","#, "")),
        ("version", HEADER.replace(r#""version":1,"#, "")),
        ("recorded_on", HEADER.replace("recorded_on", "recorded_by")),
        ("recorded_on.gpus", HEADER.replace(r#""gpus":1,"#, "")),
        (
            "recorded_on.range_attributes_by_page",
            HEADER.replace(r#""gpus":1,"#, r#""gpus":1,"range_attributes_by_page":"yes","#),
        ),
        ("recorded_on.gpus", HEADER.replace(r#""gpus":1"#, r#""gpus":4000000000"#)),
        (
            "recorded_on.cuda_driver_version",
            HEADER.replace(r#""cuda_driver_version":13000"#, r#""x":1"#),
        ),
    ] {
        let message = error(text);
        assert!(message.starts_with("tiny.jsonl:1: header: "), "{message}");
        assert!(message.contains(&format!("`{field}`")), "{message}");
    }
}

#[test]
fn an_operation_before_the_first_case_is_refused() {
    let message = error(format!("{HEADER}\n{}\n", OPS[0]));
    assert_eq!(message, "tiny.jsonl:2: operation `alloc_managed` before the first case");
}

#[test]
fn what_is_not_json_is_refused() {
    assert!(error("nonsense\n").starts_with("tiny.jsonl:1: not JSON: "));
    let message = error(with_ops(&[OPS[0], r#"{"op":"sleep","ms":}"#, OPS[1]]));
    assert!(message.starts_with("tiny.jsonl:4: not JSON: "), "{message}");
    let message = error(with_ops(&[r#"{"op":"sleep","#, OPS[0]]));
    assert!(message.starts_with("tiny.jsonl:3: not JSON: "), "only the last line is truncated");
    assert!(error(with_ops(&["17"])).contains("expected an object"));
    assert!(error(with_ops(&["{}"])).starts_with("tiny.jsonl:3: neither an operation nor a case"));
}

#[test]
fn a_line_that_is_not_utf_8_is_refused() {
    let mut bytes = with_ops(&[OPS[0]]).into_bytes();
    bytes.extend(b"{\"op\":\"\xff\"}\n");
    assert_eq!(error(bytes), "tiny.jsonl:4: not UTF-8: invalid byte at column 8");
}

#[test]
fn a_truncated_file_is_told_from_a_damaged_one() {
    let text = tiny();
    let cut = &text[..text.len() - 12];
    let last = 2 + OPS.len();
    assert_eq!(
        error(cut),
        format!("tiny.jsonl:{last}: truncated: the file ends inside a JSON value")
    );
    for (name, bytes) in [("gzip", gzip(&text)), ("zstd", zstd(&text))] {
        let message = error(&bytes[..bytes.len() - 9]);
        assert!(message.contains(&format!("truncated: the {name} stream ends early")), "{message}");
    }
    let mut damaged = gzip(&text);
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    let message = error(damaged);
    assert!(message.contains("damaged gzip stream"), "{message}");
}

#[test]
fn an_unknown_operation_is_named() {
    let message = error(with_ops(&[r#"{"op":"frobnicate","buf":0,"code":0}"#]));
    assert_eq!(message, "tiny.jsonl:3: unknown op `frobnicate`");
    let message = error(with_ops(&[r#"{"op":"pool_drain","pool":0,"code":0}"#]));
    assert_eq!(message, "tiny.jsonl:3: unknown op `pool_drain`");
}

#[test]
fn every_required_field_is_named_when_it_is_missing() {
    let optional = [
        "offset_in_2mib",
        "host_mapped",
        "start_ns",
        "ns_profiled",
        "ns",
        "events",
        "unstable",
        "sum",
        "attributes",
        "same_as",
        "access_flags",
    ];
    for op in OPS {
        let whole: serde_json::Map<_, _> = serde_json::from_str(op).expect("JSON");
        for field in whole.keys().filter(|field| !optional.contains(&field.as_str())) {
            let name = whole["op"].as_str().expect("text");
            // Fields that this operation can do without.
            let harmless = matches!(
                (name, field.as_str()),
                ("prefetch", "flags")
                    | ("stream_attach" | "memset_d32", "stream")
                    | ("device_touch", "value")
                    | ("alloc_device", "device")
                    | ("alloc_pinned", "flags")
                    | ("range_attributes", "slots")
            );
            if harmless || field == "op" {
                continue;
            }
            let mut less = whole.clone();
            less.remove(field);
            let text = serde_json::to_string(&less).expect("JSON");
            // Ids that the operation needs are live or not; only the field itself is missing.
            let message = error(with_ops(&[&text]));
            let expected = format!("tiny.jsonl:3: op `{name}`: missing field `{field}`");
            assert_eq!(message, expected);
        }
    }
}

#[test]
fn a_field_of_the_wrong_type_is_named() {
    for (text, parts) in [
        (r#"{"op":"sleep","ms":"long","code":0}"#, ["field `ms`", "expected u64"]),
        (r#"{"op":"sleep","ms":-1,"code":0}"#, ["field `ms`", "expected u64"]),
        (r#"{"op":"sleep","ms":1,"code":5000000000}"#, ["field `code`", "expected i32"]),
        (r#"{"op":"sleep","ms":1,"ms":2,"code":0}"#, ["field `ms`", "given twice"]),
        (r#"{"op":"sleep","ms":1,"code":0,"host_mapped":{"0":"5X"}}"#, ["`host_mapped`", "`5X`"]),
        (r#"{"op":"sleep","ms":1,"code":0,"events":[["copy_h2d",1]]}"#, ["`events`", "field buf"]),
        (
            r#"{"op":"memset","buf":0,"offset":0,"bytes":1,"value":256,"code":0}"#,
            ["`value`", "256"],
        ),
        (
            r#"{"op":"memset_d16","buf":0,"offset":0,"bytes":2,"value":65536,"code":0}"#,
            ["`value`", "65536"],
        ),
        (
            r#"{"op":"memcpy_batch","copies":[[0,0,0,0]],"attribute_sets":[],"attribute_starts":[],"stream":"stream","code":1}"#,
            ["`copies`", "invalid length 4"],
        ),
        (
            r#"{"op":"prefetch","abi":3,"buf":0,"offset":0,"bytes":1,"location":{"ordinal":0},"code":0}"#,
            ["`abi`", "3"],
        ),
        (
            r#"{"op":"prefetch","abi":1,"buf":0,"offset":0,"bytes":1,"location":{"kind":"host"},"code":0}"#,
            ["`location`", "ordinal"],
        ),
        (
            r#"{"op":"prefetch","abi":2,"buf":0,"offset":0,"bytes":1,"location":{"kind":"moon"},"code":0}"#,
            ["`location`", "unknown kind"],
        ),
        (
            r#"{"op":"discard_batch","ranges":[],"flags":0,"stream":"river","code":0}"#,
            ["`stream`", "river"],
        ),
        (
            r#"{"op":"kernel_accesses","device":0,"blocks":1,"threads":1,"walks":[{"access":"peek","ranges":[]}],"code":0}"#,
            ["`walks`", "unknown access `peek`"],
        ),
        (
            r#"{"op":"kernel_accesses","device":0,"blocks":1,"threads":1,"walks":[{"access":"load","ranges":[[-1,0,1,1]]}],"code":0}"#,
            ["walks", "-1"],
        ),
    ] {
        let message = error(with_ops(&[text]));
        assert!(message.starts_with("tiny.jsonl:3: "), "{message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(!message.contains("line 1"), "{message}");
    }
}

#[test]
fn a_buffer_id_used_twice_is_refused() {
    let message = error(with_ops(&[OPS[0], OPS[1], OPS[0]]));
    assert_eq!(message, "tiny.jsonl:5: buffer id 0 used twice: it is live since line 3");
}

#[test]
fn an_id_out_of_range_is_refused() {
    for id in ["-1", "1000001", "4294967296"] {
        let op = OPS[1].replace(r#""buf":8"#, &format!(r#""buf":{id}"#));
        let message = error(with_ops(&[&op]));
        let expected = format!("id {id} out of range in field `buf`: ids are 0 to 1000000");
        assert_eq!(message, format!("tiny.jsonl:3: {expected}"));
    }
    let message = error(with_ops(&[
        r#"{"op":"discard_batch","ranges":[[-7,0,1]],"flags":0,"stream":"null","code":0}"#,
    ]));
    assert!(message.contains("id -7 out of range in field `ranges`"), "{message}");
}

#[test]
fn a_list_of_more_than_1024_slots_is_refused() {
    let read = |slots: &str| {
        let op = format!(
            r#"{{"op":"range_attributes","buf":0,"offset":0,"bytes":1,"slots":{slots},"code":1}}"#
        );
        with_ops(&[&op])
    };
    let message = error(read("1025"));
    let expected = "op `range_attributes`: field `slots`: 1025 is more than 1024";
    assert_eq!(message, format!("tiny.jsonl:3: {expected}"));
    assert!(error(read("4294967296")).starts_with("tiny.jsonl:3: field `slots`"));
    for slots in ["0", "1024"] {
        let text = read(slots);
        let mut reader = TraceReader::new("tiny", text.as_bytes()).expect("a header");
        assert!(reader.next_case().expect("valid").is_some(), "{slots}");
    }
}

// ---- hostile sizes ----------------------------------------------------------------------------

/// Ten gigabytes, if the reader goes that far.
fn endless(head: &str, piece: &'static [u8]) -> impl Read + Send + use<> {
    struct Endless(&'static [u8], usize, u64);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            for byte in buffer.iter_mut() {
                *byte = self.0[self.1];
                self.1 = (self.1 + 1) % self.0.len();
            }
            self.2 += buffer.len() as u64;
            assert!(self.2 < 200 << 20, "the reader should have given up long ago");
            Ok(buffer.len())
        }
    }
    Cursor::new(head.to_owned().into_bytes()).chain(Endless(piece, 0, 0))
}

fn first_error(input: impl Read + Send) -> String {
    match TraceReader::new("big", input) {
        Err(error) => error.to_string(),
        Ok(mut reader) => loop {
            match reader.next_case() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no error"),
                Err(error) => return error.to_string(),
            }
        },
    }
}

#[test]
fn endless_input_fails_fast() {
    let start = format!("{HEADER}\n{{\"case\":\"one\"}}\n");
    assert_eq!(first_error(endless("", b"x")), "big:1: line longer than 65536 bytes");
    let message = format!("big:3: line longer than {MAX_LINE_BYTES} bytes");
    assert_eq!(first_error(endless(&start, b"[")), message);
    assert!(first_error(endless(&start, b"garbage\n")).starts_with("big:3: not JSON"));
    assert!(first_error(endless(&start, b"\n")).contains("blank lines"));
    let message = first_error(endless(&start, b"{\"op\":\"sleep\",\"ms\":1,\"code\":0}\n"));
    assert!(
        message.contains(&format!("case `one` exceeds {MAX_CASE_OPS} operations")),
        "{message}"
    );
}

#[test]
fn deep_nesting_is_an_error_and_no_stack_overflow() {
    let deep = format!(r#"{{"op":"sleep","x":{}"#, "[".repeat(1 << 20));
    assert!(error(with_ops(&[&deep])).starts_with("tiny.jsonl:3: "));
}

// ---- random damage ----------------------------------------------------------------------------

#[test]
fn random_damage_never_panics() {
    let config = Config { cases: 3000, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[0x5e; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let originals = [tiny().into_bytes(), gzip(&tiny()), zstd(&tiny())];
    let flips = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let cuts = prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>()));
    let damage = (0..3_usize, flips, cuts, prop::option::of(any::<prop::sample::Index>()));
    let checked = runner.run(&damage, |(which, flips, cut, end)| {
        let mut bytes = originals[which].clone();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some((a, b)) = cut {
            let (a, b) = (a.index(bytes.len()), b.index(bytes.len()));
            bytes.drain(a.min(b)..a.max(b));
        }
        if let Some(end) = end {
            bytes.truncate(end.index(bytes.len() + 1));
        }
        if let Err(error) = read(&bytes) {
            prop_assert!(error.to_string().starts_with("tiny.jsonl"), "{error}");
            prop_assert!(!error.to_string().contains('\n'), "{error}");
        }
        Ok(())
    });
    checked.expect("no damage may panic");
}
