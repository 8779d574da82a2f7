//! The registers of a warp that asks for a piece.

use std::collections::BTreeSet;

use super::register::is_double;
use crate::code::{File, Lines, Register, Special, WIDTH, half_step};

/// The lines of a warp that asks for a piece.
pub(crate) struct Seen<'a> {
    pub(crate) lines: &'a Lines,
    pub(crate) words: &'a [[u32; WIDTH]],
    pub(crate) doubles: &'a [[u64; WIDTH]],
    /// The step of a special register; `None` if it is no line.
    pub(crate) special: &'a dyn Fn(Special) -> Option<i64>,
    /// The step in each half of the warp, likewise.
    pub(crate) half_special: &'a dyn Fn(Special) -> Option<i64>,
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

    /// The step of the two lines of a register, one in each half of the warp. It is no line of the whole
    /// warp.
    pub(super) fn half_step(&self, register: Register) -> Option<i64> {
        let place = usize::from(register.place);
        match register.file {
            File::Word => Some(half_step(self.seen.words.get(place)?)?.cast_signed().into()),
            File::Double => Some(half_step(self.seen.doubles.get(place)?)?.cast_signed()),
            _ => None,
        }
    }

    pub(super) fn half_special_step(&self, special: Special) -> Option<i64> {
        (self.seen.half_special)(special)
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
