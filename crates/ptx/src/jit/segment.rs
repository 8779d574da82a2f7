//! A segment of a piece: what it writes once all of it is known to succeed.

use std::collections::BTreeMap;
use std::mem::offset_of;

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::{Emit, foreign, plain, vector_of};
use super::live::Live;
use super::register::{is_double, set_of};
use super::state::{Own, State};
use super::value::{Four, GROUPS, Group, Halves, LineOf, Round};
use crate::code::{File, Form, Held, MOST_LINES, Register, Set};

/// Where a lane of a source is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// In its register.
    Lanes(Register),
    /// The result of an earlier instruction of the segment.
    Made(usize),
    /// On a line of 64 bits, or of 32.
    Line(bool, LineOf),
    /// On lines of halves, likewise.
    Halves(bool, Halves),
    /// In a predicate of all lanes.
    Mask(Value),
}

/// A function of lanes that waits for the end of the segment.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) form: Form,
    pub(super) imm: u64,
    pub(super) sources: Vec<Source>,
    /// The predicate of the instruction, whether it is negated, and the old value of its result.
    pub(super) guard: Option<(Source, bool, Source)>,
}

/// An instruction of the segment that needs lanes.
#[derive(Debug)]
pub(super) enum Made {
    Function(Waiting),
    /// Words or doubles in memory: a row for each half of the warp.
    Rows([Value; 2], bool),
    /// Words that are at hand, by group.
    Words([Value; GROUPS]),
    /// The lanes of a line of 64 bits, or of 32.
    Line(bool, LineOf),
    /// The lanes of lines of halves, likewise.
    Halves(bool, Halves),
}

/// Rows that are written: one for each half of the warp.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) to: [Value; 2],
    pub(super) from: Source,
}

/// The parts of a segment that are not yet written.
#[derive(Debug, Default)]
pub(super) struct Segment {
    pub(super) made: Vec<Made>,
    /// The last result in each register.
    pub(super) results: BTreeMap<(u8, u16), (Register, usize)>,
    /// The lines in registers.
    pub(super) lines: BTreeMap<(u8, u16), (Register, LineOf)>,
    /// The lines of halves in registers.
    pub(super) halves: BTreeMap<(u8, u16), (Register, Halves)>,
    /// Predicates of all lanes.
    pub(super) masks: BTreeMap<u16, Value>,
    pub(super) stores: Vec<Store>,
    /// Bytes of the caller's memory that it reads and writes for each lane.
    pub(super) read: u32,
    pub(super) written: u32,
}

impl Segment {
    pub(super) fn make(&mut self, made: Made) -> usize {
        self.made.push(made);
        self.made.len() - 1
    }

    /// Writes all of it, but for the registers that are not read from one of some instructions on.
    pub(super) fn write(mut self, emit: &mut Emit<'_>, live: &Live, readers: &[u32]) {
        let is_live = |register| readers.iter().any(|&reader| live.holds(reader, register));
        self.results.retain(|_, (register, _)| is_live(*register));
        self.lines.retain(|_, (register, _)| is_live(*register));
        self.masks.retain(|&place, _| is_live(Register { file: File::Predicate, place }));
        self.halves.retain(|_, (register, _)| is_live(*register));
        for (key, (register, halves)) in std::mem::take(&mut self.halves) {
            let at = self.make(Made::Halves(is_double(register), halves));
            self.results.insert(key, (register, at));
        }
        self.write_lines(emit);
        for (&place, &mask) in &self.masks {
            emit.set_predicate(place, mask);
        }
        self.count_bytes(emit);
        self.write_lanes(emit);
    }

    fn count_bytes(&self, emit: &mut Emit<'_>) {
        let fields =
            [(offset_of!(State, read), self.read), (offset_of!(State, written), self.written)];
        for (field, each) in fields.into_iter().filter(|(_, each)| *each > 0) {
            emit.count_lanes(field, emit.part, each);
        }
    }

