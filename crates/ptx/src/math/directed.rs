//! Arithmetic on `.f32` with any rounding.
//!
//! An exact result, or one rounded to odd, is in a double first. One step then rounds it to a single. No
//! step has a branch, so that loops over lanes are vectorised.

use super::Rounding;
use super::single::{EXPONENT, SIGN, TINY, result_bits, sum_odd};

/// The bit of the sign of a double.
const WIDE_SIGN: u64 = 1 << 63;

/// The least normal single.
const NORMAL: f64 = f32::MIN_POSITIVE as f64;

/// The least double that a single of 24 bits with any exponent rounds up to [`NORMAL`].
const ROUNDED_UP: f64 = {
    let below = NORMAL * (1.0 - 1.0 / (1 << 24) as f64);
    f64::from_bits(below.to_bits() + 1)
};

/// The rounding of an instruction and its modifiers, as masks and limits.
#[derive(Debug, Clone, Copy)]
pub struct How {
    /// All bits if the nearest single is stepped down where it is above the result.
    steps: u32,
    /// The bits of a result that are its sign and turn it around for the step, and those that always do.
    turned_by_sign: u64,
    turned: u64,
    /// The sign that an exact zero gets of operands with unlike signs.
    zero_sign: u64,
    /// A positive result below this becomes zero, and a negative one closer to zero than the other.
    tiny: f64,
    tiny_below: f64,
    /// The bits of a subnormal operand that count.
    subnormal: u32,
    /// All bits with `.sat`.
    saturated: u32,
}

impl How {
    /// A rounding, `.ftz` and `.sat`. Nearest means ties to even.
    #[inline]
    #[must_use]
    pub const fn new(rounding: Rounding, ftz: bool, sat: bool) -> Self {
        let is_near = matches!(rounding, Rounding::Nearest | Rounding::NearestAway);
        let (tiny, tiny_below) = match rounding {
            _ if !ftz => (0.0, 0.0),
            Rounding::Nearest | Rounding::NearestAway => (TINY, TINY),
            Rounding::Zero => (NORMAL, NORMAL),
            Rounding::Down => (NORMAL, ROUNDED_UP),
            Rounding::Up => (ROUNDED_UP, NORMAL),
        };
        Self {
            steps: if is_near { 0 } else { u32::MAX },
            turned_by_sign: sign_if(matches!(rounding, Rounding::Zero)),
            turned: sign_if(matches!(rounding, Rounding::Up)),
            zero_sign: sign_if(matches!(rounding, Rounding::Down)),
            tiny,
            tiny_below,
            subnormal: if ftz { SIGN } else { u32::MAX },
            saturated: if sat { u32::MAX } else { 0 },
        }
    }

    /// Whether the instruction has `.sat`.
    #[inline]
    #[must_use]
    pub const fn saturates(self) -> bool {
        self.saturated != 0
    }

    /// An operand, as a double.
    #[inline]
    fn operand(self, bits: u32) -> f64 {
        let is_subnormal = bits & EXPONENT == 0;
        f64::from(f32::from_bits(bits & if is_subnormal { self.subnormal } else { u32::MAX }))
    }

    /// The bits of a result that turn it, so that it is rounded down.
    #[inline]
    fn turn(self, value: f64) -> u64 {
        value.to_bits() & self.turned_by_sign | self.turned
    }

    /// The register for a sum. One that is zero has the sign of both numbers, or the one that the rounding
    /// gives.
    #[inline]
    fn sum(self, a: f64, b: f64) -> u32 {
        let (sum, sign) = (sum_odd(a, b), (a.to_bits() | b.to_bits()) & self.zero_sign);
        self.register(f64::from_bits(sum.to_bits() | if sum == 0.0 { sign } else { 0 }))
    }

    /// The register for a result that is exact or rounded to odd.
    #[inline]
    fn register(self, exact: f64) -> u32 {
        let turn = self.turn(exact);
        let turned = f64::from_bits(exact.to_bits() ^ turn);
        let near = turned as f32;
        self.stepped(near, f64::from(near) > turned, turn, exact)
    }

