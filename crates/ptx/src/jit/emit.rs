//! The parts of a piece that are the same for all instructions: addresses of the state, checks, exits.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Block, Endianness, InstBuilder, MemFlags, SigRef, Signature, Type, Value, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::FunctionBuilder;

use super::detour::Leg;
use super::register::key;
use super::sites::Wanted;
use super::state::{Behind, Calls, Exchange, Left, Of, Own, STOPPED, State, UNFIT};
use super::value::{Group, Round};
use crate::code::{Axis, File, Place, Register, WIDTH};

/// Vectors of four words, and of two doubles.
pub(super) const WORDS: Type = types::I32X4;
pub(super) const DOUBLES: Type = types::I64X2;

/// The type of vectors of a width.
pub(super) const fn vector_of(is_double: bool) -> Type {
    if is_double { DOUBLES } else { WORDS }
}

/// Makes the code of one piece.
pub(super) struct Emit<'f> {
    pub(super) build: FunctionBuilder<'f>,
    state: Value,
    /// The warp that runs, and where the next one begins.
    warp: Value,
    again: Block,
    /// Where whole warps go on that come to a barrier or to their end, once one does.
    come: Option<Block>,
    words: Value,
    doubles: Value,
    predicates: Value,
    line_words: Value,
    line_doubles: Value,
    calls: Calls,
    instruction: SigRef,
    exchange: SigRef,
    pub(super) fused: SigRef,
    span: SigRef,
    /// The first instruction of the extent.
    start: u32,
    /// The lanes that run, in a piece for parts of warps or in a detour.
    pub(super) part: Option<Value>,
    /// The leg of a detour that is translated.
    pub(super) leg: Option<Leg>,
    /// Its temporaries, which are written for all lanes.
    pub(super) temporaries: BTreeSet<(u8, u16)>,
    /// Whether the registers are known to be as the piece expects them.
    pub(super) is_entered: bool,
    /// The instruction that is translated.
    pub(super) position: u32,
    /// Whether its result is no line where only a run can tell.
    pub(super) is_cautious: bool,
    /// The steps from the first lane to the last one of a line: of a warp, or of half a warp.
    pub(super) steps: i64,
    /// Floats of 32 bits before the canonical NaN took the place of others.
    pub(super) any_nan: HashMap<Value, Value>,
    /// Vectors of floats of 32 bits that hold no subnormal.
    pub(super) no_subnormal: HashSet<Value>,
}

/// Memory of the interpreter, which is there.
pub(super) fn plain() -> MemFlags {
    MemFlags::new().with_notrap()
}

/// Memory of programs, which may lie anywhere and be used by other threads.
pub(super) fn foreign() -> MemFlags {
    MemFlags::new()
}

impl<'f> Emit<'f> {
    /// Begins a function with the state as its argument.
    pub(super) fn new(
        mut build: FunctionBuilder<'f>,
        calls: Calls,
        convention: CallConv,
        (of, start): (Of, u32),
    ) -> Self {
        let entry = build.create_block();
        build.append_block_params_for_function_params(entry);
        build.switch_to_block(entry);
        let state = build.block_params(entry)[0];
        let signature = |arguments: &[Type], result: Option<Type>| Signature {
            params: arguments.iter().map(|kind| AbiParam::new(*kind)).collect(),
            returns: result.into_iter().map(AbiParam::new).collect(),
            call_conv: convention,
        };
        let (i32, i64) = (types::I32, types::I64);
        let instruction = build.import_signature(signature(&[i64, i32, i32], Some(i32)));
        let exchange = build.import_signature(signature(&[i64, i64, i32, i32], Some(i32)));
        let span = [i64, i64, i32, i32, i32, i32];
        let span = build.import_signature(signature(&span, Some(i64)));
        let fused = build.import_signature(signature(&[i64], None));
        let again = build.create_block();
        build.ins().jump(again, &[]);
        build.switch_to_block(again);
        let warp = build.ins().load(i64, plain(), state, offset_of!(State, warp) as i32);
        let mut field =
            |of: Value, offset: usize| build.ins().load(i64, plain(), of, offset as i32);
        let words = field(warp, offset_of!(Own, words));
        let doubles = field(warp, offset_of!(Own, doubles));
        let predicates = field(warp, offset_of!(Own, predicates));
        let line_words = field(warp, offset_of!(Own, line_words));
        let line_doubles = field(warp, offset_of!(Own, line_doubles));
        let part = (of == Of::Part).then(|| {
            let lanes = build.ins().load(i64, plain(), state, offset_of!(State, lanes) as i32);
            build.ins().ireduce(i32, lanes)
        });
        Self {
            build,
            state,
            warp,
            again,
            come: None,
            words,
            doubles,
            predicates,
            line_words,
            line_doubles,
            calls,
            instruction,
            exchange,
            fused,
            span,
            start,
            part,
            leg: None,
            temporaries: BTreeSet::new(),
            is_entered: false,
            position: start,
            is_cautious: false,
            steps: WIDTH as i64 - 1,
            any_nan: HashMap::new(),
            no_subnormal: HashSet::new(),
        }
    }

