//! The functions of instructions that a compiler knows.
//!
//! An interpreter calls a function of an instruction and need not know which it is. The compiler makes
//! machine code of those that have a form, and calls the functions of all others.

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
    /// Two words as one of 64 bits, the first one below.
    Pair,
    /// The first source where the predicate holds, else the second.
    Select(Width),
    Compare(Compared, Comparison),
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
    /// An integer of 32 bits as `.f32`.
    FloatOf {
        signed: bool,
    },
}

/// In the immediate of [`Form::FloatContracted`]: the product is subtracted.
pub(crate) const MINUS_PRODUCT: u64 = 1 << 16;
/// The other source is subtracted.
pub(crate) const MINUS_OTHER: u64 = 1 << 17;
