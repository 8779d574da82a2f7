//! Four lanes of registers as vectors.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{ConstantData, InstBuilder, Type, Value, types};

use super::emit::{DOUBLES, Emit, WORDS, plain};
use super::value::{Four, Group, HALF, Halves, LineOf, Round};

impl Emit<'_> {
    pub(super) fn load_word(&mut self, place: u16, group: impl Into<Group>) -> Four {
        let (base, offset) = self.lanes_of_word(place, group);
        Four::Word(self.build.ins().load(WORDS, plain(), base, offset))
    }

    pub(super) fn load_double(&mut self, place: u16, group: impl Into<Group>) -> Four {
        let (base, offset) = self.lanes_of_double(place, group);
        Four::Double(
            [0, 16].map(|half| self.build.ins().load(DOUBLES, plain(), base, offset + half)),
        )
    }

    /// Writes a group of a register that is no predicate.
    pub(super) fn store(&mut self, place: u16, group: impl Into<Group>, value: Four) {
        match value {
            Four::Word(value) | Four::Mask(value) => {
                let (base, offset) = self.lanes_of_word(place, group);
                self.build.ins().store(plain(), value, base, offset);
            }
            Four::Double(values) => {
                let (base, offset) = self.lanes_of_double(place, group);
                for (value, half) in values.into_iter().zip([0, 16]) {
                    self.build.ins().store(plain(), value, base, offset + half);
                }
            }
        }
    }

    /// A vector of given bytes.
    pub(super) fn vector(&mut self, kind: Type, bytes: [u8; 16]) -> Value {
        let data = self.build.func.dfg.constants.insert(ConstantData::from(&bytes[..]));
        self.build.ins().vconst(kind, data)
    }

    pub(super) fn words_of(&mut self, values: [u32; 4]) -> Value {
        let mut bytes = [0; 16];
        for (four, value) in bytes.chunks_exact_mut(4).zip(values) {
            four.copy_from_slice(&value.to_le_bytes());
        }
        self.vector(WORDS, bytes)
    }

    fn doubles_of(&mut self, values: [u64; 2]) -> Value {
        let mut bytes = [0; 16];
        for (eight, value) in bytes.chunks_exact_mut(8).zip(values) {
            eight.copy_from_slice(&value.to_le_bytes());
        }
        self.vector(DOUBLES, bytes)
    }

    /// The values of a line in a group.
    pub(super) fn line_in_group(
        &mut self,
        is_double: bool,
        line: LineOf,
        group: impl Into<Group>,
    ) -> Four {
        match group.into() {
            Group::Known(group) => self.line_from(is_double, line.first, line.step, 4 * group),
            Group::Now(round) => {
                let first = self.point(is_double, line, round.lanes);
                self.line_from(is_double, first, line.step, 0)
            }
        }
    }

    /// Four values of a line, from a lane on.
    fn line_from(&mut self, is_double: bool, first: Value, step: i64, from: usize) -> Four {
        let lane = |at: usize| step.cast_unsigned().wrapping_mul((from + at) as u64);
        if is_double {
            let first = self.build.ins().splat(DOUBLES, first);
            return Four::Double([0, 1].map(|half| match step {
                0 => first,
                _ => {
                    let further = self.doubles_of([lane(2 * half), lane(2 * half + 1)]);
                    self.build.ins().iadd(first, further)
                }
            }));
        }
        let first = self.build.ins().splat(WORDS, first);
        if step == 0 {
            return Four::Word(first);
        }
        let further = self.words_of([0, 1, 2, 3].map(|at| lane(at) as u32));
        Four::Word(self.build.ins().iadd(first, further))
    }

    /// The value of a line in a lane.
    pub(super) fn point(&mut self, is_double: bool, line: LineOf, lane: Value) -> Value {
        if line.is_same() {
            return line.first;
        }
        let lane = if is_double { self.build.ins().uextend(types::I64, lane) } else { lane };
        let further = self.build.ins().imul_imm(lane, line.step);
        self.build.ins().iadd(line.first, further)
    }

    /// The values of the lines of halves in a group.
    pub(super) fn halves_in_group(
        &mut self,
        is_double: bool,
        halves: Halves,
        group: impl Into<Group>,
    ) -> Four {
        let round = match group.into() {
            Group::Known(group) => {
                return self.line_in_group(is_double, halves[group / HALF], group % HALF);
            }
            Group::Now(round) => round,
        };
        let first = self.first_of_halves(is_double, halves, round);
        self.line_from(is_double, first, halves[0].step, 0)
    }

    /// The value of the lines of halves in the first lane of a round.
    pub(super) fn first_of_halves(
        &mut self,
        is_double: bool,
        halves: Halves,
        round: Round,
    ) -> Value {
        let first = self.build.ins().select(round.is_upper, halves[1].first, halves[0].first);
        let lane = self.build.ins().band_imm(round.lanes, 4 * HALF as i64 - 1);
        self.point(is_double, LineOf { first, ..halves[0] }, lane)
    }

    /// The predicate of all lanes in a group.
    pub(super) fn mask_in_group(&mut self, mask: Value, group: impl Into<Group>) -> Four {
        let (mask, from) = match group.into() {
            Group::Known(group) => (mask, 4 * group),
            Group::Now(round) => (self.build.ins().ushr(mask, round.lanes), 0),
        };
        let all = self.build.ins().splat(WORDS, mask);
        let bits = self.words_of([0, 1, 2, 3].map(|at| 1 << (from + at)));
        let own = self.build.ins().band(all, bits);
        Four::Mask(self.build.ins().icmp(IntCC::Equal, own, bits))
    }

    /// The bits of a group's predicate in the predicate of all lanes.
    pub(super) fn bits_of_group(&mut self, mask: Value, group: impl Into<Group>) -> Value {
        let bits = self.build.ins().vhigh_bits(types::I32, mask);
        match group.into() {
            Group::Known(0) => bits,
            Group::Known(group) => self.build.ins().ishl_imm(bits, 4 * group as i64),
            Group::Now(round) => self.build.ins().ishl(bits, round.lanes),
        }
    }

    /// The lower halves of four doubles.
    pub(super) fn low_halves(&mut self, doubles: [Value; 2]) -> Value {
        self.words_from(doubles, [0, 2, 4, 6])
    }

    pub(super) fn high_halves(&mut self, doubles: [Value; 2]) -> Value {
        self.words_from(doubles, [1, 3, 5, 7])
    }

    /// Four of the eight words of two vectors.
    pub(super) fn words_from(&mut self, vectors: [Value; 2], from: [u8; 4]) -> Value {
        self.bytes_from(vectors, |at| 4 * from[at / 4] + at as u8 % 4)
    }

    /// Sixteen of the 32 bytes of two vectors, by the function of their places.
    pub(super) fn bytes_from(
        &mut self,
        vectors: [Value; 2],
        from: impl FnMut(usize) -> u8,
    ) -> Value {
        let [a, b] = vectors.map(|value| self.cast(types::I8X16, value));
        let bytes: [u8; 16] = std::array::from_fn(from);
        let mask = self.build.func.dfg.immediates.push(ConstantData::from(&bytes[..]));
        let words = self.build.ins().shuffle(a, b, mask);
        self.cast(WORDS, words)
    }

    /// The mask of two lanes as one for doubles of a group's mask of words.
    pub(super) fn mask_of_doubles(&mut self, mask: Value) -> [Value; 2] {
        [self.build.ins().swiden_low(mask), self.build.ins().swiden_high(mask)]
    }

    /// The new value where the mask holds, else the old one.
    pub(super) fn choose(&mut self, mask: Value, new: Four, old: Four) -> Four {
        match new {
            Four::Word(value) => Four::Word(self.build.ins().bitselect(mask, value, old.word())),
            Four::Mask(value) => Four::Mask(self.build.ins().bitselect(mask, value, old.word())),
            Four::Double([low, high]) => {
                let ([old_low, old_high], masks) = (old.double(), self.mask_of_doubles(mask));
                Four::Double([
                    self.build.ins().bitselect(masks[0], low, old_low),
                    self.build.ins().bitselect(masks[1], high, old_high),
                ])
            }
        }
    }

    /// Whether lanes of floats are no numbers.
    pub(super) fn is_nan(&mut self, floats: Value) -> Value {
        self.build.ins().fcmp(FloatCC::NotEqual, floats, floats)
    }
}
