//! The ways between the extents of a piece: what it expects when it is entered, and where it goes on.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};

use super::emit::plain;
use super::extent::{Extent, Version, is_compiled};
use super::segment::{is_double, key, set_of};
use super::state::State;
use super::translate::{Holds, Translate};
use crate::code::{Held, Op, Register, Set, UNGUARDED};

/// The most versions of all extents of a piece.
const MOST_VERSIONS: usize = 16;

impl Translate<'_, '_> {
    /// Checks what the piece expects of registers. Its first extent follows.
    pub(super) fn enter(&mut self) {
        let Extent { start, inputs, .. } = &self.task.extents[0];
        let start = *start;
        let mut known = Set::default();
        for &register in inputs {
            let Some(set) = set_of(register) else { continue };
            match self.task.observed.step(register) {
                Some(step) => {
                    known = known.with(set);
                    self.expected.lines.push((register, step));
                }
                None => self.expected.lanes = self.expected.lanes.with(set),
            }
        }
        if known != Set::default() {
            let held = self.emit.field(offset_of!(State, held));
            let now = self.emit.build.ins().load(types::I64, plain(), held, Held::KNOWN as i32);
            let wanted = self.emit.double(known.bits());
            let mut differing = self.emit.build.ins().band_not(wanted, now);
            for (register, step) in self.expected.lines.clone() {
                let differs = self.differs(register, step);
                differing = self.emit.build.ins().bor(differing, differs);
            }
            let holds = self.emit.build.ins().icmp_imm(IntCC::Equal, differing, 0);
            self.emit.check(holds, start);
        }
        self.emit.is_entered = true;
        let block = self.emit.build.create_block();
        self.emit.build.ins().jump(block, &[]);
        let lines = self.expected.lines.clone();
        self.versions.push(Version { extent: 0, lines, block });
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
        let start = self.start;
        let executed = position + 1 - start;
        if op.guard == UNGUARDED {
            self.write(position);
            self.jump(target, executed);
            return true;
        }
        self.write(position);
        let mask = self.mask(op.guard, position).value;
        let (jumps, stays) = (self.emit.build.create_block(), self.emit.build.create_block());
        let (apart, goes_on) = (self.emit.build.create_block(), self.emit.build.create_block());
        self.emit.build.set_cold_block(apart);
        let (all, none) = if op.negated { (0, -1) } else { (-1, 0) };
        let taken = self.emit.build.ins().icmp_imm(IntCC::Equal, mask, all);
        self.emit.build.ins().brif(taken, jumps, &[], stays, &[]);
        self.emit.build.switch_to_block(jumps);
        self.jump(target, executed);
        self.emit.build.switch_to_block(stays);
        let passed = self.emit.build.ins().icmp_imm(IntCC::Equal, mask, none);
        self.emit.build.ins().brif(passed, goes_on, &[], apart, &[]);
        self.emit.build.switch_to_block(apart);
        self.emit.leave(position, position - start);
        self.emit.build.switch_to_block(goes_on);
        self.begins = position + 1;
        false
    }

    /// All lanes go on at a position: in an extent of the piece if there is one for the registers as they
    /// are, and else behind the piece.
    pub(super) fn jump(&mut self, target: u32, executed: u32) {
        if !self.task.program.ops.get(target as usize).is_some_and(is_compiled) {
            return self.emit.leave_pieces(target, executed);
        }
        let Some(block) = self.version(target) else {
            return self.emit.leave(target, executed);
        };
        self.emit.count(executed);
        self.emit.build.ins().jump(block, &[]);
    }

    /// The version of the extent at a position for the registers as they are.
    fn version(&mut self, target: u32) -> Option<Block> {
        let extent = self.task.extents.iter().position(|extent| extent.start == target)?;
        let mut lines = Vec::new();
        for &register in &self.task.extents[extent].inputs {
            match self.registers.get(&key(register)) {
                Some(Holds::Line(line)) if set_of(register).is_some() => {
                    lines.push((register, line.step));
                }
                _ => {}
            }
        }
        let is_it = |version: &&Version| version.extent == extent && version.lines == lines;
        if let Some(version) = self.versions.iter().find(is_it) {
            return Some(version.block);
        }
        if self.versions.len() == MOST_VERSIONS {
            return None;
        }
        let block = self.emit.build.create_block();
        self.versions.push(Version { extent, lines, block });
        Some(block)
    }
}
