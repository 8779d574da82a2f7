//! The instructions of a piece, and the registers that they read before they write them.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::Block;

use super::detour::{Detour, detours};
use super::live::Live;
use super::register::key;
use super::state::Of;
use crate::code::{
    CONSTANT, Code, FIRST_TURN, File, Op, Place, Program, Register, Special, UNGUARDED, is_constant,
};

/// The most extents of a piece, and the most instructions of those behind the first.
const MOST_EXTENTS: usize = 12;
const MOST_BEHIND: u32 = 96;

/// Instructions that follow each other. Jumps lead out of it, and into its first one only.
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) start: u32,
    /// Behind the last one.
    pub(super) end: u32,
    /// Registers with old values that it or an extent behind it needs.
    pub(super) inputs: Vec<Register>,
    pub(super) detours: Vec<Detour>,
}

/// A register that holds lines, with their step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One through all lanes, which is where the interpreter keeps it.
    Line(i64),
    /// One in each half of the warp. The block of a version takes their first values, and the lanes are
    /// written.
    Halves(i64),
}

/// An extent, with the registers that hold lines when it is entered.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) extent: usize,
    pub(super) lines: Vec<(Register, Kind)>,
    pub(super) block: Block,
}

impl Extent {
    /// The instructions from a position on, without their inputs.
    ///
    /// Parts of a warp meet where jumps lead, and a piece for them cannot be left within an extent.
    fn at((program, targets): (&Program, &Targets), of: Of, start: u32) -> Self {
        let (mut end, most) = (start, longest(program, of, start));
        while end - start < most {
            let Some(op) = program.ops.get(end as usize) else { break };
            if !is_compiled(program, of, op) {
                break;
            }
            end += 1;
            if ends(op, end) || of == Of::Part && targets.has(end) {
                break;
            }
        }
        Self { start, end, inputs: Vec::new(), detours: Vec::new() }
    }

    /// The extents of the piece from a position on: that of the position, which ends before another one, and
    /// those to which it leads and that `is_worth` its code says yes to. None if the piece is too short.
    /// `has_parts` says where parts of warps have been.
    pub(super) fn all(
        whole: (&Program, &Targets),
        live: &Live,
        (of, start, end): (Of, u32, u32),
        is_worth: impl Fn(u32) -> bool,
        has_parts: impl Fn(u32) -> bool,
    ) -> Option<Vec<Self>> {
        let program = whole.0;
        let mut first = Self::at(whole, of, start);
        first.end = first.end.min(end);
        if first.end - start < of.least() {
            return None;
        }
        let (mut extents, mut behind, mut next) = (vec![first], 0, 0);
        while let Some(extent) = extents.get(next) {
            next += 1;
            for target in extent.leads_to(program) {
                let is_new = extents.iter().all(|extent| extent.start != target);
                if !is_new || extents.len() == MOST_EXTENTS || !is_worth(target) {
                    continue;
                }
                let other = Self::at(whole, of, target);
                let length = other.end - other.start;
                if length > 0 && behind + length <= MOST_BEHIND {
                    behind += length;
                    extents.push(other);
                }
            }
        }
        for extent in &mut extents {
            extent.detours = detours(program, extent.start..extent.end, &has_parts);
        }
        find_inputs((program, live), &mut extents);
        Some(extents)
    }

    /// The registers that its instructions or its detours read or write.
    pub(super) fn touched(&self, program: &Program) -> BTreeSet<(u8, u16)> {
        let uses = &program.uses;
        let own =
            (self.start..self.end).flat_map(|at| uses.reads(at).iter().chain(uses.writes(at)));
        let aside = self.detours.iter().flat_map(|detour| detour.touched(program));
        own.chain(aside).map(|register| key(*register)).collect()
    }

    /// The positions at which other extents may follow.
    fn leads_to(&self, program: &Program) -> Vec<u32> {
        let mut targets: Vec<u32> = (self.start..self.end)
            .filter_map(|position| match program.ops[position as usize].code {
                Code::Branch(target) => Some(target),
                _ => None,
            })
            .collect();
        targets.push(self.end);
        targets
    }
}

/// The positions to which instructions jump.
#[derive(Debug)]
pub(super) struct Targets(BTreeSet<u32>);

impl Targets {
    pub(super) fn of(program: &Program) -> Self {
        let branches = program.ops.iter().filter_map(|op| match op.code {
            Code::Branch(target) => Some(target),
            _ => None,
        });
        Self(branches.chain(program.tables.iter().flatten().copied()).collect())
    }

    fn has(&self, position: u32) -> bool {
        self.0.contains(&position)
    }

    /// Whether straight code goes through a position: no piece ends before it, and nothing jumps there.
    pub(super) fn is_within(&self, program: &Program, of: Of, position: u32) -> bool {
        let before = position.checked_sub(1).and_then(|at| program.ops.get(at as usize));
        let goes_on = before.is_some_and(|op| is_compiled(program, of, op) && !ends(op, position));
        goes_on && !self.has(position)
    }
}

