//! The mutants that live, each with the reason: `tests/mutants/survivors.json`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::baseline::Mutants;
use crate::command::Outcome;

/// Mutants that live for one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivors {
    why: String,
    /// Their names in the baseline.
    mutants: Vec<String>,
}

/// Fails if a mutant lives without a reason, or a reason is about one that does not live.
pub(super) fn check(all: &Mutants, folder: &Path) -> Outcome {
    let path = folder.join("survivors.json");
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(&path).map_err(|error| failed(&error))?;
    let reasons = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    compare(all, reasons).map_err(|error| failed(&error))
}

fn compare(all: &Mutants, reasons: Vec<Survivors>) -> Outcome {
    let mut alive: BTreeSet<&str> =
        all.iter().filter(|(_, counts)| counts.missed > 0).map(|(name, _)| name.as_str()).collect();
    let mut wrong = Vec::new();
    for Survivors { why, mutants } in &reasons {
        for name in mutants {
            if !alive.remove(name.as_str()) {
                wrong.push(format!("does not live, or is listed twice: {name}"));
            } else if why.is_empty() {
                wrong.push(format!("lives for no reason: {name}"));
            }
        }
    }
    wrong.extend(alive.iter().map(|name| format!("lives without a reason: {name}")));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::super::baseline::{self, Counts};
    use super::*;

    #[test]
    fn each_survivor_has_one_reason_and_no_other_mutant_has_any() {
        let all = Mutants::from([
            ("a".to_owned(), Counts::CAUGHT),
            ("b".to_owned(), Counts::MISSED),
            ("c".to_owned(), Counts::MISSED),
        ]);
        let given = |why: &str, names: &[&str]| {
            let mutants = names.iter().map(|&name| name.to_owned()).collect();
            compare(&all, vec![Survivors { why: why.to_owned(), mutants }])
        };
        assert_eq!(given("words", &["b", "c"]), Ok(()));
        for (why, names) in [("words", &["b"][..]), ("words", &["a", "b", "c"]), ("", &["b", "c"])]
        {
            assert!(given(why, names).is_err(), "{why} {names:?}");
        }
        assert!(given("words", &["b", "b", "c"]).is_err());
    }

    #[test]
    fn the_baseline_of_the_repository_has_a_reason_for_each_survivor() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/mutants"));
        let all = baseline::read(&folder.join("baseline.json")).expect("it is there");
        assert_eq!(check(&all, folder), Ok(()));
    }
}
