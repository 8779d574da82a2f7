//! Arithmetic on `.f16` and `.bf16`, and on pairs of them.
//!
//! Operands and results are bits. Every operation is exact, or rounded to odd, in a wider format
//! first; one rounding to the nearest then gives the result. No fast crate for these formats has
//! all of that, so the few conversions are here.

use super::number::{BF16, F16, Format};
use super::single::{self, fma_odd};

/// The NaN that operations on both formats give.
pub const NAN: u16 = 0x7fff;

/// The bit of the sign.
const SIGN: u16 = 0x8000;

/// A float of 16 bits.
pub trait Half {
    /// The bits of infinity; its magnitude is the greatest that is no NaN.
    const INFINITY: u16;
    /// The bits of one.
    const ONE: u16;
    /// The least normal number.
    const LEAST_NORMAL: u16;
    /// Whether the bits are the upper bits of an `.f32`.
    const MOVES: bool;

    /// The value, which `.f32` holds exactly.
    fn widen(bits: u16) -> f32;

    /// The nearest value, ties to even. A NaN is canonical.
    fn narrow(value: f32) -> u16;

    /// `a * b + c` for values of the format, rounded to odd.
    fn fused_odd(a: f32, b: f32, c: f32) -> f32;
}

/// The format that exact numbers are rounded to.
pub(super) trait Exact: Half {
    /// The format.
    const FORMAT: Format;
}

/// `.f16`
#[derive(Debug, Clone, Copy)]
pub struct Binary16;

/// `.bf16`
#[derive(Debug, Clone, Copy)]
pub struct Brain16;

impl Exact for Binary16 {
    const FORMAT: Format = F16;
}

impl Exact for Brain16 {
    const FORMAT: Format = BF16;
}

impl Half for Binary16 {
    const INFINITY: u16 = 0x7c00;
    const ONE: u16 = 0x3c00;
    const LEAST_NORMAL: u16 = 0x0400;
    const MOVES: bool = false;

    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        /// The difference of the exponents of the two formats, as a factor.
        const SCALE: f32 = f32::from_bits((254 - 15) << 23);
        let sign = u32::from(bits & SIGN) << 16;
        let magnitude = f32::from_bits(u32::from(bits & !SIGN) << 13) * SCALE;
        let special = if bits & !SIGN >= Self::INFINITY { 0x7f80_0000 } else { 0 };
        f32::from_bits(magnitude.to_bits() | special | sign)
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        /// Half of the step above the greatest number: from here on, infinity is the nearest.
        const OVERFLOW: u32 = 0x477f_f000;
        /// The least normal number.
        const NORMAL: u32 = 0x3880_0000;
        let bits = value.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        // The last bit of a half is the last bit of a subnormal: the sum rounds there.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
        let even = magnitude.wrapping_add(0xfff + (magnitude >> 13 & 1));
        let normal = even.wrapping_sub(112 << 23) >> 13;
        let finite = if magnitude < NORMAL { subnormal } else { normal };
        let some = if magnitude >= OVERFLOW { 0x7c00 } else { finite };
        if magnitude > 0x7f80_0000 { NAN } else { some as u16 | (bits >> 16) as u16 & SIGN }
    }

    #[inline(always)]
    fn fused_odd(a: f32, b: f32, c: f32) -> f32 {
        // A single holds all 22 bits of the product, and its exponent.
        sum_odd(a * b, c)
    }
}

impl Half for Brain16 {
    const INFINITY: u16 = 0x7f80;
    const ONE: u16 = 0x3f80;
    const LEAST_NORMAL: u16 = 0x0080;
    const MOVES: bool = true;

    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        let even = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        if single::is_nan(bits) { NAN } else { even as u16 }
    }

    #[inline(always)]
    fn fused_odd(a: f32, b: f32, c: f32) -> f32 {
        // A single holds all 16 bits of the product, but not its exponent.
        odd_single(fma_odd(f64::from(a), f64::from(b), f64::from(c)))
    }
}

