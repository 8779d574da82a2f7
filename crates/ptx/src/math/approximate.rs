//! The approximate functions, bit by bit as an H200 computes them.
//!
//! The hardware has a table for each function: a quadratic polynomial for each segment of the argument
//! (`polynomial`). The tables were found from results of an H200, and give every result that was compared.
//! `tanh` has a file of its own.
//!
//! Measured over all of f32 on an H200, in units of the last place against the exact value: `rcp`
//! 0.98, `sqrt` 0.94, `rsqrt` 1.51, `ex2` 2.38, `div` 2.07. `lg2` is within 8e-6 and, near 1, within
//! 2e-7; `sin` and `cos` are within 4.1e-7 between -pi and pi.

use super::coefficients::{
    EXPONENT, LOGARITHM, RECIPROCAL, RECIPROCAL_ROOT_EVEN, RECIPROCAL_ROOT_ODD, ROOT_EVEN,
    ROOT_ODD, SINE,
};
use super::double;
use super::half::{self, Half};
use super::polynomial::{
    Cut, POINT, cut_of_64, cut_polynomial, cut_table, whole_of_64, whole_table,
};
use super::single::{self, FRACTION, NAN};

/// The bit of the sign.
const SIGN: u32 = 0x8000_0000;

/// The bits of infinity.
const INFINITY: u32 = 0x7f80_0000;

/// 2 to the power of 24, with which subnormal operands are scaled.
const SCALE: f32 = 16_777_216.0;

static RECIPROCAL_CUT: [Cut; 128] = cut_table::<16, 128>(&RECIPROCAL);
static RECIPROCAL_ROOT_EVEN_CUT: [Cut; 64] = cut_table::<17, 64>(&RECIPROCAL_ROOT_EVEN);
static RECIPROCAL_ROOT_ODD_CUT: [Cut; 64] = cut_table::<17, 64>(&RECIPROCAL_ROOT_ODD);
static ROOT_EVEN_CUT: [Cut; 64] = cut_table::<17, 64>(&ROOT_EVEN);
static ROOT_ODD_CUT: [Cut; 64] = cut_table::<17, 64>(&ROOT_ODD);
static EXPONENT_CUT: [Cut; 64] = cut_table::<17, 64>(&EXPONENT);

static LOGARITHM_WHOLE: [[f64; 3]; 64] = whole_table(&LOGARITHM);
static SINE_WHOLE: [[f64; 3]; 64] = whole_table(&SINE);

/// A float of 24 bits, 2^23 to 2^24 - 1, times a power of two. Subnormal numbers become 0.
#[inline(always)]
fn float(mantissa: u32, exponent: i32) -> u32 {
    if exponent < -126 {
        0
    } else if exponent > 127 {
        INFINITY
    } else {
        ((exponent + 127) as u32) << 23 | mantissa & FRACTION
    }
}

/// `rcp.approx.ftz`, of hardware's own instruction.
#[inline(always)]
fn reciprocal_flushed(bits: u32) -> u32 {
    let (sign, magnitude) = (bits & SIGN, bits & !SIGN);
    let exponent = (magnitude >> 23) as i32 - 127;
    let fraction = magnitude & FRACTION;
    let segment = RECIPROCAL_CUT[(fraction >> 16) as usize];
    let inside = float(cut_polynomial::<16>(segment, fraction & 0xffff), -exponent - 1);
    let exact = float(0, -exponent);
    let normal = sign | if fraction == 0 { exact } else { inside };
    let finite = if magnitude <= FRACTION { sign | INFINITY } else { normal };
    let number = if magnitude == INFINITY { sign } else { finite };
    if magnitude > INFINITY { NAN } else { number }
}

/// The product of a float with a power of two.
#[inline(always)]
fn scaled(bits: u32, scale: f32) -> u32 {
    (f32::from_bits(bits) * scale).to_bits()
}

/// Whether a float is subnormal and not zero.
#[inline(always)]
const fn is_subnormal(bits: u32) -> bool {
    let magnitude = bits & !SIGN;
    magnitude <= FRACTION && magnitude != 0
}

/// Whether the reciprocal of a float is subnormal and not zero.
#[inline(always)]
const fn is_huge(bits: u32) -> bool {
    let magnitude = bits & !SIGN;
    magnitude > 0x7e80_0000 && magnitude < INFINITY
}

/// `rcp.approx.f32`.
#[inline(always)]
#[must_use]
pub fn reciprocal<const FTZ: bool>(bits: u32) -> u32 {
    if FTZ {
        return reciprocal_flushed(bits);
    }
    let scale = if is_subnormal(bits) { SCALE } else { 0.25 };
    let is_scaled = is_subnormal(bits) || is_huge(bits);
    let result = reciprocal_flushed(if is_scaled { scaled(bits, scale) } else { bits });
    if is_scaled { scaled(result, scale) } else { result }
}

