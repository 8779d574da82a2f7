//! The files of registers.

/// The file of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum File {
    /// Up to 32 bits.
    Word,
    /// 64 bits.
    Double,
    /// A predicate.
    Predicate,
    /// A constant of 32 bits.
    ConstantWord,
    /// A constant of 64 bits.
    ConstantDouble,
}
