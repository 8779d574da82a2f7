//! The walk over the instructions of a piece.

use std::collections::BTreeMap;
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::{Emit, plain};
use super::extent::{Extent, Kind, Version};
use super::live::Live;
use super::observed::Observed;
use super::register::{is_double, key, set_of};
use super::segment::{Made, Segment, Source, Waiting};
use super::state::{Of, Own, State};
use super::value::{Halves, LineOf};
use crate::code::{
    Code, File, Form, Held, Logic, Op, Program, Pure, Register, Set, Special, UNGUARDED, Vote,
    field_at,
};

/// A predicate of all lanes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mask {
    pub(super) value: Value,
    /// If all lanes are known to agree: whether it holds for them.
    pub(super) same: Option<Value>,
}

impl Mask {
    /// A predicate of which it is not known whether all lanes agree.
    pub(super) fn of(value: Value) -> Self {
        Self { value, same: None }
    }
}

/// The value of a register where the walk stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Holds {
    /// Lanes, in the register.
    Lanes,
    Made(usize),
    Line(LineOf),
    /// A line with this step, of which the extent reads nothing and writes nothing.
    Kept(i64),
    Halves(Halves),
    Mask(Mask),
}

/// The registers that a piece expects when it is entered.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Registers with lines.
    pub(super) lines: Vec<(Register, Kind)>,
    /// Registers of which lanes are needed.
    pub(super) lanes: Set,
}

/// The instructions of a piece, and all that is known of them.
pub(super) struct Task<'p> {
    pub(super) program: &'p Program,
    pub(super) of: Of,
    pub(super) extents: Vec<Extent>,
    pub(super) live: &'p Live,
    pub(super) observed: &'p Observed<'p>,
}

/// The walk.
pub(super) struct Translate<'f, 'p> {
    pub(super) emit: Emit<'f>,
    pub(super) task: Task<'p>,
    pub(super) expected: Expected,
    /// The versions of extents that are translated, and those that wait for it.
    pub(super) versions: Vec<Version>,
    pub(super) registers: BTreeMap<(u8, u16), Holds>,
    pub(super) segment: Segment,
    /// The first instruction of the extent.
    pub(super) start: u32,
    /// The first instruction of the segment.
    pub(super) begins: u32,
    /// How many accesses look for windows.
    pub(super) sites: u32,
}

impl<'f, 'p> Translate<'f, 'p> {
    pub(super) fn new(emit: Emit<'f>, task: Task<'p>) -> Self {
        let start = task.extents[0].start;
        Self {
            emit,
            task,
            expected: Expected::default(),
            versions: Vec::new(),
            registers: BTreeMap::new(),
            segment: Segment::default(),
            start,
            begins: start,
            sites: 0,
        }
    }

    /// Makes the whole function. Gives what it expects, and how many sites it has.
    pub(super) fn translate(mut self) -> (Expected, u32) {
        self.enter();
        let mut next = 0;
        while let Some(version) = self.versions.get(next).cloned() {
            next += 1;
            self.extent(&version);
        }
        self.emit.go_on_with_next_warp();
        self.emit.remove_unused();
        self.emit.build.seal_all_blocks();
        self.emit.build.finalize();
        (self.expected, self.sites)
    }

    /// An extent from its first instruction on.
    fn extent(&mut self, version: &Version) {
        let Extent { start, end, .. } = self.task.extents[version.extent];
        (self.start, self.begins) = (start, start);
        self.emit.begin(start, version.block);
        self.check_room(end, start);
        self.enter_version(version);
        let mut is_left = false;
        for position in start..end {
            is_left = self.instruction(position);
        }
        if !is_left {
            self.write(end);
            self.jump(end, end - start);
        }
    }

    /// Leaves before an instruction if the lanes cannot go on up to `end`: their turn may end before, or they
    /// may meet others.
    pub(super) fn check_room(&mut self, end: u32, at: u32) {
        let left = self.emit.field(offset_of!(State, left));
        let most = i64::from(end - self.start);
        let enough = self.emit.build.ins().icmp_imm(IntCC::UnsignedGreaterThanOrEqual, left, most);
        self.emit.check(enough, at);
        if self.task.of == Of::Part {
            let meeting = self.emit.field(offset_of!(State, meeting));
            let end = self.emit.double(end.into());
            let is_before = self.emit.compare(IntCC::UnsignedLessThanOrEqual, end, meeting);
            self.emit.check(is_before, at);
        }
    }

