//! The hyperbolic tangent.

use super::single::{EXPONENT, NAN, SIGN};

/// `tanh.approx.f32`: the exact value, rounded. Hardware differs by up to 8e-6.
#[inline(always)]
#[must_use]
pub fn tangent(bits: u32) -> u32 {
    /// From here on, the nearest float is 1.
    const ONE_FROM: f64 = 9.02;
    /// Below it, the first terms of a series are exact enough. Above, the difference from 1 is.
    const SERIES_BELOW: f64 = 0.05;
    let wide = f64::from(f32::from_bits(bits & !SIGN));
    let power = exponential(-2.0 * if wide < ONE_FROM { wide } else { ONE_FROM });
    let square = wide * wide;
    let series = 62.0 / 2835.0 * square - 17.0 / 315.0;
    let series = (series * square + 2.0 / 15.0) * square - 1.0 / 3.0;
    let small = wide + wide * square * series;
    let tangent = if wide < SERIES_BELOW { small } else { (1.0 - power) / (1.0 + power) };
    let number = (tangent as f32).to_bits() | bits & SIGN;
    if bits & !SIGN > EXPONENT { NAN } else { number }
}

/// The exponential function of a number between -20 and 0, but for some units of the last place of a double.
#[inline(always)]
fn exponential(value: f64) -> f64 {
    /// A number that has integers in its last bits: sums with it round to integers.
    const INTEGERS: f64 = 6_755_399_441_055_744.0;
    let scaled = value * std::f64::consts::LOG2_E;
    let shifted = scaled + INTEGERS;
    let inner = (scaled - (shifted - INTEGERS)) * std::f64::consts::LN_2;
    // The terms behind these are below 2^-52.
    let mut sum = 1.0;
    let mut term = 12;
    while term > 0 {
        sum = 1.0 + sum * inner * (1.0 / f64::from(term));
        term -= 1;
    }
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    sum * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hyperbolic_tangent_is_the_exact_one_rounded() {
        let step = 9973;
        let differ = (0..=u32::MAX / step).map(|index| index * step).filter(|&bits| {
            let value = f32::from_bits(bits);
            let exact = f64::from(value).tanh() as f32;
            let exact = if exact.is_nan() { NAN } else { exact.to_bits() };
            tangent(bits) != exact
        });
        assert_eq!(differ.count(), 0);
    }
}
