//! Sentences that hide their subject, in documentation comments and documents.
//!
//! Each folder has a stored maximum, which may only fall: `xtask/prose.json`. Looked at are the
//! `//!` and `///` comments of `crates`, `README.md`, `ARCHITECTURE.md`, `CONTRIBUTING.md` and
//! `docs`. Code in them is left out. The lint knows words, not grammar.

mod sentences;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::Outcome;
use sentences::{Paragraph, offences, paragraphs_of_document, paragraphs_of_source};

const STORE: &str = "xtask/prose.json";

const DOCUMENTS: [&str; 4] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs"];

/// How many offences each folder has.
type Counts = BTreeMap<String, usize>;

/// No folder has more offences than its stored maximum.
pub(crate) fn check() -> Outcome {
    let found = search()?;
    compare(&count(&found), &stored()?)?;
    println!("{} hidden subjects, none of them new", found.len());
    Ok(())
}

/// Prints every offence, and stores the counts if no maximum rises.
pub(crate) fn run(write: bool) -> Outcome {
    let found = search()?;
    for Offence { path, line, word, .. } in &found {
        println!("{}:{line}: {word}", path.display());
    }
    let counts = count(&found);
    if write {
        compare(&counts, &stored()?)?;
        let text = serde_json::to_string_pretty(&counts).map_err(|error| error.to_string())?;
        fs::write(STORE, text + "\n").map_err(|error| format!("{STORE}: {error}"))?;
    }
    println!("{} in all: {counts:?}", found.len());
    Ok(())
}

fn stored() -> Outcome<Counts> {
    let text = fs::read_to_string(STORE).map_err(|error| format!("{STORE}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{STORE}: {error}"))
}

/// Whether no maximum is exceeded. A folder that has none may take over what others lost, as
/// files move.
fn compare(counts: &Counts, maxima: &Counts) -> Outcome {
    let advice = "`cargo xtask prose` lists them: name the subject (CONTRIBUTING, Style)";
    for (folder, count) in counts {
        if maxima.get(folder).is_some_and(|maximum| count > maximum) {
            return Err(format!(
                "{folder} has {count} hidden subjects of at most {}; {advice}",
                maxima[folder]
            ));
        }
    }
    let (all, most) = (counts.values().sum::<usize>(), maxima.values().sum::<usize>());
    if all > most {
        return Err(format!("there are {all} hidden subjects of at most {most}; {advice}"));
    }
    Ok(())
}

struct Offence {
    folder: String,
    path: PathBuf,
    line: usize,
    word: String,
}

fn count(found: &[Offence]) -> Counts {
    let mut counts = Counts::new();
    for Offence { folder, .. } in found {
        *counts.entry(folder.clone()).or_default() += 1;
    }
    counts
}

fn search() -> Outcome<Vec<Offence>> {
    let mut found = Vec::new();
    for document in DOCUMENTS {
        search_in(document, Path::new(document), "md", paragraphs_of_document, &mut found)?;
    }
    let mut crates = entries(Path::new("crates"))?;
    crates.retain(|path| path.is_dir());
    for path in crates {
        let folder = path.display().to_string();
        search_in(&folder, &path, "rs", paragraphs_of_source, &mut found)?;
    }
    Ok(found)
}

/// Searches a file, or all files of a folder that end so.
fn search_in(
    folder: &str,
    path: &Path,
    end: &str,
    paragraphs: fn(&str) -> Vec<Paragraph>,
    found: &mut Vec<Offence>,
) -> Outcome {
    if path.is_dir() {
        let entries = entries(path)?;
        return entries.iter().try_for_each(|path| search_in(folder, path, end, paragraphs, found));
    }
    if path.extension().is_none_or(|extension| extension != end) {
        return Ok(());
    }
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    for paragraph in paragraphs(&text) {
        for (line, word) in offences(&paragraph) {
            let (folder, path) = (folder.to_owned(), path.to_owned());
            found.push(Offence { folder, path, line, word });
        }
    }
    Ok(())
}

/// What is in a folder, in a fixed order.
fn entries(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts<const N: usize>(pairs: [(&str, usize); N]) -> Counts {
        pairs.map(|(folder, count)| (folder.to_owned(), count)).into()
    }

    #[test]
    fn a_folder_may_have_fewer_and_never_more_than_its_maximum() {
        let maxima = counts([("crates/a", 3), ("docs", 1)]);
        assert!(compare(&counts([("crates/a", 3), ("docs", 1)]), &maxima).is_ok());
        assert!(compare(&counts([("crates/a", 2)]), &maxima).is_ok());
        let failure = compare(&counts([("crates/a", 0), ("docs", 2)]), &maxima).unwrap_err();
        assert!(failure.contains("docs has 2") && failure.contains("at most 1"), "{failure}");
    }

    #[test]
    fn a_new_folder_takes_over_what_others_lost_and_no_more() {
        let maxima = counts([("crates/a", 3)]);
        assert!(compare(&counts([("crates/a", 1), ("crates/b", 2)]), &maxima).is_ok());
        assert!(compare(&counts([("crates/a", 1), ("crates/b", 3)]), &maxima).is_err());
    }
}
