//! Conversions between types: `cvt`.

use super::Rounding;
use super::directed::{self, How};
use super::double;
use super::half::{self, Exact, Half};
use super::number::{E4M3, E5M2, F32, F64, Format, TF32, Value};
use super::single;

/// An integer type that `cvt` converts to.
pub trait Target: Copy {
    /// The nearest number of the type to a float that is an integer. A NaN is 0, or in a type of 64
    /// bits the highest bit alone.
    fn from_f32(value: f32) -> Self;

    /// The nearest number of the type to a float that is an integer. A NaN is the highest bit alone.
    fn from_f64(value: f64) -> Self;

    /// `cvt.sat`: the nearest number of the type.
    fn clamp_signed(value: i64) -> Self;

    /// `cvt.sat`: the nearest number of the type.
    fn clamp_unsigned(value: u64) -> Self;
}

macro_rules! target {
    ($($type:ident)*) => {$(
        impl Target for $type {
            #[inline]
            fn from_f32(value: f32) -> Self {
                let none = if $type::BITS == 64 { 1 << ($type::BITS - 1) } else { 0 };
                if value.is_nan() { none } else { value as $type }
            }

            #[inline]
            fn from_f64(value: f64) -> Self {
                if value.is_nan() { 1 << ($type::BITS - 1) } else { value as $type }
            }

            #[inline]
            fn clamp_signed(value: i64) -> Self {
                let out = if value < 0 { $type::MIN } else { $type::MAX };
                $type::try_from(value).unwrap_or(out)
            }

            #[inline]
            fn clamp_unsigned(value: u64) -> Self {
                $type::try_from(value).unwrap_or($type::MAX)
            }
        }
    )*};
}

target!(u8 u16 u32 u64 i8 i16 i32 i64);

/// A float rounded to an integer.
#[inline]
fn integral_f32(value: f32, rounding: Rounding) -> f32 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
        Rounding::NearestAway => value.round(),
    }
}

/// A float rounded to an integer.
#[inline]
fn integral_f64(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
        Rounding::NearestAway => value.round(),
    }
}

/// `cvt.rni.s32.f32` and its like: out of range is clamped. The caller widens an `.f16`.
#[inline]
#[must_use]
pub fn integer_from_f32<T: Target>(bits: u32, rounding: Rounding, ftz: bool) -> T {
    let bits = if ftz { single::flush(bits) } else { bits };
    T::from_f32(integral_f32(f32::from_bits(bits), rounding))
}

/// `cvt.rni.s32.f64` and its like: out of range is clamped.
#[inline]
#[must_use]
pub fn integer_from_f64<T: Target>(bits: u64, rounding: Rounding) -> T {
    T::from_f64(integral_f64(f64::from_bits(bits), rounding))
}

/// `cvt.rni.f32.f32` and its like: an integer as a float.
#[inline]
#[must_use]
pub fn round_f32(bits: u32, rounding: Rounding, ftz: bool, sat: bool) -> u32 {
    let bits = if ftz { single::flush(bits) } else { bits };
    single::result_bits(integral_f32(f32::from_bits(bits), rounding).to_bits(), ftz, sat)
}

/// `cvt.rni.f64.f64` and its like: an integer as a float.
#[inline]
#[must_use]
pub fn round_f64(bits: u64, rounding: Rounding, sat: bool) -> u64 {
    result_f64(integral_f64(f64::from_bits(bits), rounding), sat)
}

/// `cvt.rni.f16.f16` and its like: an integer as a float.
#[inline]
#[must_use]
pub fn round_half<H: Half>(bits: u16, rounding: Rounding, modifiers: half::Modifiers) -> u16 {
    let bits = if modifiers.ftz { half::flush::<H>(bits) } else { bits };
    let rounded = H::narrow(integral_f32(H::widen(bits), rounding));
    if modifiers.sat { half::saturate::<H>(rounded) } else { rounded }
}

/// `cvt.f32.f32` without a rounding: only the modifiers.
#[inline]
#[must_use]
pub fn same_f32(bits: u32, ftz: bool, sat: bool) -> u32 {
    if ftz || sat { single::result_bits(bits, ftz, sat) } else { bits }
}

