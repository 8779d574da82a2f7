//! The hyperbolic tangent, bit by bit as an H200 computes it.
//!
//! Its segments follow the binades of the argument. Each has 17 bits of the argument within it, and those
//! behind are not looked at.

use super::coefficients::{Segment, TANGENT};
use super::half::{self, Half};
use super::polynomial::square;
use super::single::{EXPONENT, FRACTION, NAN, SIGN, normal_cut};

/// The exponents of the first binade with segments, and of the first one in which the result is 1.
const FIRST: i32 = -8;
const ONE_FROM: i32 = 3;
const BINADES: usize = (ONE_FROM - FIRST) as usize;

/// How many bits after the first say which segment of a binade it is: four bits for each binade.
const SEGMENT_BITS: u64 = 0x343_2221_1000;

/// For each sixteenth of a binade its segment, with terms as doubles, which hold their sums exactly.
static SEGMENTS: [[f64; 3]; BINADES * 16] = segments(&TANGENT);

const fn segments(table: &[Segment; 51]) -> [[f64; 3]; BINADES * 16] {
    let mut segments = [[0.0; 3]; BINADES * 16];
    let (mut at, mut binade) = (0, 0);
    while binade < BINADES {
        let count = 1 << segment_bits(binade as u32);
        // A result is in the binade behind its argument's at most, and below 1.
        let above = FIRST + binade as i32 + 1;
        let exponent = if above < 0 { above } else { 0 };
        // The last bit of a result, and what the factors have below it.
        let unit = power_of_two(exponent - 24);
        let mut sixteenth = 0;
        while sixteenth < 16 {
            let [constant, linear, quadratic] = table[at + sixteenth * count / 16];
            segments[binade * 16 + sixteenth] = [
                (constant >> 18) as f64 * unit,
                linear as f64 * power_of_two(-17) * unit,
                quadratic as f64 * power_of_two(-16) * unit,
            ];
            sixteenth += 1;
        }
        at += count;
        binade += 1;
    }
    segments
}

#[inline(always)]
const fn segment_bits(binade: u32) -> u32 {
    (SEGMENT_BITS >> (4 * binade)) as u32 & 15
}

const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// `tanh.approx.f32`.
#[inline(always)]
#[must_use]
pub fn tangent(bits: u32) -> u32 {
    const ONE: u32 = 0x3f80_0000;
    let magnitude = bits & !SIGN;
    let exponent = (magnitude >> 23) as i32 - 127;
    let sixteenth = (magnitude >> 19) as i32 - ((127 + FIRST) << 4);
    let sixteenth = sixteenth.clamp(0, BINADES as i32 * 16 - 1).cast_unsigned();
    let [constant, linear, quadratic] = SEGMENTS[sixteenth as usize];
    // The first 17 bits behind those of the segment.
    let inner = ((magnitude & FRACTION) << segment_bits(sixteenth >> 4) & FRACTION) >> 6;
    let sum = f64::from(inner.cast_signed()) * linear + f64::from(square::<17>(inner)) * quadratic;
    let inside = normal_cut(constant + sum);
    let number = if exponent < FIRST { magnitude } else { inside };
    let number = if exponent >= ONE_FROM { ONE } else { number } | bits & SIGN;
    if magnitude > EXPONENT { NAN } else { number }
}

/// `tanh.approx` of a half: the result for a single, cut.
#[inline(always)]
#[must_use]
pub fn tangent_half<H: Half>(bits: u16) -> u16 {
    half::cut::<H>(tangent(H::widen(bits).to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hyperbolic_tangent_is_near_the_exact_one() {
        let step = 9973;
        for bits in (0..=u32::MAX / step).map(|index| index * step) {
            let value = f64::from(f32::from_bits(bits));
            let got = f32::from_bits(tangent(bits));
            if value.is_nan() {
                assert_eq!(tangent(bits), NAN);
                continue;
            }
            let off = (f64::from(got) - value.tanh()).abs();
            assert!(off <= 1.1e-5 * value.tanh().abs(), "tanh of {value}: {got}");
        }
    }
}
