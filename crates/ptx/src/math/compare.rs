//! Comparisons and tests of floats.

/// A comparison of `set`, `setp` and `slct`.
///
/// The unsigned comparisons of integers, `lo`, `ls`, `hi` and `hs`, are those of unsigned types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `eq`
    Equal,
    /// `ne`: of floats, also that both are numbers.
    NotEqual,
    /// `lt`
    Less,
    /// `le`
    LessOrEqual,
    /// `gt`
    Greater,
    /// `ge`
    GreaterOrEqual,
    /// `equ`: equal or unordered.
    EqualOrUnordered,
    /// `neu`: not equal or unordered.
    NotEqualOrUnordered,
    /// `ltu`
    LessOrUnordered,
    /// `leu`
    LessOrEqualOrUnordered,
    /// `gtu`
    GreaterOrUnordered,
    /// `geu`
    GreaterOrEqualOrUnordered,
    /// `num`: both are numbers.
    Ordered,
    /// `nan`: one is no number.
    Unordered,
}

impl Comparison {
    /// Whether the comparison holds. The caller flushes the operands of an instruction with `.ftz`.
    #[inline]
    #[must_use]
    pub fn holds<T: PartialOrd + Copy>(self, a: T, b: T) -> bool {
        let unordered = || a.partial_cmp(&b).is_none();
        match self {
            Self::Equal => a == b,
            Self::NotEqual => (a < b) | (a > b),
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
            Self::EqualOrUnordered => (a == b) | unordered(),
            Self::NotEqualOrUnordered => a != b,
            Self::LessOrUnordered => (a < b) | unordered(),
            Self::LessOrEqualOrUnordered => (a <= b) | unordered(),
            Self::GreaterOrUnordered => (a > b) | unordered(),
            Self::GreaterOrEqualOrUnordered => (a >= b) | unordered(),
            Self::Ordered => !unordered(),
            Self::Unordered => unordered(),
        }
    }
}

/// A property that `testp` asks of a float.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Property {
    /// `.finite`
    Finite,
    /// `.infinite`
    Infinite,
    /// `.number`: finite or infinite.
    Number,
    /// `.notanumber`
    NotANumber,
    /// `.normal`: finite and not subnormal. A zero is normal.
    Normal,
    /// `.subnormal`
    Subnormal,
}

impl Property {
    /// `testp.f32`.
    #[inline]
    #[must_use]
    pub fn of_f32(self, value: f32) -> bool {
        match self {
            Self::Finite => value.is_finite(),
            Self::Infinite => value.is_infinite(),
            Self::Number => !value.is_nan(),
            Self::NotANumber => value.is_nan(),
            Self::Normal => value.is_normal() || value == 0.0,
            Self::Subnormal => value.is_subnormal(),
        }
    }

    /// `testp.f64`.
    #[inline]
    #[must_use]
    pub fn of_f64(self, value: f64) -> bool {
        match self {
            Self::Finite => value.is_finite(),
            Self::Infinite => value.is_infinite(),
            Self::Number => !value.is_nan(),
            Self::NotANumber => value.is_nan(),
            Self::Normal => value.is_normal() || value == 0.0,
            Self::Subnormal => value.is_subnormal(),
        }
    }
}
