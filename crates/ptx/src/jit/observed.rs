//! The registers of a warp that asks for a piece.

use std::collections::BTreeSet;

use super::segment::is_double;
use crate::code::{Lines, Register, Special};

/// The lines of a warp that asks for a piece.
pub(crate) struct Seen<'a> {
    pub(crate) lines: &'a Lines,
    /// The step of a special register; `None` if it is no line.
    pub(crate) special: &'a dyn Fn(Special) -> Option<i64>,
    pub(crate) param_bytes: u32,
}

/// The lines of a warp, and what earlier pieces learned.
pub(super) struct Observed<'a> {
    pub(super) seen: &'a Seen<'a>,
    /// Instructions that gave no lines often.
    pub(super) cautious: BTreeSet<u32>,
}

impl Observed<'_> {
    /// The step of a register's line.
    pub(super) fn step(&self, register: Register) -> Option<i64> {
        self.seen.lines.step(is_double(register), register.place)
    }

    pub(super) fn special_step(&self, special: Special) -> Option<i64> {
        (self.seen.special)(special)
    }

    pub(super) fn param_bytes(&self) -> u32 {
        self.seen.param_bytes
    }

    pub(super) fn is_cautious(&self, position: u32) -> bool {
        self.cautious.contains(&position)
    }
}
