//! Long runs of instructions without a jump, which compiled pieces execute in a loop over groups of lanes: they
//! do as the interpreter does.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use machine::kernel;
use pieces::{LIMITED, Launched, compiled, seen};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Instructions of words, doubles, floats of both widths, predicates, and lanes of others.
const INSTRUCTIONS: [&str; 36] = [
    "add.u32 %x, %x, 3",
    "mul.lo.u32 %y, %x, 69069",
    "xor.b32 %x, %x, %y",
    "mov.u32 %y, %l",
    "mov.u32 %z, %i",
    "mad.lo.u32 %z, %l, 12, %z",
    "add.u32 %x, %x, %z",
    "shl.b32 %z, %tx, 2",
    "add.u32 %z, %z, %ty",
    "mov.u32 %y, %laneid",
    "mov.u32 %s, %lanemask_le",
    "and.b32 %x, %x, %s",
    "cvt.u64.u32 %e, %x",
    "add.u64 %e, %e, %d",
    "shr.u64 %e, %e, 3",
    "mul.wide.u32 %e, %x, %y",
    "cvt.u32.u64 %y, %e",
    "add.f32 %f, %f, %g",
    "fma.rn.f32 %g, %f, %g, %f",
    "add.f64 %a, %a, %b",
    "sub.f64 %b, %a, %b",
    "fma.rn.f64 %a, %b, %a, %b",
    "mul.f64 %b, %b, %a",
    "div.rn.f64 %a, %b, %a",
    "sqrt.rn.f64 %b, %a",
    "neg.f64 %a, %a",
    "abs.f64 %b, %b",
    "mov.b64 %a, %e",
    "setp.lt.u32 %p, %x, %y",
    "setp.gt.f64 %q, %a, %b",
    "setp.lt.u32 %p, %l, %i",
    "and.pred %p, %p, %q",
    "@%p add.u32 %y, %y, %x",
    "@!%q fma.rn.f64 %b, %a, %b, %a",
    "selp.b64 %e, %e, %d, %q",
    "shfl.sync.bfly.b32 %x, %y, 9, 31, -1",
];

/// Accesses to rows of words and doubles, and to places apart.
const ACCESSES: [&str; 8] = [
    "ld.global.b32 %x, [%w]",
    "ld.global.b64 %e, [%d]",
    "ld.global.f64 %a, [%d+256]",
    "st.global.b32 [%w+128], %y",
    "st.global.b64 [%d], %e",
    "st.global.f64 [%d+256], %b",
    "@%p st.global.b32 [%w], %x",
    "st.global.b32 [%w+64], %z",
];

/// A kernel of long runs in a loop. Half of the seeds let some lanes alone execute one.
fn text(seed: u64) -> String {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut run = || {
        let mut run = String::new();
        for at in 0..60 {
            let list = if at % 6 == 5 { &ACCESSES[..] } else { &INSTRUCTIONS[..] };
            run += &format!("{};\n", list.choose(random).unwrap());
        }
        run
    };
    let (first, second) = (run(), run());
    // A shuffle wants the lanes that it names.
    let second = second.replace("shfl.sync.bfly.b32 %x, %y, 9, 31, -1", "not.b32 %x, %y");
    let some = if random.random() { "setp.lt.u32 %o, %l, 21;" } else { "setp.lt.u32 %o, %l, 32;" };
    kernel(&format!(
        ".reg .b32 %l, %i, %x, %y, %z, %s, %tx, %ty; .reg .f32 %f, %g; .reg .f64 %a, %b;
         .reg .pred %p, %q, %o; .reg .b64 %c, %d, %e, %w;
         mov.u32 %l, %laneid; mov.u32 %tx, %tid.x; mov.u32 %ty, %tid.y; mov.u32 %i, 0;
         mad.lo.u32 %t, %ty, %ntid.x, %tx; mov.u32 %x, %t; mov.u32 %y, 5; mov.u32 %z, 1;
         cvt.rn.f32.u32 %f, %l; mov.f32 %g, 0f40A00000; mov.u64 %e, 1;
         cvt.rn.f64.u32 %a, %t; mov.f64 %b, 0d3FF8000000000000; setp.eq.u32 %q, %l, 3;
         mul.wide.u32 %off, %t, 4; add.u64 %w, %out, %off;
         mul.wide.u32 %off, %t, 8; add.u64 %d, %out, %off; add.u64 %d, %d, 8192;
         {some}
         again:
         {first}
         @!%o bra behind;
         {second}
         behind:
         add.u64 %w, %w, 512; add.u64 %d, %d, 512; add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 9;
         @%p bra again;
         mul.wide.u32 %off, %t, 48; add.u64 %mine, %out, %off;
         st.global.b32 [%mine+65536], %x; st.global.b32 [%mine+65540], %y;
         st.global.f32 [%mine+65544], %f; st.global.f32 [%mine+65548], %g;
         st.global.f64 [%mine+65552], %a; st.global.f64 [%mine+65560], %b;
         st.global.b64 [%mine+65568], %e; st.global.b32 [%mine+65576], %z;
         ret;"
    ))
}

/// Warps of one row of threads, of two, and not full, with pages that are there or not.
#[test]
fn long_runs_are_the_same() {
    for seed in 0..24 {
        let text = text(seed);
        let block = [[64, 1], [16, 4], [45, 1]][seed as usize % 3];
        let waits = seed % 4 == 3;
        let launched = Launched { text: &text, name: "k", grid: 1, block, waits, quantum: 2048 };
        let expected = seen(launched, LIMITED, false);
        assert!(expected.report.is_none(), "{:?}", expected.report);
        for after in [0, 16] {
            assert!(compiled(launched, LIMITED, after) == expected, "seed {seed}:\n{text}");
        }
    }
}
