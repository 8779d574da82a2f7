//! The values that registers hold where the walk over a piece stands.

use cranelift_codegen::ir::Value;

use super::register::{is_double, key};
use super::segment::{Made, Source};
use super::translate::{Holds, Mask, Translate};
use super::value::{Halves, LineOf};
use crate::code::{CONSTANT, File, Register, is_constant};

impl Translate<'_, '_> {
    /// The register or the constant of a slot.
    pub(super) fn holds(&mut self, file: File, slot: u16) -> (Register, Holds) {
        let register = Register { file, place: slot };
        if is_constant(slot) {
            let (place, is_double) = (slot & !CONSTANT, file == File::Double);
            let value = match is_double {
                true => self.task.program.constant_doubles[usize::from(place)][0],
                false => self.task.program.constant_words[usize::from(place)][0].into(),
            };
            let first = match is_double {
                true => self.emit.double(value),
                false => self.emit.word(value as u32),
            };
            return (register, Holds::Line(LineOf { first, step: 0, constant: Some(value) }));
        }
        let holds = self.registers.get(&key(register)).copied().unwrap_or(Holds::Lanes);
        (register, holds)
    }

    /// A source of a function of lanes.
    pub(super) fn source(&mut self, file: File, slot: u16) -> Source {
        let (register, holds) = self.holds(file, slot);
        match holds {
            Holds::Made(at) => Source::Made(at),
            Holds::Line(line) => Source::Line(file == File::Double, line),
            Holds::Halves(halves) => Source::Halves(file == File::Double, halves),
            Holds::Mask(mask) => Source::Mask(mask.value),
            Holds::Lanes if file == File::Predicate => Source::Mask(self.emit.predicate(slot)),
            Holds::Lanes | Holds::Kept(_) => Source::Lanes(register),
        }
    }

    /// A predicate of all lanes. It may need the segment written, up to the instruction at a position.
    pub(super) fn mask(&mut self, slot: u16, position: u32) -> Mask {
        let (_, holds) = self.holds(File::Predicate, slot);
        match holds {
            Holds::Mask(mask) => mask,
            Holds::Made(_) => {
                self.write(position);
                Mask::of(self.emit.predicate(slot))
            }
            _ => Mask::of(self.emit.predicate(slot)),
        }
    }

    /// The word of a register, if all lanes are known to share it.
    pub(super) fn shared_word(&mut self, slot: u16) -> Option<Value> {
        match self.holds(File::Word, slot).1 {
            Holds::Line(line) if line.is_same() => Some(line.first),
            _ => None,
        }
    }

    /// A register's lanes are written with the segment, if a line holds them: the next instruction looks at
    /// them in memory.
    pub(super) fn fill_lanes(&mut self, register: Register) {
        if let Holds::Line(line) = self.holds(register.file, register.place).1 {
            let at = self.segment.make(Made::Line(is_double(register), line));
            self.set_made(register, at);
        }
    }

    /// A segment begins behind an instruction that wrote the lanes of these registers to memory.
    pub(super) fn go_on_with(&mut self, written: &[Register], position: u32) {
        for register in written {
            self.registers.insert(key(*register), Holds::Lanes);
        }
        self.begins = position + 1;
    }

    pub(super) fn set_line(&mut self, register: Register, line: LineOf) {
        self.segment.results.remove(&key(register));
        self.segment.halves.remove(&key(register));
        self.segment.lines.insert(key(register), (register, line));
        self.registers.insert(key(register), Holds::Line(line));
    }

    pub(super) fn set_halves(&mut self, register: Register, halves: Halves) {
        self.segment.results.remove(&key(register));
        self.segment.lines.remove(&key(register));
        self.segment.halves.insert(key(register), (register, halves));
        self.registers.insert(key(register), Holds::Halves(halves));
    }

    pub(super) fn set_mask(&mut self, slot: u16, mask: Mask) {
        let register = Register { file: File::Predicate, place: slot };
        self.segment.results.remove(&key(register));
        self.segment.masks.insert(slot, mask.value);
        self.registers.insert(key(register), Holds::Mask(mask));
    }

    pub(super) fn set_made(&mut self, register: Register, at: usize) {
        self.segment.lines.remove(&key(register));
        self.segment.halves.remove(&key(register));
        if register.file == File::Predicate {
            self.segment.masks.remove(&register.place);
        }
        self.segment.results.insert(key(register), (register, at));
        self.registers.insert(key(register), Holds::Made(at));
    }
}
