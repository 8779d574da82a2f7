//! The ways between the extents of a piece: what it expects when it is entered, and where it goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value, types};

use super::emit::plain;
use super::extent::{Kind, Version, addresses, is_compiled, written};
use super::register::{is_double, key, set_of};
use super::state::{Behind, Of, Own, State};
use super::translate::{Holds, Mask, Translate};
use super::value::LineOf;
use crate::code::{
    BARRIERS, Barrier, CONSTANT, Code, File, Held, Op, Program, Register, Set, UNGUARDED,
    is_constant,
};

/// The most versions of all extents of a piece.
const MOST_VERSIONS: usize = 16;

impl Translate<'_, '_> {
    /// Checks what the piece expects of registers, if anything. Its first extent follows.
    pub(super) fn enter(&mut self) {
        self.expect();
        let start = self.task.extents[0].start;
        let lines = self.expected.lines.clone();
        let mut differing = self.held_otherwise(&lines);
        let (mut elsewhere, mut firsts) = (Vec::new(), Vec::new());
        for &(register, kind) in &lines {
            match kind {
                Kind::Line(step) => differing.push(self.differs(register, step)),
                Kind::Halves(step) => {
                    let (halves, bits) = self.expected_halves(register, step);
                    firsts.extend(halves.map(|line| line.first));
                    elsewhere.push(bits);
                }
            }
        }
        if let Some(differing) = self.all_bits(differing) {
            let holds = self.emit.build.ins().icmp_imm(IntCC::Equal, differing, 0);
            self.emit.check(holds, start);
        }
        if let Some(elsewhere) = self.all_bits(elsewhere) {
            let any = self.emit.build.ins().vany_true(elsewhere);
            let holds = self.emit.build.ins().icmp_imm(IntCC::Equal, any, 0);
            self.emit.check(holds, start);
        }
        self.emit.is_entered = true;
        let block = self.version_block(&lines);
        let arguments: Vec<BlockArg> = firsts.into_iter().map(BlockArg::from).collect();
        self.emit.build.ins().jump(block, &arguments);
        self.versions.push(Version { extent: 0, lines, block });
    }

    /// The bits of registers that hold no line, of those with lines, and that lack their lanes, of those with
    /// lanes.
    fn held_otherwise(&mut self, lines: &[(Register, Kind)]) -> Vec<Value> {
        let known = lines.iter().filter(|(_, kind)| matches!(kind, Kind::Line(_)));
        let known = known.filter_map(|(register, _)| set_of(*register));
        let known = known.fold(Set::default(), Set::with);
        let wanted = [(known, Held::KNOWN), (self.expected.lanes, Held::STALE)];
        let wanted = wanted.into_iter().filter(|(set, _)| *set != Set::default());
        let differing = wanted.map(|(set, offset)| {
            let held = self.emit.own(offset_of!(Own, held));
            let now = self.emit.build.ins().load(types::I64, plain(), held, offset as i32);
            let set_bits = self.emit.double(set.bits());
            match offset {
                Held::KNOWN => self.emit.build.ins().band_not(set_bits, now),
                _ => self.emit.build.ins().band(set_bits, now),
            }
        });
        differing.collect()
    }

    /// The bits that any of some values has; `None` without values.
    fn all_bits(&mut self, values: Vec<Value>) -> Option<Value> {
        values.into_iter().reduce(|all, bits| self.emit.build.ins().bor(all, bits))
    }

    /// Expects registers as they are now. Only addresses are looked at for lines in halves of the warp:
    /// other registers may hold such by chance.
    ///
    /// Lanes that are elsewhere keep what a piece for a part of a warp writes over: so it needs all these
    /// lanes. Only registers that it does not write are lines for as long as it runs.
    fn expect(&mut self) {
        let (program, extents) = (self.task.program, &self.task.extents);
        let (addresses, written) = match self.task.of {
            Of::Whole | Of::Tail => (addresses(program, extents), BTreeMap::new()),
            Of::Part => (BTreeSet::new(), written(program, extents)),
        };
        for &register in written.values() {
            self.expected.lanes = self.expected.lanes.with(set_of(register).unwrap_or_default());
        }
        for &register in &self.task.extents[0].inputs {
            let is_kept = !written.contains_key(&key(register));
            let step = set_of(register).and_then(|_| self.task.observed.step(register));
            let step = step.filter(|_| is_kept);
            if let Some(step) = step {
                self.expected.lines.push((register, Kind::Line(step)));
                continue;
            }
            self.expected.lanes = self.expected.lanes.with(set_of(register).unwrap_or_default());
            if addresses.contains(&key(register))
                && let Some(step) = self.task.observed.half_step(register)
            {
                self.expected.lines.push((register, Kind::Halves(step)));
            }
        }
    }

