//! Quotients of integers of 32 bits, and their rests.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::{DOUBLES, Emit, WORDS};
use super::value::LineOf;
use crate::code::{Form, Width};

impl Emit<'_> {
    /// Four quotients, which are cut. All bits of one are set if its divisor is 0.
    pub(super) fn quotients(&mut self, a: Value, b: Value, signed: bool) -> Value {
        let (dividends, divisors) = (self.whole_doubles(a, signed), self.whole_doubles(b, signed));
        // The lower bits of a double that is an integer and this number are those of the integer.
        let shift = self.doubles(f64::to_bits(6_755_399_441_055_744.0));
        let shift = self.cast(types::F64X2, shift);
        let sums = [0, 1].map(|half| {
            // Doubles have 53 bits: a quotient of 32 bits that is no integer is not rounded to one.
            let quotient = self.build.ins().fdiv(dividends[half], divisors[half]);
            let cut = self.build.ins().trunc(quotient);
            let sum = self.build.ins().fadd(cut, shift);
            self.cast(DOUBLES, sum)
        });
        let quotients = self.low_halves(sums);
        let none = self.zeros(b);
        self.build.ins().bor(quotients, none)
    }

    /// The rests of four quotients. All bits of one are set if its divisor is 0.
    pub(super) fn remainders(&mut self, a: Value, b: Value, signed: bool) -> Value {
        let quotients = self.quotients(a, b, signed);
        let product = self.build.ins().imul(quotients, b);
        let rest = self.build.ins().isub(a, product);
        let none = self.zeros(b);
        self.build.ins().bor(rest, none)
    }

    /// A quotient or a remainder of a line by a divisor that all lanes share, where all quotients are equal.
    pub(super) fn level_quotient(
        &mut self,
        form: Form,
        [line, divisor]: [LineOf; 2],
        signed: bool,
        at: u32,
    ) -> Option<LineOf> {
        let rise = line.step.checked_mul(self.steps)?.unsigned_abs();
        let may_be_level = divisor.constant.is_none_or(|divisor| divisor > rise);
        if !divisor.is_same() || !may_be_level || self.is_cautious {
            return None;
        }
        let (last, fits) = self.ends(line, Width::Word, signed)?;
        let ends = self.build.ins().splat(WORDS, line.first);
        let ends = self.build.ins().insertlane(ends, last, 1);
        let divisors = self.build.ins().splat(WORDS, divisor.first);
        let quotients = self.quotients(ends, divisors, signed);
        let [first, last] = [0, 1].map(|end| self.build.ins().extractlane(quotients, end));
        let level = self.compare(IntCC::Equal, first, last);
        let is_some = self.build.ins().icmp_imm(IntCC::NotEqual, divisor.first, 0);
        let level = self.both(level, is_some);
        let holds = self.both(fits, level);
        self.check_line(holds, at);
        if matches!(form, Form::Divide { .. }) {
            return Some(LineOf::same(first));
        }
        let product = self.build.ins().imul(first, divisor.first);
        let first = self.build.ins().isub(line.first, product);
        Some(LineOf { first, step: line.step, constant: None })
    }

    /// Which of four words are 0, as a mask.
    fn zeros(&mut self, words: Value) -> Value {
        let zero = self.words(0);
        self.build.ins().icmp(IntCC::Equal, words, zero)
    }

    /// Four integers as doubles, two in each vector.
    fn whole_doubles(&mut self, words: Value, signed: bool) -> [Value; 2] {
        if signed {
            return self.integers_as_doubles(words).map(|half| self.cast(types::F64X2, half));
        }
        // Processors convert signed integers.
        let (sign, offset) = (self.words(1 << 31), self.doubles(f64::to_bits(2_147_483_648.0)));
        let (shifted, offset) =
            (self.build.ins().bxor(words, sign), self.cast(types::F64X2, offset));
        self.integers_as_doubles(shifted).map(|half| {
            let half = self.cast(types::F64X2, half);
            self.build.ins().fadd(half, offset)
        })
    }
}
