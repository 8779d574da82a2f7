//! Warps of a block that do as the one before them do what each of them does alone.
//!
//! Compiled code runs such warps in laps; the interpreter runs one after the other. Blocks have eight warps.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use machine::kernel;
use pieces::{Launched, same_in_steps, same_within};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Compares launches of blocks of 256 threads with turns and steps of several lengths.
#[track_caller]
fn same_in_laps(text: &str, waits: bool) {
    same_in_laps_of(256, text, waits);
}

/// The same for blocks of so many threads.
#[track_caller]
fn same_in_laps_of(threads: u32, text: &str, waits: bool) {
    let long = [(512, 1 << 20), (512, 100), (100, 2_000), (40, 1 << 20)];
    for (quantum, step) in long.into_iter().chain([(9, 33), (1, 1 << 20)]) {
        let launched = Launched { text, name: "k", grid: 3, block: [threads, 1], waits, quantum };
        same_in_steps(launched, step);
    }
}

/// A sum of the block, by a shift that doubles between barriers. Behind the first barrier, and at the end of
/// each round, lanes or warps may do something else.
fn sums(behind: &str, round: &str) -> String {
    kernel(&format!(
        ".reg .b32 %v, %l, %h, %s, %i, %x, %n; .reg .pred %p, %q; .shared .align 4 .b8 part[2048];
         mov.u32 %n, %tid.x;
         shr.u32 %x, %n, 5;
         mov.u32 %i, part; shl.b32 %s, %n, 2; add.u32 %i, %i, %s;
         mov.u32 %v, 0; st.shared.b32 [%i], %v;
         ld.global.b32 %v, [%mine]; st.shared.b32 [%i + 1024], %v;
         add.u32 %i, %i, 1024;
         bar.sync 0;
         {behind}
         mov.u32 %s, 4;
         again:
         bar.sync 0;
         sub.u32 %h, %i, %s;
         ld.shared.b32 %v, [%i]; ld.shared.b32 %l, [%h]; add.u32 %v, %v, %l;
         bar.sync 0;
         st.shared.b32 [%i], %v;
         {round}
         shl.b32 %s, %s, 1;
         setp.lt.u32 %p, %s, 1024;
         @%p bra again;
         st.global.b32 [%mine], %v;
         ret;"
    ))
}

#[test]
fn warps_that_meet_at_barriers_are_the_same() {
    for waits in [false, true] {
        same_in_laps(&sums("", ""), waits);
    }
}

#[test]
fn warps_that_go_other_ways_between_barriers_are_the_same() {
    // Warps 2, 3 and 6 do more than those before them; in warp 5, lanes part.
    let longer = "and.b32 %l, %x, 2; setp.eq.u32 %q, %l, 0; @%q bra short;
         mad.lo.u32 %v, %v, 3, 1; mad.lo.u32 %v, %v, 5, %n; st.shared.b32 [%i], %v;
         short:
         setp.lt.u32 %q, %n, 170; @%q bra low;
         add.u32 %v, %v, 7; st.shared.b32 [%i], %v;
         low:";
    for waits in [false, true] {
        same_in_laps(&sums("", longer), waits);
    }
}

#[test]
fn warps_that_end_before_others_meet_are_the_same() {
    // At an end that a piece reaches, and at one that none does.
    let last = "st.global.b32 [%mine], %v;";
    for (end, first) in [("ret;", "out: ret;"), (last, &format!("out: {last}"))] {
        // Warp 7 is the last at the first barrier, and goes on at once: the last of the others is warp 6.
        for ends in ["3", "0", "6", "7"] {
            let behind = format!("setp.eq.u32 %q, %x, {ends}; @%q bra out;");
            let text = sums(&behind, "").replace(end, first);
            for waits in [false, true] {
                same_in_laps(&text, waits);
            }
        }
    }
}

#[test]
fn warps_that_read_clocks_or_count_are_the_same() {
    // A clock has the instructions of all warps before; a sum of the block comes back to each thread.
    let round = "mov.u32 %l, %clock; xor.b32 %v, %v, %l;";
    same_in_laps(&sums("", round), false);
    let behind = "setp.lt.u32 %q, %n, 100; bar.red.popc.u32 %l, 0, %q; add.u32 %v, %v, %l;
         st.shared.b32 [%i], %v;";
    same_in_laps(&sums(behind, ""), false);
}

