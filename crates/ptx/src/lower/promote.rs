//! Variables of parameters that become registers.
//!
//! A call stores its arguments in variables of `.param` and loads its results from others. Where the call
//! itself is gone, such a variable is a register that has a name in memory: its parts are read and written
//! whole, and nothing takes its address.

use std::collections::BTreeMap;
use std::ops::Range;

use super::body::{Body, Rewritten};
use super::logic::copy_of;
use crate::code::{Access, Code, Constant, Draft, File, Origin, Place, Slot};

/// A part of a variable, and the register that it has become.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) at: u32,
    pub(super) slot: Slot,
}

/// The registers and the memory that variables have become.
#[derive(Debug, Clone, Default)]
pub(super) struct Promoted {
    /// The registers, by their places in the frame.
    pub(super) cells: Vec<Cell>,
    /// The variables that stay in memory: where, and how many bytes.
    pub(super) kept: Vec<(u32, u32)>,
}

/// A variable, as far as its accesses are known.
struct Variable {
    begin: u64,
    end: u64,
    /// Whether each access is of one cell, and the address is not taken.
    is_whole: bool,
    /// The bytes of each cell.
    cells: BTreeMap<u64, u8>,
}

impl Variable {
    /// Notes an access to some bytes of the variable, which a register of as many bytes holds or not.
    fn note(&mut self, at: u64, bytes: u8, fits: bool) {
        let end = at.saturating_add(bytes.into());
        let is_apart = |(&other, &size): (&u64, &u8)| {
            (other, size) == (at, bytes) || other >= end || other + u64::from(size) <= at
        };
        let before = self.cells.range(..=at).next_back();
        let behind = self.cells.range(at..).next();
        let is_inside = self.begin <= at && end <= self.end;
        self.is_whole &=
            fits && is_inside && before.is_none_or(is_apart) && behind.is_none_or(is_apart);
        if self.is_whole {
            self.cells.insert(at, bytes);
        }
    }
}

/// The variables of a part of a frame, in order.
struct Variables(Vec<Variable>);

impl Variables {
    fn within(body: &Body, part: &Range<u32>) -> Self {
        let inside = body.variables.iter().filter(|(at, _)| part.contains(at));
        let mut all: Vec<Variable> = inside
            .map(|&(at, bytes)| Variable {
                begin: at.into(),
                end: u64::from(at) + u64::from(bytes),
                is_whole: true,
                cells: BTreeMap::new(),
            })
            .collect();
        all.sort_by_key(|variable| variable.begin);
        Self(all)
    }

    /// The variables that bytes are in, in part.
    fn at(&mut self, begin: u64, end: u64) -> &mut [Variable] {
        let first = self.0.partition_point(|variable| variable.end <= begin);
        let many = self.0[first..].partition_point(|variable| variable.begin < end);
        &mut self.0[first..first + many]
    }

    /// The variables that bytes are in stay in memory.
    fn keep(&mut self, begin: u64, end: u64) {
        self.at(begin, end).iter_mut().for_each(|variable| variable.is_whole = false);
    }

    /// Notes what an instruction does. Returns whether its accesses are known.
    fn note(&mut self, body: &Body, draft: &Draft) -> bool {
        let at = draft.imm;
        match draft.code {
            // A pointer may be one behind the variable.
            Code::FrameAddress { .. } => self.keep(at.saturating_sub(1), at.saturating_add(1)),
            Code::Load(access) | Code::Store(access) if access.place == Place::Frame => {
                let base =
                    draft.s.first().map(|base| (base.file, body.doubles.get(base.index as usize)));
                let Some((File::ConstantDouble, Some(Constant::Bits(0)))) = base else {
                    return false;
                };
                let bytes = u64::from(access.bytes);
                let end = at.saturating_add(access.all_bytes().into());
                if self.at(at, end).len() > 1 {
                    self.keep(at, end);
                }
                for (slot, index) in elements(draft, access).iter().zip(0..) {
                    let at = at.saturating_add(bytes * index);
                    for variable in self.at(at, at.saturating_add(bytes)) {
                        variable.note(at, access.bytes, fits(*slot, access.bytes));
                    }
                }
            }
            Code::Call(call) | Code::CallIndirect(call) => {
                let call = &body.calls[call as usize];
                let arguments = call.arguments.iter().map(|&(from, _, bytes)| (from, bytes));
                let results = call.results.iter().map(|&(_, to, bytes)| (to, bytes));
                for (at, bytes) in arguments.chain(results) {
                    self.keep(at.into(), u64::from(at) + u64::from(bytes));
                }
            }
            code => return !in_frame(code),
        }
        true
    }
}

