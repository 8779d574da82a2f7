//! Forms of `cvt`.

use pagewise_ptx::math::Rounding;
use pagewise_ptx::math::convert::{self, Modifiers, Narrow, Quarter, Target};
use pagewise_ptx::math::directed::How;
use pagewise_ptx::math::half::{self, Binary16, Brain16, Half};

use crate::instruction::{Function, Instruction, one};

pub(crate) fn function(form: &Instruction) -> Option<Function> {
    if form.name() != "cvt" {
        return None;
    }
    // `cvt.pack` is the executor's own.
    if form.has("pack") {
        return None;
    }
    let (to, from) = (form.before_kind(), form.kind());
    match to {
        "u8" => integer::<u8>(form, from, |value| value.into()),
        "s8" => integer::<i8>(form, from, |value| u64::from(value as i16 as u16)),
        "u16" => integer::<u16>(form, from, |value| value.into()),
        "s16" => integer::<i16>(form, from, |value| u64::from(value as u16)),
        "u32" => integer::<u32>(form, from, |value| value.into()),
        "s32" => integer::<i32>(form, from, |value| u64::from(value as u32)),
        "u64" => integer::<u64>(form, from, |value| value),
        "s64" => integer::<i64>(form, from, |value| value as u64),
        "f32" => single(form, from),
        "f64" => double(form, from),
        "f16" => half_float::<Binary16>(form, from),
        "bf16" => half_float::<Brain16>(form, from),
        _ => packed(form, to, from),
    }
}

/// A register as an integer of a type.
#[derive(Clone, Copy)]
enum Number {
    Signed(i64),
    Unsigned(u64),
}

fn number(from: &str, register: u64) -> Option<Number> {
    Some(match from {
        "u8" => Number::Unsigned(register & 0xff),
        "u16" => Number::Unsigned(register & 0xffff),
        "u32" => Number::Unsigned(register & 0xffff_ffff),
        "u64" => Number::Unsigned(register),
        "s8" => Number::Signed(i64::from(register as i8)),
        "s16" => Number::Signed(i64::from(register as i16)),
        "s32" => Number::Signed(i64::from(register as i32)),
        "s64" => Number::Signed(register as i64),
        _ => return None,
    })
}

/// Conversions to an integer.
fn integer<T: Target + 'static>(
    form: &Instruction,
    from: &str,
    register: fn(T) -> u64,
) -> Option<Function> {
    let (rounding, ftz) = (form.rounding().unwrap_or(Rounding::Zero), form.has("ftz"));
    match from {
        "f16" => one(move |r| {
            let wide = Binary16::widen(r[0] as u16).to_bits();
            register(convert::integer_from_f32(wide, rounding, false))
        }),
        "bf16" => one(move |r| {
            let wide = Brain16::widen(r[0] as u16).to_bits();
            register(convert::integer_from_f32(wide, rounding, false))
        }),
        "f32" => one(move |r| register(convert::integer_from_f32(r[0] as u32, rounding, ftz))),
        "f64" => one(move |r| register(convert::integer_from_f64(r[0], rounding))),
        _ if form.has("sat") => {
            let from = from.to_owned();
            one(move |r| match number(&from, r[0]) {
                Some(Number::Signed(value)) => register(T::clamp_signed(value)),
                Some(Number::Unsigned(value)) => register(T::clamp_unsigned(value)),
                None => 0,
            })
        }
        _ => {
            // Without `.sat`, the low bits with the sign of the result's type.
            let from = from.to_owned();
            let to = form.before_kind().to_owned();
            one(move |r| {
                let value = match number(&from, r[0]) {
                    Some(Number::Signed(value)) => value as u64,
                    Some(Number::Unsigned(value)) => value,
                    None => 0,
                };
                match to.as_str() {
                    "u8" => value & 0xff,
                    "s8" => u64::from(value as i8 as i16 as u16),
                    "u16" | "s16" => value & 0xffff,
                    "u32" | "s32" => value & 0xffff_ffff,
                    _ => value,
                }
            })
        }
    }
}

