//! Compiled pieces of kernels do what the interpreter does: the same bytes, figures, reports, and accesses
//! that wait, in the same order.

#![cfg(feature = "jit")]

mod line_kernels;
mod machine;
mod pieces;
#[allow(dead_code, reason = "only the kernels")]
mod random;

use machine::{BASE, Journal, PAGE, kernel, load, module};
use pagewise_ptx::execute::{Config, Kind, Launch, Memory, Step, Stop, Window};
use pieces::{LIMITED, Launched, run, same, seen};

#[test]
fn random_kernels_with_branches_and_loops_are_the_same() {
    for seed in 0..80 {
        let text = random::kernel(seed);
        let launched = Launched {
            text: &text,
            name: "random",
            grid: 3,
            block: [random::THREADS, 1],
            waits: seed % 2 == 0,
            quantum: [512, 7, 40][seed as usize % 3],
        };
        same(launched);
    }
}

#[test]
fn kernels_of_lines_are_the_same() {
    for seed in 0..line_kernels::KERNELS / 2 {
        let text = line_kernels::text(seed);
        same(Launched {
            text: &text,
            name: "k",
            grid: 1,
            block: [64, 1],
            waits: false,
            quantum: 512,
        });
    }
}

/// The types of accesses: the suffix, the register, and the bytes of all elements.
const TYPES: [(&str, &str, u32); 16] = [
    (".u8", "%w0", 1),
    (".s8", "%w0", 1),
    (".s8", "%h0", 1),
    (".u16", "%w0", 2),
    (".s16", "%w0", 2),
    (".b32", "%w0", 4),
    (".f32", "%f0", 4),
    (".u32", "%d0", 4),
    (".s32", "%d0", 4),
    (".b64", "%d0", 8),
    (".f64", "%g0", 8),
    (".v2.b32", "{%w0, %w1}", 8),
    (".v4.b32", "{%w0, %w1, %w2, %w3}", 16),
    (".v2.f64", "{%g0, %g1}", 16),
    (".v4.u8", "{%w0, %w1, %w2, %w3}", 4),
    (".v2.u16", "{%w0, %w1}", 4),
];

/// The element that thread `%l` of a warp accesses, in `%at`.
const PATTERNS: [&str; 12] = [
    "mov.u32 %at, %l",
    "sub.u32 %at, 31, %l",
    "mov.u32 %at, 5",
    "shl.b32 %at, %l, 1",
    "xor.b32 %at, %l, 5",
    "mul.lo.u32 %at, %l, 7; and.b32 %at, %at, 31",
    "and.b32 %at, %l, 3",
    // Rows of sixteen, all but one lane of such rows, and the same for four lanes, for all but one of
    // them, and for sixteen.
    "and.b32 %at, %l, 15",
    "min.u32 %at, %l, 30",
    "shr.u32 %at, %l, 2",
    "shr.u32 %at, %l, 2; setp.eq.u32 %p, %l, 31; @%p mov.u32 %at, 6",
    "shr.u32 %at, %l, 4",
];