/// Whether the bits are no number.
#[inline]
#[must_use]
pub fn is_nan<H: Half>(bits: u16) -> bool {
    bits & !SIGN > H::INFINITY
}

/// The bits with a subnormal number replaced by a zero of its sign.
#[inline(always)]
#[must_use]
pub fn flush<H: Half>(bits: u16) -> u16 {
    if bits & !SIGN < H::LEAST_NORMAL { bits & SIGN } else { bits }
}

/// `.sat`: clamped to the range from 0 to 1. A NaN and any negative number are 0.
#[inline(always)]
#[must_use]
pub fn saturate<H: Half>(bits: u16) -> u16 {
    if bits > H::INFINITY { 0 } else { bits.min(H::ONE) }
}

/// `.relu`: negative numbers are 0, a NaN is canonical.
#[inline(always)]
#[must_use]
pub fn relu<H: Half>(bits: u16) -> u16 {
    if is_nan::<H>(bits) {
        NAN
    } else if bits & SIGN != 0 {
        0
    } else {
        bits
    }
}

/// A single cut to a half: rounded towards zero. A NaN is canonical.
#[inline(always)]
#[must_use]
pub fn cut<H: Half>(bits: u32) -> u16 {
    let value = f32::from_bits(bits);
    let near = H::narrow(value);
    near - u16::from(H::widen(near).abs() > value.abs())
}

/// The modifiers of an instruction on halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Modifiers {
    /// `.ftz`
    pub ftz: bool,
    /// `.sat`
    pub sat: bool,
    /// `.relu`
    pub relu: bool,
}

/// A mask of a condition.
#[inline]
const fn all_if(is: bool) -> u16 {
    if is { u16::MAX } else { 0 }
}

/// An operand, as a single.
#[inline(always)]
fn operand<H: Half>(bits: u16, ftz: bool) -> f32 {
    let flushed = flush::<H>(bits);
    H::widen(flushed & all_if(ftz) | bits & all_if(!ftz))
}

/// The register for a result that is exact or rounded to odd. No step has a branch, so that loops over lanes
/// are vectorised.
#[inline(always)]
fn register<H: Half>(exact: f32, modifiers: Modifiers) -> u16 {
    let rounded = H::narrow(exact);
    // As hardware: by as many bits as normal numbers have, which may round it up to the least of those.
    let least = H::widen(H::LEAST_NORMAL);
    let half = f32::from_bits((127 - 2 - H::INFINITY.trailing_zeros()) << 23);
    let limit = if modifiers.ftz { least - least * half } else { 0.0 };
    let flushed = rounded & if exact.abs() < limit { SIGN } else { u16::MAX };
    let (is_relu, is_sat) = (modifiers.relu & !modifiers.sat, modifiers.sat);
    saturate::<H>(flushed) & all_if(is_sat)
        | relu::<H>(flushed) & all_if(is_relu)
        | flushed & all_if(!is_sat & !is_relu)
}

/// `a + b`, rounded to odd: exact, or with the last bit set.
#[inline(always)]
fn sum_odd(a: f32, b: f32) -> f32 {
    let sum = a + b;
    // The error of a sum of singles is a single (Knuth). It is a NaN if the sum is infinite.
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    let inexact = (error > 0.0) | (error < 0.0);
    // The sum is too far from zero if the error has the other sign.
    let away = (error < 0.0) != (sum < 0.0);
    made_odd(sum, inexact, away)
}

/// A double rounded to odd.
#[inline(always)]
fn odd_single(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    made_odd(near, (back < value) | (back > value), back.abs() > value.abs())
}

/// A rounded number with the last bit set if it is inexact; `away` if it is too far from zero.
#[inline(always)]
fn made_odd(near: f32, inexact: bool, away: bool) -> f32 {
    let bits = near.to_bits();
    let changes = u32::from(inexact) & !bits;
    f32::from_bits((bits - (changes & u32::from(away))) | changes & 1)
}