/// `cvt.f64.f64` without a rounding: only the modifiers.
#[inline]
#[must_use]
pub fn same_f64(bits: u64, sat: bool) -> u64 {
    if sat { result_f64(f64::from_bits(bits), sat) } else { bits }
}

/// `cvt.f16.f16` without a rounding: only the modifiers, and a NaN is canonical.
#[inline]
#[must_use]
pub fn same_half<H: Half>(bits: u16, modifiers: half::Modifiers) -> u16 {
    let bits = if modifiers.ftz { half::flush::<H>(bits) } else { bits };
    if modifiers.sat {
        half::saturate::<H>(bits)
    } else if half::is_nan::<H>(bits) {
        half::NAN
    } else {
        bits
    }
}

/// The register for a result.
#[inline]
fn result_f64(value: f64, sat: bool) -> u64 {
    if sat {
        // Of a NaN and of -0, too.
        return if value > 0.0 { value.min(1.0).to_bits() } else { 0 };
    }
    if value.is_nan() { double::quiet(value.to_bits()) } else { value.to_bits() }
}

/// `cvt.rn.f32.s64` and its like, of the nearest float.
#[inline]
#[must_use]
pub const fn f32_from_signed(value: i64) -> u32 {
    (value as f32).to_bits()
}

/// `cvt.rn.f32.u64` and its like, of the nearest float.
#[inline]
#[must_use]
pub const fn f32_from_unsigned(value: u64) -> u32 {
    (value as f32).to_bits()
}

/// `cvt.rn.f64.s64` and its like, of the nearest float.
#[inline]
#[must_use]
pub const fn f64_from_signed(value: i64) -> u64 {
    (value as f64).to_bits()
}

/// `cvt.rn.f64.u64` and its like, of the nearest float.
#[inline]
#[must_use]
pub const fn f64_from_unsigned(value: u64) -> u64 {
    (value as f64).to_bits()
}

/// An integer with its sign, which a float is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Whole {
    /// Whether it is below zero.
    pub negative: bool,
    /// How far from zero.
    pub magnitude: u64,
}

impl From<i64> for Whole {
    #[inline]
    fn from(value: i64) -> Self {
        Self { negative: value < 0, magnitude: value.unsigned_abs() }
    }
}

impl From<u64> for Whole {
    #[inline]
    fn from(value: u64) -> Self {
        Self { negative: false, magnitude: value }
    }
}

impl Whole {
    /// The number to round.
    const fn value(self) -> Value {
        Value::integer(self.negative, self.magnitude)
    }
}

/// An integer as `.f32`, with any rounding.
#[must_use]
pub fn f32_from_integer(value: impl Into<Whole>, rounding: Rounding, sat: bool) -> u32 {
    let bits = F32.encode(value.into().value(), rounding, false) as u32;
    single::result_bits(bits, false, sat)
}

/// An integer as `.f64`, with any rounding.
#[must_use]
pub fn f64_from_integer(value: impl Into<Whole>, rounding: Rounding, sat: bool) -> u64 {
    result_f64(f64::from_bits(F64.encode(value.into().value(), rounding, false)), sat)
}

/// An integer as `.f16` or `.bf16`, with any rounding.
#[must_use]
pub fn half_from_integer<H: Narrow>(value: impl Into<Whole>, rounding: Rounding, sat: bool) -> u16 {
    let bits = H::round(value.into().value(), rounding, false);
    if sat { half::saturate::<H>(bits) } else { bits }
}

/// A half that a conversion rounds to.
pub trait Narrow: Half + sealed::Rounds {}

impl<H: Half + sealed::Rounds> Narrow for H {}

mod sealed {
    use super::{Exact, Rounding, Value};

    /// Rounds exact numbers.
    pub trait Rounds {
        #[allow(private_interfaces, reason = "the trait cannot be named outside of this crate")]
        fn round(value: Value, rounding: Rounding, finite: bool) -> u16;
    }

