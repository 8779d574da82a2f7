//! Integers in compiled pieces: quotients of lines, which are lines while all lanes have the same one, and
//! integers of fewer bits than their registers.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use machine::module;
use pieces::{Launched, same};

/// A kernel that mixes the values of `%x` after each operation. `%b` is the block's number, `%l` the thread in
/// it, and `%k` counts four rounds.
fn text(registers: &str, rounds: &str, operations: &[String]) -> String {
    let mixed: String = operations
        .iter()
        .map(|operation| format!("{operation} mul.lo.u32 %h, %h, 69069; xor.b32 %h, %h, %x;\n"))
        .collect();
    module(&format!(
        ".visible .entry k(.param .u64 k_out) {{
         .reg .pred %p, %q, %r; .reg .b32 %l, %w, %b, %n, %x, %y, %h, %k; .reg .b64 %e, %o, %z; {registers}
         ld.param.u64 %e, [k_out]; mov.u32 %l, %tid.x; mov.u32 %w, %ntid.x; mov.u32 %b, %ctaid.x;
         mov.u32 %n, %tid.y; mad.lo.u32 %n, %n, %w, %l; mad.lo.u32 %n, %b, 64, %n;
         mul.wide.u32 %o, %n, 4; add.u64 %e, %e, %o; mov.u32 %h, %n; mov.u32 %k, 0;
         again: {rounds} {mixed}
         add.u32 %k, %k, 1; setp.lt.u32 %r, %k, 4; @%r bra again;
         st.global.u32 [%e], %h; ret; }}"
    ))
}

fn same_in_all_blocks(text: &str) {
    for block in [[64, 1], [16, 4], [8, 8], [40, 1]] {
        same(Launched { text, name: "k", grid: 24, block, waits: false, quantum: 512 });
    }
}

/// The first lanes of dividends: before or behind multiples, and the ends of both types.
const CENTRES: [u32; 3] = [100, 0x7fff_ffe0, 0xffff_ffd0];

#[test]
fn quotients_and_upper_halves_of_products_of_lines_are_the_same() {
    let cases = ["u32", "s32"].into_iter().flat_map(|kind| {
        CENTRES.into_iter().flat_map(move |centre| [1, -3].map(|step| (kind, centre, step)))
    });
    for (kind, centre, step) in cases {
        let of = |divisor: &str| {
            [
                format!("div.{kind} %x, %a, {divisor};"),
                format!("rem.{kind} %x, %a, {divisor};"),
                format!("div.{kind} %x, {divisor}, %a;"),
                format!("mul.hi.{kind} %x, %a, {divisor};"),
                format!("@%q mul.hi.{kind} %x, {divisor}, %a;"),
                format!("@%q div.{kind} %x, %a, {divisor};"),
                format!("@!%q rem.{kind} %x, %a, {divisor};"),
            ]
        };
        // Constants, numbers that all lanes share, and one of each lane.
        let divisors = ["32", "-1", "%u", "%l"];
        let operations: Vec<String> = divisors.iter().flat_map(|divisor| of(divisor)).collect();
        let rounds = format!(
            "mad.lo.u32 %a, %l, {step}, {centre}; add.u32 %a, %a, %k; add.u32 %a, %a, %b;
             and.b32 %x, %l, 5; setp.eq.u32 %q, %x, 1; mul.lo.u32 %u, %b, 16;"
        );
        same_in_all_blocks(&text(".reg .b32 %a, %u;", &rounds, &operations));
    }
}

