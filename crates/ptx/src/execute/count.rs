//! Counts of the instructions that warps executed, by class.

use crate::code::{Class, Program};

/// Instructions of warps by the unit of a multiprocessor that carries them out, as a GPU's machine
/// code would count them: an instruction of PTX that becomes several there counts as several, and one
/// that becomes none counts as none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InstructionCounts {
    /// Arithmetic of up to 32 bits of floating point.
    pub fp32: u64,
    /// Arithmetic of 64 bits of floating point.
    pub fp64: u64,
    /// Integer arithmetic, logic, comparisons and conversions.
    pub integer: u64,
    /// Approximate functions.
    pub special: u64,
    /// Accesses to global, local and generic memory.
    pub memory: u64,
    /// Accesses to shared memory, and exchanges within a warp.
    pub shared: u64,
    /// Products of matrices.
    pub tensor: u64,
    /// Branches, calls and barriers.
    pub control: u64,
}

/// Counts of runs of instructions that follow each other: one more where a run begins, one less where
/// it ends.
#[derive(Debug, Default)]
pub(super) struct Counts(Vec<u64>);

impl Counts {
    pub(super) fn new(program: &Program) -> Self {
        Self(vec![0; program.ops.len() + 1])
    }

    /// A warp executed the instructions from one up to another.
    #[inline(always)]
    pub(super) fn note(&mut self, from: u32, to: u32) {
        self.note_of(1, from, to);
    }

    /// So many warps did.
    #[inline(always)]
    pub(super) fn note_of(&mut self, warps: u64, from: u32, to: u32) {
        // Both are instructions of the program, or its end.
        if let Some(begun) = self.0.get_mut(from as usize) {
            *begun = begun.wrapping_add(warps);
        }
        if let Some(ended) = self.0.get_mut(to as usize) {
            *ended = ended.wrapping_sub(warps);
        }
    }

    /// Where the counts are, for compiled pieces.
    pub(super) fn pointer(&mut self) -> *mut u64 {
        self.0.as_mut_ptr()
    }

    /// The sums of all classes.
    pub(super) fn by_class(&self, program: &Program) -> InstructionCounts {
        let (mut counts, mut times) = (InstructionCounts::default(), 0_u64);
        for (difference, origin) in self.0.iter().zip(&program.origins) {
            times = times.wrapping_add(*difference);
            let count = match origin.class {
                Class::Fp32 => &mut counts.fp32,
                Class::Fp64 => &mut counts.fp64,
                Class::Integer => &mut counts.integer,
                Class::Special => &mut counts.special,
                Class::Memory => &mut counts.memory,
                Class::Shared => &mut counts.shared,
                Class::Tensor => &mut counts.tensor,
                Class::Control => &mut counts.control,
            };
            *count = count.saturating_add(times.saturating_mul(origin.weight.into()));
        }
        counts
    }
}