    impl<H: Exact> Rounds for H {
        #[allow(private_interfaces, reason = "the trait cannot be named outside of this crate")]
        fn round(value: Value, rounding: Rounding, finite: bool) -> u16 {
            H::FORMAT.encode(value, rounding, finite) as u16
        }
    }
}

/// The modifiers of a conversion between floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Modifiers {
    /// The rounding, if the result's type is the narrower one.
    pub rounding: Rounding,
    /// `.ftz`, of operands and results of type `.f32`.
    pub ftz: bool,
    /// `.sat`
    pub sat: bool,
    /// `.relu`: negative numbers are 0.
    pub relu: bool,
    /// `.satfinite`: the largest number in place of an infinity.
    pub finite: bool,
}

impl Modifiers {
    /// A rounding and no modifier.
    #[must_use]
    pub const fn new(rounding: Rounding) -> Self {
        Self { rounding, ftz: false, sat: false, relu: false, finite: false }
    }
}

/// `cvt.rn.f32.f64`. A NaN keeps its sign and the upper bits of its payload.
#[inline]
#[must_use]
pub fn f32_from_f64<const FTZ: bool, const SAT: bool>(bits: u64) -> u32 {
    let near = (f64::from_bits(bits) as f32).to_bits();
    let tiny = FTZ && f64::from_bits(bits).abs() < single::TINY;
    let near = if tiny { near & 0x8000_0000 } else { near };
    if SAT {
        single::saturate(near)
    } else if double::is_nan(bits) {
        narrow_nan(bits)
    } else {
        near
    }
}

/// The upper bits of a NaN, which is quiet.
const fn narrow_nan(bits: u64) -> u32 {
    let sign = (bits >> 32) as u32 & 0x8000_0000;
    sign | 0x7fc0_0000 | (bits >> 29) as u32 & 0x003f_ffff
}

/// `cvt.f32.f64` with any rounding.
#[inline]
#[must_use]
pub fn f32_from_f64_rounded(bits: u64, how: How) -> u32 {
    if double::is_nan(bits) && !how.saturates() {
        narrow_nan(bits)
    } else {
        directed::from_double(bits, how)
    }
}

/// `cvt.f64.f32`. A NaN keeps its sign and payload, but with `.ftz` it is canonical.
#[inline]
#[must_use]
pub fn f64_from_f32<const FTZ: bool, const SAT: bool>(bits: u32) -> u64 {
    let bits = if FTZ { single::result_bits(bits, true, false) } else { bits };
    result_f64(f64::from(f32::from_bits(bits)), SAT)
}

/// `cvt.f32.f16`, `cvt.f32.bf16`.
#[inline]
#[must_use]
pub fn f32_from_half<H: Half>(bits: u16, ftz: bool, sat: bool) -> u32 {
    let wide = H::widen(bits).to_bits();
    // A `.bf16` is only moved.
    if H::MOVES && !ftz && !sat { wide } else { single::result_bits(wide, ftz, sat) }
}

/// `cvt.f64.f16`, `cvt.f64.bf16`.
#[inline]
#[must_use]
pub fn f64_from_half<H: Half>(bits: u16, sat: bool) -> u64 {
    result_f64(f64::from(H::widen(bits)), sat)
}

/// `cvt.rn.f16.f32`, `cvt.rn.bf16.f32`.
#[inline]
#[must_use]
pub fn half_from_f32_nearest<H: Half>(bits: u32) -> u16 {
    H::narrow(f32::from_bits(bits))
}

/// `cvt.rn.f16x2.f32`, `cvt.rn.bf16x2.f32`: the first is the upper half.
#[inline]
#[must_use]
pub fn pair_from_f32_nearest<H: Half>(a: u32, b: u32) -> u32 {
    u32::from(half_from_f32_nearest::<H>(a)) << 16 | u32::from(half_from_f32_nearest::<H>(b))
}

/// `cvt.f16.f32`, `cvt.bf16.f32` with any modifier. Hardware does not flush the operand of `.ftz`.
#[must_use]
pub fn half_from_f32<H: Narrow>(bits: u32, modifiers: Modifiers) -> u16 {
    half_from::<H>(F32.decode(u64::from(bits)), modifiers)
}

