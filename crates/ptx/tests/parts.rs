//! Parts of warps, and lanes that a predicate chooses: compiled pieces do as the interpreter does.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use machine::{kernel, module};
use pieces::{LIMITED, Launched, same, seen};

/// The types of accesses: suffix, registers, and bytes of a lane.
const TYPES: [(&str, &str, &str); 7] = [
    (".b32", "%w0", "4"),
    (".b64", "%d0", "8"),
    (".u8", "%w0", "1"),
    (".s8", "%w0", "1"),
    (".u16", "%w0", "2"),
    (".v2.b32", "{%w0, %w1}", "8"),
    (".v2.b64", "{%d0, %d1}", "16"),
];

/// The index that a lane accesses, from its lane `%l`.
const PATTERNS: [&str; 4] = [
    "mov.u32 %at, %l",
    "mov.u32 %at, 9",
    "xor.b32 %at, %l, 13",
    "shr.u32 %at, %l, 2; setp.eq.u32 %p, %l, 31; @%p mov.u32 %at, 60",
];

/// Some lanes of a warp.
const SOME: [&str; 4] = [
    "setp.lt.u32 %q, %l, 7",
    "setp.gt.u32 %q, %l, 20",
    "and.b32 %x, %l, 4; setp.ne.u32 %q, %x, 0",
    "setp.gt.u32 %q, %l, 50",
];

/// A kernel of which some lanes load and store in a loop, by the way that `body` gives them.
fn accesses((suffix, registers, bytes): (&str, &str, &str), [pattern, some]: [&str; 2]) -> String {
    let body = |guard: &str| {
        format!(
            "{guard}ld.global{suffix} {registers}, [%from];
             {guard}st.shared{suffix} [%near], {registers};
             {guard}ld.shared{suffix} {registers}, [%near];
             {guard}add.u32 %w2, %w2, %w0;
             {guard}st.global{suffix} [%to], {registers};
             {guard}ld{suffix} {registers}, [%to+{bytes}];
             {guard}mul.lo.u32 %w3, %w2, 69069;
             {guard}xor.b32 %w2, %w3, %w0;"
        )
    };
    let (guarded, jumped) = (body("@%q "), body(""));
    module(&format!(
        ".visible .entry k(.param .u64 k_in, .param .u64 k_out) {{
         .reg .b32 %t, %b, %n, %l, %at, %x, %near, %w<4>, %i;
         .reg .b64 %in, %out, %from, %to, %own, %far, %d<2>; .reg .pred %p, %q;
         .shared .align 16 .b8 room[2048];
         ld.param.u64 %in, [k_in]; ld.param.u64 %out, [k_out];
         mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x;
         mad.lo.u32 %b, %b, %n, %t;
         mad.wide.u32 %own, %b, 64, %out;
         and.b32 %l, %t, 31;
         mov.u32 %i, 0; mov.u32 %w0, 5; mov.u32 %w1, %t; mov.u64 %d0, 7; mov.u64 %d1, %own;
         mov.u32 %w2, %b; mov.u32 %w3, 0;
         again:
         {pattern}; {some};
         mul.wide.u32 %far, %at, {bytes};
         add.u64 %from, %in, %far; add.u64 %to, %from, 16384;
         mul.lo.u32 %near, %at, {bytes};
         mov.u32 %x, room; add.u32 %near, %near, %x;
         {guarded}
         add.u64 %in, %in, 512;
         @!%q bra others;
         {jumped}
         bra meet;
         others:
         add.u32 %w2, %w2, %l; mul.lo.u32 %w2, %w2, 5; add.u64 %d0, %d0, %own;
         xor.b32 %w2, %w2, %i; add.u32 %w1, %w1, %w2; sub.u32 %w3, %w1, %w2;
         and.b32 %w3, %w3, 4095; add.u32 %w2, %w2, %w3; max.u32 %w1, %w1, 3;
         meet:
         bar.warp.sync 0xffffffff;
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 3;
         @%p bra again;
         st.global.b32 [%own+32768], %w0; st.global.b32 [%own+32772], %w1;
         st.global.b32 [%own+32776], %w2; st.global.b32 [%own+32780], %w3;
         st.global.b64 [%own+32784], %d0; st.global.b64 [%own+32792], %d1;
         ret; }}"
    ))
}

#[test]
fn accesses_of_some_lanes_are_the_same() {
    for (at, kind) in TYPES.iter().enumerate() {
        for (turn, pattern) in PATTERNS.iter().enumerate() {
            let text = accesses(*kind, [pattern, SOME[(at + turn) % SOME.len()]]);
            let (waits, block) = (at % 2 == 0, [[64, 1], [21, 1]][turn % 2]);
            same(Launched { text: &text, name: "k", grid: 2, block, waits, quantum: 512 });
        }
    }
}

