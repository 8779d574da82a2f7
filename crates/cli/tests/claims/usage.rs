//! Arguments, help and errors of the command as people and scripts meet them.

use serde_json::Value;

use crate::common::{Files, json, pagewise, status, stderr, stdout, trace};

const OP: &str = r#"{"op":"alloc_managed","buf":0,"bytes":4096,"attach_flags":1,"code":0}"#;

// ---- usage errors -----------------------------------------------------------------------------

#[test]
fn a_usage_error_shows_the_usage_of_its_subcommand() {
    let files = Files::new();
    let file = files.add("a.jsonl", trace(&[OP]));
    for (arguments, usage) in [
        // The parser's own.
        (vec!["replay"], "Usage: pagewise replay "),
        (vec!["replay", "--frobnicate", &file], "Usage: pagewise replay "),
        (vec!["replay", "--max-work", "lots", &file], "Usage: pagewise replay "),
        (vec!["--json", "replay", "--max-work", "lots", &file], "Usage: pagewise replay "),
        (vec!["record", "--ceiling", "11.8", &file, "-o", "x"], "Usage: pagewise record "),
        (vec!["doctor", "--max-version", "twelve"], "Usage: pagewise doctor "),
        (vec!["frobnicate"], "Usage: pagewise "),
        // Those that only show when the command looks at its arguments.
        (vec!["replay", "--profile", "abacus", &file], "Usage: pagewise replay "),
        (vec!["profiles", "abacus"], "Usage: pagewise profiles "),
        (vec!["compare", &file], "Usage: pagewise compare "),
        (vec!["compare", "--backend", "sim", "--family", "peer"], "Usage: pagewise compare "),
    ] {
        let output = pagewise(&arguments);
        assert_eq!(status(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains(usage), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_list_with_spaces_is_a_usage_error_that_says_to_write_commas() {
    let compare = ["compare", "--backend", "sim", "--ops", "10"];
    let lists = [
        (["--levels", "contract", "pages"], "--levels"),
        (["--family", "pool", "attach"], "--family"),
    ];
    for (list, option) in lists {
        let output = pagewise(&[&compare[..], &list].concat());
        assert_eq!(status(&output), 2, "{list:?}");
        let said = stderr(&output);
        assert!(said.contains(&format!("`{}` is no file", list[2])), "{said}");
        assert!(said.contains(&format!("values of {option} with commas")), "{said}");
    }
    let help = stdout(&pagewise(&["compare", "--help"]));
    assert!(help.contains("[default: contract,pages,events]"), "{help}");
    let as_printed = ["--levels", "contract,pages,events", "--family", "calls"];
    assert_eq!(status(&pagewise(&[&compare[..], &as_printed].concat())), 0);
}

#[test]
fn versions_are_written_with_a_dot() {
    let files = Files::new();
    let (file, output) = (files.add("a.jsonl", trace(&[OP])), files.path("out.jsonl"));
    let record = |version| {
        pagewise(&["record", &file, "-o", &output, "--repeat", "1", "--ceiling", version])
    };
    assert_eq!(status(&record("12.2")), 0);
    let text = std::fs::read_to_string(&output).expect("readable");
    assert!(text.contains("\"cuda_driver_version\":12020"), "the trace format's number: {text}");
    for wrong in ["12020", "12", "12.", "11.8", "12.200", "999.0", "-12.2"] {
        let refused = record(wrong);
        assert_eq!(status(&refused), 2, "{wrong}");
        if !wrong.starts_with('-') {
            assert!(stderr(&refused).contains("such as 12.2"), "{wrong}: {}", stderr(&refused));
        }
    }
    let compare = ["compare", "--backend", "sim", "--ops", "10", "--family", "calls", "--ceiling"];
    assert_eq!(status(&pagewise(&[&compare[..], &["12.2"]].concat())), 0);
    for command in ["compare", "record", "replay", "doctor"] {
        let help = stdout(&pagewise(&[command, "--help"]));
        assert!(!help.contains("12020") && !help.contains("13000"), "{help}");
    }
}

// ---- help -------------------------------------------------------------------------------------

#[test]
fn the_help_of_compare_has_a_line_for_each_family() {
    let help = stdout(&pagewise(&["compare", "--help"]));
    for line in [
        "- calls: ",
        "- advice: ",
        "- movement: ",
        "- discard: ",
        "- pool: ",
        "- contents: ",
        "- attach: ",
        "- peer: ",
    ] {
        assert!(help.lines().any(|said| said.trim_start().starts_with(line)), "{line}: {help}");
    }
    let short = stdout(&pagewise(&["compare", "-h"]));
    assert!(short.contains("[possible values: calls, advice, "), "{short}");
}

#[test]
fn the_help_of_every_command_says_what_its_json_object_holds() {
    for command in [vec![], vec!["replay"], vec!["profiles"], vec!["doctor"], vec!["record"]]
        .into_iter()
        .chain([vec!["compare"], vec!["completions"], vec!["man"]])
    {
        let help = stdout(&pagewise(&[&command[..], &["--help"]].concat()));
        assert!(help.contains("--json") && help.contains("JSON: {\"ok\""), "{command:?}: {help}");
    }
}

#[test]
fn shells_complete_subcommands_and_options() {
    for (shell, part) in [
        ("bash", "complete -F _pagewise"),
        ("zsh", "#compdef pagewise"),
        ("fish", "complete -c pagewise"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion:arg-completer[pagewise]"),
    ] {
        let output = pagewise(&["completions", shell]);
        let script = stdout(&output);
        assert_eq!(status(&output), 0, "{shell}");
        for word in [part, "replay", "compare", "max-work", "timed-runs"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let unknown = pagewise(&["completions", "tcsh"]);
    assert_eq!(status(&unknown), 2);
    assert!(stderr(&unknown).contains("bash"), "{}", stderr(&unknown));
}

#[test]
fn the_manual_page_has_every_subcommand() {
    let output = pagewise(&["man"]);
    let page = stdout(&output);
    assert_eq!(status(&output), 0);
    assert!(page.contains(".TH pagewise 1"), "{page}");
    for section in ["REPLAY", "PROFILES", "DOCTOR", "RECORD", "COMPARE", "COMPLETIONS", "MAN"] {
        assert!(page.contains(&format!("\n.SH {section}\n")), "{section}: {page}");
    }
}

// ---- JSON -------------------------------------------------------------------------------------

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn every_command_prints_one_json_object_with_the_documented_keys() {
    let files = Files::new();
    let (file, out) = (files.add("a.jsonl", trace(&[OP])), files.path("out.jsonl"));
    let report = vec!["ok", "simulated_s", "traces", "wall_s"];
    let on_programs = vec!["ok", "programs", "simulated_s", "traces", "wall_s"];
    let few = ["compare", "--backend", "sim", "--ops", "10", "--family", "calls"].to_vec();
    for (arguments, expected) in [
        (vec![], report.clone()),
        (vec!["replay", &file], report.clone()),
        (vec!["compare", &file, &file], report),
        (few, on_programs),
        (vec!["record", &file, "-o", &out], vec!["cases", "family", "ok", "operations", "output"]),
        (vec!["profiles"], vec!["ok", "profiles"]),
        (vec!["profiles", "h200"], vec!["ok", "profile"]),
        (vec!["doctor"], vec!["devices", "driver", "host", "ok", "supported"]),
        (vec!["completions", "fish"], vec!["ok", "script", "shell"]),
        (vec!["man"], vec!["ok", "page"]),
    ] {
        for arguments in
            [[&["--json"][..], &arguments].concat(), [&arguments[..], &["--json"]].concat()]
        {
            let output = pagewise(&arguments);
            assert_eq!(status(&output), 0, "{arguments:?}: {}", stderr(&output));
            let object = json(&output);
            assert_eq!(keys(&object), expected, "{arguments:?}");
            assert_eq!(object["ok"], true, "{arguments:?}");
        }
    }
}

#[test]
fn json_and_text_say_the_same() {
    let files = Files::new();
    let (file, out) = (files.add("a.jsonl", trace(&[OP])), files.path("out.jsonl"));
    let recorded = json(&pagewise(&["record", &file, "-o", &out, "--json"]));
    assert_eq!((&recorded["cases"], &recorded["operations"]), (&1.into(), &1.into()));
    assert_eq!((&recorded["output"], &recorded["family"]), (&out.into(), &"tiny".into()));
    let list = stdout(&pagewise(&["profiles"]));
    let profiles = json(&pagewise(&["profiles", "--json"]));
    for profile in profiles["profiles"].as_array().expect("a list") {
        let name = profile["name"].as_str().expect("a name");
        let row = list.lines().find(|line| line.starts_with(&format!("{name} "))).expect(name);
        for (evidence, count) in profile["figures"].as_object().expect("an object") {
            assert!(row.contains(&format!("{count} {evidence}")), "{row}");
        }
    }
    let h200 = json(&pagewise(&["profiles", "h200", "--json"]));
    let expected = serde_json::to_value(pagewise_sim::GpuProfile::h200()).expect("plain data");
    assert_eq!(h200["profile"]["memory_bytes"], expected["memory_bytes"]);
}

#[test]
fn a_failure_is_a_json_object_too_with_the_exit_status() {
    let files = Files::new();
    let (file, none) = (files.add("a.jsonl", trace(&[OP])), files.path("none.jsonl"));
    let (out, bad) = (files.path("out.jsonl"), files.add("bad.jsonl", trace(&["oops"])));
    for (arguments, code, part) in [
        (vec!["record", &bad, "-o", &out, "--json"], 3, "bad.jsonl:3: not JSON"),
        (vec!["compare", &file, &none, "--json"], 3, "none.jsonl: cannot read"),
        (vec!["profiles", "abacus", "--json"], 2, "abacus"),
        (vec!["replay", "--json", "--max-work", "lots", &file], 2, "expected an integer"),
        (vec!["frobnicate", "--json"], 2, "unrecognized subcommand 'frobnicate'"),
        (vec!["record", &file, "-o", "-", "--json"], 2, "both want stdout"),
    ] {
        let output = pagewise(&arguments);
        assert_eq!(status(&output), code, "{arguments:?}");
        let object = json(&output);
        assert_eq!(keys(&object), ["error", "ok", "status"], "{arguments:?}");
        assert_eq!((&object["ok"], &object["status"]), (&false.into(), &code.into()));
        let error = object["error"].as_str().expect("text");
        assert!(error.contains(part) && !error.contains("Usage:"), "{arguments:?}: {error}");
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
}