/// A kernel that loads by a pattern from global memory, passes the values through shared memory by the same
/// pattern, and stores what it has in a row of its own, a few times.
fn accesses((suffix, registers, bytes): (&str, &str, u32), pattern: &str) -> String {
    let results: String = (0..4)
        .map(|at| {
            format!(
                "st.global.b32 [%own+{}], %w{at}; st.global.b64 [%own+{}], %d{at};
                 st.global.f64 [%own+{}], %g{at};",
                4 * at,
                32 + 8 * at,
                64 + 8 * at
            )
        })
        .collect();
    module(&format!(
        ".visible .entry k(.param .u64 k_in, .param .u64 k_out) {{
         .reg .b32 %t, %b, %n, %l, %at, %near, %w<5>, %i; .reg .b16 %h<2>; .reg .f32 %f<2>;
         .reg .b64 %in, %out, %from, %to, %own, %far, %d<5>; .reg .f64 %g<5>; .reg .pred %p;
         .shared .align 16 .b8 room[8192];
         ld.param.u64 %in, [k_in]; ld.param.u64 %out, [k_out];
         mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x;
         mad.lo.u32 %b, %b, %n, %t;
         mad.wide.u32 %own, %b, 128, %out;
         and.b32 %l, %t, 31;
         mov.u32 %i, 0;
         again:
         {pattern};
         mul.wide.u32 %far, %at, {bytes};
         add.u64 %from, %in, %far;
         mul.lo.u32 %near, %at, {bytes};
         mov.u32 %w4, room; add.u32 %near, %near, %w4;
         ld.global{suffix} {registers}, [%from];
         st.shared{suffix} [%near], {registers};
         bar.sync 0;
         ld.shared{suffix} {registers}, [%near];
         add.u64 %to, %from, 8192;
         st.global{suffix} [%to], {registers};
         ld{suffix} {registers}, [%to+{bytes}];
         add.u64 %in, %in, 512;
         cvt.u32.u16 %w3, %h0; add.u32 %w3, %w3, %i;
         mov.b32 %w2, %f0;
         bar.sync 0;
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 3;
         @%p bra again;
         {results}
         ret; }}"
    ))
}

#[test]
fn accesses_of_every_width_and_pattern_are_the_same() {
    for kind in TYPES {
        for pattern in PATTERNS {
            let text = accesses(kind, pattern);
            let waits = pattern.contains("xor");
            same(Launched { text: &text, name: "k", grid: 2, block: [64, 1], waits, quantum: 512 });
        }
    }
}

/// A kernel that ends: its lanes from the seventh on access by an offset from the right place.
fn ends_early(access: &str, offset: &str) -> String {
    kernel(&format!(
        ".reg .b64 %far, %a; .reg .b32 %v, %i, %bad, %s; .reg .pred %p;
         .shared .align 4 .b8 room[4096];
         mov.u32 %i, 0;
         again:
         mov.u32 %s, %tid.x;
         setp.gt.u32 %p, %s, 6;
         selp.b32 %bad, {offset}, 0, %p;
         setp.eq.u32 %p, %i, 2;
         selp.b32 %bad, %bad, 0, %p;
         mad.lo.u32 %s, %s, 4, %bad;
         cvt.u64.u32 %far, %s;
         {access}
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 4;
         @%p bra again;
         st.global.b32 [%mine], %v;
         ret;"
    ))
}

#[test]
fn kernels_that_end_early_report_the_same() {
    let global = "add.u64 %a, %out, %far; ld.volatile.global.b32 %v, [%a];";
    let generic = "cvta.shared.u64 %a, room; add.u64 %a, %a, %far; ld.volatile.b32 %v, [%a];";
    let shared = "mov.u32 %v, room; add.u32 %s, %s, %v; ld.volatile.shared.b32 %v, [%s];";
    let wide = "mov.u64 %a, room; add.u64 %a, %a, %far; ld.volatile.shared.b32 %v, [%a];";
    let stored = "mov.u32 %v, room; add.u32 %s, %s, %v; st.volatile.shared.b32 [%s], %v;";
    let all = [global, generic, shared, wide, stored];
    let offsets = ["1", "2", "0x10000", "0x8000000", "0xfffff000"];
    for (access, offset) in all.iter().flat_map(|access| offsets.map(|offset| (access, offset))) {
        if *access == global && offset == "0x10000" {
            // That is inside of the memory.
            continue;
        }
        let text = ends_early(access, offset);
        let launched = Launched {
            text: &text,
            name: "k",
            grid: 2,
            block: [64, 1],
            waits: false,
            quantum: 512,
        };
        assert!(seen(launched, LIMITED, false).report.is_some(), "{text}");
        same(launched);
    }
}