    /// A field of the warp's own.
    pub(super) fn own(&mut self, offset: usize) -> Value {
        self.build.ins().load(types::I64, plain(), self.warp, offset as i32)
    }

    /// A field of the state.
    pub(super) fn field(&mut self, offset: usize) -> Value {
        self.build.ins().load(types::I64, plain(), self.state, offset as i32)
    }

    pub(super) fn set_field(&mut self, offset: usize, value: Value) {
        self.build.ins().store(plain(), value, self.state, offset as i32);
    }

    /// Adds to a field.
    pub(super) fn add_to_field(&mut self, offset: usize, more: u32) {
        if more > 0 {
            let old = self.field(offset);
            let new = self.build.ins().iadd_imm(old, i64::from(more));
            self.set_field(offset, new);
        }
    }

    /// The lanes of a register that an instruction writes; `None` if it writes all.
    pub(super) fn part_for(&self, register: Register) -> Option<Value> {
        self.part.filter(|_| !self.temporaries.contains(&key(register)))
    }

    /// The lanes that run.
    pub(super) fn lanes(&mut self) -> Value {
        self.part.unwrap_or_else(|| self.word(u32::MAX))
    }

    /// Adds so much to a field for each of these lanes, or for all if none are named.
    pub(super) fn count_lanes(&mut self, offset: usize, lanes: Option<Value>, each: u32) {
        let Some(lanes) = lanes else { return self.add_to_field(offset, each * WIDTH as u32) };
        let count = self.build.ins().popcnt(lanes);
        let count = self.build.ins().uextend(types::I64, count);
        let more = self.build.ins().imul_imm(count, i64::from(each));
        let old = self.field(offset);
        let new = self.build.ins().iadd(old, more);
        self.set_field(offset, new);
    }

    pub(super) fn word(&mut self, value: u32) -> Value {
        self.build.ins().iconst(types::I32, i64::from(value))
    }

    pub(super) fn double(&mut self, value: u64) -> Value {
        self.build.ins().iconst(types::I64, value.cast_signed())
    }

    /// Four equal words.
    pub(super) fn words(&mut self, value: u32) -> Value {
        let value = self.word(value);
        self.build.ins().splat(WORDS, value)
    }

    /// Two equal doubles.
    pub(super) fn doubles(&mut self, value: u64) -> Value {
        let value = self.double(value);
        self.build.ins().splat(DOUBLES, value)
    }

    /// The same bits as a vector of another type.
    pub(super) fn cast(&mut self, to: Type, value: Value) -> Value {
        if self.build.func.dfg.value_type(value) == to {
            return value;
        }
        let flags = MemFlags::new().with_endianness(Endianness::Little);
        self.build.ins().bitcast(to, flags, value)
    }

    /// Where four lanes of a register of 32 bits are: the base, and the offset.
    pub(super) fn lanes_of_word(&self, place: u16, group: impl Into<Group>) -> (Value, i32) {
        let offset = i32::from(place) * 128;
        match group.into() {
            Group::Known(group) => (self.words, offset + group as i32 * 16),
            Group::Now(round) => (round.words, offset),
        }
    }

    /// Where four lanes of a register of 64 bits are.
    pub(super) fn lanes_of_double(&self, place: u16, group: impl Into<Group>) -> (Value, i32) {
        let offset = i32::from(place) * 256;
        match group.into() {
            Group::Known(group) => (self.doubles, offset + group as i32 * 32),
            Group::Now(round) => (round.doubles, offset),
        }
    }

    /// The predicate of all lanes.
    pub(super) fn predicate(&mut self, place: u16) -> Value {
        let offset = i32::from(place) * 4;
        self.build.ins().load(types::I32, plain(), self.predicates, offset)
    }

    /// Writes the predicate of the lanes that run.
    pub(super) fn set_predicate(&mut self, place: u16, mut mask: Value) {
        if let Some(part) = self.part_for(Register { file: File::Predicate, place }) {
            let old = self.predicate(place);
            mask = self.build.ins().bitselect(part, mask, old);
        }
        self.build.ins().store(plain(), mask, self.predicates, i32::from(place) * 4);
    }

