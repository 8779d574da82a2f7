//! Blocks of which all warps do as the ones before do what they do warp by warp.
//!
//! Compiled code runs such a block in one go, with one warp that stands for all of them; the interpreter runs
//! one warp after the other.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use machine::kernel;
use pieces::{ENDLESS, Launched, same_after, same_in_steps, seen};

/// Compares launches of many blocks of some threads with turns and steps of several lengths.
#[track_caller]
fn same_in_blocks(text: &str, (grid, block): (u32, [u32; 2]), waits: bool) {
    let long = 1 << 20;
    // Each step of fewer instructions than there are warps that wait would be spent on these.
    let steps = if waits { vec![long] } else { vec![long, 700, 100, 33] };
    for (quantum, step) in steps.into_iter().flat_map(|step| [(512, step), (25, step)]) {
        same_in_steps(Launched { text, name: "k", grid, block, waits, quantum }, step);
    }
}

/// The same for blocks of several shapes, with all pages there and with none.
#[track_caller]
fn same_in_all_blocks(text: &str) {
    for (grid, block) in [(40, [128, 1]), (40, [32, 1]), (30, [8, 20]), (20, [80, 1])] {
        for waits in [false, true] {
            same_in_blocks(text, (grid, block), waits);
        }
    }
}

const PRODUCT: &str = "ld.global.f32 %a, [%mine]; fma.rn.f32 %a, %a, %a, %a;
     st.global.f32 [%mine], %a;";

#[test]
fn blocks_without_branches_are_the_same() {
    same_in_all_blocks(&kernel(&format!(".reg .f32 %a; {PRODUCT} ret;")));
}

#[test]
fn more_blocks_than_a_machine_holds_are_the_same() {
    let text = kernel(&format!(".reg .f32 %a; {PRODUCT} ret;"));
    same_in_steps(
        Launched { text: &text, name: "k", grid: 6000, block: [32, 1], waits: false, quantum: 512 },
        1 << 20,
    );
}

/// Blocks of one warp end in their first turn. So the first and the last resident one make room by turns.
#[test]
fn a_block_that_follows_has_the_slot_of_the_one_that_made_room() {
    let text = kernel(
        ".reg .b32 %v; mov.u32 %v, %smid; mul.wide.u32 %off, %b, 4; add.u64 %mine, %out, %off;
         st.global.b32 [%mine], %v; ret;",
    );
    let (multiprocessors, each, grid) = (132, 32, 6000);
    let launched =
        Launched { text: &text, name: "k", grid, block: [32, 1], waits: false, quantum: 512 };
    let of_blocks = &seen(launched, ENDLESS, false).words[..grid as usize];
    let mut blocks = vec![0; multiprocessors];
    of_blocks.iter().for_each(|&multiprocessor| blocks[multiprocessor as usize] += 1);
    let following = grid - each * multiprocessors as u32;
    let mut expected = vec![each; multiprocessors];
    expected[0] += following / 2;
    expected[multiprocessors - 1] += following / 2;
    assert_eq!(blocks, expected);
}

#[test]
fn blocks_beyond_a_bound_are_the_same() {
    for bound in [0, 1000, 1024, 1900] {
        same_in_all_blocks(&kernel(&format!(
            ".reg .f32 %a; .reg .pred %p;
             setp.ge.u32 %p, %t, {bound}; @%p bra out;
             {PRODUCT}
             out: ret;"
        )));
    }
}

#[test]
fn blocks_of_which_some_warps_loop_longer_are_the_same() {
    same_in_all_blocks(&kernel(
        ".reg .b32 %v, %i; .reg .pred %p;
         shr.u32 %i, %t, 5; and.b32 %i, %i, 7; mul.lo.u32 %i, %i, %i; mov.u32 %v, %t;
         again:
         mad.lo.u32 %v, %v, 5, %i;
         setp.eq.u32 %p, %i, 0; sub.u32 %i, %i, 1;
         @!%p bra again;
         st.global.b32 [%mine], %v; ret;",
    ));
}

