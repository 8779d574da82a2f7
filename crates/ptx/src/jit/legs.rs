//! The code of detours: some lanes after the others.

use std::mem::offset_of;
use std::ops::Range;

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::detour::{Detour, Leg};
use super::emit::Emit;
use super::state::{APART, Of, State};
use super::translate::Translate;

impl Translate<'_, '_> {
    /// The detour of a branch of the extent.
    pub(super) fn detour_of(&self, branch: u32) -> Option<Detour> {
        let extent = self.task.extents.iter().find(|extent| extent.start == self.start)?;
        extent.detours.iter().find(|detour| detour.branch == branch).copied()
    }

    /// A detour of all lanes, of which some jump. Then all go on at its end.
    pub(super) fn detour(&mut self, detour: Detour, jumping: Value) {
        let registers = self.registers.clone();
        let (branch, end) = (detour.branch, detour.end);
        self.check_room(end, branch);
        // Each lane keeps what others write.
        for &register in detour.shared(self.task.program, self.task.live) {
            self.fill_lanes(register);
        }
        self.write(branch);
        let staying = self.emit.lanes_but(jumping);
        for (leg, others) in detour.legs().zip([jumping, staying]) {
            // What lanes that are elsewhere read is not known.
            if self.task.of != Of::Part {
                let known = (self.task.program, self.task.live);
                self.emit.temporaries = detour.temporaries(known, leg.clone());
            }
            self.leg(leg, others);
        }
        self.emit.has_met();
        self.jump(end, end - self.start);
        self.registers = registers;
    }

    /// Instructions of all lanes but `others`, which wait behind them.
    fn leg(&mut self, (leg, end): (Range<u32>, u32), others: Value) {
        let all = self.emit.part;
        self.begins = leg.start;
        self.emit.part = Some(self.emit.lanes_but(others));
        self.emit.leg = Some(Leg { first: leg.start, end, others });
        for at in leg.clone() {
            self.instruction(at);
        }
        self.write(leg.end);
        self.emit.count_idle(end);
        (self.emit.part, self.emit.leg) = (all, None);
        for at in leg {
            self.go_on_with(self.task.program.uses.writes(at), at);
        }
    }

    /// Leaves the piece within a leg, before an instruction that only the interpreter executes.
    pub(super) fn leave_leg(&mut self, position: u32) {
        self.emit.leave_before(position);
        let never = self.emit.build.create_block();
        self.emit.build.switch_to_block(never);
        self.go_on_with(self.task.program.uses.writes(position), position);
    }
}

impl Emit<'_> {
    /// The lanes that run, but these.
    pub(super) fn lanes_but(&mut self, others: Value) -> Value {
        let lanes = self.lanes();
        self.build.ins().band_not(lanes, others)
    }

    /// All lanes of a detour are together. A fragment that met another begins to count anew how long it loops.
    fn has_met(&mut self) {
        let (none, met) = (self.double(0), self.word(1));
        self.set_field(offset_of!(State, spins), none);
        self.set_field(offset_of!(State, noted.has_met), met);
    }

    /// Within a leg, says which lanes are in it before an instruction, and where the others are. Gives the flag
    /// for the way that the piece is left.
    pub(super) fn come_apart(&mut self, position: u32) -> u64 {
        let Some(leg) = self.leg else { return 0 };
        self.count_idle(position);
        let lanes = self.lanes();
        let lanes = self.build.ins().uextend(types::I64, lanes);
        let end = self.double(leg.end.into());
        self.set_field(offset_of!(State, lanes), lanes);
        self.set_field(offset_of!(State, meeting), end);
        APART
    }

    /// Counts what the others have not executed of a leg before an instruction.
    fn count_idle(&mut self, position: u32) {
        if let Some(Leg { first, others, .. }) = self.leg
            && position > first
        {
            self.count_lanes(offset_of!(State, idle), Some(others), position - first);
        }
    }
}
