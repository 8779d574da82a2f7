//! Products of matrices of floats with exponents of at most 50: the usual case, in fewer steps.
//!
//! The product of two factors is exact as a single. Its whole units of the last place that counts are
//! what a conversion to an integer leaves, which cuts towards zero as a tensor core does.

use super::fragments::{LANES, NUMBERS, Numbers, Results, Room, Sizes, vector};
use super::sums::{ADDEND_MAX, ALIGNED, Exact, Format, power};

/// The largest exponent of factors, also below zero.
const FACTOR_MAX: i32 = 50;

impl Numbers {
    /// Gives each number as a single, and the power of two of its first bit if it is normal. Returns whether
    /// no exponent is beyond `most`.
    #[inline(always)]
    fn as_singles(&mut self, format: Format, most: i32) -> bool {
        let places = format.fraction;
        let mut far = 0;
        for at in 0..self.count.min(NUMBERS) {
            let bits = self.patterns[at];
            let (whole, exponent, is_special) = format.decoded(bits);
            // No `&&`: branches would keep the loop from vectors.
            let is_far = (whole != 0) & (exponent.abs() > most);
            far |= u32::from(is_far | is_special);
            let sign = bits >> (places + format.exponent) << 31;
            let exponent = exponent.clamp(-ADDEND_MAX, ADDEND_MAX);
            let scale = power(exponent - places.cast_signed());
            self.values[at] = f32::from_bits((whole as f32 * scale).to_bits() | sign);
            self.powers[at] = if whole == 0 { 0.0 } else { power(exponent) };
        }
        far == 0
    }
}

/// The larger ones of powers and of products of powers. Not by exponents: compilers take the largest of
/// integers across vectors.
#[inline(always)]
fn larger(largest: [f32; LANES], first: f32, second: [f32; LANES]) -> [f32; LANES] {
    let mut larger = [0.0; LANES];
    for lane in 0..LANES {
        let product = first * second[lane];
        larger[lane] = if product > largest[lane] { product } else { largest[lane] };
    }
    larger
}

/// The exponent of a power of two, or that below all if it is zero.
#[inline(always)]
fn exponent_of(power: f32) -> i32 {
    (power.to_bits() >> 23).cast_signed() - 127
}

/// Adds the whole units of products to sums: a factor, eight others, and what a unit is divided by.
#[inline(always)]
fn added(
    sums: [i32; LANES],
    (first, second): (f32, [f32; LANES]),
    scales: [f32; LANES],
) -> [i32; LANES] {
    let mut added = [0; LANES];
    for lane in 0..LANES {
        let units = first * second[lane] * scales[lane];
        // SAFETY: the largest exponent of all terms is `ALIGNED` units of the last place, so the
        // product of two magnitudes below 2 is less than 2^27 units. None is infinite or no number.
        added[lane] = sums[lane] + unsafe { units.to_int_unchecked::<i32>() };
    }
    added
}

/// Adds to each sum a row times its column. False if an exponent is too large, or an operand infinite
/// or no number: nothing is done then.
#[inline(always)]
pub(super) fn floats(
    (from, to): (Format, Format),
    sizes: Sizes,
    room: &mut Room,
    d: &mut Results,
) -> bool {
    let Room { a, b, c } = &mut *room;
    let are_near = a.as_singles(from, FACTOR_MAX)
        & b.as_singles(from, FACTOR_MAX)
        & c.as_singles(to, ADDEND_MAX);
    if !are_near {
        return false;
    }
    match sizes.vectors() {
        1 => rows::<1, 2>(to, sizes, room, d),
        2 => rows::<2, 1>(to, sizes, room, d),
        _ => rows::<4, 1>(to, sizes, room, d),
    }
    true
}

/// The sums, by rows of `N` vectors, `R` rows at a time.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "calls for iterators are not always inlined here")]
fn rows<const N: usize, const R: usize>(
    to: Format,
    sizes: Sizes,
    Room { a, b, c }: &Room,
    d: &mut Results,
) {
    // The places are inside of the matrices, which the bounds only repeat.
    let (values, powers) = (b.values.as_chunks::<LANES>().0, b.powers.as_chunks::<LANES>().0);
    for first_row in (0..sizes.rows).step_by(R) {
        let mut largest = [[[0.0; LANES]; N]; R];
        for row in 0..R {
            for at in 0..N {
                largest[row][at] = vector(&c.powers, ((first_row + row) * N + at) * LANES);
            }
        }
        for four in 0..sizes.depth / 4 {
            let start = sizes.first(first_row, four);
            for quarter in 0..4 {
                for at in 0..N {
                    let second = powers[((4 * four + quarter) * N + at) % (NUMBERS / LANES)];
                    for row in 0..R {
                        let first = a.powers[(start + 4 * row + quarter) % NUMBERS];
                        largest[row][at] = larger(largest[row][at], first, second);
                    }
                }
            }
        }
        let mut scales = [[[0.0; LANES]; N]; R];
        let (mut low, mut high) = ([[[0; LANES]; N]; R], [[[0; LANES]; N]; R]);
        for row in 0..R {
            for at in 0..N {
                let addends = vector(&c.values, ((first_row + row) * N + at) * LANES);
                for lane in 0..LANES {
                    // Only zeros have a smaller exponent.
                    let exponent = exponent_of(largest[row][at][lane]).max(-ADDEND_MAX);
                    scales[row][at][lane] = power(ALIGNED - exponent);
                }
                low[row][at] = added(low[row][at], (1.0, addends), scales[row][at]);
            }
        }
        for four in 0..sizes.depth / 4 {
            let start = sizes.first(first_row, four);
            for quarter in 0..4 {
                for at in 0..N {
                    let second = values[((4 * four + quarter) * N + at) % (NUMBERS / LANES)];
                    for row in 0..R {
                        let first = a.values[(start + 4 * row + quarter) % NUMBERS];
                        let (pair, scales) = ((first, second), scales[row][at]);
                        if quarter % 2 == 0 {
                            low[row][at] = added(low[row][at], pair, scales);
                        } else {
                            high[row][at] = added(high[row][at], pair, scales);
                        }
                    }
                }
            }
        }
        for row in 0..R {
            for at in 0..N {
                let mut unit = [0; LANES];
                for lane in 0..LANES {
                    unit[lane] = exponent_of(largest[row][at][lane]) - ALIGNED;
                }
                let sums = Exact { low: low[row][at], high: high[row][at], unit };
                d.set(first_row + row, at, to.results(&sums));
            }
        }
    }
}