/// A sum over shared memory by halves, with lanes that part at the end, in blocks of other shapes.
#[test]
fn sums_by_halves_are_the_same_at_every_length_of_turns() {
    let text = kernel(
        ".reg .b32 %s, %a, %v, %x, %h; .reg .pred %p; .shared .align 4 .b8 part[4096];
         ld.global.b32 %v, [%mine];
         mov.u32 %s, %tid.x; shl.b32 %a, %s, 2; mov.u32 %x, part; add.u32 %a, %a, %x;
         st.shared.b32 [%a], %v;
         shr.u32 %h, %w, 1;
         again:
         bar.sync 0;
         setp.ge.u32 %p, %s, %h;
         @%p bra skip;
         mad.lo.u32 %x, %h, 4, %a;
         ld.shared.b32 %x, [%x]; ld.shared.b32 %v, [%a];
         add.u32 %v, %v, %x; st.shared.b32 [%a], %v;
         skip:
         shr.u32 %h, %h, 1;
         setp.ne.u32 %p, %h, 0;
         @%p bra again;
         setp.ne.u32 %p, %s, 0;
         @%p bra end;
         ld.shared.b32 %v, [part];
         st.global.b32 [%mine], %v;
         end: ret;",
    );
    for quantum in [1, 2, 3, 5, 8, 13, 100, 512] {
        for block in [32, 64, 256, 1024, 33, 100] {
            let waits = block == 256;
            same(Launched { text: &text, name: "k", grid: 3, block: [block, 1], waits, quantum });
        }
    }
}

/// A loop of which one register is lanes in some blocks, and else a line with another step in each round.
fn kinds(is_line: &str) -> String {
    kernel(&format!(
        ".reg .b32 %a, %c, %i, %s, %v; .reg .pred %p;
         mov.u32 %s, %tid.x;
         rem.u32 %c, %b, 3;
         mov.u32 %a, %s;
         {is_line}
         @%p bra line;
         mul.lo.u32 %a, %s, %s;
         line: bar.sync 0;
         mov.u32 %i, 0; mov.u32 %v, 0;
         again:
         mad.lo.u32 %v, %v, 3, %a;
         xor.b32 %v, %v, %s;
         add.u32 %a, %a, %a;
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 6;
         @%p bra again;
         st.global.b32 [%mine], %v;
         ret;"
    ))
}

#[test]
fn registers_of_other_kinds_at_one_position_are_the_same() {
    // The first block, which asks for pieces, has lanes, or a line.
    for is_line in ["setp.ne.u32 %p, %c, 0;", "setp.ne.u32 %p, %c, 2;"] {
        let text = kinds(is_line);
        same(Launched {
            text: &text,
            name: "k",
            grid: 9,
            block: [64, 1],
            waits: false,
            quantum: 512,
        });
    }
}

/// Compares launches of blocks of 64 threads with turns of each of these lengths.
#[track_caller]
fn same_in_turns(text: &str, grid: u32, lengths: &[u32]) {
    for &quantum in lengths {
        same(Launched { text, name: "k", grid, block: [64, 1], waits: false, quantum });
    }
}

#[test]
fn loops_inside_of_a_piece_are_the_same_at_every_length_of_turns() {
    let text = kernel(
        ".reg .b32 %i, %v; .reg .pred %p;
         ld.global.b32 %v, [%mine];
         mov.u32 %i, 0;
         again:
         mad.lo.u32 %v, %v, 3, %t;
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 100;
         @%p bra again;
         st.global.b32 [%mine], %v;
         ret;",
    );
    same_in_turns(&text, 3, &[1, 3, 4, 7, 50, 512]);
}