    /// One instruction. Returns whether it ends the piece.
    pub(super) fn instruction(&mut self, position: u32) -> bool {
        let op = &self.task.program.ops[position as usize];
        self.emit.position = position;
        self.emit.is_cautious = self.task.observed.is_cautious(position);
        match op.code {
            Code::Pure(pure) => self.pure(op, pure, position),
            Code::Load(access) => self.load(op, access, position),
            Code::Store(access) => self.store(op, access, position),
            Code::Special(special) if self.special(op, special) => {}
            Code::Branch(target) => return self.branch(op, target, position),
            Code::Vote { mode, .. } => self.vote(op, mode, position),
            Code::Shuffle { mode, predicate, .. } => {
                self.shuffle(op, (mode, predicate), position);
            }
            // The lanes of a whole warp are together.
            Code::WarpBarrier => {}
            _ => self.by_interpreter(op, position),
        }
        false
    }

    /// Writes the segment. The next one begins at a position.
    pub(super) fn write(&mut self, next: u32) {
        self.write_for(next, &[next]);
    }

    /// Writes what is read from one of some positions on. The next segment begins at a position.
    pub(super) fn write_for(&mut self, next: u32, readers: &[u32]) {
        std::mem::take(&mut self.segment).write(&mut self.emit, self.task.live, readers);
        self.begins = next;
        for holds in self.registers.values_mut() {
            if let Holds::Made(_) = holds {
                *holds = Holds::Lanes;
            }
        }
    }

    /// An instruction of registers.
    fn pure(&mut self, op: &Op, pure: Pure, position: u32) {
        let Some(form) = pure.form else { return self.by_interpreter(op, position) };
        if matches!(form, Form::Split | Form::SplitWord) {
            return self.split(op, form, position);
        }
        if let Some(narrow) = pure.narrow {
            return self.narrow(op, form, narrow);
        }
        if matches!(form, Form::ShiftBy { .. }) && self.shared_word(op.s[1]).is_none() {
            return self.shift_by_words(op, form, position);
        }
        if matches!(form, Form::Always { .. } | Form::Predicate { .. } | Form::Join { .. }) {
            return self.logic(op, form, position);
        }
        if op.guard == UNGUARDED && (self.by_lines(op, form) || self.by_halves(op, form)) {
            return;
        }
        let files = form.sources();
        let sources: Vec<Source> =
            files.iter().zip(op.s).map(|(file, slot)| self.source(*file, slot)).collect();
        let result = Register { file: form.result(), place: op.d[0] };
        self.function(op, (form, sources), result);
    }

    /// A function of lanes.
    pub(super) fn function(
        &mut self,
        op: &Op,
        (form, sources): (Form, Vec<Source>),
        result: Register,
    ) {
        let guard = (op.guard != UNGUARDED).then(|| {
            let guard = self.source(File::Predicate, op.guard);
            (guard, op.negated, self.source(result.file, result.place))
        });
        let waiting = Waiting { form, imm: op.imm, sources, guard };
        let at = self.segment.make(Made::Function(waiting));
        self.set_made(result, at);
    }

    /// A shift by a register that all lanes may share: here if they do, else by the interpreter.
    fn shift_by_words(&mut self, op: &Op, form: Form, position: u32) {
        let is_whole = self.emit.part.is_none() && op.guard == UNGUARDED;
        if !is_whole || !matches!(self.holds(File::Word, op.s[1]).1, Holds::Lanes) {
            return self.by_interpreter(op, position);
        }
        self.write(position);
        let value = self.source(form.sources()[0], op.s[0]);
        let result = Register { file: form.result(), place: op.d[0] };
        self.emit.shift_if_same(form, (value, op.s[1]), result, position);
        self.go_on_with(&[result], position);
    }

    /// Halves of 64 bits, or of 32.
    fn split(&mut self, op: &Op, split: Form, position: u32) {
        if op.guard != UNGUARDED {
            return self.by_interpreter(op, position);
        }
        for result in 0..(op.imm >> 32) as usize {
            let upper = op.imm >> (4 * result) & 1;
            let (form, imm) = match (split, upper) {
                (Form::SplitWord, _) => (Form::Extract { signed: false }, field_at(16 * upper, 16)),
                (_, 0) => (Form::Low, 0),
                _ => (Form::High, 0),
            };
            let half = Op { d: [op.d[result], 0, 0, 0], imm, ..op.clone() };
            if self.by_lines(&half, form) || self.by_halves(&half, form) {
                continue;
            }
            let source = self.source(split.sources()[0], op.s[0]);
            let register = Register { file: File::Word, place: op.d[result] };
            self.function(&half, (form, vec![source]), register);
        }
    }

