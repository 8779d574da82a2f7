//! Products of whole matrices in registers, as [`matrix`](super::matrix) sums each element, by vectors of
//! columns.
//!
//! A row of the first factor and eight columns of the second make eight sums at once.

use super::fragments::{LANES, NUMBERS, Numbers, columns, vector};
pub(crate) use super::fragments::{Operands, REGISTERS_MAX, Register, Registers};
pub(crate) use super::fragments::{Results, Room, Sizes, Sums};
use super::sums::{ALIGNED, BF16, Exact, F16, F32, Format, TF32, ZERO, sums_of};
use super::{double, matrix, scaled, small};

impl Numbers {
    /// Gives signed magnitudes, and the exponents of their first bits if they are normal. Returns whether all
    /// are finite.
    #[inline(always)]
    fn as_magnitudes(&mut self, format: Format) -> bool {
        let mut special = 0;
        for at in 0..self.count.min(NUMBERS) {
            let bits = self.patterns[at];
            let (whole, exponent, is_special) = format.decoded(bits);
            special |= u32::from(is_special);
            let negative = bits >> (format.bits() - 1) & 1 != 0;
            self.magnitudes[at] = if negative { -whole } else { whole };
            self.exponents[at] = if whole == 0 { ZERO } else { exponent };
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

/// The larger ones of exponents and those of products.
#[inline(always)]
fn later(largest: [i32; LANES], first: i32, second: [i32; LANES]) -> [i32; LANES] {
    let mut later = [0; LANES];
    for lane in 0..LANES {
        later[lane] = largest[lane].max(first + second[lane]);
    }
    later
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
fn exact((from, to): (Format, Format), sizes: Sizes, room: &mut Room, d: &mut Results) -> bool {
    let Room { a, b, c } = room;
    if !(a.as_magnitudes(from) & b.as_magnitudes(from) & c.as_magnitudes(to)) {
        return false;
    }
    let up = ALIGNED - 2 * from.fraction.cast_signed();
    let up_sum = ALIGNED - to.fraction.cast_signed();
    let vectors = sizes.vectors();
    for index in 0..sizes.rows * vectors {
        let (row, at) = (index / vectors, index % vectors);
        let addends: [i32; LANES] = vector(&c.magnitudes, index * LANES);
        let places: [i32; LANES] = vector(&c.exponents, index * LANES);
        let first = |k: usize| sizes.number(row, k) % NUMBERS;
        let second = |k: usize| sizes.vector(k, at);
        let mut largest = places;
        for k in 0..sizes.depth {
            largest = later(largest, a.exponents[first(k)], vector(&b.exponents, second(k)));
        }
        let mut sums = Exact { low: [0; LANES], high: [0; LANES], unit: [0; LANES] };
        for lane in 0..LANES {
            sums.low[lane] = aligned(addends[lane], up_sum, largest[lane] - places[lane]);
            sums.unit[lane] = largest[lane] - ALIGNED;
        }
        // The depth is even.
        for k in (0..sizes.depth).step_by(2) {
            let term = |k: usize| {
                let other = (vector(&b.magnitudes, second(k)), vector(&b.exponents, second(k)));
                ((a.magnitudes[first(k)], a.exponents[first(k)]), other)
            };
            sums.low = added(sums.low, term(k), largest, up);
            sums.high = added(sums.high, term(k + 1), largest, up);
        }
        d.set(row, at, to.results(&sums));
    }
    true
}

/// Each sum by a function of its row, its column and its addend.
#[cold]
fn each(sizes: Sizes, room: &Room, d: &mut Results, one: One) {
    for row in 0..sizes.rows {
        let first = |k: usize| room.a.patterns[sizes.number(row, k)];
        let line: Vec<u32> = (0..sizes.depth).map(first).collect();
        for at in 0..sizes.vectors() {
            let mut sums: [u32; LANES] = vector(&room.c.patterns, sizes.vector(row, at));
            for (lane, sum) in sums.iter_mut().enumerate() {
                let second = |k: usize| room.b.patterns[sizes.vector(k, at) + lane];
                let column: Vec<u32> = (0..sizes.depth).map(second).collect();
                *sum = one(&line, &column, *sum);
            }
            d.set(row, at, sums);
        }
    }
}

fn halves(line: &[u32]) -> Vec<u16> {
    line.iter().map(|&bits| bits as u16).collect()
}

/// Patterns of `.tf32` without their 13 low bits, as registers have them.
fn words(line: &[u32]) -> Vec<u32> {
    line.iter().map(|&bits| bits << 13).collect()
}

/// The sum of a row and a column of `.f16` with an `.f32`, and those of other types.
fn one_f16(a: &[u32], b: &[u32], c: u32) -> u32 {
    matrix::dot_f16(&halves(a), &halves(b), c)
}

fn one_f16_to_f16(a: &[u32], b: &[u32], c: u32) -> u32 {
    matrix::dot_f16_to_f16(&halves(a), &halves(b), c as u16).into()
}

fn one_bf16(a: &[u32], b: &[u32], c: u32) -> u32 {
    matrix::dot_bf16(&halves(a), &halves(b), c)
}

fn one_tf32(a: &[u32], b: &[u32], c: u32) -> u32 {
    matrix::dot_tf32(&words(a), &words(b), c)
}

/// The sum of a row, a column and an addend.
type One = fn(&[u32], &[u32], u32) -> u32;

/// The types of a product of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Floats {
    F16,
    /// With sums of `.f16`; others have sums of `.f32`.
    F16ToF16,
    Bf16,
    Tf32,
}

/// The formats of factors and of sums, and the function of one sum.
#[inline(always)]
fn formats(kind: Floats) -> (Format, Format, One) {
    match kind {
        Floats::F16 => (F16, F32, one_f16),
        Floats::F16ToF16 => (F16, F16, one_f16_to_f16),
        Floats::Bf16 => (BF16, F32, one_bf16),
        Floats::Tf32 => (TF32, F32, one_tf32),
    }
}

/// `d = a * b + c` of floats. `FUSED` is for machines with an instruction for a product and a sum.
#[inline(always)]
pub(crate) fn floats<const FUSED: bool>(
    kind: Floats,
    sizes: Sizes,
    operands: &Operands<'_>,
    (room, d): (&mut Room, &mut Results),
) {
    let (from, to, one) = formats(kind);
    room.take(sizes, from.bits(), operands);
    let is_done = kind != Floats::F16ToF16 && small::floats::<FUSED>(from, sizes, room, d);
    let is_done = is_done || scaled::floats((from, to), sizes, room, d);
    if !(is_done || exact((from, to), sizes, room, d)) {
        each(sizes, room, d, one);
    }
}

/// Doubles: each sum is a chain of `fma` along the depth.
#[inline(always)]
pub(crate) fn f64(
    sizes: Sizes,
    operands: &Operands<'_, u64>,
    d: &mut Sums<[Register<u64>; REGISTERS_MAX]>,
) {
    // There are eight columns.
    for four in 0..sizes.depth / 4 {
        let second = columns(operands.b[four % REGISTERS_MAX]);
        for row in 0..sizes.rows {
            let first = sizes.first(row, four);
            let firsts: [u64; 4] = vector(operands.a[first / 32 % REGISTERS_MAX], first % 32);
            let mut sums = if four == 0 { operands.c.wide(row, 0) } else { d.wide(row, 0) };
            for quarter in 0..4 {
                for lane in 0..LANES {
                    sums[lane] = double::fma(firsts[quarter], second[quarter][lane], sums[lane]);
                }
            }
            d.set_wide(row, 0, sums);
        }
    }
}

impl Numbers {
    /// Gives integers of so many bits as singles.
    #[inline(always)]
    fn as_integers(&mut self, bits: u32, is_signed: bool) {
        let shift = 32 - bits;
        for at in 0..self.count.min(NUMBERS) {
            let high = self.patterns[at] << shift;
            let signed = high.cast_signed() >> shift;
            let number = if is_signed { signed } else { (high >> shift).cast_signed() };
            self.values[at] = number as f32;
        }
    }
}

/// Integers of up to 8 bits: the sums wrap, or are clamped. `FUSED` as in [`floats`].
#[inline(always)]
pub(crate) fn integers<const FUSED: bool>(
    sizes: Sizes,
    ([a_signed, b_signed], saturate): ([bool; 2], bool),
    operands: &Operands<'_>,
    (room, d): (&mut Room, &mut Results),
) {
    let bits = 32 / sizes.packed as u32;
    room.take(sizes, bits, operands);
    room.a.as_integers(bits, a_signed);
    room.b.as_integers(bits, b_signed);
    match sizes.vectors() {
        1 => integer_rows::<1, 8, FUSED>(sizes, room, saturate, d),
        2 => integer_rows::<2, 4, FUSED>(sizes, room, saturate, d),
        _ => integer_rows::<4, 2, FUSED>(sizes, room, saturate, d),
    }
}

/// The sums of integers, by rows of `N` vectors, `R` rows at a time.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "calls for iterators are not always inlined here")]
fn integer_rows<const N: usize, const R: usize, const FUSED: bool>(
    sizes: Sizes,
    Room { a, b, c }: &Room,
    saturate: bool,
    d: &mut Results,
) {
    for first_row in (0..sizes.rows).step_by(R) {
        // Singles hold them: a row has at most 32 products of 8 bits each.
        let sums = sums_of::<N, R, FUSED>(sizes, first_row, (&a.values, &b.values));
        for row in 0..R {
            for at in 0..N {
                let index = ((first_row + row) * N + at) * LANES;
                let (addends, mut results): ([u32; LANES], _) =
                    (vector(&c.patterns, index), [0; LANES]);
                for lane in 0..LANES {
                    let addend = addends[lane].cast_signed();
                    // SAFETY: a sum is below 2^24.
                    let sum = unsafe { sums[row][at][lane].to_int_unchecked::<i32>() };
                    let (clamped, wrapped) = (addend.saturating_add(sum), addend.wrapping_add(sum));
                    results[lane] = if saturate { clamped } else { wrapped }.cast_unsigned();
                }
                d.set(first_row + row, at, results);
            }
        }
    }
}

/// Bits: how many pairs `and` or `xor` sets, added to each sum. The depth is in words.
#[inline(always)]
pub(crate) fn bits(
    sizes: Sizes,
    and: bool,
    operands: &Operands<'_>,
    (room, d): (&mut Room, &mut Results),
) {
    room.take(sizes, u32::BITS, operands);
    let vectors = sizes.vectors();
    for index in 0..sizes.rows * vectors {
        let (row, at) = (index / vectors, index % vectors);
        let mut sums: [u32; LANES] = vector(&room.c.patterns, index * LANES);
        for k in 0..sizes.depth {
            let first = room.a.patterns[sizes.number(row, k) % NUMBERS];
            let second: [u32; LANES] = vector(&room.b.patterns, sizes.vector(k, at));
            for lane in 0..LANES {
                let both = if and { first & second[lane] } else { first ^ second[lane] };
                sums[lane] = sums[lane].wrapping_add(both.count_ones());
            }
        }
        d.set(row, at, sums);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fragments::by_lines::{product, upper};
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

    /// Compares a product with the sums of its rows and columns, each by one function.
    fn agree(kind: Floats, sizes: Sizes) {
        let mut random = Bits(7);
        let Sizes { rows, columns, depth, .. } = sizes;
        let (from, to, one) = formats(kind);
        for round in 0..400 {
            let specials = round % 8 == 0;
            let a = random.patterns(rows * depth, from, specials);
            let b = random.patterns(columns * depth, from, specials);
            let c = random.patterns(rows * columns, to, specials);
            let upper = |numbers: &[u32]| upper(numbers, sizes.packed, from.bits());
            let are_halves = to.fraction == F16.fraction;
            let d = product(sizes, are_halves, [&upper(&a), &upper(&b), &c], |operands, d| {
                let to = (&mut *Room::boxed(), d);
                match round % 2 {
                    0 => floats::<true>(kind, sizes, operands, to),
                    _ => floats::<false>(kind, sizes, operands, to),
                }
            });
            for (at, sum) in d.into_iter().enumerate() {
                let (row, column) = (at / columns, at % columns);
                let expected =
                    one(&a[row * depth..][..depth], &b[column * depth..][..depth], c[at]);
                assert_eq!(sum, expected, "round {round}, element {at}");
            }
        }
    }

    #[test]
    fn products_of_floats_are_those_of_their_elements() {
        let sizes =
            |[rows, columns, depth]: [usize; 3], packed| Sizes { rows, columns, depth, packed };
        for shape in [[16, 16, 16], [32, 8, 16], [8, 32, 16], [16, 8, 8], [16, 8, 16]] {
            agree(Floats::F16, sizes(shape, 2));
            agree(Floats::F16ToF16, sizes(shape, 2));
            agree(Floats::Bf16, sizes(shape, 2));
        }
        for shape in [[16, 16, 8], [16, 8, 8], [16, 8, 4]] {
            agree(Floats::Tf32, sizes(shape, 1));
        }
    }

    #[test]
    fn the_largest_terms_of_a_long_row_do_not_overflow() {
        let sizes = Sizes { rows: 8, columns: 8, depth: 16, packed: 2 };
        let (factor, c) = ([0x3fff; 128], [0x407f_ffff; 64]);
        let d = product(sizes, false, [&factor, &factor, &c], |operands, d| {
            floats::<false>(Floats::F16, sizes, operands, (&mut Room::boxed(), d));
        });
        let expected = matrix::dot_f16(&[0x3fff; 16], &[0x3fff; 16], 0x407f_ffff);
        assert_eq!(d, [expected; 64]);
    }

    #[test]
    fn products_of_integers_wrap_or_are_clamped() {
        let sizes = Sizes { rows: 8, columns: 8, depth: 16, packed: 4 };
        let mut a = [0; 128];
        for row in a.chunks_mut(16) {
            (row[0], row[1]) = (0x80, 127);
        }
        let (b, c) = ([127; 128], [(i32::MIN + 5).cast_unsigned(); 64]);
        let d = |saturate| {
            product(sizes, false, [&a, &b, &c], |operands, d| {
                integers::<true>(sizes, ([true; 2], saturate), operands, (&mut Room::boxed(), d));
            })
        };
        assert_eq!(d(true), [i32::MIN.cast_unsigned(); 64]);
        assert_eq!(d(false), [(i32::MIN + 5).wrapping_sub(127).cast_unsigned(); 64]);
    }
}
