//! `pagewise doctor`, with the simulated driver in place of a real one.
#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::process::Command;

// The library is built because these tests depend on it.
use pagewise_driver as _;

/// Runs the command; it must succeed, and say nothing on stderr.
fn doctor(library: &str, machine: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewise"));
    command.arg("doctor").args(arguments);
    // A host that cannot hold the devices' memory gets a word on stderr.
    command.env("PAGEWISE_LIBCUDA", library);
    command.env("PAGEWISE_DRIVER", format!("log=off {machine}"));
    command.env("PAGEWISE_CUPTI", "/nowhere/libcupti.so.13");
    let output = command.output().expect("the command runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).expect("text")
}

fn simulated() -> String {
    let test = std::env::current_exe().expect("a test knows its path");
    let beside: PathBuf = test.with_file_name("libpagewise_driver.so");
    assert!(beside.exists(), "cargo builds the simulated driver beside the tests");
    beside.display().to_string()
}

#[track_caller]
fn assert_says(report: &str, lines: &[&str]) {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in lines {
        let same = |said: &str| words(said).starts_with(line);
        assert!(report.lines().any(same), "{line:?} is not in\n{report}");
    }
}

#[test]
fn without_a_driver_it_says_what_is_missing() {
    let report = doctor("/nowhere/libcuda.so.1", "", &[]);
    assert_says(&report, &["missing /nowhere/libcuda.so.1 could not be opened", "the driver no"]);
    assert_says(&report, &["records of what moves none: CUPTI was not found: install"]);
    assert!(report.contains("install the NVIDIA driver"), "{report}");
    let report = doctor("libc.so.6", "", &[]);
    assert!(report.contains("is no CUDA driver: it has no cuDriverGetVersion"), "{report}");
}

#[test]
fn without_a_device_it_says_so_and_lists_the_entry_points_all_the_same() {
    let report = doctor(&simulated(), "devices=0", &[]);
    assert_says(
        &report,
        &[
            "required entry points 58 of 58 found",
            "those of virtual memory 9 of 9 found",
            "cuMemAdvise as of 12.2 found",
            "devices the driver is there but sees no GPU",
            "the driver no",
        ],
    );
}

#[test]
fn with_a_driver_it_says_which_form_is_used_and_why() {
    let report = doctor(&simulated(), "version=13.0 devices=2", &[]);
    assert_says(
        &report,
        &[
            "version CUDA 13.0, used as 13.0",
            "advise and prefetch by location",
            "Device 1: simulated h200",
            "concurrent managed access 1",
            "discard yes",
            "host and device at once yes",
        ],
    );
    let report = doctor(&simulated(), "version=13.0", &["--max-version", "12.0"]);
    assert_says(
        &report,
        &[
            "version CUDA 13.0, used as 12.0",
            "advise and prefetch by device ordinal",
            "cuMemAdvise as of 12.2 not used, newer than the ceiling",
            "host NUMA locations needs CUDA 12.2",
            "prefetch batches yes, by a loop",
            "discard needs CUDA 13.0",
            "pools on the host unknown to this version",
        ],
    );
}

#[test]
fn json_has_what_the_text_says_with_versions_as_they_are_written() {
    let found = |machine: &str| -> serde_json::Value {
        let text = doctor(&simulated(), machine, &["--json", "--max-version", "12.2"]);
        serde_json::from_str(&text).expect("one JSON object")
    };
    let report = found("version=13.0 devices=2");
    let driver = &report["driver"];
    assert_eq!((&driver["version"], &driver["used_as"]), (&"13.0".into(), &"12.2".into()));
    assert_eq!(driver["advise_and_prefetch"], "by_location");
    let entries = driver["entry_points"].as_array().expect("a list");
    let state = |name: &str, since: &str| {
        let is_it = |entry: &&serde_json::Value| entry["name"] == name && entry["since"] == since;
        entries.iter().find(is_it).map(|entry| entry["state"].clone())
    };
    assert_eq!(state("cuMemAdvise", "12.2"), Some("found".into()));
    assert_eq!(state("cuMemDiscardBatchAsync", "13.0"), Some("not_used".into()));
    assert_eq!(report["devices"][1]["name"], "simulated h200");
    let capabilities = &report["supported"]["capabilities"];
    assert_eq!(capabilities["locations"], true);
    assert_eq!((&capabilities["discard"], &report["ok"]), (&false.into(), &true.into()));
    let nothing = found("devices=0");
    let reason = nothing["supported"]["driver"]["error"].as_str().expect("a reason");
    assert!(reason.contains("sees no GPU"), "{nothing}");
    assert_eq!(nothing["devices"], serde_json::json!([]));
}

/// The mechanism depends on the machine; that it is named and has a reason does not.
#[test]
fn it_names_the_mechanism_of_host_faults_and_the_reason_for_it() {
    let text = doctor(&simulated(), "devices=0", &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    let faults = &report["host"]["faults"];
    let name = match faults["mechanism"].as_str() {
        Some("userfaultfd") => "by userfaultfd",
        Some("page_protection") => "by page protection",
        _ => "none",
    };
    let why = faults["why"].as_str().expect("a reason");
    let line = format!("simulated host faults {name}: {why}");
    let report = doctor(&simulated(), "devices=0", &[]);
    assert_says(&report, &[&line.split_whitespace().collect::<Vec<_>>().join(" ")]);
    let says_limit = report.contains("system calls with pages that are elsewhere fail");
    assert_eq!(says_limit, faults["system_calls"] == false && name != "none", "{report}");
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) && name == "none" {
        assert!(why.contains("host"), "a reason that a user can act on: {why}");
    }
}

#[test]
fn virtual_memory_is_told_by_entry_points_devices_and_units() {
    let report = doctor(&simulated(), "version=13.0", &[]);
    assert_says(
        &report,
        &[
            "those of virtual memory 9 of 9 found",
            "virtual memory 1",
            "virtual memory units 2048 KiB, recommended 2048 KiB",
            "virtual memory yes, on every device",
        ],
    );
    let found = |machine: &str| -> serde_json::Value {
        serde_json::from_str(&doctor(&simulated(), machine, &["--json"])).expect("one JSON object")
    };
    let report = found("version=12.0");
    let units = serde_json::json!({
        "granularity_bytes": 2 << 20, "recommended_granularity_bytes": 2 << 20
    });
    assert_eq!(report["devices"][0]["virtual_memory"], units);
    assert_eq!(report["supported"]["capabilities"]["virtual_memory"], true);
    for name in [
        "cuMemAddressFree",
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemGetAccess",
        "cuMemGetAllocationGranularity",
        "cuMemMap",
        "cuMemRelease",
        "cuMemSetAccess",
        "cuMemUnmap",
    ] {
        let machine = format!("version=13.0 hide={name}");
        let report = doctor(&simulated(), &machine, &[]);
        assert_says(
            &report,
            &[
                "required entry points 58 of 58 found",
                "those of virtual memory 8 of 9 found",
                &format!("missing: {name}"),
                "virtual memory 1",
                "virtual memory units none",
                "virtual memory no: needs its entry points",
            ],
        );
        let report = found(&machine);
        assert_eq!(report["supported"]["capabilities"]["virtual_memory"], false);
        let reason = &report["devices"][0]["virtual_memory"]["error"];
        assert!(
            reason.as_str().is_some_and(|why| why.contains("lacks an entry point")),
            "{reason}"
        );
    }
}

#[test]
fn an_incomplete_driver_is_named_with_what_it_lacks() {
    let report = doctor(&simulated(), "hide=cuMemFree", &[]);
    assert_says(&report, &["required entry points 57 of 58 found", "missing: cuMemFree"]);
}

#[test]
fn a_ceiling_that_makes_no_sense_is_a_usage_error() {
    for version in ["11.8", "twelve", "12"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagewise"));
        let status = command.args(["doctor", "--max-version", version]).output();
        assert_eq!(status.expect("the command runs").status.code(), Some(2), "{version}");
    }
}