    /// Computes an instruction once for all lanes, if its sources are lines and its result is one.
    fn by_lines(&mut self, op: &Op, form: Form) -> bool {
        let mut lines = Vec::new();
        for (file, slot) in form.sources().iter().zip(op.s) {
            if *file != File::Predicate {
                match self.holds(*file, slot).1 {
                    Holds::Line(line) => lines.push(line),
                    _ => return false,
                }
            }
        }
        self.of_lines(op, form, &lines)
    }

    /// Computes an instruction once for all lanes from the lines of its sources, if its result is a line.
    pub(super) fn of_lines(&mut self, op: &Op, form: Form, lines: &[LineOf]) -> bool {
        let result = Register { file: form.result(), place: op.d[0] };
        match form {
            Form::Compare(compared, comparison) => {
                let (a, b) = (lines[0], lines[1]);
                let mask = if a.is_same() && b.is_same() {
                    Some(self.emit.compare_same(compared, comparison, a, b))
                } else {
                    self.emit.compare_lines(compared, comparison, a, b).map(Mask::of)
                };
                let Some(mask) = mask else { return false };
                self.set_mask(result.place, mask);
                true
            }
            Form::Select(_) => {
                let Holds::Mask(Mask { same: Some(holds), .. }) =
                    self.holds(File::Predicate, op.s[2]).1
                else {
                    return false;
                };
                if !lines.iter().all(|line| line.is_same()) {
                    return false;
                }
                let first = self.emit.build.ins().select(holds, lines[0].first, lines[1].first);
                self.set_line(result, LineOf::same(first));
                true
            }
            _ => match self.emit.line(form, op.imm, lines, self.begins) {
                Some(line) => {
                    self.set_line(result, line);
                    true
                }
                None => false,
            },
        }
    }

    /// Logic of predicates.
    fn logic(&mut self, op: &Op, form: Form, position: u32) {
        let mut mask = match form {
            Form::Always { holds } => {
                let value = self.emit.word(if holds { u32::MAX } else { 0 });
                let same = self.emit.build.ins().iconst(types::I8, i64::from(holds));
                Mask { value, same: Some(same) }
            }
            _ => self.mask(op.s[0], position),
        };
        let negated =
            matches!(form, Form::Predicate { negated: true } | Form::Join { negated: true, .. });
        if negated {
            mask.value = self.emit.build.ins().bnot(mask.value);
            mask.same = mask.same.map(|holds| self.emit.not(holds));
        }
        if let Form::Join { logic, .. } = form {
            let other = self.mask(op.s[1], position);
            let mut join = |a, b| match logic {
                Logic::And => self.emit.build.ins().band(a, b),
                Logic::Or => self.emit.build.ins().bor(a, b),
                Logic::Xor => self.emit.build.ins().bxor(a, b),
            };
            let same = mask.same.zip(other.same).map(|(a, b)| join(a, b));
            mask = Mask { value: join(mask.value, other.value), same };
        }
        if op.guard != UNGUARDED {
            let (guard, old) = (self.mask(op.guard, position), self.mask(op.d[0], position));
            let guard = match op.negated {
                true => self.emit.build.ins().bnot(guard.value),
                false => guard.value,
            };
            mask = Mask::of(self.emit.build.ins().bitselect(guard, mask.value, old.value));
        }
        self.set_mask(op.d[0], mask);
    }

    /// A special register that is read from the launch. Returns whether it is one.
    fn special(&mut self, op: &Op, special: Special) -> bool {
        let register = Register { file: File::Word, place: op.d[0] };
        let Some(step) = self.task.observed.special_step(special) else {
            let Some(values) = special.of_lane() else {
                return self.half_special(special, register) || self.thread_row(special, register);
            };
            let group = |at: usize| std::array::from_fn(|lane| values[4 * at + lane]);
            let words = std::array::from_fn(|at| self.emit.words_of(group(at)));
            let at = self.segment.make(Made::Words(words));
            self.set_made(register, at);
            return true;
        };
        let first = match special {
            Special::Thread(axis) => self.emit.thread(axis, step, false, self.begins)[0],
            Special::Block(axis) => self.emit.coordinate(offset_of!(State, block), axis),
            Special::Threads(axis) => self.emit.coordinate(offset_of!(State, threads), axis),
            Special::Blocks(axis) => self.emit.coordinate(offset_of!(State, blocks), axis),
            Special::Lane => self.emit.word(0),
            _ => return false,
        };
        self.set_line(register, LineOf { first, step, constant: None });
        true
    }