/// `rsqrt.approx.ftz`, of hardware's own instruction.
#[inline(always)]
fn reciprocal_root_flushed(bits: u32) -> u32 {
    let magnitude = bits & !SIGN;
    let exponent = (magnitude >> 23) as i32 - 127;
    let fraction = bits & FRACTION;
    let half = -(exponent >> 1);
    let is_odd = exponent & 1 != 0;
    let table = if is_odd { &RECIPROCAL_ROOT_ODD_CUT } else { &RECIPROCAL_ROOT_EVEN_CUT };
    let inside = float(cut_of_64(table, fraction), half - 1);
    let normal = if fraction == 0 && !is_odd { float(0, half) } else { inside };
    let positive = if bits == INFINITY { 0 } else { normal };
    let number = if bits & SIGN != 0 { NAN } else { positive };
    let number = if magnitude <= FRACTION { bits & SIGN | INFINITY } else { number };
    if magnitude > INFINITY { NAN } else { number }
}

/// `rsqrt.approx.f32`.
#[inline(always)]
#[must_use]
pub fn reciprocal_root<const FTZ: bool>(bits: u32) -> u32 {
    let is_scaled = !FTZ && is_subnormal(bits);
    let result = reciprocal_root_flushed(if is_scaled { scaled(bits, SCALE) } else { bits });
    // A negative one gives no number, which stays as it is.
    let is_scaled = is_scaled && result != NAN;
    if is_scaled { scaled(result, 4096.0) } else { result }
}

/// `sqrt.approx.ftz`, of hardware's own instruction.
#[inline(always)]
fn root_flushed(bits: u32) -> u32 {
    let magnitude = bits & !SIGN;
    let exponent = (magnitude >> 23) as i32 - 127;
    let table = if exponent & 1 != 0 { &ROOT_ODD_CUT } else { &ROOT_EVEN_CUT };
    let normal = float(cut_of_64(table, bits & FRACTION), exponent >> 1);
    let positive = if bits == INFINITY { INFINITY } else { normal };
    let number = if bits & SIGN != 0 { NAN } else { positive };
    let number = if magnitude <= FRACTION { bits & SIGN } else { number };
    if magnitude > INFINITY { NAN } else { number }
}

/// `sqrt.approx.f32`.
#[inline(always)]
#[must_use]
pub fn root<const FTZ: bool>(bits: u32) -> u32 {
    let is_scaled = !FTZ && is_subnormal(bits);
    let result = root_flushed(if is_scaled { scaled(bits, SCALE) } else { bits });
    // A negative one gives no number, which stays as it is.
    let is_scaled = is_scaled && result != NAN;
    if is_scaled { scaled(result, 1.0 / 4096.0) } else { result }
}

/// `ex2.approx.ftz`, of hardware's own instruction.
#[inline(always)]
fn exponent_2_flushed(bits: u32) -> u32 {
    let value = f32::from_bits(bits);
    // 23 bits after the point; of negative numbers the complement, but of integers.
    let near = if bits & !SIGN < 0x4380_0000 { value.abs() } else { 0.0 };
    // SAFETY: a number below 256 times 2^23 fits.
    let fixed = unsafe { (near * 8_388_608.0).to_int_unchecked::<i32>() };
    let is_whole = fixed & FRACTION as i32 == 0;
    let below = if is_whole { fixed.wrapping_neg() } else { !fixed };
    let fixed = if value < 0.0 { below } else { fixed };
    let inside = float(cut_of_64(&EXPONENT_CUT, fixed as u32 & FRACTION), fixed >> 23);
    let number = if value < -127.0 { 0 } else { inside };
    let number = if value >= 128.0 { INFINITY } else { number };
    if bits & !SIGN > INFINITY { NAN } else { number }
}

/// `ex2.approx.f32`.
#[inline(always)]
#[must_use]
pub fn exponent_2<const FTZ: bool>(bits: u32) -> u32 {
    // The result may be subnormal: a square has it.
    let is_root = !FTZ && f32::from_bits(bits) < -126.0;
    let result = exponent_2_flushed(if is_root { scaled(bits, 0.5) } else { bits });
    let root = f32::from_bits(result);
    if is_root { (root * root).to_bits() } else { result }
}