#[test]
fn a_warp_of_long_detours_behind_one_that_ends_at_once_is_the_same() {
    // All but the first two warps go around the loop 400 times, and half of their lanes around a step of it.
    for block in [[96, 1], [128, 1]] {
        let text = kernel(
            ".reg .b32 %v, %i, %x; .reg .pred %p, %q, %done;
             mov.u32 %v, %t; mov.u32 %i, 0; and.b32 %x, %t, 1; setp.eq.u32 %q, %x, 0;
             mov.u32 %x, %tid.x; setp.lt.u32 %done, %x, 64;
             @%done bra out;
             again:
             @%q bra skip;
             mad.lo.u32 %v, %v, 5, %i; xor.b32 %v, %v, 3; add.u32 %v, %v, %i; mad.lo.u32 %v, %v, 3, 1;
             skip:
             add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 400;
             @%p bra again;
             st.global.b32 [%mine], %v;
             out: ret;",
        );
        for after in [1, 2, 4, 8] {
            let launched =
                Launched { text: &text, name: "k", grid: 4, block, waits: false, quantum: 512 };
            same_after(launched, after);
        }
    }
}

#[test]
fn a_register_that_was_never_written_is_zero_in_each_warp() {
    same_in_all_blocks(&kernel(
        ".reg .b32 %v, %x, %i; .reg .pred %p;
         mov.u32 %i, 0;
         again:
         add.u32 %v, %v, %b; add.u32 %i, %i, 1;
         setp.lt.u32 %p, %i, 3;
         @%p bra again;
         st.global.b32 [%mine], %v; ret;",
    ));
}

#[test]
fn local_memory_is_zero_in_each_warp() {
    same_in_all_blocks(&kernel(
        ".local .align 4 .b8 own[64]; .reg .b32 %v;
         ld.local.b32 %v, [own + 4]; add.u32 %v, %v, %t; st.local.b32 [own + 4], %v;
         st.global.b32 [%mine], %v; ret;",
    ));
}

#[test]
fn shared_memory_is_zero_in_each_block_and_kept_among_its_warps() {
    let generic = "cvt.u64.u32 %far, %at; cvta.shared.u64 %far, %far;";
    for writes in [
        "st.shared.b32 [%at], %v;".to_owned(),
        "atom.shared.exch.b32 %old, [%at], %v;".to_owned(),
        "red.shared.add.u32 [%at], 1;".to_owned(),
        format!("{generic} st.b32 [%far], %v;"),
        format!("{generic} atom.add.u32 %old, [%far], 1;"),
    ] {
        let text = kernel(&format!(
            ".shared .align 4 .b8 part[256]; .reg .b32 %v, %at, %old; .reg .b64 %far;
             and.b32 %at, %t, 31; shl.b32 %at, %at, 2;
             ld.shared.b32 %v, [%at]; add.u32 %v, %v, 1; {writes}
             st.global.b32 [%mine], %v; ret;"
        ));
        same_in_all_blocks(&text);
        let expected: Vec<u32> = (0..40 * 128).map(|thread| thread % 128 / 32 + 1).collect();
        assert!(machine::words(&text, 40, 128, expected.len()) == expected, "{writes}");
    }
}

#[test]
fn blocks_that_vary_with_their_warps_and_places_are_the_same() {
    same_in_all_blocks(&kernel(
        ".reg .b32 %v, %x;
         mov.u32 %v, %warpid; mov.u32 %x, %smid; mad.lo.u32 %v, %v, 1000, %x;
         mov.u32 %x, %ctaid.x; mad.lo.u32 %v, %v, 1000, %x; mov.u32 %x, %ctaid.y;
         add.u32 %v, %v, %x; mov.u32 %x, %tid.y; mad.lo.u32 %v, %v, 100, %x;
         st.global.b32 [%mine], %v; ret;",
    ));
}