/// A kernel of which some lanes access by an offset from the right place, in the third round of four.
fn elsewhere(access: &str, way: &str, offset: &str, lanes: &str) -> String {
    let (guard, jump) = if way == "guard" { ("@%q ", "") } else { ("", "@!%q bra over;") };
    kernel(&format!(
        ".reg .b64 %far, %a, %b; .reg .b32 %v, %w, %i, %s, %n; .reg .pred %p, %q, %r;
         .shared .align 4 .b8 room[4096];
         mov.u32 %i, 0; mov.u32 %v, 1; mov.u32 %w, 2;
         again:
         mov.u32 %s, %tid.x;
         setp.gt.u32 %q, %s, 6; setp.{lanes}; setp.eq.and.u32 %p, %i, 2, %r;
         mul.lo.u32 %s, %s, 4; @%p add.u32 %s, %s, {offset};
         mov.u32 %n, room; add.u32 %n, %n, %s;
         cvt.u64.u32 %far, %s; add.u64 %a, %out, %far;
         cvta.shared.u64 %b, room; add.u64 %b, %b, %far;
         {jump}
         add.u32 %w, %w, %i; mul.lo.u32 %w, %w, 3; xor.b32 %w, %w, %s; add.u32 %w, %w, 7;
         {guard}{access};
         add.u32 %w, %w, %v; mul.lo.u32 %w, %w, 5; xor.b32 %w, %w, 99; add.u32 %w, %w, %v;
         over:
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 4;
         @%p bra again;
         st.global.b32 [%mine+65536], %w;
         ret;"
    ))
}

/// A wild address of a lane that makes no access does not end the kernel. A wild access is reported as the
/// interpreter reports it.
#[test]
fn wild_accesses_count_in_lanes_that_make_them_only() {
    let accesses = [
        "ld.global.b32 %v, [%a]",
        "st.global.b32 [%a], %w",
        "ld.shared.b32 %v, [%n]",
        "st.shared.b32 [%n], %w",
        "ld.b32 %v, [%b]",
    ];
    for access in accesses {
        for (way, offset) in ["guard", "jump"]
            .iter()
            .flat_map(|way| ["1", "2", "0x8000000", "0xfffff000"].map(|offset| (way, offset)))
        {
            // The last one chooses none of the lanes that make the access.
            let chosen = [("lt.u32", 9), ("lt.s32", 9), ("gt.u32", 9), ("lt.u32", 5)];
            for (comparison, than) in chosen {
                let lanes = format!("{comparison} %r, %s, {than}");
                let text = &elsewhere(access, way, offset, &lanes);
                let (grid, block) = (2, [32, 1]);
                let launched =
                    Launched { text, name: "k", grid, block, waits: false, quantum: 512 };
                let ends = seen(launched, LIMITED, false).report.is_some();
                assert_eq!(ends, than == 9, "{text}");
                same(launched);
            }
        }
    }
}

/// Lanes leave a loop one after the other, and go through two more before they meet.
#[test]
fn lanes_that_leave_a_loop_one_by_one_are_the_same_at_every_length_of_turns() {
    let text = kernel(
        ".reg .b32 %l, %i, %x, %y, %z, %k; .reg .pred %p, %q;
         mov.u32 %l, %laneid; mov.u32 %i, 0; mov.u32 %x, %t; mov.u32 %y, 3; mov.u32 %k, 0;
         outer:
         mov.u32 %i, 0;
         again:
         mad.lo.u32 %x, %x, 69069, %i; xor.b32 %y, %y, %x; shr.u32 %z, %y, 3; add.u32 %x, %x, %z;
         mul.lo.u32 %y, %y, 5; add.u32 %y, %y, %l; and.b32 %z, %x, 255; add.u32 %y, %y, %z;
         add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %l;
         @%p bra again;
         and.b32 %z, %x, 1; setp.eq.u32 %q, %z, 0;
         @%q bra even;
         add.u32 %y, %y, 17; mul.lo.u32 %y, %y, 3; xor.b32 %x, %x, %y; add.u32 %x, %x, 5;
         mul.lo.u32 %x, %x, 9; sub.u32 %y, %y, %x; add.u32 %y, %y, %k; xor.b32 %y, %y, 77;
         add.u32 %y, %y, %x;
         bra both;
         even:
         sub.u32 %y, %y, 11; mul.lo.u32 %y, %y, 7; xor.b32 %x, %x, %y; add.u32 %x, %x, 3;
         mul.lo.u32 %x, %x, 13; add.u32 %y, %y, %x; sub.u32 %y, %y, %k; xor.b32 %y, %y, 55;
         both:
         add.u32 %k, %k, 1; setp.lt.u32 %p, %k, 3;
         @%p bra outer;
         add.u32 %x, %x, %y;
         st.global.b32 [%mine+65536], %x;
         ret;",
    );
    for (quantum, width) in [(1, 32), (7, 32), (64, 50), (512, 32), (512, 9)] {
        let block = [width, 1];
        same(Launched { text: &text, name: "k", grid: 2, block, waits: false, quantum });
    }
}

