//! Lowered functions, before their registers have places.

use std::collections::HashMap;

use crate::code::{
    Call, Code, Constant, Draft, File, Files, Function, MOST_SLOTS, Op, Set, Slot, UNGUARDED, Uses,
    allocate,
};

/// A lowered function before its registers have places. Jumps name positions.
#[derive(Debug, Clone, Default)]
pub(super) struct Body {
    pub(super) drafts: Vec<Draft>,
    pub(super) tables: Vec<Vec<u32>>,
    pub(super) calls: Vec<Call>,
    pub(super) words: Vec<Constant>,
    pub(super) doubles: Vec<Constant>,
    /// The indices of constants, by whether they are doubles.
    known: HashMap<(bool, Constant), u32>,
    pub(super) counts: Files,
    pub(super) frame: u32,
    /// The bytes of the parameters and results, with which the frame begins.
    pub(super) takes: u32,
    /// The variables of parameters in the frame, those of its calls too: where, and how many bytes.
    pub(super) variables: Vec<(u32, u32)>,
    pub(super) shared: Vec<u32>,
    pub(super) references: Vec<u32>,
    pub(super) indirect: bool,
}

impl Body {
    /// Resolves labels.
    pub(super) fn resolve(&mut self, positions: &[u32]) {
        for draft in &mut self.drafts {
            if let Code::Branch(label) = &mut draft.code {
                *label = positions[*label as usize];
            }
        }
        for label in self.tables.iter_mut().flatten() {
            *label = positions[*label as usize];
        }
    }

    /// A constant's slot.
    pub(super) fn constant(&mut self, constant: Constant, wide: bool) -> Slot {
        match constant {
            Constant::Shared(index, _) if !self.shared.contains(&index) => self.shared.push(index),
            Constant::Function(index) if !self.references.contains(&index) => {
                self.references.push(index)
            }
            _ => {}
        }
        let (list, file) = if wide {
            (&mut self.doubles, File::ConstantDouble)
        } else {
            (&mut self.words, File::ConstantWord)
        };
        let index = *self.known.entry((wide, constant)).or_insert_with(|| {
            list.push(constant);
            list.len() as u32 - 1
        });
        Slot { file, index }
    }

    /// How many registers and constants of a kind it has at most, before registers share places.
    pub(super) fn most_slots(&self) -> usize {
        let Files { words, doubles, predicates } = self.counts;
        let registers = words.max(doubles).max(predicates) as usize;
        registers.max(self.words.len()).max(self.doubles.len())
    }

    /// A register of its own.
    pub(super) fn register(&mut self, file: File) -> Slot {
        self.counts.next(file)
    }

    /// Gives registers their places, and packs the instructions. A function with more registers or constants
    /// than slots can name is refused.
    pub(super) fn finish(mut self) -> Result<Function, String> {
        self.counts = allocate(&mut self.drafts, &self.tables, self.counts);
        if self.most_slots() > MOST_SLOTS as usize {
            return Err(format!(
                "a function has at most {MOST_SLOTS} registers and constants of a kind"
            ));
        }
        Ok(Function {
            ops: self.drafts.iter().map(pack).collect(),
            origins: self.drafts.iter().map(|draft| draft.origin).collect(),
            uses: Uses::of(&self.drafts),
            words: self.words,
            doubles: self.doubles,
            calls: self.calls,
            tables: self.tables,
            files: self.counts,
            frame: self.frame.next_multiple_of(16),
            shared: self.shared,
            references: self.references,
            indirect: self.indirect,
        })
    }
}

/// Instructions that take the place of a function's.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    pub(super) drafts: Vec<Draft>,
    /// Where each instruction of before is now, or what took its place.
    places: Vec<u32>,
    /// The jumps that were kept: they name places of before.
    jumps: Vec<usize>,
}

impl Rewritten {
    /// Takes the place of the next instruction.
    pub(super) fn next(&mut self) {
        self.places.push(self.drafts.len() as u32);
    }

    /// Keeps the instruction.
    pub(super) fn keep(&mut self, draft: Draft) {
        if matches!(draft.code, Code::Branch(_)) {
            self.jumps.push(self.drafts.len());
        }
        self.drafts.push(draft);
    }

    /// The instructions, with jumps to where their targets are now. The tables are those of before.
    pub(super) fn finish(mut self, tables: &mut [Vec<u32>]) -> Vec<Draft> {
        for at in self.jumps {
            if let Code::Branch(target) = &mut self.drafts[at].code {
                *target = self.places[*target as usize];
            }
        }
        for target in tables.iter_mut().flatten() {
            *target = self.places[*target as usize];
        }
        self.drafts
    }
}

fn pack(draft: &Draft) -> Op {
    // Of several registers, those that never hold lines do not count.
    let set = |slots: &[Slot]| {
        let each = slots.iter().filter_map(|slot| Slot::set(&[*slot]));
        each.fold(Set::default(), Set::with)
    };
    let first = |slots: &[Slot]| {
        let mut packed = [0; 4];
        for (place, slot) in packed.iter_mut().zip(slots) {
            *place = slot.encoded();
        }
        packed
    };
    let rest = |slots: &[Slot]| slots.iter().skip(4).map(|slot| slot.encoded()).collect::<Vec<_>>();
    let more = (draft.d.len() > 4 || draft.s.len() > 4)
        .then(|| Box::new((rest(&draft.d), rest(&draft.s))));
    let (reads, writes) = (Slot::set(&draft.s), Slot::set(&draft.d));
    let mut code = draft.code;
    if let (Code::Pure(run), true) = (&mut code, reads.is_none() || writes.is_none()) {
        run.on_lines = None;
    }
    Op {
        code,
        guard: draft.guard.map_or(UNGUARDED, |(slot, _)| slot.encoded()),
        negated: draft.guard.is_some_and(|(_, negated)| negated),
        d: first(&draft.d),
        s: first(&draft.s),
        more,
        imm: draft.imm,
        reads: set(&draft.s),
        data: set(draft.s.get(1..).unwrap_or_default()),
        writes: set(&draft.d),
    }
}