/// `add`.
#[inline(always)]
#[must_use]
pub fn add<H: Half>(a: u16, b: u16, modifiers: Modifiers) -> u16 {
    let (a, b) = (operand::<H>(a, modifiers.ftz), operand::<H>(b, modifiers.ftz));
    register::<H>(sum_odd(a, b), modifiers)
}

/// `sub`.
#[inline(always)]
#[must_use]
pub fn subtract<H: Half>(a: u16, b: u16, modifiers: Modifiers) -> u16 {
    add::<H>(a, b ^ SIGN, modifiers)
}

/// `mul`.
#[inline(always)]
#[must_use]
pub fn multiply<H: Half>(a: u16, b: u16, modifiers: Modifiers) -> u16 {
    // The sum with -0 keeps the sign of a zero.
    fma::<H>(a, b, SIGN, modifiers)
}

/// `fma`: `a * b + c`, rounded once.
#[inline(always)]
#[must_use]
pub fn fma<H: Half>(a: u16, b: u16, c: u16, modifiers: Modifiers) -> u16 {
    let (a, b) = (operand::<H>(a, modifiers.ftz), operand::<H>(b, modifiers.ftz));
    let c = operand::<H>(c, modifiers.ftz);
    register::<H>(H::fused_odd(a, b, c), modifiers)
}

/// The magnitude of the NaN that stands for an element beyond the bounds of a tensor.
const OUT_OF_BOUNDS: u16 = 0x7ff7;

/// `fma` with `.oob`: 0 if a factor is beyond the bounds of its tensor.
#[inline(always)]
#[must_use]
pub fn fma_in_bounds<H: Half>(a: u16, b: u16, c: u16, modifiers: Modifiers) -> u16 {
    let is_outside = |factor: u16| factor & !SIGN == OUT_OF_BOUNDS;
    let result = fma::<H>(a, b, c, modifiers);
    if is_outside(a) || is_outside(b) { 0 } else { result }
}

/// A number that orders the bits of floats as their values; -0 is below +0.
#[inline]
const fn order(bits: u16) -> i16 {
    (bits ^ (((bits as i16) >> 15) as u16 >> 1)) as i16
}

/// The modifiers of `min` and `max` on halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Choice {
    /// `.ftz`
    pub ftz: bool,
    /// `.NaN`: a NaN of either operand is the result.
    pub nan_wins: bool,
    /// `.xorsign.abs`: magnitudes are compared, and the signs are multiplied.
    pub xorsign_abs: bool,
}

/// `min`.
#[inline]
#[must_use]
pub fn min<H: Half>(a: u16, b: u16, choice: Choice) -> u16 {
    choose::<H>(a, b, choice, |a, b| order(a) < order(b))
}

/// `max`.
#[inline]
#[must_use]
pub fn max<H: Half>(a: u16, b: u16, choice: Choice) -> u16 {
    choose::<H>(a, b, choice, |a, b| order(a) > order(b))
}

/// The first if it wins. A NaN wins or loses against a number.
#[inline]
fn choose<H: Half>(a: u16, b: u16, choice: Choice, wins: impl Fn(u16, u16) -> bool) -> u16 {
    let crossed = SIGN & all_if(choice.xorsign_abs);
    let sign = (a ^ b) & crossed;
    let (flushes, keeps) = (all_if(choice.ftz), all_if(!choice.ftz));
    let of = |bits| (flush::<H>(bits) & flushes | bits & keeps) & !crossed;
    let (a, b) = (of(a), of(b));
    let (a_nan, b_nan) = (is_nan::<H>(a), is_nan::<H>(b));
    let is_nan = (a_nan & b_nan) | (choice.nan_wins & (a_nan | b_nan));
    let takes_b = a_nan | (!b_nan & !wins(a, b));
    let chosen = (if takes_b { b } else { a }) | sign;
    if is_nan { NAN } else { chosen }
}

/// `abs`. A NaN is canonical.
#[inline]
#[must_use]
pub fn absolute<H: Half>(a: u16, ftz: bool) -> u16 {
    let magnitude = (if ftz { flush::<H>(a) } else { a }) & !SIGN;
    if is_nan::<H>(a) { NAN } else { magnitude }
}

