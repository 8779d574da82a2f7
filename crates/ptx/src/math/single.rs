//! Arithmetic on `.f32`. Operands and results are the bits of floats.
//!
//! `FTZ` is the modifier `.ftz`: subnormal operands and results become zeros of their sign, and so
//! does a result that is below the least normal number after it is rounded to 24 bits. `SAT` is
//! `.sat`: results are clamped to the range from 0 to 1, and a NaN becomes 0. A result that is no
//! number is the canonical NaN, 0x7fffffff.

/// The NaN that operations give.
pub const NAN: u32 = 0x7fff_ffff;

/// The bit of the sign.
pub(super) const SIGN: u32 = 0x8000_0000;

/// The bits of the fraction.
pub(super) const FRACTION: u32 = 0x007f_ffff;

/// The bits of the exponent, all set in infinities and NaNs.
pub(super) const EXPONENT: u32 = 0x7f80_0000;

/// The float with these bits, a zero if it is subnormal and the instruction has `.ftz`.
#[inline]
#[must_use]
pub const fn operand<const FTZ: bool>(bits: u32) -> f32 {
    f32::from_bits(if FTZ { flush(bits) } else { bits })
}

/// The bits with a subnormal number replaced by a zero of its sign.
#[inline]
#[must_use]
pub const fn flush(bits: u32) -> u32 {
    if bits & EXPONENT == 0 { bits & SIGN } else { bits }
}

/// Whether the bits are no number.
#[inline]
#[must_use]
pub const fn is_nan(bits: u32) -> bool {
    bits & !SIGN > EXPONENT
}

/// The register for a result: the canonical NaN, and the modifiers of the instruction.
#[inline]
#[must_use]
pub const fn result<const FTZ: bool, const SAT: bool>(value: f32) -> u32 {
    result_bits(value.to_bits(), FTZ, SAT)
}

/// As [`result`], for modifiers that are no constants.
#[inline]
#[must_use]
pub const fn result_bits(bits: u32, ftz: bool, sat: bool) -> u32 {
    if sat {
        return saturate(if ftz { flush(bits) } else { bits });
    }
    let bits = if is_nan(bits) { NAN } else { bits };
    if ftz { flush(bits) } else { bits }
}

/// `.sat`: the bits clamped to the range from 0 to 1. A NaN and any negative number are 0.
#[inline]
#[must_use]
pub const fn saturate(bits: u32) -> u32 {
    const ONE: u32 = 0x3f80_0000;
    if bits > EXPONENT {
        0
    } else if bits > ONE {
        ONE
    } else {
        bits
    }
}

/// `add.rn`.
#[inline]
#[must_use]
pub fn add<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    result::<FTZ, SAT>(operand::<FTZ>(a) + operand::<FTZ>(b))
}

/// `sub.rn`.
#[inline]
#[must_use]
pub fn subtract<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    result::<FTZ, SAT>(operand::<FTZ>(a) - operand::<FTZ>(b))
}

/// `mul.rn`.
#[inline]
#[must_use]
pub fn multiply<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    let (a, b) = (operand::<FTZ>(a), operand::<FTZ>(b));
    if FTZ {
        return narrow::<SAT>(f64::from(a) * f64::from(b));
    }
    result::<FTZ, SAT>(a * b)
}

/// `fma.rn`, `mad.rn`.
#[inline]
#[must_use]
pub fn fma<const FTZ: bool, const SAT: bool>(a: u32, b: u32, c: u32) -> u32 {
    let (a, b, c) = (operand::<FTZ>(a), operand::<FTZ>(b), operand::<FTZ>(c));
    let exact = fma_odd(f64::from(a), f64::from(b), f64::from(c));
    if FTZ { narrow::<SAT>(exact) } else { result::<FTZ, SAT>(exact as f32) }
}

/// `fma.rn`, `mad.rn` without `.ftz`, as [`fma`] gives them: fast where the machine has the
/// instruction.
#[inline]
#[must_use]
pub fn fma_native<const SAT: bool>(a: u32, b: u32, c: u32) -> u32 {
    result::<false, SAT>(f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)))
}

/// The least magnitude that is rounded up to the least normal number by its first 24 bits: half of the last one
/// below that number. With `.ftz`, what is below it is zero.
pub(super) const TINY: f64 = f32::MIN_POSITIVE as f64 * (1.0 - 1.0 / (1 << 25) as f64);

