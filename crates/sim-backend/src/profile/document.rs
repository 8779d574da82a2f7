//! Profiles as documents: reading and writing.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Table, Value};

use super::error::ProfileError;
use super::gpu::GpuProfile;
use super::sources::Evidence;
use super::{check, texts};
use crate::pressure::{Confidence, Pressure};

impl GpuProfile {
    /// Reads a TOML document. One that begins with `base = "h200"` (or another shipped profile)
    /// gives only what differs from it; figures that it leaves out are guesses then, as they were
    /// not measured on this model.
    ///
    /// # Errors
    /// [`ProfileError`]: not TOML, an unknown or missing key, a base that does not exist, a value
    /// that makes no sense.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        let table: Table = text.parse().map_err(document)?;
        let profile = Self::deserialize(Value::Table(resolved(table)?)).map_err(document)?;
        check::check(&profile)?;
        Ok(profile)
    }

    /// The whole document, with sources.
    ///
    /// # Errors
    /// [`ProfileError::Document`] if a size does not fit in TOML's integers.
    pub fn to_toml(&self) -> Result<String, ProfileError> {
        toml::to_string(self).map_err(|error| ProfileError::Document(error.to_string()))
    }

    /// How many figures are how well founded, best first.
    #[must_use]
    pub fn evidence(&self) -> Vec<(Evidence, usize)> {
        let mut counts = BTreeMap::new();
        for (_, evidence) in self.figures() {
            *counts.entry(evidence).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// How far a verdict about a program on this GPU can be trusted: see [`Confidence`].
    #[must_use]
    pub fn confidence(&self, pressure: &Pressure) -> Confidence {
        Confidence::of(self, pressure)
    }

    /// Of the figures in these tables, and of these fields: how many were measured on the model or
    /// published for it, and how many there are.
    pub(crate) fn founded(&self, tables: &[&str]) -> (usize, usize) {
        let inside = |field: &str| tables.iter().any(|table| covers(table, field));
        let figures = self.figures().into_iter().filter(|(field, _)| inside(field));
        figures.fold((0, 0), |(founded, all), (_, evidence)| {
            (founded + usize::from(evidence.is_founded()), all + 1)
        })
    }

    /// All figures by name, with how well each is founded.
    fn figures(&self) -> Vec<(String, Evidence)> {
        let table = Table::try_from(self).unwrap_or_default();
        let is_figure = |field: &String| {
            !matches!(field.as_str(), "name" | "description") && !field.starts_with("sources.")
        };
        let with_evidence = |field: String| {
            let evidence = self.sources.of(&field)?.evidence;
            Some((field, evidence))
        };
        leaves(&table).into_iter().filter(is_figure).filter_map(with_evidence).collect()
    }
}

fn document(error: toml::de::Error) -> ProfileError {
    let text = error.to_string();
    let text = text.trim_end();
    if text.contains("missing field") {
        let hint = "give it, or give only what differs and begin with base = \"h200\"";
        return ProfileError::Document(format!("{text}: {hint}"));
    }
    ProfileError::Document(text.to_owned())
}

/// The document with everything that its base has and it has not.
fn resolved(mut table: Table) -> Result<Table, ProfileError> {
    let base = match table.remove("base") {
        None => return Ok(table),
        Some(Value::String(base)) => base,
        Some(other) => {
            let problem = format!("base is {other}: give the name of a profile, in quotes");
            return Err(ProfileError::Document(problem));
        }
    };
    let Some(text) = texts::text(&base) else {
        return Err(ProfileError::UnknownBase { base, known: texts::names() });
    };
    let mut merged = resolved(text.parse().map_err(document)?)?;
    let sources = merge_sources(&base, merged.remove("sources"), table.remove("sources"), &table);
    overlay(&mut merged, table);
    merged.insert("sources".to_owned(), sources);
    Ok(merged)
}

/// Tables are merged, everything else is replaced. A table that says its `kind` is of a kind with
/// other keys, and replaces.
fn overlay(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) if !above.contains_key("kind") => {
                overlay(below, above);
            }
            (_, value) => _ = base.insert(key, value),
        }
    }
}

/// The document's own sources; those of the base, which are now guesses; and for each field that
/// the document gives without a source, that it does.
fn merge_sources(base: &str, below: Option<Value>, above: Option<Value>, given: &Table) -> Value {
    let (above, unreadable) = match above {
        None => (Table::new(), None),
        Some(Value::Table(table)) => (table, None),
        Some(other) => (Table::new(), Some(other)),
    };
    if let Some(other) = unreadable {
        return other; // Reading the document says what is wrong with it.
    }
    let mut sources = Table::new();
    for (field, value) in below.and_then(|below| below.as_table().cloned()).unwrap_or_default() {
        if !above.keys().any(|own| covers(own, &field)) {
            let text = inherited(base, value.as_str().unwrap_or_default());
            sources.insert(field, Value::String(text));
        }
    }
    for field in leaves(given) {
        if !above.keys().any(|own| covers(own, &field)) {
            let text = format!("{}: by this document", Evidence::Given);
            sources.insert(field, Value::String(text));
        }
    }
    sources.extend(above);
    Value::Table(sources)
}

/// Whether a field is this one, or in this table.
fn covers(outer: &str, field: &str) -> bool {
    field.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The words after which a source tells what makes the figure the same on every GPU: a default of
/// the driver, a rule of CUDA.
const EVERY_GPU: &str = "every GPU: ";

/// The source of a figure that a document takes from its base: a guess, as it was not measured on
/// this model, unless it is the same on every GPU.
fn inherited(base: &str, text: &str) -> String {
    if let Some((_, reason)) = text.split_once(EVERY_GPU) {
        return format!("{}: {EVERY_GPU}{reason}", Evidence::Published);
    }
    let text = text.strip_prefix("guess: ").unwrap_or(text);
    format!("{}: as on the {base} ({text})", Evidence::Guess)
}

/// The names of all fields that are no tables, with dots.
pub(super) fn leaves(table: &Table) -> Vec<String> {
    let mut names = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                names.extend(leaves(inner).into_iter().map(|name| format!("{key}.{name}")));
            }
            _ => names.push(key.clone()),
        }
    }
    names
}