#[test]
fn ways_between_the_runs_of_a_piece_are_the_same_at_every_length_of_turns() {
    // The block and the round choose the way; `%a` is a line on some of them, and lanes on others.
    let text = kernel(
        ".reg .b32 %a, %c, %i, %v; .reg .pred %p;
         mov.u32 %a, %t; mov.u32 %i, 0; mov.u32 %v, 1;
         again:
         add.u32 %c, %i, %b;
         rem.u32 %c, %c, 4;
         setp.eq.u32 %p, %c, 0;
         @%p bra first;
         setp.eq.u32 %p, %c, 1;
         @%p bra second;
         setp.eq.u32 %p, %c, 2;
         @!%p bra third;
         xor.b32 %a, %t, %i;
         bra behind;
         first:
         mad.lo.u32 %a, %t, 3, %i;
         bra behind;
         second:
         mad.lo.u32 %a, %a, %t, 7;
         bra behind;
         third:
         sub.u32 %a, %i, %a;
         behind:
         mad.lo.u32 %v, %v, 31, %a;
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 40;
         @%p bra again;
         st.global.b32 [%mine], %v;
         ret;",
    );
    same_in_turns(&text, 6, &[1, 5, 11, 50, 512]);
}

/// The first row that a loop loads from shared memory lies within it, ends behind it, or begins behind it, and so
/// does a later one.
#[test]
fn rows_that_end_beyond_shared_memory_are_found() {
    for (first, step) in [(0, 4), (384, 4), (388, 4), (508, 4), (512, 4), (386, 2), (-4, 4), (0, 2)]
    {
        let text = kernel(&format!(
            ".reg .b32 %n, %v, %i; .reg .pred %p; .shared .align 8 .b8 room[512];
             mov.u32 %i, 0; mov.u32 %n, room; mad.lo.u32 %n, %t, 4, %n; add.u32 %n, %n, {first};
             again:
             ld.shared.b32 %v, [%n]; add.u32 %n, %n, {step}; add.u32 %i, %i, 1;
             setp.lt.u32 %p, %i, 200;
             @%p bra again;
             st.global.b32 [%mine], %v;
             ret;"
        ));
        let block = [32, 1];
        let launched =
            Launched { text: &text, name: "k", grid: 1, block, waits: false, quantum: 512 };
        assert!(seen(launched, LIMITED, false).report.is_some(), "{first}, {step}");
        same(launched);
    }
}

/// A product of tiles in shared memory, and sums of a square's neighbours: the threads of blocks of rows.
fn tiles(barrier: &str) -> String {
    kernel(&format!(
        ".reg .b32 %x, %y, %n, %k, %row, %near, %from, %c, %i, %q; .reg .f32 %a, %f, %g, %s;
         .reg .b64 %far, %d, %e; .reg .pred %p;
         .shared .align 8 .b8 tile[2176];
         mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %n, %ntid.x;
         mad.lo.u32 %row, %y, %n, %x;
         mad.lo.u32 %q, %n, %b, %x;
         mul.wide.u32 %far, %row, 4; add.u64 %d, %out, %far;
         mul.wide.s32 %e, %q, 4; add.u64 %e, %e, %out;
         mov.f32 %s, 0f00000000; mov.f32 %a, 0f00000000; mov.u32 %i, 0;
         shl.b32 %near, %row, 2; mov.u32 %from, tile; add.u32 %near, %near, %from;
         mul.lo.u32 %c, %y, %n; shl.b32 %c, %c, 2; add.u32 %c, %c, %from;
         shl.b32 %k, %x, 2; add.u32 %k, %k, %from;
         again:
         ld.global.b32 %q, [%d]; and.b32 %q, %q, 7; cvt.rn.f32.u32 %f, %q;
         ld.global.b32 %q, [%e+64]; and.b32 %q, %q, 7; cvt.rn.f32.u32 %g, %q;
         add.f32 %f, %f, %g;
         st.shared.f32 [%near], %f;
         {barrier}
         ld.shared.f32 %f, [%c]; ld.shared.f32 %g, [%k];
         fma.rn.f32 %s, %f, %g, %s;
         ld.shared.f32 %f, [%c+4]; ld.shared.f32 %g, [%k+8];
         fma.rn.f32 %s, %f, %g, %s;
         {barrier}
         setp.lt.u32 %p, %y, %i;
         selp.f32 %g, %f, %s, %p;
         add.f32 %a, %a, %g;
         add.u32 %q, %x, %i; sub.u32 %q, %q, 16;
         cvt.u64.u32 %far, %q; shr.u64 %far, %far, 20; cvt.rn.f32.u64 %g, %far;
         add.f32 %a, %a, %g;
         add.u64 %d, %d, 4; add.u64 %e, %e, 128;
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 9;
         @%p bra again;
         mad.lo.u32 %c, %b, 1024, %row;
         mul.wide.u32 %d, %c, 4; add.u64 %d, %d, %out;
         add.f32 %s, %s, %a;
         st.global.f32 [%d+65536], %s;
         ret;"
    ))
}

