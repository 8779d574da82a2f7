//! Local memory in compiled pieces: each lane has its own, one behind the other.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use machine::kernel;
use pieces::{Launched, same};

/// The types of accesses: the suffix, the registers, and the bytes of all elements.
const TYPES: [(&str, &str, u32); 9] = [
    ("u8", "%x", 1),
    ("s8", "%x", 1),
    ("s16", "%x", 2),
    ("u32", "%x", 4),
    ("b32", "%d", 4),
    ("b64", "%d", 8),
    ("v2.b32", "{%x, %y}", 8),
    ("v4.b32", "{%x, %y, %x, %z}", 16),
    ("v2.b64", "{%d, %f}", 16),
];

/// A kernel that fills local memory with numbers of each lane, and stores and loads at an offset of each lane,
/// at one that all share, and as some lanes only.
fn text(last: &str) -> String {
    let accesses: String = TYPES
        .iter()
        .map(|(kind, registers, bytes)| {
            let places = ["%a", "%s", "%l"].map(|place| {
                format!(
                    "st.local.{kind} [{place}+{bytes}], {registers}; {}
                     @%p st.local.{kind} [{place}], {registers}; @!%p ld.local.{kind} {registers}, [{place}+16];
                     ld.local.{kind} {registers}, [{place}];",
                    mixed()
                )
            });
            format!(
                "mul.lo.u64 %a, %i, {bytes}; add.u64 %a, %a, %base; shl.b64 %s, %k, 4; add.u64 %s, %s, %base;
                 cvt.u64.u32 %l, %t; and.b64 %l, %l, 31; mul.lo.u64 %l, %l, {bytes}; add.u64 %l, %l, %base;
                 {} {}",
                places.concat(),
                mixed()
            )
        })
        .collect();
    kernel(&format!(
        ".local .align 16 .b8 table[640];
         .reg .b32 %x, %y, %z, %h; .reg .b64 %a, %s, %l, %d, %f, %i, %k, %base; .reg .pred %p, %q;
         mov.u32 %h, %t; mov.u32 %x, %t; mov.u32 %y, 1; mov.u32 %z, 2; mov.u64 %d, 3; mov.u64 %f, 4;
         mov.u64 %base, table; mov.u64 %k, 0; mul.lo.u32 %x, %t, 69069;
         each:
         add.u64 %a, %base, %k; add.u32 %x, %x, 40503; st.local.u32 [%a], %x;
         add.u64 %k, %k, 4; setp.lt.u64 %q, %k, 640; @%q bra each;
         mov.u64 %k, 0;
         again:
         mul.lo.u32 %x, %h, 40503; and.b32 %x, %x, 7; cvt.u64.u32 %i, %x; setp.gt.u32 %p, %x, 3;
         {accesses}
         add.u64 %k, %k, 1; setp.lt.u64 %q, %k, 6; @%q bra again;
         {last}
         st.global.b32 [%mine+65536], %h; ret;"
    ))
}

fn mixed() -> &'static str {
    "cvt.u32.u64 %w, %d; xor.b32 %h, %h, %x; add.u32 %h, %h, %y; add.u32 %h, %h, %w; mul.lo.u32 %h, %h, 69069;"
}

#[test]
fn local_memory_of_whole_warps_and_of_parts_is_the_same() {
    for threads in [64, 40, 7] {
        let text = text("");
        same(Launched {
            text: &text,
            name: "k",
            grid: 3,
            block: [threads, 1],
            waits: false,
            quantum: 512,
        });
    }
}

#[test]
fn accesses_outside_of_local_memory_or_at_odd_places_end_the_kernel_alike() {
    for place in ["%base+100000", "%base+641", "%base+2", "0xfffffffffffffff0"] {
        // One lane goes there in the loop's seventh round, when pieces are there.
        let last = format!(
            "mov.u64 %k, 0; far: and.b32 %x, %t, 31; cvt.u64.u32 %i, %x; add.u64 %i, %i, %k; mov.u64 %a, %base;
             setp.eq.u64 %p, %i, 25; @%p mov.u64 %a, {}; @%p add.u64 %a, %a, {};
             st.local.b32 [%a], %h; ld.local.b32 %x, [%a]; add.u32 %h, %h, %x;
             add.u64 %k, %k, 1; setp.lt.u64 %q, %k, 20; @%q bra far;",
            place.split('+').next().unwrap_or_default(),
            place.split('+').nth(1).unwrap_or("0"),
        );
        let text = text(&last);
        same(Launched {
            text: &text,
            name: "k",
            grid: 2,
            block: [64, 1],
            waits: false,
            quantum: 512,
        });
    }
}
