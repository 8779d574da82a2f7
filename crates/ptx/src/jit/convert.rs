//! Conversions between floats and integers over vectors.

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::{DOUBLES, Emit, WORDS};
use crate::code::FLUSH;
use crate::math::Rounding;

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
