//! Shuffles, shifts, counts of bits and halves of wide words: pieces compute them as the interpreter does.

#![cfg(feature = "jit")]

mod machine;
mod pieces;

use machine::kernel;
use pieces::{Launched, same};

/// Compares launches of blocks of 64 threads, and of 16 by 4.
#[track_caller]
fn same_in_blocks(text: &str) {
    for (block, quantum) in [([64, 1], 512), ([16, 4], 512), ([64, 1], 7), ([48, 1], 64)] {
        same(Launched { text, name: "k", grid: 2, block, waits: false, quantum });
    }
}

/// A loop around a body, which finds words in `%v` (that lanes load), `%s` (that all share) and `%l` (the
/// lane's index), and leaves words in `%x` and a predicate in `%p`.
fn round(body: &str) -> String {
    kernel(&format!(
        ".reg .b32 %l, %v, %s, %x, %y, %i, %sum; .reg .b64 %far, %d, %e; .reg .pred %p, %q;
         mov.u32 %l, %laneid; mov.u32 %i, 0; mov.u32 %sum, 0; mov.u32 %x, 1;
         again:
         mad.lo.u32 %y, %i, 64, %t; and.b32 %y, %y, 4095;
         mul.wide.u32 %far, %y, 4; add.u64 %d, %out, %far;
         ld.global.b32 %v, [%d]; ld.global.b32 %s, [%out+24];
         add.u32 %s, %s, %i;
         setp.eq.u32 %p, %l, 77;
         {body}
         mad.lo.u32 %sum, %sum, 31, %x; @%p add.u32 %sum, %sum, 7;
         add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 5;
         @%q bra again;
         st.global.b32 [%mine+65536], %sum;
         ret;"
    ))
}

#[test]
fn shuffles_by_constants_are_the_same() {
    let modes = ["up", "down", "bfly", "idx"];
    let controls = ["0", "31", "0x181f", "0x1c1f", "0x1807", "0x1f03"];
    let offsets = ["0", "1", "2", "3", "5", "8", "16", "31", "33"];
    for (nth, control) in (0..12).map(|nth| (nth, controls[nth % controls.len()])) {
        let mode = modes[(nth + nth / 6) % modes.len()];
        // One after the other, of what the one before gave.
        let all: String = offsets
            .iter()
            .map(|offset| {
                format!(
                    "shfl.sync.{mode}.b32 %x|%p, %y, {offset}, {control}, 0xffffffff;
                     mad.lo.u32 %y, %x, 5, %y; @%p add.u32 %y, %y, {offset};"
                )
            })
            .collect();
        same_in_blocks(&round(&format!("mov.u32 %y, %v; {all}")));
    }
}

#[test]
fn shuffles_of_every_kind_of_word_are_the_same() {
    // Of words that lanes load, that all share, of lines, of coordinates, and of a result that is the source.
    for source in ["%v", "%s", "%l", "%t", "%x"] {
        for (mode, offset) in [("bfly", 4), ("down", 6), ("idx", 9), ("up", 1), ("bfly", 1)] {
            let text = round(&format!(
                "add.u32 %x, %x, %v; mov.u32 %y, %tid.x; add.u32 %x, %x, %y;
                 shfl.sync.{mode}.b32 %x, {source}, {offset}, 31, 0xffffffff;
                 add.u32 %x, %x, 1;"
            ));
            same_in_blocks(&text);
        }
    }
}