#[test]
fn tiles_of_blocks_of_every_width_are_the_same() {
    for barrier in ["", "bar.sync 0;"] {
        let text = tiles(barrier);
        for block in [[16, 16], [16, 4], [8, 8], [32, 4], [4, 8], [48, 2], [16, 7]] {
            let waits = block == [16, 4];
            same(Launched { text: &text, name: "k", grid: 5, block, waits, quantum: 512 });
        }
    }
}

#[test]
fn launches_of_blocks_of_several_widths_share_their_pieces() {
    let text = tiles("bar.sync 0;");
    let instance = load(&text).instantiate(&[]).unwrap();
    let kernel = instance.kernel("k").unwrap();
    for block in [[16, 16], [16, 16], [12, 16], [32, 4], [64, 2], [16, 4], [24, 4]] {
        let launched =
            Launched { text: &text, name: "k", grid: 3, block, waits: false, quantum: 512 };
        let (compiled, interpreted) =
            (run(launched, &kernel, LIMITED, Some(0)), run(launched, &kernel, LIMITED, None));
        assert_eq!(compiled, interpreted, "{block:?}");
    }
}

#[test]
fn launches_with_sizes_that_make_lines_or_none_are_the_same() {
    // Lanes below the width of a block form a line in wide blocks only.
    let text = kernel(
        ".reg .b32 %l, %m, %i, %v, %x; .reg .b64 %far, %d; .reg .pred %p;
         mov.u32 %l, %laneid; sub.u32 %m, %w, 1;
         mov.u32 %v, 0; mov.u32 %i, 0;
         again:
         and.b32 %x, %l, %m;
         mul.wide.u32 %far, %x, 4; add.u64 %d, %out, %far;
         ld.global.b32 %x, [%d];
         mad.lo.u32 %v, %v, 31, %x;
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 5;
         @%p bra again;
         st.global.b32 [%mine+65536], %v;
         ret;",
    );
    let instance = load(&text).instantiate(&[]).unwrap();
    let kernel = instance.kernel("k").unwrap();
    for width in [4, 8, 16, 32, 64, 32, 16, 4] {
        let block = [width, 64 / width];
        let launched =
            Launched { text: &text, name: "k", grid: 60, block, waits: false, quantum: 512 };
        for _ in 0..2 {
            let [compiled, interpreted] =
                [Some(0), None].map(|after| run(launched, &kernel, LIMITED, after));
            assert_eq!(compiled, interpreted, "{width}");
        }
    }
}