/// Conversions to `.f32`.
fn single(form: &Instruction, from: &str) -> Option<Function> {
    let rounding = form.rounding();
    let (ftz, sat) = (form.has("ftz"), form.has("sat"));
    let nearest = rounding == Some(Rounding::Nearest);
    match from {
        "f64" if nearest && ftz && !sat => {
            one(|r| convert::f32_from_f64::<true, false>(r[0]).into())
        }
        "f64" if nearest && !sat => one(|r| convert::f32_from_f64::<false, false>(r[0]).into()),
        "f64" => {
            let how = How::new(rounding.unwrap_or(Rounding::Nearest), ftz, sat);
            one(move |r| convert::f32_from_f64_rounded(r[0], how).into())
        }
        "f16" => one(move |r| convert::f32_from_half::<Binary16>(r[0] as u16, ftz, sat).into()),
        "bf16" => one(move |r| convert::f32_from_half::<Brain16>(r[0] as u16, ftz, sat).into()),
        "f32" => match rounding {
            Some(rounding) => {
                one(move |r| convert::round_f32(r[0] as u32, rounding, ftz, sat).into())
            }
            None => one(move |r| convert::same_f32(r[0] as u32, ftz, sat).into()),
        },
        _ => {
            let (from, rounding) = (from.to_owned(), rounding?);
            one(move |r| {
                let bits = match number(&from, r[0]) {
                    Some(Number::Signed(value)) if nearest && !sat => {
                        convert::f32_from_signed(value)
                    }
                    Some(Number::Unsigned(value)) if nearest && !sat => {
                        convert::f32_from_unsigned(value)
                    }
                    Some(Number::Signed(value)) => convert::f32_from_integer(value, rounding, sat),
                    Some(Number::Unsigned(value)) => {
                        convert::f32_from_integer(value, rounding, sat)
                    }
                    None => 0,
                };
                bits.into()
            })
        }
    }
}

/// Conversions to `.f64`.
fn double(form: &Instruction, from: &str) -> Option<Function> {
    let rounding = form.rounding();
    let sat = form.has("sat");
    match (from, form.has("ftz")) {
        ("f32", false) if sat => one(|r| convert::f64_from_f32::<false, true>(r[0] as u32)),
        ("f32", false) => one(|r| convert::f64_from_f32::<false, false>(r[0] as u32)),
        ("f32", true) => one(|r| convert::f64_from_f32::<true, false>(r[0] as u32)),
        ("f16", _) => one(move |r| convert::f64_from_half::<Binary16>(r[0] as u16, sat)),
        ("bf16", _) => one(move |r| convert::f64_from_half::<Brain16>(r[0] as u16, sat)),
        ("f64", _) => match rounding {
            Some(rounding) => one(move |r| convert::round_f64(r[0], rounding, sat)),
            None => one(move |r| convert::same_f64(r[0], sat)),
        },
        _ => {
            let (from, rounding) = (from.to_owned(), rounding?);
            let nearest = rounding == Rounding::Nearest;
            one(move |r| match number(&from, r[0]) {
                Some(Number::Signed(value)) if nearest && !sat => convert::f64_from_signed(value),
                Some(Number::Unsigned(value)) if nearest && !sat => {
                    convert::f64_from_unsigned(value)
                }
                Some(Number::Signed(value)) => convert::f64_from_integer(value, rounding, sat),
                Some(Number::Unsigned(value)) => convert::f64_from_integer(value, rounding, sat),
                None => 0,
            })
        }
    }
}

/// The modifiers of a conversion between floats.
fn modifiers(form: &Instruction) -> Modifiers {
    Modifiers {
        rounding: form.rounding().unwrap_or(Rounding::Nearest),
        ftz: form.has("ftz"),
        sat: form.has("sat"),
        relu: form.has("relu"),
        finite: form.has("satfinite"),
    }
}

