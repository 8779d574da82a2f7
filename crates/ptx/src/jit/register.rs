//! Registers as keys and as members of sets.

use crate::code::{File, Register, Set};

/// The order of registers.
pub(super) fn key(register: Register) -> (u8, u16) {
    (register.file as u8, register.place)
}

pub(super) fn is_double(register: Register) -> bool {
    register.file == File::Double
}

/// The register as a set, if it may hold a line.
pub(super) fn set_of(register: Register) -> Option<Set> {
    match register.file {
        File::Word => Set::word(register.place.into()),
        File::Double => Set::double(register.place.into()),
        _ => None,
    }
}
