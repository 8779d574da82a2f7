//! Loads and stores of some lanes of a warp, one lane after the other.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Value, types};

use super::access::{Run, int_of};
use super::emit::{Emit, foreign, plain};
use super::places::{Ends, Places, Reached};
use super::segment::Source;
use super::value::GROUPS;
use crate::code::{File, Place, Register, WIDTH};

impl Emit<'_> {
    /// Moves the bytes of these lanes if there are some, or goes to `away` before any is moved.
    pub(super) fn move_some(&mut self, places: &Places<'_>, lanes: Value, ends: Ends) {
        let Ends { away, done } = ends;
        let some = self.build.create_block();
        self.build.ins().brif(lanes, some, &[], done, &[]);
        self.build.switch_to_block(some);
        let reached = match self.own_memory(places) {
            Some(reached) => {
                let (room, order) = (reached.last, IntCC::SignedGreaterThanOrEqual);
                let has_room = self.build.ins().icmp_imm(order, room, 0);
                let on = self.build.create_block();
                self.build.ins().brif(has_room, on, &[], away, &[]);
                self.build.switch_to_block(on);
                reached
            }
            None => {
                let first = self.build.ins().ctz(lanes);
                let address = self.address_at(places, first);
                self.window_around(address, places, away)
            }
        };
        let moved = self.build.create_block();
        self.row(places, &reached, lanes, moved);
        self.each_lane(lanes, |emit, lane| emit.check_lane(places, &reached, lane, away));
        self.each_lane(lanes, |emit, lane| emit.move_lane(places, &reached, lane));
        self.build.ins().jump(moved, &[]);
        self.build.switch_to_block(moved);
    }

    /// Moves a row, if the bytes of all lanes are inside, and goes to `moved`. Other accesses follow.
    ///
    /// A store writes what other lanes have there once more. The host may write that meanwhile, but in shared
    /// memory.
    fn row(&mut self, places: &Places<'_>, reached: &Reached, lanes: Value, moved: Block) {
        let Source::Line(_, line) = places.address else { return };
        let is_seen = places.is_store() && places.access.place != Place::Shared;
        if is_seen
            || reached.apart.is_some()
            || Run::of(places.access, line.step, places.is_store()) != Some(Run::Row)
        {
            return;
        }
        let address = self.address_of(line.first, places.imm);
        let offset = self.build.ins().isub(address, reached.start);
        let others = i64::from(places.access.bytes) * (WIDTH as i64 - 1);
        let end = self.build.ins().iadd_imm(offset, others);
        let begins = self.compare(IntCC::UnsignedLessThanOrEqual, offset, reached.last);
        let ends = self.compare(IntCC::UnsignedLessThanOrEqual, end, reached.last);
        let odd = self.build.ins().band_imm(address, i64::from(places.access.bytes) - 1);
        let aligned = self.build.ins().icmp_imm(IntCC::Equal, odd, 0);
        let inside = self.both(begins, ends);
        let holds = self.both(inside, aligned);
        let (all, some) = (self.build.create_block(), self.build.create_block());
        self.build.ins().brif(holds, all, &[], some, &[]);
        self.build.switch_to_block(all);
        let from = self.build.ins().iadd(reached.ahead, address);
        for group in 0..GROUPS {
            self.move_group(places, from, lanes, group);
        }
        self.build.ins().jump(moved, &[]);
        self.build.switch_to_block(some);
    }

    /// Moves these lanes of a group of a row.
    fn move_group(&mut self, places: &Places<'_>, row: Value, lanes: Value, group: usize) {
        for &register in places.loads {
            let new = self.load_row(row, group, register.file == File::Double);
            // Lanes that a guard holds back keep a temporary, too.
            let is_all = self.part == Some(lanes) && self.part_for(register).is_none();
            let value = match is_all {
                true => new,
                false => self.blended(lanes, register, group, new),
            };
            self.store(register.place, group, value);
        }
        for &source in places.stores {
            let old = self.load_row(row, group, places.access.bytes == 8);
            let new = self.group_of(source, group);
            let mask = self.mask_in_group(lanes, group).word();
            let value = self.choose(mask, new, old);
            self.store_row(row, group, value);
        }
    }

    /// A loop over some lanes, of which there is one at least.
    fn each_lane(&mut self, lanes: Value, act: impl FnOnce(&mut Self, Value)) {
        let (body, behind) = (self.build.create_block(), self.build.create_block());
        let left = self.build.append_block_param(body, types::I32);
        self.build.ins().jump(body, &[lanes.into()]);
        self.build.switch_to_block(body);
        let lane = self.build.ins().ctz(left);
        act(self, lane);
        let below = self.build.ins().iadd_imm(left, -1);
        let rest = self.build.ins().band(left, below);
        self.build.ins().brif(rest, body, &[rest.into()], behind, &[]);
        self.build.switch_to_block(behind);
    }

    /// Goes on if a lane is aligned and inside.
    fn check_lane(&mut self, places: &Places<'_>, reached: &Reached, lane: Value, away: Block) {
        let address = self.address_at(places, lane);
        let offset = self.build.ins().isub(address, reached.start);
        let inside = self.compare(IntCC::UnsignedLessThanOrEqual, offset, reached.last);
        let odd = i64::from(places.access.all_bytes()) - 1;
        let odd = self.build.ins().band_imm(address, odd);
        let aligned = self.build.ins().icmp_imm(IntCC::Equal, odd, 0);
        let holds = self.both(inside, aligned);
        let on = self.build.create_block();
        self.build.ins().brif(holds, on, &[], away, &[]);
        self.build.switch_to_block(on);
    }

    /// Moves the bytes of a lane.
    fn move_lane(&mut self, places: &Places<'_>, reached: &Reached, lane: Value) {
        let address = self.address_at(places, lane);
        let mut at = self.build.ins().iadd(reached.ahead, address);
        if let Some(apart) = reached.apart {
            let lane = self.build.ins().uextend(types::I64, lane);
            let further = self.build.ins().imul(lane, apart);
            at = self.build.ins().iadd(at, further);
        }
        for (element, &register) in places.loads.iter().enumerate() {
            let value = self.load_same(places.access, at, element);
            let to = self.lane_of(register, lane);
            self.build.ins().store(plain(), value, to, 0);
        }
        let own = int_of(places.access.bytes);
        for (element, &source) in places.stores.iter().enumerate() {
            let value = self.value_at(source, lane);
            let value = self.resized(value, own);
            let offset = element as i32 * i32::from(places.access.bytes);
            self.build.ins().store(foreign(), value, at, offset);
        }
    }

    /// The address of a lane, as 64 bits.
    fn address_at(&mut self, places: &Places<'_>, lane: Value) -> Value {
        let value = self.value_at(places.address, lane);
        self.address_of(value, places.imm)
    }

    /// The value of a source that is no predicate in a lane.
    fn value_at(&mut self, source: Source, lane: Value) -> Value {
        match source {
            Source::Line(is_double, line) => self.point(is_double, line, lane),
            Source::Halves(is_double, [lower, upper]) => {
                let half = WIDTH as i64 / 2;
                let lane_above = self.build.ins().iadd_imm(lane, -half);
                let (below, above) =
                    (self.point(is_double, lower, lane), self.point(is_double, upper, lane_above));
                let is_below = self.build.ins().icmp_imm(IntCC::UnsignedLessThan, lane, half);
                self.build.ins().select(is_below, below, above)
            }
            Source::Lanes(register) => {
                let kind = if register.file == File::Double { types::I64 } else { types::I32 };
                let from = self.lane_of(register, lane);
                self.build.ins().load(kind, plain(), from, 0)
            }
            Source::Made(_) | Source::Mask(_) => self.word(0),
        }
    }

    /// Where a lane of a register is.
    fn lane_of(&mut self, register: Register, lane: Value) -> Value {
        let is_double = register.file == File::Double;
        let ((base, offset), log) = match is_double {
            true => (self.lanes_of_double(register.place, 0), 3),
            false => (self.lanes_of_word(register.place, 0), 2),
        };
        let lane = self.build.ins().uextend(types::I64, lane);
        let lane = self.build.ins().ishl_imm(lane, log);
        let first = self.build.ins().iadd_imm(base, i64::from(offset));
        self.build.ins().iadd(first, lane)
    }
}
