//! Video instructions: on words and parts of them (`vadd`, `vmad`), and on two or four lanes of a word
//! (`vadd4`, `vabsdiff2`).

use super::compare::Comparison;

/// The operation on two numbers, or on each pair of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `vadd`
    Add,
    /// `vsub`
    Subtract,
    /// `vavrg`: half of the sum; a sum that is not negative is rounded up.
    Average,
    /// `vabsdiff`
    Difference,
    /// `vmin`
    Min,
    /// `vmax`
    Max,
    /// `vset`: 1 if the comparison holds, else 0.
    Set(Comparison),
}

impl Operation {
    /// The result, of which a register has the low bits.
    #[inline]
    pub(super) fn of(self, a: i64, b: i64) -> i64 {
        match self {
            Self::Add => a + b,
            Self::Subtract => a - b,
            Self::Average => (a + b + i64::from(a + b >= 0)) >> 1,
            Self::Difference => (a - b).abs(),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::Set(comparison) => comparison.holds(a, b).into(),
        }
    }
}

/// A form of a video instruction on lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// The operation.
    pub operation: Operation,
    /// The bits of a lane: 8 or 16.
    pub bits: u32,
    /// Whether the lanes of `d`, `a` and `b` are signed.
    pub signed: [bool; 3],
    /// The lanes that are operated on, a bit each: the others of the result are those of the third operand.
    pub mask: u32,
    /// For each lane the one that it takes as its first and as its second operand: three bits each, the
    /// first lane's lowest. Lanes of `a` come first, then those of `b`.
    pub chosen: [u32; 2],
    /// `.sat`: a result outside of its lane is the nearest one inside.
    pub saturate: bool,
    /// `.add`: the results are added to the third operand.
    pub accumulate: bool,
}

/// The lanes of `a` and `b` under the operation; with `.add`, their sum plus `c`.
#[must_use]
pub fn apply(form: Form, a: u32, b: u32, c: u32) -> u32 {
    let bits = form.bits;
    let lane = |chosen: u32, index: u32, signed: bool| {
        let at = (chosen >> (3 * index) & 7) * bits;
        let word = if at < 32 { a } else { b };
        Part { at: at % 32, bits }.of(word, signed)
    };
    let [to, of_a, of_b] = form.signed;
    let (least, most) =
        if to { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    let lanes = (0..32 / bits).filter(|index| form.mask >> index & 1 != 0);
    let (mut packed, mut sum) = (c, c);
    for index in lanes {
        let first = lane(form.chosen[0], index, of_a);
        let result = form.operation.of(first, lane(form.chosen[1], index, of_b));
        let result = if form.saturate { result.clamp(least, most) } else { result };
        packed = Part { at: index * bits, bits }.merge(packed, result);
        sum = sum.wrapping_add(result as u32);
    }
    if form.accumulate { sum } else { packed }
}

/// A part of a word: all of it, a byte or a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The first bit.
    pub at: u32,
    /// The number of bits: 8, 16 or 32.
    pub bits: u32,
}

impl Part {
    /// The whole word.
    pub const WORD: Self = Self { at: 0, bits: 32 };

    /// The part of a word as a number.
    #[inline]
    fn of(self, word: u32, signed: bool) -> i64 {
        let unused = 64 - self.bits;
        let number = i64::from(word >> self.at) << unused;
        if signed { number >> unused } else { (number.cast_unsigned() >> unused).cast_signed() }
    }

    /// A word with the low bits of a number in place of the part.
    #[inline]
    fn merge(self, word: u32, number: i64) -> u32 {
        let mask = u32::MAX >> (32 - self.bits);
        word & !(mask << self.at) | (number as u32 & mask) << self.at
    }
}

/// The operation of a video instruction on words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// One that lanes have, too.
    Of(Operation),
    /// `vshl`, `vshr`: `left` and `.wrap`, the distance by its five low bits. Else a distance is at most 32.
    Shift {
        /// `vshl`
        left: bool,
        /// `.wrap`
        wrap: bool,
    },
    /// `vmad`: a product, with the other sign or its own.
    Product {
        /// Whether one factor is negated.
        negative: bool,
    },
}

/// How the third operand of a video instruction on words is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Third {
    /// There is none.
    None,
    /// It is added.
    Add,
    /// It is added, and 1: `.po`.
    AddWithOne,
    /// It is subtracted.
    Subtract,
    /// The result replaces a part of it.
    Merge(Part),
}

/// A form of a video instruction on words or parts of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordForm {
    /// The operation.
    pub operation: Scalar,
    /// Whether `a` and `b` are signed.
    pub signed: [bool; 2],
    /// The parts of `a` and `b`.
    pub parts: [Part; 2],
    /// How `c` is used.
    pub third: Third,
}

