//! Products of matrices of floats with exponents of at most 50: the usual case, in fewer steps.
//!
//! The product of two factors is exact as a single. Its whole units of the last place that counts are
//! what a conversion to an integer leaves, which cuts towards zero as a tensor core does.

use super::sums::{
    ADDEND_MAX, ALIGNED, Exact, Format, LANES, Sizes, VECTORS, ZERO, later, power, vector,
    write_sums,
};

/// The largest exponent of factors, also below zero.
const FACTOR_MAX: i32 = 50;

/// Numbers as singles, with the exponents of their first bits if they are normal.
struct Numbers {
    values: [[f32; LANES]; VECTORS],
    exponents: [[i32; LANES]; VECTORS],
}

impl Numbers {
    const NONE: Self = Self { values: [[0.0; LANES]; VECTORS], exponents: [[0; LANES]; VECTORS] };

    /// Reads patterns of bits. Returns whether no exponent is beyond `most`.
    #[inline(always)]
    fn read(&mut self, format: Format, bits: &[u32], most: i32) -> bool {
        let Format { fraction: places, exponent } = format;
        let beyond = (1 << exponent) - 1;
        let bias = (1 << (exponent - 1)) - 1;
        let mut far = 0;
        for at in (0..bits.len()).step_by(LANES) {
            let patterns = vector(bits, at);
            let (mut values, mut exponents) = ([0.0; LANES], [0; LANES]);
            for lane in 0..LANES {
                let bits = patterns[lane];
                let field = (bits >> places & beyond).cast_signed();
                let fraction = (bits & ((1 << places) - 1)).cast_signed();
                let whole = if field == 0 { fraction } else { fraction | 1 << places };
                let exponent = field.max(1) - bias;
                // No `&&`: branches would keep the loop from vectors.
                let is_far = (whole != 0) & (exponent.abs() > most);
                far |= u32::from(is_far) | u32::from(field == beyond.cast_signed());
                let sign = bits >> (places + format.exponent) << 31;
                let scale = power(exponent.clamp(-ADDEND_MAX, ADDEND_MAX) - places.cast_signed());
                values[lane] = f32::from_bits((whole as f32 * scale).to_bits() | sign);
                exponents[lane] = if whole == 0 { ZERO } else { exponent };
            }
            self.values[at / LANES % VECTORS] = values;
            self.exponents[at / LANES % VECTORS] = exponents;
        }
        far == 0
    }
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
    bits: (&[u32], &[u32], &[u32]),
    d: &mut [u32],
) -> bool {
    let Sizes { columns, depth, .. } = sizes;
    let [mut a, mut b, mut c] = [Numbers::NONE; 3];
    let are_near = a.read(from, bits.0, FACTOR_MAX) & b.read(from, bits.1, FACTOR_MAX);
    if !(are_near & c.read(to, bits.2, ADDEND_MAX)) {
        return false;
    }
    let (values, exponents) = (a.values.as_flattened(), a.exponents.as_flattened());
    for at in (0..d.len()).step_by(LANES) {
        let (row, column) = (at / columns * depth, at % columns);
        let index = |k: usize| (k * columns + column) / LANES % VECTORS;
        let (addends, mut largest) =
            (c.values[at / LANES % VECTORS], c.exponents[at / LANES % VECTORS]);
        for k in 0..depth {
            largest = later(largest, exponents[row + k], b.exponents[index(k)]);
        }
        let mut sums = Exact { low: [0; LANES], high: [0; LANES], unit: [0; LANES] };
        let mut scales = [0.0; LANES];
        for lane in 0..LANES {
            sums.unit[lane] = largest[lane] - ALIGNED;
            // Only zeros have a smaller exponent.
            scales[lane] = power(ALIGNED - largest[lane].max(-ADDEND_MAX));
        }
        sums.low = added(sums.low, (1.0, addends), scales);
        // The depth is even.
        for k in (0..depth).step_by(2) {
            sums.low = added(sums.low, (values[row + k], b.values[index(k)]), scales);
            sums.high = added(sums.high, (values[row + k + 1], b.values[index(k + 1)]), scales);
        }
        write_sums(to, &sums, d, at);
    }
    true
}
