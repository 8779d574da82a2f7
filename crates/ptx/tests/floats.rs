//! Floats in compiled pieces of kernels: zeros for subnormals, and values that are no numbers.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use machine::kernel;
use pieces::{ENDLESS, Launched, same, seen};

/// Floats of every kind. The least normal number times the last number below one is rounded up to it again.
const FLOATS: [u32; 16] = [
    0,
    1 << 31,
    0x3f80_0000,
    0xbfc0_0000,
    0x0080_0000,
    0x8080_0000,
    0x007f_ffff,
    0x8000_0001,
    0x3f7f_ffff,
    0xbf7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0001,
    0xff80_0123,
    0x2000_0000,
    0x1fff_ffff,
];

/// All threes of operands, for each instruction.
#[test]
fn floats_with_zeros_for_subnormals_and_choices_are_the_same() {
    let operations = ["", ".ftz"].map(|ftz| {
        [
            format!("add.rn{ftz}.f32 %d, %f0, %f1;"),
            format!("sub.rn{ftz}.f32 %d, %f0, %f1;"),
            format!("mul.rn{ftz}.f32 %d, %f0, %f1;"),
            format!("fma.rn{ftz}.f32 %d, %f0, %f1, %f2;"),
            format!("mul{ftz}.f32 %d, %f0, %f1; sub{ftz}.f32 %d, %f2, %d;"),
            format!("mul{ftz}.f32 %d, %f0, %f1; sub{ftz}.f32 %d, %d, %f2;"),
            format!("neg{ftz}.f32 %d, %f0;"),
            format!("abs{ftz}.f32 %d, %f0; neg.f32 %d, %d;"),
            format!("min{ftz}.f32 %d, %f0, %f1;"),
            format!("max{ftz}.f32 %d, %f0, %f1;"),
            format!("max{ftz}.f32 %d, %f0, %f1; min.f32 %d, %d, %f2; mul.rn{ftz}.f32 %d, %d, %f0;"),
            format!("setp.lt{ftz}.f32 %p, %f0, %f1; selp.f32 %d, %f2, %f0, %p;"),
            format!("setp.equ{ftz}.f32 %p, %f0, %f1; selp.f32 %d, %f2, %f1, %p;"),
            format!("mul.rn{ftz}.f32 %d, %f0, %f1; mul.rn{ftz}.f32 %d, %d, %f2; add.rn{ftz}.f32 %d, %d, %f0;"),
        ]
    });
    let operations: String = operations
        .iter()
        .flatten()
        .map(|operation| {
            format!("{operation} mov.b32 %x, %d; mul.lo.u32 %h, %h, 69069; xor.b32 %h, %h, %x;")
        })
        .collect();
    let choose = |float: &str| {
        let each = FLOATS
            .iter()
            .enumerate()
            .map(|(at, bits)| format!("setp.eq.u32 %p, %k, {at}; selp.b32 %x, {bits}, %x, %p;"));
        format!("mov.u32 %x, 0; {} mov.b32 {float}, %x;", each.collect::<String>())
    };
    let text = kernel(&format!(
        ".reg .f32 %f<3>, %d; .reg .b32 %x, %h, %k, %i; .reg .pred %p, %q;
         mov.u32 %h, %t; mov.u32 %i, 0;
         and.b32 %k, %t, 15; {}
         shr.u32 %k, %t, 4; {}
         again:
         add.u32 %k, %t, %i; and.b32 %k, %k, 15; {}
         {operations}
         add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 16;
         @%q bra again;
         st.global.b32 [%mine+65536], %h; ret;",
        choose("%f0"),
        choose("%f1"),
        choose("%f2"),
    ));
    same(Launched { text: &text, name: "k", grid: 1, block: [256, 1], waits: false, quantum: 512 });
}

