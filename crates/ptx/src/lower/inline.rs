//! Functions that take the place of calls to them.
//!
//! A called function has a frame of its own, and the interpreter executes all of it. As a part of its caller it
//! becomes machine code like the rest, and its arguments stay in registers. The driver's compiler does the
//! same.

use super::body::{Body, Rewritten};
use super::builder::MOST_LOCAL;
use super::control::frame_access;
use super::operands::file;
use super::promote::{Promoted, in_frame};
use crate::code::{Call, Code, Constant, Draft, File, Files, MOST_SLOTS, Origin, Slot};

/// The most instructions that a function has with those that it calls.
const MOST: usize = 8192;

/// How many instructions a module grows by at most: so many, and twice its own.
const GROWTH: usize = 1 << 16;

/// The most bytes of an argument or result in memory: each eight of them cost a load and a store.
const MOST_BYTES: u32 = 256;

/// Puts functions in place of calls to them, as far as there is room. Those that call themselves stay.
pub(super) fn inline(bodies: &mut [Body]) {
    let mut room = bodies.iter().map(|body| body.drafts.len() * 2).sum::<usize>() + GROWTH;
    let (order, is_called) = callees_first(bodies);
    let mut forms: Vec<Option<Form>> = bodies.iter().map(|_| None).collect();
    for index in order {
        let body = &mut bodies[index];
        body.inline_calls(&forms, &mut room);
        body.promote(body.takes..body.frame);
        if is_called[index] == Called::ByOthers {
            forms[index] = Form::of(body);
        } else if body.takes == 0 && !body.drafts.iter().any(|draft| in_frame(draft.code)) {
            body.frame = 0;
        }
    }
}

/// Which functions call a function by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Called {
    Never,
    ByOthers,
    /// It reaches itself.
    ByItself,
}

/// The functions, each behind those that it calls if none of these leads back to it.
fn callees_first(bodies: &[Body]) -> (Vec<usize>, Vec<Called>) {
    let mut order = Vec::new();
    let mut called = vec![Called::Never; bodies.len()];
    // Whether a function was begun, and whether it is done.
    let mut state = vec![(false, false); bodies.len()];
    for root in 0..bodies.len() {
        let mut path = vec![(root, 0)];
        while let Some((index, next)) = path.pop() {
            if next == 0 && std::mem::replace(&mut state[index].0, true) {
                continue;
            }
            let Some(call) = bodies[index].calls.get(next) else {
                state[index].1 = true;
                order.push(index);
                continue;
            };
            path.push((index, next + 1));
            let Some(other) = call.function.map(|function| function as usize) else { continue };
            match state[other] {
                (true, false) => called[other] = Called::ByItself,
                (is_begun, _) => {
                    if called[other] == Called::Never {
                        called[other] = Called::ByOthers;
                    }
                    if !is_begun {
                        path.push((other, 0));
                    }
                }
            }
        }
    }
    (order, called)
}

/// A function as a part of its callers.
struct Form {
    body: Body,
    /// Its parameters and results.
    signature: Promoted,
    /// Whether it has something in its frame besides.
    has_frame: bool,
}

impl Form {
    fn of(body: &Body) -> Option<Self> {
        let moves_stack =
            |code| matches!(code, Code::Alloca | Code::StackSave | Code::StackRestore);
        if body.drafts.len() > MOST || body.drafts.iter().any(|draft| moves_stack(draft.code)) {
            return None;
        }
        let mut body = body.clone();
        let signature = body.promote(0..body.takes);
        if signature.kept.iter().any(|&(_, bytes)| bytes > MOST_BYTES) {
            return None;
        }
        let in_memory = !signature.kept.is_empty();
        let has_frame = in_memory || body.drafts.iter().any(|draft| in_frame(draft.code));
        Some(Self { body, signature, has_frame })
    }
}

/// The registers, constants, calls and tables of a function, as its caller counts them.
struct Numbering {
    registers: Files,
    words: Vec<u32>,
    doubles: Vec<u32>,
    calls: u32,
    tables: u32,
    /// Where its frame begins in the caller's.
    frame: u32,
}

impl Numbering {
    fn slot(&self, slot: Slot) -> Slot {
        let index = match slot.file {
            File::Word => slot.index + self.registers.words,
            File::Double => slot.index + self.registers.doubles,
            File::Predicate => slot.index + self.registers.predicates,
            File::ConstantWord => self.words[slot.index as usize],
            File::ConstantDouble => self.doubles[slot.index as usize],
        };
        Slot { index, ..slot }
    }

