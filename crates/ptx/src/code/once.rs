//! Functions of registers that hold lines: they are computed once for all lanes of a warp.

use super::lanes::Lanes;
use super::line::Line;
use super::lines::{Lines, OfLine, Whole};
use super::op::Op;

/// `d = f(a)`, if all lanes have the same `a`.
#[inline(always)]
pub(crate) fn unary<A: OfLine, R: OfLine>(
    lines: &mut Lines,
    lanes: &Lanes<'_>,
    op: &Op,
    f: impl Fn(A) -> R,
) -> bool {
    let Some(a) = A::same(lines, lanes, op.s[0]) else { return false };
    R::set_same(lines, op.d[0], f(a));
    true
}

/// `d = f(a, b)`, if all lanes have the same sources.
#[inline(always)]
pub(crate) fn binary<A: OfLine, B: OfLine, R: OfLine>(
    lines: &mut Lines,
    lanes: &Lanes<'_>,
    op: &Op,
    f: impl Fn(A, B) -> R,
) -> bool {
    let (a, b) = (A::same(lines, lanes, op.s[0]), B::same(lines, lanes, op.s[1]));
    let (Some(a), Some(b)) = (a, b) else { return false };
    R::set_same(lines, op.d[0], f(a, b));
    true
}

/// `d = f(a, b, c)`, if all lanes have the same sources.
#[inline(always)]
pub(crate) fn ternary<A: OfLine, B: OfLine, C: OfLine, R: OfLine>(
    lines: &mut Lines,
    lanes: &Lanes<'_>,
    op: &Op,
    f: impl Fn(A, B, C) -> R,
) -> bool {
    let (a, b) = (A::same(lines, lanes, op.s[0]), B::same(lines, lanes, op.s[1]));
    let (Some(a), Some(b), Some(c)) = (a, b, C::same(lines, lanes, op.s[2])) else { return false };
    R::set_same(lines, op.d[0], f(a, b, c));
    true
}

/// The line `d` of a function of the line `a`.
#[inline(always)]
pub(crate) fn line_unary<A: Whole, R: Whole>(
    lines: &mut Lines,
    lanes: &Lanes<'_>,
    op: &Op,
    f: impl Fn(Line<A>) -> Option<Line<R>>,
) -> bool {
    let Some(d) = f(A::line(lines, lanes, op.s[0])) else { return false };
    R::set_line(lines, op.d[0], d);
    true
}

/// The line `d` of a function of the lines `a` and `b`.
#[inline(always)]
pub(crate) fn line_binary<A: Whole, B: Whole, R: Whole>(
    lines: &mut Lines,
    lanes: &Lanes<'_>,
    op: &Op,
    f: impl Fn(Line<A>, Line<B>) -> Option<Line<R>>,
) -> bool {
    let (a, b) = (A::line(lines, lanes, op.s[0]), B::line(lines, lanes, op.s[1]));
    let Some(d) = f(a, b) else { return false };
    R::set_line(lines, op.d[0], d);
    true
}

/// The line `d` of a function of the lines `a`, `b` and `c`.
#[inline(always)]
pub(crate) fn line_ternary<A: Whole, B: Whole, C: Whole, R: Whole>(
    lines: &mut Lines,
    lanes: &Lanes<'_>,
    op: &Op,
    f: impl Fn(Line<A>, Line<B>, Line<C>) -> Option<Line<R>>,
) -> bool {
    let (a, b) = (A::line(lines, lanes, op.s[0]), B::line(lines, lanes, op.s[1]));
    let Some(d) = f(a, b, C::line(lines, lanes, op.s[2])) else { return false };
    R::set_line(lines, op.d[0], d);
    true
}

/// `d = p ? a : b`, if all lanes choose the same value.
#[inline(always)]
pub(crate) fn select<A: OfLine>(lines: &mut Lines, lanes: &Lanes<'_>, op: &Op) -> bool {
    let chosen = match lanes.predicate(op.s[2]) {
        u32::MAX => op.s[0],
        0 => op.s[1],
        _ => return false,
    };
    let Some(value) = A::same(lines, lanes, chosen) else { return false };
    A::set_same(lines, op.d[0], value);
    true
}

/// The comparison of two values, if all lanes have the same ones.
#[inline(always)]
pub(crate) fn compare<A: OfLine>(
    lines: &Lines,
    lanes: &mut Lanes<'_>,
    op: &Op,
    f: impl Fn(A, A) -> bool,
) -> bool {
    let (a, b) = (A::same(lines, lanes, op.s[0]), A::same(lines, lanes, op.s[1]));
    let (Some(a), Some(b)) = (a, b) else { return false };
    lanes.set_predicate(op.d[0], if f(a, b) { u32::MAX } else { 0 });
    true
}

/// The comparison of two lines by an `f` that says which of two integers is the lower one. Along lines
/// that do not wrap, the answer changes at most once, so the first lane and the last one tell.
#[inline(always)]
pub(crate) fn compare_order<A: Whole>(
    lines: &Lines,
    lanes: &mut Lanes<'_>,
    op: &Op,
    f: impl Fn(A, A) -> bool,
) -> bool {
    let ends = |source: usize| A::ends(A::line(lines, lanes, op.s[source]));
    let (Some([a, last_a]), Some([b, last_b])) = (ends(0), ends(1)) else { return false };
    if f(a, b) != f(last_a, last_b) {
        return false;
    }
    lanes.set_predicate(op.d[0], if f(a, b) { u32::MAX } else { 0 });
    true
}