    /// A vote of all lanes.
    fn vote(&mut self, op: &Op, mode: Vote, position: u32) {
        let votes = self.mask(op.s[0], position).value;
        if mode == Vote::Ballot {
            let register = Register { file: File::Word, place: op.d[0] };
            return self.set_line(register, LineOf::same(votes));
        }
        let [none, all] = [0, u32::MAX].map(|lanes| self.emit.word(lanes));
        let [is_none, is_all] =
            [none, all].map(|lanes| self.emit.compare(IntCC::Equal, votes, lanes));
        let holds = match mode {
            Vote::Any => self.emit.compare(IntCC::NotEqual, votes, none),
            Vote::All => is_all,
            _ => self.emit.build.ins().bor(is_none, is_all),
        };
        let value = self.emit.all_or_none(holds);
        self.set_mask(op.d[0], Mask { value, same: Some(holds) });
    }

    /// The interpreter executes an instruction.
    pub(super) fn by_interpreter(&mut self, op: &Op, position: u32) {
        self.write(position);
        if self.emit.leg.is_some() {
            return self.leave_leg(position);
        }
        let keeps = self.results_stay_lines(op, position);
        self.emit.call_instruction(position, keeps.is_some());
        self.begins = position + 1;
        for &register in self.task.program.uses.writes(position) {
            let holds = match keeps {
                Some(step) if set_of(register).is_some() => {
                    let (kind, base, offset) =
                        self.emit.line_of(is_double(register), register.place);
                    let first = self.emit.build.ins().load(kind, plain(), base, offset);
                    Holds::Line(LineOf { first, step, constant: None })
                }
                _ => Holds::Lanes,
            };
            self.registers.insert(key(register), holds);
        }
        if let (Some(step), Some(&result)) =
            (keeps, self.task.program.uses.writes(position).first())
        {
            self.check_line(result, step, position + 1);
        }
    }

    /// The step of the results of an instruction that the interpreter executes, if they are lines.
    fn results_stay_lines(&mut self, op: &Op, position: u32) -> Option<i64> {
        let results = self.task.program.uses.writes(position);
        if self.task.of == Of::Part
            || op.guard != UNGUARDED
            || results.iter().any(|result| set_of(*result).is_none())
        {
            return None;
        }
        match op.code {
            Code::Special(special) => self.task.observed.special_step(special),
            Code::Pure(Pure { on_lines: Some(_), .. }) if results.len() == 1 => {
                let reads = self.task.program.uses.reads(position);
                let same = reads.iter().all(|register| {
                    matches!(self.registers.get(&key(*register)), Some(Holds::Line(line)) if line.is_same())
                });
                same.then_some(0)
            }
            _ => None,
        }
    }

    /// Leaves before a position if a register does not hold a line with a step there: special registers of
    /// another launch or warp may have none, and a remainder by zero has none.
    fn check_line(&mut self, register: Register, step: i64, position: u32) {
        let Some(set) = set_of(register) else { return };
        let held = self.emit.own(offset_of!(Own, held));
        let now = self.emit.build.ins().load(types::I64, plain(), held, Held::KNOWN as i32);
        let known = self.emit.build.ins().band_imm(now, set.bits().cast_signed());
        let is_line = self.emit.build.ins().icmp_imm(IntCC::NotEqual, known, 0);
        self.emit.check(is_line, position);
        self.check_step(register, step, position);
    }

    fn check_step(&mut self, register: Register, step: i64, position: u32) {
        let (kind, base, offset) = self.emit.line_of(is_double(register), register.place);
        let offset = offset + kind.bytes() as i32;
        let now = self.emit.build.ins().load(kind, plain(), base, offset);
        let holds = self.emit.build.ins().icmp_imm(IntCC::Equal, now, step);
        self.emit.check(holds, position);
    }
}
