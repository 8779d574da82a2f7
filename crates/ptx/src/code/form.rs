//! The functions of instructions that a compiler knows.
//!
//! An interpreter calls a function of an instruction and need not know which it is. The compiler makes
//! machine code of those that have a form, and calls the functions of all others.

use super::file::File;
use crate::math::Rounding;
use crate::math::compare::Comparison;

/// The bits of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// 32 bits.
    Word,
    /// 64 bits.
    Double,
}

/// The type of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    Unsigned(Width),
    Signed(Width),
    /// `.f32` without `.ftz`, or `.f64`.
    Float(Width),
    /// `.f32` with `.ftz`.
    Flushed,
}

/// Logic of two predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// A function of registers. Integers wrap; floats round to the nearest, and have neither `.ftz` nor
/// `.sat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A copy of a register.
    Copy(Width),
    /// The lower half of 64 bits.
    Low,
    /// The upper half of 64 bits.
    High,
    /// Halves of 64 bits. The immediate says which, as for the interpreter's function.
    Split,
    /// Halves of 32 bits, likewise.
    SplitWord,
    /// How many bits of a word are 1.
    CountOnes,
    /// How many zeros are above the highest bit of a word that is 1, or the place of that bit; all bits if
    /// there is none.
    LeadingZeros {
        finds: bool,
    },
    /// 32 bits as 64, with the sign or with zeros.
    Widen {
        signed: bool,
    },
    /// The sum of 64 bits and the immediate.
    Offset,
    Add(Width),
    Subtract(Width),
    Multiply(Width),
    MultiplyAdd(Width),
    /// The upper half of the product of words.
    MultiplyHigh {
        signed: bool,
    },
    /// A quotient of words, cut; all bits if the divisor is 0.
    Divide {
        signed: bool,
    },
    /// The rest of such a quotient, with the sign of the dividend; all bits if the divisor is 0.
    Remainder {
        signed: bool,
    },
    Negate(Width),
    Absolute(Width),
    /// The product of 32 bits as 64.
    MultiplyWide {
        signed: bool,
    },
    MultiplyWideAdd {
        signed: bool,
    },
    Minimum {
        signed: bool,
    },
    Maximum {
        signed: bool,
    },
    And(Width),
    Or(Width),
    Xor(Width),
    Not(Width),
    /// A shift by the immediate, which is less than the bits.
    ShiftLeft(Width),
    ShiftRight {
        width: Width,
        signed: bool,
    },
    /// A shift by the second source; by all bits or more, it leaves zeros or signs. The compiler knows it
    /// where all lanes share the amount.
    ShiftBy {
        width: Width,
        left: bool,
        signed: bool,
    },
    /// 32 bits of a pair of words, the first one below, from the place that the immediate has.
    Funnel,
    /// Four bytes of a pair of words. The immediate has four bits for the place of each.
    Permute,
    /// A field of a word. The immediate has its place, and its length at bit 8: it is not empty, and inside.
    Extract {
        signed: bool,
    },
    /// The second word, with the low bits of the first in a field.
    Insert,
    /// Logic of three words. The immediate has the result for each row of inputs.
    Table,
    /// Two words as one of 64 bits, the first one below.
    Pair,
    /// The first source where the predicate holds, else the second.
    Select(Width),
    Compare(Compared, Comparison),
    /// A predicate that holds for all lanes, or for none.
    Always {
        holds: bool,
    },
    /// A predicate, or its negation.
    Predicate {
        negated: bool,
    },
    /// Two predicates, of which the first may be negated.
    Join {
        logic: Logic,
        negated: bool,
    },
    FloatAdd(Width),
    FloatSubtract(Width),
    FloatMultiply(Width),
    FloatFused(Width),
    /// A product of which the immediate says that its sign changes, or that of the third source.
    FloatContracted(Width),
    FloatNegate(Width),
    FloatAbsolute(Width),
    FloatDivide(Width),
    FloatReciprocal(Width),
    FloatRoot(Width),
    /// An integer as a float.
    FloatIntegral(Width, Rounding),
    /// The lesser or the larger of two `.f32`, or the only one that is a number.
    FloatMinimum,
    FloatMaximum,
    /// An `.f32` clamped to the range from 0 to 1; 0 of a NaN.
    FloatClamp,
    /// A product and a sum of `.f32`, rounded down.
    FloatFusedDown,
    /// An `.f16` as `.f32`, and an `.f32` as the nearest `.f16`. A NaN is the canonical one.
    FloatOfHalf,
    HalfOf,
    /// An integer of 32 bits as `.f32`.
    FloatOf {
        signed: bool,
    },
    /// A signed integer of 32 bits as `.f64`.
    DoubleOf,
    /// An `.f32` as an integer of 32 bits, which is clamped; 0 of a NaN.
    IntegerOf {
        signed: bool,
        rounding: Rounding,
    },
    /// An `.f32` as `.f64`, and an `.f64` as `.f32`. A NaN keeps its sign and its upper bits, and is quiet.
    Promote,
    Demote,
}

