//! Sentences that hide their subject, in documentation comments and documents.
//!
//! The lint reads the `//!` and `///` comments of `crates`, the documents of the root folder, and
//! `docs`. It leaves code in them out. It knows words, not grammar.

mod sentences;

use std::path::Path;

use crate::command::Outcome;
use crate::files::{files, text_of};
use sentences::{Paragraph, offences, paragraphs_of_document, paragraphs_of_source};

const DOCUMENTS: [&str; 5] =
    ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "docs"];

/// No sentence hides its subject.
pub(crate) fn check() -> Outcome {
    let (mut paragraphs, mut found) = (0, Vec::new());
    let places = DOCUMENTS.iter().map(|place| (*place, "md")).chain([("crates", "rs")]);
    for (place, end) in places {
        for path in files(Path::new(place), end)? {
            let text = text_of(&path)?;
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
