//! `pagewise compare` as scripts see it.

use std::process::{Command, Output};

use crate::common::{json, pagewise, status, stderr, stdout};

const SIM: [&str; 3] = ["compare", "--backend", "sim"];

#[test]
fn the_simulator_agrees_with_itself_in_every_family_that_the_devices_suffice_for() {
    let output = pagewise(&[&SIM[..], &["--ops", "300", "--devices", "2"]].concat());
    let text = stdout(&output);
    assert_eq!(status(&output), 0, "{text}");
    assert!(text.contains("9 of 9 families agree in everything"), "{text}");
    assert!(text.contains("peer, seed 0:") && text.contains("programs, 0 disagree"), "{text}");
    let one = pagewise(&[&SIM[..], &["--ops", "60"]].concat());
    assert!(stdout(&one).contains("8 of 8 families"), "{}", stdout(&one));
}

#[test]
fn json_counts_the_operations_of_each_family() {
    let more = ["--ops", "200", "--family", "pool,attach", "--ceiling", "12.8", "--json"];
    let output = pagewise(&[&SIM[..], &more].concat());
    let report = json(&output);
    assert_eq!(report["ok"], true);
    let families = report["traces"].as_array().expect("a list");
    let names: Vec<_> = families.iter().map(|family| family["file"].clone()).collect();
    assert_eq!(names, ["pool", "attach"]);
    for family in families {
        assert!(family["ops"].as_u64().expect("a number") >= 100, "{family}");
        assert!(family["events"]["checked"].as_u64().expect("a number") >= 100, "{family}");
    }
}

#[test]
fn levels_that_are_not_wanted_are_not_compared() {
    let more = ["--ops", "50", "--family", "movement", "--levels", "contract", "--json"];
    let output = pagewise(&[&SIM[..], &more].concat());
    let report = json(&output);
    let family = &report["traces"][0];
    assert_eq!((&family["pages"]["checked"], &family["events"]["checked"]), (&0.into(), &0.into()));
    assert!(family["contract"]["checked"].as_u64().expect("a number") >= 50);
}

#[test]
fn the_same_seed_gives_the_same_programs_and_each_is_named_on_request() {
    let arguments = [&SIM[..], &["--ops", "100", "--family", "advice", "--verbose"]].concat();
    let names = |seed: &str| stderr(&pagewise(&[&arguments[..], &["--seed", seed]].concat()));
    assert!(names("5").starts_with("advice-5-0: "), "{}", names("5"));
    assert_eq!(names("5"), names("5"));
    assert_ne!(names("5"), names("6").replace("-6-", "-5-"));
}

#[test]
fn programs_that_were_drawn_can_be_recorded() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| files.path().join(name).display().to_string();
    let (programs, trace) = (path("programs.jsonl"), path("trace.jsonl"));
    let more = ["--ops", "100", "--family", "pool,contents", "--programs", &programs];
    assert_eq!(status(&pagewise(&[&SIM[..], &more].concat())), 0);
    let text = std::fs::read_to_string(&programs).expect("readable");
    assert!(text.contains("{\"case\":\"pool-0-0\"}") && !text.contains("\"code\""), "{text}");
    assert_eq!(status(&pagewise(&["record", &programs, "-o", &trace])), 0);
    assert_eq!(status(&pagewise(&["replay", &trace])), 0);
}

#[test]
fn a_family_that_needs_more_devices_and_an_unknown_one_are_usage_errors() {
    let peer = pagewise(&[&SIM[..], &["--family", "peer"]].concat());
    assert_eq!(status(&peer), 2);
    assert!(stderr(&peer).contains("--devices 2"), "{}", stderr(&peer));
    let unknown = pagewise(&[&SIM[..], &["--family", "calls,none"]].concat());
    assert_eq!(status(&unknown), 2);
    assert!(
        stderr(&unknown).contains("'none'") && stderr(&unknown).contains("values: calls, advice"),
        "{}",
        stderr(&unknown)
    );
}

