//! The instructions of a piece, and the registers that it reads before it writes them.

use crate::code::{Code, Op, Place, Program, Register, Special, UNGUARDED};

/// The most instructions of a piece.
const MOST: u32 = 256;

/// A run of instructions from one position on.
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) start: u32,
    /// Behind the last one.
    pub(super) end: u32,
    /// Registers with old values that the piece needs.
    pub(super) inputs: Vec<Register>,
}

impl Extent {
    /// The piece from a position on; `None` if it is not worth its code.
    pub(super) fn at(program: &Program, start: u32) -> Option<Self> {
        let mut end = start;
        while end - start < MOST {
            let Some(op) = program.ops.get(end as usize) else { break };
            if !is_compiled(op) {
                break;
            }
            end += 1;
            if ends(op, end) {
                break;
            }
        }
        (end - start >= 2).then(|| Self { start, end, inputs: inputs(program, start, end) })
    }
}

/// Whether a piece may hold an instruction.
fn is_compiled(op: &Op) -> bool {
    match op.code {
        Code::Pure(_) => true,
        Code::Branch(_) => true,
        Code::Load(access) | Code::Store(access) => access.place != Place::Cluster,
        Code::Special(special) => op.guard == UNGUARDED && !is_clock(special),
        _ => false,
    }
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

/// Whether a piece ends with an instruction: a jump that is always taken, or one back. `next` is the
/// position behind it.
fn ends(op: &Op, next: u32) -> bool {
    matches!(op.code, Code::Branch(target) if op.guard == UNGUARDED || target < next)
}

fn inputs(program: &Program, start: u32, end: u32) -> Vec<Register> {
    let (mut inputs, mut written) = (Vec::new(), Vec::new());
    for position in start..end {
        for register in program.uses.reads(position) {
            if !written.contains(register) && !inputs.contains(register) {
                inputs.push(*register);
            }
        }
        written.extend_from_slice(program.uses.writes(position));
    }
    inputs
}