/// The registers of an access, element by element.
fn elements(draft: &Draft, access: Access) -> &[Slot] {
    let slots = if matches!(draft.code, Code::Load(_)) { &draft.d[..] } else { &draft.s[1..] };
    &slots[..slots.len().min(access.count.into())]
}

/// Whether a register has just so many bytes.
fn fits(slot: Slot, bytes: u8) -> bool {
    match slot.file {
        File::Word | File::ConstantWord => bytes == 4,
        File::Double | File::ConstantDouble => bytes == 8,
        File::Predicate => false,
    }
}

/// Whether an instruction accesses the frame.
pub(super) fn in_frame(code: Code) -> bool {
    match code {
        Code::Load(Access { place, .. })
        | Code::Store(Access { place, .. })
        | Code::Matrix(place, _)
        | Code::Mbarrier { place, .. } => place == Place::Frame,
        Code::Atomic(atomic) => atomic.place == Place::Frame,
        Code::AtomicPair(atomic) => atomic.place == Place::Frame,
        Code::Tiles(tiles) => tiles.place == Place::Frame,
        Code::Bulk(bulk) => bulk.to == Place::Frame || bulk.from == Place::Frame,
        Code::FrameAddress { .. } | Code::Call(_) | Code::CallIndirect(_) => true,
        _ => false,
    }
}

impl Body {
    /// Makes registers of the variables of parameters that begin in a part of the frame, where it can.
    pub(super) fn promote(&mut self, part: Range<u32>) -> Promoted {
        let mut variables = Variables::within(self, &part);
        if variables.0.is_empty() {
            return Promoted::default();
        }
        if !self.drafts.iter().all(|draft| variables.note(self, draft)) {
            variables.keep(0, u64::MAX);
        }
        let mut promoted = Promoted::default();
        for variable in &variables.0 {
            let (begin, end) = (variable.begin as u32, variable.end as u32);
            if !variable.is_whole {
                promoted.kept.push((begin, end - begin));
                continue;
            }
            for (&at, &bytes) in &variable.cells {
                let slot = self.register(if bytes == 8 { File::Double } else { File::Word });
                promoted.cells.push(Cell { at: at as u32, slot });
            }
        }
        if !promoted.cells.is_empty() {
            self.access_cells(&promoted);
        }
        promoted
    }

    /// Accesses registers in place of the memory that they were.
    fn access_cells(&mut self, promoted: &Promoted) {
        let mut rewritten = Rewritten::default();
        for draft in std::mem::take(&mut self.drafts) {
            rewritten.next();
            match draft.code {
                Code::Load(access) | Code::Store(access)
                    if access.place == Place::Frame && promoted.at(draft.imm).is_some() =>
                {
                    for (&slot, index) in elements(&draft, access).iter().zip(0..) {
                        let at = draft.imm + u64::from(access.bytes) * index;
                        let Some(cell) = promoted.at(at) else { continue };
                        let is_load = matches!(draft.code, Code::Load(_));
                        let (to, from) = if is_load { (slot, cell) } else { (cell, slot) };
                        rewritten.drafts.push(Draft {
                            code: Code::Pure(copy_of(to.file)),
                            d: vec![to],
                            s: vec![from],
                            imm: 0,
                            // A GPU passes values in registers.
                            origin: Origin { weight: 0, ..draft.origin },
                            guard: draft.guard,
                        });
                    }
                }
                _ => rewritten.keep(draft),
            }
        }
        self.drafts = rewritten.finish(&mut self.tables);
    }
}

impl Promoted {
    /// The register of the cell at an offset of the frame.
    fn at(&self, offset: u64) -> Option<Slot> {
        let at = u32::try_from(offset).ok()?;
        let index = self.cells.binary_search_by_key(&at, |cell| cell.at).ok()?;
        Some(self.cells[index].slot)
    }

    /// The cells of some bytes.
    pub(super) fn within(&self, bytes: Range<u32>) -> &[Cell] {
        let first = self.cells.partition_point(|cell| cell.at < bytes.start);
        let many = self.cells[first..].partition_point(|cell| cell.at < bytes.end);
        &self.cells[first..first + many]
    }

    /// Whether the variable at an offset stays in memory.
    pub(super) fn keeps(&self, at: u32) -> bool {
        self.kept.binary_search_by_key(&at, |&(begin, _)| begin).is_ok()
    }
}
