//! `pagewise replay` as scripts see it: exit status, stdout, stderr.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Files, HEADER, json, pagewise, recording, status, stderr, stdout, trace};

/// Agrees with the simulator: calls with answers that do not depend on where pages are.
const AGREEING: &[&str] = &[
    r#"{"op":"alloc_managed","buf":0,"bytes":4194304,"attach_flags":1,"code":0,"offset_in_2mib":0}"#,
    r#"{"op":"alloc_managed","buf":1,"bytes":0,"attach_flags":1,"code":1}"#,
    r#"{"op":"prefetch","abi":1,"buf":0,"offset":0,"bytes":4096,"location":{"ordinal":7},"code":101}"#,
    r#"{"op":"range_attributes","buf":0,"offset":0,"bytes":4096,"code":0,"attributes":{"read_mostly":[0,0],"accessed_by":[0,[-2,-2]]}}"#,
    r#"{"op":"sleep","ms":1,"code":0}"#,
    r#"{"op":"free","buf":0,"code":0}"#,
];

// ---- agreement and divergence -----------------------------------------------------------------

#[test]
fn agreement_is_status_0() {
    let files = Files::new();
    let file = files.add("a.jsonl", trace(AGREEING));
    let output = pagewise(&["replay", &file]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(status(&output), 0, "{text}");
    assert!(text.contains("100 %") && text.contains("1 of 1 traces agree"), "{text}");
    assert!(output.stderr.is_empty(), "nothing but results in a pipe");
}

#[test]
fn the_number_of_jobs_changes_no_result() {
    let files = Files::new();
    let [small, pools] = ["small.jsonl", "pools.jsonl"]
        .map(|name| files.add(name, recording(&format!("{name}.zst"))));
    let report = |jobs: &str| {
        let mut report = json(&pagewise(&["replay", "--json", "--jobs", jobs, &small, &pools]));
        report["wall_s"] = Value::Null;
        report
    };
    let alone = report("1");
    assert_eq!(alone["ok"], true);
    for jobs in ["2", "7", "1000000"] {
        assert_eq!(report(jobs), alone, "{jobs} jobs");
    }
    assert_eq!(status(&pagewise(&["replay", "--jobs", "0", &small])), 2);
}

#[test]
fn the_json_object_has_the_documented_keys() {
    let files = Files::new();
    let file = files.add("a.jsonl", trace(AGREEING));
    let report = json(&pagewise(&["replay", "--json", &file]));
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(keys(&report), ["ok", "simulated_s", "traces", "wall_s"]);
    let entry = &report["traces"][0];
    let expected = [
        "cases",
        "contract",
        "events",
        "family",
        "file",
        "first_divergence",
        "ops",
        "pages",
        "range_attributes",
        "time",
    ];
    assert_eq!(keys(entry), expected);
    assert_eq!(keys(&entry["contract"]), ["agree", "checked"]);
    let expected = ["checked", "median_abs_log2", "p90_abs_log2", "total_ratio"];
    assert_eq!(keys(&entry["time"]), expected);
    assert_eq!(report["ok"], true);
    assert_eq!((&entry["cases"], &entry["ops"]), (&1.into(), &AGREEING.len().into()));
    assert_eq!((&entry["file"], &entry["family"]), (&file.into(), &"tiny".into()));
    assert_eq!(entry["first_divergence"], Value::Null);
}

#[test]
fn a_planted_wrong_code_is_the_first_divergence() {
    let text = recording("contract.jsonl.zst");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(lines[7].contains(r#""op":"advise""#) && lines[7].contains(r#""code":1"#));
    lines[7] = lines[7].replace(r#""code":1"#, r#""code":719"#);
    let files = Files::new();
    let file = files.add("planted.jsonl", lines.join("\n"));

    let output = pagewise(&["replay", "--json", &file]);
    assert_eq!(status(&output), 1);
    let first = &json(&output)["traces"][0]["first_divergence"];
    assert_eq!((&first["case"], &first["line"]), (&"contract-1-0".into(), &8.into()));
    assert_eq!((&first["level"], &first["expected"]["code"]), (&"contract".into(), &719.into()));
    assert_eq!(first["got"], serde_json::json!({ "code": 1 }));

    let output = pagewise(&["replay", &file]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(status(&output), 1);
    assert!(text.contains(&format!("{file}:8: case contract-1-0 diverges at level contract")));
    let result = "expected 719 (CUDA_ERROR_LAUNCH_FAILED), got 1 (CUDA_ERROR_INVALID_VALUE)";
    assert!(text.contains(&format!("\n  result: {result}\n")), "{text}");
}

#[test]
fn disagreement_is_never_rounded_up_to_100_percent() {
    let mut ops = vec![AGREEING[4]; 200_000 - 1];
    ops.push(r#"{"op":"sleep","ms":1,"code":9}"#);
    let files = Files::new();
    let file = files.add("a.jsonl", trace(&ops));
    let output = pagewise(&["replay", &file]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("99.999 %"), "{text}");
    assert_eq!(status(&output), 1);
}

#[test]
fn gzip_and_directories_are_read() {
    let files = Files::new();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(trace(AGREEING).as_bytes()).expect("in memory");
    files.add("b.jsonl.gz", encoder.finish().expect("in memory"));
    files.add("c.jsonl.zst", zstd::encode_all(trace(AGREEING).as_bytes(), 1).expect("in memory"));
    files.add("a.jsonl", trace(AGREEING));
    files.add("notes.txt", "not a trace");
    let output = pagewise(&["replay", "--json", &files.directory()]);
    assert_eq!(status(&output), 0);
    let report = json(&output);
    let names: Vec<_> = report["traces"].as_array().expect("a list").iter().collect();
    let name = |entry: &&Value| {
        let path = PathBuf::from(entry["file"].as_str().expect("text"));
        path.file_name().expect("a name").to_string_lossy().into_owned()
    };
    let names: Vec<_> = names.iter().map(name).collect();
    assert_eq!(names, ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst"]);
}

#[test]
fn time_is_judged_only_on_request() {
    let op = r#"{"op":"free","buf":9,"code":0,"ns":{"min":1,"median":987654321,"max":987654321}}"#;
    let files = Files::new();
    let file = files.add("a.jsonl", trace(&[op]));
    assert_eq!(status(&pagewise(&["replay", &file])), 0);
    assert_eq!(status(&pagewise(&["replay", "--max-time-error", "0.5", &file])), 1);
}

// ---- real time --------------------------------------------------------------------------------

/// The recording `thrash` with a change of one line.
fn thrash_with(line: usize, change: impl FnOnce(&mut Value)) -> String {
    let text = recording("thrash.jsonl.zst");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut op: Value = serde_json::from_str(&lines[line - 1]).expect("JSON");
    change(&mut op);
    lines[line - 1] = op.to_string();
    lines.join("\n")
}

/// Which pages thrash in line 236 is decided by what the recording does not say.
#[test]
fn what_depends_on_real_time_is_reported_and_no_failure() {
    let files = Files::new();
    let file = files.add("thrash.jsonl", recording("thrash.jsonl.zst"));
    let output = pagewise(&["replay", &file]);
    assert_eq!(status(&output), 0, "{}", stdout(&output));
    let line = format!("{file}:236: depends on real time, not judged: case thrash-2-14");
    assert!(stdout(&output).contains(&line), "{}", stdout(&output));
    let report = json(&pagewise(&["replay", "--json", &file]));
    let trace = &report["traces"][0];
    assert_eq!((&report["ok"], &trace["first_divergence"]), (&true.into(), &Value::Null));
    assert_eq!(trace["real_time"]["operations"], 1);
    let first = &trace["real_time"]["first"];
    assert_eq!((&first["line"], &first["level"]), (&236.into(), &"events".into()));
    let events = &trace["events"];
    assert_eq!(events["checked"], events["agree"], "it counts as neither");
    let model = pagewise(&["replay", "--clock", "model", &file]);
    assert_eq!(status(&model), 1, "nothing is excused on the model's clock");
}

type Change = fn(&mut Value);

#[test]
fn no_pace_excuses_a_wrong_record_whether_its_operation_depends_on_real_time_or_not() {
    let wrong_bytes = |op: &mut Value| op["events"][2][1] = 8192.into();
    let one_more = |op: &mut Value| {
        let record = serde_json::json!(["remote_map", 4096, 0, 3436544, 0, -1, "thrashing", 0]);
        op["events"].as_array_mut().expect("records").push(record);
    };
    let one_less = |op: &mut Value| _ = op["events"].as_array_mut().expect("records").pop();
    let wrong_sum = |op: &mut Value| op["sum"] = 33.into();
    let wrong_pages = |op: &mut Value| op["host_mapped"]["0"] = "832.,31H,161.".into();
    let files = Files::new();
    for line in [232, 236] {
        let planted: [(&str, Change); 5] = [
            ("events", wrong_bytes),
            ("events", one_more),
            ("events", one_less),
            ("contract", wrong_sum),
            ("pages", wrong_pages),
        ];
        for (level, change) in planted {
            let file = files.add("planted.jsonl", thrash_with(line, change));
            let output = pagewise(&["replay", "--json", &file]);
            assert_eq!(status(&output), 1, "line {line}, {level}");
            let first = &json(&output)["traces"][0]["first_divergence"];
            assert_eq!((&first["line"], &first["level"]), (&line.into(), &level.into()));
        }
    }
}

// ---- limits -----------------------------------------------------------------------------------

const HUGE: &[&str] = &[
    r#"{"op":"alloc_managed","buf":0,"bytes":8796093022208,"attach_flags":1,"code":0,"offset_in_2mib":0}"#,
    r#"{"op":"advise","abi":1,"buf":0,"offset":0,"bytes":8796093022208,"advice":"set_read_mostly","location":{"ordinal":0},"code":0}"#,
    r#"{"op":"free","buf":0,"code":0}"#,
];

#[test]
fn a_file_that_asks_for_too_much_is_status_3_before_anything_is_done() {
    let files = Files::new();
    let prefetch = HUGE[1].replace("advise", "prefetch");
    let file = files.add("huge.jsonl", trace(&[HUGE[0], &prefetch]));
    let output = pagewise(&["replay", &file]);
    assert_eq!(status(&output), 3);
    let message = stderr(&output);
    assert!(message.starts_with(&format!("{file}:4: too much work")), "{message}");
    assert!(message.contains("--max-work"), "{message}");
    let cases = format!("{HEADER}\n{}", "{\"case\":\"x\"}\n".repeat(3_000_000));
    let packed = zstd::encode_all(cases.as_bytes(), 1).expect("in memory");
    let file = files.add("cases.jsonl.zst", packed);
    let output = pagewise(&["replay", &file]);
    assert_eq!(status(&output), 3);
    assert!(stderr(&output).contains("up to this case"), "{}", stderr(&output));
}

#[test]
fn memory_that_is_named_and_not_touched_costs_next_to_nothing() {
    let files = Files::new();
    // 4 million blocks in each case: a place for each took 128 MiB and 60 ms.
    let file = files.add("huge.jsonl", trace(&HUGE.repeat(20)));
    let output = pagewise(&["replay", &file]);
    assert_eq!(status(&output), 0, "{}", stdout(&output));
}

#[test]
fn limits_are_set_by_arguments() {
    let files = Files::new();
    let file = files.add("a.jsonl", trace(AGREEING));
    for (limit, expected) in
        [("10", 3), ("1k", 3), ("4k", 0), ("10G", 0), ("99T", 0), ("1K", 2), ("-1", 2)]
    {
        let output = pagewise(&["replay", &format!("--max-work={limit}"), &file]);
        assert_eq!(status(&output), expected, "{limit}: {}", stderr(&output));
    }
    let write = r#"{"op":"memset","buf":0,"offset":0,"bytes":4194304,"value":1,"code":0}"#;
    let file = files.add("b.jsonl", trace(&[AGREEING[0], write]));
    for (limit, expected) in [("1M", 3), ("1G", 1), ("lots", 2)] {
        let output = pagewise(&["replay", "--max-memory", limit, &file]);
        assert_eq!(status(&output), expected, "{limit}: {}", stderr(&output));
    }
}

#[test]
fn every_command_that_reads_a_trace_stops_at_the_line_where_its_time_is_over() {
    let files = Files::new();
    // To read this takes ten times the millisecond that it is given.
    let long =
        trace(&[r#"{"op":"sleep","ms":0,"code":0,"ns":{"min":1,"median":2,"max":3}}"#; 20_000]);
    let long = files.add("long.jsonl", long);
    let kept = files.add("kept", "what was there");
    let mut commands = vec![
        vec!["replay", &long],
        vec!["record", &long, "-o", &kept],
        vec!["compare", &long, &long],
    ];
    if cfg!(feature = "calibrate") {
        commands.push(vec!["calibrate", &long, "-o", &kept]);
    }
    for command in commands {
        let output = pagewise(&[&command[..], &["--max-seconds", "0.001"]].concat());
        let said = stderr(&output);
        assert_eq!(status(&output), 3, "{command:?}: {said}");
        assert!(said.contains("long.jsonl:") && said.contains(": too much time: up to"), "{said}");
        assert!(said.contains("--max-seconds"), "{said}");
        assert_eq!(std::fs::read_to_string(&kept).expect("still there"), "what was there");
        assert_eq!(files.names(), ["kept", "long.jsonl"], "{command:?}");
    }
    for (limit, expected) in [("0", 0), ("600", 0), ("-1", 2), ("soon", 2)] {
        let output = pagewise(&["compare", &format!("--max-seconds={limit}"), &long, &long]);
        assert_eq!(status(&output), expected, "{limit}: {}", stderr(&output));
    }
}

// ---- usage ------------------------------------------------------------------------------------

#[test]
fn usage_errors_are_status_2_and_say_what_is_wrong() {
    let files = Files::new();
    let file = files.add("a.jsonl", trace(AGREEING));
    let bad_profile = files.add("profile.toml", "moon = 1\n");
    let bad_key = files.add("key.toml", "base = 'h200'\n[cost.prefetch]\nmoon = 1\n");
    let bad_value = files.add("value.json", r#"{"base": "h200", "memory_bytes": 0}"#);
    for (arguments, part) in [
        (vec!["replay"], "TRACE"),
        (vec!["replay", "--backend", "rocm", &file], "rocm"),
        (vec!["replay", "--backend", "cuda", "--profile", "h200", &file], "--backend sim"),
        (vec!["replay", "--profile", "abacus", &file], "abacus"),
        (vec!["replay", "--profile", &bad_profile, &file], "profile.toml"),
        (vec!["replay", "--profile", &bad_key, &file], "moon"),
        (vec!["replay", "--profile", &bad_value, &file], "memory_bytes is 0"),
        (vec!["replay", "--max-time-error", "soon", &file], "soon"),
        (vec!["replay", "--frobnicate", &file], "--frobnicate"),
        (vec!["frobnicate"], "frobnicate"),
    ] {
        let output = pagewise(&arguments);
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn without_a_driver_every_command_says_so_and_ends_with_status_3() {
    let files = Files::new();
    let file = files.add("a.jsonl", trace(AGREEING));
    let output = files.path("recorded.jsonl");
    for arguments in [
        vec!["replay", "--backend", "cuda", &file],
        vec!["record", "--backend", "cuda", &file, "-o", &output],
        vec!["compare"],
    ] {
        let said = Command::new(env!("CARGO_BIN_EXE_pagewise"))
            .args(&arguments)
            .env("PAGEWISE_LIBCUDA", "libcuda-that-does-not-exist.so.1")
            .output()
            .expect("the binary runs");
        assert_eq!(status(&said), 3, "{arguments:?}");
        assert!(stderr(&said).contains("install the NVIDIA driver"), "{}", stderr(&said));
        assert!(said.stdout.is_empty(), "{arguments:?}");
    }
    assert!(!std::path::Path::new(&output).exists());
}

#[test]
fn a_profile_is_a_name_or_a_file() {
    let files = Files::new();
    let profile = serde_json::to_string(&pagewise_sim::SimConfig::h200()).expect("plain data");
    let profile = files.add("gpu.json", profile);
    let file = files.add("a.jsonl", trace(AGREEING));
    assert_eq!(status(&pagewise(&["replay", "--profile", "H200", &file])), 0);
    let said = pagewise(&["replay", "--profile", &profile, &file]);
    assert_eq!(status(&said), 0, "{}", stderr(&said));
    for (name, text) in [
        ("part.toml", "base = 'h200'\n[cost.prefetch]\ncall = 2000.0\n"),
        ("part.json", r#"{"base": "h200", "cost": {"prefetch": {"call": 2000}}}"#),
        ("whole.toml", &pagewise_sim::GpuProfile::h200().to_toml().expect("a document")),
    ] {
        let profile = files.add(name, text);
        assert_eq!(status(&pagewise(&["replay", "--profile", &profile, &file])), 0, "{name}");
    }
}

#[test]
fn profiles_are_listed_and_printed_as_documents_that_can_be_used() {
    let output = pagewise(&["profiles"]);
    let list = String::from_utf8(output.stdout.clone()).expect("text");
    assert_eq!(status(&output), 0);
    for profile in pagewise_sim::GpuProfile::all() {
        assert!(list.lines().any(|line| line.starts_with(&format!("{} ", profile.name))), "{list}");
        let printed = pagewise(&["profiles", &profile.name]);
        assert_eq!(status(&printed), 0);
        let text = String::from_utf8(printed.stdout).expect("text");
        let read = pagewise_sim::GpuProfile::from_toml(&text).expect("a document");
        assert_eq!(read, profile);
    }
    let output = pagewise(&["profiles", "abacus"]);
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("gtx1080ti"), "{}", stderr(&output));
}

// ---- invalid input ----------------------------------------------------------------------------

fn assert_invalid(bytes: impl AsRef<[u8]>, line: Option<u64>, reason: &str) {
    let files = Files::new();
    let file = files.add("bad.jsonl", bytes);
    let output = pagewise(&["replay", "--json", &file]);
    let place = line.map_or(format!("{file}: "), |line| format!("{file}:{line}: "));
    let message = stderr(&output);
    assert_eq!(status(&output), 3, "{message}");
    assert!(message.starts_with(&place) && message.contains(reason), "{message}");
    let report = json(&output);
    assert_eq!(report["ok"], false);
    assert_eq!(report["traces"][0]["error"].as_str().expect("text"), message.trim_end());
}

#[test]
fn every_class_of_invalid_input_is_status_3_with_file_line_and_reason() {
    let good = trace(AGREEING);
    let case = "{\"case\":\"one\"}\n";
    assert_invalid("", None, "empty");
    assert_invalid(&good[..good.len() - 9], Some(8), "truncated");
    assert_invalid("nonsense\n", Some(1), "not JSON");
    assert_invalid(b"\xff\xfe{\0", Some(1), "not UTF-8");
    assert_invalid(case, Some(1), "missing header");
    assert_invalid(HEADER.replace("pagewise-trace", "nsys"), Some(1), "wrong format `nsys`");
    assert_invalid(
        HEADER.replace("\"version\":1", "\"version\":9"),
        Some(1),
        "unsupported version 9",
    );
    assert_invalid(HEADER.replace("\"gpus\":1,", ""), Some(1), "`recorded_on.gpus`");
    assert_invalid(HEADER.replace("\"gpus\":1", "\"gpus\":33"), Some(1), "`recorded_on.gpus`");
    assert_invalid(HEADER.replace("13000", "11080") + "\n" + case, Some(1), "12.0");
    assert_invalid(format!("{HEADER}\n{}\n", AGREEING[0]), Some(2), "before the first case");
    assert_invalid(trace(&[r#"{"op":"fly","code":0}"#]), Some(3), "unknown op `fly`");
    assert_invalid(trace(&[r#"{"op":"sleep","code":0}"#]), Some(3), "missing field `ms`");
    assert_invalid(trace(&[AGREEING[0], AGREEING[0]]), Some(4), "buffer id 0 used twice");
    let far = AGREEING[0].replace("\"buf\":0", "\"buf\":99999999");
    assert_invalid(trace(&[&far]), Some(3), "id 99999999 out of range");
    let mut squeezed = zstd::encode_all(good.as_bytes(), 1).expect("in memory");
    squeezed.truncate(squeezed.len() - 5);
    let files = Files::new();
    let output = pagewise(&["replay", &files.add("bad.jsonl.zst", squeezed)]);
    assert_eq!(status(&output), 3);
    assert!(stderr(&output).contains("the zstd stream ends early"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_opened_is_status_3() {
    let files = Files::new();
    let missing = files.path("none.jsonl");
    let output = pagewise(&["replay", &missing]);
    assert_eq!(status(&output), 3);
    assert!(stderr(&output).starts_with(&format!("{missing}: cannot read: ")));
    let output = pagewise(&["replay", &files.directory()]);
    assert_eq!(status(&output), 3, "a directory without traces");
    assert!(stderr(&output).contains("no *.jsonl"));
}

#[cfg(unix)]
#[test]
fn endless_garbage_fails_fast() {
    let output = pagewise(&["replay", "/dev/zero"]);
    assert_eq!(status(&output), 3);
    assert!(stderr(&output).starts_with("/dev/zero:1: line longer than"));
}

#[test]
fn the_other_traces_are_replayed_and_reported() {
    let files = Files::new();
    let bad = files.add("bad.jsonl", trace(&["oops"]));
    let good = files.add("good.jsonl", trace(AGREEING));
    let output = pagewise(&["replay", "--json", &bad, &good]);
    assert_eq!(status(&output), 3);
    let report = json(&output);
    assert_eq!(report["ok"], false);
    assert_eq!(report["traces"][1]["contract"]["agree"], AGREEING.len());
    assert!(report["traces"][1].get("error").is_none());
}

#[test]
fn unknown_fields_are_ignored() {
    let files = Files::new();
    let odd = AGREEING[4].replace("{", r#"{"moon":{"phase":[1,2]},"#);
    let file = files.add("a.jsonl", trace(&[&odd]));
    assert_eq!(status(&pagewise(&["replay", &file])), 0);
}

// ---- pipes ------------------------------------------------------------------------------------

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let files = Files::new();
    let file = files.add("a.jsonl", trace(AGREEING));
    for arguments in [vec!["replay", &file], vec!["replay", "--json", &file], vec!["--help"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagewise"));
        command.args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(status(&output), 0, "{arguments:?}: {}", stderr(&output));
        assert!(output.stderr.is_empty(), "{arguments:?}: {}", stderr(&output));
    }
}

// ---- what ships -------------------------------------------------------------------------------

#[test]
fn the_version_is_that_of_pagewise() {
    let output = pagewise(&["--version"]);
    assert_eq!(stdout(&output), format!("pagewise {}\n", env!("CARGO_PKG_VERSION")));
}
