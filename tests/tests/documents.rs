//! The tables of parity name tests that exist, and each row has evidence or a reason.

use std::fs;
use std::path::Path;

fn repository(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
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

/// The folders of the tests that the tables name.
const FOLDERS: [&str; 6] = [
    "crates/api/tests",
    "crates/api/tests/claims",
    "crates/managers/tests",
    "crates/managers/tests/claims",
    "crates/sim-driver/tests",
    "tests/tests",
];

/// The source of the tests of a topic: files, or folders of files.
fn tests_of(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = String::new();
    for folder in FOLDERS {
        let folder = format!("{folder}/{name}");
        if let Ok(files) = fs::read_dir(root.join(&folder)) {
            for file in files.map(|file| file.expect("a file").file_name()) {
                sources += &repository(&format!("{folder}/{}", file.display()));
            }
        } else if root.join(format!("{folder}.rs")).exists() {
            sources += &repository(&format!("{folder}.rs"));
        }
    }
    assert!(!sources.is_empty(), "no tests are called {name}");
    sources
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

/// Rows of a table that name a file and a function of it.
fn hops(text: &str) -> Vec<(&str, &str)> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split_once("` | `"));
    cells.filter_map(|(file, rest)| Some((file, rest.split_once('`')?.0))).collect()
}

#[test]
fn the_walks_of_the_architecture_go_through_functions_that_exist() {
    let text = repository("ARCHITECTURE.md");
    let start = text.find("## Two walks").expect("the section");
    let end = text[start..].find("## Glossary").expect("the next section") + start;
    let walks: Vec<_> = text[start..end].split("One ").skip(1).map(hops).collect();
    assert_eq!(walks.len(), 2, "a prefetch and a fault of the host");
    for walk in walks {
        assert!((5..10).contains(&walk.len()), "{} hops", walk.len());
        for (file, function) in walk {
            let source = repository(file);
            let is_there = source.contains(&format!("fn {function}("));
            assert!(is_there, "{file} has no function {function}");
        }
    }
}
