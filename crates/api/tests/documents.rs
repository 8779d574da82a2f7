//! The documents say what is there.
#![cfg(feature = "sim")]

use std::fs;
use std::path::Path;
use std::process::Command;

mod newcomer {
    include!("../examples/newcomer.rs");

    pub(super) fn run() -> Result<()> {
        main()
    }
}

fn repository(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// `file::test` names of a text, between backticks.
fn tests_named(text: &str) -> Vec<(&str, &str)> {
    let quoted = text.split('`').skip(1).step_by(2);
    let names = quoted.filter_map(|name| name.split_once("::"));
    let is_name =
        |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit());
    names.filter(|(file, test)| is_name(file) && is_name(test) && test.contains('_')).collect()
}

#[test]
fn every_test_that_the_parity_table_names_exists() {
    let text = repository("docs/parity.md");
    let named = tests_named(&text);
    assert!(named.len() > 100, "{} names were found", named.len());
    for (file, test) in named {
        let source = repository(&format!("crates/api/tests/{file}.rs"));
        assert!(source.contains(&format!("fn {test}(")), "{file}::{test}");
    }
}

#[test]
fn every_row_of_the_parity_table_has_evidence_or_a_reason() {
    for line in repository("docs/parity.md").lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{line}");
        if cells.last() == Some(&"–") {
            let reason = cells[cells.len() - 2];
            assert!(reason.len() >= "by type".len(), "{line}");
        }
    }
}

#[test]
fn the_newcomer_s_program_is_short_and_runs() {
    let program = include_str!("../examples/newcomer.rs");
    let code = program.lines().filter(|line| !line.trim_start().starts_with("//"));
    assert!(code.count() <= 25);
    // In a process of its own, so that the environment of this one stays as it is.
    if std::env::var(pagewise::Builder::VARIABLE).is_ok_and(|name| name == "sim") {
        return newcomer::run().expect("it runs on the simulator");
    }
    let status = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "the_newcomer_s_program_is_short_and_runs"])
        .env(pagewise::Builder::VARIABLE, "sim")
        .status();
    assert!(status.expect("this test starts again").success());
}
