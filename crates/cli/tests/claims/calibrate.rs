//! `pagewise calibrate` as scripts see it: the profile, the figures it reports, exit status.
#![cfg(feature = "calibrate")]

use serde_json::Value;

use crate::common::{Files, json, pagewise, recording, status, stderr, stdout, trace, with_stdin};

const ALLOC: &str = r#"{"op":"alloc_managed","buf":0,"bytes":4194304,"attach_flags":1,"code":0,"ns":{"min":9000,"median":10000,"max":12000}}"#;
const FREE: &str =
    r#"{"op":"free","buf":0,"code":0,"ns":{"min":19000,"median":20000,"max":21000}}"#;
const UNTIMED: &str = r#"{"op":"free","buf":9,"code":0}"#;

/// The first cases of a recording.
fn part(name: &str, cases: usize) -> String {
    let text = recording(name);
    let mut starts = text.match_indices("{\"case\":").map(|(at, _)| at);
    let end = starts.nth(cases).unwrap_or(text.len());
    text[..end].to_owned()
}

/// A profile with every figure multiplied.
fn scaled(profile: &str, factor: f64) -> String {
    fn scale(value: &mut toml::Value, factor: f64) {
        match value {
            toml::Value::Float(figure) => *figure *= factor,
            toml::Value::Array(all) => all.iter_mut().for_each(|one| scale(one, factor)),
            toml::Value::Table(all) => all.iter_mut().for_each(|(_, one)| scale(one, factor)),
            _ => {}
        }
    }
    let mut profile: toml::Table = profile.parse().expect("TOML");
    scale(profile.get_mut("cost").expect("figures"), factor);
    profile.to_string()
}

fn quality(report: &Value, file: usize, when: &str) -> [f64; 3] {
    let quality = &report["files"][file][when];
    ["total_ratio", "median_abs_log2", "p90_abs_log2"]
        .map(|name| quality[name].as_f64().unwrap_or_else(|| panic!("{name} of {report}")))
}

#[test]
fn a_trace_comes_from_standard_input_and_the_profile_goes_to_standard_output() {
    let files = Files::new();
    let text = trace(&[ALLOC, FREE]);
    let (file, profile) = (files.add("a.jsonl", &text), files.path("profile.toml"));
    let report = json(&pagewise(&["calibrate", &file, "-o", &profile, "--json"]));
    assert_eq!((&report["ok"], &report["output"]), (&true.into(), &profile.as_str().into()));
    let output = with_stdin(&["calibrate", "-", "-o", "-"], text.as_bytes());
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let printed: toml::Table = stdout(&output).parse().expect("a profile and nothing else");
    let written = std::fs::read_to_string(profile).expect("written");
    let written: toml::Table = written.parse().expect("a profile");
    assert_eq!(printed["cost"], written["cost"]);
    assert!(stderr(&output).contains("Written to -."), "{}", stderr(&output));
}

