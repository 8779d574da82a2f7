//! The arithmetic of this crate against the recording of an H200, bit by bit.
//!
//! `conformance/record.py` made it: one kernel for each instruction form, with edge cases and random
//! operands. Forms that are no arithmetic of single values belong to the tests of the executor.

mod approximations;
mod conversions;
mod executor;
mod floats;
mod halves;
mod instruction;
mod integers;
#[path = "../machine/mod.rs"]
mod machine;
mod matrices;
mod operands;
mod recording;
mod tangents;

use instruction::{Function, Instruction};

/// The function of this crate for a form, if it is arithmetic.
fn function(body: &str) -> Option<Function> {
    let instruction = Instruction::parse(body)?;
    integers::function(&instruction)
        .or_else(|| floats::function(&instruction))
        .or_else(|| halves::function(&instruction))
        .or_else(|| conversions::function(&instruction))
        .or_else(|| approximations::function(&instruction))
}

/// Forms of the recording that are arithmetic: none may drop out of the comparison unseen.
const FORMS: usize = 1450;

#[test]
fn every_form_gives_the_bits_of_an_h200() {
    let (mut compared, mut wrong) = (0, Vec::new());
    for form in recording::forms() {
        let Some(function) = function(&form.body) else {
            continue;
        };
        compared += 1;
        let both = form.operands.iter().zip(&form.results);
        let differ: Vec<_> = both
            .map(|(operands, expected)| (operands, expected, function(operands)))
            .filter(|(_, expected, got)| *expected != got)
            .collect();
        if let Some((operands, expected, got)) = differ.first() {
            wrong.push(format!(
                "{} ({} of {}): {operands:x?} gives {expected:x?}, not {got:x?}",
                form.body,
                differ.len(),
                form.operands.len(),
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} forms differ:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(compared, FORMS);
}