/// `lg2.approx.ftz`, of hardware's own instruction.
#[inline(always)]
fn logarithm_2_flushed(bits: u32) -> u32 {
    let exponent = (bits >> 23) as i32 - 127;
    // 42 bits after the point.
    let sum = f64::from(exponent) * POINT + whole_of_64(&LOGARITHM_WHOLE, bits & FRACTION);
    // The complement of a number with 36 bits after the point.
    let below = -(sum * (1.0 / 64.0)).floor() - 1.0;
    let normal = if sum < 0.0 { SIGN | cut(below * 64.0) } else { cut(sum) };
    let number = if bits == INFINITY { INFINITY } else { normal };
    let number = if bits == 0x3f80_0000 { 0 } else { number };
    let number = if bits & SIGN != 0 { NAN } else { number };
    let number = if bits & !SIGN <= FRACTION { SIGN | INFINITY } else { number };
    if bits & !SIGN > INFINITY { NAN } else { number }
}

/// A number with 42 bits after the point, cut to a float.
#[inline(always)]
fn cut(value: f64) -> u32 {
    single::normal_cut(value * (1.0 / POINT))
}

/// `lg2.approx.f32`.
#[inline(always)]
#[must_use]
pub fn logarithm_2<const FTZ: bool>(bits: u32) -> u32 {
    let is_scaled = !FTZ && is_subnormal(bits);
    let result = logarithm_2_flushed(if is_scaled { scaled(bits, SCALE) } else { bits });
    // A negative one gives no number, which stays as it is.
    let is_scaled = is_scaled && result != NAN;
    if is_scaled { (f32::from_bits(result) - 24.0).to_bits() } else { result }
}

/// The turns of an angle, with 25 bits after the point, without whole turns; and its sign.
///
/// The angle is divided by two pi first: a product that is rounded towards zero.
#[inline(always)]
fn turns(bits: u32) -> u32 {
    /// The float below `1 / (2 pi)`.
    const TURN: f64 = 0.159_154_936_671_257_02;
    let product = f64::from(f32::from_bits(bits & !SIGN)) * TURN;
    let near = product as f32;
    let away = u32::from(f64::from(near) > product);
    let cut = near.to_bits() - away;
    let exponent = (cut >> 23) as i32 - 127;
    let mantissa = cut & FRACTION | 1 << 23;
    // A float with the exponent -2 has 25 bits after the point.
    let shift = exponent + 2;
    let below = mantissa >> shift.wrapping_neg().clamp(0, 31);
    let above = mantissa << shift.clamp(0, 31) & 0x1ff_ffff;
    if shift < 0 { below } else { above }
}

/// The sine of an angle in turns, with 25 bits after the point.
#[inline(always)]
fn sine_of_turns(turns: u32) -> u32 {
    let inner = if turns & 1 << 23 != 0 { !turns & FRACTION } else { turns & FRACTION };
    let sign = if turns & 1 << 24 != 0 { SIGN } else { 0 };
    sign | cut(whole_of_64(&SINE_WHOLE, inner))
}

/// `sin.approx.f32`.
#[inline(always)]
#[must_use]
pub fn sine<const FTZ: bool>(bits: u32) -> u32 {
    let number = sine_of_turns(turns(bits)) ^ bits & SIGN;
    if bits & !SIGN >= INFINITY { NAN } else { number }
}

/// `cos.approx.f32`.
#[inline(always)]
#[must_use]
pub fn cosine<const FTZ: bool>(bits: u32) -> u32 {
    let number = sine_of_turns((turns(bits) + (1 << 23)) & 0x1ff_ffff);
    if bits & !SIGN >= INFINITY { NAN } else { number }
}

/// `div.approx.f32`: the product with the approximate reciprocal. The reciprocal of a divisor above
/// 2^126 is 0.
#[inline(always)]
#[must_use]
pub fn divide<const FTZ: bool>(a: u32, b: u32) -> u32 {
    scaled_quotient::<FTZ>(a, b, !FTZ && is_subnormal(b), SCALE)
}

/// `div.full.f32`: as [`divide`], for every divisor.
#[inline(always)]
#[must_use]
pub fn divide_full<const FTZ: bool>(a: u32, b: u32) -> u32 {
    let scale = if is_huge(b) { 0.25 } else { SCALE };
    scaled_quotient::<FTZ>(a, b, is_huge(b) || !FTZ && is_subnormal(b), scale)
}

/// A quotient, both operands of which may be scaled first.
#[inline(always)]
fn scaled_quotient<const FTZ: bool>(a: u32, b: u32, is_scaled: bool, scale: f32) -> u32 {
    let b = if is_scaled { scaled(b, scale) } else { b };
    let product = single::multiply::<FTZ, false>(a, scale.to_bits());
    let a = if is_scaled { product } else { a };
    single::multiply::<FTZ, false>(a, reciprocal_flushed(b))
}

/// The first power of two that is no `.f16`.
const HALF_BEYOND: u32 = 0x4780_0000;

