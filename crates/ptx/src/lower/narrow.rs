//! Products of matrices of integers of 4 bits, and of single bits.

use super::builder::Builder;
use super::macros::slow_un;
use super::matrix::Shape;
use super::modifiers::{Modifiers, Refusal};
use crate::code::{Code, Factors, File, Product, Slot, Sum};
use crate::syntax::tree::Operand;
use crate::types::Type;

/// Elements of less than a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Narrow {
    Unsigned,
    Signed,
    Bit,
}

const KINDS: &[(&str, Narrow)] =
    &[("u4", Narrow::Unsigned), ("s4", Narrow::Signed), ("b1", Narrow::Bit)];

const SHAPES: &[(&str, Shape)] = &[
    ("m8n8k32", (8, 8, 32)),
    ("m16n8k32", (16, 8, 32)),
    ("m16n8k64", (16, 8, 64)),
    ("m8n8k128", (8, 8, 128)),
    ("m16n8k128", (16, 8, 128)),
    ("m16n8k256", (16, 8, 256)),
];

impl Narrow {
    /// The type that an opcode names next.
    pub(super) fn of(m: &mut Modifiers<'_>) -> Option<Self> {
        m.choose(KINDS)
    }

    /// How many elements a register of 32 bits has, as a power of two.
    fn packed(self) -> u32 {
        if self == Self::Bit { 5 } else { 3 }
    }

    /// Whether `wmma.load` has fragments of the shape.
    pub(super) fn is_loaded(self, shape: Shape) -> bool {
        shape == (8, 8, 4 << self.packed())
    }
}

impl<'t> Builder<'_, 't> {
    /// A stride in words.
    pub(super) fn words_of(&mut self, stride: Slot, narrow: Narrow) -> Slot {
        let words = self.temporary(File::Word);
        let run = slow_un!(u32 => u32, |op, a| a >> op.imm);
        self.emit(Code::Pure(run), &[words], &[stride], narrow.packed().into());
        words
    }

    /// `mma` and `wmma.mma`: both have fragments in the same places.
    pub(super) fn narrow_product(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        for name in ["sync", "aligned", "row", "col"] {
            m.must(&[(name, ())])?;
        }
        let (rows, columns, depth) = m.must(SHAPES)?;
        let saturate = m.take("satfinite");
        let kinds = (m.must(KINDS)?, m.must(KINDS)?);
        for _ in 0..2 {
            m.must(&[("s32", ())])?;
        }
        let factors = match kinds {
            (Narrow::Bit, Narrow::Bit) if !saturate => {
                let and = m.must(&[("and", true), ("xor", false)])?;
                m.must(&[("popc", ())])?;
                Factors::Bits { and }
            }
            (Narrow::Bit, _) | (_, Narrow::Bit) => {
                return Err("bits are multiplied by bits, and their sums wrap".to_owned());
            }
            (a, b) => {
                let signed = |kind| kind == Narrow::Signed;
                Factors::Nibbles { a_signed: signed(a), b_signed: signed(b), saturate }
            }
        };
        // A lane holds so many words of a row of the first factor, or of a column of the second.
        let words = usize::from(depth >> kinds.0.packed()) / 4;
        if !matches!(words, 1 | 2) || (rows == 8 && words == 2) {
            return Err("this shape of mma is not supported for its types".to_owned());
        }
        let [d, a, b, c] = o else { return Err("4 operands are expected".to_owned()) };
        let registers = [words * usize::from(rows / 8), words];
        let count = Sum::Word.layout(rows.into(), columns.into()).registers();
        let mut slots = self.registers(a, Type::B32, registers[0])?;
        slots.extend(self.registers(b, Type::B32, registers[1])?);
        slots.extend(self.registers(c, Type::B32, count)?);
        let results = self.results(d, Type::B32, count)?;
        let registers = registers.map(|count| count as u8);
        let product = Product { factors, sum: Sum::Word, rows, columns, depth, registers };
        self.emit(Code::Product(product), &results, &slots, 0);
        Ok(())
    }
}