/// The register for a result with `.ftz`, of a double: its own rounding decides nothing.
#[inline]
fn narrow<const SAT: bool>(exact: f64) -> u32 {
    let tiny = exact.abs() < TINY;
    // A tiny number is masked before it is converted, which takes processors long for those.
    let kept = if tiny { 1 << 63 } else { u64::MAX };
    let bits = (f64::from_bits(exact.to_bits() & kept) as f32).to_bits();
    result_bits(bits, false, SAT)
}

/// `a * b + c` for a product that a double holds exactly, rounded to odd: the last bit is set if
/// the result is not exact. A second rounding to fewer bits then gives what one rounding gives.
///
/// It needs no instruction for fused products, so that loops over it are vectorised on every
/// machine.
#[inline]
pub(super) fn fma_odd(a: f64, b: f64, c: f64) -> f64 {
    sum_odd(a * b, c)
}

/// `a + b`, likewise.
#[inline]
pub(super) fn sum_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // The error of a sum of doubles is a double (Knuth).
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    let bits = sum.to_bits();
    // False for the NaN that an infinite sum gives.
    let inexact = (error > 0.0) | (error < 0.0);
    // The sum is too far from zero if the error has the other sign.
    let away = (error < 0.0) != (sum < 0.0);
    let changes = u64::from(inexact) & !bits;
    f64::from_bits((bits - (changes & u64::from(away))) | changes & 1)
}

/// A double that is no less than the least normal single, or zero, cut to a single.
#[inline(always)]
pub(super) fn normal_cut(value: f64) -> u32 {
    // A single has 29 bits less: without them nothing is rounded.
    (f64::from_bits(value.to_bits() & !0x1fff_ffff) as f32).to_bits()
}

/// A double that is closer to zero than any normal single, cut.
pub(super) fn subnormal_cut(value: f64) -> u32 {
    // In units of 2^-149, the least single: their conversion to an integer cuts.
    let units = value.abs() * f64::from_bits((1023 + 149) << 52);
    units as u32 | if value < 0.0 { SIGN } else { 0 }
}

/// `div.rn`.
#[inline]
#[must_use]
pub fn divide<const FTZ: bool>(a: u32, b: u32) -> u32 {
    let (a, b) = (operand::<FTZ>(a), operand::<FTZ>(b));
    if FTZ {
        // No quotient of singles is so close to a place between two singles that a double is across it.
        return narrow::<false>(f64::from(a) / f64::from(b));
    }
    result::<FTZ, false>(a / b)
}

/// `rcp.rn`.
#[inline]
#[must_use]
pub fn reciprocal<const FTZ: bool>(a: u32) -> u32 {
    result::<FTZ, false>(1.0 / operand::<FTZ>(a))
}

/// `sqrt.rn`.
#[inline]
#[must_use]
pub fn square_root<const FTZ: bool>(a: u32) -> u32 {
    result::<FTZ, false>(operand::<FTZ>(a).sqrt())
}

/// A number that orders the bits of floats as their values; -0 is below +0.
#[inline]
const fn order(bits: u32) -> i32 {
    (bits ^ (((bits as i32) >> 31) as u32 >> 1)) as i32
}

/// `min`. `NAN_WINS` is the modifier `.NaN`: a NaN of either operand is the result. Without it, the
/// other operand is.
#[inline]
#[must_use]
pub const fn min<const FTZ: bool, const NAN_WINS: bool>(a: u32, b: u32) -> u32 {
    let (a, b) = if FTZ { (flush(a), flush(b)) } else { (a, b) };
    choose::<NAN_WINS>(a, b, order(a) < order(b))
}

/// `max`. See [`min`].
#[inline]
#[must_use]
pub const fn max<const FTZ: bool, const NAN_WINS: bool>(a: u32, b: u32) -> u32 {
    let (a, b) = if FTZ { (flush(a), flush(b)) } else { (a, b) };
    choose::<NAN_WINS>(a, b, order(a) > order(b))
}

/// The first if it wins. A NaN wins or loses against a number.
#[inline]
const fn choose<const NAN_WINS: bool>(a: u32, b: u32, first: bool) -> u32 {
    let (a_nan, b_nan) = (is_nan(a), is_nan(b));
    if a_nan && b_nan || NAN_WINS && (a_nan || b_nan) {
        NAN
    } else if a_nan || !b_nan && !first {
        b
    } else {
        a
    }
}

/// `min.xorsign.abs`: the lesser magnitude, with the signs multiplied.
#[inline]
#[must_use]
pub const fn min_xorsign_abs<const FTZ: bool, const NAN_WINS: bool>(a: u32, b: u32) -> u32 {
    xorsign(min::<FTZ, NAN_WINS>(a & !SIGN, b & !SIGN), a, b)
}