#[test]
fn votes_of_whole_warps_are_the_same() {
    // Bits of words that lanes load: some votes are of all, of none, of one lane, or of a few. Some name
    // half of the lanes, and one is executed by some.
    let text = kernel(
        ".reg .b32 %l, %v, %x, %i, %s, %half; .reg .pred %p, %q, %none, %all;
         .reg .b64 %far, %d;
         mov.u32 %l, %laneid; mov.u32 %s, 0; mov.u32 %i, 0; mov.u32 %half, 0xffff;
         again:
         mad.lo.u32 %x, %i, 64, %t; and.b32 %x, %x, 4095;
         mul.wide.u32 %far, %x, 4; add.u64 %d, %out, %far;
         ld.global.b32 %v, [%d];
         and.b32 %x, %v, 1; setp.eq.u32 %p, %x, 1;
         vote.sync.ballot.b32 %x, %p, 0xffffffff; mad.lo.u32 %s, %s, 31, %x;
         setp.eq.u32 %q, %l, %i;
         vote.sync.ballot.b32 %x, %q, 0xffffffff; mad.lo.u32 %s, %s, 31, %x;
         setp.gt.u32 %none, %l, 40; setp.lt.u32 %all, %l, 40;
         bar.warp.sync 0xffffffff;
         vote.sync.any.pred %p, %q, 0xffffffff; @%p add.u32 %s, %s, 1;
         vote.sync.all.pred %p, %all, 0xffffffff; @%p add.u32 %s, %s, 2;
         vote.sync.any.pred %p, %none, 0xffffffff; @%p add.u32 %s, %s, 4;
         vote.sync.uni.pred %p, %none, 0xffffffff; @%p add.u32 %s, %s, 8;
         vote.sync.uni.pred %p, %all, 0xffffffff; @%p add.u32 %s, %s, 16;
         vote.sync.uni.pred %p, %q, 0xffffffff; @%p add.u32 %s, %s, 32;
         vote.sync.all.pred %p, %q, 0xffffffff; @%p add.u32 %s, %s, 64;
         setp.lt.u32 %p, %l, 16;
         @%p vote.sync.ballot.b32 %x, %q, %half;
         @%p add.u32 %s, %s, %x;
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 40;
         @%p bra again;
         st.global.b32 [%mine+65536], %s;
         ret;",
    );
    same_in_turns(&text, 3, &[1, 7, 64, 512]);
}

#[test]
fn addresses_that_are_lines_in_halves_of_some_warps_only_are_the_same() {
    // The upper half of a warp reads rows of its own, in one block of three from places of its own.
    let text = kernel(
        ".reg .b32 %l, %h, %i, %v, %w; .reg .b64 %far, %d; .reg .pred %p;
         mov.u32 %l, %laneid; shr.u32 %h, %l, 4; and.b32 %l, %l, 15;
         mad.lo.u32 %l, %h, 100, %l;
         rem.u32 %h, %b, 3; setp.ne.u32 %p, %h, 1;
         @%p bra rows;
         setp.eq.u32 %p, %l, 107;
         @%p add.u32 %l, %l, 30;
         rows:
         mul.wide.u32 %far, %l, 4; add.u64 %d, %out, %far;
         bar.sync 0;
         mov.u32 %v, 0; mov.u32 %i, 0;
         again:
         ld.global.b32 %w, [%d];
         mad.lo.u32 %v, %v, 31, %w;
         add.u64 %d, %d, 8;
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 7;
         @%p bra again;
         st.global.b32 [%mine+65536], %v;
         ret;",
    );
    let block = [64, 1];
    same(Launched { text: &text, name: "k", grid: 9, block, waits: false, quantum: 512 });
}

#[test]
fn lanes_that_ended_give_matrices_the_values_that_they_had() {
    // Upper lanes end without a look at `%a`, and lower ones write it before they read it.
    let text = kernel(
        ".reg .b32 %a, %l; .reg .pred %p;
         mov.u32 %l, %laneid;
         mad.lo.u32 %a, %t, %t, 5;
         setp.ge.u32 %p, %l, 16;
         st.global.b32 [%mine], %l;
         @%p bra upper;
         mad.lo.u32 %a, %t, 7, 3;
         movmatrix.sync.aligned.m8n8.trans.b16 %a, %a;
         st.global.b32 [%mine], %a;
         upper:
         ret;",
    );
    same(Launched { text: &text, name: "k", grid: 3, block: [64, 1], waits: false, quantum: 512 });
}

