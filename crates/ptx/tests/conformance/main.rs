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
const FORMS: usize = 1444;

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

#[test]
fn tanh_is_within_its_documented_bound_of_an_h200() {
    let form = recording::forms().into_iter().find(|form| form.body.starts_with("tanh.approx.f32"));
    let form = form.expect("the recording has it");
    let mut equal = 0;
    for (operands, expected) in form.operands.iter().zip(&form.results) {
        let got = f32::from_bits(pagewise_ptx::math::tangent::tangent(operands[0] as u32));
        let expected = f32::from_bits(expected[0] as u32);
        equal += u32::from(got.to_bits() == expected.to_bits());
        let near = (got - expected).abs() <= 8e-6 || got.is_nan() && expected.is_nan();
        assert!(near, "tanh of {:#x}: {got} and {expected}", operands[0]);
    }
    assert_eq!(equal, 205, "of {} operands", form.operands.len());
}

#[test]
fn rsqrt_of_doubles_is_within_its_documented_bound_of_an_h200() {
    let is = |body: &str| body.starts_with("rsqrt.approx.f64");
    let form = recording::forms().into_iter().find(|form| is(&form.body));
    let form = form.expect("the recording has it");
    let mut equal = 0;
    for (operands, expected) in form.operands.iter().zip(&form.results) {
        let got = pagewise_ptx::math::approximate::reciprocal_root_f64::<false>(operands[0]);
        let far = got.abs_diff(expected[0]);
        equal += u32::from(far == 0);
        assert!(far <= 1, "rsqrt of {:#x}: {got:#x} and {:#x}", operands[0], expected[0]);
    }
    assert_eq!(equal, 247, "of {} operands", form.operands.len());
}
