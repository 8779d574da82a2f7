//! Bit fields, permutations of bytes and logic by tables, over vectors.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::emit::Emit;
use crate::code::field_of;

/// A result of logic of which some inputs are not looked at yet.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    None,
    All,
    Some(Value),
}

impl Emit<'_> {
    /// 32 bits of pairs of words, from a place on.
    pub(super) fn funnel(&mut self, low: Value, high: Value, from: u64) -> Value {
        match from.cast_signed() {
            0 => low,
            from @ 1..32 => {
                let low = self.build.ins().ushr_imm(low, from);
                let high = self.build.ins().ishl_imm(high, 32 - from);
                self.build.ins().bor(low, high)
            }
            _ => high,
        }
    }

    /// Bytes of pairs of words.
    pub(super) fn permuted(&mut self, a: Value, b: Value, selector: u64) -> Value {
        self.bytes_from([a, b], |at| {
            let choice = (selector >> (4 * (at % 4))) as u8;
            let lane = (at / 4 * 4) as u8;
            // The second vector is behind the first.
            lane + (choice & 3) + (choice & 4) * 4
        })
    }

    /// Fields of words. The immediate has their place and length.
    pub(super) fn extracted(&mut self, value: Value, signed: bool, imm: u64) -> Value {
        let [position, length] = field_of(imm).map(i64::from);
        let top = self.build.ins().ishl_imm(value, 32 - length - position);
        match signed {
            true => self.build.ins().sshr_imm(top, 32 - length),
            false => self.build.ins().ushr_imm(top, 32 - length),
        }
    }

    /// Words with fields in place of some bits.
    pub(super) fn inserted(&mut self, field: Value, base: Value, imm: u64) -> Value {
        let [position, length] = field_of(imm);
        let mask = self.words((u32::MAX >> (32 - length)) << position);
        let field = self.build.ins().ishl_imm(field, i64::from(position));
        self.build.ins().bitselect(mask, field, base)
    }

    /// Logic of three vectors by a table: its rows have the inputs as bits, the last one lowest.
    pub(super) fn by_table(&mut self, table: u8, [a, b, c]: [Value; 3]) -> Value {
        let rows = [0, 1, 2, 3, 4, 5, 6, 7].map(|row| match table >> row & 1 {
            0 => Part::None,
            _ => Part::All,
        });
        let fours = [0, 2, 4, 6].map(|row| self.chosen(c, rows[row + 1], rows[row]));
        let twos = [0, 2].map(|row| self.chosen(b, fours[row + 1], fours[row]));
        match self.chosen(a, twos[1], twos[0]) {
            Part::None => self.words(0),
            Part::All => self.words(u32::MAX),
            Part::Some(value) => value,
        }
    }

    /// One part where the bits of a vector are set, and another where not.
    fn chosen(&mut self, which: Value, set: Part, clear: Part) -> Part {
        let ins = self.build.ins();
        Part::Some(match (set, clear) {
            _ if set == clear => return set,
            (Part::All, Part::None) => which,
            (Part::None, Part::All) => ins.bnot(which),
            (Part::Some(set), Part::None) => ins.band(which, set),
            (Part::None, Part::Some(clear)) => ins.band_not(clear, which),
            (Part::All, Part::Some(clear)) => ins.bor(which, clear),
            (Part::Some(set), Part::All) => ins.bor_not(set, which),
            (Part::Some(set), Part::Some(clear)) => ins.bitselect(which, set, clear),
            (Part::None, Part::None) | (Part::All, Part::All) => return set,
        })
    }
}