    /// Writes lines, and which registers hold some. Registers that never do get their lanes, and so do all
    /// of a part of a warp: the other lanes are on no line with them.
    fn write_lines(&mut self, emit: &mut Emit<'_>) {
        let (mut keep, mut forget) = (Set::default(), Set::default());
        for (&key, &(register, line)) in &self.lines {
            let Some(set) = set_of(register).filter(|_| emit.part_for(register).is_none()) else {
                self.made.push(Made::Line(is_double(register), line));
                self.results.insert(key, (register, self.made.len() - 1));
                continue;
            };
            debug_assert!(usize::from(register.place) < MOST_LINES);
            let (kind, base, offset) = emit.line_of(is_double(register), register.place);
            let step = emit.build.ins().iconst(kind, line.step);
            emit.build.ins().store(plain(), line.first, base, offset);
            emit.build.ins().store(plain(), step, base, offset + kind.bytes() as i32);
            keep = keep.with(set);
        }
        for (register, _) in self.results.values() {
            forget = forget.with(set_of(*register).unwrap_or_default());
        }
        emit.hold(keep, forget);
    }
}

impl Emit<'_> {
    /// The value of some lanes, and of the others what the register holds.
    pub(super) fn blended(
        &mut self,
        lanes: Value,
        register: Register,
        group: impl Into<Group>,
        new: Four,
    ) -> Four {
        let group = group.into();
        let old = match is_double(register) {
            true => self.load_double(register.place, group),
            false => self.load_word(register.place, group),
        };
        let mask = self.mask_in_group(lanes, group).word();
        self.choose(mask, new, old)
    }

    /// Registers of one set hold lines from now on, and those of another none.
    fn hold(&mut self, keep: Set, forget: Set) {
        if keep == Set::default() && forget == Set::default() {
            return;
        }
        let held = self.own(offset_of!(Own, held));
        for offset in [Held::KNOWN, Held::STALE] {
            let old = self.build.ins().load(types::I64, plain(), held, offset as i32);
            let kept = self.build.ins().bor_imm(old, keep.bits().cast_signed());
            let new = self.build.ins().band_imm(kept, (!forget.bits()).cast_signed());
            self.build.ins().store(plain(), new, held, offset as i32);
        }
    }

    /// The lanes of registers are written: they hold no lines.
    pub(super) fn forget_lines(&mut self, registers: &[Register]) {
        let sets = registers.iter().filter_map(|register| set_of(*register));
        self.hold(Set::default(), sets.fold(Set::default(), Set::with));
    }

    pub(super) fn load_row(&mut self, from: Value, group: usize, is_double: bool) -> Four {
        let kind = vector_of(is_double);
        let mut load = |offset| self.build.ins().load(kind, foreign(), from, offset);
        let group = group as i32;
        match is_double {
            true => Four::Double([load(32 * group), load(32 * group + 16)]),
            false => Four::Word(load(16 * group)),
        }
    }

    /// The part of two rows in a round: one row for each half of the warp.
    pub(super) fn load_row_now(&mut self, from: [Value; 2], round: Round, is_double: bool) -> Four {
        let kind = vector_of(is_double);
        let row = self.build.ins().select(round.is_upper, from[1], from[0]);
        let within = if is_double { 2 } else { 1 };
        let within = self.build.ins().imul_imm(round.in_half, within);
        let place = self.build.ins().iadd(row, within);
        let mut load = |offset| self.build.ins().load(kind, foreign(), place, offset);
        match is_double {
            true => Four::Double([load(0), load(16)]),
            false => Four::Word(load(0)),
        }
    }

    pub(super) fn store_row(&mut self, to: Value, group: usize, four: Four) {
        let group = group as i32;
        match four {
            Four::Word(value) | Four::Mask(value) => {
                self.build.ins().store(foreign(), value, to, 16 * group);
            }
            Four::Double(values) => {
                for (half, value) in values.into_iter().enumerate() {
                    let offset = 32 * group + 16 * half as i32;
                    self.build.ins().store(foreign(), value, to, offset);
                }
            }
        }
    }
}
