//! Loads and stores of lanes anywhere in one piece of memory.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, Type, Value, types};

use super::access::int_of;
use super::emit::{DOUBLES, Emit, WORDS, foreign, plain};
use super::segment::Source;
use super::sites::{Site, Wanted};
use super::state::{Own, State};
use super::value::{Four, Group, Round};
use crate::code::{Access, File, Place, Register, WIDTH};

/// Memory that lanes are looked for in.
pub(super) struct Reached {
    /// Its first address, the last one at which an access begins, and what an address lacks to be a
    /// pointer.
    pub(super) start: Value,
    pub(super) last: Value,
    pub(super) ahead: Value,
    /// How far the memory of a lane is behind that of the lane before, where each has its own.
    pub(super) apart: Option<Value>,
}

/// An access of lanes, each with its own address.
pub(super) struct Places<'a> {
    pub(super) access: Access,
    pub(super) imm: u64,
    pub(super) address: Source,
    /// The registers that are loaded, or the sources that are stored.
    pub(super) loads: &'a [Register],
    pub(super) stores: &'a [Source],
    pub(super) site: u32,
    pub(super) position: u32,
}

/// The ways an access may go: to the interpreter with nothing moved, and on.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) away: Block,
    pub(super) done: Block,
}

impl Places<'_> {
    /// Whether compiled code can carry the access out. An offset keeps the alignment of addresses.
    pub(super) fn are_compiled(access: Access, imm: u64) -> bool {
        let is_near = match access.place {
            Place::Shared | Place::Local | Place::Frame => true,
            Place::Global | Place::Generic => access.wide,
            _ => false,
        };
        is_near && imm.is_multiple_of(u64::from(access.all_bytes()))
    }

    pub(super) fn is_store(&self) -> bool {
        !self.stores.is_empty()
    }
}

