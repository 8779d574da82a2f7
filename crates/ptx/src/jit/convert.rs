//! Conversions between floats and integers over vectors.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::{DOUBLES, Emit, WORDS};
use crate::code::FLUSH;
use crate::math::{Rounding, half, single};

impl Emit<'_> {
    /// Floats as integers of their type.
    pub(super) fn integral(&mut self, value: Value, rounding: Rounding) -> Value {
        let ins = self.build.ins();
        match rounding {
            Rounding::Zero => ins.trunc(value),
            Rounding::Down => ins.floor(value),
            Rounding::Up => ins.ceil(value),
            Rounding::Nearest | Rounding::NearestAway => ins.nearest(value),
        }
    }

    /// Four floats as integers of 32 bits. They are clamped, and a NaN gives 0.
    pub(super) fn integers_of(
        &mut self,
        value: Value,
        signed: bool,
        rounding: Rounding,
        imm: u64,
    ) -> Value {
        let value = if imm & FLUSH != 0 { self.flushed(value) } else { value };
        let float = self.cast(types::F32X4, value);
        // The conversion cuts.
        let float = match rounding {
            Rounding::Zero => float,
            _ => self.integral(float, rounding),
        };
        match signed {
            true => self.build.ins().fcvt_to_sint_sat(WORDS, float),
            false => self.build.ins().fcvt_to_uint_sat(WORDS, float),
        }
    }

    /// Four signed integers as doubles.
    pub(super) fn integers_as_doubles(&mut self, value: Value) -> [Value; 2] {
        // Of the lower two lanes of a vector, since processors have that.
        [value, self.upper_first(value)].map(|value| {
            let wide = self.build.ins().swiden_low(value);
            let float = self.build.ins().fcvt_from_sint(types::F64X2, wide);
            self.cast(DOUBLES, float)
        })
    }

    /// Four floats clamped to the range from 0 to 1; 0 for a NaN.
    pub(super) fn clamped(&mut self, value: Value, imm: u64) -> Value {
        let value = if imm & FLUSH != 0 { self.flushed(value) } else { value };
        let (zero, one) = (self.words(0), self.words(1.0_f32.to_bits()));
        let [float, least, most] = [value, zero, one].map(|word| self.cast(types::F32X4, word));
        let is_above = self.build.ins().fcmp(FloatCC::GreaterThan, float, least);
        let is_below = self.build.ins().fcmp(FloatCC::LessThan, float, most);
        let value = self.build.ins().bitselect(is_below, value, one);
        self.build.ins().band(value, is_above)
    }

    /// Four `.f16` in the lower bits of words as `.f32`: the exponents differ by a factor.
    pub(super) fn floats_of_halves(&mut self, value: Value) -> Value {
        let (magnitudes, signs) = (self.words(0x7fff), self.words(0x8000));
        let magnitude = self.build.ins().band(value, magnitudes);
        let sign = self.build.ins().band(value, signs);
        let sign = self.build.ins().ishl_imm(sign, 16);
        let (scale, moved) =
            (self.words((254 - 15) << 23), self.build.ins().ishl_imm(magnitude, 13));
        let [scale, moved] = [scale, moved].map(|word| self.cast(types::F32X4, word));
        let finite = self.build.ins().fmul(moved, scale);
        let finite = self.cast(WORDS, finite);
        let (infinity, wide) = (self.words(0x7c00), self.words(0x7f80_0000));
        let is_infinite = self.build.ins().icmp(IntCC::Equal, magnitude, infinity);
        let magnitude_of_all = self.build.ins().bitselect(is_infinite, wide, finite);
        let signed = self.build.ins().bor(magnitude_of_all, sign);
        let (is_nan, nan) = (
            self.build.ins().icmp(IntCC::SignedGreaterThan, magnitude, infinity),
            self.words(single::NAN),
        );
        self.build.ins().bitselect(is_nan, nan, signed)
    }

    /// Four `.f32` as the nearest `.f16`, in the lower bits of words.
    pub(super) fn halves_of_floats(&mut self, value: Value) -> Value {
        let magnitudes = self.words(0x7fff_ffff);
        let magnitude = self.build.ins().band(value, magnitudes);
        // The last bit of a half is the last bit of a subnormal: the sum rounds there.
        let half = self.words(0.5_f32.to_bits());
        let floats = [magnitude, half].map(|word| self.cast(types::F32X4, word));
        let sum = self.build.ins().fadd(floats[0], floats[1]);
        let sum = self.cast(WORDS, sum);
        let subnormal = self.build.ins().isub(sum, half);
        let (one, rounding) = (self.words(1), self.words((0xfff_u32).wrapping_sub(112 << 23)));
        let last = self.build.ins().ushr_imm(magnitude, 13);
        let last = self.build.ins().band(last, one);
        let even = self.build.ins().iadd(magnitude, rounding);
        let even = self.build.ins().iadd(even, last);
        let normal = self.build.ins().ushr_imm(even, 13);
        // Magnitudes are in order as signed integers, too.
        let mut is_above = |least: u32| {
            let least = self.words(least);
            self.build.ins().icmp(IntCC::SignedGreaterThan, magnitude, least)
        };
        let (is_normal, is_infinite) = (is_above(0x387f_ffff), is_above(0x477f_efff));
        let is_nan = is_above(0x7f80_0000);
        let finite = self.build.ins().bitselect(is_normal, normal, subnormal);
        let (infinity, nan) = (self.words(0x7c00), self.words(half::NAN.into()));
        let some = self.build.ins().bitselect(is_infinite, infinity, finite);
        let sign = self.build.ins().ushr_imm(value, 16);
        let signs = self.words(0x8000);
        let sign = self.build.ins().band(sign, signs);
        let some = self.build.ins().bor(some, sign);
        self.build.ins().bitselect(is_nan, nan, some)
    }

    /// Four floats as doubles.
    pub(super) fn promoted(&mut self, value: Value) -> [Value; 2] {
        [value, self.upper_first(value)].map(|value| {
            let float = self.cast(types::F32X4, value);
            let wide = self.build.ins().fvpromote_low(float);
            self.cast(DOUBLES, wide)
        })
    }

    /// Four doubles as the nearest floats.
    pub(super) fn demoted(&mut self, values: [Value; 2]) -> Value {
        let halves = values.map(|value| {
            let float = self.cast(types::F64X2, value);
            self.build.ins().fvdemote(float)
        });
        self.words_from(halves, [0, 1, 4, 5])
    }

    /// A vector of words with its halves exchanged.
    fn upper_first(&mut self, value: Value) -> Value {
        self.words_from([value; 2], [2, 3, 0, 1])
    }
}