/// Integers of fewer bits than the words that hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Narrow {
    /// How many bits of each source that is a word count, and whether the highest of them is a sign.
    pub(crate) bits: u32,
    pub(crate) signed: bool,
    /// How many bits of a result that is a word are kept.
    pub(crate) kept: u32,
}

impl Width {
    /// The file of registers of the width.
    pub(crate) fn file(self) -> File {
        match self {
            Self::Word => File::Word,
            Self::Double => File::Double,
        }
    }

    /// So many sources of the width.
    fn sources(self, count: usize) -> &'static [File] {
        match self {
            Self::Word => &[File::Word; 3][..count],
            Self::Double => &[File::Double; 3][..count],
        }
    }
}

impl Compared {
    pub(crate) fn width(self) -> Width {
        match self {
            Self::Signed(width) | Self::Unsigned(width) | Self::Float(width) => width,
            Self::Flushed => Width::Word,
        }
    }
}

impl Form {
    /// The width of arithmetic of floats.
    pub(crate) fn float_width(self) -> Option<Width> {
        match self {
            Self::FloatAdd(width)
            | Self::FloatSubtract(width)
            | Self::FloatMultiply(width)
            | Self::FloatFused(width)
            | Self::FloatContracted(width)
            | Self::FloatNegate(width)
            | Self::FloatAbsolute(width)
            | Self::FloatDivide(width)
            | Self::FloatReciprocal(width)
            | Self::FloatRoot(width)
            | Self::FloatIntegral(width, _) => Some(width),
            Self::FloatMinimum | Self::FloatMaximum | Self::FloatFusedDown => Some(Width::Word),
            _ => None,
        }
    }

    /// The width of arithmetic and logic of integers.
    pub(crate) fn integer_width(self) -> Width {
        match self {
            Self::Add(width)
            | Self::Subtract(width)
            | Self::Multiply(width)
            | Self::MultiplyAdd(width)
            | Self::Negate(width)
            | Self::Absolute(width)
            | Self::And(width)
            | Self::Or(width)
            | Self::Xor(width)
            | Self::Not(width)
            | Self::ShiftLeft(width)
            | Self::ShiftRight { width, .. }
            | Self::ShiftBy { width, .. } => width,
            _ => Width::Word,
        }
    }