/// A lane that spins on a lock in long rounds gives way to the one that has it.
#[test]
fn lanes_that_spin_in_a_long_loop_let_the_owner_go_on() {
    let text = kernel(
        ".reg .b32 %l, %old, %x, %y, %i; .reg .pred %p; .reg .b64 %lock;
         add.u64 %lock, %out, 131072; mov.u32 %i, 0; mov.u32 %x, %t; mov.u32 %y, 1;
         again:
         mad.lo.u32 %x, %x, 69069, %i; xor.b32 %y, %y, %x; add.u32 %y, %y, 9; add.u32 %i, %i, 1;
         shr.u32 %x, %y, 2; add.u32 %x, %x, %y; mul.lo.u32 %y, %y, 3; sub.u32 %x, %x, 1;
         add.u32 %y, %y, %x;
         atom.global.cas.b32 %old, [%lock], 0, 1;
         setp.ne.u32 %p, %old, 0;
         @%p bra again;
         ld.volatile.global.b32 %x, [%lock+4]; add.u32 %x, %x, 1;
         st.volatile.global.b32 [%lock+4], %x;
         atom.global.exch.b32 %old, [%lock], 0;
         st.global.b32 [%mine+65536], %i;
         ret;",
    );
    same(Launched { text: &text, name: "k", grid: 2, block: [64, 1], waits: false, quantum: 512 });
}

/// Some lanes count on from a number that all have: it is one number for all of them no more.
#[test]
fn a_number_of_all_lanes_that_some_change_is_the_same() {
    let text = kernel(
        ".reg .b32 %l, %i, %k, %x, %y; .reg .pred %p, %q;
         mov.u32 %l, %laneid; mov.u32 %k, 0; mov.u32 %x, 1; mov.u32 %y, 2;
         outer:
         mov.u32 %i, 0;
         setp.lt.u32 %q, %l, 11;
         @%q bra over;
         again:
         mad.lo.u32 %x, %x, 69069, %i; xor.b32 %y, %y, %x; add.u32 %x, %x, %t; mul.lo.u32 %y, %y, 5;
         add.u32 %y, %y, %i; shr.u32 %x, %x, 1; sub.u32 %y, %y, 3; add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 5;
         @%p bra again;
         over:
         add.u32 %x, %x, %i; add.u32 %k, %k, 1; setp.lt.u32 %p, %k, 4;
         @%p bra outer;
         add.u32 %x, %x, %y;
         st.global.b32 [%mine+65536], %x;
         ret;",
    );
    for quantum in [7, 64, 512] {
        let block = [64, 1];
        same(Launched { text: &text, name: "k", grid: 2, block, waits: false, quantum });
    }
}

/// A row of which only the first lanes are inside of the memory is loaded for these.
#[test]
fn rows_across_the_end_of_memory_are_the_same() {
    let text = kernel(
        ".reg .b32 %l, %v, %s, %i; .reg .b64 %end, %far; .reg .pred %p, %q;
         mov.u32 %l, %laneid; mov.u32 %s, 1; mov.u32 %i, 0; mul.wide.u32 %far, %l, 4;
         add.u64 %end, %out, 1048544; add.u64 %end, %end, %far;
         again:
         setp.gt.u32 %q, %l, 7;
         @%q bra over;
         add.u32 %s, %s, 3; xor.b32 %s, %s, %i; mul.lo.u32 %s, %s, 5; add.u32 %s, %s, %l;
         st.global.b32 [%end], %s; ld.global.b32 %v, [%end]; ld.global.b32 %s, [%end+-4064];
         add.u32 %s, %s, %v;
         over:
         add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 4;
         @%p bra again;
         st.global.b32 [%mine+65536], %s;
         ret;",
    );
    let launched =
        Launched { text: &text, name: "k", grid: 1, block: [32, 1], waits: false, quantum: 512 };
    assert_eq!(seen(launched, LIMITED, false).report, None);
    same(launched);
}

/// Lanes that look for a word in a long loop let the lane come that writes it.
#[test]
fn lanes_that_wait_in_a_loop_of_plain_loads_let_the_writer_go_on() {
    let text = kernel(
        ".reg .b32 %l, %v, %x, %y, %i; .reg .pred %p, %q; .reg .b64 %word;
         add.u64 %word, %out, 131072; mul.wide.u32 %off, %b, 4; add.u64 %word, %word, %off;
         mov.u32 %l, %laneid; mov.u32 %i, 0; mov.u32 %x, %t; mov.u32 %y, 1;
         setp.eq.u32 %q, %l, 3;
         @%q bra writes;
         again:
         mad.lo.u32 %x, %x, 69069, %i; xor.b32 %y, %y, %x; add.u32 %y, %y, 9; add.u32 %i, %i, 1;
         shr.u32 %x, %y, 2; add.u32 %x, %x, %y; mul.lo.u32 %y, %y, 3;
         ld.global.b32 %v, [%word];
         setp.ne.u32 %p, %v, 77;
         @%p bra again;
         bra meet;
         writes:
         st.global.b32 [%word], 77;
         meet:
         st.global.b32 [%mine+65536], %i;
         ret;",
    );
    for quantum in [64, 512] {
        let launched =
            Launched { text: &text, name: "k", grid: 2, block: [32, 1], waits: false, quantum };
        assert_eq!(seen(launched, LIMITED, true).report, None);
        same(launched);
    }
}
