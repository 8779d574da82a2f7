//! Detours: a branch forward that only some lanes take, around a few instructions.
//!
//! The lanes that do not jump execute the instructions up to the target. If these end with a jump over some
//! others, the lanes that jumped execute those then. So each leg of a detour is made by some lanes while the
//! others wait behind it, as the interpreter does it with two fragments. At the end all go on together. If
//! lanes cannot go on within the piece, it is left with two fragments.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cranelift_codegen::ir::Value;

use super::live::Live;
use super::register::key;
use crate::code::{Code, Op, Place, Program, Register, UNGUARDED};

/// The most instructions of a leg: their code is there twice.
const MOST: u32 = 16;

/// A branch with a detour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detour {
    pub(super) branch: u32,
    /// Where the second leg begins.
    pub(super) target: u32,
    /// Where all lanes meet: the target if there is no second leg.
    pub(super) end: u32,
}

/// A leg while it is translated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leg {
    pub(super) first: u32,
    /// Where the others wait.
    pub(super) end: u32,
    pub(super) others: Value,
}

impl Detour {
    /// The detour of a branch.
    fn of(program: &Program, branch: u32) -> Option<Self> {
        let Code::Branch(target) = program.ops[branch as usize].code else { return None };
        let can = |leg: Range<u32>| {
            let is_short = leg.start < leg.end && leg.end - leg.start <= MOST;
            let ops = program.ops.get(leg.start as usize..leg.end as usize);
            is_short && ops.is_some_and(|ops| ops.iter().all(is_plain))
        };
        if can(branch + 1..target) {
            return Some(Self { branch, target, end: target });
        }
        let over = target.checked_sub(1).filter(|over| *over > branch)?;
        let end = match program.ops.get(over as usize)? {
            Op { code: Code::Branch(end), guard: UNGUARDED, .. } => *end,
            _ => return None,
        };
        let is_one = can(branch + 1..over) && can(target..end);
        is_one.then_some(Self { branch, target, end })
    }

    /// Its legs in the order in which they are made: their instructions, and where the other lanes wait.
    pub(super) fn legs(&self) -> impl DoubleEndedIterator<Item = (Range<u32>, u32)> {
        let Self { branch, target, end } = *self;
        // A jump over the second leg ends the first one.
        let first = if end == target { end } else { target - 1 };
        let second = (end != target).then_some((target..end, end));
        [(branch + 1..first, target)].into_iter().chain(second)
    }

    /// Whether a register is a temporary of a leg for which others wait somewhere: no lane reads behind the leg
    /// what a register held in it, or before it. The leg may write it for all lanes.
    fn is_temporary(&self, live: &Live, waits: u32, register: Register) -> bool {
        !live.holds(waits, register) && !live.holds(self.end, register)
    }

    /// The temporaries of a leg.
    pub(super) fn temporaries(
        &self,
        (program, live): (&Program, &Live),
        (leg, waits): (Range<u32>, u32),
    ) -> BTreeSet<(u8, u16)> {
        let written = leg.flat_map(|at| program.uses.writes(at));
        let is_temporary = |register: &&Register| self.is_temporary(live, waits, **register);
        written.filter(is_temporary).map(|register| key(*register)).collect()
    }

    /// The registers that the legs read or write.
    pub(super) fn touched<'p>(&self, program: &'p Program) -> impl Iterator<Item = &'p Register> {
        let uses = &program.uses;
        (self.branch + 1..self.end).flat_map(|at| uses.reads(at).iter().chain(uses.writes(at)))
    }

    /// The registers that some lanes write while others keep what they hold.
    pub(super) fn shared<'p>(
        &self,
        program: &'p Program,
        live: &Live,
    ) -> impl Iterator<Item = &'p Register> {
        self.legs().flat_map(move |(leg, waits)| {
            let written = leg.flat_map(|at| program.uses.writes(at));
            written.filter(move |register| !self.is_temporary(live, waits, **register))
        })
    }

    /// The registers with old values that the legs need.
    pub(super) fn inputs<'p>(&self, program: &'p Program, live: &Live) -> Vec<&'p Register> {
        let mut needed = BTreeMap::new();
        for (leg, waits) in self.legs().rev() {
            for at in leg.rev() {
                for register in program.uses.writes(at) {
                    match self.is_temporary(live, waits, *register) {
                        true => needed.remove(&key(*register)),
                        false => needed.insert(key(*register), register),
                    };
                }
                needed.extend(program.uses.reads(at).iter().map(|r| (key(*r), r)));
            }
        }
        needed.into_values().collect()
    }
}

/// The detours of an extent: behind their branches parts of warps have been.
pub(super) fn detours(
    program: &Program,
    extent: Range<u32>,
    has_parts: impl Fn(u32) -> bool,
) -> Vec<Detour> {
    let branches = extent.filter(|branch| has_parts(branch + 1));
    branches.filter_map(|branch| Detour::of(program, branch)).collect()
}

/// Whether compiled code mostly executes an instruction for some lanes.
fn is_plain(op: &Op) -> bool {
    match op.code {
        Code::Pure(pure) => pure.form.is_some(),
        Code::Load(access) if access.shared => false,
        Code::Load(access) | Code::Store(access) => {
            matches!(
                access.place,
                Place::Shared
                    | Place::Global
                    | Place::Generic
                    | Place::Parameter
                    | Place::Local
                    | Place::Frame
            )
        }
        _ => false,
    }
}