    /// The block of a version, with the first values of halves as its parameters.
    fn version_block(&mut self, lines: &[(Register, Kind)]) -> Block {
        let block = self.emit.build.create_block();
        for (register, kind) in lines {
            if let Kind::Halves(_) = kind {
                let (width, ..) = self.emit.line_of(is_double(*register), register.place);
                for _ in 0..2 {
                    self.emit.build.append_block_param(block, width);
                }
            }
        }
        block
    }

    /// The registers of a version hold their lines.
    pub(super) fn enter_version(&mut self, version: &Version) {
        self.registers.clear();
        let parameters = self.emit.build.block_params(version.block).to_vec();
        let mut parameters = parameters.into_iter();
        let touched = self.task.extents[version.extent].touched(self.task.program);
        for &(register, kind) in &version.lines {
            let holds = match kind {
                Kind::Line(step) if !touched.contains(&key(register)) => Holds::Kept(step),
                Kind::Line(step) => {
                    let (width, base, offset) =
                        self.emit.line_of(is_double(register), register.place);
                    let first = self.emit.build.ins().load(width, plain(), base, offset);
                    Holds::Line(LineOf { first, step, constant: None })
                }
                Kind::Halves(step) => {
                    let (Some(lower), Some(upper)) = (parameters.next(), parameters.next()) else {
                        continue;
                    };
                    let line = |first| LineOf { first, step, constant: None };
                    Holds::Halves([lower, upper].map(line))
                }
            };
            self.registers.insert(key(register), holds);
        }
    }

    /// The bits in which a register's step differs from the one that is expected.
    fn differs(&mut self, register: Register, step: i64) -> Value {
        let (kind, base, offset) = self.emit.line_of(is_double(register), register.place);
        let now = self.emit.build.ins().load(kind, plain(), base, offset + kind.bytes() as i32);
        let bits = self.emit.build.ins().bxor_imm(now, step);
        match kind {
            types::I64 => bits,
            _ => self.emit.build.ins().uextend(types::I64, bits),
        }
    }

    /// A jump. Returns whether it ends the piece.
    pub(super) fn branch(&mut self, op: &Op, target: u32, position: u32) -> bool {
        let executed = position + 1 - self.start;
        if op.guard == UNGUARDED {
            self.write(position);
            self.note_spin(target, position);
            self.jump(target, executed);
            return true;
        }
        match self.holds(File::Predicate, op.guard).1 {
            Holds::Mask(Mask { same: Some(holds), .. }) => {
                self.branch_of_all((holds, op.negated), target, position);
            }
            _ => self.branch_of_some(op, target, position),
        }
        self.begins = position + 1;
        false
    }

    /// A jump that all lanes take, or none.
    fn branch_of_all(&mut self, (holds, negated): (Value, bool), target: u32, position: u32) {
        self.write_for(position, &[position + 1, target]);
        let (jumps, stays) = (self.emit.build.create_block(), self.emit.build.create_block());
        let (first, second) = if negated { (stays, jumps) } else { (jumps, stays) };
        self.emit.build.ins().brif(holds, first, &[], second, &[]);
        self.emit.build.switch_to_block(jumps);
        self.note_spin(target, position);
        self.jump(target, position + 1 - self.start);
        self.emit.build.switch_to_block(stays);
    }