#[test]
fn a_start_that_is_off_by_half_comes_back() {
    let files = Files::new();
    let small = files.add("small.jsonl", part("small.jsonl.zst", 20));
    let discard = files.add("discard.jsonl", part("discard.jsonl.zst", 10));
    let exact = files.add("exact.toml", "");
    let fitted = files.add("fitted.toml", "");
    let output = pagewise(&["calibrate", &small, "-o", &exact]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let exact = std::fs::read_to_string(exact).expect("written");
    for factor in [1.5, 0.7] {
        let start = files.add("start.toml", scaled(&exact, factor));
        let command = ["calibrate", "--json", "--from", &start, "-o", &fitted, &small, &discard];
        let report = json(&pagewise(&command));
        assert_eq!(report["converged"], true);
        for file in 0..2 {
            let [_, before, _] = quality(&report, file, "before");
            let [total, median, p90] = quality(&report, file, "after");
            assert!(before > 0.4, "{factor}: {report}");
            assert!((0.85..1.15).contains(&total), "{factor}: {report}");
            assert!(median < 0.2 && p90 < 0.7, "{factor}: {report}");
        }
    }
}

#[test]
fn replay_takes_the_profile_and_finds_the_same_figures() {
    let files = Files::new();
    let small = files.add("small.jsonl", part("small.jsonl.zst", 5));
    let profile = files.add("profile.toml", "");
    let report = json(&pagewise(&["calibrate", "--json", "-o", &profile, &small]));
    let [total, median, p90] = quality(&report, 0, "after");
    let replayed = json(&pagewise(&["replay", "--json", "--profile", &profile, &small]));
    let time = &replayed["traces"][0]["time"];
    assert_eq!(time["checked"], report["files"][0]["ops"]);
    let close = |name: &str, figure: f64| {
        let other = time[name].as_f64().expect("a number");
        assert!((other - figure).abs() < 1e-5, "{name}: {other} and {figure}");
    };
    close("total_ratio", total);
    close("median_abs_log2", median);
    close("p90_abs_log2", p90);
}

#[test]
fn two_calibrations_give_the_same_profile() {
    let files = Files::new();
    let small = files.add("small.jsonl", part("small.jsonl.zst", 5));
    let run = |name: &str| {
        let profile = files.add(name, "");
        assert_eq!(status(&pagewise(&["calibrate", "-o", &profile, &small])), 0);
        std::fs::read_to_string(profile).expect("written")
    };
    assert_eq!(run("a.toml"), run("b.toml"));
}

#[test]
fn figures_that_no_operation_shows_are_kept_and_named() {
    let files = Files::new();
    let file = files.add("a.jsonl", trace(&[ALLOC, FREE]));
    let profile = files.add("profile.toml", "");
    let report = json(&pagewise(&["calibrate", "--json", "-o", &profile, &file]));
    let without = report["without_evidence"].as_array().expect("names");
    assert!(without.contains(&"prefetch.block".into()), "{report}");
    assert!(!without.contains(&"allocation.free".into()), "{report}");
    let figures: toml::Table =
        std::fs::read_to_string(&profile).expect("written").parse().expect("TOML");
    let start = toml::Table::try_from(pagewise_sim::GpuProfile::h200().cost).expect("a table");
    let cost = &figures["cost"];
    assert_eq!(cost["prefetch"], start["prefetch"]);
    assert_ne!(cost["allocation"]["alloc"], start["allocation"]["alloc"]);
    let source = |name: &str| figures["sources"][name].as_str().expect("text").to_owned();
    assert!(source("cost").contains("pagewise calibrate from h200, traces a.jsonl"));
    assert!(source("cost.prefetch.block").contains("timing"), "as in the start");

    let text = pagewise(&["calibrate", "-o", &profile, &file]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("kept as they were") && text.contains("prefetch.block"), "{text}");
}

#[test]
fn held_out_cases_are_predicted_without_having_been_seen() {
    let files = Files::new();
    let case = |ns: u64| {
        let free = FREE.replace("19000", &ns.to_string()).replace("20000", &ns.to_string());
        format!("{{\"case\":\"{ns}\"}}\n{ALLOC}\n{free}\n")
    };
    let text = format!("{}\n{}{}", crate::common::HEADER, case(10_000), case(40_000));
    let file = files.add("a.jsonl", text);
    let profile = files.add("profile.toml", "");
    let report =
        json(&pagewise(&["calibrate", "--json", "--hold-out", "2", "-o", &profile, &file]));
    let free = &report["kinds"][1];
    assert_eq!(free["name"], "free");
    // Fitted to both, each is off by an octave; fitted to the other one, by two.
    let off = |when: &str| free[when]["median_abs_log2"].as_f64().expect("a number");
    assert!((off("after") - 1.0).abs() < 0.4, "{report}");
    assert!((off("held_out") - 2.0).abs() < 0.4, "{report}");
    let text = pagewise(&["calibrate", "--hold-out", "2", "-o", &profile, &file]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("held out"));
}

// ---- bad input --------------------------------------------------------------------------------

#[test]
fn what_cannot_be_read_is_status_3_with_file_line_and_reason() {
    let files = Files::new();
    let good = files.add("good.jsonl", trace(&[ALLOC]));
    let broken = files.add("broken.jsonl", trace(&[ALLOC, "{"]));
    let untimed = files.add("untimed.jsonl", trace(&[UNTIMED]));
    let empty = files.add("empty.jsonl", "");
    let many = files.add("many.jsonl", trace(&[ALLOC]).replace("\"gpus\":1", "\"gpus\":33"));
    let nowhere = files.path("nowhere.jsonl");
    let profile = files.add("profile.toml", "as it was");
    for (file, expected) in [
        (&broken, format!("{broken}:4: ")),
        (&untimed, "no operation of these traces has a recorded time".to_owned()),
        (&empty, format!("{empty}: the file is empty")),
        (&many, format!("{many}:1: ")),
        (&nowhere, format!("{nowhere}: cannot read")),
    ] {
        let mut arguments = vec!["calibrate", "-o", &profile, file];
        if file != &untimed {
            arguments.push(&good);
        }
        let output = pagewise(&arguments);
        assert_eq!(status(&output), 3, "{file}");
        assert!(stderr(&output).contains(&expected), "{expected} in {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{file}");
        let kept = std::fs::read_to_string(&profile).expect("still there");
        assert_eq!(kept, "as it was", "{file}");
    }
}

#[test]
fn usage_errors_are_status_2_and_say_what_is_wrong() {
    let files = Files::new();
    let file = files.add("a.jsonl", trace(&[ALLOC, FREE]));
    let profile = files.add("profile.toml", "");
    let nowhere = files.path("nowhere/profile.toml");
    for (arguments, part) in [
        (vec!["calibrate", &file], "--output"),
        (vec!["calibrate", "-o", &profile], "TRACE"),
        (vec!["calibrate", "-o", &nowhere, &file], "nowhere"),
        (vec!["calibrate", "-o", &profile, "--from", "abacus", &file], "abacus"),
        (vec!["calibrate", "-o", &profile, "--hold-out", "1", &file], "hold-out"),
        (vec!["calibrate", "-o", &profile, "--hold-out", "9", &file], "only 1 case"),
    ] {
        let output = pagewise(&arguments);
        assert_eq!(status(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}
