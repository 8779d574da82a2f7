//! Sentences that hide their subject or their reason, in comments and documents.
//!
//! The lint reads all comments that have lines of their own, the documents of the root folder, and
//! `docs`. It leaves code in them out. A SAFETY comment has to give its reason itself. The lint
//! knows words, not grammar.

mod sentences;

use std::path::Path;

use crate::command::Outcome;
use crate::files::{files, text_of};
use sentences::{Paragraph, offences, paragraphs_of_document, paragraphs_of_source};

const SOURCES: [&str; 6] = ["benches", "crates", "examples", "fuzz", "tests", "xtask"];

const DOCUMENTS: [&str; 5] =
    ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "docs"];

/// No sentence hides its subject or its reason.
pub(crate) fn check() -> Outcome {
    let (mut paragraphs, mut found) = (0, Vec::new());
    let documents = DOCUMENTS.iter().map(|place| (*place, "md"));
    let places = documents.chain(SOURCES.iter().map(|place| (*place, "rs")));
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
        println!("{paragraphs} paragraphs, no hidden subject or reason");
        return Ok(());
    }
    let advice = "name the subject, give the reason (CONTRIBUTING, Style)";
    Err(format!("{} hidden subjects or reasons; {advice}:\n{}", found.len(), found.join("\n")))
}