    /// A jump that some lanes may take, and others not.
    fn branch_of_some(&mut self, op: &Op, target: u32, position: u32) {
        self.write(position);
        let (jumping, lanes) = (self.guarded_lanes(op, position), self.emit.lanes());
        let (jumps, stays) = (self.emit.build.create_block(), self.emit.build.create_block());
        let (apart, goes_on) = (self.emit.build.create_block(), self.emit.build.create_block());
        self.emit.build.set_cold_block(apart);
        let taken = self.emit.compare(IntCC::Equal, jumping, lanes);
        self.emit.build.ins().brif(taken, jumps, &[], stays, &[]);
        self.emit.build.switch_to_block(jumps);
        self.note_spin(target, position);
        self.jump(target, position + 1 - self.start);
        self.emit.build.switch_to_block(stays);
        let passed = self.emit.build.ins().icmp_imm(IntCC::Equal, jumping, 0);
        self.emit.build.ins().brif(passed, goes_on, &[], apart, &[]);
        self.emit.build.switch_to_block(apart);
        match self.detour_of(position) {
            Some(detour) => self.detour(detour, jumping),
            None => self.emit.leave_before(position),
        }
        self.emit.build.switch_to_block(goes_on);
    }

    /// A part of a warp that jumps back may have to give way to others.
    fn note_spin(&mut self, target: u32, position: u32) {
        if self.task.of == Of::Part && target <= position {
            self.emit.add_to_field(offset_of!(State, spins), 1);
        }
    }

    /// Whether another extent finds the line of a register where the interpreter keeps lines.
    fn keeps_line(&self, register: Register) -> bool {
        match self.task.of {
            Of::Whole | Of::Tail => set_of(register).is_some(),
            Of::Part => self.expected.lines.iter().any(|(line, _)| *line == register),
        }
    }

    /// All lanes go on at a position: in an extent of the piece if there is one for the registers as they
    /// are, and else behind the piece.
    pub(super) fn jump(&mut self, target: u32, executed: u32) {
        let behind = behind(self.task.program, self.task.of, target);
        if behind != Behind::Piece {
            return self.emit.leave_pieces(target, executed, behind);
        }
        let Some((block, arguments)) = self.version(target) else {
            return self.emit.leave(target, executed);
        };
        self.emit.count(executed);
        self.emit.build.ins().jump(block, &arguments);
    }

    /// The version of the extent at a position for the registers as they are, with the arguments of its
    /// block.
    fn version(&mut self, target: u32) -> Option<(Block, Vec<BlockArg>)> {
        let extent = self.task.extents.iter().position(|extent| extent.start == target)?;
        let (mut lines, mut arguments) = (Vec::new(), Vec::new());
        for &register in &self.task.extents[extent].inputs {
            match self.registers.get(&key(register)) {
                Some(Holds::Line(line)) if self.keeps_line(register) => {
                    lines.push((register, Kind::Line(line.step)));
                }
                Some(Holds::Kept(step)) if self.keeps_line(register) => {
                    lines.push((register, Kind::Line(*step)));
                }
                Some(Holds::Halves(halves)) => {
                    lines.push((register, Kind::Halves(halves[0].step)));
                    arguments.extend(halves.map(|line| BlockArg::from(line.first)));
                }
                _ => {}
            }
        }
        let is_it = |version: &&Version| version.extent == extent && version.lines == lines;
        if let Some(version) = self.versions.iter().find(is_it) {
            return Some((version.block, arguments));
        }
        if self.versions.len() == MOST_VERSIONS {
            return None;
        }
        let block = self.version_block(&lines);
        self.versions.push(Version { extent, lines, block });
        Some((block, arguments))
    }
}

/// The kind of the instruction at a position.
fn behind(program: &Program, of: Of, position: u32) -> Behind {
    let Some(op) = program.ops.get(position as usize) else { return Behind::Other };
    match op.code {
        _ if is_compiled(program, of, op) => Behind::Piece,
        _ if of == Of::Part => Behind::Other,
        _ if op.guard != UNGUARDED => Behind::Other,
        Code::Exit => Behind::End,
        Code::Barrier { kind: Barrier::Sync, counted: false } if is_constant(op.s[0]) => {
            let index = program.constant_words[usize::from(op.s[0] & !CONSTANT)][0];
            Behind::Barrier(index as u8 % BARRIERS)
        }
        _ => Behind::Other,
    }
}
