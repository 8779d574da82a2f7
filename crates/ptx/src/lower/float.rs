//! Arithmetic on f32 and f64.

use super::builder::Builder;
use super::macros::{bin, slow_bin, slow_ter, slow_un, ter, un};
use super::modifiers::{Modifiers, Refusal};
use crate::code::{FLUSH, Form, Pure, Width, has_wide_vectors};
use crate::math::directed::{self, How};
use crate::math::{Rounding, double, single};
use crate::syntax::tree::Operand;
use crate::types::Type;

/// The form of arithmetic that rounds to the nearest. A product and a sum are fused by an instruction of
/// the machine or by one function for each lane.
fn form(name: &str, width: Width) -> Option<Form> {
    match name {
        "add" => Some(Form::FloatAdd(width)),
        "sub" => Some(Form::FloatSubtract(width)),
        "mul" => Some(Form::FloatMultiply(width)),
        "fma" | "mad" => has_wide_vectors().then_some(Form::FloatFused(width)),
        "neg" => Some(Form::FloatNegate(width)),
        "abs" => Some(Form::FloatAbsolute(width)),
        "div" => Some(Form::FloatDivide(width)),
        "rcp" => Some(Form::FloatReciprocal(width)),
        "sqrt" => Some(Form::FloatRoot(width)),
        _ => None,
    }
}

/// A rounding and flags as an immediate.
pub(super) fn encode(rounding: Rounding, ftz: bool, sat: bool) -> u64 {
    rounding as u64 | if ftz { FLUSH } else { 0 } | u64::from(sat) << 9
}

/// The rounding of an immediate.
pub(super) fn rounding(imm: u64) -> Rounding {
    match imm & 0xff {
        0 => Rounding::Nearest,
        1 => Rounding::Zero,
        2 => Rounding::Down,
        3 => Rounding::Up,
        _ => Rounding::NearestAway,
    }
}

/// `.ftz` of an immediate.
pub(super) fn ftz(imm: u64) -> bool {
    imm & FLUSH != 0
}

/// `.sat` of an immediate.
pub(super) fn sat(imm: u64) -> bool {
    imm & 0x200 != 0
}

/// The modifiers of an immediate.
pub(super) fn how(imm: u64) -> How {
    How::new(rounding(imm), ftz(imm), sat(imm))
}

/// One of four functions, by `.ftz` and `.sat`.
macro_rules! flags {
    ($ftz:expr, $sat:expr, |$f:ident, $s:ident| $body:expr) => {
        match ($ftz, $sat) {
            (false, false) => {
                const $f: bool = false;
                const $s: bool = false;
                $body
            }
            (true, false) => {
                const $f: bool = true;
                const $s: bool = false;
                $body
            }
            (false, true) => {
                const $f: bool = false;
                const $s: bool = true;
                $body
            }
            (true, true) => {
                const $f: bool = true;
                const $s: bool = true;
                $body
            }
        }
    };
}

pub(super) use flags;

/// Refuses arithmetic that lacks a rounding, or has one and rounds nothing.
fn needs_rounding(name: &str, written: Option<Rounding>) -> Result<(), Refusal> {
    match (name, written) {
        ("fma" | "mad" | "div" | "rcp" | "sqrt", None) => {
            Err(format!("`{name}` needs a rounding: add `.rn`, for one"))
        }
        ("min" | "max" | "abs" | "neg", Some(_)) => {
            Err(format!("`{name}` rounds nothing: leave the rounding out"))
        }
        _ => Ok(()),
    }
}

