//! Conversions: `cvt`.

use super::builder::Builder;
use super::conversion::{Form, is_integer};
use super::float::{encode, flags, ftz, how, rounding, sat};
use super::macros::{bin, by_any_integer, line_un, slow_bin, slow_ter, slow_un, un};
use super::modifiers::{Modifiers, Refusal};
use super::operands::width;
use crate::code::{
    Code, File, Form as Known, Narrow, Pure, Slot, Width, Wrapping, has_wide_vectors,
};
use crate::math::Rounding;
use crate::math::convert::{self, Quarter, Target, Whole};
use crate::math::half::{self, Binary16, Brain16};
use crate::syntax::tree::Operand;
use crate::types::Type;

/// The modifiers of an immediate: those of [`encode`], `.relu` at bit 10, `.satfinite` at bit 11.
fn modifiers(imm: u64) -> convert::Modifiers {
    convert::Modifiers {
        rounding: rounding(imm),
        ftz: ftz(imm),
        sat: sat(imm),
        relu: imm & 0x400 != 0,
        finite: imm & 0x800 != 0,
    }
}

impl<'t> Builder<'_, 't> {
    /// `cvt`
    pub(super) fn convert(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        if m.take("pack") {
            return self.convert_packed_integers(m, o);
        }
        let integral = m.integer_rounding();
        let rounding = m.rounding().or_else(|| m.take("rna").then_some(Rounding::NearestAway));
        let (ftz, sat) = (m.take("ftz"), m.take("sat"));
        let (finite, relu) = (m.take("satfinite"), m.take("relu"));
        let plain = integral.is_none() && !ftz && !sat && rounding == Some(Rounding::Nearest);
        if let Some(result) = self.convert_quarters(m, o, (relu, finite, plain)) {
            return result;
        }
        let form =
            Form { to: m.kind()?, from: m.kind()?, rounding, integral, ftz, sat, relu, finite };
        if matches!(form.to, Type::F16x2 | Type::Bf16x2) {
            return self.convert_pair(form, o);
        }
        let [to, from] = o else { return Err("2 operands are expected".to_owned()) };
        form.check(self.isa)?;
        let byte = if form.to.bytes() == 1 { to } else { from };
        if form.wants_bytes() && !self.is_byte(byte)? {
            return Err(
                "a conversion between 8 bits and .bf16 is of a register of type .b8".to_owned()
            );
        }
        let imm = encode(form.rounding.or(form.integral).unwrap_or(Rounding::Nearest), ftz, sat)
            | u64::from(relu) << 10
            | u64::from(finite) << 11;
        let run = match (is_integer(form.from), is_integer(form.to)) {
            (true, true) => integers(form)?,
            (true, false) => from_integer(form)?,
            (false, true) => to_integer(form)?,
            (false, false) => floats(form)?,
        };
        let source = self.narrowed(from, form.from)?;
        let register = self.relaxed_dest(to, form.to)?;
        if register.bits == width(form.to) && width(form.to) != 16 {
            self.emit(Code::Pure(run), &[register.slot], &[source], imm);
            return Ok(());
        }
        let result = self.temporary(if width(form.to) == 64 { File::Double } else { File::Word });
        self.emit(Code::Pure(run), &[result], &[source], imm);
        self.extend(register.slot, register.bits, result, form.to);
        Ok(())
    }

    /// A source in a register of the file of its type.
    fn narrowed(&mut self, operand: &Operand<'t>, kind: Type) -> Result<Slot, Refusal> {
        let source = self.relaxed_source(operand, kind)?;
        let wide = matches!(source.file, File::Double | File::ConstantDouble);
        if !wide || width(kind) == 64 {
            return Ok(source);
        }
        let narrow = self.temporary(File::Word);
        let run = un!(u64 => u32, |a| a as u32).as_form(Known::Low);
        self.emit(Code::Pure(run), &[narrow], &[source], 0);
        Ok(narrow)
    }

    /// Fills a register with a value of a narrower type: with its sign, if it has one.
    fn extend(&mut self, to: Slot, bits: u32, from: Slot, kind: Type) {
        let with_sign = |run: Pure| {
            let (known, narrow) = narrow_integers(kind, bits.max(16));
            run.as_narrow(known, narrow)
        };
        let run = match (kind, bits) {
            (Type::S8, 8 | 16) => with_sign(un!(i8 => i16, |a| i16::from(a))),
            (Type::S8, 32) => with_sign(un!(i8 => i32, |a| i32::from(a))),
            (Type::S8, _) => with_sign(un!(i8 => i64, |a| i64::from(a))),
            (Type::S16, 32) => with_sign(un!(i16 => i32, |a| i32::from(a))),
            (Type::S16, 64) => with_sign(un!(i16 => i64, |a| i64::from(a))),
            (Type::S32, 64) => line_un!(i32 => i64, |a| Wrapping::widened(a, 1), i64::from(a))
                .as_form(Known::Widen { signed: true }),
            (_, 64) if width(kind) == 64 => {
                line_un!(u64 => u64, |a| Some(a), a).as_form(Known::Copy(Width::Double))
            }
            (_, 64) => {
                line_un!(u32 => u64, |a| Some(Wrapping::widened(a, 1)?.unsigned()), u64::from(a))
                    .as_form(Known::Widen { signed: false })
            }
            _ => line_un!(u32 => u32, |a| Some(a), a).as_form(Known::Copy(Width::Word)),
        };
        self.emit(Code::Pure(run), &[to], &[from], 0);
    }

    /// `cvt.rn.f16x2.f32 d, a, b`: `a` is the upper half.
    fn convert_pair(&mut self, form: Form, o: &[Operand<'t>]) -> Result<(), Refusal> {
        let is_known = matches!(form.rounding, Some(Rounding::Nearest | Rounding::Zero));
        if form.from != Type::F32 || !is_known || form.ftz || form.sat || form.integral.is_some() {
            return Err("this conversion to a pair is not supported".to_owned());
        }
        let imm = encode(form.rounding.unwrap_or(Rounding::Nearest), form.ftz, form.sat)
            | u64::from(form.relu) << 10
            | u64::from(form.finite) << 11;
        let is_plain = form.rounding == Some(Rounding::Nearest) && !form.relu && !form.finite;
        let run = match (form.to, is_plain) {
            (Type::F16x2, true) => {
                bin!(u32, u32 => u32, |a, b| convert::pair_from_f32_nearest::<Binary16>(a, b))
            }
            (_, true) => {
                bin!(u32, u32 => u32, |a, b| convert::pair_from_f32_nearest::<Brain16>(a, b))
            }
            (Type::F16x2, false) => slow_bin!(u32, u32 => u32, |op, a, b| {
                let of = |bits| u32::from(convert::half_from_f32::<Binary16>(bits, modifiers(op.imm)));
                of(a) << 16 | of(b)
            }),
            (_, false) => slow_bin!(u32, u32 => u32, |op, a, b| {
                let of = |bits| u32::from(convert::half_from_f32::<Brain16>(bits, modifiers(op.imm)));
                of(a) << 16 | of(b)
            }),
        };
        self.plain(run, Type::B32, &[Type::F32; 2], o, imm)
    }

    /// Conversions from and to pairs of floats of 8 bits.
    fn convert_quarters(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
        (relu, finite, is_plain): (bool, bool, bool),
    ) -> Option<Result<(), Refusal>> {
        let quarter = m.choose(&[("e4m3x2", Quarter::E4m3), ("e5m2x2", Quarter::E5m2)])?;
        let imm = u64::from(relu) | u64::from(quarter == Quarter::E5m2) << 1;
        // Which of the two types stood first is seen by the operands: one is a pair in 16 bits.
        let other = match m.kind() {
            Ok(kind) => kind,
            Err(why) => return Some(Err(why)),
        };
        let narrows = self.is_narrow(&o[0]);
        if !is_plain || finite != narrows {
            let how = "`.rn`, and `.satfinite` to 8 bits";
            return Some(Err(format!("conversions of floats of 8 bits have {how}, and no more")));
        }
        let result = match (other, o.len()) {
            (Type::F32, 3) => {
                let run = slow_bin!(u32, u32 => u16, |op, a, b| {
                    let of = |bits| convert::quarter_from_f32(bits, quarter_of(op.imm), op.imm & 1 != 0);
                    u16::from(of(a)) << 8 | u16::from(of(b))
                });
                self.plain(run, Type::B16, &[Type::F32; 2], o, imm)
            }
            (Type::F16x2, 2) if narrows => {
                let run = slow_un!(u32 => u16, |op, a| {
                    let of = |bits: u32| convert::quarter_from_f16(bits as u16, quarter_of(op.imm), op.imm & 1 != 0);
                    u16::from(of(a >> 16)) << 8 | u16::from(of(a))
                });
                self.plain(run, Type::B16, &[Type::B32], o, imm)
            }
            (Type::F16x2, 2) => {
                let run = slow_un!(u16 => u32, |op, a| {
                    let of = |bits: u16| convert::f16_from_quarter(bits as u8, quarter_of(op.imm), op.imm & 1 != 0);
                    u32::from(of(a >> 8)) << 16 | u32::from(of(a))
                });
                self.plain(run, Type::B32, &[Type::B16], o, imm)
            }
            _ => Err("this conversion of floats of 8 bits is not supported".to_owned()),
        };
        Some(result)
    }

    fn is_narrow(&mut self, operand: &Operand<'t>) -> bool {
        self.any_register(operand).ok().flatten().is_some_and(|register| register.bits == 16)
    }

    /// `cvt.pack.sat`: two integers, saturated, above the upper bits of a third.
    fn convert_packed_integers(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        m.must_one(&["sat"])?;
        let (bits, signed) = m.must(&[
            ("u16", (16, false)),
            ("s16", (16, true)),
            ("u8", (8, false)),
            ("s8", (8, true)),
            ("u4", (4, false)),
            ("s4", (4, true)),
            ("u2", (2, false)),
            ("s2", (2, true)),
        ])?;
        m.must_one(&["s32"])?;
        let imm = bits << 1 | u64::from(signed);
        if bits == 16 {
            let run = slow_bin!(i32, i32 => u32, |op, a, b| packed(op.imm, [a, b], 0));
            return self.plain(run, Type::B32, &[Type::S32; 2], o, imm);
        }
        m.must_one(&["b32"])?;
        let run = slow_ter!(i32, i32, u32 => u32, |op, a, b, c| packed(op.imm, [a, b], c));
        self.plain(run, Type::B32, &[Type::S32, Type::S32, Type::B32], o, imm)
    }
}

