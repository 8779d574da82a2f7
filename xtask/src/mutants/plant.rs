//! Planting: every mutant of a file at once, each behind a switch.
//!
//! A switch is a call of `crate::mutant::is` with the mutant's number, on a line of its own: a
//! compiler error on that line is this mutant's.
//!
//! | mutant | planted as |
//! | --- | --- |
//! | a function's value | `if is(1) { return value; }` before its first statement |
//! | `a + b` | both operands once, then `if is(1) { l - r } else { l + r }` |
//! | `a && b` | `if a != is(1) { b } else { is(1) }`, so that `b` stays lazy |
//! | `!a` | `if is(1) { v } else { !v }` |
//! | an arm that is left out | a condition of the arm, `!is(1)` |
//! | an arm's condition | `!is(1) && (is(2) \|\| condition)`, for `false` and `true` |
//! | a field that is left out | the whole struct expression without the field, or with it |

mod find;
mod sites;
#[cfg(test)]
mod tests;

use super::list::{Mutant, Number};
use super::text::{offset, render};

/// A file with its mutants.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Planted {
    pub(super) text: String,
    /// Mutants at a place that no switch can be put around.
    pub(super) left_out: Vec<Number>,
    /// Those that cannot compile: a `let` in a chain needs `&&`, a match without an unconditional
    /// `_` all of its arms.
    pub(super) unviable: Vec<Number>,
}

/// Plants the mutants of one file in its source.
pub(super) fn plant(source: &str, mutants: &[(Number, &Mutant)]) -> Result<Planted, syn::Error> {
    let file = syn::parse_file(source)?;
    let mut left_out = Vec::new();
    let mut wanted = Vec::new();
    for &(number, mutant) in mutants {
        match offset(source, mutant.line, mutant.column) {
            Some(at) if mutant.in_function => wanted.push((at, number, mutant)),
            _ => left_out.push(number),
        }
    }
    let found = find::sites(source, &file, &wanted);
    let text = render(source, &(0..source.len()), &found.sites);
    let unviable = found.unviable;
    let is_planted = |number| text.contains(&sites::switch(number)) || unviable.contains(&number);
    left_out.extend(wanted.iter().map(|&(_, number, _)| number).filter(|&n| !is_planted(n)));
    Ok(Planted { text, left_out, unviable })
}
