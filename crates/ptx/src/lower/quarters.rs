//! `mma` of 8-bit floats, and `mma.m8n8k4`: products that `ptxas` makes of other instructions for an H200.

use super::builder::Builder;
use super::convert::quarter_of;
use super::macros::{bin, slow_un};
use super::matrix::Shape;
use super::modifiers::{Modifiers, Refusal};
use crate::code::{Code, Factors, File, Product, Quads, Slot, Sum};
use crate::math::convert::{Quarter, f16_from_quarter};
use crate::math::half::{self, Binary16, both_2};
use crate::math::single;
use crate::syntax::tree::Operand;
use crate::types::Type;

const QUARTERS: &[(&str, Quarter)] = &[("e4m3", Quarter::E4m3), ("e5m2", Quarter::E5m2)];

/// The lower two bytes of a word, or with bit 4 of `imm` the upper two, as halves: of the type of `imm`.
fn halves_of(word: u32, imm: u64) -> u32 {
    let from = quarter_of(imm);
    let [low, high, ..] = (word >> (imm & 16)).to_le_bytes();
    let of = |byte: u8| u32::from(f16_from_quarter(byte, from, false));
    of(high) << 16 | of(low)
}

/// The sum of two halves.
fn half_sum(a: u16, b: u16) -> u16 {
    half::add::<Binary16>(a, b, half::Modifiers::default())
}

impl<'t> Builder<'_, 't> {
    /// `mma` of 8-bit floats, as `ptxas` makes it for an H200: the lower two bytes of each register become
    /// halves and are multiplied, then the upper two, which is added to that; and the accumulators last.
    pub(super) fn quarter_product(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        const SHAPES: &[(&str, Shape)] = &[("m16n8k16", (16, 8, 16)), ("m16n8k32", (16, 8, 32))];
        for name in ["sync", "aligned", "row", "col"] {
            m.must(&[(name, ())])?;
        }
        let (rows, columns, depth) = m.must(SHAPES)?;
        let kinds = [m.must(QUARTERS)?, m.must(QUARTERS)?];
        let (kind, sum) = match (m.kind()?, m.kind()?) {
            (Type::F32, Type::F32) => (Type::F32, Sum::Word),
            (Type::F16, Type::F16) => (Type::F16, Sum::F16),
            _ => return Err("the sums of 8-bit floats are .f32 or .f16".to_owned()),
        };
        let [d, a, b, c] = o else { return Err("4 operands are expected".to_owned()) };
        let count = sum.layout(rows.into(), columns.into()).registers();
        let words = usize::from(depth) / 16;
        let a = self.registers(a, Type::B32, 2 * words)?;
        let b = self.registers(b, Type::B32, words)?;
        let c = self.registers(c, kind, count)?;
        let results = self.results(d, kind, count)?;
        let registers = [2 * words as u8, words as u8];
        let (factors, depth) = (Factors::F16, depth / 2);
        let product = Product { factors, sum, rows, columns, depth, registers };
        let mut sums = vec![self.number(0, false); count];
        for first_bit in [0, 16] {
            let mut sources = Vec::new();
            for (slots, kind) in [(&a, kinds[0]), (&b, kinds[1])] {
                let imm = first_bit | u64::from(kind == Quarter::E5m2) << 1;
                sources.extend(slots.iter().map(|slot| self.halves(*slot, imm)));
            }
            sources.extend(&sums);
            sums = (0..count).map(|_| self.temporary(File::Word)).collect();
            self.emit(Code::Product(product), &sums, &sources, 0);
        }
        let add = match sum {
            Sum::F16 => bin!(u32, u32 => u32, |a, b| both_2(a, b, half_sum)),
            _ => bin!(u32, u32 => u32, |a, b| single::add::<false, false>(a, b)),
        };
        // A result may be in the register of another accumulator: all sums come first.
        for (sum, addend) in sums.iter().zip(c) {
            self.emit(Code::Pure(add), &[*sum], &[addend, *sum], 0);
        }
        for (result, sum) in results.iter().zip(sums) {
            self.copy(*result, sum);
        }
        Ok(())
    }

    /// Two bytes of a register as halves.
    fn halves(&mut self, slot: Slot, imm: u64) -> Slot {
        let halves = self.temporary(File::Word);
        let run = slow_un!(u32 => u32, |op, word| halves_of(word, op.imm));
        self.emit(Code::Pure(run), &[halves], &[slot], imm);
        halves
    }

    /// `mma.m8n8k4` of halves.
    pub(super) fn quads(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        for name in ["sync", "aligned", "m8n8k4"] {
            m.must(&[(name, ())])?;
        }
        const LAYOUTS: &[(&str, bool)] = &[("row", true), ("col", false)];
        let rows = [m.must(LAYOUTS)?, m.must(LAYOUTS)?];
        let types = [m.kind()?, m.kind()?, m.kind()?, m.kind()?];
        let halves = match types {
            [Type::F32, Type::F16, Type::F16, Type::F32] => [false, false],
            [Type::F16, Type::F16, Type::F16, Type::F16] => [true, true],
            [Type::F32, Type::F16, Type::F16, Type::F16] => [false, true],
            _ => return Err("the types of `mma.m8n8k4` do not go together".to_owned()),
        };
        let [d, a, b, c] = o else { return Err("4 operands are expected".to_owned()) };
        let count = |is_half: bool| if is_half { 4 } else { 8 };
        let mut slots = self.registers(a, Type::B32, 2)?;
        slots.extend(self.registers(b, Type::B32, 2)?);
        slots.extend(self.registers(c, types[3], count(halves[1]))?);
        let results = self.results(d, types[0], count(halves[0]))?;
        self.emit(Code::Quads(Quads { rows, halves }), &results, &slots, 0);
        Ok(())
    }
}