    /// The files of its sources.
    pub(crate) fn sources(self) -> &'static [File] {
        match self {
            Self::Low | Self::High | Self::Split | Self::Offset | Self::Demote => {
                Width::Double.sources(1)
            }
            Self::SplitWord => Width::Word.sources(1),
            Self::CountOnes | Self::LeadingZeros { .. } => Width::Word.sources(1),
            Self::ShiftBy { width: Width::Word, .. } => Width::Word.sources(2),
            Self::ShiftBy { width: Width::Double, .. } => &[File::Double, File::Word],
            Self::Widen { .. } | Self::FloatOf { .. } | Self::DoubleOf => Width::Word.sources(1),
            Self::IntegerOf { .. } | Self::Promote | Self::Extract { .. } => Width::Word.sources(1),
            Self::Funnel | Self::Permute | Self::Insert => Width::Word.sources(2),
            Self::Table => Width::Word.sources(3),
            Self::Pair | Self::MultiplyWide { .. } | Self::MultiplyHigh { .. } => {
                Width::Word.sources(2)
            }
            Self::Minimum { .. } | Self::Maximum { .. } => Width::Word.sources(2),
            Self::FloatMinimum | Self::FloatMaximum => Width::Word.sources(2),
            Self::Divide { .. } | Self::Remainder { .. } => Width::Word.sources(2),
            Self::FloatClamp | Self::FloatOfHalf | Self::HalfOf => Width::Word.sources(1),
            Self::FloatFusedDown => Width::Word.sources(3),
            Self::MultiplyWideAdd { .. } => &[File::Word, File::Word, File::Double],
            Self::Select(Width::Word) => &[File::Word, File::Word, File::Predicate],
            Self::Select(Width::Double) => &[File::Double, File::Double, File::Predicate],
            Self::Always { .. } => &[],
            Self::Predicate { .. } => &[File::Predicate],
            Self::Join { .. } => &[File::Predicate; 2],
            Self::Compare(compared, _) => compared.width().sources(2),
            Self::Copy(width)
            | Self::Not(width)
            | Self::Negate(width)
            | Self::Absolute(width)
            | Self::ShiftLeft(width)
            | Self::ShiftRight { width, .. }
            | Self::FloatNegate(width)
            | Self::FloatAbsolute(width)
            | Self::FloatReciprocal(width)
            | Self::FloatRoot(width)
            | Self::FloatIntegral(width, _) => width.sources(1),
            Self::Add(width)
            | Self::Subtract(width)
            | Self::Multiply(width)
            | Self::And(width)
            | Self::Or(width)
            | Self::Xor(width)
            | Self::FloatAdd(width)
            | Self::FloatSubtract(width)
            | Self::FloatMultiply(width)
            | Self::FloatDivide(width) => width.sources(2),
            Self::MultiplyAdd(width) | Self::FloatFused(width) | Self::FloatContracted(width) => {
                width.sources(3)
            }
        }
    }

    /// The file of its result.
    pub(crate) fn result(self) -> File {
        match self {
            Self::Compare(..)
            | Self::Always { .. }
            | Self::Predicate { .. }
            | Self::Join { .. } => File::Predicate,
            Self::Widen { .. }
            | Self::Offset
            | Self::Pair
            | Self::MultiplyWide { .. }
            | Self::MultiplyWideAdd { .. }
            | Self::DoubleOf
            | Self::Promote => File::Double,
            Self::High | Self::Split | Self::SplitWord => File::Word,
            Self::Copy(width) | Self::Select(width) => width.file(),
            _ => self.float_width().unwrap_or_else(|| self.integer_width()).file(),
        }
    }
}

/// The immediate of [`Form::Extract`] and [`Form::Insert`]: the place of a field, and its length.
pub(crate) const fn field_at(position: u64, length: u64) -> u64 {
    position | length << 8
}

/// The place and the length of a field, of an immediate.
pub(crate) const fn field_of(imm: u64) -> [u32; 2] {
    [imm as u32 & 0xff, (imm >> 8) as u32 & 0xff]
}

/// In the immediate of arithmetic of `.f32`: `.ftz`.
pub(crate) const FLUSH: u64 = 1 << 8;
/// In the immediate of [`Form::FloatContracted`]: the product is subtracted.
pub(crate) const MINUS_PRODUCT: u64 = 1 << 16;
/// The other source is subtracted.
pub(crate) const MINUS_OTHER: u64 = 1 << 17;
