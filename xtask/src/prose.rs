//! Sentences that hide their subject, in documentation comments and documents.
//!
//! The lint reads the `//!` and `///` comments of `crates`, the documents of the root folder, and
//! `docs`. It leaves code in them out. It knows words, not grammar.

mod sentences;

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::Outcome;
use sentences::{Paragraph, offences, paragraphs_of_document, paragraphs_of_source};

const DOCUMENTS: [&str; 5] =
    ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "docs"];

/// No sentence hides its subject.
pub(crate) fn check() -> Outcome {
    let (mut paragraphs, mut found) = (0, Vec::new());
    let places = DOCUMENTS.iter().map(|place| (*place, "md")).chain([("crates", "rs")]);
    for (place, end) in places {
        for path in files(Path::new(place), end)? {
            let text = fs::read_to_string(&path).map_err(|error| about(&path, &error))?;
            let split = if end == "md" { paragraphs_of_document } else { paragraphs_of_source };
            let split: Vec<Paragraph> = split(&text);
            paragraphs += split.len();
            let offences = split.iter().flat_map(offences);
            found.extend(offences.map(|(line, word)| format!("{}:{line}: {word}", path.display())));
        }
    }
    if found.is_empty() {
        println!("{paragraphs} paragraphs, no hidden subject");
        return Ok(());
    }
    let advice = "name the subject (CONTRIBUTING, Style)";
    Err(format!("{} hidden subjects; {advice}:\n{}", found.len(), found.join("\n")))
}

/// A file, or all files of a folder that end so, in a fixed order.
fn files(path: &Path, end: &str) -> Outcome<Vec<PathBuf>> {
    if !path.is_dir() {
        let ends = path.extension().is_some_and(|extension| extension == end);
        return Ok(ends.then(|| path.to_owned()).into_iter().collect());
    }
    let entries = fs::read_dir(path).map_err(|error| about(path, &error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let found: Vec<_> = paths.iter().map(|path| files(path, end)).collect::<Outcome<_>>()?;
    Ok(found.concat())
}

fn about(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
