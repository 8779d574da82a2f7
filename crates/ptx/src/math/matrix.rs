//! One element of a matrix product: a row times a column plus an accumulator, as `mma` sums them.
//!
//! An H200's tensor cores align all products and the accumulator to the largest exponent among
//! them, cut each below 25 bits after that exponent's, add them exactly, and cut the sum to a single.
//! The whole row is one sum. Doubles are a chain of `fma`; integers are exact.

use super::Rounding;
use super::half::{Binary16, Half};
use super::number::{BF16, F16, F32, Format, Number, TF32, Value};
use super::{double, single};

/// Bits after the first that a term keeps when it is aligned.
const ALIGNED: i32 = 25;

/// A row of `.f16` times a column, plus an `.f32`.
#[must_use]
pub fn dot_f16(row: &[u16], column: &[u16], sum: u32) -> u32 {
    single_of(dot(F16, row, column, F32, sum))
}

/// A row of `.f16` times a column, plus an `.f16`.
#[must_use]
pub fn dot_f16_to_f16(row: &[u16], column: &[u16], sum: u16) -> u16 {
    F16.encode(dot(F16, row, column, F16, u32::from(sum)), Rounding::Nearest, false) as u16
}

/// A sum in units of a power of two, as `.f16`.
pub(super) fn half_of(total: i64, unit: i32) -> u16 {
    F16.encode(units(total, unit), Rounding::Nearest, false) as u16
}

/// A row of `.bf16` times a column, plus an `.f32`.
#[must_use]
pub fn dot_bf16(row: &[u16], column: &[u16], sum: u32) -> u32 {
    single_of(dot(BF16, row, column, F32, sum))
}

/// A row of `.tf32` times a column, plus an `.f32`. The low 13 bits of operands do not count.
#[must_use]
pub fn dot_tf32(row: &[u32], column: &[u32], sum: u32) -> u32 {
    let pairs = row.iter().zip(column).map(|(a, b)| (u64::from(a >> 13), u64::from(b >> 13)));
    single_of(dot_pairs(TF32, pairs, F32, sum))
}

/// A row of `.f64` times a column, plus an `.f64`: a chain of `fma` in order.
#[must_use]
pub fn dot_f64(row: &[u64], column: &[u64], sum: u64) -> u64 {
    row.iter().zip(column).fold(sum, |sum, (a, b)| double::fma(*a, *b, sum))
}

/// A row of bytes times a column, plus an `.s32`. Each operand's bytes are signed or not. The sum
/// wraps, or with `.satfinite` is clamped.
#[must_use]
pub fn dot_bytes<const A_SIGNED: bool, const B_SIGNED: bool>(
    row: &[u8],
    column: &[u8],
    sum: i32,
    saturate: bool,
) -> i32 {
    let of = |byte: u8, signed: bool| if signed { i64::from(byte as i8) } else { i64::from(byte) };
    let product = |(a, b): (&u8, &u8)| of(*a, A_SIGNED) * of(*b, B_SIGNED);
    let exact = i64::from(sum) + row.iter().zip(column).map(product).sum::<i64>();
    if saturate {
        exact.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
    } else {
        exact as i32
    }
}

/// A row of four `.f16` times a column, as `ptxas` makes it of `mma.m8n8k4`: a chain of `fma` in singles, to
/// which the accumulator is added.
#[must_use]
pub fn quad_to_single(row: &[u16; 4], column: &[u16; 4], sum: u32) -> u32 {
    let widen = |bits: u16| Binary16::widen(bits).to_bits();
    let pairs = row.iter().zip(column);
    let products =
        pairs.fold(0, |sum, (a, b)| single::fma::<false, false>(widen(*a), widen(*b), sum));
    single::add::<false, false>(sum, products)
}

/// The same with sums of `.f16`: two products each make a sum, the accumulator takes one after the other as
/// an `.f32`, and the result is rounded.
#[must_use]
pub fn quad_to_half(row: &[u16; 4], column: &[u16; 4], sum: u32) -> u16 {
    let widen = |bits: u16| Binary16::widen(bits).to_bits();
    let two = |at: usize| {
        let product = |k: usize| (widen(row[k]), widen(column[k]));
        let ((a, b), (c, d)) = (product(at), product(at + 1));
        single::fma::<false, false>(c, d, single::multiply::<false, false>(a, b))
    };
    let first = single::add::<false, false>(sum, two(0));
    Binary16::narrow(f32::from_bits(single::add::<false, false>(first, two(2))))
}

/// The sum as `.f32`, cut; beyond the largest number it is infinite.
fn single_of(value: Value) -> u32 {
    match value {
        Value::Nan => single::NAN,
        Value::Finite(number) if number.exponent - number.magnitude.leading_zeros() as i32 > 0 => {
            F32.encode(Value::Infinite { negative: number.negative }, Rounding::Zero, false) as u32
        }
        _ => F32.encode(value, Rounding::Zero, false) as u32,
    }
}

/// The sum of products of halves, in the format of the accumulator.
fn dot(format: Format, row: &[u16], column: &[u16], to: Format, sum: u32) -> Value {
    let pairs = row.iter().zip(column).map(|(a, b)| (u64::from(*a), u64::from(*b)));
    dot_pairs(format, pairs, to, sum)
}

/// The sum of products, before it is rounded.
fn dot_pairs(
    format: Format,
    pairs: impl Iterator<Item = (u64, u64)> + Clone,
    to: Format,
    sum: u32,
) -> Value {
    let product = |(a, b): (u64, u64)| {
        let (a, b) = (format.decode(a), format.decode(b));
        (a.multiply(b), 2 * format.places())
    };
    let last = (to.decode(u64::from(sum)), to.places());
    let terms = pairs.map(product).chain(std::iter::once(last));
    let mut largest = i32::MIN;
    let mut special = None;
    for (value, places) in terms.clone() {
        match value {
            // The exponent counts as if a product had one bit before the point.
            Value::Finite(number) if number.magnitude != 0 => {
                largest = largest.max(number.exponent + places);
            }
            Value::Finite(_) => {}
            other => {
                special = Some(special.map_or(other, |old: Value| old.add(other, Rounding::Zero)));
            }
        }
    }
    if let Some(value) = special {
        return value;
    }
    if largest == i32::MIN {
        return Value::Finite(Number { negative: false, exponent: 0, magnitude: 0 });
    }
    let unit = largest - ALIGNED;
    let total: i64 = terms.map(|(value, _)| aligned(value, unit)).sum();
    units(total, unit)
}

/// So many units of a power of two.
fn units(total: i64, unit: i32) -> Value {
    Value::Finite(Number {
        negative: total < 0,
        exponent: unit,
        magnitude: u128::from(total.unsigned_abs()),
    })
}

/// A finite number in units of a power of two, cut.
fn aligned(value: Value, unit: i32) -> i64 {
    let Value::Finite(number) = value else { return 0 };
    // The exponent of a zero says nothing.
    if number.magnitude == 0 {
        return 0;
    }
    let shift = unit - number.exponent;
    let magnitude = match shift {
        ..=0 => (number.magnitude << -shift) as i64,
        1..=127 => (number.magnitude >> shift) as i64,
        _ => 0,
    };
    if number.negative { -magnitude } else { magnitude }
}
