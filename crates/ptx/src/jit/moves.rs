//! Loads and stores of a piece: runs from the first lane's address on, other lanes in one piece of memory,
//! and those that the interpreter carries out.

use cranelift_codegen::ir::Value;

use super::access::Run;
use super::places::Places;
use super::segment::{Made, Store};
use super::sites::Wanted;
use super::translate::{Holds, Translate};
use super::value::LineOf;
use crate::code::{Access, File, Op, Place, Register, UNGUARDED, WIDTH};

impl Translate<'_, '_> {
    /// The lines of an access' addresses, one or two, and its run, if compiled code moves its bytes.
    fn run(&mut self, op: &Op, access: Access, is_store: bool) -> Option<(Vec<LineOf>, Run)> {
        let file = if access.wide { File::Double } else { File::Word };
        let lines = match self.holds(file, op.s[0]).1 {
            Holds::Line(line) => vec![line],
            Holds::Halves(halves) => halves.to_vec(),
            _ => return None,
        };
        let is_near = match access.place {
            Place::Shared => true,
            Place::Global | Place::Generic => access.wide,
            Place::Parameter => lines.len() == 1 && lines[0].constant.is_some() && !is_store,
            Place::Local | Place::Frame | Place::Cluster => false,
        };
        let run = Run::of(access, lines[0].step, is_store)?;
        // A row of a part of a warp has holes.
        let is_whole = self.emit.part.is_none() || run == Run::Same;
        (is_whole && is_near && op.guard == UNGUARDED).then_some((lines, run))
    }

    /// Where the bytes of a run are, for each half of the warp; `None` if compiled code does not find them.
    fn bytes(
        &mut self,
        op: &Op,
        access: Access,
        (lines, run): (&[LineOf], Run),
        writes: bool,
    ) -> Option<[Value; 2]> {
        let align = access.all_bytes();
        if access.place == Place::Parameter {
            let offset = lines[0].constant?.wrapping_add(op.imm);
            let last = u64::from(self.task.observed.param_bytes().checked_sub(align)?);
            let is_there = offset <= last && offset % u64::from(align) == 0 && run == Run::Same;
            return is_there.then(|| [self.emit.parameter(offset); 2]);
        }
        match (access.place, writes) {
            (Place::Shared, _) => {}
            (_, false) => self.segment.read += align,
            (_, true) => self.segment.written += align,
        }
        let bytes = run.span(access, WIDTH / lines.len());
        let mut found = lines.iter().map(|line| {
            let address = self.emit.address(*line, op.imm, access.wide);
            let (site, at) = (self.sites, self.begins);
            self.sites += 1;
            let wanted = Wanted { place: access.place, bytes, align, writes, site, at };
            self.emit.span(address, wanted)
        });
        let first = found.next()?;
        let second = found.next();
        Some([first, second.unwrap_or_else(|| self.emit.upper_half(first, access, run))])
    }

    /// An access of lanes with addresses of their own.
    fn places(&mut self, op: &Op, access: Access, position: u32, is_store: bool) {
        if !Places::are_compiled(access, op.imm) {
            return self.by_interpreter(op, position);
        }
        let is_guarded = op.guard != UNGUARDED;
        if is_guarded && !is_store {
            // Some lanes keep what they hold.
            for element in 0..usize::from(access.count) {
                self.fill_lanes(result(op, access, element));
            }
        }
        self.write(position);
        let address = self.source(if access.wide { File::Double } else { File::Word }, op.s[0]);
        let elements = 0..usize::from(access.count);
        let (mut loads, mut stores) = (Vec::new(), Vec::new());
        for element in elements {
            if is_store {
                stores.push(self.source(file_of(access, element), op.source(element + 1)));
            } else {
                loads.push(result(op, access, element));
            }
        }
        let (site, imm) = (self.sites, op.imm);
        self.sites += u32::from(access.place.is_callers());
        let (loads, stores) = (&loads[..], &stores[..]);
        let places = Places { access, imm, address, loads, stores, site, position };
        let is_some = is_guarded || self.emit.part.is_some();
        let some = is_some.then(|| self.guarded_lanes(op, position));
        self.emit.places(&places, some);
        self.go_on_with(loads, position);
    }

    /// The lanes that execute an instruction.
    pub(super) fn guarded_lanes(&mut self, op: &Op, position: u32) -> Value {
        let lanes = self.emit.lanes();
        if op.guard == UNGUARDED {
            return lanes;
        }
        let guard = self.mask(op.guard, position).value;
        match op.negated {
            true => self.emit.lanes_but(guard),
            false => self.emit.both(lanes, guard),
        }
    }

    pub(super) fn load(&mut self, op: &Op, access: Access, position: u32) {
        let Some((lines, run)) = self.run(op, access, false) else {
            return self.places(op, access, position, false);
        };
        if !self.segment.stores.is_empty() {
            self.write(position);
        }
        let Some(from) = self.bytes(op, access, (&lines, run), false) else {
            return self.by_interpreter(op, position);
        };
        for element in 0..usize::from(access.count) {
            let register = result(op, access, element);
            if run == Run::Row {
                let at = self.segment.make(Made::Rows(from, register.file == File::Double));
                self.set_made(register, at);
                continue;
            }
            let mut load = |from| LineOf::same(self.emit.load_same(access, from, element));
            match lines.len() {
                1 => {
                    let line = load(from[0]);
                    self.set_line(register, line);
                }
                _ => {
                    let halves = from.map(load);
                    self.set_halves(register, halves);
                }
            }
        }
    }

    pub(super) fn store(&mut self, op: &Op, access: Access, position: u32) {
        let found = self.run(op, access, true);
        let to = found.and_then(|(lines, run)| self.bytes(op, access, (&lines, run), true));
        let Some(to) = to else {
            return self.places(op, access, position, true);
        };
        let from = self.source(file_of(access, 0), op.source(1));
        self.segment.stores.push(Store { to, from });
    }
}

/// The file of an element's register.
fn file_of(access: Access, element: usize) -> File {
    match access.doubles >> element & 1 {
        0 => File::Word,
        _ => File::Double,
    }
}

/// The register that an element is loaded to.
fn result(op: &Op, access: Access, element: usize) -> Register {
    Register { file: file_of(access, element), place: op.result(element) }
}