/// The registers that hold addresses of the accesses of extents.
pub(super) fn addresses(program: &Program, extents: &[Extent]) -> BTreeSet<(u8, u16)> {
    let positions = extents.iter().flat_map(|extent| extent.start..extent.end);
    let ops = positions.map(|position| &program.ops[position as usize]);
    ops.filter_map(|op| match op.code {
        Code::Load(access) | Code::Store(access) => {
            let file = if access.wide { File::Double } else { File::Word };
            Some(key(Register { file, place: op.s[0] }))
        }
        _ => None,
    })
    .collect()
}

/// The registers that extents write.
pub(super) fn written(program: &Program, extents: &[Extent]) -> BTreeMap<(u8, u16), Register> {
    let positions = extents.iter().flat_map(|extent| extent.start..extent.end);
    let registers = positions.flat_map(|position| program.uses.writes(position));
    registers.map(|register| (key(*register), *register)).collect()
}

/// Finds the registers with old values that each extent needs, or one that follows it.
fn find_inputs(known: (&Program, &Live), extents: &mut [Extent]) {
    let mut has_grown = true;
    while std::mem::take(&mut has_grown) {
        for index in (0..extents.len()).rev() {
            let inputs = inputs(known, extents, index);
            has_grown |= inputs.len() > extents[index].inputs.len();
            extents[index].inputs = inputs;
        }
    }
}

fn inputs((program, live): (&Program, &Live), extents: &[Extent], index: usize) -> Vec<Register> {
    let of = |position: u32| {
        let found = extents.iter().find(|extent| extent.start == position);
        found.map_or(&[][..], |extent| &extent.inputs)
    };
    let extent = &extents[index];
    let mut needed: BTreeMap<_, _> = of(extent.end).iter().map(|r| (key(*r), *r)).collect();
    for position in (extent.start..extent.end).rev() {
        let op = &program.ops[position as usize];
        if let Code::Branch(target) = op.code {
            if op.guard == UNGUARDED {
                needed.clear();
            }
            needed.extend(of(target).iter().map(|r| (key(*r), *r)));
            if let Some(detour) = extent.detours.iter().find(|detour| detour.branch == position) {
                let used = of(detour.end).iter().chain(detour.inputs(program, live));
                needed.extend(used.map(|r| (key(*r), *r)));
            }
        }
        for register in program.uses.writes(position) {
            needed.remove(&key(*register));
        }
        needed.extend(program.uses.reads(position).iter().map(|r| (key(*r), *r)));
    }
    needed.into_values().collect()
}

/// Whether a piece may hold an instruction.
pub(super) fn is_compiled(program: &Program, of: Of, op: &Op) -> bool {
    match op.code {
        // Lanes that are elsewhere may have to come first, or count how often this one is executed.
        Code::Vote { .. } | Code::WarpBarrier if of == Of::Part => false,
        Code::Load(access) if of == Of::Part && access.shared => false,
        Code::Pure(_) => true,
        Code::Branch(_) => true,
        Code::Load(access) | Code::Store(access) => access.place != Place::Cluster,
        Code::Special(special) => op.guard == UNGUARDED && !is_clock(special),
        Code::Vote { .. } => op.guard == UNGUARDED && names_all(program, op.s[1]),
        // A whole warp waits for no lane, and all of its lanes take part.
        Code::Shuffle { .. } => of != Of::Part && op.guard == UNGUARDED,
        Code::WarpBarrier => op.guard == UNGUARDED && names_all(program, op.s[0]),
        _ => false,
    }
}

/// Whether a register of the lanes that an instruction names is a constant with all of them.
fn names_all(program: &Program, slot: u16) -> bool {
    is_constant(slot) && program.constant_words[usize::from(slot & !CONSTANT)][0] == u32::MAX
}

/// Whether a register counts instructions, which a piece adds up only when it is left.
fn is_clock(special: Special) -> bool {
    matches!(
        special,
        Special::Clock
            | Special::ClockHigh
            | Special::Clock64
            | Special::GlobalTimer
            | Special::GlobalTimerLow
            | Special::GlobalTimerHigh
            | Special::Grid
    )
}

/// The most instructions of an extent from a position on. One from which warps go on evenly fits in their
/// first turn.
fn longest(program: &Program, of: Of, start: u32) -> u32 {
    if program.goes_evenly(start) { FIRST_TURN.min(of.most()) } else { of.most() }
}

/// Whether an extent ends with an instruction: a jump that is always taken, or one back. `next` is the
/// position behind it.
fn ends(op: &Op, next: u32) -> bool {
    matches!(op.code, Code::Branch(target) if op.guard == UNGUARDED || target < next)
}