#[test]
fn a_block_with_an_illegal_address_ends_the_kernel_the_same() {
    for (block, behind) in [(0, 0x4000_0000), (17, 0x4000_0000), (39, 0x4000_0000), (17, 4096)] {
        let text = kernel(&format!(
            ".reg .b32 %v, %x; .reg .b64 %far; .reg .pred %p;
             mov.u32 %x, %ctaid.x; setp.eq.u32 %p, %x, {block};
             selp.u32 %x, {behind}, 0, %p; cvt.u64.u32 %far, %x; add.s64 %far, %far, %mine;
             ld.global.b32 %v, [%far]; add.u32 %v, %v, 1; st.global.b32 [%mine], %v; ret;"
        ));
        for waits in [false, true] {
            same_in_blocks(&text, (40, [128, 1]), waits);
        }
    }
}

/// A kernel of which all threads read the first page, and some threads of a block another one. `far` changes
/// the address of these for some lanes, by their index `%t`.
fn late(block: u32, first: u32, far: &str) -> String {
    kernel(&format!(
        ".reg .b32 %v, %x; .reg .b64 %far, %more; .reg .pred %p, %q;
         ld.global.b32 %v, [%out];
         mov.u32 %x, %tid.x; setp.ge.u32 %q, %x, {first}; setp.eq.and.u32 %p, %b, {block}, %q;
         selp.u32 %x, 0x20000, 0, %p; cvt.u64.u32 %far, %x; add.s64 %far, %far, %out;
         {far}
         ld.global.b32 %x, [%far];
         mov.u32 %w, %tid.x; mul.wide.u32 %more, %w, 4; add.s64 %more, %more, %out;
         ld.global.b32 %v, [%more + 1024]; add.u32 %v, %v, %x; add.u32 %v, %v, 1;
         st.global.b32 [%more + 1024], %v; ret;"
    ))
}

/// More blocks than a machine holds: the last ones begin when pages are there that the first ones waited for.
const MANY: [(u32, [u32; 2]); 2] = [(3, [128, 1]), (2300, [128, 1])];

#[test]
fn a_warp_that_waits_in_a_block_of_which_others_have_ended_goes_on_the_same() {
    for (grid, block) in MANY {
        for first in [0, 64, 96] {
            same_in_blocks(&late(grid - 1, first, ""), (grid, block), true);
        }
    }
}

#[test]
fn accesses_of_a_warp_that_is_halted_no_longer_wait() {
    // The last lane of a warp reads no allocation, and the others wait for a page.
    let far = "and.b32 %x, %t, 31; setp.eq.and.u32 %p, %x, 31, %p;
         @%p add.s64 %far, %far, 0x40000000;";
    for (grid, block) in MANY {
        for first in [0, 64, 96] {
            same_in_blocks(&late(grid - 1, first, far), (grid, block), true);
        }
    }
}

/// Registers of each file that only threads of odd blocks write, and all read.
#[test]
fn registers_that_a_warp_did_not_write_are_zero_and_not_those_of_a_warp_before() {
    let count = 40;
    let [mut written, mut read] = [String::new(), String::new()];
    for at in 0..count {
        written += &format!(
            "@%odd add.u32 %w{at}, %t, {at}; @%odd add.u64 %x{at}, %off, {at};
             @%odd setp.ne.u32 %p{at}, %b, 0;\n"
        );
        read += &format!(
            "add.u32 %s, %s, %w{at}; cvt.u32.u64 %n, %x{at}; add.u32 %s, %s, %n;
             selp.u32 %n, 1, 0, %p{at}; add.u32 %s, %s, %n;\n"
        );
    }
    let text = kernel(&format!(
        ".reg .b32 %w<{count}>, %s, %n; .reg .b64 %x<{count}>; .reg .pred %odd, %p<{count}>;
         and.b32 %n, %b, 1; setp.ne.u32 %odd, %n, 0; mov.u32 %s, 0;
         {written} {read} mul.wide.u32 %off, %b, 4; add.u64 %mine, %out, %off;
         st.global.b32 [%mine], %s; ret;"
    ));
    let launched =
        Launched { text: &text, name: "k", grid: 6000, block: [32, 1], waits: false, quantum: 512 };
    same_in_steps(launched, 1 << 20);
    let words = seen(launched, ENDLESS, true).words;
    assert!((0..6000).all(|block| (words[block] != 0) == (block % 2 == 1)), "{:?}", &words[..40]);
}
