//! The planted mutants that compile, as the compiler tells.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::list::{Mutant, Number};
use super::tree::{Refused, TREE, cargo_in_tree, plant_all};
use crate::command::Outcome;

/// Each round removes at least one mutant; errors of types, borrows and later crates take turns.
const ROUNDS: usize = 60;

/// Plants the mutants, without those that keep the copy from compiling, which it returns.
pub(super) fn plant_what_compiles(mutants: &[Mutant]) -> Outcome<Refused> {
    let mut refused = Refused::default();
    for round in 1..=ROUNDS {
        plant_all(mutants, &mut refused)?;
        let errors = errors_of_the_compiler(mutants)?;
        if errors.is_empty() {
            return Ok(refused);
        }
        let before = refused.len();
        errors.iter().for_each(|error| refuse(error, &mut refused));
        let (unviable, unjudged) = (refused.unviable.len(), refused.left_out.len());
        println!("round {round}: {unviable} do not compile, {unjudged} cannot be planted");
        if refused.len() == before {
            return Err(format!("the copy in {TREE} does not compile: {}", errors[0]["rendered"]));
        }
    }
    Err(format!("the copy in {TREE} still does not compile after {ROUNDS} rounds"))
}

fn errors_of_the_compiler(mutants: &[Mutant]) -> Outcome<Vec<Value>> {
    let mut command = cargo_in_tree(&["check", "--lib", "--all-features", "--keep-going"]);
    let packages: BTreeSet<&str> = mutants.iter().map(|mutant| &*mutant.package).collect();
    command.args(packages.into_iter().flat_map(|package| ["--package", package]));
    command.args(["--message-format", "json"]);
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let errors: Vec<Value> = messages
        .filter(|message| message["reason"] == "compiler-message")
        .map(|mut message| message["message"].take())
        .filter(|message| message["level"] == "error")
        .filter(|message| message["spans"].as_array().is_some_and(|spans| !spans.is_empty()))
        .collect();
    if errors.is_empty() && !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(errors)
}

/// Refuses the mutants that an error is about.
fn refuse(error: &Value, refused: &mut Refused) {
    let spans = error["spans"].as_array().into_iter().flatten();
    let lines = spans.filter_map(|span| {
        let file = Path::new(TREE).join(span["file_name"].as_str()?);
        let text = fs::read_to_string(file).ok()?;
        let line = usize::try_from(span["line_start"].as_u64()?).ok()?;
        Some((text, line, span["is_primary"] == true))
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort_by_key(|(_, _, is_primary)| !is_primary);
    let on_a_line = lines.iter().map(|(text, line, _)| numbers_on(text, *line));
    match on_a_line.into_iter().find(|numbers| !numbers.is_empty()) {
        Some(numbers) => refused.unviable.extend(numbers),
        None => {
            if let Some((text, line, _)) = lines.first() {
                refused.left_out.extend(nearest_before(text, *line));
            }
        }
    }
}

/// The mutants with switches on a line, which counts from 1.
fn numbers_on(text: &str, line: usize) -> Vec<Number> {
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or("");
    let after = line.split("crate::mutant::is(").skip(1);
    after.filter_map(|rest| rest.split(')').next()?.parse().ok()).collect()
}

/// The mutants of the last line with switches up to one.
fn nearest_before(text: &str, line: usize) -> Vec<Number> {
    let before = (1..=line).rev().map(|line| numbers_on(text, line));
    before.into_iter().find(|numbers| !numbers.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a\nif crate::mutant::is(7) { b }\nelse { c }\n";

    #[test]
    fn an_error_on_a_switchs_line_is_that_mutants() {
        assert_eq!(numbers_on(TEXT, 2), [7]);
        assert!(numbers_on(TEXT, 1).is_empty() && numbers_on(TEXT, 9).is_empty());
        assert_eq!(nearest_before(TEXT, 3), [7]);
        assert!(nearest_before(TEXT, 1).is_empty());
    }
}
