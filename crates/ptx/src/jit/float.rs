//! Arithmetic of floats over vectors, with the NaNs of a GPU.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, StackSlotData, StackSlotKind, Value, types};

use super::emit::{DOUBLES, Emit, WORDS};
use super::value::{Four, GROUPS};
use crate::code::{FLUSH, Form, MINUS_OTHER, MINUS_PRODUCT, Width};
use crate::math::{double, single};

/// Two factors and an addend of four lanes. The sums take the place of the first factors.
type Fused = [[u32; 4]; 3];

/// Computes products and sums with `.ftz`.
///
/// # Safety
/// Compiled code gives a place of its own stack.
unsafe extern "C" fn fused(lanes: *mut Fused) {
    // SAFETY: nothing else refers to the place while compiled code waits.
    let [a, b, c] = unsafe { &mut *lanes };
    for lane in 0..4 {
        a[lane] = single::fma::<true, false>(a[lane], b[lane], c[lane]);
    }
}

impl Emit<'_> {
    /// Arithmetic of four floats of 32 bits: a result that is no number is the canonical NaN. Operands
    /// may be any NaN, so that a chain of sums replaces only its last one.
    pub(super) fn single(&mut self, form: Form, imm: u64, s: &[Value]) -> Value {
        let (sign, flushes) = (self.words(1 << 31), imm & FLUSH != 0);
        let mut s: Vec<Value> = s.iter().map(|v| *self.any_nan.get(v).unwrap_or(v)).collect();
        if flushes {
            s = s.into_iter().map(|value| self.flushed(value)).collect();
        }
        let value = match form {
            Form::FloatNegate(_) => self.build.ins().bxor(s[0], sign),
            Form::FloatAbsolute(_) => self.build.ins().band_not(s[0], sign),
            Form::FloatMinimum | Form::FloatMaximum => self.extreme(form, &s),
            _ => {
                let s = self.signed_sources(form, imm, &s, sign);
                let floats: Vec<Value> = s.iter().map(|v| self.cast(types::F32X4, *v)).collect();
                let value = self.arithmetic(form, &floats);
                let value = self.cast(WORDS, value);
                if flushes { self.flushed_result(form, &s, value) } else { value }
            }
        };
        let result = self.with_canonical(value);
        self.any_nan.insert(result, value);
        if flushes {
            self.no_subnormal.extend([value, result]);
        }
        result
    }

    /// Four floats, with the canonical NaN for others.
    pub(super) fn with_canonical(&mut self, value: Value) -> Value {
        let float = self.cast(types::F32X4, value);
        let (nan, canonical) = (self.is_nan(float), self.words(single::NAN));
        self.build.ins().bitselect(nan, canonical, value)
    }

    /// The lanes of a warp that nothing but a row in memory gets. Where they are results of arithmetic, one look at
    /// all of them finds a NaN: most have none.
    pub(super) fn canonical(&mut self, row: Vec<Four>) -> Vec<Four> {
        let raw = row.iter().map(|four| match four {
            Four::Word(value) => self.any_nan.get(value).copied(),
            _ => None,
        });
        let Some(raw) = raw.collect::<Option<Vec<Value>>>() else { return row };
        let Ok(raw) = <[Value; GROUPS]>::try_from(raw) else { return row };
        let floats = raw.map(|value| self.cast(types::F32X4, value));
        let [a, b, c, d] = [0, 2, 4, 6]
            .map(|at| self.build.ins().fcmp(FloatCC::Unordered, floats[at], floats[at + 1]));
        let (low, high) = (self.build.ins().bor(a, b), self.build.ins().bor(c, d));
        let any = self.build.ins().bor(low, high);
        let row = self.usually(any, raw, |emit| raw.map(|value| emit.with_canonical(value)));
        row.map(Four::Word).to_vec()
    }

    /// Four floats, with zeros of their signs for subnormals.
    pub(super) fn flushed(&mut self, value: Value) -> Value {
        if self.no_subnormal.contains(&value) {
            return value;
        }
        let (exponents, sign) = (self.words(0x7f80_0000), self.words(1 << 31));
        let exponent = self.build.ins().band(value, exponents);
        let zero = self.words(0);
        let is_small = self.build.ins().icmp(IntCC::Equal, exponent, zero);
        let zero = self.build.ins().band(value, sign);
        let flushed = self.build.ins().bitselect(is_small, zero, value);
        self.no_subnormal.insert(flushed);
        flushed
    }

    /// The result of arithmetic with `.ftz`. One that is subnormal before it is rounded up to the least normal
    /// number is a zero, too. Such numbers are rare: where a result is that number, a call computes all four.
    fn flushed_result(&mut self, form: Form, s: &[Value], value: Value) -> Value {
        if matches!(form, Form::FloatAdd(_) | Form::FloatSubtract(_) | Form::FloatIntegral(..)) {
            // Sums that are so small are exact, and no integer is.
            return self.flushed(value);
        }
        let (sign, least) = (self.words(1 << 31), self.words(f32::MIN_POSITIVE.to_bits()));
        let magnitude = self.build.ins().band_not(value, sign);
        let is_least = self.build.ins().icmp(IntCC::Equal, magnitude, least);
        let any = self.build.ins().vany_true(is_least);
        let none = self.build.ins().icmp_imm(IntCC::Equal, any, 0);
        // A product is a sum with a zero that is below it.
        let other = s.get(2).copied().unwrap_or(sign);
        let value = self.either(none, value, |emit| emit.call_fused([s[0], s[1], other]));
        self.flushed(value)
    }

    /// Products and sums of four floats with `.ftz`, by a call.
    fn call_fused(&mut self, s: [Value; 3]) -> Value {
        let bytes = size_of::<Fused>() as u32;
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4);
        let slot = self.build.create_sized_stack_slot(slot);
        for (at, source) in s.into_iter().enumerate() {
            self.build.ins().stack_store(source, slot, 16 * at as i32);
        }
        let function = self.double(fused as *const () as u64);
        let place = self.build.ins().stack_addr(types::I64, slot, 0);
        self.build.ins().call_indirect(self.fused, function, &[place]);
        self.build.ins().stack_load(WORDS, slot, 0)
    }

    /// The lesser or the larger of two floats, or the only one that is a number. A negative zero is less than
    /// a positive one.
    fn extreme(&mut self, form: Form, s: &[Value]) -> Value {
        let floats = [self.cast(types::F32X4, s[0]), self.cast(types::F32X4, s[1])];
        let (order, zeros) = match form {
            Form::FloatMinimum => (FloatCC::LessThan, self.build.ins().bor(s[0], s[1])),
            _ => (FloatCC::GreaterThan, self.build.ins().band(s[0], s[1])),
        };
        let is_first = self.build.ins().fcmp(order, floats[0], floats[1]);
        let value = self.build.ins().bitselect(is_first, s[0], s[1]);
        let are_equal = self.build.ins().fcmp(FloatCC::Equal, floats[0], floats[1]);
        let value = self.build.ins().bitselect(are_equal, zeros, value);
        let is_none = self.is_nan(floats[1]);
        self.build.ins().bitselect(is_none, s[0], value)
    }

    /// Arithmetic of four floats of 64 bits. Which NaN is the result takes longer to find than the result does,
    /// and is found where there is one.
    pub(super) fn double_floats(&mut self, form: Form, imm: u64, s: &[Four]) -> [Value; 2] {
        let sources = [0, 1].map(|half| s.iter().map(|four| four.double()[half]).collect());
        let exact =
            |emit: &mut Self| sources.each_ref().map(|s: &Vec<_>| emit.double_float(form, imm, s));
        if matches!(form, Form::FloatNegate(_) | Form::FloatAbsolute(_)) {
            return exact(self);
        }
        let sign = self.doubles(1 << 63);
        let floats = sources.each_ref().map(|s| {
            let s = self.signed_sources(form, imm, s, sign);
            let s: Vec<Value> = s.iter().map(|v| self.cast(types::F64X2, *v)).collect();
            self.arithmetic(form, &s)
        });
        let nan = self.build.ins().fcmp(FloatCC::Unordered, floats[0], floats[1]);
        let usual = floats.map(|value| self.cast(DOUBLES, value));
        self.usually(nan, usual, exact)
    }

    /// Arithmetic of two floats of 64 bits: an operand that is no number is the result, quiet.
    fn double_float(&mut self, form: Form, imm: u64, s: &[Value]) -> Value {
        let sign = self.doubles(1 << 63);
        let (value, operands) = match form {
            // Only a number changes its sign.
            Form::FloatNegate(_) => (self.build.ins().bxor(s[0], sign), vec![s[0]]),
            Form::FloatAbsolute(_) => (self.build.ins().band_not(s[0], sign), vec![s[0]]),
            Form::FloatDivide(_) => (self.double_result(form, s), vec![s[1], s[0]]),
            _ => {
                let s = self.signed_sources(form, imm, s, sign);
                let value = self.double_result(form, &s);
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

    /// The result of arithmetic of numbers, with the NaN of an operation without a result.
    fn double_result(&mut self, form: Form, s: &[Value]) -> Value {
        let floats: Vec<Value> = s.iter().map(|v| self.cast(types::F64X2, *v)).collect();
        let value = self.arithmetic(form, &floats);
        let value = self.cast(DOUBLES, value);
        let float = self.cast(types::F64X2, value);
        let (nan, canonical) = (self.is_nan(float), self.doubles(double::NAN));
        self.build.ins().bitselect(nan, canonical, value)
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
            Form::FloatDivide(_) => ins.fdiv(s[0], s[1]),
            Form::FloatRoot(_) => ins.sqrt(s[0]),
            Form::FloatReciprocal(width) => {
                let one = match width {
                    Width::Word => self.words(1.0_f32.to_bits()),
                    Width::Double => self.doubles(1.0_f64.to_bits()),
                };
                let one = self.cast(self.build.func.dfg.value_type(s[0]), one);
                self.build.ins().fdiv(one, s[0])
            }
            Form::FloatIntegral(_, rounding) => self.integral(s[0], rounding),
            _ => ins.fma(s[0], s[1], s[2]),
        }
    }
}
