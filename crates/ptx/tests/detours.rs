//! Branches around a few instructions that only some lanes take: compiled pieces do as the interpreter does.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use machine::kernel;
use pieces::{LIMITED, Launched, compiled, same_after, seen};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Conditions that choose lanes: some, all or none, by the lane, by the round, and by values.
const CONDITIONS: [&str; 8] = [
    "setp.lt.u32 %q, %l, 7",
    "setp.lt.u32 %q, %l, %i",
    "setp.gt.u32 %q, %i, 2",
    "and.b32 %s, %l, %i; setp.ne.u32 %q, %s, 0",
    "and.b32 %s, %x, 64; setp.eq.u32 %q, %s, 0",
    "setp.gt.s32 %q, %y, %x",
    "setp.lt.f32 %q, %f, %g",
    "setp.eq.u32 %q, %l, 31",
];

/// Instructions of registers, of memory within bounds, and one that only the interpreter executes.
const INSTRUCTIONS: [&str; 44] = [
    "add.u32 %x, %x, 3",
    "mov.u32 %y, %l",
    "mov.u32 %y, 7",
    "add.u32 %x, %y, %i",
    "mul.lo.u32 %y, %x, 69069",
    "xor.b32 %x, %x, %y",
    "add.f32 %f, %f, %g",
    "fma.rn.f32 %g, %f, %g, %f",
    "mov.u64 %e, %d",
    "add.u64 %e, %e, 12",
    "cvt.u64.u32 %e, %x",
    "setp.lt.u32 %o, %x, %y",
    "@%o add.u32 %y, %y, %x",
    "@!%o mov.u32 %x, %i",
    "@%o st.global.b32 [%d], %y",
    "@!%o ld.global.b32 %x, [%d+128]",
    "selp.u32 %x, %y, %x, %o",
    "ld.global.b32 %x, [%d]",
    "ld.global.b32 %y, [%d+64]",
    "st.global.b32 [%d], %x",
    "st.shared.b32 [%n], %y",
    "ld.shared.b32 %x, [%n]",
    "ld.shared.b32 %y, [%m]",
    "st.shared.b32 [%m], %x",
    "ld.global.v2.b32 {%x, %y}, [%c]",
    "st.global.v2.b32 [%c], {%y, %x}",
    "ld.global.u8 %x, [%d+3]",
    "rem.u32 %y, %y, 13",
    "mul.hi.u32 %x, %x, %y",
    "sub.u32 %y, %x, %l",
    "mov.u32 %z, %l",
    "mov.u32 %z, 9",
    // Mostly, nothing behind reads what these leave in %u, %v, %w, %h, %a and %k.
    "add.u32 %u, %x, %l; xor.b32 %y, %u, %i",
    "mul.lo.u32 %u, %l, 3; add.u32 %x, %u, %x",
    "mov.u32 %u, 11; sub.u32 %y, %u, %y",
    "ld.global.b32 %u, [%d]; ld.shared.b32 %v, [%n]; add.u32 %x, %u, %v",
    "ld.shared.b32 %u, [%n+128]; max.u32 %y, %u, %y",
    "add.u64 %a, %d, 64; ld.global.b32 %v, [%a]; xor.b32 %x, %x, %v",
    "mul.f32 %h, %f, %g; add.f32 %g, %h, %f",
    "setp.gt.u32 %k, %x, %y; selp.u32 %y, %x, %y, %k",
    "cvt.u64.u32 %w, %x; add.u64 %e, %e, %w",
    "mov.u32 %u, 2; @%o ld.global.b32 %u, [%d]; add.u32 %x, %x, %u",
    "mov.u32 %u, %x",
    "add.u32 %y, %y, %v",
];

/// Up to five instructions.
fn some(random: &mut StdRng) -> String {
    let count = random.random_range(1..=4);
    (0..count).map(|_| format!("{}; ", INSTRUCTIONS.choose(random).unwrap())).collect()
}

/// A kernel with branches in a loop, one behind the other.
fn text(seed: u64) -> String {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut body = String::new();
    for at in 0..5 {
        let condition = CONDITIONS.choose(random).unwrap();
        let negated = if random.random() { "!" } else { "" };
        let (before, first, second) = (some(random), some(random), some(random));
        let legs = match random.random_ratio(1, 3) {
            true => format!("{first} else{at}:"),
            false => format!("{first} bra end{at}; else{at}: {second} end{at}:"),
        };
        body += &format!("{before} {condition}; @{negated}%q bra else{at};\n {legs}\n");
    }
    kernel(&format!(
        ".reg .b32 %l, %i, %x, %y, %z, %s, %n, %m, %u, %v; .reg .f32 %f, %g, %h;
         .reg .pred %p, %q, %o, %k; .reg .b64 %c, %d, %e, %a, %w; .shared .align 8 .b8 room[512];
         and.b32 %l, %tid.x, 31; mov.u32 %i, 0; mov.u32 %x, %t; mov.u32 %y, 5; mov.u32 %z, 1;
         cvt.rn.f32.u32 %f, %l; mov.f32 %g, 0f40A00000; mov.u64 %e, 1; mov.u32 %v, 6; setp.eq.u32 %o, %l, 3;
         mul.wide.u32 %off, %l, 4; add.u64 %d, %out, %off; add.u64 %d, %d, 2048;
         xor.b32 %s, %l, 5; mul.wide.u32 %a, %s, 8; add.u64 %c, %out, %a; add.u64 %c, %c, 4096;
         mov.u32 %n, room; shl.b32 %s, %l, 2; add.u32 %n, %n, %s;
         mov.u32 %m, room; xor.b32 %s, %s, 20; add.u32 %m, %m, %s;
         again:
         {body}
         add.u64 %d, %d, 4100; add.u64 %c, %c, 4104; add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 7;
         @%p bra again;
         mul.wide.u32 %off, %t, 32; add.u64 %mine, %out, %off;
         st.global.b32 [%mine+65536], %x; st.global.b32 [%mine+65540], %y;
         st.global.f32 [%mine+65544], %f; st.global.f32 [%mine+65548], %g;
         st.global.b64 [%mine+65552], %e; selp.u32 %s, 1, 0, %o; st.global.b32 [%mine+65560], %s;
         st.global.b32 [%mine+65564], %z;
         ret;"
    ))
}

