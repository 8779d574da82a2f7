//! Four lanes of registers as vectors.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{ConstantData, InstBuilder, Type, Value, types};

use super::emit::{DOUBLES, Emit, WORDS, plain};
use super::value::{Four, HALF, Halves, LineOf};

impl Emit<'_> {
    pub(super) fn load_word(&mut self, place: u16, group: usize) -> Four {
        let (base, offset) = self.lanes_of_word(place, group);
        Four::Word(self.build.ins().load(WORDS, plain(), base, offset))
    }

    pub(super) fn load_double(&mut self, place: u16, group: usize) -> Four {
        Four::Double([0, 1].map(|half| {
            let (base, offset) = self.lanes_of_double(place, 2 * group + half);
            self.build.ins().load(DOUBLES, plain(), base, offset)
        }))
    }

    /// Writes a group of a register that is no predicate.
    pub(super) fn store(&mut self, place: u16, group: usize, value: Four) {
        match value {
            Four::Word(value) | Four::Mask(value) => {
                let (base, offset) = self.lanes_of_word(place, group);
                self.build.ins().store(plain(), value, base, offset);
            }
            Four::Double(values) => {
                for (half, value) in values.into_iter().enumerate() {
                    let (base, offset) = self.lanes_of_double(place, 2 * group + half);
                    self.build.ins().store(plain(), value, base, offset);
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
    pub(super) fn line_in_group(&mut self, is_double: bool, line: LineOf, group: usize) -> Four {
        let step = line.step.cast_unsigned();
        let lane = |at: usize| step.wrapping_mul((4 * group + at) as u64);
        if is_double {
            let first = self.build.ins().splat(DOUBLES, line.first);
            return Four::Double([0, 1].map(|half| match step {
                0 => first,
                _ => {
                    let further = self.doubles_of([lane(2 * half), lane(2 * half + 1)]);
                    self.build.ins().iadd(first, further)
                }
            }));
        }
        let first = self.build.ins().splat(WORDS, line.first);
        if step == 0 {
            return Four::Word(first);
        }
        let further = self.words_of([0, 1, 2, 3].map(|at| lane(at) as u32));
        Four::Word(self.build.ins().iadd(first, further))
    }

    /// The values of the lines of halves in a group.
    pub(super) fn halves_in_group(
        &mut self,
        is_double: bool,
        halves: Halves,
        group: usize,
    ) -> Four {
        self.line_in_group(is_double, halves[group / HALF], group % HALF)
    }

    /// The predicate of all lanes in a group.
    pub(super) fn mask_in_group(&mut self, mask: Value, group: usize) -> Four {
        let all = self.build.ins().splat(WORDS, mask);
        let bits = self.words_of([0, 1, 2, 3].map(|at| 1 << (4 * group + at)));
        let own = self.build.ins().band(all, bits);
        Four::Mask(self.build.ins().icmp(IntCC::Equal, own, bits))
    }

    /// The bits of a group's predicate in the predicate of all lanes.
    pub(super) fn bits_of_group(&mut self, mask: Value, group: usize) -> Value {
        let bits = self.build.ins().vhigh_bits(types::I32, mask);
        match group {
            0 => bits,
            _ => self.build.ins().ishl_imm(bits, 4 * group as i64),
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