    /// The register for a result, of the nearest single of its turned form, and whether that is above it.
    #[inline]
    fn stepped(self, near: f32, above: bool, turn: u64, value: f64) -> u32 {
        let bits = near.to_bits();
        let step = if bits & SIGN == 0 { u32::MAX } else { 1 };
        let rounded = bits.wrapping_add(if above { step & self.steps } else { 0 });
        let back = rounded ^ (turn >> 32) as u32;
        let limit = if value < 0.0 { self.tiny_below } else { self.tiny };
        let flushed = back & if value.abs() < limit { SIGN } else { u32::MAX };
        let (clamped, plain) =
            (result_bits(flushed, false, true), result_bits(flushed, false, false));
        clamped & self.saturated | plain & !self.saturated
    }
}

/// The bit of a double's sign, or none.
const fn sign_if(is: bool) -> u64 {
    if is { WIDE_SIGN } else { 0 }
}

/// The number that a double is; a NaN is canonical.
#[inline]
#[must_use]
pub fn from_double(bits: u64, how: How) -> u32 {
    how.register(f64::from_bits(bits))
}

/// `add`
#[inline]
#[must_use]
pub fn add(a: u32, b: u32, how: How) -> u32 {
    how.sum(how.operand(a), how.operand(b))
}

/// `sub`
#[inline]
#[must_use]
pub fn subtract(a: u32, b: u32, how: How) -> u32 {
    add(a, b ^ SIGN, how)
}

/// `mul`
#[inline]
#[must_use]
pub fn multiply(a: u32, b: u32, how: How) -> u32 {
    // A double holds all bits of the product.
    how.register(how.operand(a) * how.operand(b))
}

/// `fma` and `mad`
#[inline]
#[must_use]
pub fn fma(a: u32, b: u32, c: u32, how: How) -> u32 {
    // A double holds all bits of the product.
    how.sum(how.operand(a) * how.operand(b), how.operand(c))
}

/// `div`
#[inline]
#[must_use]
pub fn divide(a: u32, b: u32, how: How) -> u32 {
    let (a, b) = (how.operand(a), how.operand(b));
    let quotient = a / b;
    let turn = how.turn(quotient);
    // No quotient of singles is so close to a place between two singles that a double is across it.
    let near = f64::from_bits(quotient.to_bits() ^ turn) as f32;
    // A double holds the product of both singles, so that it tells which side the quotient is on.
    let sign = b.to_bits() & WIDE_SIGN;
    let back = (f64::from(near) * b).to_bits() ^ sign;
    let above = f64::from_bits(back) > f64::from_bits(a.to_bits() ^ turn ^ sign);
    how.stepped(near, above, turn, quotient)
}

/// `rcp`
#[inline]
#[must_use]
pub fn reciprocal(a: u32, how: How) -> u32 {
    divide(1.0_f32.to_bits(), a, how)
}

/// `sqrt`
#[inline]
#[must_use]
pub fn square_root(a: u32, how: How) -> u32 {
    let a = how.operand(a);
    let root = a.sqrt();
    let turn = how.turn(root);
    let near = f64::from_bits(root.to_bits() ^ turn) as f32;
    // The square has the sign of the turned root, as the radicand it is compared with.
    let square = f64::from(near) * f64::from(near.abs());
    let above = square > f64::from_bits(a.to_bits() ^ turn);
    how.stepped(near, above, turn, root)
}

#[cfg(test)]
mod tests {
    use super::super::number::{F32, Value};
    use super::super::single::{self, flush};
    use super::*;

    const ROUNDINGS: [Rounding; 4] =
        [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up];

    /// The modifiers of an instruction.
    type Modifiers = (Rounding, bool, bool);

    fn all_modifiers() -> impl Iterator<Item = Modifiers> {
        let flags = [(false, false), (true, false), (false, true), (true, true)];
        ROUNDINGS.into_iter().flat_map(move |by| flags.map(|(ftz, sat)| (by, ftz, sat)))
    }

    fn operand(bits: u32, ftz: bool) -> Value {
        F32.decode(u64::from(if ftz { flush(bits) } else { bits }))
    }

