//! Products of matrices of which each sum fits a single exactly, such as those of small integers.
//!
//! Nothing is cut or rounded then, so that plain singles give the bits of a tensor core.

use super::sums::{ELEMENTS_MAX, Format, LANES, Sizes, VECTORS, set, vector};

/// The bits of a single without its sign.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// Factors are taken as integers of up to so many bits.
const BITS: i32 = 15;

/// The largest exponent of factors, also below zero: their products are far from the ends of singles.
const EXPONENT_MAX: i32 = 30;

/// Integers up to this one are exact in singles.
const WHOLE_MAX: f32 = 8_388_608.0;

/// A power of two.
#[inline(always)]
fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// The factors of a product as singles.
struct Factor {
    values: [[f32; LANES]; VECTORS],
    /// The power of two of which all are multiples, and the bits of the largest multiple.
    unit: i32,
    bits: i32,
}

impl Factor {
    /// The numbers of patterns of bits; `None` if they are not small multiples of one power of two.
    #[inline(always)]
    fn of(format: Format, bits: &[u32]) -> Option<Self> {
        let mut values = [[0.0; LANES]; VECTORS];
        let mut largest = [0; LANES];
        for at in (0..bits.len()).step_by(LANES) {
            let (patterns, mut singles) = (vector(bits, at), [0.0; LANES]);
            for lane in 0..LANES {
                singles[lane] = single(format, patterns[lane]);
                largest[lane] = largest[lane].max(singles[lane].to_bits() & MAGNITUDE);
            }
            values[at / LANES % VECTORS] = singles;
        }
        let largest = largest.into_iter().fold(0, u32::max);
        let exponent = (largest >> 23).cast_signed() - 127;
        // Halves that are infinite or no number have an exponent of 16.
        let most = EXPONENT_MAX.min((1 << (format.exponent - 1)) - 1);
        if largest != 0 && !(-EXPONENT_MAX..=most).contains(&exponent) {
            return None;
        }
        // Without a number, any unit will do.
        let exponent = exponent.max(-EXPONENT_MAX);
        let scale = power(BITS - 1 - exponent);
        let (mut any, mut inexact) = ([0; LANES], [0; LANES]);
        for at in (0..bits.len()).step_by(LANES) {
            let singles = values[at / LANES % VECTORS];
            for lane in 0..LANES {
                let scaled = singles[lane] * scale;
                // SAFETY: the largest number has the exponent of the scale: all are below 2^15.
                let whole = unsafe { scaled.to_int_unchecked::<i32>() };
                any[lane] |= whole;
                inexact[lane] |= u32::from(whole as f32 != scaled);
            }
        }
        let all = |lanes: [i32; LANES]| lanes.into_iter().fold(0, |all, lane| all | lane);
        if inexact != [0; LANES] {
            return None;
        }
        let zeros = (all(any) | 1 << BITS).trailing_zeros().cast_signed();
        Some(Self { values, unit: exponent + 1 - BITS + zeros, bits: BITS - zeros })
    }
}

/// The single of a pattern. One that is infinite or no number has a larger exponent than others.
#[inline(always)]
fn single(format: Format, bits: u32) -> f32 {
    let wide = f32::from_bits(bits << (23 - format.fraction));
    if format.exponent == 8 {
        return wide;
    }
    let negative = bits >> (format.fraction + format.exponent) << 31;
    let magnitude = f32::from_bits(wide.to_bits() & (0xff << 23 >> 3 | 0x7f_ffff));
    f32::from_bits((magnitude * power(112)).to_bits() | negative)
}

/// Adds to each single a row times its column. False if a sum might not be exact: nothing is done then.
#[inline(always)]
pub(super) fn floats(
    from: Format,
    sizes: Sizes,
    (a, b, c): (&[u32], &[u32], &[u32]),
    d: &mut [u32],
) -> bool {
    let Some(a) = Factor::of(from, a) else { return false };
    let Some(b) = Factor::of(from, b) else { return false };
    let Sizes { columns, depth, .. } = sizes;
    let terms = usize::BITS - depth.leading_zeros();
    if a.bits + b.bits + terms.cast_signed() > 22 || !are_small(c, a.unit + b.unit) {
        return false;
    }
    match columns / LANES {
        1 => rows::<1>(depth, (&a, &b, c), d),
        2 => rows::<2>(depth, (&a, &b, c), d),
        4 => rows::<4>(depth, (&a, &b, c), d),
        _ => return false,
    }
    true
}

/// The sums, by rows of `N` vectors.
#[inline(always)]
fn rows<const N: usize>(depth: usize, (a, b, c): (&Factor, &Factor, &[u32]), d: &mut [u32]) {
    for row in 0..d.len() / (N * LANES) {
        let at = |part: usize| (row * N + part) * LANES;
        let mut sums = [[0.0; LANES]; N];
        for (part, sums) in sums.iter_mut().enumerate() {
            let addends = vector(c, at(part));
            for lane in 0..LANES {
                // A sum that is zero has no sign.
                sums[lane] = f32::from_bits(addends[lane]) + 0.0;
            }
        }
        for k in 0..depth {
            let first = a.values.as_flattened()[(row * depth + k) % ELEMENTS_MAX];
            for (part, sums) in sums.iter_mut().enumerate() {
                let second = b.values[(k * N + part) % VECTORS];
                for lane in 0..LANES {
                    sums[lane] += first * second[lane];
                }
            }
        }
        for (part, sums) in sums.into_iter().enumerate() {
            set(d, at(part), sums.map(f32::to_bits));
        }
    }
}