#[test]
fn shuffles_by_registers_are_the_same() {
    // By what all lanes share, by a line, by lanes, and by the word that is exchanged.
    let offsets = ["mov.u32 %y, %s", "mov.u32 %y, %i", "add.u32 %y, %l, %i", "mov.u32 %y, %v"];
    let others = [("%v", "31"), ("%l", "0x181f"), ("%y", "0"), ("%x", "0x1c07")];
    for (nth, mode) in ["up", "down", "bfly", "idx"].iter().enumerate() {
        for (turn, offset) in offsets.iter().enumerate() {
            let (source, control) = others[(nth + turn) % others.len()];
            let text = round(&format!(
                "{offset}; add.u32 %x, %x, %v;
                 shfl.sync.{mode}.b32 %x|%p, {source}, %y, {control}, 0xffffffff;
                 add.u32 %x, %x, %y;
                 shfl.sync.{mode}.b32 %y, %x, %y, {control}, 0xffffffff; xor.b32 %x, %x, %y;
                 and.b32 %s, %s, 1; mad.lo.u32 %s, %s, 0x1000, {control};
                 shfl.sync.{mode}.b32 %y|%p, %x, %l, %s, 0xffffffff; add.u32 %x, %x, %y;
                 add.u32 %s, %l, {control}; shfl.sync.{mode}.b32 %y, %x, 3, %s, 0xffffffff;
                 xor.b32 %x, %x, %y;"
            ));
            same_in_blocks(&text);
        }
    }
}

#[test]
fn shifts_by_what_some_lanes_share_are_the_same() {
    // Registers that are read again only at the end have places where lines are not kept.
    let many: String = (0..80).map(|at| format!("add.u32 %k{at}, %v, {at};")).collect();
    let sums: String = (0..80).map(|at| format!("xor.b32 %x, %x, %k{at};")).collect();
    for amount in ["mov.u32 %m, %s", "and.b32 %m, %l, %i"] {
        let text = round(&format!(
            ".reg .b32 %k<80>, %m; .reg .b64 %f;
             {many} {amount}; xor.b32 %m, %m, 0;
             shfl.sync.idx.b32 %m, %m, %l, 31, 0xffffffff;
             shl.b32 %x, %v, %m; shr.u32 %y, %v, %m; xor.b32 %x, %x, %y;
             shr.s32 %y, %l, %m; xor.b32 %x, %x, %y;
             cvt.u64.u32 %f, %v; mul.lo.u64 %f, %f, 0x9E3779B97F4A7C15;
             shr.s64 %f, %f, %m; shl.b64 %f, %f, %m; mov.b64 {{%y, %v}}, %f;
             xor.b32 %x, %x, %y; xor.b32 %x, %x, %v; {sums}"
        ));
        same_in_blocks(&text);
    }
}

#[test]
fn shifts_by_what_all_lanes_share_are_the_same() {
    let masks =
        ["and.b32 %y, %s, 31", "and.b32 %y, %s, 63", "mov.u32 %y, %s", "add.u32 %y, %i, 30"];
    for (mask, kind) in masks.iter().flat_map(|mask| ["shl.b", "shr.u", "shr.s"].map(|k| (mask, k)))
    {
        let text = round(&format!(
            "{mask};
             {kind}32 %x, %v, %y; {kind}32 %v, %s, %y; add.u32 %x, %x, %v;
             {kind}32 %v, %l, %y; add.u32 %x, %x, %v;
             cvt.u64.u32 %e, %x; mul.lo.u64 %e, %e, 0x9E3779B97F4A7C15;
             {kind}64 %e, %e, %y; xor.b64 %d, %e, %d; {kind}64 %d, %d, %y; add.u64 %e, %e, %d;
             mov.b64 {{%v, %y}}, %e; add.u32 %x, %x, %v; xor.b32 %x, %x, %y;
             @%p {kind}32 %x, %x, 3;"
        ));
        same_in_blocks(&text);
    }
}

#[test]
fn counts_of_bits_are_the_same() {
    for what in ["popc.b32", "clz.b32", "bfind.u32", "bfind.s32", "bfind.shiftamt.u32"] {
        let text = round(&format!(
            "{what} %x, %v; shr.u32 %y, %v, %l; {what} %y, %y; mad.lo.u32 %x, %x, 33, %y;
             {what} %y, %s; mad.lo.u32 %x, %x, 33, %y; {what} %y, %l; mad.lo.u32 %x, %x, 33, %y;
             and.b32 %y, %v, 0x80000001; {what} %y, %y; mad.lo.u32 %x, %x, 33, %y;
             setp.gt.u32 %p, %x, 99; @%p {what} %x, %v;"
        ));
        same_in_blocks(&text);
    }
}

