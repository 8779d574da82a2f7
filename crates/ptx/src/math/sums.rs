//! Sums of products, eight at a time.

use super::fragments::{LANES, NUMBERS, Sizes};
use super::{matrix, single};

/// The exponent of a zero: below that of every number, also in a sum of two.
pub(super) const ZERO: i32 = -(1 << 20);

/// The largest exponent of addends, also below zero: with small factors, totals are no subnormals.
pub(super) const ADDEND_MAX: i32 = 100;

/// A power of two.
#[inline(always)]
pub(super) fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Bits after the first that a term keeps when it is aligned.
pub(super) const ALIGNED: i32 = 25;

/// A format of factors: bits of the fraction and of the exponent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    pub(super) fraction: u32,
    pub(super) exponent: u32,
}

pub(super) const F16: Format = Format { fraction: 10, exponent: 5 };
pub(super) const BF16: Format = Format { fraction: 7, exponent: 8 };
pub(super) const TF32: Format = Format { fraction: 10, exponent: 8 };
pub(super) const F32: Format = Format { fraction: 23, exponent: 8 };

/// Exact sums of eight columns: the sum is `(low + high) * 2^unit`.
pub(super) struct Exact {
    pub(super) low: [i32; LANES],
    pub(super) high: [i32; LANES],
    pub(super) unit: [i32; LANES],
}

impl Exact {
    /// The sum as a double, which holds it exactly.
    #[inline(always)]
    fn values(&self) -> [f64; LANES] {
        let Self { low, high, unit } = self;
        let mut values = [0.0; LANES];
        for lane in 0..LANES {
            // Where all terms are zero, the unit is far below the range of doubles.
            let exponent = i64::from(unit[lane].max(-1000)) + 1023;
            let scale = f64::from_bits(exponent.cast_unsigned() << 52);
            values[lane] = (f64::from(low[lane]) + f64::from(high[lane])) * scale;
        }
        values
    }

    #[inline(always)]
    fn to_singles(&self) -> [u32; LANES] {
        let (values, mut results) = (self.values(), [0; LANES]);
        let mut tiny = false;
        for lane in 0..LANES {
            results[lane] = single::normal_cut(values[lane]);
            tiny |= values[lane].abs() < f64::from(f32::MIN_POSITIVE);
        }
        if tiny {
            for lane in 0..LANES {
                let value = values[lane];
                if value != 0.0 && value.abs() < f64::from(f32::MIN_POSITIVE) {
                    results[lane] = single::subnormal_cut(value);
                }
            }
        }
        results
    }

    fn to_halves(&self) -> [u32; LANES] {
        let mut results = [0; LANES];
        for (lane, result) in results.iter_mut().enumerate() {
            let total = i64::from(self.low[lane]) + i64::from(self.high[lane]);
            *result = matrix::half_of(total, self.unit[lane]).into();
        }
        results
    }
}

/// Sums of rows times columns, for `R` rows from one on and all their `N` vectors of columns. `R` divides
/// eight. Sums that run beside each other keep the machine busy. All is by index: calls for iterators and
/// closures are not always inlined here, and sums that pass through memory are slow.
///
/// `FUSED` is for machines with an instruction for a product and a sum. No product or sum may be rounded.
#[inline(always)]
pub(super) fn sums_of<const N: usize, const R: usize, const FUSED: bool>(
    sizes: Sizes,
    first_row: usize,
    (a, b): (&[f32; NUMBERS], &[f32; NUMBERS]),
) -> [[[f32; LANES]; N]; R] {
    let mut sums = [[[0.0; LANES]; N]; R];
    let (vectors, _) = b.as_chunks::<LANES>();
    for four in 0..sizes.depth / 4 {
        let start = sizes.first(first_row, four);
        for quarter in 0..4 {
            for part in 0..N {
                // The places are inside of the factors, which the bounds only repeat.
                let second = vectors[((4 * four + quarter) * N + part) % (NUMBERS / LANES)];
                for row in 0..R {
                    let first = a[(start + 4 * row + quarter) % NUMBERS];
                    for lane in 0..LANES {
                        let sum = sums[row][part][lane];
                        sums[row][part][lane] = match FUSED {
                            true => first.mul_add(second[lane], sum),
                            false => sum + first * second[lane],
                        };
                    }
                }
            }
        }
    }
    sums
}

impl Format {
    /// The results of eight sums.
    #[inline(always)]
    pub(super) fn results(self, sums: &Exact) -> [u32; LANES] {
        if self.fraction == F16.fraction { sums.to_halves() } else { sums.to_singles() }
    }

    /// The magnitude of a number as an integer, the exponent of its first bit if it is normal, and whether it
    /// is infinite or no number.
    #[inline(always)]
    pub(super) fn decoded(self, bits: u32) -> (i32, i32, bool) {
        let beyond = (1 << self.exponent) - 1;
        let field = (bits >> self.fraction & beyond).cast_signed();
        let fraction = (bits & ((1 << self.fraction) - 1)).cast_signed();
        let whole = if field == 0 { fraction } else { fraction | 1 << self.fraction };
        let bias = (1 << (self.exponent - 1)) - 1;
        (whole, field.max(1) - bias, field == beyond.cast_signed())
    }

    /// The bits of a number.
    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.fraction + self.exponent + 1
    }
}
