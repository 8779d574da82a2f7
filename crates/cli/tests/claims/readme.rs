//! Claims about the README: it shows what the command prints today.

use std::path::Path;
use std::process::Command;

use crate::common::{Files, pagewise, status, stderr, stdout};

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    std::fs::read_to_string(path).expect("the checkout has a README")
}

/// The block of text in the README that begins with this line.
fn block(first: &str) -> String {
    let readme = readme();
    let (_, from) = readme.split_once(&format!("```text\n{first}")).expect("such a block");
    let (block, _) = from.split_once("```").expect("it ends");
    format!("{first}{block}")
}

/// Without the time that a replay took, which differs from run to run.
fn without_wall_time(table: &str) -> String {
    let lines = table.lines().map(|line| match line.rsplit_once(" replayed in ") {
        Some((timeless, _)) => timeless,
        None => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn pagewise_alone_replays_what_ships_from_any_directory_and_prints_the_table_of_the_readme() {
    let elsewhere = Files::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewise"));
    let output = command.current_dir(elsewhere.directory()).output().expect("the binary runs");
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    let shown = block("Recordings of an NVIDIA H200");
    assert_eq!(without_wall_time(&stdout(&output)), without_wall_time(&shown));
}

#[test]
fn the_readme_lists_the_profiles_as_the_command_does() {
    assert_eq!(stdout(&pagewise(&["profiles"])), block("profile "));
}

#[test]
fn the_readme_shows_the_verdicts_that_the_command_gives() {
    const BYTES: u64 = 16 << 30;
    let files = Files::new();
    let alloc = format!(r#"{{"op":"alloc_managed","buf":0,"bytes":{BYTES},"attach_flags":1}}"#);
    let pass = format!(
        r#"{{"op":"device_touch","device":0,"buf":0,"offset":0,"bytes":{BYTES},"stride":4096,"access":"read","blocks":1,"threads":1}}"#
    );
    let lines = [&alloc, &pass, &pass, &pass, &pass].map(String::as_str);
    files.add("four-passes.jsonl", lines.join("\n"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewise"));
    command.args(["verdict", "--max-work", "10G", "--max-memory", "64G", "four-passes.jsonl"]);
    let output = command.current_dir(files.directory()).output().expect("the binary runs");
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert_eq!(stdout(&output), block("program "));
}

#[test]
fn the_readme_states_the_limits_of_a_file_as_the_help_does() {
    let readme = readme();
    let help = stdout(&pagewise(&["replay", "--help"]));
    for (default, said) in [
        ("[default: 100M]", "100 million units of work"),
        ("[default: 16G]", "write 16 GiB"),
        ("[default: 600]", "600 seconds"),
    ] {
        assert!(help.contains(default), "{default}");
        assert!(readme.contains(said), "{said}");
    }
}
