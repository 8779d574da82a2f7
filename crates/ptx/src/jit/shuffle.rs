//! Shuffles of whole warps: from lanes that are known when the piece is made, and others.

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::{Emit, WORDS, plain};
use super::segment::Made;
use super::state::Exchange;
use super::translate::{Holds, Mask, Translate};
use super::value::{GROUPS, LineOf};
use crate::code::{CONSTANT, File, Op, Register, Shuffle, WIDTH, is_constant};

impl Translate<'_, '_> {
    /// A shuffle, with a predicate or without one.
    pub(super) fn shuffle(
        &mut self,
        op: &Op,
        (mode, has_predicate): (Shuffle, bool),
        position: u32,
    ) {
        let (Some(offset), Some(control)) = (self.constant(op.s[1]), self.constant(op.s[2])) else {
            return self.shuffle_by_words(op, (mode, has_predicate), position);
        };
        let sources: [(u32, bool); WIDTH] =
            std::array::from_fn(|lane| mode.source(lane as u32, offset, control));
        let from = sources.map(|(from, _)| from as usize);
        self.exchange(op, from, position);
        if has_predicate {
            let inside = (0..WIDTH).fold(0, |all, lane| all | u32::from(sources[lane].1) << lane);
            let value = self.emit.word(inside);
            let is_same = inside == 0 || inside == u32::MAX;
            let same =
                is_same.then(|| self.emit.build.ins().iconst(types::I8, i64::from(inside & 1)));
            self.set_mask(op.d[1], Mask { value, same });
        }
    }

    fn constant(&self, slot: u16) -> Option<u32> {
        let place = usize::from(slot & !CONSTANT);
        is_constant(slot).then(|| self.task.program.constant_words[place][0])
    }

    /// A shuffle by registers, of which all lanes share the control.
    fn shuffle_by_words(&mut self, op: &Op, (mode, has_predicate): (Shuffle, bool), position: u32) {
        let control = self.shared_word(op.s[2]).filter(|_| !is_constant(op.s[0]));
        let Some(control) = control else { return self.by_interpreter(op, position) };
        let offset = self.shared_word(op.s[1]);
        let offsets = offset.is_none().then_some(op.s[1]);
        for slot in offsets.into_iter().chain([op.s[0]]) {
            self.fill_lanes(Register { file: File::Word, place: slot });
        }
        self.write(position);
        let rows = Exchange { mode, result: op.d[0], source: op.s[0], offsets };
        let offset = offset.unwrap_or_else(|| self.emit.word(0));
        let inside = self.emit.call_exchange(rows, offset, control);
        let result = Register { file: File::Word, place: op.d[0] };
        self.emit.forget_lines(&[result]);
        self.go_on_with(&[result], position);
        if has_predicate {
            self.set_mask(op.d[1], Mask::of(inside));
        }
    }

    /// Each lane takes the word of another one.
    fn exchange(&mut self, op: &Op, from: [usize; WIDTH], position: u32) {
        let result = Register { file: File::Word, place: op.d[0] };
        let (register, holds) = self.holds(File::Word, op.s[0]);
        match holds {
            Holds::Line(line) if line.is_same() => return self.set_line(result, line),
            _ => self.fill_lanes(register),
        }
        self.write(position);
        if from.iter().all(|lane| *lane == from[0]) {
            let source = self.source(File::Word, op.s[0]);
            let first = self.emit.lane(source, from[0]);
            return self.set_line(result, LineOf::same(first));
        }
        // All are read before any is written: the result may be the source.
        let words = std::array::from_fn(|group| {
            let lanes = std::array::from_fn(|lane| from[4 * group + lane]);
            self.emit.four_lanes(register.place, lanes)
        });
        let at = self.segment.make(Made::Words(words));
        self.set_made(result, at);
    }
}

impl Emit<'_> {
    /// Four lanes of a register of 32 bits.
    fn four_lanes(&mut self, place: u16, lanes: [usize; 4]) -> Value {
        let (base, offset) = self.lanes_of_word(place, 0);
        let mut load = |kind, lane: usize| {
            self.build.ins().load(kind, plain(), base, offset + 4 * lane as i32)
        };
        if lanes.iter().enumerate().all(|(at, lane)| *lane == lanes[0] + at) {
            return load(WORDS, lanes[0]);
        }
        let groups = lanes.map(|lane| lane / 4);
        let (low, high) =
            (groups.into_iter().fold(GROUPS, usize::min), groups.into_iter().fold(0, usize::max));
        if groups.iter().all(|group| *group == low || *group == high) {
            let both = [load(WORDS, 4 * low), load(WORDS, 4 * high)];
            let word = |lane: usize| if lane / 4 == low { lane % 4 } else { 4 + lane % 4 };
            return self.words_from(both, lanes.map(|lane| word(lane) as u8));
        }
        let words = lanes.map(|lane| load(types::I32, lane));
        let first = self.build.ins().splat(WORDS, words[0]);
        (1..4).fold(first, |all, at| self.build.ins().insertlane(all, words[at], at as u8))
    }
}