impl<'t> Builder<'_, 't> {
    /// Arithmetic on f32.
    pub(super) fn single(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = Type::F32;
        let ftz = m.take("ftz");
        match name {
            "min" | "max" => return self.single_choice(name, ftz, m, o),
            "abs" | "neg" => {
                let run = match (name, ftz) {
                    ("abs", true) => un!(u32 => u32, |a| single::absolute::<true>(a)),
                    ("abs", false) => un!(u32 => u32, |a| single::absolute::<false>(a)),
                    (_, true) => un!(u32 => u32, |a| single::negate::<true>(a)),
                    (_, false) => un!(u32 => u32, |a| single::negate::<false>(a)),
                };
                let run = run.as_form(form(name, Width::Word));
                return self.plain(run, kind, &[kind], o, encode(Rounding::Nearest, ftz, false));
            }
            "div" | "rcp" | "sqrt" | "rsqrt" => return self.single_quotient(name, ftz, m, o),
            _ => {}
        }
        let sat = m.take("sat");
        let written = m.rounding();
        needs_rounding(name, written)?;
        let rounding = written.unwrap_or(Rounding::Nearest);
        let near = rounding == Rounding::Nearest;
        let imm = encode(rounding, ftz, sat);
        let run = match (name, near) {
            ("add", true) => {
                flags!(ftz, sat, |F, S| bin!(u32, u32 => u32, |a, b| single::add::<F, S>(a, b)))
            }
            ("sub", true) => flags!(
                ftz,
                sat,
                |F, S| bin!(u32, u32 => u32, |a, b| single::subtract::<F, S>(a, b))
            ),
            ("mul", true) => flags!(
                ftz,
                sat,
                |F, S| bin!(u32, u32 => u32, |a, b| single::multiply::<F, S>(a, b))
            ),
            ("fma" | "mad", true) if !ftz && has_wide_vectors() => match sat {
                false => ter!(u32, u32, u32 => u32, |a, b, c| single::fma_native::<false>(a, b, c)),
                true => ter!(u32, u32, u32 => u32, |a, b, c| single::fma_native::<true>(a, b, c)),
            },
            ("fma" | "mad", true) => {
                flags!(
                    ftz,
                    sat,
                    |F, S| ter!(u32, u32, u32 => u32, |a, b, c| single::fma::<F, S>(a, b, c))
                )
            }
            ("add", false) => {
                bin!(u32, u32 => u32, how of how, |a, b| directed::add(a, b, how))
            }
            ("sub", false) => {
                bin!(u32, u32 => u32, how of how, |a, b| directed::subtract(a, b, how))
            }
            ("mul", false) => {
                bin!(u32, u32 => u32, how of how, |a, b| directed::multiply(a, b, how))
            }
            ("fma" | "mad", false) => {
                ter!(u32, u32, u32 => u32, how of how, |a, b, c| directed::fma(a, b, c, how))
            }
            _ => return Err(format!("`{name}` is not supported for .f32")),
        };
        let run = run.as_form(match rounding {
            _ if sat => None,
            Rounding::Nearest => form(name, Width::Word),
            Rounding::Down if name == "fma" && !ftz => Some(Form::FloatFusedDown),
            _ => None,
        });
        let count = if matches!(name, "fma" | "mad") { 3 } else { 2 };
        self.plain(run, kind, &[kind; 3][..count], o, imm)?;
        if written.is_none() {
            self.unrounded(name);
        }
        Ok(())
    }

    fn single_choice(
        &mut self,
        name: &str,
        ftz: bool,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let nan = m.take("NaN");
        let xorsign = m.take("xorsign");
        if xorsign && !m.take("abs") {
            return Err("`.xorsign` comes with `.abs`".to_owned());
        }
        let min = name == "min";
        let three = o.len() == 4;
        if three {
            self.isa.needs("a choice among three", 100)?;
        }
        let run = match (min, xorsign, three) {
            (true, false, false) => {
                flags!(ftz, nan, |F, N| bin!(u32, u32 => u32, |a, b| single::min::<F, N>(a, b)))
            }
            (false, false, false) => {
                flags!(ftz, nan, |F, N| bin!(u32, u32 => u32, |a, b| single::max::<F, N>(a, b)))
            }
            (true, true, false) => flags!(
                ftz,
                nan,
                |F, N| bin!(u32, u32 => u32, |a, b| single::min_xorsign_abs::<F, N>(a, b))
            ),
            (false, true, false) => flags!(
                ftz,
                nan,
                |F, N| bin!(u32, u32 => u32, |a, b| single::max_xorsign_abs::<F, N>(a, b))
            ),
            (true, false, true) => flags!(
                ftz,
                nan,
                |F, N| ter!(u32, u32, u32 => u32, |a, b, c| single::min::<F, N>(single::min::<F, N>(a, b), c))
            ),
            (false, false, true) => flags!(
                ftz,
                nan,
                |F, N| ter!(u32, u32, u32 => u32, |a, b, c| single::max::<F, N>(single::max::<F, N>(a, b), c))
            ),
            (_, true, true) => return Err("three sources have no `.xorsign`".to_owned()),
        };
        let form = if min { Form::FloatMinimum } else { Form::FloatMaximum };
        let run = run.as_form((!three && !xorsign && !nan).then_some(form));
        let sources = &[Type::F32; 3][..if three { 3 } else { 2 }];
        self.plain(run, Type::F32, sources, o, encode(Rounding::Nearest, ftz, false))
    }

    /// Quotients and roots.
    fn single_quotient(
        &mut self,
        name: &str,
        ftz: bool,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        if let Some(full) = m.choose(&[("approx", false), ("full", true)]) {
            return self.approximate_quotient(name, full, ftz, o);
        }
        let rounding = m.rounding().ok_or("`.approx`, `.full` or a rounding is missing")?;
        let near = rounding == Rounding::Nearest;
        let imm = encode(rounding, ftz, false);
        let kind = Type::F32;
        let run = match (name, near) {
            ("div", true) => {
                flags!(ftz, false, |F, _S| bin!(u32, u32 => u32, |a, b| single::divide::<F>(a, b)))
            }
            ("div", false) => {
                bin!(u32, u32 => u32, how of how, |a, b| directed::divide(a, b, how))
            }
            ("rcp", true) => {
                flags!(ftz, false, |F, _S| un!(u32 => u32, |a| single::reciprocal::<F>(a)))
            }
            ("rcp", false) => {
                un!(u32 => u32, how of how, |a| directed::reciprocal(a, how))
            }
            ("sqrt", true) => {
                flags!(ftz, false, |F, _S| un!(u32 => u32, |a| single::square_root::<F>(a)))
            }
            ("sqrt", false) => {
                un!(u32 => u32, how of how, |a| directed::square_root(a, how))
            }
            _ => return Err(format!("`{name}` with this rounding is not supported")),
        };
        let run = run.as_form((near && !ftz).then(|| form(name, Width::Word)).flatten());
        let count = if name == "div" { 2 } else { 1 };
        self.plain(run, kind, &[kind; 2][..count], o, imm)
    }

    /// Arithmetic on f64.
    pub(super) fn double(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = Type::F64;
        if matches!(name, "rcp" | "rsqrt") && m.take("approx") {
            return self.approximate_double(name, m, o);
        }
        let written = m.rounding();
        needs_rounding(name, written)?;
        let rounding = written.unwrap_or(Rounding::Nearest);
        let near = rounding == Rounding::Nearest;
        let (run, count) = match (name, near) {
            ("add", true) => (bin!(u64, u64 => u64, |a, b| double::add(a, b)), 2),
            ("sub", true) => (bin!(u64, u64 => u64, |a, b| double::subtract(a, b)), 2),
            ("mul", true) => (bin!(u64, u64 => u64, |a, b| double::multiply(a, b)), 2),
            ("fma" | "mad", true) if has_wide_vectors() => {
                (ter!(u64, u64, u64 => u64, |a, b, c| double::fma(a, b, c)), 3)
            }
            ("fma" | "mad", true) => {
                (slow_ter!(u64, u64, u64 => u64, |_op, a, b, c| double::fma(a, b, c)), 3)
            }
            ("div", true) => (bin!(u64, u64 => u64, |a, b| double::divide(a, b)), 2),
            ("rcp", true) => (un!(u64 => u64, |a| double::reciprocal(a)), 1),
            ("sqrt", true) => (un!(u64 => u64, |a| double::square_root(a)), 1),
            ("add", false) => (
                slow_bin!(u64, u64 => u64, |op, a, b| double::add_rounded(a, b, self::rounding(op.imm))),
                2,
            ),
            ("sub", false) => (
                slow_bin!(u64, u64 => u64, |op, a, b| double::subtract_rounded(a, b, self::rounding(op.imm))),
                2,
            ),
            ("mul", false) => (
                slow_bin!(u64, u64 => u64, |op, a, b| double::multiply_rounded(a, b, self::rounding(op.imm))),
                2,
            ),
            ("fma" | "mad", false) => (
                slow_ter!(u64, u64, u64 => u64, |op, a, b, c| double::fma_rounded(a, b, c, self::rounding(op.imm))),
                3,
            ),
            ("div", false) => (
                slow_bin!(u64, u64 => u64, |op, a, b| double::divide_rounded(a, b, self::rounding(op.imm))),
                2,
            ),
            ("rcp", false) => (
                slow_un!(u64 => u64, |op, a| double::reciprocal_rounded(a, self::rounding(op.imm))),
                1,
            ),
            ("sqrt", false) => (
                slow_un!(u64 => u64, |op, a| double::square_root_rounded(a, self::rounding(op.imm))),
                1,
            ),
            ("min", _) => (bin!(u64, u64 => u64, |a, b| double::min(a, b)), 2),
            ("max", _) => (bin!(u64, u64 => u64, |a, b| double::max(a, b)), 2),
            ("abs", _) => (un!(u64 => u64, |a| double::absolute(a)), 1),
            ("neg", _) => (un!(u64 => u64, |a| double::negate(a)), 1),
            _ => return Err(format!("`{name}` is not supported for .f64")),
        };
        let run = run.as_form(near.then(|| form(name, Width::Double)).flatten());
        self.plain(run, kind, &[kind; 3][..count], o, encode(rounding, false, false))?;
        if written.is_none() {
            self.unrounded(name);
        }
        Ok(())
    }

    /// `copysign`: the sign of the first source, the magnitude of the second.
    pub(super) fn copy_sign(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        let run: Pure = match kind {
            Type::F32 => bin!(u32, u32 => u32, |a, b| single::copy_sign(a, b)),
            Type::F64 => bin!(u64, u64 => u64, |a, b| double::copy_sign(a, b)),
            _ => return Err("copysign is of .f32 and .f64".to_owned()),
        };
        self.plain(run, kind, &[kind; 2], o, 0)
    }
}