/// Two integers clamped to a few bits, above the low bits of a third. The immediate has the bits, and whether they
/// have a sign.
fn packed(imm: u64, values: [i32; 2], rest: u32) -> u32 {
    let (bits, signed) = ((imm >> 1) as u32, imm & 1 != 0);
    let mask = (1 << bits) - 1;
    let (least, most) = if signed { (-1 - (mask >> 1), mask >> 1) } else { (0, mask) };
    values
        .iter()
        .fold(rest, |word, value| word << bits | (value.clamp(&least, &most) & mask) as u32)
}

/// The type of 8 bits of an immediate: its second bit says which.
pub(super) fn quarter_of(imm: u64) -> Quarter {
    if imm & 2 != 0 { Quarter::E5m2 } else { Quarter::E4m3 }
}

/// One expression for each rounding to an integer, in which `$rounding` is the rounding.
macro_rules! by_integral {
    ($form:expr, $rounding:ident => $body:expr) => {
        match $form.integral {
            Some(Rounding::Zero) => {
                const $rounding: Rounding = Rounding::Zero;
                $body
            }
            Some(Rounding::Down) => {
                const $rounding: Rounding = Rounding::Down;
                $body
            }
            Some(Rounding::Up) => {
                const $rounding: Rounding = Rounding::Up;
                $body
            }
            _ => {
                const $rounding: Rounding = Rounding::Nearest;
                $body
            }
        }
    };
}

