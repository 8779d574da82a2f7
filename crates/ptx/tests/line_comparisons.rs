//! Comparisons of registers that hold lines: the lanes for which they hold follow from a few numbers.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use std::fmt::Write as _;

use machine::module;
use pieces::{Launched, same};

const COMPARISONS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];

/// The steps of the two lines. Those that differ by a power of two have a short way.
const STEPS: [(i64, i64); 12] = [
    (1, 0),
    (-1, 0),
    (0, 1),
    (2, 0),
    (-4, 0),
    (0, 8),
    (3, 0),
    (5, 4),
    (-3, 5),
    (7, 7),
    (1 << 20, 0),
    (1, 1 << 16),
];

/// The values that the first line has some lanes before or behind: the ends of types among them.
const CENTRES: [u64; 6] =
    [1000, 0, 0x7fff_ffff, 0xffff_fff0, 0x7fff_ffff_ffff_fff8, 0xffff_ffff_ffff_ffff];

/// A kernel of comparisons of one type, in which each block has the first line one further.
fn text(kind: &str, centre: u64) -> String {
    let bits = &kind[1..];
    let mut body = String::new();
    for (index, (first, second)) in STEPS.into_iter().enumerate() {
        let lane = if (first - second).abs() == 1 { 31 } else { 16 };
        let behind = lane * (second - first);
        let _ = writeln!(
            body,
            "mul.lo.s{bits} %a, %t, {first}; add.s{bits} %a, %a, %b; add.s{bits} %a, %a, {behind};
             mul.lo.s{bits} %c, %t, {second}; add.s{bits} %c, %c, %m; mov.u32 %x, 0;"
        );
        for (bit, comparison) in COMPARISONS.into_iter().enumerate() {
            let _ = writeln!(
                body,
                "setp.{comparison}.{kind} %p, %a, %c; @%p add.u32 %x, %x, {};",
                1 << bit
            );
        }
        let _ = writeln!(body, "st.global.u32 [%e+{}], %x;", 4 * index);
    }
    let widen = if bits == "64" {
        "cvt.u64.u32 %b, %w; cvt.u64.u32 %t, %l"
    } else {
        "mov.u32 %b, %w; mov.u32 %t, %l"
    };
    let centre = if bits == "64" { centre } else { centre & 0xffff_ffff };
    module(&format!(
        ".visible .entry k(.param .u64 k_out) {{
         .reg .pred %p; .reg .b32 %l, %w, %n, %x; .reg .b64 %e, %o; .reg .b{bits} %a, %b, %c, %m, %t;
         ld.param.u64 %e, [k_out]; mov.u32 %l, %tid.x; mov.u32 %w, %ctaid.x;
         mad.lo.u32 %n, %w, 32, %l; mul.wide.u32 %o, %n, 64; add.u64 %e, %e, %o;
         {widen};
         mov.b{bits} %m, {centre}; add.s{bits} %b, %b, %m; sub.s{bits} %b, %b, 33;
         {body} ret; }}"
    ))
}

#[test]
fn lanes_follow_from_where_lines_meet() {
    for kind in ["u32", "s32", "u64", "s64"] {
        for centre in CENTRES {
            let text = text(kind, centre);
            let (grid, block) = (68, [32, 1]);
            same(Launched { text: &text, name: "k", grid, block, waits: false, quantum: 512 });
        }
    }
}