/// Whether singles are multiples of a power of two, and small ones.
#[inline(always)]
fn are_small(bits: &[u32], unit: i32) -> bool {
    let scale = power(-unit);
    let mut wrong = [0; LANES];
    for at in (0..bits.len()).step_by(LANES) {
        let patterns = vector(bits, at);
        for lane in 0..LANES {
            let scaled = f32::from_bits(patterns[lane]) * scale;
            let is_near = scaled.abs() < WHOLE_MAX;
            let near = if is_near { scaled } else { 0.0 };
            // SAFETY: it is below 2^23.
            let whole = unsafe { near.to_int_unchecked::<i32>() };
            wrong[lane] |= u32::from(!is_near) | u32::from(whole as f32 != scaled);
        }
    }
    wrong == [0; LANES]
}

#[cfg(test)]
mod tests {
    use super::super::matrix;
    use super::super::sums::{BF16, F16, TF32};
    use super::*;

    const SIZES: Sizes = Sizes { rows: 2, columns: 16, depth: 8 };

    /// A reproducible stream of numbers below a bound.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: u32) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as u32 % bound
        }

        /// Multiples of a power of two with up to three bits, of either sign, and zeros of both.
        fn multiples(&mut self, count: usize, unit: f32) -> Vec<f32> {
            let sign = |odd: bool| if odd { -unit } else { unit };
            (0..count).map(|_| self.below(8) as f32 * sign(self.below(2) == 1)).collect()
        }
    }

    /// The pattern of a number that the format holds.
    fn pattern(format: Format, value: f32) -> u32 {
        let single = value.to_bits();
        if format.exponent == 8 {
            return single >> (23 - format.fraction);
        }
        let magnitude = (f32::from_bits(single & MAGNITUDE) * power(-112)).to_bits() >> 13;
        magnitude | single >> 31 << 15
    }

    fn patterns(format: Format, values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| pattern(format, *value)).collect()
    }

    type Dot = fn(&[u32], &[u32], u32) -> u32;

    fn halves(line: &[u32]) -> Vec<u16> {
        line.iter().map(|&bits| bits as u16).collect()
    }

    const FORMATS: [(Format, Dot); 3] = [
        (F16, |a, b, c| matrix::dot_f16(&halves(a), &halves(b), c)),
        (BF16, |a, b, c| matrix::dot_bf16(&halves(a), &halves(b), c)),
        (TF32, |a, b, c| {
            let wide = |line: &[u32]| line.iter().map(|bits| bits << 13).collect::<Vec<_>>();
            matrix::dot_tf32(&wide(a), &wide(b), c)
        }),
    ];

    #[test]
    fn sums_of_small_multiples_have_the_bits_of_each_element() {
        let mut numbers = Numbers(3);
        for round in 0..600 {
            let (format, dot) = FORMATS[round % 3];
            let units = [0.125, 1.0, 64.0];
            let [first, second] = [units[round / 3 % 3], units[round / 9 % 3]];
            let a = patterns(format, &numbers.multiples(16, first));
            let b = patterns(format, &numbers.multiples(128, second));
            let c: Vec<u32> =
                numbers.multiples(32, first * second).iter().map(|v| v.to_bits()).collect();
            let mut d = [7; 32];
            assert!(floats(format, SIZES, (&a, &b, &c), &mut d), "round {round}");
            for (at, sum) in d.into_iter().enumerate() {
                let column: Vec<u32> = b.iter().skip(at % 16).step_by(16).copied().collect();
                let expected = dot(&a[at / 16 * 8..][..8], &column, c[at]);
                assert_eq!(sum, expected, "round {round}, element {at}");
            }
        }
    }

    #[test]
    fn numbers_that_may_not_be_exact_are_left_to_others() {
        let (one, tiny) = (1.0_f32, power(-20));
        let refused = |format: Format, factors: &[u32], second: f32, addend: f32| {
            let mut a = vec![pattern(format, one); 16];
            a[5..5 + factors.len()].copy_from_slice(factors);
            let (b, mut c) = (vec![pattern(format, second); 128], [one.to_bits(); 32]);
            c[9] = addend.to_bits();
            let mut d = [7; 32];
            let done = floats(format, SIZES, (&a, &b, &c), &mut d);
            !done && d == [7; 32]
        };
        for addend in [f32::INFINITY, f32::NAN, power(40), power(-40), tiny, WHOLE_MAX] {
            assert!(refused(TF32, &[], one, addend), "{addend}");
        }
        for (format, factors) in [
            (TF32, vec![0x3_fc00]),
            (TF32, vec![0x7_fc01]),
            (TF32, patterns(TF32, &[power(40)])),
            (TF32, patterns(TF32, &[one, tiny])),
            (F16, vec![0x7c00]),
            (F16, vec![0xffff]),
        ] {
            assert!(refused(format, &factors, one, one), "{factors:x?}");
        }
        // The addend is too large for the last bit of the products.
        assert!(refused(TF32, &[], power(-24), one));
        assert!(!refused(TF32, &[], power(-20), one));
    }
}
