//! The lanes of a segment: computed and written four by four, one group after the other or in a loop.

use std::collections::BTreeMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    BlockArg, InstBuilder, StackSlot, StackSlotData, StackSlotKind, Value, types,
};

use super::emit::{Emit, plain, vector_of};
use super::register::key;
use super::segment::{Made, Segment, Source};
use super::value::{Four, GROUPS, Group, HALF, Round};
use crate::code::{File, Form, WIDTH, Width};

/// The weight of a segment beyond which it is a loop: its code takes an eighth of the time to make, and
/// runs as fast, or up to a tenth slower if it is short.
const MOST_UNROLLED: u32 = 24;

/// The bytes of the words of a warp.
const WORD_BYTES: i64 = size_of::<[u32; WIDTH]>() as i64;

impl Segment {
    /// Computes and writes lanes, and then rows in memory: these may be where others are read.
    pub(super) fn write_lanes(&self, emit: &mut Emit<'_>) {
        if self.made.is_empty() && self.stores.is_empty() {
            return;
        }
        if self.made.iter().map(weight).sum::<u32>() > MOST_UNROLLED {
            return self.write_in_loop(emit);
        }
        let mut masks: BTreeMap<u16, Value> = BTreeMap::new();
        let mut rows: Vec<Vec<Four>> = vec![Vec::new(); self.stores.len()];
        for group in 0..GROUPS {
            let (bits, row) = self.write_group(emit, group.into(), &[]);
            for (place, bits) in bits {
                let mask = match masks.get(&place) {
                    Some(&mask) => emit.build.ins().bor(mask, bits),
                    None => bits,
                };
                masks.insert(place, mask);
            }
            rows.iter_mut().zip(row).for_each(|(all, four)| all.push(four));
        }
        for (place, mask) in masks {
            emit.set_predicate(place, mask);
        }
        for (store, row) in self.stores.iter().zip(rows) {
            let row = if self.is_kept(store.from) { row } else { emit.canonical(row) };
            for (group, four) in row.into_iter().enumerate() {
                emit.store_row(store.to[group / HALF], group % HALF, four);
            }
        }
    }

    /// Whether the lanes of a source are written to a register, too.
    fn is_kept(&self, source: Source) -> bool {
        let Source::Made(at) = source else { return false };
        self.results.values().any(|(_, result)| *result == at)
    }

    /// As [`Self::write_lanes`], in a loop.
    fn write_in_loop(&self, emit: &mut Emit<'_>) {
        let words: Vec<_> = self.made.iter().map(|made| emit.keep_words(made)).collect();
        let predicates = self.results.values().map(|(register, _)| register);
        let predicates = predicates.filter(|register| register.file == File::Predicate);
        let predicates: Vec<u16> = predicates.map(|register| register.place).collect();
        let begin = predicates.iter().map(|_| emit.word(0)).collect();
        let mut kept = Vec::new();
        let masks = emit.each_round(1, begin, |emit, round, masks| {
            let (bits, row) = self.write_group(emit, Group::Now(round), &words);
            kept = row.into_iter().map(|four| emit.keep(four, round)).collect();
            let both = masks.iter().zip(bits);
            both.map(|(&mask, (_, bits))| emit.build.ins().bor(mask, bits)).collect()
        });
        for (place, mask) in predicates.into_iter().zip(masks) {
            emit.set_predicate(place, mask);
        }
        for (store, (slot, is_double)) in self.stores.iter().zip(kept) {
            let aside = emit.build.ins().stack_addr(types::I64, slot, 0);
            for group in 0..GROUPS {
                let four = emit.load_row(aside, group, is_double);
                emit.store_row(store.to[group / HALF], group % HALF, four);
            }
        }
    }

    /// Computes the lanes of a group and writes its registers. Gives its bits of predicates, and what it stores
    /// in each row.
    fn write_group(
        &self,
        emit: &mut Emit<'_>,
        group: Group,
        words: &[Option<StackSlot>],
    ) -> (Vec<(u16, Value)>, Vec<Four>) {
        let mut lanes = Lanes { emit, group, made: Vec::new(), read: BTreeMap::new() };
        for (at, made) in self.made.iter().enumerate() {
            let slot = words.get(at).copied().flatten();
            let value = lanes.made(made, slot);
            lanes.made.push(value);
        }
        let rows = self.stores.iter().map(|store| lanes.source(store.from)).collect();
        let made = lanes.made;
        let mut bits = Vec::new();
        for &(register, at) in self.results.values() {
            if register.file == File::Predicate {
                bits.push((register.place, emit.bits_of_group(made[at].word(), group)));
                continue;
            }
            let value = match emit.part_for(register) {
                Some(part) => emit.blended(part, register, group, made[at]),
                None => made[at],
            };
            emit.store(register.place, group, value);
        }
        (bits, rows)
    }
}

/// How much code an instruction becomes: floats of 64 bits are two vectors, and have another way for NaNs.
fn weight(made: &Made) -> u32 {
    match made {
        Made::Function(waiting) if waiting.form.float_width() == Some(Width::Double) => 6,
        Made::Function(_) => 1,
        _ => 0,
    }
}

/// The lanes of one group.
struct Lanes<'s, 'f> {
    emit: &'s mut Emit<'f>,
    group: Group,
    made: Vec<Four>,
    /// Registers that are read already.
    read: BTreeMap<(u8, u16), Four>,
}

