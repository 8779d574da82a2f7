//! Lines of the two halves of a warp: coordinates and addresses of blocks that are 16 threads wide.
//!
//! Each half is computed as a line of a whole warp is. Registers that hold such lines have their lanes in
//! memory, too, behind each segment: the interpreter knows nothing of halves.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::emit::{Emit, WORDS};
use super::register::is_double;
use super::segment::{Made, Source};
use super::translate::{Holds, Mask, Translate};
use super::value::{GROUPS, Halves, LineOf};
use crate::code::{Form, Op, Register, Special, WIDTH};

/// The steps from the first lane of a warp to its last one, and of half a warp.
const OF_WARP: i64 = WIDTH as i64 - 1;
const OF_HALF: i64 = WIDTH as i64 / 2 - 1;

/// The lanes of the lower half.
const LOWER: u32 = 0xffff;

impl Translate<'_, '_> {
    /// Computes an instruction once for each half of the warp, if its sources are lines in both, and its
    /// result is one.
    pub(super) fn by_halves(&mut self, op: &Op, form: Form) -> bool {
        if matches!(form, Form::Select(_)) {
            return false;
        }
        let mut sources = Vec::new();
        for (file, slot) in form.sources().iter().zip(op.s) {
            match self.holds(*file, slot).1 {
                Holds::Halves(halves) => sources.push(halves),
                Holds::Line(line) => sources.push(self.halves_of(line)),
                _ => return false,
            }
        }
        if let Form::Compare(compared, comparison) = form {
            if !sources.iter().flatten().all(|line| line.is_same()) {
                return false;
            }
            let masks = [0, 1].map(|half| {
                let [a, b] = [sources[0][half], sources[1][half]];
                self.emit.compare_same(compared, comparison, a, b).value
            });
            let value = self.emit.of_halves(masks);
            self.set_mask(op.d[0], Mask::of(value));
            return true;
        }
        let mut lines = [None; 2];
        self.emit.steps = OF_HALF;
        for (half, line) in lines.iter_mut().enumerate() {
            let own: Vec<LineOf> = sources.iter().map(|source| source[half]).collect();
            *line = self.emit.line(form, op.imm, &own, self.begins);
        }
        self.emit.steps = OF_WARP;
        match lines {
            [Some(lower), Some(upper)] if lower.step == upper.step => {
                let result = Register { file: form.result(), place: op.d[0] };
                self.set_halves(result, [lower, upper]);
                true
            }
            _ => false,
        }
    }

    /// The halves of a line of the whole warp.
    fn halves_of(&mut self, line: LineOf) -> Halves {
        if line.is_same() {
            return [line; 2];
        }
        let further = line.step.wrapping_mul(WIDTH as i64 / 2);
        let first = self.emit.build.ins().iadd_imm(line.first, further);
        [line, LineOf { first, step: line.step, constant: None }]
    }

    /// A coordinate that is a line in each half of the warp. Returns whether it is one.
    pub(super) fn half_special(&mut self, special: Special, register: Register) -> bool {
        let Special::Thread(axis) = special else { return false };
        let Some(step) = self.task.observed.half_special_step(special) else { return false };
        let firsts = self.emit.thread(axis, step, true, self.begins);
        self.set_halves(register, firsts.map(|first| LineOf { first, step, constant: None }));
        true
    }

    /// Coordinates of threads that are on no lines. Returns whether the special register has some.
    pub(super) fn thread_row(&mut self, special: Special, register: Register) -> bool {
        let Special::Thread(axis) = special else { return false };
        let rows = self.emit.thread_rows(axis);
        let at = self.segment.make(Made::Rows(rows, false));
        self.set_made(register, at);
        true
    }

    /// The lines of a register that is expected to have one in each half of the warp, and four words that
    /// are not all zero if its lanes are elsewhere.
    pub(super) fn expected_halves(&mut self, register: Register, step: i64) -> (Halves, Value) {
        let is_wide = is_double(register);
        let source = Source::Lanes(register);
        let halves = [0, WIDTH / 2].map(|lane| {
            let first = self.emit.lane(source, lane);
            LineOf { first, step, constant: None }
        });
        let mut differing = self.emit.words(0);
        for group in 0..GROUPS {
            let now = self.emit.group_of(source, group).parts();
            let expected = self.emit.halves_in_group(is_wide, halves, group).parts();
            for (now, expected) in now.into_iter().zip(expected) {
                let bits = self.emit.build.ins().bxor(now, expected);
                let bits = self.emit.cast(WORDS, bits);
                differing = self.emit.build.ins().bor(differing, bits);
            }
        }
        (halves, differing)
    }
}

impl Emit<'_> {
    /// The lower half of a predicate of all lanes, and the upper one of another.
    fn of_halves(&mut self, [lower, upper]: [Value; 2]) -> Value {
        let lower = self.build.ins().band_imm(lower, i64::from(LOWER));
        let upper = self.build.ins().band_imm(upper, i64::from((!LOWER).cast_signed()));
        self.build.ins().bor(lower, upper)
    }
}
