//! Products of matrices of small multiples of a number, such as small integers, and any addends.
//!
//! Singles hold each sum of products exactly, and a tensor core cuts nothing of them. It cuts the addend
//! where a product is larger, and then the total.

use super::fragments::{LANES, NUMBERS, Numbers, Results, Room, Sizes, vector};
use super::sums::{ADDEND_MAX, ALIGNED, Format, power, sums_of};

/// The bits of a single without its sign.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// Factors are taken as integers of up to so many bits.
const BITS: i32 = 15;

/// The largest exponent of factors, also below zero: their products are far from the ends of singles.
const EXPONENT_MAX: i32 = 30;

/// The bits of a sum of products in a single.
const SUM_BITS: i32 = 24;

/// A factor of small multiples of a number.
struct Factor<'a> {
    values: &'a [f32; NUMBERS],
    /// The power of two of which all are multiples, and the bits of the largest multiple.
    unit: i32,
    bits: i32,
    /// The largest exponent.
    exponent: i32,
    /// The exponent of subnormals, as a tensor core takes it.
    least: i32,
}

impl<'a> Factor<'a> {
    /// `None` if numbers are no small multiples of one power of two.
    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "calls for iterators are not always inlined here"
    )]
    fn of(format: Format, numbers: &'a mut Numbers) -> Option<Self> {
        let Numbers { patterns, values, .. } = numbers;
        let (count, mut most_bits) = (numbers.count.min(NUMBERS), 0);
        for at in 0..count {
            let value = single(format, patterns[at]);
            most_bits = (value.to_bits() & MAGNITUDE).max(most_bits);
            values[at] = value;
        }
        let exponent = exponent_of(most_bits);
        // Halves that are infinite or no number have an exponent of 16.
        let bias = (1 << (format.exponent - 1)) - 1;
        let (most, least) = (EXPONENT_MAX.min(bias), 1 - bias);
        if most_bits != 0 && !(-EXPONENT_MAX..=most).contains(&exponent) {
            return None;
        }
        // Without a number, any unit will do.
        let exponent = exponent.max(-EXPONENT_MAX);
        let scale = power(BITS - 1 - exponent);
        let (mut any, mut inexact) = (1 << BITS, 0);
        for at in 0..count {
            let scaled = values[at] * scale;
            // SAFETY: the largest number has the exponent of the scale: all are below 2^15.
            let whole = unsafe { scaled.to_int_unchecked::<i32>() };
            any |= whole;
            inexact |= u32::from(whole as f32 != scaled);
        }
        if inexact != 0 {
            return None;
        }
        let zeros = any.trailing_zeros().cast_signed();
        let (unit, bits) = (exponent + 1 - BITS + zeros, BITS - zeros);
        Some(Self { values, unit, bits, exponent: exponent.max(least), least })
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

/// Adds to each single a row times its column. False if the products might be cut: nothing is done then.
#[inline(always)]
pub(super) fn floats<const FUSED: bool>(
    from: Format,
    sizes: Sizes,
    room: &mut Room,
    d: &mut Results,
) -> bool {
    let (Some(a), Some(b)) = (Factor::of(from, &mut room.a), Factor::of(from, &mut room.b)) else {
        return false;
    };
    let (c, terms) = (&room.c, usize::BITS - sizes.depth.leading_zeros());
    if a.bits + b.bits + terms.cast_signed() > SUM_BITS || !are_near(c, a.unit + b.unit) {
        return false;
    }
    match sizes.vectors() {
        1 => rows::<1, 8, FUSED>(sizes, (&a, &b, &c.patterns), d),
        2 => rows::<2, 4, FUSED>(sizes, (&a, &b, &c.patterns), d),
        4 => rows::<4, 2, FUSED>(sizes, (&a, &b, &c.patterns), d),
        _ => return false,
    }
    true
}

/// Whether no addend is so large that products with a unit would be cut, or so small that a total might
/// be a subnormal.
#[inline(always)]
fn are_near(addends: &Numbers, unit: i32) -> bool {
    let most = (unit + ALIGNED).min(ADDEND_MAX);
    let mut far = 0;
    for at in 0..addends.count.min(NUMBERS) {
        let magnitude = addends.patterns[at] & MAGNITUDE;
        let exponent = exponent_of(magnitude);
        let is_far = (exponent > most) | (exponent < -ADDEND_MAX);
        far |= u32::from(is_far & (magnitude != 0));
    }
    far == 0
}

/// The exponent of a single that is no subnormal.
#[inline(always)]
fn exponent_of(bits: u32) -> i32 {
    ((bits & MAGNITUDE) >> 23).cast_signed() - 127
}

/// The sums, by rows of `N` vectors, `R` rows at a time.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "calls for iterators are not always inlined here")]
fn rows<const N: usize, const R: usize, const FUSED: bool>(
    sizes: Sizes,
    (a, b, c): (&Factor<'_>, &Factor<'_>, &[u32; NUMBERS]),
    d: &mut Results,
) {
    for first_row in (0..sizes.rows).step_by(R) {
        let sums = sums_of::<N, R, FUSED>(sizes, first_row, (a.values, b.values));
        for row in 0..R {
            for at in 0..N {
                let mut addends = vector(c, ((first_row + row) * N + at) * LANES);
                let mut is_least = 0;
                for lane in 0..LANES {
                    is_least |= u32::from(exponent_of(addends[lane]) < a.exponent + b.exponent);
                }
                if is_least != 0 {
                    addends = cut(sizes, addends, (a, first_row + row), (b, at));
                }
                d.set(first_row + row, at, totals(sums[row][at], addends));
            }
        }
    }
}

/// Addends without the bits that a tensor core cuts, as products are larger: those of a row of a factor,
/// and a vector of columns of the other.
#[inline(always)]
fn cut(
    sizes: Sizes,
    addends: [u32; LANES],
    (a, row): (&Factor<'_>, usize),
    (b, at): (&Factor<'_>, usize),
) -> [u32; LANES] {
    let mut largest = [0; LANES];
    for lane in 0..LANES {
        largest[lane] = exponent_of(addends[lane]);
    }
    for k in 0..sizes.depth {
        let first = a.values[sizes.number(row, k) % NUMBERS];
        let second: [f32; LANES] = vector(b.values, sizes.vector(k, at));
        let exponent = exponent_of(first.to_bits()).max(a.least);
        for lane in 0..LANES {
            let product = exponent + exponent_of(second[lane].to_bits()).max(a.least);
            // A product that is zero has none.
            let is_there = (first != 0.0) & (second[lane] != 0.0);
            largest[lane] = largest[lane].max(if is_there { product } else { -ADDEND_MAX });
        }
    }
    let mut cut = [0; LANES];
    for lane in 0..LANES {
        let unit = largest[lane].max(-ADDEND_MAX) - ALIGNED;
        let units = f32::from_bits(addends[lane]) * power(-unit);
        // SAFETY: the addend has at most the largest exponent, so that it is below 2^26 units.
        let whole = unsafe { units.to_int_unchecked::<i32>() };
        cut[lane] = (whole as f32 * power(unit)).to_bits();
    }
    cut
}

/// Sums plus addends, cut to singles. No total is a subnormal.
#[inline(always)]
fn totals(sums: [f32; LANES], addends: [u32; LANES]) -> [u32; LANES] {
    let mut totals = [0; LANES];
    for lane in 0..LANES {
        let (sum, addend) = (sums[lane], f32::from_bits(addends[lane]));
        // The nearest single, and how far the total is from it: a difference that a single holds.
        let nearest = sum + addend;
        let second = nearest - sum;
        let rest = (sum - (nearest - second)) + (addend - second);
        // The next single towards zero has the bits before.
        let is_beyond = (rest != 0.0) & ((rest.to_bits() ^ nearest.to_bits()) >> 31 != 0);
        totals[lane] = nearest.to_bits() - u32::from(is_beyond);
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::super::fragments::by_lines::{product, upper};
    use super::super::matrix;
    use super::super::sums::{BF16, F16, TF32};
    use super::*;

    /// The sizes of products here.
    fn sizes(format: Format) -> Sizes {
        let packed = if format.bits() == 16 { 2 } else { 1 };
        Sizes { rows: 8, columns: 16, depth: 8, packed }
    }

    /// A product of lines, or `None` if it is left to others.
    fn multiply(format: Format, a: &[u32], b: &[u32], c: &[u32]) -> Option<Vec<u32>> {
        let sizes = sizes(format);
        let upper = |numbers: &[u32]| upper(numbers, sizes.packed, format.bits());
        let mut is_done = false;
        let sums = product(sizes, false, [&upper(a), &upper(b), c], |operands, d| {
            let mut room = Room::boxed();
            room.take(sizes, format.bits(), operands);
            is_done = floats::<true>(format, sizes, &mut room, d);
            assert!(is_done || d.registers == [[0; 32]; 8]);
        });
        is_done.then_some(sums)
    }

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

    /// Addends of a kind: multiples, any near the products, any, and products that are cut by them.
    fn addends(numbers: &mut Numbers, kind: usize, unit: f32) -> Vec<u32> {
        let any = |numbers: &mut Numbers| numbers.below(1 << 23) | numbers.below(2) << 31;
        let exponent = exponent_of(unit.to_bits());
        match kind {
            0 => numbers.multiples(128, unit).iter().map(|v| v.to_bits()).collect(),
            1 => {
                let near = |n: &mut Numbers| (exponent + 127 + n.below(13) as i32) as u32;
                (0..128).map(|_| any(numbers) | near(numbers) << 23).collect()
            }
            _ => {
                let most = (exponent + ALIGNED + 87) as u32;
                (0..128).map(|_| any(numbers) | (40 + numbers.below(most)) << 23).collect()
            }
        }
    }

    #[test]
    fn sums_of_small_multiples_have_the_bits_of_each_element() {
        let mut numbers = Numbers(3);
        for round in 0..3000 {
            let (format, dot) = FORMATS[round % 3];
            // The first ones are subnormals of 16 bits.
            let units = [power(-24), 0.125, 1.0, 64.0];
            let [first, second] = [units[round / 3 % 4], units[round / 12 % 4]];
            let a = patterns(format, &numbers.multiples(64, first));
            let b = patterns(format, &numbers.multiples(128, second));
            let c = addends(&mut numbers, round / 48 % 3, first * second);
            let sums = multiply(format, &a, &b, &c).expect("small multiples");
            for (at, sum) in sums.into_iter().enumerate() {
                let expected = dot(&a[at / 16 * 8..][..8], &b[at % 16 * 8..][..8], c[at]);
                assert_eq!(sum, expected, "round {round}, element {at}");
            }
        }
    }

    #[test]
    fn factors_that_may_be_cut_are_left_to_others() {
        let (one, tiny) = (1.0_f32, power(-20));
        let refused = |format: Format, factors: &[u32], second: f32, addend: f32| {
            let mut a = vec![pattern(format, one); 64];
            a[5..5 + factors.len()].copy_from_slice(factors);
            let (b, mut c) = (vec![pattern(format, second); 128], [one.to_bits(); 128]);
            c[9] = addend.to_bits();
            multiply(format, &a, &b, &c).is_none()
        };
        for addend in [f32::INFINITY, f32::NAN, power(26), power(-101), f32::from_bits(1)] {
            assert!(refused(TF32, &[], one, addend), "{addend}");
        }
        assert!(!refused(TF32, &[], one, power(25)));
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
        // The sums have 11, 10 and 4 bits.
        let odd = patterns(TF32, &[1.0 + power(-10)]);
        assert!(refused(TF32, &odd, 1.0 + power(-9), one));
        assert!(!refused(TF32, &odd, 1.0 + power(-8), one));
    }
}