#[test]
fn warps_without_barriers_end_the_same() {
    let text = kernel(
        ".reg .f32 %a, %b; ld.global.f32 %a, [%mine]; fma.rn.f32 %b, %a, %a, %a;
         st.global.f32 [%mine], %b; ret;",
    );
    for waits in [false, true] {
        same_in_laps(&text, waits);
    }
}

#[test]
fn a_warp_that_ends_the_kernel_in_a_lap_is_reported_the_same() {
    let text = kernel(
        ".reg .b64 %far; .reg .b32 %v, %x; .reg .pred %q;
         mov.u32 %x, %tid.x; shr.u32 %x, %x, 5; bar.sync 0;
         mul.wide.u32 %far, %x, 0x40000; add.s64 %far, %far, %mine;
         ld.global.b32 %v, [%far]; st.global.b32 [%mine], %v; bar.sync 0; ret;",
    );
    same_in_laps(&text, false);
}

/// A sum of the block by halves, which fewer warps add to in each round.
fn halves() -> String {
    kernel(
        ".reg .b32 %v, %l, %s, %i, %n; .reg .pred %p; .shared .align 4 .b8 part[1024];
         mov.u32 %n, %tid.x;
         mov.u32 %i, part; shl.b32 %s, %n, 2; add.u32 %i, %i, %s;
         ld.global.b32 %v, [%mine]; st.shared.b32 [%i], %v;
         mov.u32 %s, 128;
         again:
         bar.sync 0;
         setp.ge.u32 %p, %n, %s; @%p bra skip;
         shl.b32 %l, %s, 2; add.u32 %l, %i, %l;
         ld.shared.b32 %v, [%l]; ld.shared.b32 %l, [%i]; add.u32 %v, %v, %l;
         st.shared.b32 [%i], %v;
         skip:
         shr.u32 %s, %s, 1; setp.gt.u32 %p, %s, 0; @%p bra again;
         ld.shared.b32 %v, [%i]; st.global.b32 [%mine], %v; ret;",
    )
}

#[test]
fn warps_that_have_nothing_to_add_in_later_rounds_are_the_same() {
    for waits in [false, true] {
        same_in_laps(&halves(), waits);
    }
}

#[test]
fn warps_of_blocks_of_any_size_are_the_same() {
    for threads in [32, 64, 250] {
        for waits in [false, true] {
            same_in_laps_of(threads, &sums("", ""), waits);
        }
    }
}

#[test]
fn warps_that_loop_for_different_times_between_barriers_are_the_same() {
    let round = "add.u32 %l, %x, 1;
         more: mad.lo.u32 %v, %v, 5, %l; sub.u32 %l, %l, 1;
         setp.ne.u32 %q, %l, 0; @%q bra more;
         st.shared.b32 [%i], %v;";
    for waits in [false, true] {
        same_in_laps(&sums("", round), waits);
    }
}

#[test]
fn warps_that_go_through_several_pieces_between_barriers_are_the_same() {
    // A piece has up to 96 instructions.
    let long = "mad.lo.u32 %v, %v, 3, %n; xor.b32 %v, %v, %x;".repeat(70);
    for waits in [false, true] {
        same_in_laps(&sums(&format!("{long} st.shared.b32 [%i], %v;"), ""), waits);
    }
}

#[test]
fn warps_that_wait_at_the_barrier_that_others_leave_are_the_same() {
    // Warp 3 arrives last, goes on at once, and waits again where the others go on from. Warp 5 takes several
    // turns to get there, so warp 3 still waits when its next turn comes.
    let late = |warp, go: &str| {
        format!(
            "setp.ne.u32 %q, %x, {warp}; @%q bra {go}; mov.u32 %t, 0;
             {go}_more: mad.lo.u32 %v, %v, 3, %t; add.u32 %t, %t, 1;
             setp.lt.u32 %q, %t, 60; @%q bra {go}_more;
             {go}:"
        )
    };
    let text = kernel(&format!(
        ".reg .b32 %v, %n, %t, %x; .reg .pred %p, %q;
         mov.u32 %x, %tid.x; shr.u32 %x, %x, 5;
         mov.u32 %n, 0; ld.global.b32 %v, [%mine];
         {}
         again:
         bar.sync 0;
         {}
         mad.lo.u32 %v, %v, 5, %n; add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 6; @%p bra again;
         mov.u32 %t, %clock; xor.b32 %v, %v, %t; st.global.b32 [%mine], %v; ret;",
        late(3, "go"),
        late(5, "on")
    ));
    for waits in [false, true] {
        same_in_laps(&text, waits);
    }
}

