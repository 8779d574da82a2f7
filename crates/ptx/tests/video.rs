//! Video instructions that are refused when the module is loaded.

mod machine;

use machine::kernel;
use pagewise_ptx::module::{Module, Target};

/// The answer to a kernel with one instruction on words.
fn refusal(instruction: &str) -> Option<String> {
    let text = kernel(&format!(".reg .b32 %r<4>; {instruction}; ret;"));
    Module::load(&text, &Target { compute: (9, 0) }).err().map(|error| error.message)
}

#[test]
fn forms_with_other_results_than_the_manual_has_are_refused_and_say_so() {
    for instruction in [
        "vadd.u32.u32.u32.sat %r0, %r1, %r2",
        "vmin.s32.s32.s32.max %r0, %r1, %r2, %r3",
        "vmad.s32.s32.s32.shr7 %r0, %r1, %r2, %r3",
        "vsub.s32.s32.s32 %r0.h1, %r1, %r2, %r3",
    ] {
        let answer = refusal(instruction).expect(instruction);
        assert!(answer.contains("gives other results than PTX's manual"), "{answer}");
    }
}

#[test]
fn parts_and_lanes_that_do_not_exist_are_refused_by_name() {
    for (instruction, name) in [
        ("vadd.u32.u32.u32 %r0, %r1.b4, %r2", ".b4"),
        ("vadd.u32.u32.u32 %r0, %r1, %r2.h2", ".h2"),
        ("vadd4.u32.u32.u32 %r0.b4, %r1, %r2, %r3", ".b4"),
        ("vadd4.u32.u32.u32 %r0, %r1.b8000, %r2, %r3", ".b8000"),
        ("vadd2.u32.u32.u32 %r0, %r1.h41, %r2, %r3", ".h41"),
        ("vadd2.u32.u32.u32 %r0, %r1.b10, %r2, %r3", ".b10"),
        ("vadd2.u32.u32.u32 %r0.h, %r1, %r2, %r3", ".h"),
    ] {
        let answer = refusal(instruction).expect(instruction);
        assert!(answer.contains(&format!("`{name}`")), "{instruction}: {answer}");
    }
}

#[test]
fn only_vmad_negates_and_only_one_of_its_terms() {
    assert_eq!(refusal("vmad.s32.s32.s32 %r0, -%r1, %r2.h1, %r3"), None);
    assert_eq!(refusal("vmad.s32.s32.s32 %r0, -%r1, -%r2, -%r3"), None);
    for instruction in [
        "vmad.s32.s32.s32 %r0, -%r1, %r2, -%r3",
        "vmad.s32.s32.s32.po %r0, -%r1, %r2, %r3",
        "vadd.s32.s32.s32 %r0, -%r1, %r2",
        "vadd.s32.s32.s32.add %r0, %r1, %r2, -%r3",
        "vadd4.s32.s32.s32 %r0, -%r1, %r2, %r3",
        "add.s32 %r0, -%r1, %r2",
    ] {
        assert!(refusal(instruction).is_some(), "{instruction}");
    }
}

#[test]
fn a_third_operand_has_a_use_and_each_use_has_one() {
    for instruction in [
        "vadd.s32.s32.s32 %r0, %r1, %r2, %r3",
        "vadd.s32.s32.s32 %r0.b1, %r1, %r2",
        "vadd.s32.s32.s32.add %r0, %r1, %r2",
        "vmad.s32.s32.s32 %r0, %r1, %r2",
        "vadd4.s32.s32.s32 %r0, %r1, %r2",
        "vadd4.s32.s32.s32 %r0, %r1.b10, %r2, %r3",
        "vset4.s32.s32.lt.sat %r0, %r1, %r2, %r3",
        "vshl.u32.u32.s32.clamp %r0, %r1, %r2",
    ] {
        assert!(refusal(instruction).is_some(), "{instruction}");
    }
}