    /// An instruction of the function, which begins at `start` and ends before `end`.
    fn draft(&self, draft: &Draft, start: u32, end: u32) -> Draft {
        let slots = |slots: &[Slot]| slots.iter().map(|slot| self.slot(*slot)).collect();
        let mut imm = draft.imm;
        let code = match draft.code {
            Code::Branch(target) => Code::Branch(start + target),
            Code::BranchTable(table) => Code::BranchTable(self.tables + table),
            Code::Call(call) => Code::Call(self.calls + call),
            Code::CallIndirect(call) => Code::CallIndirect(self.calls + call),
            Code::Return => Code::Branch(end),
            code => {
                if in_frame(code) {
                    imm = imm.wrapping_add(self.frame.into());
                }
                code
            }
        };
        let guard = draft.guard.map(|(slot, negated)| (self.slot(slot), negated));
        Draft { code, guard, d: slots(&draft.d), s: slots(&draft.s), imm, origin: draft.origin }
    }

    /// A call of the function.
    fn call(&self, call: &Call) -> Call {
        let mut call = call.clone();
        call.arguments.iter_mut().for_each(|(from, _, _)| *from += self.frame);
        call.results.iter_mut().for_each(|(_, to, _)| *to += self.frame);
        call
    }
}

/// A caller that gets functions in place of its calls.
struct Caller<'b> {
    body: &'b mut Body,
    rewritten: Rewritten,
    /// Where the frames of the functions begin that it gets, and where they end.
    begin: u32,
    callees: u32,
    origin: Origin,
}

impl Body {
    /// Puts functions in place of calls.
    fn inline_calls(&mut self, forms: &[Option<Form>], room: &mut usize) {
        let form = |call: u32, body: &Self| {
            let function = body.calls[call as usize].function?;
            forms[function as usize].as_ref()
        };
        let has_form =
            |draft: &Draft| matches!(draft.code, Code::Call(call) if form(call, self).is_some());
        if !self.drafts.iter().any(has_form) {
            return;
        }
        let drafts = std::mem::take(&mut self.drafts);
        let (begin, callees) = (self.frame.next_multiple_of(16), self.frame);
        let rewritten = Rewritten::default();
        let mut caller =
            Caller { body: self, rewritten, begin, callees, origin: Origin::default() };
        let (own, mut behind) = (caller.body.tables.len(), drafts.len());
        for draft in drafts {
            behind -= 1;
            caller.rewritten.next();
            if let Code::Call(call) = draft.code
                && let Some(form) = form(call, caller.body)
                && caller.has_room(form, behind, room)
            {
                caller.splice(&draft, call, form);
            } else {
                caller.rewritten.keep(draft);
            }
        }
        let Caller { rewritten, callees, .. } = caller;
        self.frame = self.frame.max(callees);
        self.drafts = rewritten.finish(&mut self.tables[..own]);
        self.drop_calls();
    }

    /// Forgets the calls that no instruction makes.
    fn drop_calls(&mut self) {
        let mut kept = Vec::new();
        for draft in &mut self.drafts {
            if let Code::Call(call) | Code::CallIndirect(call) = &mut draft.code {
                kept.push(self.calls[*call as usize].clone());
                *call = kept.len() as u32 - 1;
            }
        }
        self.calls = kept;
    }
}