/// The other branch is behind the piece's first instructions, and reads what only it reads.
#[test]
fn the_second_leg_sees_registers_as_they_are() {
    let text = kernel(
        ".reg .b32 %l, %i, %v; .reg .pred %p, %q, %r; .reg .b64 %c; .reg .f32 %f;
         mov.u32 %l, %laneid; cvt.rn.f32.u32 %f, %l; mov.u32 %i, 0; mov.u64 %c, %out;
         again:
         setp.lt.f32 %q, %f, 0f40A00000; setp.gt.u32 %r, %l, 30;
         @!%q bra else;
         mov.u32 %v, 3;
         bra end;
         else:
         st.global.b32 [%c], %i;
         end:
         @%r bra next;
         next:
         ld.global.b32 %v, [%c];
         add.u64 %c, %c, 4104; add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 7;
         @%p bra again;
         st.global.b32 [%mine+65536], %v;
         ret;",
    );
    for waits in [false, true] {
        let block = [32, 1];
        let launched = Launched { text: &text, name: "k", grid: 1, block, waits, quantum: 512 };
        assert!(compiled(launched, LIMITED, 8) == seen(launched, LIMITED, false), "waits: {waits}");
    }
}

/// A kernel with a loop, in which `%l` is the lane and `%i` the round.
fn looped(registers: &str, body: &str) -> String {
    kernel(&format!(
        ".reg .b32 %l, %i, %v, {registers}; .reg .pred %p, %q, %r; .reg .b64 %c;
         mov.u32 %l, %laneid; mov.u32 %i, 0; mov.u32 %v, 1; mov.u64 %c, %out;
         again:
         {body}
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 40;
         @%p bra again;
         st.global.b32 [%mine], %v;
         ret;"
    ))
}

#[track_caller]
fn is_the_same(text: &str) {
    let launched =
        Launched { text, name: "k", grid: 1, block: [32, 1], waits: false, quantum: 512 };
    for after in [0, 2, 8] {
        same_after(launched, after);
    }
}

/// One leg writes a register that nothing reads behind the detour. The other leg reads its old value.
#[test]
fn a_leg_keeps_what_the_other_one_reads() {
    is_the_same(&looped(
        "%u",
        "mul.lo.u32 %u, %l, 3; xor.b32 %u, %u, %i; setp.lt.u32 %q, %l, %i;
         @%q bra else;
         add.u32 %u, %v, 7; st.global.b32 [%mine], %v; xor.b32 %v, %v, %u;
         bra end;
         else:
         mad.lo.u32 %v, %v, 5, %u;
         end:",
    ));
}

/// Some lanes make a detour while others wait behind more code, which writes what the detour wrote.
#[test]
fn a_detour_of_a_part_keeps_what_the_other_lanes_read() {
    let long = "add.u32 %v, %v, %l; xor.b32 %v, %v, %i;".repeat(10);
    is_the_same(&looped(
        "%u, %w",
        &format!(
            "mul.lo.u32 %u, %l, 3; mov.u32 %w, 9; setp.gt.u32 %q, %l, 20; setp.lt.u32 %r, %l, %i;
             @%q bra meet;
             {long}
             @%r bra inner;
             add.u32 %u, %v, 7; st.global.b32 [%mine], %v; xor.b32 %w, %w, %u;
             inner:
             {long}
             add.u32 %u, %v, %w;
             meet:
             xor.b32 %v, %v, %u;"
        ),
    ));
}

/// Pages that are not there, turns of several lengths, and warps in two rows of threads or not full.
#[test]
fn random_detours_are_the_same() {
    for seed in (0..24).chain([151]) {
        let text = text(seed);
        let block = [[64, 1], [32, 1], [16, 4], [45, 1]][seed as usize % 4];
        let (waits, quantum) = (seed % 3 == 1, [512, 512, 64, 9][seed as usize / 4 % 4]);
        let launched = Launched { text: &text, name: "k", grid: 2, block, waits, quantum };
        let interpreted = seen(launched, LIMITED, false);
        assert_eq!(interpreted.report, None, "{seed}");
        for after in [0, 8] {
            assert!(compiled(launched, LIMITED, after) == interpreted, "{seed}, {after}: {text}");
        }
    }
}
