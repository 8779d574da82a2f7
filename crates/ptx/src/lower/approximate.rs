//! Approximate functions: `ex2`, `lg2`, `sin`, `cos`, `tanh`, and the approximate quotients and roots.

use super::builder::Builder;
use super::macros::{bin, slow_un, un};
use super::modifiers::{Modifiers, Refusal};
use crate::code::Pure;
use crate::math::approximate;
use crate::math::half::{self, Binary16, Brain16};
use crate::math::tangent::{tangent, tangent_half};
use crate::syntax::tree::Operand;
use crate::types::Type;

/// One function of f32, with or without `.ftz`.
macro_rules! by_flush {
    ($flush:expr, $function:ident) => {
        if $flush {
            un!(u32 => u32, |a| approximate::$function::<true>(a))
        } else {
            un!(u32 => u32, |a| approximate::$function::<false>(a))
        }
    };
}

impl<'t> Builder<'_, 't> {
    /// `ex2`, `lg2`, `sin`, `cos`, `tanh`
    pub(super) fn approximate(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        m.must(&[("approx", ())])?;
        let flush = m.take("ftz");
        let kind = m.kind()?;
        let is_brain = matches!(kind, Type::Bf16 | Type::Bf16x2);
        if kind != Type::F32 && flush != (name == "ex2" && is_brain) || flush && name == "tanh" {
            return Err("`.ftz` is of .f32, but not of `tanh`, and of `ex2` of .bf16".to_owned());
        }
        let run: Pure = match (name, kind) {
            ("ex2", Type::F32) => by_flush!(flush, exponent_2),
            ("lg2", Type::F32) => by_flush!(flush, logarithm_2),
            ("sin", Type::F32) => by_flush!(flush, sine),
            ("cos", Type::F32) => by_flush!(flush, cosine),
            ("tanh", Type::F32) => un!(u32 => u32, |a| tangent(a)),
            ("ex2", Type::F16) => {
                un!(u16 => u16, |a| approximate::exponent_2_half::<Binary16>(a))
            }
            ("ex2", Type::Bf16) => {
                un!(u16 => u16, |a| approximate::exponent_2_half::<Brain16>(a))
            }
            ("tanh", Type::F16) => {
                un!(u16 => u16, |a| tangent_half::<Binary16>(a))
            }
            ("tanh", Type::Bf16) => {
                un!(u16 => u16, |a| tangent_half::<Brain16>(a))
            }
            ("ex2", Type::F16x2) => {
                un!(u32 => u32, |a| half::both(a, approximate::exponent_2_half::<Binary16>))
            }
            ("ex2", Type::Bf16x2) => {
                un!(u32 => u32, |a| half::both(a, approximate::exponent_2_half::<Brain16>))
            }
            ("tanh", Type::F16x2) => {
                un!(u32 => u32, |a| half::both(a, tangent_half::<Binary16>))
            }
            ("tanh", Type::Bf16x2) => {
                un!(u32 => u32, |a| half::both(a, tangent_half::<Brain16>))
            }
            _ => return Err(format!("`{name}` is not supported for {kind:?}")),
        };
        self.one(run, kind, o)
    }

    /// `div.approx`, `div.full`, `rcp.approx`, `sqrt.approx`, `rsqrt.approx` of f32
    pub(super) fn approximate_quotient(
        &mut self,
        name: &str,
        full: bool,
        flush: bool,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = Type::F32;
        let run: Pure = match (name, full, flush) {
            ("div", false, false) => {
                bin!(u32, u32 => u32, |a, b| approximate::divide::<false>(a, b))
            }
            ("div", false, true) => {
                bin!(u32, u32 => u32, |a, b| approximate::divide::<true>(a, b))
            }
            ("div", true, false) => {
                bin!(u32, u32 => u32, |a, b| approximate::divide_full::<false>(a, b))
            }
            ("div", true, true) => {
                bin!(u32, u32 => u32, |a, b| approximate::divide_full::<true>(a, b))
            }
            ("rcp", false, _) => by_flush!(flush, reciprocal),
            ("sqrt", false, _) => by_flush!(flush, root),
            ("rsqrt", false, _) => by_flush!(flush, reciprocal_root),
            _ => return Err(format!("`{name}` has no such form")),
        };
        self.plain(run, kind, &[kind; 2][..if name == "div" { 2 } else { 1 }], o, 0)
    }

    /// `rcp.approx.ftz.f64`, `rsqrt.approx.f64`
    pub(super) fn approximate_double(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let flush = m.take("ftz");
        let run: Pure = match (name, flush) {
            ("rcp", true) => slow_un!(u64 => u64, |_op, a| approximate::reciprocal_f64(a)),
            ("rsqrt", false) => {
                slow_un!(u64 => u64, |_op, a| approximate::reciprocal_root_f64::<false>(a))
            }
            ("rsqrt", true) => {
                slow_un!(u64 => u64, |_op, a| approximate::reciprocal_root_f64::<true>(a))
            }
            _ => return Err("rcp.approx.f64 comes with `.ftz`".to_owned()),
        };
        self.one(run, Type::F64, o)
    }
}
