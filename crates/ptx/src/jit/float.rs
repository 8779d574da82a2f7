//! Arithmetic of floats over vectors, with the NaNs of a GPU.

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::{DOUBLES, Emit, WORDS};
use crate::code::{Form, MINUS_OTHER, MINUS_PRODUCT};
use crate::math::{double, single};

impl Emit<'_> {
    /// Arithmetic of four floats of 32 bits: a result that is no number is the canonical NaN. Operands
    /// may be any NaN, so that a chain of sums replaces only its last one.
    pub(super) fn single(&mut self, form: Form, imm: u64, s: &[Value]) -> Value {
        let sign = self.words(1 << 31);
        let s: Vec<Value> = s.iter().map(|v| *self.any_nan.get(v).unwrap_or(v)).collect();
        let value = match form {
            Form::FloatNegate(_) => self.build.ins().bxor(s[0], sign),
            Form::FloatAbsolute(_) => self.build.ins().band_not(s[0], sign),
            _ => {
                let s = self.signed_sources(form, imm, &s, sign);
                let floats: Vec<Value> = s.iter().map(|v| self.cast(types::F32X4, *v)).collect();
                let value = self.arithmetic(form, &floats);
                self.cast(WORDS, value)
            }
        };
        let float = self.cast(types::F32X4, value);
        let (nan, canonical) = (self.is_nan(float), self.words(single::NAN));
        let result = self.build.ins().bitselect(nan, canonical, value);
        self.any_nan.insert(result, value);
        result
    }

    /// Arithmetic of two floats of 64 bits: an operand that is no number is the result, quiet.
    pub(super) fn double_float(&mut self, form: Form, imm: u64, s: &[Value]) -> Value {
        let sign = self.doubles(1 << 63);
        let (value, operands) = match form {
            // Only a number changes its sign.
            Form::FloatNegate(_) => (self.build.ins().bxor(s[0], sign), vec![s[0]]),
            Form::FloatAbsolute(_) => (self.build.ins().band_not(s[0], sign), vec![s[0]]),
            _ => {
                let s = self.signed_sources(form, imm, s, sign);
                let floats: Vec<Value> = s.iter().map(|v| self.cast(types::F64X2, *v)).collect();
                let value = self.arithmetic(form, &floats);
                let value = self.cast(DOUBLES, value);
                let float = self.cast(types::F64X2, value);
                let (nan, canonical) = (self.is_nan(float), self.doubles(double::NAN));
                let value = self.build.ins().bitselect(nan, canonical, value);
                // The last one that is no number is the result.
                (value, if s.len() == 3 { vec![s[0], s[2], s[1]] } else { s })
            }
        };
        operands.into_iter().fold(value, |value, operand| {
            let float = self.cast(types::F64X2, operand);
            let (nan, quiet) = (self.is_nan(float), self.doubles(1 << 51));
            let quiet = self.build.ins().bor(operand, quiet);
            self.build.ins().bitselect(nan, quiet, value)
        })
    }

    /// The sources, with the signs that a contracted product changes.
    fn signed_sources(&mut self, form: Form, imm: u64, s: &[Value], sign: Value) -> Vec<Value> {
        let mut sources = s.to_vec();
        if matches!(form, Form::FloatContracted(_)) {
            for (source, minus) in [(0, MINUS_PRODUCT), (2, MINUS_OTHER)] {
                if imm & minus != 0 {
                    sources[source] = self.build.ins().bxor(sources[source], sign);
                }
            }
        }
        sources
    }

    fn arithmetic(&mut self, form: Form, s: &[Value]) -> Value {
        let ins = self.build.ins();
        match form {
            Form::FloatAdd(_) => ins.fadd(s[0], s[1]),
            Form::FloatSubtract(_) => ins.fsub(s[0], s[1]),
            Form::FloatMultiply(_) => ins.fmul(s[0], s[1]),
            _ => ins.fma(s[0], s[1], s[2]),
        }
    }
}
