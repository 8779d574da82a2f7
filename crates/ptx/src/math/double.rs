//! Arithmetic on `.f64`. Operands and results are the bits of floats.
//!
//! An operand that is no number is the result, quiet and with its sign and payload. If there are
//! several, hardware takes one by its place. An operation without a result gives [`NAN`].

use super::Rounding;
use super::number::{F64, Value};

/// The NaN of an operation without a result, of operands that are numbers.
pub const NAN: u64 = 0xfff8_0000_0000_0000;

/// The bit of the sign.
const SIGN: u64 = 0x8000_0000_0000_0000;

/// The bits of the exponent, all set in infinities and NaNs.
const EXPONENT: u64 = 0x7ff0_0000_0000_0000;

/// Whether the bits are no number.
#[inline]
#[must_use]
pub const fn is_nan(bits: u64) -> bool {
    bits & !SIGN > EXPONENT
}

/// A NaN as operations give it: quiet, with its sign and payload.
#[inline]
#[must_use]
pub const fn quiet(nan: u64) -> u64 {
    nan | 1 << 51
}

/// The register for a result: the first operand that is no number, if there is one.
#[inline(always)]
fn result<const N: usize>(value: f64, operands: [u64; N]) -> u64 {
    result_bits(value.to_bits(), operands)
}

/// As [`result`], of bits.
#[inline(always)]
fn result_bits<const N: usize>(bits: u64, operands: [u64; N]) -> u64 {
    let mut result = if is_nan(bits) { NAN } else { bits };
    let mut place = N;
    while place > 0 {
        place -= 1;
        let operand = operands[place];
        result = if is_nan(operand) { quiet(operand) } else { result };
    }
    result
}

/// `add.rn`.
#[inline]
#[must_use]
pub fn add(a: u64, b: u64) -> u64 {
    result(f64::from_bits(a) + f64::from_bits(b), [b, a])
}

/// `sub.rn`.
#[inline]
#[must_use]
pub fn subtract(a: u64, b: u64) -> u64 {
    result(f64::from_bits(a) - f64::from_bits(b), [b, a])
}

/// `mul.rn`.
#[inline]
#[must_use]
pub fn multiply(a: u64, b: u64) -> u64 {
    result(f64::from_bits(a) * f64::from_bits(b), [b, a])
}

/// `fma.rn`, `mad.rn`.
#[inline]
#[must_use]
pub fn fma(a: u64, b: u64, c: u64) -> u64 {
    result(f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)), [b, c, a])
}

/// `div.rn`.
#[inline]
#[must_use]
pub fn divide(a: u64, b: u64) -> u64 {
    result(f64::from_bits(a) / f64::from_bits(b), [a, b])
}

/// `rcp.rn`.
#[inline]
#[must_use]
pub fn reciprocal(a: u64) -> u64 {
    result(1.0 / f64::from_bits(a), [a])
}

/// `sqrt.rn`.
#[inline]
#[must_use]
pub fn square_root(a: u64) -> u64 {
    result(f64::from_bits(a).sqrt(), [a])
}

/// Whether a float is so far from zero and from infinity that errors of operations on it are exact.
#[inline]
const fn is_moderate(value: f64) -> bool {
    ((value.to_bits() >> 52 & 0x7ff) as u32).wrapping_sub(200) < 1646
}

/// A result rounded in a direction, of the nearest one and the sign of what it lacks. `None` if an
/// operand or the result is extreme, or the rounding has no direction.
#[inline]
fn directed(operands: [f64; 2], nearest: f64, lack: f64, rounding: Rounding) -> Option<u64> {
    if !is_moderate(operands[0]) || !is_moderate(operands[1]) || !is_moderate(nearest) {
        return None;
    }
    let result = match rounding {
        Rounding::Nearest | Rounding::NearestAway => return None,
        Rounding::Down if lack < 0.0 => nearest.next_down(),
        Rounding::Up if lack > 0.0 => nearest.next_up(),
        Rounding::Zero if lack < 0.0 && nearest > 0.0 => nearest.next_down(),
        Rounding::Zero if lack > 0.0 && nearest < 0.0 => nearest.next_up(),
        Rounding::Down | Rounding::Up | Rounding::Zero => nearest,
    };
    Some(result.to_bits())
}

/// `add` with any rounding.
#[inline]
#[must_use]
pub fn add_rounded(a: u64, b: u64, rounding: Rounding) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    let sum = x + y;
    // The error of a sum of doubles is a double (Knuth).
    let second = sum - x;
    let lack = (x - (sum - second)) + (y - second);
    directed([x, y], sum, lack, rounding).unwrap_or_else(|| add_exactly(a, b, rounding))
}

fn add_exactly(a: u64, b: u64, rounding: Rounding) -> u64 {
    rounded(F64.decode(a).add(F64.decode(b), rounding), rounding, [b, a])
}

/// The register for a result of an instruction with a rounding.
fn rounded<const N: usize>(value: Value, rounding: Rounding, operands: [u64; N]) -> u64 {
    result_bits(F64.encode(value, rounding, false), operands)
}

/// `sub` with any rounding.
#[inline]
#[must_use]
pub fn subtract_rounded(a: u64, b: u64, rounding: Rounding) -> u64 {
    if is_nan(b) {
        let difference = F64.decode(a).add(F64.decode(b ^ SIGN), rounding);
        return rounded(difference, rounding, [b, a]);
    }
    add_rounded(a, b ^ SIGN, rounding)
}

