//! Sums of products of floats that are rounded down.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::Emit;

/// Two sums of products in doubles, and what is known of their roundings.
struct Sums {
    /// The nearest doubles.
    near: Value,
    /// The exact sums less those.
    errors: Value,
    /// The products and addends of which any is negative, by the sign.
    signs: Value,
}

impl Emit<'_> {
    /// `a * b + c` of four floats, rounded down.
    pub(super) fn fused_down(&mut self, s: [Value; 3]) -> Value {
        let [a, b, c] = s.map(|source| self.promoted(source));
        let sums = [0, 1].map(|half| self.exact_sum([a[half], b[half], c[half]]));
        let value = self.demoted([0, 1].map(|half: usize| sums[half].near));
        let back = self.promoted(value);
        let rounded = [0, 1].map(|half: usize| self.rounded_up(back[half], &sums[half]));
        let too_large = self.low_halves(rounded.map(|(too_large, _)| too_large));
        let zeros = self.low_halves(rounded.map(|(_, is_zero)| is_zero));
        let below = self.next_below(value);
        let value = self.build.ins().bitselect(too_large, below, value);
        // An exact zero is negative, but as a sum of two positive ones.
        let signs = self.high_halves([0, 1].map(|half: usize| sums[half].signs));
        let sign = self.words(1 << 31);
        let signed = self.build.ins().band(signs, sign);
        let value = self.build.ins().bitselect(zeros, signed, value);
        self.with_canonical(value)
    }

    /// A double holds the product of two floats. The error of the sum is Knuth's.
    fn exact_sum(&mut self, s: [Value; 3]) -> Sums {
        let [a, b, c] = s.map(|half| self.cast(types::F64X2, half));
        let product = self.build.ins().fmul(a, b);
        let near = self.build.ins().fadd(product, c);
        let of_c = self.build.ins().fsub(near, product);
        let of_product = self.build.ins().fsub(near, of_c);
        let lost = self.build.ins().fsub(product, of_product);
        let lost_of_c = self.build.ins().fsub(c, of_c);
        let errors = self.build.ins().fadd(lost, lost_of_c);
        let bits = [product, c].map(|value| self.cast(types::I64X2, value));
        Sums { near, errors, signs: self.build.ins().bor(bits[0], bits[1]) }
    }

    /// Whether the nearest floats, as doubles, are above the exact sums; and whether those are zeros.
    fn rounded_up(&mut self, back: Value, sums: &Sums) -> (Value, Value) {
        let back = self.cast(types::F64X2, back);
        let zero = self.doubles(0);
        let zero = self.cast(types::F64X2, zero);
        let mut holds = |order, a, b| self.build.ins().fcmp(order, a, b);
        let above = holds(FloatCC::GreaterThan, back, sums.near);
        let is_near = holds(FloatCC::Equal, back, sums.near);
        let is_less = holds(FloatCC::LessThan, sums.errors, zero);
        let is_zero = holds(FloatCC::Equal, sums.near, zero);
        let hidden = self.build.ins().band(is_near, is_less);
        (self.build.ins().bor(above, hidden), is_zero)
    }

    /// The greatest floats below four others.
    fn next_below(&mut self, value: Value) -> Value {
        let negative = self.build.ins().sshr_imm(value, 31);
        // One more of a magnitude that is negative, and one less of another.
        let twice = self.build.ins().ishl_imm(negative, 1);
        let step = self.build.ins().bnot(twice);
        let next = self.build.ins().iadd(value, step);
        let (sign, zero, least) = (self.words(1 << 31), self.words(0), self.words(0x8000_0001));
        let magnitude = self.build.ins().band_not(value, sign);
        let is_zero = self.build.ins().icmp(IntCC::Equal, magnitude, zero);
        self.build.ins().bitselect(is_zero, least, next)
    }
}