#[test]
fn without_a_driver_it_says_so_and_never_takes_the_simulator_instead() {
    let output = Command::new(env!("CARGO_BIN_EXE_pagewise"))
        .args(["compare", "--ops", "10"])
        .env("PAGEWISE_LIBCUDA", "libcuda-that-does-not-exist.so.1")
        .output()
        .expect("the binary runs");
    assert_eq!((status(&output), stdout(&output).as_str()), (3, ""));
    assert!(stderr(&output).contains("install the NVIDIA driver"), "{}", stderr(&output));
}

#[test]
fn two_recordings_are_compared_operation_by_operation() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| files.path().join(name).display().to_string();
    let program = path("program.jsonl");
    let ops = [
        r#"{"op":"alloc_managed","buf":0,"bytes":2097152,"attach_flags":1}"#,
        r#"{"op":"host_touch","buf":0,"offset":0,"bytes":2097152,"stride":4096,"access":"write","value":1}"#,
        r#"{"op":"range_attributes","buf":0,"offset":0,"bytes":4096}"#,
    ];
    std::fs::write(&program, ops.join("\n")).expect("writable");
    let (one, other) = (path("one.jsonl"), path("other.jsonl.zst"));
    for trace in [&one, &other] {
        assert_eq!(status(&pagewise(&["record", &program, "-o", trace, "--timed-runs", "0"])), 0);
    }
    let output = pagewise(&["compare", &one, &other]);
    assert_eq!(status(&output), 0, "{}", stdout(&output));
    assert!(stdout(&output).contains("1 of 1 traces agree"), "{}", stdout(&output));

    let text = std::fs::read_to_string(&one).expect("readable");
    let changed = path("changed.jsonl");
    std::fs::write(&changed, text.replacen("\"cpu_fault\",0,0,65536", "\"cpu_fault\",0,0,4096", 1))
        .expect("writable");
    let output = pagewise(&["compare", &one, &changed]);
    assert_eq!(status(&output), 1);
    assert!(stdout(&output).contains("diverges at level events"), "{}", stdout(&output));
    assert_eq!(status(&pagewise(&["compare", &one, &changed, "--levels", "pages"])), 0);

    let shorter = path("shorter.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&shorter, lines[..4].join("\n")).expect("writable");
    assert_eq!(status(&pagewise(&["compare", &one, &shorter])), 1);
    assert_eq!(status(&pagewise(&["compare", &one])), 2, "one trace is not enough");
}

/// Runs the command over the simulated driver with these options.
#[cfg(target_os = "linux")]
fn on_driver(machine: &str, arguments: &[&str]) -> Output {
    driver_command(machine, arguments).output().expect("the binary runs")
}

#[cfg(target_os = "linux")]
fn driver_command(machine: &str, arguments: &[&str]) -> Command {
    // The library is built because these tests depend on it.
    use pagewise_driver as _;

    let library = std::env::current_exe().expect("a test knows its path");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewise"));
    command
        .args(arguments)
        .env("PAGEWISE_LIBCUDA", library.with_file_name("libpagewise_driver.so"))
        .env(
            "PAGEWISE_DRIVER",
            format!("log=off version=13.0 reads=driver discarded=driver {machine}"),
        )
        .env("PAGEWISE_CUPTI", "/nowhere/libcupti.so.13");
    command
}

#[test]
#[cfg(target_os = "linux")]
fn a_driver_with_more_devices_than_are_asked_for_is_used_with_the_first() {
    let few = ["compare", "--ops", "40", "--family", "calls,pool", "--levels", "contract"];
    let output = on_driver("devices=2", &[&few[..], &["--devices", "1"]].concat());
    assert_eq!(status(&output), 0, "{}{}", stdout(&output), stderr(&output));
    let output = on_driver("devices=2", &[&few[..], &["--devices", "3"]].concat());
    assert_eq!(status(&output), 3, "{}", stdout(&output));
    assert!(
        stderr(&output).contains("is for 3 devices and the driver shows 2"),
        "{}",
        stderr(&output)
    );
}