    /// One of the three words that a field of the state points to.
    pub(super) fn coordinate(&mut self, field: usize, axis: u8) -> Value {
        let words = self.field(field);
        self.build.ins().load(types::I32, plain(), words, 4 * i32::from(axis))
    }

    /// The coordinates of the first thread and of the first one of the upper half, if those of all threads
    /// follow from them by a step, or from the first; else the piece is left before the instruction `at`.
    pub(super) fn thread(&mut self, axis: u8, step: i64, in_halves: bool, at: u32) -> [Value; 2] {
        let axes = self.own(offset_of!(Own, thread));
        let mut part = |offset: usize| {
            let offset = (usize::from(axis) * size_of::<Axis>() + offset) as i32;
            self.build.ins().load(types::I32, plain(), axes, offset)
        };
        let (first, second) = (part(offset_of!(Axis, first)), part(offset_of!(Axis, second)));
        let now = part(match in_halves {
            true => offset_of!(Axis, half_step),
            false => offset_of!(Axis, step),
        });
        let holds = self.build.ins().icmp_imm(IntCC::Equal, now, step);
        self.check(holds, at);
        [first, second]
    }

    /// The coordinates of the threads of each half of the warp.
    pub(super) fn thread_rows(&mut self, axis: u8) -> [Value; 2] {
        let axes = self.own(offset_of!(Own, thread));
        let row = usize::from(axis) * size_of::<Axis>() + offset_of!(Axis, values);
        [0, size_of::<[u32; WIDTH]>() / 2]
            .map(|half| self.build.ins().iadd_imm(axes, (row + half) as i64))
    }

    /// The line of a register: the type of its numbers, the base, and the offset of its first number.
    /// The step follows.
    pub(super) fn line_of(&self, is_double: bool, place: u16) -> (Type, Value, i32) {
        if is_double {
            (types::I64, self.line_doubles, i32::from(place) * 16)
        } else {
            (types::I32, self.line_words, i32::from(place) * 8)
        }
    }

    /// The instructions of another extent follow.
    pub(super) fn begin(&mut self, start: u32, block: Block) {
        self.start = start;
        self.build.switch_to_block(block);
    }

    /// Counts what is executed of the extent, before another one follows at once.
    pub(super) fn count(&mut self, executed: u32) {
        let counts = self.field(offset_of!(State, counts));
        for (position, more) in [(self.start, 1), (self.start + executed, -1)] {
            let offset = position as i32 * 8;
            let old = self.build.ins().load(types::I64, plain(), counts, offset);
            let new = self.build.ins().iadd_imm(old, more);
            self.build.ins().store(plain(), new, counts, offset);
        }
        let left = self.field(offset_of!(State, left));
        let left = self.build.ins().iadd_imm(left, -i64::from(executed));
        self.set_field(offset_of!(State, left), left);
    }

    /// Leaves the piece, before the instruction at a position.
    pub(super) fn leave(&mut self, position: u32, executed: u32) {
        self.leave_pieces(position, executed, Behind::Piece);
    }

    /// As [`Self::leave`], before an instruction that follows those that are executed.
    pub(super) fn leave_before(&mut self, position: u32) {
        self.leave(position, position - self.start);
    }

    /// As [`Self::leave`], before an instruction that no piece holds.
    pub(super) fn leave_pieces(&mut self, position: u32, executed: u32, behind: Behind) {
        let way = Left::packed(position, executed, behind);
        if matches!(behind, Behind::Barrier(_) | Behind::End) && self.part.is_none() {
            return self.come(way, executed);
        }
        let apart = self.come_apart(position);
        self.leave_for(way | apart);
    }

    /// A whole warp comes to a barrier or to its end, some way.
    fn come(&mut self, way: u64, executed: u32) {
        let come = self.come.get_or_insert_with(|| {
            let come = self.build.create_block();
            for _ in 0..3 {
                self.build.append_block_param(come, types::I64);
            }
            come
        });
        let come = *come;
        let values = [way, self.start.into(), executed.into()];
        let arguments = values.map(|value| self.double(value).into());
        self.build.ins().jump(come, &arguments);
    }

