//! Functions of integers of fewer bits than their words: each source is filled up to a word first, and the
//! bits above the result are made zero.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::emit::Emit;
use super::segment::{Made, Source, Waiting};
use super::translate::{Holds, Translate};
use super::value::LineOf;
use crate::code::{File, Form, Narrow, Op, Register, UNGUARDED, field_at};

impl Translate<'_, '_> {
    /// A function of narrow integers.
    pub(super) fn narrow(&mut self, op: &Op, form: Form, narrow: Narrow) {
        if op.guard == UNGUARDED && self.narrow_of_same(op, form, narrow) {
            return;
        }
        let mut sources = Vec::new();
        for (file, slot) in form.sources().iter().zip(op.s) {
            let source = self.source(*file, slot);
            sources.push(match (*file, narrow.bits) {
                (File::Word, ..32) => self.made_field(narrow.signed, narrow.bits, source),
                _ => source,
            });
        }
        let result = Register { file: form.result(), place: op.d[0] };
        if result.file != File::Word || narrow.kept == 32 {
            return self.function(op, (form, sources), result);
        }
        let whole = Waiting { form, imm: op.imm, sources, guard: None };
        let whole = Source::Made(self.segment.make(Made::Function(whole)));
        let kept = Op { imm: field_at(0, narrow.kept.into()), ..op.clone() };
        self.function(&kept, (Form::Extract { signed: false }, vec![whole]), result);
    }

    /// The lower bits of a source as words.
    fn made_field(&mut self, signed: bool, bits: u32, source: Source) -> Source {
        let imm = field_at(0, bits.into());
        let field = Form::Extract { signed };
        let waiting = Waiting { form: field, imm, sources: vec![source], guard: None };
        Source::Made(self.segment.make(Made::Function(waiting)))
    }

    /// A function of narrow integers, once for all lanes if they share its sources.
    fn narrow_of_same(&mut self, op: &Op, form: Form, narrow: Narrow) -> bool {
        let mut lines = Vec::new();
        for (file, slot) in
            form.sources().iter().zip(op.s).filter(|(file, _)| **file != File::Predicate)
        {
            let Holds::Line(line) = self.holds(*file, slot).1 else { return false };
            if !line.is_same() {
                return false;
            }
            lines.push(match file {
                File::Word => self.emit.field_of_same(line, narrow.signed, narrow.bits),
                _ => line,
            });
        }
        let result = Register { file: form.result(), place: op.d[0] };
        if !self.of_lines(op, form, &lines) {
            return false;
        }
        if let (File::Word, Holds::Line(line)) =
            (result.file, self.holds(File::Word, result.place).1)
        {
            let kept = self.emit.field_of_same(line, false, narrow.kept);
            self.set_line(result, kept);
        }
        true
    }
}

impl Emit<'_> {
    /// The lower bits of a word that all lanes share.
    fn field_of_same(&mut self, line: LineOf, signed: bool, bits: u32) -> LineOf {
        if bits == 32 {
            return line;
        }
        let above = i64::from(32 - bits);
        let top = self.build.ins().ishl_imm(line.first, above);
        let first: Value = match signed {
            true => self.build.ins().sshr_imm(top, above),
            false => self.build.ins().ushr_imm(top, above),
        };
        LineOf::same(first)
    }
}