/// Between integers.
fn integers(form: Form) -> Result<Pure, Refusal> {
    let run = if form.sat {
        let signed = form.from.is_signed();
        by_any_integer!(form.from, A => by_any_integer!(form.to, R => {
            if signed {
                un!(A => R, |a| <R as Target>::clamp_signed(a as i64))
            } else {
                un!(A => R, |a| <R as Target>::clamp_unsigned(a as u64))
            }
        }))
    } else if let Some(run) = whole_integers(form) {
        run
    } else {
        let run: Pure =
            by_any_integer!(form.from, A => by_any_integer!(form.to, R => un!(A => R, |a| a as R)));
        let (known, narrow) = narrow_integers(form.from, 8 * form.to.bytes());
        run.as_narrow(known, narrow)
    };
    Ok(run)
}

/// The form of an integer as one of another number of bits. One of them does not fill its register.
fn narrow_integers(from: Type, to: u32) -> (Known, Narrow) {
    let (bits, signed) = (8 * from.bytes(), from.is_signed());
    match (bits, to) {
        (64, _) => (Known::Low, Narrow { bits: 32, signed, kept: to }),
        (_, 64) => (Known::Widen { signed }, Narrow { bits, signed, kept: 32 }),
        _ => {
            let narrow = Narrow { bits: bits.min(to), signed: signed && bits < to, kept: to };
            (Known::Copy(Width::Word), narrow)
        }
    }
}

