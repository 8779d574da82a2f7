//! The mutants of a group, as `cargo mutants --list` names them.

use serde_json::Value;

use super::group::Group;
use crate::command::{Outcome, cargo, output};

/// The number of a mutant: its place in the list of all, from 1.
pub(super) type Number = usize;

/// How a mutant changes the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Genre {
    /// A function returns the replacement at once.
    Body,
    /// An operator between two operands is another one.
    Binary,
    /// An operator before its operand is left out.
    Unary,
    /// A match arm is left out.
    Arm,
    /// The condition of a match arm is `true` or `false`.
    Guard,
    /// A field of a struct expression is left out, so that it is the base's.
    Field,
}

/// One change of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mutant {
    pub(super) package: String,
    /// The file, below the workspace.
    pub(super) file: String,
    /// With file, line and column, as cargo-mutants prints it.
    pub(super) name: String,
    pub(super) genre: Genre,
    /// Whether the changed code is in a function, and not in a constant.
    pub(super) in_function: bool,
    /// Where the changed code begins. Lines and columns count from 1, columns in characters.
    pub(super) line: usize,
    pub(super) column: usize,
    /// The code that takes the place of the changed code.
    pub(super) replacement: String,
}

/// Asks cargo-mutants for the mutants of a group.
pub(super) fn of_group(group: &Group) -> Outcome<Vec<Mutant>> {
    let mut command = cargo(&["mutants", "--workspace", "--no-config", "--list", "--json"]);
    command.args(group.files.iter().flat_map(|glob| ["--file", glob]));
    command.args(group.exclude.iter().flat_map(|name| ["--exclude-re", name]));
    let mutants = read(&output(&mut command)?)?;
    if mutants.is_empty() { Err(format!("{}: no mutant", group.name)) } else { Ok(mutants) }
}

fn read(list: &str) -> Outcome<Vec<Mutant>> {
    let list: Value = serde_json::from_str(list).map_err(|error| error.to_string())?;
    let list = list.as_array().ok_or("cargo-mutants wrote no list")?;
    list.iter()
        .map(|entry| mutant(entry).ok_or(format!("unknown kind of mutant: {entry}")))
        .collect()
}

fn mutant(entry: &Value) -> Option<Mutant> {
    let text = |key: &str| Some(entry[key].as_str()?.to_owned());
    let start = &entry["span"]["start"];
    let genre = match entry["genre"].as_str()? {
        "FnValue" => Genre::Body,
        "BinaryOperator" => Genre::Binary,
        "UnaryOperator" => Genre::Unary,
        "MatchArm" => Genre::Arm,
        "MatchArmGuard" => Genre::Guard,
        "StructField" => Genre::Field,
        _ => return None,
    };
    Some(Mutant {
        package: text("package")?,
        file: text("file")?,
        name: text("name")?,
        genre,
        in_function: entry["function"].is_object(),
        line: usize::try_from(start["line"].as_u64()?).ok()?,
        column: usize::try_from(start["column"].as_u64()?).ok()?,
        replacement: text("replacement")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = r#"[{"package":"p","file":"a.rs","name":"a.rs:2:5: replace + with - in f",
        "genre":"BinaryOperator","function":{"function_name":"f"},"replacement":"-",
        "span":{"start":{"line":2,"column":5},"end":{"line":2,"column":6}}}]"#;

    #[test]
    fn a_list_says_what_changes_where() {
        let list = read(ENTRY).expect("a list");
        let [one] = &list[..] else { panic!("one mutant: {list:?}") };
        assert_eq!((one.genre, one.line, one.column), (Genre::Binary, 2, 5));
        assert_eq!((one.replacement.as_str(), one.in_function), ("-", true));
    }

    #[test]
    fn a_kind_of_mutant_that_nobody_can_plant_is_an_error_and_not_left_out() {
        assert!(read(&ENTRY.replace("BinaryOperator", "Loop")).is_err());
    }
}