/// `neg`. A NaN is canonical.
#[inline]
#[must_use]
pub fn negate<H: Half>(a: u16, ftz: bool) -> u16 {
    let opposite = (if ftz { flush::<H>(a) } else { a }) ^ SIGN;
    if is_nan::<H>(a) { NAN } else { opposite }
}

/// Applies a function to both halves of a register.
#[inline(always)]
#[must_use]
pub fn both(a: u32, each: impl Fn(u16) -> u16) -> u32 {
    both_3(a, a, a, |a, _, _| each(a))
}

/// Applies a function to both halves of two registers.
#[inline(always)]
#[must_use]
pub fn both_2(a: u32, b: u32, each: impl Fn(u16, u16) -> u16) -> u32 {
    both_3(a, b, b, |a, b, _| each(a, b))
}

/// Applies a function to both halves of three registers.
#[inline(always)]
#[must_use]
pub fn both_3(a: u32, b: u32, c: u32, each: impl Fn(u16, u16, u16) -> u16) -> u32 {
    // A loop calls the function in one place, so that compilers put it there.
    let (mut result, mut shift) = (0, 0);
    while shift < u32::BITS {
        let half = each((a >> shift) as u16, (b >> shift) as u16, (c >> shift) as u16);
        result |= u32::from(half) << shift;
        shift += u16::BITS;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::Rounding;
    use super::super::number::F32;
    use super::*;

    /// Every value there and back, and its neighbours of `.f32`.
    fn narrows_as_exact_numbers_do<H: Exact>() {
        for bits in 0..=u16::MAX {
            if is_nan::<H>(bits) {
                assert!(H::widen(bits).is_nan());
                continue;
            }
            let wide = H::widen(bits);
            assert_eq!(H::narrow(wide), bits);
            let middle =
                wide.to_bits().wrapping_add(if H::ONE == 0x3c00 { 0x1000 } else { 0x8000 });
            for near in [middle - 1, middle, middle + 1] {
                let value = F32.decode(u64::from(near));
                let expected = H::FORMAT.encode(value, Rounding::Nearest, false) as u16;
                assert_eq!(H::narrow(f32::from_bits(near)), expected, "{near:#x}");
                let expected = H::FORMAT.encode(value, Rounding::Zero, false) as u16;
                assert_eq!(cut::<H>(near), expected, "{near:#x}");
            }
        }
    }

    #[test]
    fn values_narrow_as_exact_numbers_do() {
        narrows_as_exact_numbers_do::<Binary16>();
        narrows_as_exact_numbers_do::<Brain16>();
    }

    /// Sums of products against exact numbers.
    fn fuses_as_exact_numbers_do<H: Exact>() {
        let mut state = 0x9e37_79b9_u32;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as u16
        };
        for _ in 0..100_000 {
            let (a, b, c) = (random(), random(), random());
            let of = |bits| H::FORMAT.decode(u64::from(bits));
            let near = Rounding::Nearest;
            let exact = of(a).multiply(of(b)).add(of(c), near);
            let expected = H::FORMAT.encode(exact, near, false) as u16;
            let got = fma::<H>(a, b, c, Modifiers::default());
            assert_eq!(got, expected, "{a:#x} * {b:#x} + {c:#x}");
            let expected = H::FORMAT.encode(of(a).multiply(of(b)), near, false) as u16;
            assert_eq!(multiply::<H>(a, b, Modifiers::default()), expected, "{a:#x} * {b:#x}");
            let expected = H::FORMAT.encode(of(a).add(of(b), near), near, false) as u16;
            assert_eq!(add::<H>(a, b, Modifiers::default()), expected, "{a:#x} + {b:#x}");
        }
    }

    #[test]
    fn products_and_sums_are_rounded_once() {
        fuses_as_exact_numbers_do::<Binary16>();
        fuses_as_exact_numbers_do::<Brain16>();
    }
}