/// The operation on parts of `a` and `b`, and on `c`: 32 bits of the result.
#[must_use]
pub fn apply_word(form: WordForm, a: u32, b: u32, c: u32) -> u32 {
    let (a, b) = (form.parts[0].of(a, form.signed[0]), form.parts[1].of(b, form.signed[1]));
    let result = match form.operation {
        Scalar::Of(operation) => operation.of(a, b),
        Scalar::Shift { left, wrap } => {
            let distance = if wrap { b & 31 } else { b.min(32) };
            if left { a << distance } else { a >> distance }
        }
        Scalar::Product { negative } => {
            let product = a.wrapping_mul(b);
            if negative { product.wrapping_neg() } else { product }
        }
    };
    let word = result as u32;
    match form.third {
        Third::None => word,
        Third::Add => word.wrapping_add(c),
        Third::AddWithOne => word.wrapping_add(c).wrapping_add(1),
        Third::Subtract => word.wrapping_sub(c),
        Third::Merge(part) => part.merge(c, result),
    }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Form, Operation, Part, Scalar, Third, WordForm, apply, apply_word};

    fn form(operation: Operation, signed: bool) -> Form {
        Form {
            operation,
            bits: 8,
            signed: [signed; 3],
            mask: 15,
            chosen: [0o3210, 0o7654],
            saturate: false,
            accumulate: false,
        }
    }

    #[test]
    fn lanes_do_not_reach_their_neighbours() {
        let add = form(Operation::Add, false);
        assert_eq!(apply(add, 0x01ff_80ff, 0x0101_8002, 0), 0x0200_0001);
        let chosen = [0o10, 0o32];
        assert_eq!(
            apply(Form { bits: 16, mask: 3, chosen, ..add }, 0x0001_ffff, 0x0001_0002, 0),
            0x0002_0001
        );
    }

    #[test]
    fn saturated_lanes_stay_at_their_ends() {
        let unsigned = Form { saturate: true, ..form(Operation::Subtract, false) };
        assert_eq!(apply(unsigned, 0x0510_00ff, 0x0611_0101, 0), 0x0000_00fe);
        let signed = Form { saturate: true, ..form(Operation::Add, true) };
        assert_eq!(apply(signed, 0x7f80_ff01, 0x01ff_0101, 0), 0x7f80_0002);
    }

    #[test]
    fn differences_are_summed_with_the_third_operand() {
        let sum = Form { accumulate: true, ..form(Operation::Difference, false) };
        assert_eq!(apply(sum, 0x0102_03ff, 0x0201_0300, 10), 267);
    }

    #[test]
    fn averages_round_up_unless_the_sum_is_negative() {
        let average = form(Operation::Average, true);
        assert_eq!(apply(average, 0x01ff_fd00, 0x02ff_0000, 0), 0x02ff_fe00);
    }

    #[test]
    fn lanes_outside_of_the_mask_are_those_of_the_third_operand() {
        let form = Form { mask: 0b0110, ..form(Operation::Add, false) };
        assert_eq!(apply(form, 0x0102_0304, 0x0101_0101, 0xaabb_ccdd), 0xaa03_04dd);
        let sum = Form { accumulate: true, ..form };
        assert_eq!(apply(sum, 0x0102_0304, 0x0101_0101, 10), 17);
    }

    #[test]
    fn lanes_are_chosen_from_both_operands() {
        let form = Form { chosen: [0o7700, 0o0123], ..form(Operation::Subtract, false) };
        assert_eq!(apply(form, 0x0403_0201, 0x4000_0000, 0), 0x3f3e_fefd);
    }

    #[test]
    fn a_comparison_gives_one_or_zero_in_each_lane() {
        let form = form(Operation::Set(Comparison::Less), true);
        assert_eq!(apply(form, 0xff05_0580, 0x0006_057f, 0), 0x0101_0001);
    }

    #[test]
    fn parts_of_words_are_extended_by_their_types_and_merged() {
        let merge = WordForm {
            operation: Scalar::Of(Operation::Add),
            signed: [true, false],
            parts: [Part { at: 8, bits: 8 }, Part { at: 16, bits: 16 }],
            third: Third::Merge(Part { at: 24, bits: 8 }),
        };
        assert_eq!(apply_word(merge, 0xff00, 0x8001_0000, 0x1234_5678), 0x0034_5678);
        let sum = WordForm { third: Third::Add, ..merge };
        assert_eq!(apply_word(sum, 0xff00, 0x8001_0000, 5), 0x8005);
    }

    #[test]
    fn a_distance_is_clamped_or_wrapped() {
        let form = |left, wrap| WordForm {
            operation: Scalar::Shift { left, wrap },
            signed: [true, false],
            parts: [Part::WORD; 2],
            third: Third::None,
        };
        assert_eq!(apply_word(form(true, false), 1, 33, 0), 0);
        assert_eq!(apply_word(form(true, true), 1, 33, 0), 2);
        assert_eq!(apply_word(form(false, false), 0x8000_0000, u32::MAX, 0), u32::MAX);
    }

    #[test]
    fn products_and_addends_are_negated() {
        let form = |negative, third| WordForm {
            operation: Scalar::Product { negative },
            signed: [false; 2],
            parts: [Part::WORD; 2],
            third,
        };
        assert_eq!(apply_word(form(false, Third::AddWithOne), u32::MAX, u32::MAX, 5), 7);
        assert_eq!(apply_word(form(true, Third::Add), 3, 4, 20), 8);
        assert_eq!(apply_word(form(false, Third::Subtract), 3, 4, 20), 8_u32.wrapping_neg());
    }
}