impl Emit<'_> {
    /// Carries an access of some lanes out, or of all if none are named: here, or by the interpreter if they
    /// are in several places. Nothing is moved before all of them are known to be in one.
    pub(super) fn places(&mut self, places: &Places<'_>, some: Option<Value>) {
        let ends = Ends { away: self.build.create_block(), done: self.build.create_block() };
        self.build.set_cold_block(ends.away);
        match some {
            Some(lanes) => self.move_some(places, lanes, ends),
            None => self.move_all(places, ends.away),
        }
        if places.access.place.is_callers() {
            let field = match places.is_store() {
                true => offset_of!(State, written),
                false => offset_of!(State, read),
            };
            self.count_lanes(field, some, places.access.all_bytes());
        }
        self.forget_lines(places.loads);
        self.build.ins().jump(ends.done, &[]);
        self.build.switch_to_block(ends.away);
        if self.leg.is_some() {
            self.leave_before(places.position);
        } else {
            self.call_instruction(places.position, false);
            self.build.ins().jump(ends.done, &[]);
        }
        self.build.switch_to_block(ends.done);
    }

    /// Moves the bytes of all lanes, or goes to `away` before any is moved.
    fn move_all(&mut self, places: &Places<'_>, away: Block) {
        let reached = match self.own_memory(places) {
            Some(reached) => reached,
            None => {
                let address = self.lane_address(places, 0);
                self.window_around(address, places, away)
            }
        };
        let inside = self.are_inside(places, &reached);
        let here = self.build.create_block();
        self.build.ins().brif(inside, here, &[], away, &[]);
        self.build.switch_to_block(here);
        self.move_lanes(places, &reached);
    }

    /// A lane's address, as 64 bits.
    fn lane_address(&mut self, places: &Places<'_>, lane: usize) -> Value {
        let value = self.lane(places.address, lane);
        self.address_of(value, places.imm)
    }

    /// An address, as 64 bits: a register and an offset.
    pub(super) fn address_of(&mut self, value: Value, imm: u64) -> Value {
        if self.build.func.dfg.value_type(value) == types::I64 {
            return self.build.ins().iadd_imm(value, imm.cast_signed());
        }
        let offset = i64::from((imm as u32).cast_signed());
        let value = self.build.ins().iadd_imm(value, offset);
        self.build.ins().uextend(types::I64, value)
    }

    /// The value of one lane of a source that is no predicate.
    pub(super) fn lane(&mut self, source: Source, lane: usize) -> Value {
        match source {
            Source::Line(_, line) => {
                self.build.ins().iadd_imm(line.first, line.step.wrapping_mul(lane as i64))
            }
            Source::Halves(is_double, halves) => {
                let line = Source::Line(is_double, halves[lane / (WIDTH / 2)]);
                self.lane(line, lane % (WIDTH / 2))
            }
            Source::Lanes(Register { file: File::Double, place }) => {
                let (base, offset) = self.lanes_of_double(place, 0);
                self.build.ins().load(types::I64, plain(), base, offset + 8 * lane as i32)
            }
            Source::Lanes(Register { place, .. }) => {
                let (base, offset) = self.lanes_of_word(place, 0);
                self.build.ins().load(types::I32, plain(), base, offset + 4 * lane as i32)
            }
            Source::Made(_) | Source::Mask(_) => self.word(0),
        }
    }

    /// The shared memory of the block, or the local memory of the first lane; `None` for an access to other
    /// memory.
    pub(super) fn own_memory(&mut self, places: &Places<'_>) -> Option<Reached> {
        let (ahead, bytes) = match places.access.place {
            Place::Shared => {
                (self.field(offset_of!(State, shared)), self.field(offset_of!(State, shared_bytes)))
            }
            Place::Local | Place::Frame => {
                (self.own(offset_of!(Own, local)), self.own(offset_of!(Own, local_bytes)))
            }
            _ => return None,
        };
        let apart = (places.access.place != Place::Shared).then_some(bytes);
        let own = i64::from(places.access.all_bytes());
        // If there is less than one access, the last offset is negative, and no lane is inside.
        let last = self.build.ins().iadd_imm(bytes, -own);
        let start = self.double(0);
        Some(Reached { start, last, ahead, apart })
    }

    /// The window around the first lane, if the warp is known to reach it.
    pub(super) fn window_around(
        &mut self,
        address: Value,
        places: &Places<'_>,
        away: Block,
    ) -> Reached {
        let (site, bytes) = (places.site, places.access.all_bytes());
        let start = self.site(site, offset_of!(Site, start));
        let offset = self.build.ins().isub(address, start);
        let known = self.has_place(offset, (site, bytes));
        let (look, found) = (self.build.create_block(), self.build.create_block());
        self.build.set_cold_block(look);
        self.build.ins().brif(known, found, &[], look, &[]);
        self.build.switch_to_block(look);
        let (place, writes, at) = (places.access.place, places.is_store(), places.position);
        let wanted = Wanted { place, bytes, align: bytes, writes, site, at };
        let host = self.call_span(address, wanted);
        let is_there = self.build.ins().icmp_imm(IntCC::NotEqual, host, 0);
        self.build.ins().brif(is_there, found, &[], away, &[]);
        self.build.switch_to_block(found);
        let [start, last, host] =
            [offset_of!(Site, start), offset_of!(Site, last), offset_of!(Site, host)]
                .map(|offset| self.site(site, offset));
        let ahead = self.build.ins().isub(host, start);
        Reached { start, last, ahead, apart: None }
    }

    /// Whether all lanes are aligned and inside.
    fn are_inside(&mut self, places: &Places<'_>, reached: &Reached) -> Value {
        let odd = u64::from(places.access.all_bytes()) - 1;
        let is_wide = match places.address {
            Source::Lanes(register) => register.file == File::Double,
            Source::Line(is_double, _) | Source::Halves(is_double, _) => is_double,
            _ => false,
        };
        if is_wide {
            self.doubles_inside(places, reached, odd)
        } else {
            self.words_inside(places, reached, odd)
        }
    }

    fn words_inside(&mut self, places: &Places<'_>, reached: &Reached, odd: u64) -> Value {
        let (zero, offset) = (self.words(0), self.words(places.imm as u32));
        let all = self.each_round(1, vec![zero; 2], |emit, round, all| {
            let word = emit.group_of(places.address, Group::Now(round)).word();
            let word = emit.build.ins().iadd(word, offset);
            let most = emit.build.ins().umax(all[0], word);
            vec![most, emit.build.ins().bor(all[1], word)]
        });
        let (most, bits) = (all[0], all[1]);
        // The first address is 0: addresses of 32 bits are those of shared or of local memory.
        let last = self.build.ins().ireduce(types::I32, reached.last);
        let last = self.build.ins().splat(WORDS, last);
        let beyond = self.build.ins().icmp(IntCC::UnsignedGreaterThan, most, last);
        let odd = self.words(odd as u32);
        let odd = self.build.ins().band(bits, odd);
        let wrong = self.build.ins().bor(beyond, odd);
        let any = self.build.ins().vany_true(wrong);
        let none = self.build.ins().icmp_imm(IntCC::Equal, any, 0);
        let has_room = self.build.ins().icmp_imm(IntCC::SignedGreaterThanOrEqual, reached.last, 0);
        self.both(none, has_room)
    }

    fn doubles_inside(&mut self, places: &Places<'_>, reached: &Reached, odd: u64) -> Value {
        let back =
            self.build.ins().iadd_imm(reached.start, places.imm.wrapping_neg().cast_signed());
        let back = self.build.ins().splat(DOUBLES, back);
        let last = self.build.ins().splat(DOUBLES, reached.last);
        let zero = self.doubles(0);
        let all = self.each_round(1, vec![zero; 2], |emit, round, all| {
            let (mut outside, mut bits) = (all[0], all[1]);
            for double in emit.group_of(places.address, Group::Now(round)).double() {
                let offset = emit.build.ins().isub(double, back);
                let beyond = emit.build.ins().icmp(IntCC::SignedGreaterThan, offset, last);
                outside = emit.build.ins().bor(outside, offset);
                outside = emit.build.ins().bor(outside, beyond);
                bits = emit.build.ins().bor(bits, double);
            }
            vec![outside, bits]
        });
        let (outside, bits) = (all[0], all[1]);
        let signs = self.build.ins().vhigh_bits(types::I32, outside);
        let none = self.build.ins().icmp_imm(IntCC::Equal, signs, 0);
        let odd = self.doubles(odd);
        let odd = self.build.ins().band(bits, odd);
        let any = self.build.ins().vany_true(odd);
        let even = self.build.ins().icmp_imm(IntCC::Equal, any, 0);
        self.both(none, even)
    }

    /// The lanes of a source of a group.
    pub(super) fn group_of(&mut self, source: Source, group: impl Into<Group>) -> Four {
        match source {
            Source::Line(is_double, line) => self.line_in_group(is_double, line, group),
            Source::Halves(is_double, halves) => self.halves_in_group(is_double, halves, group),
            Source::Lanes(Register { file: File::Double, place }) => self.load_double(place, group),
            Source::Lanes(Register { place, .. }) => self.load_word(place, group),
            Source::Made(_) | Source::Mask(_) => Four::Word(self.words(0)),
        }
    }

    /// Moves the bytes of one lane after the other, eight in a round of a loop.
    fn move_lanes(&mut self, places: &Places<'_>, reached: &Reached) {
        self.each_round(2, Vec::new(), |emit, round, _| {
            let mut ahead = reached.ahead;
            if let Some(apart) = reached.apart {
                let lanes = emit.build.ins().uextend(types::I64, round.lanes);
                let further = emit.build.ins().imul(lanes, apart);
                ahead = emit.build.ins().iadd(ahead, further);
            }
            for lane in 0..8 {
                if let Some(apart) = reached.apart.filter(|_| lane > 0) {
                    ahead = emit.build.ins().iadd(ahead, apart);
                }
                emit.move_one(places, ahead, (round, lane));
            }
            Vec::new()
        });
    }

    /// Moves the bytes of one lane of a round.
    fn move_one(&mut self, places: &Places<'_>, ahead: Value, (round, lane): (Round, usize)) {
        let address = self.lane_now(places.address, round, lane);
        let address = self.address_of(address, places.imm);
        let at = self.build.ins().iadd(ahead, address);
        for (element, &register) in places.loads.iter().enumerate() {
            let value = self.load_same(places.access, at, element);
            let (base, offset) = self.place_now(register, round, lane);
            self.build.ins().store(plain(), value, base, offset);
        }
        for (element, &source) in places.stores.iter().enumerate() {
            let value = self.lane_now(source, round, lane);
            let offset = element as i32 * i32::from(places.access.bytes);
            let value = self.resized(value, int_of(places.access.bytes));
            self.build.ins().store(foreign(), value, at, offset);
        }
    }

    /// Where a lane of a round is in a register.
    fn place_now(&self, register: Register, round: Round, lane: usize) -> (Value, i32) {
        let ((base, offset), size) = match register.file {
            File::Double => (self.lanes_of_double(register.place, Group::Now(round)), 8),
            _ => (self.lanes_of_word(register.place, Group::Now(round)), 4),
        };
        (base, offset + size * lane as i32)
    }

    /// The value of a lane of a round of a source that is no predicate.
    fn lane_now(&mut self, source: Source, round: Round, lane: usize) -> Value {
        let further = |step: i64| step.wrapping_mul(lane as i64);
        match source {
            Source::Line(is_double, line) => {
                let first = self.point(is_double, line, round.lanes);
                self.build.ins().iadd_imm(first, further(line.step))
            }
            Source::Halves(is_double, halves) => {
                let first = self.first_of_halves(is_double, halves, round);
                self.build.ins().iadd_imm(first, further(halves[0].step))
            }
            Source::Lanes(register) => {
                let is_double = register.file == File::Double;
                let kind = if is_double { types::I64 } else { types::I32 };
                let (base, offset) = self.place_now(register, round, lane);
                self.build.ins().load(kind, plain(), base, offset)
            }
            Source::Made(_) | Source::Mask(_) => self.word(0),
        }
    }

    /// The lowest bits of an integer, or the integer with zeros above.
    pub(super) fn resized(&mut self, value: Value, to: Type) -> Value {
        let bits = self.build.func.dfg.value_type(value).bits();
        match to.bits().cmp(&bits) {
            std::cmp::Ordering::Less => self.build.ins().ireduce(to, value),
            std::cmp::Ordering::Equal => value,
            std::cmp::Ordering::Greater => self.build.ins().uextend(to, value),
        }
    }
}