/// `ex2.approx` of a half: the result for a single, cut.
#[inline(always)]
#[must_use]
pub fn exponent_2_half<H: Half>(bits: u16) -> u16 {
    let wide = if H::MOVES {
        // Of `.bf16`, only `.ftz` exists.
        exponent_2::<true>(H::widen(bits).to_bits())
    } else {
        exponent_2::<false>(H::widen(bits).to_bits())
    };
    let beyond = (!H::MOVES & (wide >= HALF_BEYOND)) | (wide == INFINITY);
    if beyond & !single::is_nan(wide) { H::INFINITY } else { half::cut::<H>(wide) }
}

/// The bits of infinity of a double.
const INFINITY_64: u64 = 0x7ff0_0000_0000_0000;

/// The NaN of the approximate functions of doubles.
const NAN_64: u64 = 0x7fff_ffff_0000_0000;

/// The upper half of a double, without its sign: exponent and the first 20 bits of the fraction.
#[inline]
const fn upper(bits: u64) -> (i32, u32) {
    ((bits >> 52) as i32 & 0x7ff, (bits >> 32) as u32 & 0xf_ffff)
}

/// A double of 24 bits times a power of two, of which 21 are kept.
#[inline]
fn high(mantissa: u32, exponent: i32) -> u64 {
    if exponent < -1022 {
        return 0;
    }
    ((exponent + 1023) as u64) << 52 | (u64::from(mantissa >> 3 & 0xf_ffff)) << 32
}

/// `rcp.approx.ftz.f64`: of the upper halves of operand and result.
#[inline]
#[must_use]
pub fn reciprocal_f64(bits: u64) -> u64 {
    let sign = bits & 1 << 63;
    let (field, fraction) = upper(bits);
    let magnitude = bits & !(1 << 63);
    match field {
        _ if magnitude > INFINITY_64 => NAN_64,
        0 => sign | INFINITY_64,
        0x7ff => sign,
        _ if fraction == 0 => sign | high(0, 1023 - field),
        _ => {
            let fraction = fraction << 3;
            let segment = RECIPROCAL_CUT[(fraction >> 16) as usize];
            let mantissa = cut_polynomial::<16>(segment, fraction & 0xffff);
            sign | high(mantissa, 1022 - field)
        }
    }
}

/// `rsqrt.approx.f64`: with `FTZ` of the upper halves of operand and result, without it a step of
/// Newton's method and its next term behind that.
#[inline]
#[must_use]
pub fn reciprocal_root_f64<const FTZ: bool>(bits: u64) -> u64 {
    /// 2 to the powers of 54 and 27.
    const SCALE_54: u64 = 0x4350_0000_0000_0000;
    const SCALE_27: u64 = 0x41a0_0000_0000_0000;
    /// The result of a negative operand.
    const NEGATIVE_NAN: u64 = 0xfff8_0000_0000_0000;
    if FTZ {
        return reciprocal_root_high(bits);
    }
    let is_subnormal = bits != 0 && bits < 1 << 52;
    match bits {
        _ if is_subnormal => {
            double::multiply(refined_root(double::multiply(bits, SCALE_54)), SCALE_27)
        }
        1.. if bits < INFINITY_64 => refined_root(bits),
        INFINITY_64 => 0,
        _ if bits << 1 == 0 => bits | INFINITY_64,
        _ if double::is_nan(bits) => double::add(bits, bits),
        _ => NEGATIVE_NAN,
    }
}

/// The reciprocal root of a normal number.
#[inline]
fn refined_root(bits: u64) -> u64 {
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const HALF: u64 = 0x3fe0_0000_0000_0000;
    const THREE_EIGHTHS: u64 = 0x3fd8_0000_0000_0000;
    let near = reciprocal_root_high(bits);
    let off = double::fma(bits, double::multiply(near, near) ^ 1 << 63, ONE);
    let factor = double::fma(off, THREE_EIGHTHS, HALF);
    double::fma(factor, double::multiply(near, off), near)
}

/// The reciprocal root of the upper half of a double, with 32 bits of zeros behind it.
#[inline]
fn reciprocal_root_high(bits: u64) -> u64 {
    let (field, fraction) = upper(bits);
    let negative = bits >> 63 != 0;
    if bits & !(1 << 63) > INFINITY_64 {
        return NAN_64;
    }
    match field {
        0 => bits & 1 << 63 | INFINITY_64,
        _ if negative => NAN_64,
        0x7ff => 0,
        _ => {
            let (half, odd) = ((field - 1023) >> 1, (field - 1023) & 1 != 0);
            if fraction == 0 && !odd {
                return high(0, -half);
            }
            let table = if odd { &RECIPROCAL_ROOT_ODD_CUT } else { &RECIPROCAL_ROOT_EVEN_CUT };
            high(cut_of_64(table, fraction << 3), -half - 1)
        }
    }
}