#[test]
fn warps_that_come_to_the_limit_of_a_grid_end_the_same() {
    let text = sums("", "");
    let (quantum, block) = (512, [256, 1]);
    let launched = Launched { text: &text, name: "k", grid: 3, block, waits: false, quantum };
    for limit in [50, 200, 500, 1_000, 2_000, 3_000] {
        same_within(launched, limit);
    }
}

/// Rounds between barriers of all threads. Each warp notes when it has its turn among those of its block, and
/// among those of all blocks: it counts, and no other warp does meanwhile.
fn noted(rounds: u32, each: &str) -> String {
    kernel(&format!(
        ".reg .b32 %v, %l, %k, %n, %x, %c, %i; .reg .pred %p, %q;
         .shared .align 4 .b8 count[4]; .shared .align 4 .b8 part[1024];
         mov.u32 %n, %tid.x; shr.u32 %x, %n, 5;
         mov.u32 %i, part; shl.b32 %l, %n, 2; add.u32 %i, %i, %l;
         ld.global.b32 %v, [%mine]; mov.u32 %k, 0;
         again:
         ld.shared.b32 %c, [count]; add.u32 %c, %c, 1; st.shared.b32 [count], %c;
         mad.lo.u32 %v, %v, 33, %c;
         ld.global.b32 %c, [%out + 4096]; add.u32 %c, %c, 3; st.global.b32 [%out + 4096], %c;
         mad.lo.u32 %v, %v, 5, %c;
         {each}
         bar.sync 0;
         add.u32 %k, %k, 1; setp.lt.u32 %p, %k, {rounds}; @%p bra again;
         out: st.global.b32 [%mine], %v; ret;"
    ))
}

#[test]
fn warps_take_their_turns_in_the_same_order() {
    for threads in [64, 224, 256] {
        for waits in [false, true] {
            same_in_laps_of(threads, &noted(9, ""), waits);
            // At another barrier, too.
            same_in_laps_of(threads, &noted(5, "bar.sync 1; add.u32 %v, %v, %n;"), waits);
        }
    }
}

#[test]
fn blocks_take_their_turns_in_the_same_order() {
    // In some rounds warps do not come to the barrier in one turn, or one of them does not. Then the next block
    // has its turns.
    let slow = |of: &str| {
        format!(
            "rem.u32 %l, %k, 4; setp.ne.u32 %q, %l, 2; @%q bra quick; {of} mov.u32 %l, 0;
             slow: ld.global.b32 %c, [%out + 4096]; add.u32 %c, %c, 7;
             st.global.b32 [%out + 4096], %c; mad.lo.u32 %v, %v, 5, %c;
             add.u32 %l, %l, 1; setp.lt.u32 %q, %l, 200; @%q bra slow;
             quick:"
        )
    };
    for of in ["", "setp.ne.u32 %q, %x, 1; @%q bra quick;", "setp.ne.u32 %q, %x, 0; @%q bra quick;"]
    {
        for threads in [64, 256] {
            same_in_laps_of(threads, &noted(9, &slow(of)), false);
        }
    }
}

#[test]
fn a_short_turn_that_goes_on_behind_a_barrier_stays_short() {
    // Behind the first barrier warps go on evenly, as they store long after they load. Behind the other they do
    // not, and the turn of the last one has few instructions left.
    let long = "mad.lo.u32 %v, %v, 3, %n;".repeat(20);
    let each = format!(
        "ld.shared.b32 %l, [%i]; add.u32 %v, %v, %l; {long} st.shared.b32 [%i], %v;
         bar.sync 1; {long}{long}{long}
         ld.shared.b32 %c, [count]; add.u32 %c, %c, 1; st.shared.b32 [count], %c;
         mad.lo.u32 %v, %v, 33, %c;"
    );
    let text = noted(5, &each);
    for waits in [false, true] {
        let (block, quantum) = ([256, 1], 512);
        // In one step: a short turn may end before a piece that is too long for its rest, and so a step later.
        same_in_steps(Launched { text: &text, name: "k", grid: 3, block, waits, quantum }, 1 << 20);
    }
}

