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

#[allow(dead_code, reason = "its `main` reads the arguments of a process of its own")]
mod mempool {
    include!("../examples/mempool.rs");

    pub(super) fn run_with(arguments: &[&str]) -> Result<()> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        run(bytes_asked_for(&arguments)?)
    }
}

mod emm {
    include!("../examples/emm.rs");

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

/// The tables, and how many tests each names at least.
const TABLES: [(&str, usize); 4] = [
    ("docs/parity.md", 100),
    ("docs/parity-mempool.md", 60),
    ("docs/parity-emm.md", 70),
    ("docs/parity-manager.md", 90),
];

/// The source of a test program: a file, or a folder of files.
fn tests_of(name: &str) -> String {
    let folder = format!("crates/api/tests/{name}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&folder);
    let Ok(files) = fs::read_dir(path) else { return repository(&format!("{folder}.rs")) };
    let names = files.map(|file| file.expect("a file").file_name());
    names.map(|file| repository(&format!("{folder}/{}", file.display()))).collect()
}

#[test]
fn every_test_that_the_parity_tables_name_exists() {
    for (table, least) in TABLES {
        let text = repository(table);
        let named = tests_named(&text);
        assert!(named.len() > least, "{table}: {} names were found", named.len());
        for (file, test) in named {
            assert!(tests_of(file).contains(&format!("fn {test}(")), "{table}: {file}::{test}");
        }
    }
}

#[test]
fn every_row_of_the_parity_tables_has_evidence_or_a_reason() {
    let texts = TABLES.map(|(table, _)| repository(table));
    for line in texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{line}");
        if cells.last() == Some(&"–") {
            let reason = cells[cells.len() - 2];
            assert!(reason.len() >= "by type".len(), "{line}");
        }
    }
}

#[test]
fn the_tables_of_parity_are_linked_from_the_first() {
    let first = repository(TABLES[0].0);
    for (table, _) in &TABLES[1..] {
        let name = table.trim_start_matches("docs/");
        assert!(first.contains(&format!("]({name})")), "{name}");
    }
}

#[test]
fn the_examples_of_modules_run() -> pagewise::Result<()> {
    mempool::run_with(&["--bytes", "20000000"])?;
    for wrong in [&["--bytes"][..], &["--bytes", "0"], &["--bytes", "-1"], &["x"]] {
        assert!(mempool::run_with(wrong).is_err(), "{wrong:?}");
    }
    emm::run()
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
