//! The class of an instruction, and how many a GPU makes of it.
//!
//! The counts are rough: they follow the machine code that `ptxas` makes for compute capability 9.0,
//! and rates that were measured on an H200 beside those of additions.

use crate::code::Class;

/// The class of an opcode with its modifiers, and its weight in instructions of that class.
pub(super) fn class(opcode: &str) -> (Class, u8) {
    let mut parts = opcode.split('.');
    let name = parts.next().unwrap_or_default();
    let has = |modifier: &str| opcode.split('.').any(|part| part == modifier);
    match name {
        // Registers are renamed, addresses stay as they are, and parameters are constants.
        "mov" | "cvta" | "isspacep" => (Class::Integer, 0),
        "ld" | "ldu" | "st" | "atom" | "red" => match () {
            () if has("param") || has("const") => (Class::Integer, 0),
            () if has("shared") || has("shared::cta") => (Class::Shared, 1),
            () => (Class::Memory, 1),
        },
        "cp" => (Class::Memory, 1),
        "shfl" | "vote" | "match" | "redux" | "ldmatrix" | "stmatrix" | "mbarrier" => {
            (Class::Shared, 1)
        }
        "mma" | "wmma" => (Class::Tensor, 1),
        "ex2" | "lg2" | "sin" | "cos" | "tanh" | "rcp" | "rsqrt" | "sqrt" | "div" | "rem" => {
            slow(name, opcode)
        }
        "bar" | "barrier" => (Class::Control, 8),
        "bra" | "brx" | "call" | "ret" | "exit" | "membar" | "fence" => (Class::Control, 1),
        "popc" | "clz" | "brev" | "bfind" => (Class::Integer, 8),
        "cvt" | "shl" | "shr" | "shf" => (Class::Integer, 2),
        _ => arithmetic(name, opcode),
    }
}

fn is_of(opcode: &str, types: &[&str]) -> bool {
    opcode.split('.').any(|part| types.contains(&part))
}

const SINGLE: [&str; 5] = ["f32", "f16", "f16x2", "bf16", "bf16x2"];

fn arithmetic(name: &str, opcode: &str) -> (Class, u8) {
    match () {
        () if is_of(opcode, &["f64"]) => (Class::Fp64, 1),
        () if is_of(opcode, &SINGLE) => (Class::Fp32, 1),
        // Multipliers are half as many as adders; 64 bits take both halves.
        () if matches!(name, "mul" | "mad" | "madc" | "mul24" | "mad24") => {
            (Class::Integer, if is_of(opcode, &["u64", "s64", "b64"]) { 4 } else { 2 })
        }
        () if is_of(opcode, &["u64", "s64", "b64"]) => (Class::Integer, 2),
        () => (Class::Integer, 1),
    }
}

/// Functions that have no unit of their own, or one that is slow.
fn slow(name: &str, opcode: &str) -> (Class, u8) {
    let approximate = opcode.split('.').any(|part| part == "approx");
    match () {
        () if is_of(opcode, &["f64"]) => (Class::Fp64, 12),
        () if is_of(opcode, &SINGLE)
            && (approximate || !matches!(name, "div" | "sqrt" | "rcp")) =>
        {
            (Class::Special, 1)
        }
        () if is_of(opcode, &SINGLE) => (Class::Fp32, 10),
        () if is_of(opcode, &["u64", "s64"]) => (Class::Integer, 80),
        () => (Class::Integer, 16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_the_class_of_the_unit_that_carries_them_out() {
        for (opcode, expected) in [
            ("fma.rn.f32", (Class::Fp32, 1)),
            ("add.f64", (Class::Fp64, 1)),
            ("mad.lo.s32", (Class::Integer, 2)),
            ("add.s32", (Class::Integer, 1)),
            ("ex2.approx.ftz.f32", (Class::Special, 1)),
            ("ld.global.f32", (Class::Memory, 1)),
            ("ld.param.u64", (Class::Integer, 0)),
            ("st.shared.u32", (Class::Shared, 1)),
            ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", (Class::Tensor, 1)),
            ("bra.uni", (Class::Control, 1)),
        ] {
            assert_eq!(class(opcode), expected, "{opcode}");
        }
    }
}
