//! The arithmetic of PTX on single values, bit by bit as a GPU computes it.
//!
//! Operands and results are registers: floats are given as their bits, so that the payload of a NaN
//! is kept where hardware keeps it. A modifier of an instruction that has a fast form is a constant
//! of a function; a lowered instruction chooses once, and a loop over lanes has no branch for it.
//! `tests/conformance.rs` compares all of it with the recordings of an H200 in `data`.

pub mod approximate;
pub mod bits;
mod coefficients;
pub mod compare;
pub mod convert;
pub mod directed;
pub mod double;
pub(crate) mod fragments;
pub mod half;
pub mod integer;
pub mod matrix;
mod number;
pub mod packed;
mod polynomial;
pub(crate) mod product;
mod scaled;
pub mod single;
mod small;
mod sums;
pub mod tangent;
pub mod video;

/// The rounding of a result that the type cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// `.rn`, `.rni`: to the nearest, ties to even.
    Nearest,
    /// `.rz`, `.rzi`: towards zero.
    Zero,
    /// `.rm`, `.rmi`: towards negative infinity.
    Down,
    /// `.rp`, `.rpi`: towards positive infinity.
    Up,
    /// `.rna`: to the nearest, ties away from zero.
    NearestAway,
}