    /// A whole warp has come. The next one runs if there is one, this one came the way that is expected, and its
    /// turn has room for one more instruction. What the caller has to note of a warp it notes at once.
    pub(super) fn go_on_with_next_warp(&mut self) {
        let Some(come) = self.come else { return };
        self.build.switch_to_block(come);
        let [way, begin, executed] = [0, 1, 2].map(|at| self.build.block_params(come)[at]);
        let wanted = [(way, offset_of!(State, way)), (begin, offset_of!(State, way_begin))];
        let [way_differs, begin_differs] = wanted.map(|(value, offset)| {
            let wanted = self.field(offset);
            self.build.ins().bxor(value, wanted)
        });
        let noted = self.field(offset_of!(State, noted));
        let any = self.build.ins().bor(way_differs, begin_differs);
        let any = self.build.ins().bor(any, noted);
        let is_plain = self.build.ins().icmp_imm(IntCC::Equal, any, 0);
        let left = self.field(offset_of!(State, left));
        let has_room = self.compare(IntCC::UnsignedGreaterThan, left, executed);
        let last = self.field(offset_of!(State, last));
        let is_not_last = self.compare(IntCC::NotEqual, self.warp, last);
        let off = self.build.create_block();
        for goes_on in [is_plain, has_room, is_not_last] {
            let on = self.build.create_block();
            self.build.ins().brif(goes_on, on, &[], off, &[]);
            self.build.switch_to_block(on);
        }
        let own = self.build.ins().isub(left, executed);
        let rest = self.field(offset_of!(State, rest));
        let rest = self.build.ins().iadd(rest, own);
        self.set_field(offset_of!(State, rest), rest);
        let next = self.build.ins().iadd_imm(self.warp, size_of::<Own>() as i64);
        self.set_field(offset_of!(State, warp), next);
        let quantum = self.field(offset_of!(State, quantum));
        self.set_field(offset_of!(State, left), quantum);
        self.build.ins().jump(self.again, &[]);
        self.build.switch_to_block(off);
        self.set_field(offset_of!(State, begin), begin);
        self.build.ins().return_(&[way]);
    }

    /// Removes the loads of fields that no instruction needs. They are made at the beginning, before loops.
    pub(super) fn remove_unused(&mut self) {
        let fields =
            [self.words, self.doubles, self.predicates, self.line_words, self.line_doubles];
        let func = &mut self.build.func;
        let mut used = HashSet::new();
        for block in func.layout.blocks() {
            let instructions = func.layout.block_insts(block);
            used.extend(instructions.flat_map(|instruction| func.dfg.inst_values(instruction)));
        }
        for field in fields.into_iter().filter(|field| !used.contains(field)) {
            if let Some(load) = func.dfg.value_def(field).inst() {
                func.layout.remove_inst(load);
            }
        }
    }

    fn leave_for(&mut self, packed: u64) {
        let begin = self.double(self.start.into());
        self.set_field(offset_of!(State, begin), begin);
        let unfit = if self.is_entered { 0 } else { UNFIT };
        let packed = self.double(packed | unfit);
        self.build.ins().return_(&[packed]);
    }

    /// Goes on if a condition holds, and otherwise leaves before the instruction at a position, which
    /// follows those that are executed.
    pub(super) fn check(&mut self, holds: Value, position: u32) {
        self.check_or(holds, |emit| emit.leave_before(position));
    }

    /// As [`Self::check`], of a condition for the result of this instruction to be a line.
    pub(super) fn check_line(&mut self, holds: Value, position: u32) {
        self.check_or(holds, |emit| {
            let no_line = emit.word(emit.position + 1);
            emit.set_field(offset_of!(State, noted.no_line), no_line);
            emit.leave_before(position);
        });
    }

    fn check_or(&mut self, holds: Value, leave: impl FnOnce(&mut Self)) {
        let (on, off) = (self.build.create_block(), self.build.create_block());
        self.build.set_cold_block(off);
        self.build.ins().brif(holds, on, &[], off, &[]);
        self.build.switch_to_block(off);
        leave(self);
        self.build.switch_to_block(on);
    }

    /// The interpreter executes an instruction.
    pub(super) fn call_instruction(&mut self, position: u32, keeps: bool) {
        let function = self.double(self.calls.instruction as usize as u64);
        let (at, keeps) = (self.word(position), self.word(keeps.into()));
        let arguments = [self.state, at, keeps];
        let call = self.build.ins().call_indirect(self.instruction, function, &arguments);
        let stopped = self.build.inst_results(call)[0];
        let (off, on) = (self.build.create_block(), self.build.create_block());
        self.build.set_cold_block(off);
        self.build.ins().brif(stopped, off, &[], on, &[]);
        self.build.switch_to_block(off);
        let executed = position - self.start;
        self.leave_for(Left::packed(position, executed, Behind::Piece) | STOPPED);
        self.build.switch_to_block(on);
    }