/// `mul` with any rounding.
#[inline]
#[must_use]
pub fn multiply_rounded(a: u64, b: u64, rounding: Rounding) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    let product = x * y;
    let lack = x.mul_add(y, -product);
    let quick = directed([x, y], product, lack, rounding);
    quick.unwrap_or_else(|| multiply_exactly(a, b, rounding))
}

fn multiply_exactly(a: u64, b: u64, rounding: Rounding) -> u64 {
    rounded(F64.decode(a).multiply(F64.decode(b)), rounding, [b, a])
}

/// `fma` and `mad` with any rounding.
#[must_use]
pub fn fma_rounded(a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
    let product = F64.decode(a).multiply(F64.decode(b));
    rounded(product.add(F64.decode(c), rounding), rounding, [b, c, a])
}

/// `div` with any rounding.
#[must_use]
pub fn divide_rounded(a: u64, b: u64, rounding: Rounding) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    let quotient = x / y;
    let rest = (-quotient).mul_add(y, x);
    let lack = if y < 0.0 { -rest } else { rest };
    directed([x, y], quotient, lack, rounding).unwrap_or_else(|| divide_exactly(a, b, rounding))
}

fn divide_exactly(a: u64, b: u64, rounding: Rounding) -> u64 {
    rounded(F64.decode(a).divide(F64.decode(b)), rounding, [a, b])
}

/// `rcp` with any rounding.
#[must_use]
pub fn reciprocal_rounded(a: u64, rounding: Rounding) -> u64 {
    rounded(F64.decode(1.0_f64.to_bits()).divide(F64.decode(a)), rounding, [a])
}

/// `sqrt` with any rounding.
#[must_use]
pub fn square_root_rounded(a: u64, rounding: Rounding) -> u64 {
    rounded(F64.decode(a).square_root(), rounding, [a])
}

/// A number that orders the bits of floats as their values; -0 is below +0.
#[inline]
const fn order(bits: u64) -> i64 {
    (bits ^ (((bits as i64) >> 63) as u64 >> 1)) as i64
}

/// `min`. The other operand is the result if one is no number.
#[inline]
#[must_use]
pub const fn min(a: u64, b: u64) -> u64 {
    choose(a, b, order(a) < order(b))
}

/// `max`. See [`min`].
#[inline]
#[must_use]
pub const fn max(a: u64, b: u64) -> u64 {
    choose(a, b, order(a) > order(b))
}

/// The first if it wins. A NaN loses against a number.
#[inline]
const fn choose(a: u64, b: u64, first: bool) -> u64 {
    let (a_nan, b_nan) = (is_nan(a), is_nan(b));
    if a_nan && b_nan {
        quiet(b)
    } else if a_nan || !b_nan && !first {
        b
    } else {
        a
    }
}

/// `abs`. A NaN keeps its sign.
#[inline]
#[must_use]
pub const fn absolute(a: u64) -> u64 {
    if is_nan(a) { quiet(a) } else { a & !SIGN }
}

/// `neg`. A NaN keeps its sign.
#[inline]
#[must_use]
pub const fn negate(a: u64) -> u64 {
    if is_nan(a) { quiet(a) } else { a ^ SIGN }
}

/// `copysign`: the magnitude of `b` with the sign of `a`.
#[inline]
#[must_use]
pub const fn copy_sign(a: u64, b: u64) -> u64 {
    a & SIGN | b & !SIGN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_numbers_round_to_nearest_as_the_machine_does() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let near = Rounding::Nearest;
        for _ in 0..20_000 {
            let (a, mut b) = (random(), random());
            // Exponents near each other meet the hard cases of sums.
            if a & 1 == 0 {
                b = a & EXPONENT | b & !EXPONENT;
            }
            let c = multiply(a, b) ^ SIGN ^ (b & 3);
            assert_eq!(add_rounded(a, b, near), add(a, b), "{a:#x} + {b:#x}");
            assert_eq!(multiply_rounded(a, b, near), multiply(a, b), "{a:#x} * {b:#x}");
            assert_eq!(divide_rounded(a, b, near), divide(a, b), "{a:#x} / {b:#x}");
            assert_eq!(fma_rounded(a, b, c, near), fma(a, b, c), "{a:#x} {b:#x} {c:#x}");
            assert_eq!(square_root_rounded(a, near), square_root(a), "{a:#x}");
        }
    }

    #[test]
    fn directed_results_are_the_exact_ones_rounded() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let directions = [Rounding::Zero, Rounding::Down, Rounding::Up];
        for round in 0..60_000 {
            let (a, mut b) = (random(), random());
            if round % 2 == 0 {
                // Exponents near each other, and short numbers with exact results.
                b = a & EXPONENT | b & !EXPONENT;
            }
            let short = if round % 3 == 0 { u64::MAX << 28 } else { u64::MAX };
            let (a, b) = (a & short, b & short);
            for rounding in directions {
                let case = format!("{a:#x} {b:#x} {rounding:?}");
                assert_eq!(add_rounded(a, b, rounding), add_exactly(a, b, rounding), "{case}");
                let product = multiply_exactly(a, b, rounding);
                assert_eq!(multiply_rounded(a, b, rounding), product, "{case}");
                let quotient = divide_exactly(a, b, rounding);
                assert_eq!(divide_rounded(a, b, rounding), quotient, "{case}");
            }
        }
    }
}
