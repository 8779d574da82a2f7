//! The sources of figures.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// How good a figure is, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// Fitted to, or read from, recordings of the model.
    Calibrated,
    /// Others measured it on the model, its vendor states it, or the driver's source has it for
    /// every GPU.
    Published,
    /// It follows from figures of this or another model, by the rule that the text states.
    Derived,
    /// The author of the document says so.
    Given,
    /// It was not measured on the model.
    Guess,
}

impl Evidence {
    const ALL: [Self; 5] =
        [Self::Calibrated, Self::Published, Self::Derived, Self::Given, Self::Guess];

    /// Whether the figure was measured on the model, by the author or by others.
    #[must_use]
    pub fn is_founded(self) -> bool {
        matches!(self, Self::Calibrated | Self::Published)
    }

    /// The word that a source begins with.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::Published => "published",
            Self::Derived => "derived",
            Self::Given => "given",
            Self::Guess => "guess",
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source<'a> {
    /// How good it is.
    pub evidence: Evidence,
    /// Which measurement, document or reason.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// Reads `calibrated: …`, `published: …`, `derived: …`, `given: …` or `guess: …`.
    fn parse(text: &'a str) -> Option<Self> {
        let (word, rest) = text.split_once(':')?;
        let evidence = Evidence::ALL.into_iter().find(|evidence| evidence.name() == word)?;
        let text = rest.trim();
        (!text.is_empty()).then_some(Self { evidence, text })
    }
}

/// Sources by field, or by the table that a field is in, with dots: `cost.prefetch`.
///
/// Copies share one table until one of them changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sources(Arc<BTreeMap<String, String>>);

impl Sources {
    /// The source of a field: its own, or that of the innermost table around it that has one.
    #[must_use]
    pub fn of(&self, field: &str) -> Option<Source<'_>> {
        let mut path = field;
        loop {
            if let Some(text) = self.0.get(path) {
                return Source::parse(text);
            }
            path = path.rsplit_once('.')?.0;
        }
    }

    /// All, by field.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Source<'_>)> {
        self.0.iter().filter_map(|(field, text)| Some((field.as_str(), Source::parse(text)?)))
    }

    /// Says where a field, or all fields of a table, come from.
    pub fn set(&mut self, field: impl Into<String>, evidence: Evidence, text: &str) {
        let field = field.into();
        let inner = format!("{field}.");
        let table = Arc::make_mut(&mut self.0);
        table.retain(|other, _| !other.starts_with(&inner));
        table.insert(field, format!("{evidence}: {text}"));
    }

    /// The first entry that does not begin with how good the figure is.
    pub(super) fn malformed(&self) -> Option<&str> {
        let bad = |(field, text): (&'_ String, &'_ String)| {
            Source::parse(text).is_none().then(|| field.clone())
        };
        let field = self.0.iter().find_map(bad)?;
        self.0.get_key_value(&field).map(|(field, _)| field.as_str())
    }
}
