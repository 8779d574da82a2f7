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

    #[inline]
    fn widen(bits: u16) -> f32 {
        /// The difference of the exponents of the two formats, as a factor.
        const SCALE: f32 = f32::from_bits((254 - 15) << 23);
        let sign = u32::from(bits & SIGN) << 16;
        let magnitude = f32::from_bits(u32::from(bits & !SIGN) << 13) * SCALE;
        let special = if bits & !SIGN >= Self::INFINITY { 0x7f80_0000 } else { 0 };
        f32::from_bits(magnitude.to_bits() | special | sign)
    }

    #[inline]
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
}

impl Half for Brain16 {
    const INFINITY: u16 = 0x7f80;
    const ONE: u16 = 0x3f80;
    const LEAST_NORMAL: u16 = 0x0080;
    const MOVES: bool = true;

    #[inline]
    fn widen(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    #[inline]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        let even = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        if single::is_nan(bits) { NAN } else { even as u16 }
    }
}

/// Whether the bits are no number.
#[inline]
#[must_use]
pub fn is_nan<H: Half>(bits: u16) -> bool {
    bits & !SIGN > H::INFINITY
}

/// The bits with a subnormal number replaced by a zero of its sign.
#[inline]
#[must_use]
pub fn flush<H: Half>(bits: u16) -> u16 {
    if bits & !SIGN < H::LEAST_NORMAL { bits & SIGN } else { bits }
}

/// `.sat`: clamped to the range from 0 to 1. A NaN and any negative number are 0.
#[inline]
#[must_use]
pub fn saturate<H: Half>(bits: u16) -> u16 {
    if bits > H::INFINITY { 0 } else { bits.min(H::ONE) }
}

/// `.relu`: negative numbers are 0, a NaN is canonical.
#[inline]
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

/// `a * b + c`, rounded once.
#[inline]
fn fused<H: Half>(a: u16, b: u16, c: u16, modifiers: Modifiers) -> u16 {
    let of = |bits| f64::from(H::widen(if modifiers.ftz { flush::<H>(bits) } else { bits }));
    let exact = odd_single(fma_odd(of(a), of(b), of(c)));
    let rounded = H::narrow(exact);
    // As hardware: by as many bits as normal numbers have, which may round it up to the least of those.
    let least = H::widen(H::LEAST_NORMAL);
    let half = f32::from_bits((127 - 2 - H::INFINITY.trailing_zeros()) << 23);
    let tiny = modifiers.ftz && exact.abs() < least - least * half;
    let flushed = if tiny { rounded & SIGN } else { rounded };
    if modifiers.sat {
        saturate::<H>(flushed)
    } else if modifiers.relu {
        relu::<H>(flushed)
    } else {
        flushed
    }
}

/// A double rounded to odd: exact, or with the last bit set.
#[inline]
fn odd_single(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    let inexact = (back < value) | (back > value);
    let bits = near.to_bits();
    let odd = (bits - u32::from(back.abs() > value.abs())) | 1;
    f32::from_bits(if inexact && bits & 1 == 0 { odd } else { bits })
}

/// `add`.
#[inline]
#[must_use]
pub fn add<H: Half>(a: u16, b: u16, modifiers: Modifiers) -> u16 {
    fused::<H>(a, H::ONE, b, modifiers)
}

/// `sub`.
#[inline]
#[must_use]
pub fn subtract<H: Half>(a: u16, b: u16, modifiers: Modifiers) -> u16 {
    fused::<H>(a, H::ONE, b ^ SIGN, modifiers)
}

/// `mul`.
#[inline]
#[must_use]
pub fn multiply<H: Half>(a: u16, b: u16, modifiers: Modifiers) -> u16 {
    // The sum with -0 keeps the sign of a zero.
    fused::<H>(a, b, SIGN, modifiers)
}

/// `fma`.
#[inline]
#[must_use]
pub fn fma<H: Half>(a: u16, b: u16, c: u16, modifiers: Modifiers) -> u16 {
    fused::<H>(a, b, c, modifiers)
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
    let sign = if choice.xorsign_abs { (a ^ b) & SIGN } else { 0 };
    let of = |bits| {
        let bits = if choice.ftz { flush::<H>(bits) } else { bits };
        if choice.xorsign_abs { bits & !SIGN } else { bits }
    };
    let (a, b) = (of(a), of(b));
    let (a_nan, b_nan) = (is_nan::<H>(a), is_nan::<H>(b));
    if a_nan && b_nan || choice.nan_wins && (a_nan || b_nan) {
        NAN
    } else if a_nan || !b_nan && !wins(a, b) {
        b | sign
    } else {
        a | sign
    }
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
#[inline]
#[must_use]
pub fn both(a: u32, each: impl Fn(u16) -> u16) -> u32 {
    u32::from(each((a >> 16) as u16)) << 16 | u32::from(each(a as u16))
}

/// Applies a function to both halves of two registers.
#[inline]
#[must_use]
pub fn both_2(a: u32, b: u32, each: impl Fn(u16, u16) -> u16) -> u32 {
    let high = each((a >> 16) as u16, (b >> 16) as u16);
    u32::from(high) << 16 | u32::from(each(a as u16, b as u16))
}

/// Applies a function to both halves of three registers.
#[inline]
#[must_use]
pub fn both_3(a: u32, b: u32, c: u32, each: impl Fn(u16, u16, u16) -> u16) -> u32 {
    let high = each((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16);
    u32::from(high) << 16 | u32::from(each(a as u16, b as u16, c as u16))
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