    /// A shuffle of rows in memory. Gives the lanes that are inside of their segments.
    pub(super) fn call_exchange(&mut self, rows: Exchange, offset: Value, control: Value) -> Value {
        let function = self.double(self.calls.exchange as usize as u64);
        let rows = self.double(rows.packed());
        let arguments = [self.words, rows, offset, control];
        let call = self.build.ins().call_indirect(self.exchange, function, &arguments);
        self.build.inst_results(call)[0]
    }

    /// The interpreter looks for a span; null if there is none.
    pub(super) fn call_span(&mut self, address: Value, wanted: Wanted) -> Value {
        let function = match wanted.place {
            Place::Shared => self.calls.shared,
            _ => self.calls.span,
        };
        let function = self.double(function as usize as u64);
        let Wanted { site, bytes, align, writes, .. } = wanted;
        let [site, bytes, align, writes] =
            [site, bytes, align, writes.into()].map(|word| self.word(word));
        let arguments = [self.state, address, site, bytes, align, writes];
        let call = self.build.ins().call_indirect(self.span, function, &arguments);
        self.build.inst_results(call)[0]
    }

    /// The value of one of two ways: `fast` if the condition holds, else the one that `slow` makes.
    pub(super) fn either(
        &mut self,
        holds: Value,
        fast: Value,
        slow: impl FnOnce(&mut Self) -> Value,
    ) -> Value {
        let (on, off) = (self.build.create_block(), self.build.create_block());
        self.build.ins().brif(holds, on, &[fast.into()], off, &[]);
        self.aside(on, off, |emit| [slow(emit)])[0]
    }

    /// The values of one of two ways: `usual`, but where any bit of a vector is set those that `rare` makes.
    pub(super) fn usually<const N: usize>(
        &mut self,
        bits: Value,
        usual: [Value; N],
        rare: impl FnOnce(&mut Self) -> [Value; N],
    ) -> [Value; N] {
        let (on, off) = (self.build.create_block(), self.build.create_block());
        let any = self.build.ins().vany_true(bits);
        self.build.ins().brif(any, off, &[], on, &usual.map(Into::into));
        self.aside(on, off, rare)
    }

    /// Makes values in a block off the way, and goes on with them.
    fn aside<const N: usize>(
        &mut self,
        on: Block,
        off: Block,
        values: impl FnOnce(&mut Self) -> [Value; N],
    ) -> [Value; N] {
        let before = self.build.func.dfg.num_blocks();
        self.build.set_cold_block(off);
        self.build.switch_to_block(off);
        let values = values(self);
        self.build.ins().jump(on, &values.map(Into::into));
        // Its own branches go on off the way, too.
        for block in before..self.build.func.dfg.num_blocks() {
            self.build.set_cold_block(Block::from_u32(block as u32));
        }
        let kinds = values.map(|value| self.build.func.dfg.value_type(value));
        let results = kinds.map(|kind| self.build.append_block_param(on, kind));
        self.build.switch_to_block(on);
        results
    }

    /// The round of a loop over groups, with so many bytes of words before it.
    pub(super) fn round(&mut self, offset: Value) -> Round {
        let ins = self.build.ins();
        let words = ins.iadd(self.words, offset);
        let doubles_offset = self.build.ins().ishl_imm(offset, 1);
        let doubles = self.build.ins().iadd(self.doubles, doubles_offset);
        let lanes = self.build.ins().ireduce(types::I32, offset);
        let lanes = self.build.ins().ushr_imm(lanes, 2);
        let half = (size_of::<[u32; WIDTH]>() / 2) as i64;
        let is_upper = self.build.ins().band_imm(offset, half);
        let in_half = self.build.ins().band_imm(offset, half - 1);
        Round { offset, doubles_offset, words, doubles, lanes, is_upper, in_half }
    }

    /// All bits set if the condition holds, else none.
    pub(super) fn all_or_none(&mut self, holds: Value) -> Value {
        let bit = self.build.ins().uextend(types::I32, holds);
        self.build.ins().ineg(bit)
    }

    pub(super) fn not(&mut self, holds: Value) -> Value {
        self.build.ins().icmp_imm(IntCC::Equal, holds, 0)
    }

    pub(super) fn both(&mut self, a: Value, b: Value) -> Value {
        self.build.ins().band(a, b)
    }

    pub(super) fn compare(&mut self, order: IntCC, a: Value, b: Value) -> Value {
        self.build.ins().icmp(order, a, b)
    }
}