/// Between integers that fill registers, of which a line stays one.
fn whole_integers(form: Form) -> Option<Pure> {
    Some(match (form.from, width(form.from), width(form.to)) {
        (Type::S32, 32, 64) => line_un!(i32 => i64, |a| Wrapping::widened(a, 1), i64::from(a))
            .as_form(Known::Widen { signed: true }),
        (_, 32, 64) => {
            line_un!(u32 => u64, |a| Some(Wrapping::widened(a, 1)?.unsigned()), u64::from(a))
                .as_form(Known::Widen { signed: false })
        }
        (_, 64, 32) => line_un!(u64 => u32, |a| Some(a.low()), a as u32).as_form(Known::Low),
        (_, 32, 32) => line_un!(u32 => u32, |a| Some(a), a).as_form(Known::Copy(Width::Word)),
        (_, 64, 64) => line_un!(u64 => u64, |a| Some(a), a).as_form(Known::Copy(Width::Double)),
        _ => return None,
    })
}

/// From integers to floats.
fn from_integer(form: Form) -> Result<Pure, Refusal> {
    let near = form.rounding == Some(Rounding::Nearest) && !form.sat;
    let (bits, signed) = (8 * form.from.bytes(), form.from.is_signed());
    let narrow = Narrow { bits, signed, kept: 32 };
    if form.rounding.is_none() && !(form.to == Type::F64 && width(form.from) <= 32) {
        return Err("a conversion from an integer names its rounding".to_owned());
    }
    Ok(match form.to {
        Type::F32 if near => {
            let known = (bits <= 32).then_some(Known::FloatOf { signed });
            let run: Pure =
                by_any_integer!(form.from, A => un!(A => u32, |a| (a as f32).to_bits()));
            run.as_narrow(known, narrow)
        }
        Type::F64 if !form.sat && (near || width(form.from) <= 32) => {
            // Each integer of fewer bits is a signed one of 32 bits.
            let known = (bits < 32 || signed && bits == 32).then_some(Known::DoubleOf);
            let run: Pure =
                by_any_integer!(form.from, A => un!(A => u64, |a| (a as f64).to_bits()));
            run.as_narrow(known, narrow)
        }
        Type::F32 => by_any_integer!(form.from, A => if signed {
            slow_un!(A => u32, |op, a| convert::f32_from_integer(Whole::from(a as i64), rounding(op.imm), sat(op.imm)))
        } else {
            slow_un!(A => u32, |op, a| convert::f32_from_integer(Whole::from(a as u64), rounding(op.imm), sat(op.imm)))
        }),
        Type::F64 => by_any_integer!(form.from, A => if signed {
            slow_un!(A => u64, |op, a| convert::f64_from_integer(Whole::from(a as i64), rounding(op.imm), sat(op.imm)))
        } else {
            slow_un!(A => u64, |op, a| convert::f64_from_integer(Whole::from(a as u64), rounding(op.imm), sat(op.imm)))
        }),
        Type::F16 => by_any_integer!(form.from, A => if signed {
            slow_un!(A => u16, |op, a| convert::half_from_integer::<Binary16>(Whole::from(a as i64), rounding(op.imm), sat(op.imm)))
        } else {
            slow_un!(A => u16, |op, a| convert::half_from_integer::<Binary16>(Whole::from(a as u64), rounding(op.imm), sat(op.imm)))
        }),
        Type::Bf16 => by_any_integer!(form.from, A => if signed {
            slow_un!(A => u16, |op, a| convert::half_from_integer::<Brain16>(Whole::from(a as i64), rounding(op.imm), sat(op.imm)))
        } else {
            slow_un!(A => u16, |op, a| convert::half_from_integer::<Brain16>(Whole::from(a as u64), rounding(op.imm), sat(op.imm)))
        }),
        _ => return Err("this conversion is not supported".to_owned()),
    })
}