/// Conversions to a half.
fn half_float<H: Narrow + 'static>(form: &Instruction, from: &str) -> Option<Function> {
    let rounding = form.rounding();
    let all = modifiers(form);
    let plain = all == Modifiers::new(Rounding::Nearest);
    match from {
        "f32" if plain => one(|r| convert::half_from_f32_nearest::<H>(r[0] as u32).into()),
        "f32" => one(move |r| convert::half_from_f32::<H>(r[0] as u32, all).into()),
        "f64" => one(move |r| convert::half_from_f64::<H>(r[0], all).into()),
        "f16" | "bf16" if from == form.before_kind() => {
            let plain = half::Modifiers { ftz: all.ftz, sat: all.sat, relu: false };
            match rounding {
                Some(rounding) => {
                    one(move |r| convert::round_half::<H>(r[0] as u16, rounding, plain).into())
                }
                None => one(move |r| convert::same_half::<H>(r[0] as u16, plain).into()),
            }
        }
        "f16" => one(move |r| {
            convert::half_from_f32::<H>(Binary16::widen(r[0] as u16).to_bits(), all).into()
        }),
        "bf16" => one(move |r| {
            convert::half_from_f32::<H>(Brain16::widen(r[0] as u16).to_bits(), all).into()
        }),
        _ => {
            let (from, rounding) = (from.to_owned(), rounding?);
            one(move |r| {
                let bits = match number(&from, r[0]) {
                    Some(Number::Signed(value)) => {
                        convert::half_from_integer::<H>(value, rounding, all.sat)
                    }
                    Some(Number::Unsigned(value)) => {
                        convert::half_from_integer::<H>(value, rounding, all.sat)
                    }
                    None => 0,
                };
                bits.into()
            })
        }
    }
}

/// Conversions to pairs, and of pairs.
fn packed(form: &Instruction, to: &str, from: &str) -> Option<Function> {
    let all = modifiers(form);
    let relu = all.relu;
    let quarter = |name: &str| match name {
        "e4m3x2" => Some(Quarter::E4m3),
        "e5m2x2" => Some(Quarter::E5m2),
        _ => None,
    };
    match (to, from) {
        ("tf32", _) => one(move |r| convert::tf32_from_f32(r[0] as u32, all).into()),
        ("f16x2", "f32") => one(move |r| pair::<Binary16>(r, all)),
        ("bf16x2", "f32") => one(move |r| pair::<Brain16>(r, all)),
        ("f16x2", _) => {
            let from = quarter(from)?;
            one(move |r| {
                let low = convert::f16_from_quarter(r[0] as u8, from, relu);
                let high = convert::f16_from_quarter((r[0] >> 8) as u8, from, relu);
                u64::from(high) << 16 | u64::from(low)
            })
        }
        (_, "f32") => {
            let to = quarter(to)?;
            one(move |r| {
                let high = convert::quarter_from_f32(r[0] as u32, to, relu);
                let low = convert::quarter_from_f32(r[1] as u32, to, relu);
                u64::from(high) << 8 | u64::from(low)
            })
        }
        (_, "f16x2") => {
            let to = quarter(to)?;
            one(move |r| {
                let high = convert::quarter_from_f16((r[0] >> 16) as u16, to, relu);
                let low = convert::quarter_from_f16(r[0] as u16, to, relu);
                u64::from(high) << 8 | u64::from(low)
            })
        }
        _ => None,
    }
}

/// Two floats as a pair: the first is the upper one.
fn pair<H: Narrow>(registers: &[u64], modifiers: Modifiers) -> u64 {
    let of = |register: u64| convert::half_from_f32::<H>(register as u32, modifiers);
    u64::from(of(registers[0])) << 16 | u64::from(of(registers[1]))
}