/// `max.xorsign.abs`: the greater magnitude, with the signs multiplied.
#[inline]
#[must_use]
pub const fn max_xorsign_abs<const FTZ: bool, const NAN_WINS: bool>(a: u32, b: u32) -> u32 {
    xorsign(max::<FTZ, NAN_WINS>(a & !SIGN, b & !SIGN), a, b)
}

/// A magnitude with the product of two signs.
#[inline]
const fn xorsign(magnitude: u32, a: u32, b: u32) -> u32 {
    if is_nan(magnitude) { NAN } else { magnitude | (a ^ b) & SIGN }
}

/// `abs`. A NaN is canonical.
#[inline]
#[must_use]
pub const fn absolute<const FTZ: bool>(a: u32) -> u32 {
    result_bits(a & !SIGN, FTZ, false)
}

/// `neg`. A NaN is canonical.
#[inline]
#[must_use]
pub const fn negate<const FTZ: bool>(a: u32) -> u32 {
    result_bits(a ^ SIGN, FTZ, false)
}

/// `copysign`: the magnitude of `b` with the sign of `a`.
#[inline]
#[must_use]
pub const fn copy_sign(a: u32, b: u32) -> u32 {
    a & SIGN | b & !SIGN
}

#[cfg(test)]
mod tests {
    use super::super::Rounding;
    use super::super::directed::{self, How};
    use super::*;

    /// As an H100: a result is tiny if it is below the least normal number after it is rounded to 24 bits.
    #[test]
    fn results_that_24_bits_round_up_to_the_least_normal_number_are_no_zeros() {
        const LEAST: u32 = 0x0080_0000;
        let how = |rounding| How::new(rounding, true, false);
        let product = |a, b| {
            let fused = fma::<true, false>(a, b, SIGN);
            assert_eq!(fused, directed::fma(a, b, SIGN, how(Rounding::Nearest)));
            assert_eq!(fused, directed::multiply(a, b, how(Rounding::Nearest)));
            assert_eq!(fused, multiply::<true, false>(a, b));
            fused
        };
        // The exact product has 24 bits, and is rounded up as a subnormal only.
        assert_eq!(product(0x3f7f_ffff, LEAST), 0);
        assert_eq!(product(0x3f7f_fffe, LEAST + 1), LEAST);
        assert_eq!(product(0x3f80_0000 - 2 * 1448, LEAST + 1448), LEAST);
        assert_eq!(product(0x3f80_0000 - 2 * 1449, LEAST + 1449), 0);
        // A quotient of the same kind.
        assert_eq!(divide::<true>(0x817f_ffff, 0xc080_0000), 0);
        assert_eq!(directed::divide(0x817f_ffff, 0xc080_0000, how(Rounding::Nearest)), 0);
        // The least normal number, but for a little.
        assert_eq!(fma::<true, false>(LEAST, LEAST, LEAST | SIGN), LEAST | SIGN);
        let by = |rounding| directed::fma(LEAST, LEAST, LEAST | SIGN, how(rounding));
        assert_eq!(by(Rounding::Down), LEAST | SIGN);
        assert_eq!(by(Rounding::Up), SIGN);
        assert_eq!(by(Rounding::Zero), SIGN);
    }

    /// Numbers with every kind of exponent, from a fixed seed.
    fn samples() -> Vec<u32> {
        let edges = [0, 1, 0x7f_ffff, 0x80_0000, 0x3f80_0000, 0x7f7f_ffff, EXPONENT, NAN];
        let mut state = 0x9e37_79b9_u32;
        let random = (0..200).map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        });
        edges.into_iter().flat_map(|bits| [bits, bits | SIGN]).chain(random).collect()
    }

    #[test]
    fn a_fused_product_is_rounded_once() {
        let all = samples();
        for &a in &all {
            for &b in &all {
                // A third operand near the product meets the hard cases.
                let near = (f32::from_bits(a) * f32::from_bits(b)).to_bits() ^ (SIGN | a & 3);
                for c in [b.rotate_left(7), near, 1, SIGN] {
                    let exact = f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c));
                    let expected = result::<false, false>(exact);
                    assert_eq!(fma::<false, false>(a, b, c), expected, "{a:#x} {b:#x} {c:#x}");
                    let native = fma_native::<false>(a, b, c);
                    assert_eq!(native, expected, "{a:#x} {b:#x} {c:#x}");
                }
            }
        }
    }
}