/// From floats to integers. They clamp always.
fn to_integer(form: Form) -> Result<Pure, Refusal> {
    if form.integral.is_none() {
        return Err("a conversion to an integer names its rounding, such as `.rzi`".to_owned());
    }
    Ok(match form.from {
        Type::F32 if form.to.bytes() == 4 => {
            let signed = form.to.is_signed();
            by_integral!(form, ROUNDING => if signed {
                un!(u32 => i32, ftz of ftz, |a| convert::integer_from_f32::<i32>(a, ROUNDING, ftz))
            } else {
                un!(u32 => u32, ftz of ftz, |a| convert::integer_from_f32::<u32>(a, ROUNDING, ftz))
            }
            .as_form(has_wide_vectors().then_some(Known::IntegerOf { signed, rounding: ROUNDING })))
        }
        Type::F32 => {
            by_any_integer!(form.to, R => slow_un!(u32 => R, |op, a| convert::integer_from_f32::<R>(a, rounding(op.imm), ftz(op.imm))))
        }
        Type::F64 => {
            by_any_integer!(form.to, R => slow_un!(u64 => R, |op, a| convert::integer_from_f64::<R>(a, rounding(op.imm))))
        }
        Type::F16 => by_any_integer!(form.to, R => slow_un!(u16 => R, |op, a| {
            convert::integer_from_f32::<R>(convert::f32_from_half::<Binary16>(a, false, false), rounding(op.imm), false)
        })),
        Type::Bf16 => by_any_integer!(form.to, R => slow_un!(u16 => R, |op, a| {
            convert::integer_from_f32::<R>(convert::f32_from_half::<Brain16>(a, false, false), rounding(op.imm), false)
        })),
        _ => return Err("this conversion is not supported".to_owned()),
    })
}