#[test]
fn masks_of_lanes_are_the_same() {
    let masks = ["eq", "le", "lt", "ge", "gt"];
    let all: String = masks
        .iter()
        .map(|mask| {
            format!(
                "mov.u32 %y, %lanemask_{mask}; and.b32 %y, %y, %v; popc.b32 %y, %y;
                 mad.lo.u32 %x, %x, 33, %y;"
            )
        })
        .collect();
    same_in_blocks(&round(&all));
}

#[test]
fn halves_of_wide_words_are_the_same() {
    let text = round(
        "cvt.u64.u32 %e, %v; mul.lo.u64 %e, %e, 0x9E3779B97F4A7C15;
         mov.b64 {%x, %y}, %e; add.u32 %x, %x, %y;
         mov.b64 {_, %y}, %mine; add.u32 %x, %x, %y; mov.b64 {%y, _}, %mine; xor.b32 %x, %x, %y;
         mov.b64 {%y, %v}, %out; add.u32 %x, %x, %y; add.u32 %x, %x, %v;
         setp.gt.u32 %p, %l, 11; @%p mov.b64 {%x, %y}, %e; add.u32 %x, %x, %y;",
    );
    same_in_blocks(&text);
}

#[test]
fn conversions_quotients_and_fields_are_the_same() {
    let floats = [
        "cvt.rzi.s32.f32 %x, %f",
        "cvt.rmi.u32.f32 %x, %f",
        "cvt.rni.ftz.s32.f32 %x, %f",
        "cvt.rpi.f32.f32 %g, %f; mov.b32 %x, %g",
        "cvt.rmi.ftz.f32.f32 %g, %f; mov.b32 %x, %g",
        "div.rn.f32 %g, %f, %h; mov.b32 %x, %g",
        "rcp.rn.f32 %g, %f; mov.b32 %x, %g",
        "sqrt.rn.f32 %g, %f; mov.b32 %x, %g",
        "cvt.f64.f32 %a, %f; cvt.rzi.f64.f64 %b, %a; div.rn.f64 %a, %b, %a; mov.b64 {%x, %y}, %a",
        "cvt.rn.f64.s32 %a, %y; rcp.rn.f64 %b, %a; sqrt.rn.f64 %b, %b; cvt.rn.f32.f64 %g, %b;
         mov.b32 %x, %g",
        "cvt.f64.f32 %a, %f; cvt.rn.f32.f64 %g, %a; mov.b32 %x, %g",
        "fma.rm.f32 %g, %f, %h, %f; add.rz.ftz.f32 %g, %g, %h; mov.b32 %x, %g",
    ];
    let words = [
        "shf.l.wrap.b32 %x, %y, %v, 7",
        "shf.r.clamp.b32 %x, %v, %y, 32",
        "prmt.b32 %x, %y, %v, 0x5410",
        "prmt.b32 %x, %y, %y, 0x0123",
        "bfe.u32 %x, %y, 3, 9",
        "bfe.s32 %x, %y, 0, 5",
        "bfi.b32 %x, %y, %v, 4, 11",
        "bfi.b32 %x, %v, %y, 0, 32",
        "lop3.b32 %x, %y, %v, %s, 0x96",
        "lop3.b32 %x, %l, %y, %s, 0xe8",
    ];
    // Of words that lanes load, that all share, and of lines.
    for source in ["%v", "%s", "%l"] {
        for form in floats.into_iter().chain(words) {
            same_in_blocks(&round(&format!(
                ".reg .f32 %f, %g, %h; .reg .f64 %a, %b;
                 mov.u32 %y, {source}; mov.b32 %f, {source}; cvt.rn.f32.s32 %h, {source}; {form};"
            )));
        }
    }
}