#[test]
fn integers_of_16_bits_are_the_same() {
    let of = |a: &str, b: &str| {
        let two: Vec<String> = [
            "add.s16",
            "sub.u16",
            "mul.lo.u16",
            "mul.lo.s16",
            "mul.hi.u16",
            "mul.hi.s16",
            "min.s16",
            "min.u16",
            "max.s16",
            "max.u16",
            "and.b16",
            "or.b16",
            "xor.b16",
            "div.s16",
            "div.u16",
            "rem.s16",
            "rem.u16",
        ]
        .iter()
        .map(|name| format!("{name} %c, {a}, {b}; cvt.u32.u16 %x, %c;"))
        .collect();
        let one = ["neg.s16", "abs.s16", "not.b16", "mov.b16"]
            .map(|name| format!("{name} %c, {a}; cvt.s32.s16 %x, %c;"));
        let shifts = ["shl.b16", "shr.u16", "shr.s16"]
            .map(|name| format!("{name} %c, {a}, 3; cvt.u32.u16 %x, %c;"));
        let compared = ["eq.b16", "ne.s16", "lt.s16", "lt.u16", "ge.s16", "hi.u16"].map(|name| {
            format!("setp.{name} %p, {a}, {b}; selp.b16 %c, {b}, {a}, %p; cvt.u32.u16 %x, %c;")
        });
        let others = [
            format!("mul.wide.u16 %x, {a}, {b};"),
            format!("mul.wide.s16 %x, {a}, {b};"),
            format!(
                "cvt.rn.f32.s16 %g, {a}; mov.b32 %x, %g; cvt.rn.f64.u16 %i, {b}; mov.b64 %z, %i; shr.u64 %z, %z, 40; cvt.u32.u64 %y, %z; xor.b32 %x, %x, %y;"
            ),
            format!("mad.lo.s16 %c, {a}, {b}, {a}; cvt.u32.u16 %x, %c;"),
            format!("mov.b32 %x, {{{a}, {b}}};"),
            format!("mov.b32 %y, {{{a}, {b}}}; mov.b32 {{%c, %d}}, %y; cvt.s32.s16 %x, %d;"),
            format!("cvt.u8.u16 %c, {a}; cvt.u32.u16 %x, %c;"),
            format!("cvt.s8.u16 %c, {a}; cvt.s16.s8 %c, %c; cvt.u32.u16 %x, %c;"),
            format!(
                "cvt.s64.s16 %z, {a}; shr.s64 %z, %z, 9; cvt.u32.u64 %x, %z; cvt.u16.u64 %c, %z;"
            ),
            format!("@%q add.s16 %c, {a}, {b}; cvt.u32.u16 %x, %c;"),
            format!("@!%q mov.b16 %c, {a}; cvt.u32.u16 %x, %c;"),
        ];
        [&two[..], &one, &shifts, &compared, &others].concat()
    };
    // Numbers of each lane, on lines, and of all lanes.
    let pairs =
        [("%a0", "%a1"), ("%a0", "%s"), ("%s", "%a1"), ("%s", "%m"), ("%f", "%s"), ("%f", "7")];
    let operations: Vec<String> = pairs.iter().flat_map(|(a, b)| of(a, b)).collect();
    let rounds = "mul.lo.u32 %x, %n, 40503; xor.b32 %x, %x, %k; cvt.u16.u32 %a0, %x;
        shr.u32 %x, %x, 5; cvt.u16.u32 %a1, %x; mul.lo.u32 %x, %b, 24593; cvt.u16.u32 %s, %x;
        add.u32 %x, %b, %k; cvt.u16.u32 %m, %x; cvt.u16.u32 %f, %l; and.b32 %x, %l, 3; setp.eq.u32 %q, %x, 1;";
    same_in_all_blocks(&text(
        ".reg .b16 %a<2>, %s, %m, %f, %c, %d; .reg .f32 %g; .reg .f64 %i;",
        rounds,
        &operations,
    ));
}

#[test]
fn signs_and_magnitudes_are_the_same() {
    let operations: Vec<String> = ["32", "64"]
        .iter()
        .flat_map(|bits| {
            ["neg", "abs"].map(|name| match *bits {
                "32" => format!("{name}.s32 %x, %a; @%q {name}.s32 %x, %u; add.u32 %x, %x, %k;"),
                _ => format!(
                    "cvt.s64.s32 %z, %a; shl.b64 %z, %z, 31; {name}.s64 %z, %z; shr.s64 %o, %z, 29;
                     cvt.u32.u64 %x, %o; cvt.s64.s32 %z, %u; {name}.s64 %z, %z; cvt.u32.u64 %y, %z;
                     xor.b32 %x, %x, %y;"
                ),
            })
        })
        .collect();
    let rounds =
        "mul.lo.u32 %a, %l, %k; sub.u32 %a, %a, 7; mul.lo.u32 %u, %b, 0x8000000; and.b32 %x, %l, 3;
        setp.eq.u32 %q, %x, 1;";
    same_in_all_blocks(&text(".reg .b32 %a, %u;", rounds, &operations));
}