/// Between floats.
fn floats(form: Form) -> Result<Pure, Refusal> {
    let integral = form.integral.is_some();
    let near = form.rounding == Some(Rounding::Nearest) && !form.relu && !form.finite;
    Ok(match (form.from, form.to) {
        (Type::F32, Type::F32) if integral && !form.sat => {
            by_integral!(form, ROUNDING => {
                let form = Known::FloatIntegral(Width::Word, ROUNDING);
                un!(u32 => u32, ftz of ftz, |a| convert::round_f32(a, ROUNDING, ftz, false))
                    .as_form(has_wide_vectors().then_some(form))
            })
        }
        (Type::F32, Type::F32) if integral => {
            slow_un!(u32 => u32, |op, a| convert::round_f32(a, rounding(op.imm), ftz(op.imm), sat(op.imm)))
        }
        (Type::F32, Type::F32) => {
            let run: Pure = flags!(form.ftz, form.sat, |F, S| {
                un!(u32 => u32, |a| convert::same_f32(a, F, S))
            });
            run.as_form(form.sat.then_some(Known::FloatClamp))
        }
        (Type::F64, Type::F64) if integral && !form.sat => {
            by_integral!(form, ROUNDING => {
                let form = Known::FloatIntegral(Width::Double, ROUNDING);
                un!(u64 => u64, |a| convert::round_f64(a, ROUNDING, false))
                    .as_form(has_wide_vectors().then_some(form))
            })
        }
        (Type::F64, Type::F64) if integral => {
            slow_un!(u64 => u64, |op, a| convert::round_f64(a, rounding(op.imm), sat(op.imm)))
        }
        (Type::F64, Type::F64) if form.sat => {
            slow_un!(u64 => u64, |_op, a| convert::same_f64(a, true))
        }
        (Type::F64, Type::F64) => un!(u64 => u64, |a| a),
        (Type::F64, Type::F32) if near && !form.ftz && !form.sat => {
            un!(u64 => u32, |a| convert::f32_from_f64::<false, false>(a)).as_form(Known::Demote)
        }
        (Type::F64, Type::F32) if form.rounding.is_some() => {
            un!(u64 => u32, how of how, |a| convert::f32_from_f64_rounded(a, how))
        }
        (Type::F32, Type::F64) => match (form.ftz, form.sat) {
            (false, false) => un!(u32 => u64, |a| convert::f64_from_f32::<false, false>(a))
                .as_form(Known::Promote),
            (true, false) => un!(u32 => u64, |a| convert::f64_from_f32::<true, false>(a)),
            (false, true) => un!(u32 => u64, |a| convert::f64_from_f32::<false, true>(a)),
            (true, true) => un!(u32 => u64, |a| convert::f64_from_f32::<true, true>(a)),
        },
        (Type::F16, Type::F32) if !form.ftz && !form.sat => {
            un!(u16 => u32, |a| convert::f32_from_half::<Binary16>(a, false, false))
                .as_form(Known::FloatOfHalf)
        }
        (Type::Bf16, Type::F32) if !form.ftz && !form.sat => {
            un!(u16 => u32, |a| convert::f32_from_half::<Brain16>(a, false, false))
        }
        (Type::F16, Type::F32) => {
            slow_un!(u16 => u32, |op, a| convert::f32_from_half::<Binary16>(a, ftz(op.imm), sat(op.imm)))
        }
        (Type::Bf16, Type::F32) => {
            slow_un!(u16 => u32, |op, a| convert::f32_from_half::<Brain16>(a, ftz(op.imm), sat(op.imm)))
        }
        (Type::F16, Type::F64) => {
            slow_un!(u16 => u64, |op, a| convert::f64_from_half::<Binary16>(a, sat(op.imm)))
        }
        (Type::Bf16, Type::F64) => {
            slow_un!(u16 => u64, |op, a| convert::f64_from_half::<Brain16>(a, sat(op.imm)))
        }
        (Type::F16, Type::F16) if integral => {
            slow_un!(u16 => u16, |op, a| convert::round_half::<Binary16>(a, rounding(op.imm), half_modifiers(op.imm)))
        }
        (Type::Bf16, Type::Bf16) if integral => {
            slow_un!(u16 => u16, |op, a| convert::round_half::<Brain16>(a, rounding(op.imm), half_modifiers(op.imm)))
        }
        (Type::F32, Type::F16) if near && !form.sat => {
            un!(u32 => u16, |a| convert::half_from_f32_nearest::<Binary16>(a))
                .as_form(Known::HalfOf)
        }
        (Type::F32, Type::Bf16) if near && !form.sat => {
            un!(u32 => u16, |a| convert::half_from_f32_nearest::<Brain16>(a))
        }
        (Type::F32, Type::F16) if form.rounding.is_some() => {
            slow_un!(u32 => u16, |op, a| convert::half_from_f32::<Binary16>(a, modifiers(op.imm)))
        }
        (Type::F32, Type::Bf16) if form.rounding.is_some() => {
            slow_un!(u32 => u16, |op, a| convert::half_from_f32::<Brain16>(a, modifiers(op.imm)))
        }
        (Type::F64, Type::F16) if form.rounding.is_some() => {
            slow_un!(u64 => u16, |op, a| convert::half_from_f64::<Binary16>(a, modifiers(op.imm)))
        }
        (Type::F64, Type::Bf16) if form.rounding.is_some() => {
            slow_un!(u64 => u16, |op, a| convert::half_from_f64::<Brain16>(a, modifiers(op.imm)))
        }
        (Type::F32, Type::Tf32) if form.rounding == Some(Rounding::NearestAway) && !form.finite => {
            un!(u32 => u32, |a| convert::tf32_from_f32_away(a, false))
        }
        (Type::F32, Type::Tf32) if form.rounding.is_some() => {
            slow_un!(u32 => u32, |op, a| convert::tf32_from_f32(a, modifiers(op.imm)))
        }
        (Type::Bf16, Type::Bf16) if !form.sat && !form.relu => un!(u16 => u16, |a| a),
        (Type::F16, Type::F16) => {
            slow_un!(u16 => u16, |op, a| convert::half_from_f32::<Binary16>(convert::f32_from_half::<Binary16>(a, false, false), modifiers(op.imm)))
        }
        (Type::Bf16, Type::Bf16) => {
            slow_un!(u16 => u16, |op, a| convert::half_from_f32::<Brain16>(convert::f32_from_half::<Brain16>(a, false, false), modifiers(op.imm)))
        }
        (Type::F16, Type::Bf16) => {
            slow_un!(u16 => u16, |op, a| convert::half_from_f32::<Brain16>(convert::f32_from_half::<Binary16>(a, false, false), modifiers(op.imm)))
        }
        (Type::Bf16, Type::F16) => {
            slow_un!(u16 => u16, |op, a| convert::half_from_f32::<Binary16>(convert::f32_from_half::<Brain16>(a, false, false), modifiers(op.imm)))
        }
        _ => {
            return Err(
                "this conversion between floats is not supported, or lacks a rounding".to_owned()
            );
        }
    })
}

fn half_modifiers(imm: u64) -> half::Modifiers {
    half::Modifiers { ftz: ftz(imm), sat: sat(imm), relu: false }
}
