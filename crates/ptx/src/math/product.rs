//! Products of whole matrices, as [`matrix`](super::matrix) sums each element, by vectors of columns.
//!
//! A row of the first factor and eight columns of the second make eight sums at once. The first
//! factor is given by rows, the second by its lines along the depth, so that columns follow one
//! another.

use super::sums::{
    ALIGNED, BF16, Exact, F16, F32, Format, LANES, TF32, VECTORS, ZERO, later, write_sums,
};
pub(crate) use super::sums::{ELEMENTS_MAX, Sizes, set, vector};
use super::{double, matrix, scaled, small};

/// Finite numbers: signed magnitudes, and the exponents of their first bits if they are normal.
struct Numbers {
    magnitudes: [[i32; LANES]; VECTORS],
    exponents: [[i32; LANES]; VECTORS],
}

impl Numbers {
    const NONE: Self = Self { magnitudes: [[0; LANES]; VECTORS], exponents: [[0; LANES]; VECTORS] };
}

impl Format {
    /// Writes the numbers of patterns of bits. Returns whether all are finite.
    #[inline(always)]
    fn decode(self, bits: &[u32], numbers: &mut Numbers) -> bool {
        let beyond = (1 << self.exponent) - 1;
        let bias = (1 << (self.exponent - 1)) - 1;
        let mut special = 0;
        // By index, in whole vectors: calls for iterators are not always inlined here, and vectors
        // that pass through memory in halves are slow to read.
        for at in (0..bits.len()).step_by(LANES) {
            let patterns = vector(bits, at);
            let (mut magnitudes, mut exponents) = ([0; LANES], [0; LANES]);
            for lane in 0..LANES {
                let bits = patterns[lane];
                let field = (bits >> self.fraction & beyond).cast_signed();
                let fraction = (bits & ((1 << self.fraction) - 1)).cast_signed();
                special |= u32::from(field == beyond.cast_signed());
                let whole = if field == 0 { fraction } else { fraction | 1 << self.fraction };
                let negative = bits >> (self.fraction + self.exponent) & 1 != 0;
                magnitudes[lane] = if negative { -whole } else { whole };
                exponents[lane] = if whole == 0 { ZERO } else { field.max(1) - bias };
            }
            numbers.magnitudes[at / LANES % VECTORS] = magnitudes;
            numbers.exponents[at / LANES % VECTORS] = exponents;
        }
        special == 0
    }
}

/// A magnitude moved to the place of the largest exponent, cut towards zero.
#[inline(always)]
fn aligned(magnitude: i32, up: i32, down: i32) -> i32 {
    let bits = magnitude.unsigned_abs() << up;
    let cut = if down < 32 { bits >> (down & 31) } else { 0 }.cast_signed();
    // All bits of a negative number's sign: the complement plus one is the negative.
    let sign = magnitude >> 31;
    (cut ^ sign) - sign
}

/// Sums plus a number times eight: each is a magnitude and an exponent.
#[inline(always)]
fn added(
    sums: [i32; LANES],
    (first, second): ((i32, i32), ([i32; LANES], [i32; LANES])),
    largest: [i32; LANES],
    up: i32,
) -> [i32; LANES] {
    let mut added = [0; LANES];
    for lane in 0..LANES {
        let down = largest[lane] - first.1 - second.1[lane];
        added[lane] = sums[lane] + aligned(first.0 * second.0[lane], up, down);
    }
    added
}

/// Adds to each sum a row times its column. False if an operand is infinite or no number: nothing is
/// done then.
///
/// At most 16 products of 22 bits are added: halves of them fit 31 bits when they are aligned.
#[inline(always)]
fn floats(
    (from, to): (Format, Format),
    sizes: Sizes,
    bits: (&[u32], &[u32], &[u32]),
    d: &mut [u32],
) -> bool {
    if to.fraction == F32.fraction && small::floats(from, sizes, bits, d) {
        return true;
    }
    if scaled::floats((from, to), sizes, bits, d) {
        return true;
    }
    let Sizes { columns, depth, .. } = sizes;
    let [mut a, mut b, mut c] = [Numbers::NONE; 3];
    let is_finite = from.decode(bits.0, &mut a) & from.decode(bits.1, &mut b);
    if !(is_finite & to.decode(bits.2, &mut c)) {
        return false;
    }
    let up = ALIGNED - 2 * from.fraction.cast_signed();
    let up_sum = ALIGNED - to.fraction.cast_signed();
    let (magnitudes, exponents) = (a.magnitudes.as_flattened(), a.exponents.as_flattened());
    for at in (0..d.len()).step_by(LANES) {
        let (row, column) = (at / columns, at % columns);
        let index = at / LANES % VECTORS;
        let (addends, places) = (c.magnitudes[index], c.exponents[index]);
        let mut largest = places;
        for k in 0..depth {
            let second = b.exponents[(k * columns + column) / LANES % VECTORS];
            largest = later(largest, exponents[row * depth + k], second);
        }
        let mut sums = Exact { low: [0; LANES], high: [0; LANES], unit: [0; LANES] };
        for lane in 0..LANES {
            sums.low[lane] = aligned(addends[lane], up_sum, largest[lane] - places[lane]);
            sums.unit[lane] = largest[lane] - ALIGNED;
        }
        // The depth is even.
        for k in (0..depth).step_by(2) {
            let term = |k: usize| {
                let index = (k * columns + column) / LANES % VECTORS;
                let second = (b.magnitudes[index], b.exponents[index]);
                ((magnitudes[row * depth + k], exponents[row * depth + k]), second)
            };
            sums.low = added(sums.low, term(k), largest, up);
            sums.high = added(sums.high, term(k + 1), largest, up);
        }
        write_sums(to, &sums, d, at);
    }
    true
}

