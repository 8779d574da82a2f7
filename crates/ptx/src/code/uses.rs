//! The registers that each instruction reads and writes.

use super::file::File;
use super::op::{Draft, Slot};

/// A register by its file, and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Register {
    /// Never that of constants.
    pub(crate) file: File,
    pub(crate) place: u16,
}

impl Register {
    fn of(slot: Slot) -> Option<Self> {
        let register = Self { file: slot.file, place: slot.encoded() };
        (!slot.is_constant()).then_some(register)
    }
}

/// The registers of instructions, by their positions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uses {
    registers: Vec<Register>,
    /// Where the registers of each instruction end: those that it reads, then those that it writes.
    ends: Vec<[u32; 2]>,
}

impl Uses {
    /// The registers of instructions that have their places.
    pub(crate) fn of(drafts: &[Draft]) -> Self {
        let mut uses = Self::default();
        for draft in drafts {
            let guard = draft.guard.iter().map(|(slot, _)| slot);
            // Lanes that a guard holds back keep their old value.
            let kept = draft.d.iter().filter(|_| draft.guard.is_some());
            let reads = draft.s.iter().chain(guard).chain(kept);
            uses.registers.extend(reads.filter_map(|slot| Register::of(*slot)));
            let read = uses.registers.len() as u32;
            uses.registers.extend(draft.d.iter().filter_map(|slot| Register::of(*slot)));
            uses.ends.push([read, uses.registers.len() as u32]);
        }
        uses
    }

    /// Adds those of the instructions that follow.
    pub(crate) fn append(&mut self, others: &Self) {
        let before = self.registers.len() as u32;
        self.registers.extend(&others.registers);
        self.ends.extend(others.ends.iter().map(|ends| ends.map(|end| end + before)));
    }

    /// The registers that an instruction reads. A guarded one reads what it writes, too.
    pub(crate) fn reads(&self, position: u32) -> &[Register] {
        let begin = position.checked_sub(1).map_or(0, |before| self.ends[before as usize][1]);
        &self.registers[begin as usize..self.ends[position as usize][0] as usize]
    }

    /// The registers that an instruction writes.
    pub(crate) fn writes(&self, position: u32) -> &[Register] {
        let [begin, end] = self.ends[position as usize];
        &self.registers[begin as usize..end as usize]
    }
}