/// `cvt.f16.f64`, `cvt.bf16.f64` with any modifier. A NaN keeps its sign and the upper bits of its
/// payload.
#[must_use]
pub fn half_from_f64<H: Narrow>(bits: u64, modifiers: Modifiers) -> u16 {
    if double::is_nan(bits) && !modifiers.sat && !modifiers.relu {
        let sign = (bits >> 48) as u16 & 0x8000;
        let quiet = double::quiet(bits) & ((1 << 52) - 1);
        return sign | H::INFINITY | (quiet >> (52 - H::INFINITY.trailing_zeros())) as u16;
    }
    half_from::<H>(F64.decode(bits), modifiers)
}

/// A value as a half.
fn half_from<H: Narrow>(value: Value, modifiers: Modifiers) -> u16 {
    let bits = H::round(value, modifiers.rounding, modifiers.finite);
    if modifiers.sat {
        half::saturate::<H>(bits)
    } else if modifiers.relu {
        half::relu::<H>(bits)
    } else {
        bits
    }
}

/// `cvt.rna.tf32.f32`, with `.satfinite` or without it: a sum of integers. A NaN loses its low bits only, and
/// `.satfinite` makes it the pattern below.
#[inline]
#[must_use]
pub(crate) fn tf32_from_f32_away(bits: u32, finite: bool) -> u32 {
    let half = if single::is_nan(bits) { 0 } else { 0x1000 };
    let sum = (bits + half) & !0x1fff;
    let beyond = finite && sum & 0x7fff_ffff >= 0x7f80_0000;
    if beyond { sum - 0x2000 } else { sum }
}

/// `cvt.tf32.f32`: the low 13 bits of the result are 0.
#[must_use]
pub fn tf32_from_f32(bits: u32, modifiers: Modifiers) -> u32 {
    if modifiers.rounding == Rounding::NearestAway {
        return tf32_from_f32_away(bits, modifiers.finite);
    }
    let value = F32.decode(u64::from(bits));
    let bits = TF32.encode(value, modifiers.rounding, modifiers.finite) as u32;
    let bits = if modifiers.relu && bits >> 18 != 0 { 0 } else { bits };
    bits << 13
}

/// A float of 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quarter {
    /// `.e4m3`, without infinities.
    E4m3,
    /// `.e5m2`
    E5m2,
}

impl Quarter {
    /// The format.
    const fn format(self) -> Format {
        match self {
            Self::E4m3 => E4M3,
            Self::E5m2 => E5M2,
        }
    }
}

/// One half of `cvt.rn.satfinite.e4m3x2.f32`; `.relu` is the only modifier.
#[must_use]
pub fn quarter_from_f32(bits: u32, to: Quarter, relu: bool) -> u8 {
    quarter_from(F32.decode(u64::from(bits)), to, relu)
}

/// One half of `cvt.rn.satfinite.e4m3x2.f16x2`; `.relu` is the only modifier.
#[must_use]
pub fn quarter_from_f16(bits: u16, to: Quarter, relu: bool) -> u8 {
    let wide = half::Binary16::widen(bits).to_bits();
    quarter_from(F32.decode(u64::from(wide)), to, relu)
}

/// A value as a float of 8 bits; the largest number in place of an infinity.
fn quarter_from(value: Value, to: Quarter, relu: bool) -> u8 {
    let bits = to.format().encode(value, Rounding::Nearest, true) as u8;
    if relu && bits & 0x80 != 0 { 0 } else { bits }
}

/// One half of `cvt.rn.f16x2.e4m3x2`; `.relu` is the only modifier.
#[must_use]
pub fn f16_from_quarter(bits: u8, from: Quarter, relu: bool) -> u16 {
    let value = from.format().decode(u64::from(bits));
    let bits = half::Binary16::FORMAT.encode(value, Rounding::Nearest, false) as u16;
    if relu { half::relu::<half::Binary16>(bits) } else { bits }
}