/// The line of a matrix, and its column of the other.
fn each(sizes: Sizes, a: &[u32], b: &[u32], mut one: impl FnMut(usize, &[u32], &[u32])) {
    for at in 0..sizes.rows * sizes.columns {
        let (row, column) = (at / sizes.columns, at % sizes.columns);
        let line: Vec<u32> = b.iter().skip(column).step_by(sizes.columns).copied().collect();
        one(at, &a[row * sizes.depth..][..sizes.depth], &line);
    }
}

fn halves(line: &[u32]) -> Vec<u16> {
    line.iter().map(|&bits| bits as u16).collect()
}

/// `.f16` factors, `.f32` sums: `d = a * b + c`.
#[inline(always)]
pub(crate) fn f16(sizes: Sizes, a: &[u32], b: &[u32], c: &[u32], d: &mut [u32]) {
    if !floats((F16, F32), sizes, (a, b, c), d) {
        each(sizes, a, b, |at, row, column| {
            d[at] = matrix::dot_f16(&halves(row), &halves(column), c[at]);
        });
    }
}

/// `.bf16` factors, `.f32` sums.
#[inline(always)]
pub(crate) fn bf16(sizes: Sizes, a: &[u32], b: &[u32], c: &[u32], d: &mut [u32]) {
    if !floats((BF16, F32), sizes, (a, b, c), d) {
        each(sizes, a, b, |at, row, column| {
            d[at] = matrix::dot_bf16(&halves(row), &halves(column), c[at]);
        });
    }
}

/// `.tf32` factors, without the 13 low bits of their registers, and `.f32` sums.
#[inline(always)]
pub(crate) fn tf32(sizes: Sizes, a: &[u32], b: &[u32], c: &[u32], d: &mut [u32]) {
    if !floats((TF32, F32), sizes, (a, b, c), d) {
        let wide = |line: &[u32]| line.iter().map(|&bits| bits << 13).collect::<Vec<_>>();
        each(sizes, a, b, |at, row, column| {
            d[at] = matrix::dot_tf32(&wide(row), &wide(column), c[at]);
        });
    }
}

/// `.f16` factors and sums.
#[inline(always)]
pub(crate) fn f16_to_f16(sizes: Sizes, a: &[u32], b: &[u32], c: &[u32], d: &mut [u32]) {
    if !floats((F16, F16), sizes, (a, b, c), d) {
        each(sizes, a, b, |at, row, column| {
            d[at] = matrix::dot_f16_to_f16(&halves(row), &halves(column), c[at] as u16).into();
        });
    }
}

/// Doubles: each sum is a chain of `fma` along the depth.
#[inline(always)]
pub(crate) fn f64(sizes: Sizes, a: &[u64], b: &[u64], c: &[u64], d: &mut [u64]) {
    let Sizes { columns, depth, .. } = sizes;
    for at in (0..c.len()).step_by(LANES) {
        let (row, column) = (at / columns, at % columns);
        let mut sums = vector(c, at);
        for k in 0..depth {
            let first = a[row * depth + k];
            let second = vector(b, k * columns + column);
            for lane in 0..LANES {
                sums[lane] = double::fma(first, second[lane], sums[lane]);
            }
        }
        set(d, at, sums);
    }
}

/// Integers of up to 8 bits, which are given as ones of 32 bits: the sums wrap, or are clamped.
#[inline(always)]
pub(crate) fn integers(
    sizes: Sizes,
    saturate: bool,
    a: &[i32],
    b: &[i32],
    c: &[u32],
    d: &mut [u32],
) {
    let Sizes { columns, depth, .. } = sizes;
    for at in (0..c.len()).step_by(LANES) {
        let (row, column) = (at / columns, at % columns);
        let mut sums = [0_i32; LANES];
        for k in 0..depth {
            let first = a[row * depth + k];
            let second = vector(b, k * columns + column);
            for lane in 0..LANES {
                sums[lane] = sums[lane].wrapping_add(first.wrapping_mul(second[lane]));
            }
        }
        let (addends, mut results) = (vector(c, at), [0; LANES]);
        for lane in 0..LANES {
            let addend = addends[lane].cast_signed();
            let clamped = addend.saturating_add(sums[lane]);
            let sum = if saturate { clamped } else { addend.wrapping_add(sums[lane]) };
            results[lane] = sum.cast_unsigned();
        }
        set(d, at, results);
    }
}

