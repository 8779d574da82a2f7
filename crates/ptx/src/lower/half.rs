//! Arithmetic on f16, bf16 and their pairs.

use super::builder::Builder;
use super::macros::{bin, ter, un};
use super::modifiers::{Modifiers, Refusal};
use crate::code::Pure;
use crate::math::half::{self, Binary16, Brain16, Choice};
use crate::syntax::tree::Operand;
use crate::types::Type;

/// The modifiers of an immediate.
fn modifiers(imm: u64) -> half::Modifiers {
    half::Modifiers { ftz: imm & 1 != 0, sat: imm & 2 != 0, relu: imm & 4 != 0 }
}

/// The modifiers of `min` and `max` of an immediate.
fn choice(imm: u64) -> Choice {
    Choice { ftz: imm & 1 != 0, nan_wins: imm & 2 != 0, xorsign_abs: imm & 4 != 0 }
}

/// One of four functions, by the type. `$h` is the format.
macro_rules! by_half {
    ($kind:expr, $h:ident, one $one:expr, two $two:expr) => {
        match $kind {
            Type::F16 => {
                type $h = Binary16;
                $one
            }
            Type::Bf16 => {
                type $h = Brain16;
                $one
            }
            Type::F16x2 => {
                type $h = Binary16;
                $two
            }
            _ => {
                type $h = Brain16;
                $two
            }
        }
    };
}

/// No modifiers, as most arithmetic has it: a function that knows so has fewer steps.
fn none(_: u64) -> half::Modifiers {
    half::Modifiers::default()
}

/// A function of two halves, by the type, with the modifiers of an immediate.
macro_rules! of_two {
    (@ $kind:expr, $function:ident, $of:ident) => {
        by_half!($kind, H,
            one bin!(u16, u16 => u16, how of $of, |a, b| half::$function::<H>(a, b, how)),
            two bin!(u32, u32 => u32, how of $of, |a, b| half::both_2(a, b, |a, b| half::$function::<H>(a, b, how))))
    };
    ($kind:expr, $imm:expr, $function:ident) => {
        if $imm == 0 {
            of_two!(@ $kind, $function, none)
        } else {
            of_two!(@ $kind, $function, modifiers)
        }
    };
}

/// A function of three halves, likewise.
macro_rules! of_three {
    (@ $kind:expr, $function:ident, $of:ident) => {
        by_half!($kind, H,
            one ter!(u16, u16, u16 => u16, how of $of, |a, b, c| half::$function::<H>(a, b, c, how)),
            two ter!(u32, u32, u32 => u32, how of $of, |a, b, c| half::both_3(a, b, c, |a, b, c| half::$function::<H>(a, b, c, how))))
    };
    ($kind:expr, $imm:expr, $function:ident) => {
        if $imm == 0 {
            of_three!(@ $kind, $function, none)
        } else {
            of_three!(@ $kind, $function, modifiers)
        }
    };
}

impl<'t> Builder<'_, 't> {
    /// Arithmetic on halves.
    pub(super) fn half(
        &mut self,
        name: &str,
        kind: Type,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let ftz = matches!(kind, Type::F16 | Type::F16x2) && m.take("ftz");
        if matches!(name, "min" | "max") {
            let nan = m.take("NaN");
            let xorsign = m.take("xorsign");
            if xorsign {
                m.must(&[("abs", ())])?;
            }
            let imm = u64::from(ftz) | u64::from(nan) << 1 | u64::from(xorsign) << 2;
            let run: Pure = if name == "min" {
                by_half!(kind, H,
                    one bin!(u16, u16 => u16, how of choice, |a, b| half::min::<H>(a, b, how)),
                    two bin!(u32, u32 => u32, how of choice, |a, b| half::both_2(a, b, |a, b| half::min::<H>(a, b, how))))
            } else {
                by_half!(kind, H,
                    one bin!(u16, u16 => u16, how of choice, |a, b| half::max::<H>(a, b, how)),
                    two bin!(u32, u32 => u32, how of choice, |a, b| half::both_2(a, b, |a, b| half::max::<H>(a, b, how))))
            };
            return self.plain(run, kind, &[kind; 2], o, imm);
        }
        let rounds = matches!(name, "add" | "sub" | "mul" | "fma");
        if !(rounds && m.take("rn")) && name == "fma" {
            return Err("`fma` needs a rounding: add `.rn`".to_owned());
        }
        let is_brain = matches!(kind, Type::Bf16 | Type::Bf16x2);
        let sat = rounds && !is_brain && m.take("sat");
        let relu = name == "fma" && m.take("relu");
        let oob = name == "fma" && m.take("oob");
        if oob && (ftz || sat) || relu && sat {
            return Err(
                "`.sat` goes with neither `.relu` nor `.oob`, `.ftz` not with `.oob`".to_owned()
            );
        }
        let imm = u64::from(ftz) | u64::from(sat) << 1 | u64::from(relu) << 2;
        let (run, count): (Pure, usize) = match name {
            "add" => (of_two!(kind, imm, add), 2),
            "sub" => (of_two!(kind, imm, subtract), 2),
            "mul" => (of_two!(kind, imm, multiply), 2),
            "fma" if oob => (of_three!(kind, imm, fma_in_bounds), 3),
            "fma" => (of_three!(kind, imm, fma), 3),
            "abs" => (
                by_half!(kind, H,
                one un!(u16 => u16, how of modifiers, |a| half::absolute::<H>(a, how.ftz)),
                two un!(u32 => u32, how of modifiers, |a| half::both(a, |a| half::absolute::<H>(a, how.ftz)))),
                1,
            ),
            "neg" => (
                by_half!(kind, H,
                one un!(u16 => u16, how of modifiers, |a| half::negate::<H>(a, how.ftz)),
                two un!(u32 => u32, how of modifiers, |a| half::both(a, |a| half::negate::<H>(a, how.ftz)))),
                1,
            ),
            _ => return Err(format!("`{name}` is not supported for {kind:?}")),
        };
        self.plain(run, kind, &[kind; 3][..count], o, imm)
    }
}
