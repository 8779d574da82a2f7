//! The registers with values that a kernel still reads, at each of its instructions.

use crate::code::{Code, File, Program, Register, UNGUARDED};

/// Bits beyond which all registers count as live: hostile programs cost no more.
const MOST_BITS: usize = 1 << 26;
/// The most walks over the instructions, likewise. Each goes through a level of nested loops.
const MOST_WALKS: usize = 64;

/// The live registers of a kernel, by position. A piece need not write the others.
#[derive(Debug)]
pub(crate) struct Live {
    /// Behind the words come the doubles, and then the predicates.
    doubles: usize,
    predicates: usize,
    /// The words of 64 bits of a position's set.
    each: usize,
    /// Empty if all registers count as live.
    sets: Vec<u64>,
    /// The registers that are live at the start of the kernel; `None` if all count so.
    at_start: Option<Vec<Register>>,
}

impl Live {
    pub(super) fn of(program: &Program) -> Self {
        let kernel = &program.functions[0];
        let end = program.functions.get(1).map_or(program.ops.len(), |next| next.start as usize);
        let doubles = kernel.files.words as usize;
        let predicates = doubles + kernel.files.doubles as usize;
        let each = (predicates + kernel.files.predicates as usize).div_ceil(64);
        let sets = Vec::new();
        let mut live = Self { doubles, predicates, each, sets, at_start: None };
        if (end + 1).saturating_mul(each).saturating_mul(64) > MOST_BITS {
            return live;
        }
        let always = live.parts_of_matrices(program, end);
        live.sets = always.repeat(end + 1);
        let settles = (0..MOST_WALKS).any(|_| !live.walk(program, end));
        if !settles {
            live.sets.clear();
        }
        live.at_start = live.set(kernel.start).map(|set| live.registers(set));
        live
    }

    /// The registers that the kernel may read before it writes them, if they are known.
    #[inline(always)]
    pub(super) fn at_start(&self) -> Option<&[Register]> {
        self.at_start.as_deref()
    }

    fn set(&self, position: u32) -> Option<&[u64]> {
        self.sets.chunks_exact(self.each.max(1)).nth(position as usize)
    }

    /// Whether the value that a register has before an instruction may be read.
    pub(super) fn holds(&self, position: u32, register: Register) -> bool {
        let Some(set) = self.set(position) else { return true };
        self.bit(register).is_none_or(|bit| set[bit / 64] >> (bit % 64) & 1 != 0)
    }

    /// The registers of a set.
    fn registers(&self, set: &[u64]) -> Vec<Register> {
        let bits = (0..64 * set.len()).filter(|bit| set[bit / 64] >> (bit % 64) & 1 != 0);
        let register = |bit: usize| {
            let (file, first) = match bit {
                _ if bit >= self.predicates => (File::Predicate, self.predicates),
                _ if bit >= self.doubles => (File::Double, self.doubles),
                _ => (File::Word, 0),
            };
            Register { file, place: (bit - first) as u16 }
        };
        bits.map(register).collect()
    }

    fn bit(&self, register: Register) -> Option<usize> {
        let place = usize::from(register.place);
        match register.file {
            File::Word => Some(place),
            File::Double => Some(self.doubles + place),
            File::Predicate => Some(self.predicates + place),
            File::ConstantWord | File::ConstantDouble => None,
        }
    }

    /// Registers that instructions on matrices read: they look at all lanes, and so at values of lanes that
    /// have ended.
    fn parts_of_matrices(&self, program: &Program, end: usize) -> Vec<u64> {
        let mut set = vec![0; self.each];
        for (position, op) in program.ops[..end].iter().enumerate() {
            if !op.code.is_of_matrices() {
                continue;
            }
            for bit in program.uses.reads(position as u32).iter().filter_map(|r| self.bit(*r)) {
                set[bit / 64] |= 1 << (bit % 64);
            }
        }
        set
    }

    /// Goes from the last instruction to the first. Returns whether a set has grown.
    fn walk(&mut self, program: &Program, end: usize) -> bool {
        let mut has_grown = false;
        let mut set = vec![0; self.each];
        for position in (0..end).rev() {
            let op = &program.ops[position];
            set.fill(0);
            let falls = op.guard != UNGUARDED
                || !matches!(
                    op.code,
                    Code::Branch(_) | Code::BranchTable(_) | Code::Return | Code::Exit
                );
            if falls {
                self.join(&mut set, position + 1);
            }
            match op.code {
                Code::Branch(target) => self.join(&mut set, target as usize),
                Code::BranchTable(table) => {
                    for &target in &program.tables[table as usize] {
                        self.join(&mut set, target as usize);
                    }
                }
                _ => {}
            }
            let uses = &program.uses;
            for bit in uses.writes(position as u32).iter().filter_map(|r| self.bit(*r)) {
                set[bit / 64] &= !(1 << (bit % 64));
            }
            for bit in uses.reads(position as u32).iter().filter_map(|r| self.bit(*r)) {
                set[bit / 64] |= 1 << (bit % 64);
            }
            let old = &mut self.sets[position * self.each..][..self.each];
            for (old, new) in old.iter_mut().zip(&set) {
                has_grown |= *new & !*old != 0;
                *old |= new;
            }
        }
        has_grown
    }

    fn join(&self, set: &mut [u64], position: usize) {
        if let Some(other) = self.sets.get(position * self.each..).and_then(|s| s.get(..self.each))
        {
            for (set, other) in set.iter_mut().zip(other) {
                *set |= other;
            }
        }
    }
}
