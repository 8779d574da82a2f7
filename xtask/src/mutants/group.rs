//! Groups of files and the tests that judge their mutants: `tests/mutants/*.toml`.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::command::Outcome;

/// Where the groups and the baseline are.
pub(super) const FOLDER: &str = "tests/mutants";

/// Files, and the tests that have to notice their mutants.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    /// The name of its file, without the end.
    #[serde(skip)]
    pub(super) name: String,
    /// Patterns of the files in which mutants are planted.
    pub(super) files: Vec<String>,
    /// Patterns of mutants that are not planted.
    #[serde(default)]
    pub(super) exclude: Vec<String>,
    /// The packages and targets of the tests, as arguments of `cargo test`.
    pub(super) tests: Vec<String>,
    /// Tests that do not take part, by the end of their name.
    #[serde(default)]
    pub(super) skip: Vec<String>,
}

/// The groups in the order of their names.
pub(super) fn read() -> Outcome<Vec<Group>> {
    let entries = fs::read_dir(FOLDER).map_err(|error| format!("{FOLDER}: {error}"))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    paths.iter().map(|path| read_one(path)).collect()
}

fn read_one(path: &Path) -> Outcome<Group> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    let mut group: Group = toml::from_str(&text).map_err(|error| failed(&error))?;
    group.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(group)
}
