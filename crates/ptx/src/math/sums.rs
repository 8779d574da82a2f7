//! Sums of products, eight at a time.

use super::{matrix, single};

/// Sums that are made at once.
pub(super) const LANES: usize = 8;

/// The most elements of a matrix: 32 lines of 16, or 16 of 32.
pub(crate) const ELEMENTS_MAX: usize = VECTORS * LANES;
pub(super) const VECTORS: usize = 64;

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

/// The sizes of a product: the columns are a multiple of eight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// The lines of the first factor and of the sums.
    pub(crate) rows: usize,
    /// The elements of a line of the second factor and of the sums.
    pub(crate) columns: usize,
    /// The elements of a line of the first factor.
    pub(crate) depth: usize,
}

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

/// The larger ones of exponents and those of products.
#[inline(always)]
pub(super) fn later(largest: [i32; LANES], first: i32, second: [i32; LANES]) -> [i32; LANES] {
    let mut later = [0; LANES];
    for lane in 0..LANES {
        later[lane] = largest[lane].max(first + second[lane]);
    }
    later
}

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

/// Eight numbers from a place on; zeros if there are fewer.
#[inline(always)]
pub(crate) fn vector<T: Copy + Default>(numbers: &[T], at: usize) -> [T; LANES] {
    let rest = numbers.get(at..).unwrap_or_default();
    rest.first_chunk().copied().unwrap_or_default()
}

/// Writes eight numbers from a place on, if there are as many.
#[inline(always)]
pub(crate) fn set<T>(numbers: &mut [T], at: usize, values: [T; LANES]) {
    if let Some(place) = numbers.get_mut(at..).and_then(<[T]>::first_chunk_mut) {
        *place = values;
    }
}

/// Writes eight sums from a place on.
#[inline(always)]
pub(super) fn write_sums(to: Format, sums: &Exact, d: &mut [u32], at: usize) {
    let results = if to.fraction == F16.fraction { sums.to_halves() } else { sums.to_singles() };
    set(d, at, results);
}