#[test]
fn turns_that_end_at_a_barrier_are_the_same() {
    let text = noted(5, "");
    for quantum in 12..48 {
        let (block, waits) = ([256, 1], false);
        let launched = Launched { text: &text, name: "k", grid: 2, block, waits, quantum };
        same_in_steps(launched, 1 << 20);
    }
}

#[test]
fn warps_that_meet_at_one_barrier_in_two_places_are_the_same() {
    // No piece holds the atomic. So one warp comes to its place by two, where the others come by one.
    for warp in 0..8 {
        let each = format!(
            "setp.eq.u32 %q, %x, {warp}; @%q bra other; bar.sync 0; bra.uni join;
             other: atom.global.add.u32 %l, [%mine], 1; add.u32 %v, %v, %l;
             mul.lo.u32 %v, %v, 3; xor.b32 %v, %v, %k; bar.sync 0; add.u32 %v, %v, 5;
             join:"
        );
        for waits in [false, true] {
            same_in_laps(&noted(10, &each), waits);
        }
    }
}

#[test]
fn warps_that_come_to_a_barrier_by_ways_of_one_length_are_the_same() {
    let each = "setp.lt.u32 %q, %x, 3; @%q bra low; bra.uni high;
         low: add.u32 %v, %v, 1; xor.b32 %v, %v, 77; bra.uni join;
         high: add.u32 %v, %v, 5; xor.b32 %v, %v, 33; bra.uni join;
         join:";
    for waits in [false, true] {
        same_in_laps(&noted(9, each), waits);
    }
}

/// A deed of some warps or lanes in a round, of eight kinds.
fn deed(kind: u32, warp: u32, number: u32) -> String {
    match kind {
        0 => format!("setp.eq.u32 %q, %x, {warp}; @%q bra out;"),
        1 => format!(
            "setp.ne.u32 %q, %x, {warp}; @%q bra not{number};
             mad.lo.u32 %v, %v, 3, %k; st.shared.b32 [%i], %v; not{number}:"
        ),
        2 => format!(
            "setp.lt.u32 %q, %n, {}; @%q bra low{number};
             add.u32 %v, %v, 7; st.shared.b32 [%i], %v; low{number}:",
            warp * 32 + 9
        ),
        3 => format!("bar.sync {}; ld.shared.b32 %l, [%i]; add.u32 %v, %v, %l;", warp % 3),
        4 => format!(
            "add.u32 %l, %x, {warp}; more{number}: mad.lo.u32 %v, %v, 5, %l;
             setp.gt.u32 %q, %l, 3; sub.u32 %l, %l, 1; @%q bra more{number};"
        ),
        5 => "mad.lo.u32 %v, %v, 3, %n; xor.b32 %v, %v, %x;".repeat(40),
        6 => format!(
            "bar.warp.sync -1; setp.eq.u32 %q, %k, {warp}; @%q atom.global.add.u32 %l, [%mine], 1;"
        ),
        _ => format!(
            "setp.gt.u32 %q, %k, {warp}; @%q add.u32 %i, %i, 0; mov.u32 %l, %clock; add.u32 %v, %v, %l;"
        ),
    }
}

#[test]
fn warps_of_random_rounds_are_the_same() {
    // In the last three, turns behind a barrier are short and end within a run of instructions.
    for seed in (0..48).chain([1370, 1515, 1701]) {
        let mut numbers = StdRng::seed_from_u64(seed);
        let deeds = numbers.random_range(1..5);
        let mut next =
            |number| deed(numbers.random_range(0..8), numbers.random_range(0..8), number);
        let each: String = (0..deeds).map(&mut next).collect();
        let threads = [64, 96, 256][seed as usize % 3];
        same_in_laps_of(threads, &noted(6, &each), seed % 2 == 0);
    }
}
