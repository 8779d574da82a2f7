//! The accesses that a warp issues behind one that waits.
//!
//! A multiprocessor issues the instructions of a warp in order. So a warp goes on behind a load or a
//! store that misses its page, and later accesses fault together with it, up to the first instruction
//! that needs a value which is not there yet (TIMING-38).
//!
//! Nothing is executed for good: registers get their old values back, and stores write nothing. The walk
//! only finds the accesses. They are executed when the warp gets there.

use super::access::{Blocked, Wanted};
use super::block::Common;
use super::engine::{Engine, guarded};
use super::memory::Kind;
use super::registers::{lanes, lanes_and_lines, leave_lines};
use super::warp::{Fragment, Frame, Warp};
use crate::code::{Access, Code, File, Op, Place, Register, UNGUARDED, WIDTH};

/// The instructions and the waiting accesses after which a walk ends: bounds on work.
const INSTRUCTIONS_MAX: u32 = 256;
const ACCESSES_MAX: u32 = 64;

/// A register as it was, by its index in the warp.
enum Saved {
    Word(usize, [u32; WIDTH]),
    Double(usize, [u64; WIDTH]),
    Predicate(usize, u32),
}

/// The state of a walk.
struct Walk {
    fragment: Fragment,
    saved: Vec<Saved>,
    /// Registers that get their values from loads which wait: the warp stops where it needs one.
    pending: Vec<Register>,
    /// Registers with values that a walk cannot tell, since it makes no store: those that loads read,
    /// and what is calculated from them.
    unknown: Vec<Register>,
}

impl Walk {
    fn is_known(&self, register: Register) -> bool {
        !self.unknown.contains(&register)
    }

    /// Keeps the values of registers that are about to be written.
    fn save(&mut self, warp: &Warp, writes: &[Register]) {
        let Frame { words, doubles, predicates, .. } = self.fragment.frame;
        for register in writes {
            let at = |base: u32| base as usize + usize::from(register.place);
            self.saved.push(match register.file {
                File::Double => Saved::Double(at(doubles), warp.doubles[at(doubles)]),
                File::Predicate => {
                    Saved::Predicate(at(predicates), warp.predicates[at(predicates)])
                }
                _ => Saved::Word(at(words), warp.words[at(words)]),
            });
        }
        self.unknown.retain(|register| !writes.contains(register));
    }

    fn restore(self, warp: &mut Warp) {
        for saved in self.saved.into_iter().rev() {
            match saved {
                Saved::Word(at, value) => warp.words[at] = value,
                Saved::Double(at, value) => warp.doubles[at] = value,
                Saved::Predicate(at, value) => warp.predicates[at] = value,
            }
        }
    }

    /// Whether it is known which lanes execute an instruction.
    fn knows_lanes(&self, op: &Op) -> bool {
        let guard = Register { file: File::Predicate, place: op.guard };
        op.guard == UNGUARDED || self.is_known(guard)
    }

    fn knows_address(&self, op: &Op, access: Access) -> bool {
        let file = if access.wide { File::Double } else { File::Word };
        self.is_known(Register { file, place: op.s[0] })
    }
}

impl Engine<'_> {
    /// Lists the accesses that wait behind a load or a store at which a fragment stopped.
    pub(super) fn look_ahead(&mut self, common: &mut Common, warp: &mut Warp, at: &Fragment) {
        let code = &self.program.ops[at.pc as usize].code;
        if !matches!(code, Code::Store(access) | Code::Load(access) if !access.shared) {
            return;
        }
        let pending = self.program.uses.writes(at.pc).to_vec();
        let (mut lanes, lines) = lanes_and_lines(self.program, warp, &Frame::default(), at.mask);
        lines.fill_all(&mut lanes);
        let (stats, lines, mut fragment) = (*self.reach.stats, lines.clone(), at.clone());
        fragment.pc += 1;
        let mut walk = Walk { fragment, saved: Vec::new(), pending, unknown: Vec::new() };
        self.reach.nth = 1;
        for _ in 0..INSTRUCTIONS_MAX {
            if self.reach.nth > ACCESSES_MAX || !self.pass(common, warp, &mut walk) {
                break;
            }
        }
        self.reach.nth = 0;
        *self.reach.stats = stats;
        warp.lines = lines;
        walk.restore(warp);
    }

    /// Passes an instruction. Returns whether the walk goes on.
    fn pass(&mut self, common: &mut Common, warp: &mut Warp, walk: &mut Walk) -> bool {
        let (program, pc) = (self.program, walk.fragment.pc);
        let Some(op) = program.ops.get(pc as usize) else { return false };
        let (reads, writes) = (program.uses.reads(pc), program.uses.writes(pc));
        if reads.iter().any(|register| walk.pending.contains(register)) || !walk.knows_lanes(op) {
            return false;
        }
        let mask = guarded(op, walk.fragment.mask, || {
            warp.predicates[walk.fragment.frame.predicates as usize + usize::from(op.guard)]
        });
        walk.fragment.pc += 1;
        match op.code {
            Code::Branch(_) if mask == 0 => true,
            Code::Branch(target) => {
                walk.fragment.pc = target;
                mask == walk.fragment.mask
            }
            Code::Pure(_) | Code::Special(_) | Code::FrameAddress { .. } => {
                if !reads.iter().all(|register| walk.is_known(*register)) {
                    walk.unknown.extend(writes);
                    return true;
                }
                walk.save(warp, writes);
                leave_lines(program, warp, &walk.fragment, op, mask);
                if let Code::Pure(run) = op.code {
                    (run.on_lanes)(&mut lanes(program, warp, &walk.fragment.frame, mask), op);
                    return true;
                }
                self.other(common, warp, &mut walk.fragment, op, mask).is_ok()
            }
            // No store of a kernel changes its parameters.
            Code::Load(access) if access.place == Place::Parameter => {
                if !walk.knows_address(op, access) {
                    return false;
                }
                walk.save(warp, writes);
                mask == 0 || self.load(common, warp, &walk.fragment, op, access, mask).is_ok()
            }
            Code::Load(access) | Code::Store(access) => {
                !access.shared
                    && walk.knows_address(op, access)
                    && self.issue(common, warp, walk, (op, access), mask)
            }
            _ => false,
        }
    }

    /// Issues a load or a store, which moves no bytes. Returns whether the walk goes on.
    fn issue(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        walk: &mut Walk,
        (op, access): (&Op, Access),
        mask: u32,
    ) -> bool {
        let writes = self.program.uses.writes(walk.fragment.pc - 1);
        walk.unknown.extend(writes);
        if mask == 0 || !matches!(access.place, Place::Global | Place::Generic) {
            return true;
        }
        let is_load = matches!(op.code, Code::Load(_));
        let kind = if is_load { Kind::Read } else { Kind::Write };
        let wanted = Wanted::of(access, kind, mask);
        leave_lines(self.program, warp, &walk.fragment, op, mask);
        let registers = lanes(self.program, warp, &walk.fragment.frame, mask);
        let addresses = registers.addresses(op.s[0], op.imm, access.wide);
        match self.reach.places(common, warp, &walk.fragment, &addresses, wanted) {
            Ok(_) => true,
            Err(Blocked::Memory) => {
                self.reach.nth += 1;
                walk.pending.extend(writes);
                true
            }
            Err(Blocked::Trap(..)) => false,
        }
    }
}