/// A driver that answers range-attribute reads page by page disagrees with the simulator, which
/// answers as drivers do.
#[test]
#[cfg(target_os = "linux")]
fn the_first_disagreement_is_told_in_words_with_its_shrunk_program() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| files.path().join(name).display().to_string();
    let (saved, trace) = (path("saved.jsonl"), path("trace.jsonl"));
    let compare = ["compare", "--ops", "400", "--family", "discard,calls", "--seed", "3"];
    let arguments = [&compare[..], &["--levels", "contract", "--save", &saved]].concat();
    let output = on_driver("reads=pages", &arguments);
    let text = stdout(&output);
    assert_eq!(status(&output), 1, "{text}{}", stderr(&output));
    assert!(text.contains("operations, shrunk to") && text.contains("  The program:\n"), "{text}");
    assert!(text.contains("diverges at level contract\n    range_attributes: "), "{text}");
    let report = json(&on_driver("reads=pages", &[&arguments[..], &["--json"]].concat()));
    let programs = report["programs"].as_array().expect("a list");
    let names: Vec<_> = programs.iter().map(|family| family["family"].clone()).collect();
    assert_eq!(names, ["discard", "calls"]);
    let firsts: Vec<_> = programs.iter().filter(|family| !family["first"].is_null()).collect();
    assert_eq!(firsts.len(), 2, "both disagree, so that the first is not the last");
    let first = &firsts[0]["first"];
    assert_eq!(first["divergence"]["op"]["op"], "range_attributes");
    let program = first["program"].as_str().expect("text");
    assert_eq!(
        std::fs::read_to_string(&saved).expect("saved"),
        program,
        "the first, of {firsts:?}"
    );
    assert_eq!(status(&pagewise(&["record", &saved, "-o", &trace])), 0);
}

/// The simulated driver takes the driver's place. This process touches its memory itself, so
/// results are compared, and not where pages are.
#[test]
#[cfg(target_os = "linux")]
fn a_driver_is_compared_and_recorded_in_processes_of_its_own() {
    let families = ["--family", "pool,contents", "--levels", "contract", "--ceiling", "12.8"];
    let output = on_driver("", &[&["compare", "--ops", "80"][..], &families].concat());
    assert_eq!(status(&output), 0, "{}{}", stdout(&output), stderr(&output));
    assert_eq!(stderr(&output), "", "records are not wanted, so CUPTI is not missed");

    let files = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| files.path().join(name).display().to_string();
    let (program, sim, cuda) = (path("program.jsonl"), path("sim.jsonl"), path("cuda.jsonl"));
    let drawn = ["--ops", "40", "--family", "pool", "--programs", &program];
    assert_eq!(status(&pagewise(&[&SIM[..], &drawn].concat())), 0);
    assert_eq!(status(&pagewise(&["record", &program, "-o", &sim])), 0);
    let record = ["record", "--backend", "cuda", &program, "-o", &cuda, "--timed-runs", "3"];
    let output = on_driver("", &record);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("no unified-memory records: CUPTI"), "{}", stderr(&output));
    let text = std::fs::read_to_string(&cuda).expect("readable");
    assert!(text.contains("\"runs\":2,\"timed_runs\":3"), "{text}");
    assert!(text.contains("\"ns_profiled\":") && text.contains("\"ns\":{\"min\":"), "{text}");
    let output = pagewise(&["compare", &sim, &cuda, "--levels", "contract"]);
    assert_eq!(status(&output), 0, "{}", stdout(&output));

    // Standard input is read once, and each of the processes carries the program out.
    let text = std::fs::read(&program).expect("readable");
    let mut command = driver_command("", &["record", "--backend", "cuda", "-", "-o", "-"]);
    let output = crate::common::run_with_stdin(&mut command, &text);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    std::fs::write(&cuda, &output.stdout).expect("writable");
    let output = pagewise(&["compare", &sim, &cuda, "--levels", "contract"]);
    assert_eq!(status(&output), 0, "{}", stdout(&output));
}