/// Memory of two pages that moves to other bytes of the host when its second page is asked for.
struct Moving {
    places: [Vec<u128>; 2],
    now: usize,
}

impl Memory for Moving {
    fn window(&mut self, address: u64, _: u32, _: Kind) -> Result<Window, Stop> {
        if address >= BASE + PAGE && self.now == 0 {
            let [old, new] = &mut self.places;
            new.copy_from_slice(old);
            old.fill(0);
            self.now = 1;
        }
        let page = (address - BASE) / PAGE * PAGE;
        let host = self.places[self.now].as_mut_ptr().cast::<u8>().wrapping_add(page as usize);
        // SAFETY: the page is part of a vector, which lives and does not move while the kernel runs.
        Ok(unsafe { Window::new(BASE + page, PAGE, host) })
    }

    fn generation(&self) -> u64 {
        self.now as u64
    }
}

#[test]
fn pieces_follow_memory_that_moves_while_they_run() {
    // From the fourth round on, the first load is of lanes in two pages, which the interpreter carries out;
    // the second load is of bytes that earlier rounds found.
    let text = kernel(
        ".reg .b32 %x, %y, %z, %i; .reg .b64 %far; .reg .pred %p;
         mov.u32 %i, 0; mov.u32 %z, 0;
         again:
         and.b32 %y, %t, 1; setp.gt.u32 %p, %i, 2; selp.b32 %y, %y, 0, %p;
         mul.wide.u32 %far, %y, 4096; add.u64 %far, %far, %mine;
         ld.volatile.global.b32 %y, [%far];
         ld.volatile.global.b32 %x, [%mine];
         add.u32 %z, %z, %x; add.u32 %z, %z, %y;
         add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 6;
         @%p bra again;
         st.global.b32 [%mine], %z;
         ret;",
    );
    let instance = load(&text).instantiate(&[]).unwrap();
    let kernel = instance.kernel("k").unwrap();
    for compile_after in [None, Some(0), Some(0), Some(0)] {
        let bytes = 2 * PAGE as usize / 16;
        let one = u128::from_ne_bytes([1; 16]);
        let mut memory = Moving { places: [vec![one; bytes], vec![0; bytes]], now: 0 };
        let launch = Launch {
            grid: [1; 3],
            block: [32, 1, 1],
            dynamic_shared: 0,
            params: &BASE.to_le_bytes(),
            cooperative: false,
            cluster: None,
        };
        let config = Config { compile_after, ..Config::default() };
        let mut run = kernel.start(&launch, &config).unwrap();
        let end = run.step(&mut memory, &mut Journal::default(), 1 << 20);
        assert!(matches!(end, Step::Done(_)), "{end:?}");
        let word = memory.places[1][0].to_ne_bytes();
        assert_eq!(word, [12; 16], "{compile_after:?}");
    }
}

#[test]
fn predicates_that_hold_for_all_lanes_or_none_are_the_same() {
    let text = kernel(
        ".reg .b32 %x, %i; .reg .pred %p, %q, %r, %s;
         mov.u32 %i, 0;
         again:
         and.b32 %x, %t, 3; setp.eq.u32 %s, %x, 2; add.u32 %x, %t, %i;
         mov.pred %p, -1; @%s mov.pred %p, 0; mov.pred %q, 0; @!%s mov.pred %q, %p;
         selp.u32 %x, %x, 7, %p; @%q add.u32 %x, %x, 100;
         mov.pred %r, 0; @%r bra skip;
         add.u32 %x, %x, 1000;
         skip:
         st.global.b32 [%mine+65536], %x;
         add.u32 %i, %i, 1; setp.lt.u32 %s, %i, 8; @%s bra again;
         ret;",
    );
    same(Launched { text: &text, name: "k", grid: 3, block: [64, 1], waits: false, quantum: 512 });
}
