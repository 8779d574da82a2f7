//! Bit fields, permutations of bytes, funnel shifts, and logic by tables.
//!
//! Where places and lengths are constants of the program, the instruction is one that compiled code has.

use super::builder::Builder;
use super::macros::{bin, slow_bin, ter, un};
use super::modifiers::{Modifiers, Refusal};
use super::operands::width;
use crate::code::{Code, Form, Lanes, OnLanes, Pure, field_at, field_of, lanes_where};
use crate::math::bits::{self as fields, Permutation};
use crate::syntax::tree::Operand;
use crate::types::Type;

impl<'t> Builder<'_, 't> {
    /// `popc`, `clz`, `brev`, `bfind`, `bfe`, `bfi`, `fns`, `szext`, `bmsk`
    pub(super) fn field(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        let (wide, word) = (width(kind) == 64, Type::U32);
        if !matches!(width(kind), 32 | 64) {
            return Err("the instruction is of 32 and 64 bits".to_owned());
        }
        match name {
            "popc" if wide => self.plain(un!(u64 => u32, |a| a.count_ones()), word, &[kind], o, 0),
            "popc" => {
                let run = un!(u32 => u32, |a| a.count_ones()).as_form(Form::CountOnes);
                self.plain(run, word, &[kind], o, 0)
            }
            "clz" if wide => {
                self.plain(un!(u64 => u32, |a| a.leading_zeros()), word, &[kind], o, 0)
            }
            "clz" => {
                let form = Form::LeadingZeros { finds: false };
                let run = un!(u32 => u32, |a| a.leading_zeros()).as_form(form);
                self.plain(run, word, &[kind], o, 0)
            }
            "brev" if wide => self.one(un!(u64 => u64, |a| a.reverse_bits()), kind, o),
            "brev" => self.one(un!(u32 => u32, |a| a.reverse_bits()), kind, o),
            "bfind" => self.find_highest(kind, m, o),
            "bfe" => self.extract(kind, o),
            "bfi" => self.insert(kind, o),
            "fns" => {
                let run = ter!(u32, u32, i32 => u32, |a, b, c| fields::find_nth_set(a, b, c));
                self.plain(run, word, &[word, word, Type::S32], o, 0)
            }
            "szext" | "bmsk" => self.limited(name, kind, m, o),
            _ => Err(format!("`{name}` is not supported")),
        }
    }

    /// `bfind`
    fn find_highest(
        &mut self,
        kind: Type,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let (wide, signed) = (width(kind) == 64, kind.is_signed());
        let run = match (wide, signed, m.take("shiftamt")) {
            (false, false, false) => {
                un!(u32 => u32, |a| fields::find_32(a)).as_form(Form::LeadingZeros { finds: true })
            }
            (false, true, false) => un!(i32 => u32, |a| fields::find_32_signed(a)),
            (true, false, false) => un!(u64 => u32, |a| fields::find_64(a)),
            (true, true, false) => un!(i64 => u32, |a| fields::find_64_signed(a)),
            (false, false, true) => {
                un!(u32 => u32, |a| fields::shift_amount(fields::find_32(a), 32))
            }
            (false, true, true) => {
                un!(i32 => u32, |a| fields::shift_amount(fields::find_32_signed(a), 32))
            }
            (true, false, true) => {
                un!(u64 => u32, |a| fields::shift_amount(fields::find_64(a), 64))
            }
            (true, true, true) => {
                un!(i64 => u32, |a| fields::shift_amount(fields::find_64_signed(a), 64))
            }
        };
        self.plain(run, Type::U32, &[kind], o, 0)
    }

    /// `bfe`
    fn extract(&mut self, kind: Type, o: &[Operand<'t>]) -> Result<(), Refusal> {
        let (wide, signed, word) = (width(kind) == 64, kind.is_signed(), Type::U32);
        if let Some([position, length]) = self.constant_field(kind, &o[o.len().min(2)..])? {
            let run = if signed {
                un!(i32 => i32, at of field_of, |a| fields::extract_32_signed(a, at[0], at[1]))
            } else {
                un!(u32 => u32, at of field_of, |a| fields::extract_32(a, at[0], at[1]))
            };
            let run = run.as_form(Form::Extract { signed });
            return self.plain(run, kind, &[kind], &o[..2], field_at(position, length));
        }
        let run = match (wide, signed) {
            (false, false) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::extract_32(a, b, c))
            }
            (false, true) => {
                ter!(i32, u32, u32 => i32, |a, b, c| fields::extract_32_signed(a, b, c))
            }
            (true, false) => {
                ter!(u64, u32, u32 => u64, |a, b, c| fields::extract_64(a, b, c))
            }
            (true, true) => {
                ter!(i64, u32, u32 => i64, |a, b, c| fields::extract_64_signed(a, b, c))
            }
        };
        self.plain(run, kind, &[kind, word, word], o, 0)
    }

    /// `bfi`
    fn insert(&mut self, kind: Type, o: &[Operand<'t>]) -> Result<(), Refusal> {
        let (wide, word) = (width(kind) == 64, Type::U32);
        if let Some([position, length]) = self.constant_field(kind, &o[o.len().min(3)..])? {
            let run =
                bin!(u32, u32 => u32, at of field_of, |a, b| fields::insert_32(a, b, at[0], at[1]));
            let run = run.as_form(Form::Insert);
            return self.plain(run, kind, &[kind; 2], &o[..3], field_at(position, length));
        }
        let run: OnLanes = if wide {
            |l, op| crate::code::quaternary::<u64, u64, u32, u32, u64>(l, op, fields::insert_64)
        } else {
            |l, op| crate::code::quaternary::<u32, u32, u32, u32, u32>(l, op, fields::insert_32)
        };
        self.plain(Pure::of(run), kind, &[kind, kind, word, word], o, 0)
    }

    /// The place and the length of a field of a word, if both are constants, and the field is not empty and inside.
    fn constant_field(
        &self,
        kind: Type,
        operands: &[Operand<'t>],
    ) -> Result<Option<[u64; 2]>, Refusal> {
        let [position, length] = operands else { return Ok(None) };
        let position = self.literal(position, Type::U32).transpose()?;
        let length = self.literal(length, Type::U32).transpose()?;
        let (Some(position), Some(length)) = (position, length) else { return Ok(None) };
        let is_inside = position < 32 && (1..=32 - position).contains(&length);
        Ok((width(kind) == 32 && is_inside).then_some([position, length]))
    }

    /// `szext`, `bmsk`
    fn limited(
        &mut self,
        name: &str,
        kind: Type,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let wrap = m.must(&[("clamp", false), ("wrap", true)])?;
        let run = match (name, kind.is_signed()) {
            ("bmsk", _) => {
                slow_bin!(u32, u32 => u32, |op, a, b| fields::mask(a, b, op.imm != 0))
            }
            (_, false) => {
                slow_bin!(u32, u32 => u32, |op, a, b| fields::zero_extend(a, b, op.imm != 0))
            }
            (_, true) => {
                slow_bin!(i32, u32 => i32, |op, a, b| fields::sign_extend(a, b, op.imm != 0))
            }
        };
        self.plain(run, kind, &[kind, Type::U32], o, u64::from(wrap))
    }

    /// `shf.l`, `shf.r`
    pub(super) fn funnel(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        let left = m.must(&[("l", true), ("r", false)])?;
        let wrap = m.must(&[("clamp", false), ("wrap", true)])?;
        let amount = o.get(3).and_then(|amount| self.literal(amount, Type::U32)).transpose()?;
        if let (Some(amount), 4) = (amount, o.len()) {
            let amount = if wrap { amount & 31 } else { amount.min(32) };
            // Both take 32 bits of the pair, from a place on.
            let from = if left { 32 - amount } else { amount };
            let run = bin!(u32, u32 => u32, from of amount_of, |low, high| fields::funnel_right(low, high, from, false));
            let run = run.as_form(Form::Funnel);
            return self.plain(run, kind, &[Type::U32; 2], &o[..3], from);
        }
        let run = match (left, wrap) {
            (true, false) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::funnel_left(a, b, c, false))
            }
            (true, true) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::funnel_left(a, b, c, true))
            }
            (false, false) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::funnel_right(a, b, c, false))
            }
            (false, true) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::funnel_right(a, b, c, true))
            }
        };
        self.plain(run, kind, &[Type::U32; 3], o, 0)
    }

    /// `lop3`, with its table as the last operand
    pub(super) fn table_logic(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        let combines = m.choose(&[("or", false), ("and", true)]);
        let (Some(table), true) = (o.get(4), kind == Type::B32) else {
            return Err("lop3.b32 takes three sources and a table".to_owned());
        };
        let table = self.literal(table, Type::B32).ok_or("the table of lop3 is a number")?? & 0xff;
        let run = ter!(u32, u32, u32 => u32, rows of rows_of, |a, b, c| fields::logic_by_rows(a, b, c, rows));
        let run = run.as_form(Form::Table);
        let sources = [&o[1], &o[2], &o[3]].map(|operand| self.source(operand, kind));
        let [a, b, c] = sources;
        let (a, b, c) = (a?, b?, c?);
        let Some(and) = combines else {
            let d = self.dest(&o[0], kind)?;
            self.emit(Code::Pure(run), &[d], &[a, b, c], table);
            return Ok(());
        };
        let (d, p) = self.dest_pair(&o[0], kind)?;
        let q = self.source(o.get(5).ok_or("a predicate is missing")?, Type::Pred)?;
        self.emit(Code::Pure(run), &[d], &[a, b, c], table);
        let run: OnLanes = if and {
            |l, op| l.set_predicate(op.d[0], nonzero(l, op.s[0]) & l.predicate(op.s[1]))
        } else {
            |l, op| l.set_predicate(op.d[0], nonzero(l, op.s[0]) | l.predicate(op.s[1]))
        };
        let p = p.ok_or("a result `d|p` is expected")?;
        self.emit(Code::Pure(Pure::of(run)), &[p], &[d, q], 0);
        Ok(())
    }

    /// `prmt`
    pub(super) fn permute(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        let mode =
            m.choose(&[("f4e", 1), ("b4e", 2), ("rc8", 3), ("ecl", 4), ("ecr", 5), ("rc16", 6)]);
        let selector = o.get(3).and_then(|choice| self.literal(choice, Type::B32)).transpose()?;
        // A selector may ask for signs, too.
        let selector = selector.filter(|selector| mode.is_none() && selector & 0x8888 == 0);
        if let (Some(selector), 4) = (selector, o.len()) {
            let run = bin!(u32, u32 => u32, selector of amount_of, |a, b| fields::permute_bytes(a, b, selector));
            let run = run.as_form(Form::Permute);
            return self.plain(run, kind, &[Type::B32; 2], &o[..3], selector);
        }
        let run = match mode {
            None => ter!(u32, u32, u32 => u32, |a, b, c| fields::permute_bytes(a, b, c)),
            Some(1) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::permute(a, b, c, Permutation::Forward4))
            }
            Some(2) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::permute(a, b, c, Permutation::Backward4))
            }
            Some(3) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::permute(a, b, c, Permutation::Replicate8))
            }
            Some(4) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::permute(a, b, c, Permutation::ClampLeft))
            }
            Some(5) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::permute(a, b, c, Permutation::ClampRight))
            }
            Some(_) => {
                ter!(u32, u32, u32 => u32, |a, b, c| fields::permute(a, b, c, Permutation::Replicate16))
            }
        };
        self.plain(run, kind, &[Type::B32; 3], o, 0)
    }
}

/// A number of 32 bits of an immediate.
const fn amount_of(imm: u64) -> u32 {
    imm as u32
}

/// The rows of a table of logic.
const fn rows_of(imm: u64) -> [u32; 8] {
    fields::rows_of(imm as u8)
}

fn nonzero(lanes: &Lanes<'_>, slot: u16) -> u32 {
    lanes_where(lanes.word(slot), |word| word != 0)
}