#[test]
fn floats_that_are_no_numbers_are_the_same() {
    let operations: String = ["f32", "f64"]
        .iter()
        .flat_map(|kind| {
            let [a, b, c, d] = match *kind {
                "f32" => ["%f0", "%f1", "%f2", "%f3"],
                _ => ["%g0", "%g1", "%g2", "%g3"],
            };
            [
                format!("add.rn.{kind} {d}, {a}, {b};"),
                format!("sub.rn.{kind} {d}, {a}, {b};"),
                format!("mul.rn.{kind} {d}, {a}, {b};"),
                format!("fma.rn.{kind} {d}, {a}, {b}, {c};"),
                format!("mul.{kind} {d}, {a}, {b}; sub.{kind} {d}, {d}, {c};"),
                format!("mul.{kind} {d}, {a}, {b}; sub.{kind} {d}, {c}, {d};"),
                format!("neg.{kind} {d}, {a};"),
                format!("abs.{kind} {d}, {a};"),
                format!("setp.lt.{kind} %p, {a}, {b}; selp.{kind} {d}, {a}, {b}, %p;"),
                format!("setp.neu.{kind} %p, {a}, {b}; selp.{kind} {d}, {a}, {b}, %p;"),
                format!("setp.ne.{kind} %p, {a}, {b}; selp.{kind} {d}, {a}, {b}, %p;"),
                format!("setp.geu.{kind} %p, {a}, {b}; selp.{kind} {d}, {a}, {b}, %p;"),
                format!("setp.num.{kind} %p, {a}, {b}; selp.{kind} {d}, {a}, {b}, %p;"),
                // Chains: a value in their middle is only an operand, is chosen, or is stored too.
                format!("fma.rn.{kind} {d}, {a}, {b}, {c}; fma.rn.{kind} {d}, {d}, {b}, {c};"),
                format!("neg.{kind} {d}, {a}; abs.{kind} {d}, {d}; mul.rn.{kind} {d}, {d}, {b};"),
                format!(
                    "mul.rn.{kind} {d}, {a}, {b}; neg.{kind} {d}, {d}; add.{kind} {d}, {d}, {c};"
                ),
                format!(
                    "add.{kind} {d}, {a}, {b}; setp.lt.{kind} %p, {c}, {a};
                     selp.{kind} {d}, {d}, {c}, %p;"
                ),
                format!(
                    "add.{kind} {d}, {a}, {b}; st.global.{kind} [%to+32768], {d};
                     sub.{kind} {d}, {d}, {c};"
                ),
            ]
            .map(|operation| {
                format!("{operation} st.global.{kind} [%to], {d}; add.u64 %to, %to, 512;")
            })
        })
        .collect();
    // Three of seven words are no numbers, as `%x` in 32 bits and as `%z` in the upper half of 64.
    let special = "rem.u32 %w, %x, 7; setp.lt.u32 %p, %w, 3; mov.b32 %y, %x;
        and.b32 %z, %x, 0x800fffff; or.b32 %z, %z, 0x7ff00000; selp.b32 %z, %z, %x, %p;
        and.b32 %w, %x, 0x807fffff; or.b32 %w, %w, 0x7f800000; selp.b32 %x, %w, %x, %p;";
    let load = |at: u32| format!("ld.global.b32 %x, [%mine+{}]; {special}", 1024 * at);
    let text = kernel(&format!(
        ".reg .f32 %f<4>; .reg .f64 %g<4>; .reg .b32 %w, %x, %y, %z; .reg .b64 %to, %v; .reg .pred %p;
         {} mov.b32 %f0, %x; mov.b64 %v, {{%y, %z}}; mov.b64 %g0, %v;
         {} mov.b32 %f1, %x; mov.b64 %v, {{%y, %z}}; mov.b64 %g1, %v;
         {} mov.b32 %f2, %x; mov.b64 %v, {{%y, %z}}; mov.b64 %g2, %v;
         mul.wide.u32 %to, %t, 8; add.u64 %to, %to, %out; add.u64 %to, %to, 65536;
         {operations} ret;",
        load(0),
        load(1),
        load(2)
    ));
    same(Launched { text: &text, name: "k", grid: 1, block: [64, 1], waits: false, quantum: 512 });
}

#[test]
fn the_one_lane_of_a_row_that_is_no_number_is_the_canonical_one() {
    // Lane n of block n stores infinity less infinity, and each other lane 0.
    let text = kernel(
        ".reg .b32 %n; .reg .f32 %a; .reg .pred %p;
         mov.u32 %n, %laneid; setp.eq.u32 %p, %n, %b; selp.f32 %a, 0f7F800000, 0f3F800000, %p;
         sub.f32 %a, %a, %a; st.global.f32 [%mine], %a; ret;",
    );
    let launched =
        Launched { text: &text, name: "k", grid: 32, block: [32, 1], waits: false, quantum: 512 };
    same(launched);
    let rows = &seen(launched, ENDLESS, true).words[..32 * 32];
    for (at, &word) in rows.iter().enumerate() {
        assert_eq!(word, if at / 32 == at % 32 { 0x7fff_ffff } else { 0 }, "{at}");
    }
}