impl Caller<'_> {
    /// Whether a function may take the place of a call, with so many instructions of the caller behind it. If so,
    /// the module has less room.
    fn has_room(&self, form: &Form, behind: usize, room: &mut usize) -> bool {
        let body = &form.body;
        let copies = body.takes as usize + 1;
        let grows = body.drafts.len() + copies;
        let all = self.rewritten.drafts.len() + grows + behind;
        let slots = self.body.most_slots() + body.most_slots() + copies;
        let frame = if form.has_frame { body.frame } else { 0 };
        let fits = all <= MOST
            && slots <= MOST_SLOTS as usize
            && self.begin + frame <= MOST_LOCAL
            && grows <= *room;
        if fits {
            *room -= grows;
        }
        fits
    }

    /// Puts a function in place of a call.
    fn splice(&mut self, site: &Draft, call: u32, form: &Form) {
        self.origin = Origin { weight: 0, ..site.origin };
        let skip = site.guard.map(|(slot, negated)| {
            self.push(Code::Branch(0), &[], &[], 0);
            let at = self.rewritten.drafts.len() - 1;
            self.rewritten.drafts[at].guard = Some((slot, !negated));
            at
        });
        let numbering = self.number(form);
        let Call { arguments, results, .. } = self.body.calls[call as usize].clone();
        for (from, to, bytes) in arguments {
            for cell in form.signature.within(to..to + bytes) {
                let at = u64::from(from + (cell.at - to));
                self.load(numbering.slot(cell.slot), at);
            }
            if form.signature.keeps(to) {
                self.copy(from, numbering.frame + to, bytes);
            }
        }
        let drafts = &form.body.drafts[..];
        let drafts = match drafts {
            [rest @ .., Draft { code: Code::Return, guard: None, .. }] => rest,
            all => all,
        };
        let start = self.rewritten.drafts.len() as u32;
        let end = start + drafts.len() as u32;
        self.rewritten.drafts.extend(drafts.iter().map(|draft| numbering.draft(draft, start, end)));
        let tables = form.body.tables.iter();
        let tables = tables.map(|table| table.iter().map(|target| start + target).collect());
        self.body.tables.extend(tables);
        for (from, to, bytes) in results {
            for cell in form.signature.within(from..from + bytes) {
                let at = u64::from(to + (cell.at - from));
                self.store(numbering.slot(cell.slot), at);
            }
            if form.signature.keeps(from) {
                self.copy(numbering.frame + from, to, bytes);
            }
        }
        if let Some(at) = skip {
            self.rewritten.drafts[at].code = Code::Branch(self.rewritten.drafts.len() as u32);
        }
    }

    /// Counts what a function has on from what its caller has.
    fn number(&mut self, form: &Form) -> Numbering {
        let Form { body: callee, has_frame, .. } = form;
        let registers = self.body.counts;
        let Files { words, doubles, predicates } = callee.counts;
        self.body.counts = Files {
            words: registers.words + words,
            doubles: registers.doubles + doubles,
            predicates: registers.predicates + predicates,
        };
        let words =
            callee.words.iter().map(|&word| self.body.constant(word, false).index).collect();
        let doubles =
            callee.doubles.iter().map(|&double| self.body.constant(double, true).index).collect();
        let body = &mut *self.body;
        let frame = self.begin;
        if *has_frame {
            self.callees = self.callees.max(frame + callee.frame);
        }
        let (calls, tables) = (body.calls.len() as u32, body.tables.len() as u32);
        let numbering = Numbering { registers, words, doubles, calls, tables, frame };
        body.calls.extend(callee.calls.iter().map(|call| numbering.call(call)));
        body.indirect |= callee.indirect;
        numbering
    }

    fn push(&mut self, code: Code, d: &[Slot], s: &[Slot], imm: u64) {
        let (d, s, origin) = (d.to_vec(), s.to_vec(), self.origin);
        self.rewritten.drafts.push(Draft { code, guard: None, d, s, imm, origin });
    }

    /// Loads a register from the caller's frame.
    fn load(&mut self, to: Slot, at: u64) {
        let base = self.body.constant(ZERO, true);
        self.push(Code::Load(frame_access(bits(to))), &[to], &[base], at);
    }

    /// Stores a register there.
    fn store(&mut self, from: Slot, at: u64) {
        let base = self.body.constant(ZERO, true);
        self.push(Code::Store(frame_access(bits(from))), &[], &[base, from], at);
    }

    /// Copies bytes within the frame.
    fn copy(&mut self, from: u32, to: u32, bytes: u32) {
        let base = self.body.constant(ZERO, true);
        let mut done = 0;
        while done < bytes {
            let (from, to) = (from + done, to + done);
            let size = 1 << (from | to | 8).trailing_zeros().min((bytes - done).ilog2());
            let slot = self.body.register(file(size * 8));
            let access = frame_access(size * 8);
            self.push(Code::Load(access), &[slot], &[base], from.into());
            self.push(Code::Store(access), &[], &[base, slot], to.into());
            done += size;
        }
    }
}

/// The base of accesses to the frame.
const ZERO: Constant = Constant::Bits(0);

/// The bits of a register.
fn bits(slot: Slot) -> u32 {
    if slot.file == File::Double { 64 } else { 32 }
}
