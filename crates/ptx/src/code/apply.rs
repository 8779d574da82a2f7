//! Functions of registers over the lanes of an instruction.

use super::lanes::{Lanes, Value, WIDTH, active};
use super::mask::signs;
use super::op::Op;

/// Computes a slow function for the active lanes only.
#[inline(always)]
pub(crate) fn each_active<R: Value>(mask: u32, function: impl Fn(usize) -> R) -> [R::Raw; WIDTH] {
    let mut numbers = [R::Raw::default(); WIDTH];
    for lane in active(mask) {
        numbers[lane] = function(lane).raw();
    }
    numbers
}

/// `d = f(a)`
#[inline(always)]
pub(crate) fn unary<A: Value, R: Value>(lanes: &mut Lanes<'_>, op: &Op, f: impl Fn(A) -> R) {
    let a = A::source(lanes, op.s[0]);
    let mut results = [R::Raw::default(); WIDTH];
    for lane in 0..WIDTH {
        results[lane] = f(A::of(a[lane])).raw();
    }
    R::leave(lanes, op.d[0], &results);
}

/// `d = f(a, b)`
#[inline(always)]
pub(crate) fn binary<A: Value, B: Value, R: Value>(
    lanes: &mut Lanes<'_>,
    op: &Op,
    f: impl Fn(A, B) -> R,
) {
    let (a, b) = (A::source(lanes, op.s[0]), B::source(lanes, op.s[1]));
    let mut results = [R::Raw::default(); WIDTH];
    for lane in 0..WIDTH {
        results[lane] = f(A::of(a[lane]), B::of(b[lane])).raw();
    }
    R::leave(lanes, op.d[0], &results);
}

/// `d = f(a, b, c)`
#[inline(always)]
pub(crate) fn ternary<A: Value, B: Value, C: Value, R: Value>(
    lanes: &mut Lanes<'_>,
    op: &Op,
    f: impl Fn(A, B, C) -> R,
) {
    let (a, b, c) =
        (A::source(lanes, op.s[0]), B::source(lanes, op.s[1]), C::source(lanes, op.s[2]));
    let mut results = [R::Raw::default(); WIDTH];
    for lane in 0..WIDTH {
        results[lane] = f(A::of(a[lane]), B::of(b[lane]), C::of(c[lane])).raw();
    }
    R::leave(lanes, op.d[0], &results);
}

/// `d = f(a, b, c, e)`
#[inline(always)]
pub(crate) fn quaternary<A: Value, B: Value, C: Value, E: Value, R: Value>(
    lanes: &mut Lanes<'_>,
    op: &Op,
    f: impl Fn(A, B, C, E) -> R,
) {
    let (a, b) = (A::source(lanes, op.s[0]), B::source(lanes, op.s[1]));
    let (c, e) = (C::source(lanes, op.s[2]), E::source(lanes, op.s[3]));
    let results = each_active(lanes.mask, |lane| {
        f(A::of(a[lane]), B::of(b[lane]), C::of(c[lane]), E::of(e[lane]))
    });
    R::leave(lanes, op.d[0], &results);
}

/// Like [`unary`], for active lanes only.
#[inline(always)]
pub(crate) fn slow_unary<A: Value, R: Value>(lanes: &mut Lanes<'_>, op: &Op, f: impl Fn(A) -> R) {
    let a = A::source(lanes, op.s[0]);
    let results = each_active(lanes.mask, |lane| f(A::of(a[lane])));
    R::leave(lanes, op.d[0], &results);
}

/// Like [`binary`], for active lanes only.
#[inline(always)]
pub(crate) fn slow_binary<A: Value, B: Value, R: Value>(
    lanes: &mut Lanes<'_>,
    op: &Op,
    f: impl Fn(A, B) -> R,
) {
    let (a, b) = (A::source(lanes, op.s[0]), B::source(lanes, op.s[1]));
    let results = each_active(lanes.mask, |lane| f(A::of(a[lane]), B::of(b[lane])));
    R::leave(lanes, op.d[0], &results);
}

/// Like [`ternary`], for active lanes only.
#[inline(always)]
pub(crate) fn slow_ternary<A: Value, B: Value, C: Value, R: Value>(
    lanes: &mut Lanes<'_>,
    op: &Op,
    f: impl Fn(A, B, C) -> R,
) {
    let (a, b, c) =
        (A::source(lanes, op.s[0]), B::source(lanes, op.s[1]), C::source(lanes, op.s[2]));
    let results = each_active(lanes.mask, |lane| f(A::of(a[lane]), B::of(b[lane]), C::of(c[lane])));
    R::leave(lanes, op.d[0], &results);
}

/// A comparison of two registers as a mask.
#[inline(always)]
pub(crate) fn compare<A: Value>(lanes: &Lanes<'_>, op: &Op, f: impl Fn(A, A) -> bool) -> u32 {
    let (a, b) = (A::source(lanes, op.s[0]), A::source(lanes, op.s[1]));
    let mut results = [0; WIDTH];
    for lane in 0..WIDTH {
        results[lane] = if f(A::of(a[lane]), A::of(b[lane])) { u32::MAX } else { 0 };
    }
    signs(&results)
}