impl Lanes<'_, '_> {
    fn source(&mut self, source: Source) -> Four {
        match source {
            Source::Made(at) => self.made[at],
            Source::Line(is_double, line) => self.emit.line_in_group(is_double, line, self.group),
            Source::Halves(is_double, halves) => {
                self.emit.halves_in_group(is_double, halves, self.group)
            }
            Source::Mask(mask) => self.emit.mask_in_group(mask, self.group),
            Source::Lanes(register) => {
                if let Some(&four) = self.read.get(&key(register)) {
                    return four;
                }
                let four = match register.file {
                    File::Double => self.emit.load_double(register.place, self.group),
                    _ => self.emit.load_word(register.place, self.group),
                };
                self.read.insert(key(register), four);
                four
            }
        }
    }

    /// The value of an instruction. In a loop, the words at hand are in a slot.
    fn made(&mut self, made: &Made, slot: Option<StackSlot>) -> Four {
        match made {
            Made::Words(words) => match (self.group, slot) {
                (Group::Known(group), _) => Four::Word(words[group]),
                (Group::Now(round), Some(slot)) => self.emit.kept_now(slot, round),
                (Group::Now(_), None) => Four::Word(words[0]),
            },
            Made::Line(is_double, line) => self.emit.line_in_group(*is_double, *line, self.group),
            Made::Halves(is_double, halves) => {
                self.emit.halves_in_group(*is_double, *halves, self.group)
            }
            Made::Rows(from, is_double) => match self.group {
                Group::Known(group) => {
                    self.emit.load_row(from[group / HALF], group % HALF, *is_double)
                }
                Group::Now(round) => self.emit.load_row_now(*from, round, *is_double),
            },
            Made::Function(waiting) => {
                let sources: Vec<Four> =
                    waiting.sources.iter().map(|source| self.source(*source)).collect();
                let new = match (waiting.form, waiting.sources.get(1)) {
                    (Form::ShiftBy { .. }, Some(Source::Line(_, amount))) => {
                        self.emit.shifted(waiting.form, sources[0], amount.first)
                    }
                    _ => self.emit.four(waiting.form, waiting.imm, &sources),
                };
                let Some((guard, negated, old)) = waiting.guard else { return new };
                let (mask, old) = (self.source(guard).word(), self.source(old));
                let mask = if negated { self.emit.build.ins().bnot(mask) } else { mask };
                self.emit.choose(mask, new, old)
            }
        }
    }
}

/// Loops over groups, and the rows of one, which are put aside on the stack.
impl Emit<'_> {
    /// A loop over all groups, of which a round has one or more. It begins with values and gives new ones in each
    /// round; those of the last round are the result.
    pub(super) fn each_round(
        &mut self,
        groups: usize,
        begin: Vec<Value>,
        act: impl FnOnce(&mut Self, Round, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let (body, end) = (self.build.create_block(), self.build.create_block());
        let offset = self.build.append_block_param(body, types::I64);
        let kinds = begin.iter().map(|value| self.build.func.dfg.value_type(*value));
        let kinds: Vec<_> = kinds.collect();
        let now: Vec<Value> =
            kinds.into_iter().map(|kind| self.build.append_block_param(body, kind)).collect();
        let passed = |offset, values: &[Value]| {
            let all = std::iter::once(offset).chain(values.iter().copied());
            all.map(BlockArg::from).collect::<Vec<_>>()
        };
        let zero = self.double(0);
        self.build.ins().jump(body, &passed(zero, &begin));
        self.build.switch_to_block(body);
        let round = self.round(offset);
        let new = act(self, round, &now);
        let next = self.build.ins().iadd_imm(offset, WORD_BYTES / (GROUPS / groups) as i64);
        let goes_on = self.build.ins().icmp_imm(IntCC::NotEqual, next, WORD_BYTES);
        self.build.ins().brif(goes_on, body, &passed(next, &new), end, &[]);
        self.build.switch_to_block(end);
        new
    }

    /// Room for the lanes of a register.
    fn room(&mut self, is_double: bool) -> StackSlot {
        let bytes = WORD_BYTES as u32 * if is_double { 2 } else { 1 };
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4);
        self.build.create_sized_stack_slot(slot)
    }

    /// Puts words aside that are at hand.
    fn keep_words(&mut self, made: &Made) -> Option<StackSlot> {
        let Made::Words(words) = made else { return None };
        let slot = self.room(false);
        for (group, word) in words.iter().enumerate() {
            self.build.ins().stack_store(*word, slot, 16 * group as i32);
        }
        Some(slot)
    }

    /// Puts a group's lanes aside. Gives where, and whether they have 64 bits.
    fn keep(&mut self, four: Four, round: Round) -> (StackSlot, bool) {
        let is_double = matches!(four, Four::Double(_));
        let slot = self.room(is_double);
        let place = self.build.ins().stack_addr(types::I64, slot, 0);
        let offset = if is_double { round.doubles_offset } else { round.offset };
        let place = self.build.ins().iadd(place, offset);
        for (value, offset) in four.parts().into_iter().zip([0, 16]) {
            self.build.ins().store(plain(), value, place, offset);
        }
        (slot, is_double)
    }

    /// Words that were put aside, in a round.
    fn kept_now(&mut self, slot: StackSlot, round: Round) -> Four {
        let place = self.build.ins().stack_addr(types::I64, slot, 0);
        let place = self.build.ins().iadd(place, round.offset);
        Four::Word(self.build.ins().load(vector_of(false), plain(), place, 0))
    }
}