    /// The register for an exact number.
    fn register(value: Value, (rounding, ftz, sat): Modifiers) -> u32 {
        let bits = F32.encode(value, rounding, false) as u32;
        let flushed = if ftz && F32.is_tiny(value, rounding) { bits & SIGN } else { bits };
        result_bits(flushed, false, sat)
    }

    /// Numbers with every kind of exponent, from a fixed seed.
    fn samples() -> Vec<u32> {
        let edges = [
            0,
            1,
            2,
            0x40_0000,
            0x7f_ffff,
            0x80_0000,
            0x80_0001,
            0x3f80_0000,
            0x3f80_0001,
            0x7f7f_ffff,
            0x7f80_0000,
            single::NAN,
        ];
        let mut state = 0x9e37_79b9_u32;
        let random = (0..150).map(|index| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            // Every other one is close to 1, so that sums cancel and round.
            if index % 2 == 0 { state } else { state & 0x81ff_ffff | 0x3e00_0000 }
        });
        edges.into_iter().flat_map(|bits| [bits, bits | SIGN]).chain(random).collect()
    }

    #[test]
    fn sums_products_and_quotients_are_the_exact_ones_rounded() {
        let all = samples();
        for modifiers in all_modifiers() {
            let (by, ftz, sat) = modifiers;
            let how = How::new(by, ftz, sat);
            for &a in &all {
                for &b in &all {
                    let (x, y) = (operand(a, ftz), operand(b, ftz));
                    let of = |value| register(value, modifiers);
                    let case = format!("{a:#x} {b:#x} {modifiers:?}");
                    assert_eq!(add(a, b, how), of(x.add(y, by)), "+ {case}");
                    let opposite = operand(b ^ SIGN, ftz);
                    assert_eq!(subtract(a, b, how), of(x.add(opposite, by)), "- {case}");
                    assert_eq!(multiply(a, b, how), of(x.multiply(y)), "* {case}");
                    assert_eq!(divide(a, b, how), of(x.divide(y)), "/ {case}");
                }
            }
        }
    }

    #[test]
    fn fused_products_are_the_exact_ones_rounded() {
        let all = samples();
        for modifiers in all_modifiers() {
            let (by, ftz, sat) = modifiers;
            let how = How::new(by, ftz, sat);
            for &a in all.iter().step_by(3) {
                for &b in &all {
                    // A third operand near the product meets the hard cases.
                    let near = (f32::from_bits(a) * f32::from_bits(b)).to_bits() ^ (SIGN | a & 3);
                    for c in [b.rotate_left(7), near, 1, SIGN] {
                        let product = operand(a, ftz).multiply(operand(b, ftz));
                        let expected = register(product.add(operand(c, ftz), by), modifiers);
                        let got = fma(a, b, c, how);
                        assert_eq!(got, expected, "{a:#x} {b:#x} {c:#x} {modifiers:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn roots_and_reciprocals_are_the_exact_ones_rounded() {
        let squares = (0..200_u32).map(|root| ((root * root) as f32).to_bits());
        let all: Vec<_> = samples().into_iter().chain(squares).collect();
        for modifiers in all_modifiers() {
            let (by, ftz, sat) = modifiers;
            let how = How::new(by, ftz, sat);
            for &a in &all {
                let exact = operand(a, ftz);
                let case = format!("{a:#x} {modifiers:?}");
                let root = register(exact.square_root(), modifiers);
                assert_eq!(square_root(a, how), root, "root of {case}");
                let one = F32.decode(1.0_f32.to_bits().into());
                let expected = register(one.divide(exact), modifiers);
                assert_eq!(reciprocal(a, how), expected, "1 / {case}");
            }
        }
    }

    #[test]
    fn directed_roundings_enclose_the_nearest() {
        let all = samples();
        for (&a, &b) in all.iter().zip(all.iter().rev()) {
            let by = |rounding| f32::from_bits(multiply(a, b, How::new(rounding, false, false)));
            let [near, zero, down, up] = ROUNDINGS.map(by);
            if near.is_nan() {
                continue;
            }
            assert!(down <= near && near <= up && (down == near || near == up), "{a:#x} {b:#x}");
            let inner = if near.is_sign_negative() { up } else { down };
            assert_eq!(zero.to_bits(), inner.to_bits(), "{a:#x} {b:#x}");
        }
    }
}
