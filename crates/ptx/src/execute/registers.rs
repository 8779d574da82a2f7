//! The registers of a warp as its instructions see them.

use super::block::Column;
use super::warp::{Fragment, Frame, Warp};
use crate::code::{First, Lanes, Line, Lines, Op, Program, Set};

/// The registers of a frame as instructions see them.
#[inline(always)]
pub(super) fn lanes<'w>(
    program: &'w Program,
    warp: &'w mut Warp,
    frame: &Frame,
    mask: u32,
) -> Lanes<'w> {
    lanes_and_lines(program, warp, frame, mask).0
}

/// As [`lanes`], with the lines that registers of the kernel itself hold.
#[inline(always)]
pub(super) fn lanes_and_lines<'w>(
    program: &'w Program,
    warp: &'w mut Warp,
    frame: &Frame,
    mask: u32,
) -> (Lanes<'w>, &'w mut Lines) {
    let linked = &program.functions[frame.function as usize];
    let lanes = Lanes {
        words: &mut warp.words,
        doubles: &mut warp.doubles,
        predicates: &mut warp.predicates,
        constant_words: &program.constant_words,
        constant_doubles: &program.constant_doubles,
        first: First {
            word: frame.words,
            double: frame.doubles,
            predicate: frame.predicates,
            constant_word: linked.words,
            constant_double: linked.doubles,
        },
        mask,
    };
    (lanes, &mut warp.lines)
}

/// Makes the registers of an instruction lanes only, before the lanes of a mask execute it.
#[inline(always)]
pub(super) fn leave_lines(
    program: &Program,
    warp: &mut Warp,
    fragment: &Fragment,
    op: &Op,
    mask: u32,
) {
    // Lanes that do not execute it keep the old values of its results.
    let touched = if mask == u32::MAX { op.reads } else { op.reads.with(op.writes) };
    fill_lines(program, warp, fragment, touched);
    if fragment.is_kernel() {
        warp.lines.held.forget(op.writes);
    }
}

/// Writes the lanes of those registers of a set that hold lines only.
#[inline(always)]
pub(super) fn fill_lines(program: &Program, warp: &mut Warp, fragment: &Fragment, set: Set) {
    if fragment.is_kernel() {
        fill_kernel_lines(program, warp, set);
    }
}

/// The same where the kernel itself runs, and no function that it called.
#[inline(always)]
pub(super) fn fill_kernel_lines(program: &Program, warp: &mut Warp, set: Set) {
    if warp.lines.held.has_stale(set) {
        let (mut lanes, lines) = lanes_and_lines(program, warp, &Frame::default(), u32::MAX);
        let mut held = lines.held;
        lines.fill(&mut held, &mut lanes, set);
        lines.held = held;
    }
}

/// The results of an instruction that are known to be lines.
pub(super) struct Results<'w> {
    lanes: Lanes<'w>,
    /// `None` if not all lanes execute the instruction, or it is in a function that is called.
    lines: Option<&'w mut Lines>,
}

impl<'w> Results<'w> {
    #[inline(always)]
    pub(super) fn of(
        program: &'w Program,
        warp: &'w mut Warp,
        fragment: &Fragment,
        mask: u32,
    ) -> Self {
        let keeps = mask == u32::MAX && fragment.is_kernel();
        let (lanes, lines) = lanes_and_lines(program, warp, &fragment.frame, mask);
        Self { lanes, lines: keeps.then_some(lines) }
    }

    #[inline(always)]
    pub(super) fn set_word(&mut self, slot: u16, line: Line<u32>) {
        match &mut self.lines {
            Some(lines) => lines.set_word(&mut self.lanes, slot, line),
            None => self.lanes.set_word(slot, &line.values()),
        }
    }

    #[inline(always)]
    pub(super) fn set_double(&mut self, slot: u16, line: Line<u64>) {
        match &mut self.lines {
            Some(lines) => lines.set_double(&mut self.lanes, slot, line),
            None => self.lanes.set_double(slot, &line.values()),
        }
    }

    /// A word of each lane.
    #[inline(always)]
    pub(super) fn set_column(&mut self, slot: u16, column: &Column) {
        match column.line {
            Some(line) => self.set_word(slot, line),
            None => self.lanes.set_word(slot, &column.values),
        }
    }
}