/// Bits: how many pairs `and` or `xor` sets, added to each sum.
#[inline(always)]
pub(crate) fn bits(sizes: Sizes, and: bool, a: &[u32], b: &[u32], c: &[u32], d: &mut [u32]) {
    let Sizes { columns, depth, .. } = sizes;
    for (at, sum) in d.iter_mut().enumerate() {
        let (row, column) = (at / columns, at % columns);
        *sum = c[at];
        for k in 0..depth {
            let (first, second) = (a[row * depth + k], b[k * columns + column]);
            *sum = sum.wrapping_add(if and { first & second } else { first ^ second });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reproducible stream of bits.
    struct Bits(u64);

    impl Bits {
        fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 32) as u32
        }

        /// Patterns of so many bits: any, ones near each other, and zeros.
        fn patterns(&mut self, count: usize, format: Format, specials: bool) -> Vec<u32> {
            let bits = format.fraction + format.exponent + 1;
            let middle = (1 << (format.exponent - 1)) << format.fraction;
            let style = self.next() % 4;
            let beyond = (1 << format.exponent) - 1;
            let one = |random: &mut Self| match style {
                0 => random.next() & 7,
                1 => (random.next() & ((4 << format.fraction) - 1)) + middle,
                _ if random.next().is_multiple_of(5) => 0,
                _ => random.next(),
            };
            let mut patterns = Vec::new();
            for _ in 0..count {
                let pattern =
                    one(self) & (u32::MAX >> (32 - bits)) | (self.next() & 1) << (bits - 1);
                let special = pattern >> format.fraction & beyond == beyond;
                patterns.push(if special && !specials { 0 } else { pattern });
            }
            patterns
        }
    }

    /// A function of this module, and one of an element.
    type Whole = fn(Sizes, &[u32], &[u32], &[u32], &mut [u32]);
    type One = fn(&[u32], &[u32], u32) -> u32;

    fn agree(formats: (Format, Format), depth: usize, whole: Whole, one: One) {
        let mut random = Bits(7);
        for round in 0..400 {
            let sizes = Sizes { rows: 3, columns: 16, depth };
            let specials = round % 8 == 0;
            let a = random.patterns(3 * depth, formats.0, specials);
            let b = random.patterns(16 * depth, formats.0, specials);
            let c = random.patterns(3 * 16, formats.1, specials);
            let mut d = vec![0; 3 * 16];
            whole(sizes, &a, &b, &c, &mut d);
            each(sizes, &a, &b, |at, row, column| {
                assert_eq!(d[at], one(row, column, c[at]), "round {round}, element {at}");
            });
        }
    }

    #[test]
    fn products_of_floats_are_those_of_their_elements() {
        agree((F16, F32), 16, f16, |a, b, c| matrix::dot_f16(&halves(a), &halves(b), c));
        agree((BF16, F32), 16, bf16, |a, b, c| matrix::dot_bf16(&halves(a), &halves(b), c));
        agree((F16, F16), 16, f16_to_f16, |a, b, c| {
            matrix::dot_f16_to_f16(&halves(a), &halves(b), c as u16).into()
        });
        agree((TF32, F32), 8, tf32, |a, b, c| {
            let wide = |line: &[u32]| line.iter().map(|&bits| bits << 13).collect::<Vec<_>>();
            matrix::dot_tf32(&wide(a), &wide(b), c)
        });
    }

    #[test]
    fn the_largest_terms_of_a_long_row_do_not_overflow() {
        let sizes = Sizes { rows: 1, columns: 8, depth: 16 };
        let (a, b) = (vec![0x3fff; 16], vec![0x3fff; 128]);
        let (c, mut d) = (vec![0x407f_ffff; 8], vec![0; 8]);
        f16(sizes, &a, &b, &c, &mut d);
        let expected = matrix::dot_f16(&[0x3fff; 16], &[0x3fff; 16], 0x407f_ffff);
        assert_eq!(d, vec![expected; 8]);
    }

    #[test]
    fn products_of_integers_wrap_or_are_clamped() {
        let sizes = Sizes { rows: 1, columns: 8, depth: 2 };
        let (a, b, c) = ([-128, 127], [127; 16], [(i32::MIN + 5).cast_unsigned(); 8]);
        let mut d = [0; 8];
        integers(sizes, true, &a, &b, &c, &mut d);
        assert_eq!(d, [i32::MIN.cast_unsigned(); 8]);
        integers(sizes, false, &a, &b, &c, &mut d);
        assert_eq!(d, [(i32::MIN + 5).wrapping_sub(127).cast_unsigned(); 8]);
    }
}
