//! Logic, shifts, permutations, moves, selections.

use super::builder::{Builder, Local};
use super::integer::{whole, with_form};
use super::macros::{bin, by_bits, by_integer, line_bin, line_un, pure, ter, un};
use super::modifiers::{Modifiers, Refusal};
use super::operands::width;
use crate::code::{
    Code, File, Form, Lanes, Line, Logic, OnLanes, Op, Pure, RANK_SHIFT, Slot, Value, WIDTH, Width,
    bits, field_at, once,
};
use crate::math::compare::Comparison;
use crate::math::integer::Integer;
use crate::math::single;
use crate::syntax::tree::Operand;
use crate::types::Type;

impl<'t> Builder<'_, 't> {
    /// `and`, `or`, `xor`, `not`, `cnot`
    pub(super) fn logic(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        if kind == Type::Pred {
            let run: OnLanes = match name {
                "and" => {
                    |l, op| l.set_predicate(op.d[0], l.predicate(op.s[0]) & l.predicate(op.s[1]))
                }
                "or" => {
                    |l, op| l.set_predicate(op.d[0], l.predicate(op.s[0]) | l.predicate(op.s[1]))
                }
                "xor" => {
                    |l, op| l.set_predicate(op.d[0], l.predicate(op.s[0]) ^ l.predicate(op.s[1]))
                }
                "not" => |l, op| l.set_predicate(op.d[0], !l.predicate(op.s[0])),
                _ => return Err("no instruction on predicates".to_owned()),
            };
            let sources = [kind; 2];
            let count = if name == "not" { 1 } else { 2 };
            let run = Pure::of(run).as_form(predicate_form(name));
            return self.plain(run, kind, &sources[..count], o, 0);
        }
        let run = match name {
            "and" => and(kind)?,
            "or" => by_bits!(kind, T => bin!(T, T => T, |a, b| a | b)),
            "xor" => by_bits!(kind, T => bin!(T, T => T, |a, b| a ^ b)),
            "not" => {
                let run = by_bits!(kind, T => un!(T => T, |a| !a));
                return self.one(with_form(run, kind, |width| Some(Form::Not(width))), kind, o);
            }
            _ => return self.one(by_bits!(kind, T => un!(T => T, |a| T::from(a == 0))), kind, o),
        };
        let form = match name {
            "and" => Form::And,
            "or" => Form::Or,
            _ => Form::Xor,
        };
        let run = with_form(run, kind, |width| Some(form(width)));
        self.plain(run, kind, &[kind; 2], o, 0)
    }

    /// `shl`, `shr`
    pub(super) fn shift(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        let amount = o.get(2).and_then(|operand| self.literal(operand, Type::U32)).transpose()?;
        // A shift of all lanes by the same amount is vectorised.
        if let (Some(amount), 3) =
            (amount.filter(|&amount| amount < u64::from(width(kind))), o.len())
        {
            let run: Pure = if name == "shl" { shift_left(kind)? } else { shift_right(kind)? };
            let run = with_form(run, kind, |width| match name {
                "shl" => Some(Form::ShiftLeft(width)),
                _ => Some(Form::ShiftRight { width, signed: kind.is_signed() }),
            });
            return self.plain(run, kind, &[kind], &o[..2], amount);
        }
        let run = if name == "shl" {
            by_bits!(kind, T => bin!(T, u32 => T, |a, b| a.shift_left(b)))
        } else if kind.is_signed() {
            by_integer!(kind, T => bin!(T, u32 => T, |a, b| a.shift_right(b)))
        } else {
            by_bits!(kind, T => bin!(T, u32 => T, |a, b| a.shift_right(b)))
        };
        let form = whole(kind).map(|width| Form::ShiftBy {
            width,
            left: name == "shl",
            signed: kind.is_signed(),
        });
        self.plain(run.as_form(form), kind, &[kind, Type::U32], o, 0)
    }

    /// `mov`: registers, addresses, and vectors as one register.
    pub(super) fn moves(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        let [to, from] = o else { return Err("2 operands are expected".to_owned()) };
        let is_vector = matches!(to, Operand::Vector(_)) || matches!(from, Operand::Vector(_));
        if !kind.is_plain() && kind != Type::Pred || is_vector && !kind.is_bits() {
            return Err(format!("`mov` has no type {kind:?} here: use one of bits"));
        }
        if let Operand::Name(name) = from
            && name.starts_with('%')
            && matches!(kind, Type::F32 | Type::F64)
            && self.any_register(from)?.is_none()
        {
            return Err(format!("`{name}` is an integer"));
        }
        match (to, from) {
            _ if kind == Type::B128 => self.move_pair(to, from),
            (Operand::Vector(parts), from) => self.unpack(kind, parts, from),
            (to, Operand::Vector(parts)) => self.pack(kind, to, parts),
            _ if kind == Type::Pred => self.one(same_predicate(), kind, o),
            _ => match Type::register_bits(kind) {
                bits @ (16 | 32 | 64) => self.one(same(bits), kind, o),
                _ => Err("no type of this instruction".to_owned()),
            },
        }
    }

    /// The register type of a part of a vector.
    fn part(kind: Type, parts: usize) -> Result<Type, Refusal> {
        match (width(kind), parts) {
            (32, 2) | (64, 4) => Ok(Type::B16),
            (64, 2) => Ok(Type::B32),
            (16, 2) | (32, 4) => Ok(Type::B8),
            _ => Err("this vector does not fill the register".to_owned()),
        }
    }

    fn pack(&mut self, kind: Type, to: &Operand<'t>, parts: &[Operand<'t>]) -> Result<(), Refusal> {
        let part = Self::part(kind, parts.len())?;
        let mut slots = Vec::new();
        for operand in parts {
            slots.push(self.source(operand, part)?);
        }
        let d = self.dest(to, kind)?;
        let run: Pure = match (width(kind), parts.len()) {
            (16, _) => bin!(u8, u8 => u16, |a, b| u16::from_le_bytes([a, b])),
            (32, 4) => pure!(|l, op| {
                crate::code::quaternary::<u8, u8, u8, u8, u32>(l, op, |a, b, c, d| {
                    u32::from_le_bytes([a, b, c, d])
                });
            }),
            (32, _) => {
                slots.reverse();
                let run = bin!(u16, u16 => u32, |b, a| u32::from(a) | u32::from(b) << 16);
                self.emit(Code::Pure(run.as_form(Form::Insert)), &[d], &slots, field_at(16, 16));
                return Ok(());
            }
            (_, 2) => {
                bin!(u32, u32 => u64, |a, b| u64::from(a) | u64::from(b) << 32).as_form(Form::Pair)
            }
            _ => pure!(|l, op| {
                crate::code::quaternary::<u16, u16, u16, u16, u64>(l, op, |a, b, c, d| {
                    u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48
                });
            }),
        };
        self.emit(Code::Pure(run), &[d], &slots, 0);
        Ok(())
    }

    fn unpack(
        &mut self,
        kind: Type,
        parts: &[Operand<'t>],
        from: &Operand<'t>,
    ) -> Result<(), Refusal> {
        let part = Self::part(kind, parts.len())?;
        let from = self.source(from, kind)?;
        // A part may be the register that is taken apart.
        let mut results = Vec::new();
        for operand in parts {
            let sink = matches!(operand, Operand::Name("_"));
            results.push(if sink { None } else { Some(self.dest(operand, part)?) });
        }
        let run: Pure = match (width(kind), part.bytes() * 8) {
            (16, _) => pure!(|l, op| take_apart::<u16, u8>(l, op, |a, i| (a >> (8 * i)) as u8)),
            (32, 8) => pure!(|l, op| take_apart::<u32, u8>(l, op, |a, i| (a >> (8 * i)) as u8)),
            (32, _) => pure!(|l, op| take_apart::<u32, u16>(l, op, |a, i| (a >> (16 * i)) as u16))
                .as_form(Form::SplitWord),
            (_, 32) => pure!(|l, op| take_apart::<u64, u32>(l, op, |a, i| (a >> (32 * i)) as u32))
                .as_form(Form::Split),
            _ => pure!(|l, op| take_apart::<u64, u16>(l, op, |a, i| (a >> (16 * i)) as u16)),
        };
        let mut which = 0;
        let mut wanted = Vec::new();
        for (index, slot) in results.into_iter().enumerate() {
            if let Some(slot) = slot {
                which |= (index as u64) << (4 * wanted.len());
                wanted.push(slot);
            }
        }
        which |= (wanted.len() as u64) << 32;
        self.emit(Code::Pure(run), &wanted, &[from], which);
        Ok(())
    }

    /// `selp`
    pub(super) fn select(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        let run: Pure = by_bits!(kind, T => pure!(|l, op| choose::<T>(l, op, l.predicate(op.s[2])))
                .or(|lines, l, op| once::select::<T>(lines, l, op)));
        // Floats are chosen as their bits.
        let run = match width(kind) {
            64 => run.as_form(Form::Select(Width::Double)),
            32 => run.as_form(Form::Select(Width::Word)),
            _ => with_form(run, Type::B16, |width| Some(Form::Select(width))),
        };
        self.plain(run, kind, &[kind, kind, Type::Pred], o, 0)
    }

    /// `slct`: the first source if the third is not negative
    pub(super) fn select_sign(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let flush = m.take("ftz");
        let kind = m.kind()?;
        let sign = m.kind()?;
        let run: Pure = match sign {
            Type::S32 if !flush => {
                by_bits!(kind, T => ter!(T, T, i32 => T, |a, b, c| if c >= 0 { a } else { b }))
            }
            Type::F32 if flush => by_bits!(kind, T => ter!(T, T, u32 => T, |a, b, c| {
                if Comparison::GreaterOrEqual.holds(f32::from_bits(single::flush(c)), 0.0) { a } else { b }
            })),
            Type::F32 => by_bits!(kind, T => ter!(T, T, u32 => T, |a, b, c| {
                if f32::from_bits(c) >= 0.0 { a } else { b }
            })),
            _ => {
                return Err(
                    "the last type of slct is .s32, or .f32, which may have .ftz".to_owned()
                );
            }
        };
        self.plain(run, kind, &[kind, kind, sign], o, 0)
    }

    /// `cvta`: generic addresses of the spaces of the executor
    pub(super) fn convert_address(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        use crate::execute::{LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW};
        let to = m.take("to");
        m.take("entry");
        let window = m.must(&[
            ("global", 0),
            ("const", 0),
            ("shared", SHARED_WINDOW),
            ("shared::cta", SHARED_WINDOW),
            ("shared::cluster", SHARED_WINDOW),
            ("local", LOCAL_WINDOW),
            ("param", PARAMETER_WINDOW),
            ("param::entry", PARAMETER_WINDOW),
        ])?;
        let kind = m.kind()?;
        if width(kind) != 64 {
            return Err("addresses have 64 bits".to_owned());
        }
        // Parameters of functions are in local memory, and those of kernels have their own window.
        let run = if window == PARAMETER_WINDOW && !self.entry { LOCAL_WINDOW } else { window };
        let offset = if to { run.wrapping_neg() } else { run };
        self.plain(offset_by(), kind, &[kind], o, offset)
    }

    /// `isspacep`
    pub(super) fn is_space(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        use crate::execute::{LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW};
        // Of the window of shared memory, the block has the part without a rank.
        if m.take("shared") || m.take("shared::cta") {
            let run = Pure::of(|l, op| {
                let own = l.double(op.s[0]).map(|a| a >> RANK_SHIFT == op.imm >> RANK_SHIFT);
                l.set_predicate(op.d[0], crate::code::pack(&own));
            });
            return self.plain(run, Type::Pred, &[Type::B64], o, SHARED_WINDOW);
        }
        // Constant memory is part of the caller's memory: no address is known as a constant's.
        let window = m.must(&[
            ("global", 0),
            ("const", 0xff << 56),
            ("shared::cluster", SHARED_WINDOW),
            ("local", LOCAL_WINDOW),
            ("param", PARAMETER_WINDOW),
            ("param::entry", PARAMETER_WINDOW),
        ])?;
        let run = Pure::of(|l, op| {
            let inside = l.double(op.s[0]).map(|address| address >> 56 == op.imm >> 56);
            l.set_predicate(op.d[0], crate::code::pack(&inside));
        });
        self.plain(run, Type::Pred, &[Type::B64], o, window)
    }

    /// The labels of an indirect branch.
    pub(super) fn targets(&mut self, operand: &Operand<'t>) -> Option<&'t [&'t str]> {
        let Operand::Name(name) = operand else { return None };
        match self.find(name) {
            Some(Local::Targets(targets)) => Some(targets),
            _ => None,
        }
    }

    /// A copy of a register.
    pub(super) fn copy(&mut self, to: Slot, from: Slot) {
        self.emit(Code::Pure(copy_of(to.file)), &[to], &[from], 0);
    }
}

/// A copy of a register of a file.
pub(super) fn copy_of(file: File) -> Pure {
    match file {
        File::Double | File::ConstantDouble => same(64),
        File::Predicate => same_predicate(),
        File::Word | File::ConstantWord => same(32),
    }
}

fn and(kind: Type) -> Result<Pure, Refusal> {
    let run = by_bits!(kind, T => bin!(T, T => T, |a, b| a & b));
    Ok(match width(kind) {
        64 => line_bin!(u64, u64 => u64, |a, b| a.masked(b).or_else(|| b.masked(a)), a & b),
        32 => line_bin!(u32, u32 => u32, |a, b| a.masked(b).or_else(|| b.masked(a)), a & b),
        _ => run,
    })
}

/// A copy of a register of so many bits.
fn same(bits: u32) -> Pure {
    match bits {
        16 => with_form(un!(u16 => u16, |a| a), Type::B16, |width| Some(Form::Copy(width))),
        64 => line_un!(u64 => u64, |a| Some(a), a).as_form(Form::Copy(Width::Double)),
        _ => line_un!(u32 => u32, |a| Some(a), a).as_form(Form::Copy(Width::Word)),
    }
}

/// A copy of a predicate.
fn same_predicate() -> Pure {
    Pure::of(|l, op| l.set_predicate(op.d[0], l.predicate(op.s[0])))
        .as_form(Form::Predicate { negated: false })
}

/// The form of logic of predicates.
fn predicate_form(name: &str) -> Form {
    let join = |logic| Form::Join { logic, negated: false };
    match name {
        "and" => join(Logic::And),
        "or" => join(Logic::Or),
        "xor" => join(Logic::Xor),
        _ => Form::Predicate { negated: true },
    }
}

/// Adds the immediate.
fn offset_by() -> Pure {
    pure!(|l, op| crate::code::unary(l, op, |a: u64| a.wrapping_add(op.imm)))
        .or(|lines, l, op| {
            once::line_unary::<u64, u64>(lines, l, op, |a| Some(a.plus(Line::same(op.imm))))
        })
        .as_form(Form::Offset)
}

/// A shift to the right by the immediate.
fn shift_right(kind: Type) -> Result<Pure, Refusal> {
    macro_rules! shift {
        ($t:ty) => {
            pure!(|l, op| crate::code::unary(l, op, |a: $t| a >> (op.imm & 63)))
        };
    }
    macro_rules! whole {
        ($t:ty) => {
            shift!($t).or(|lines, l, op| {
                once::line_unary::<$t, $t>(lines, l, op, |a| {
                    a.level(|a| a >> (op.imm & 63)).map(Line::same)
                })
            })
        };
    }
    Ok(match (width(kind), kind.is_signed()) {
        (64, true) => whole!(i64),
        (64, false) => whole!(u64),
        (32, true) => whole!(i32),
        (32, false) => whole!(u32),
        (_, true) => by_integer!(kind, T => shift!(T)),
        (_, false) => by_bits!(kind, T => shift!(T)),
    })
}

/// A shift to the left by the immediate.
fn shift_left(kind: Type) -> Result<Pure, Refusal> {
    let run =
        by_bits!(kind, T => pure!(|l, op| crate::code::unary(l, op, |a: T| a << (op.imm & 63))));
    Ok(match width(kind) {
        64 => run.or(|lines, l, op| {
            once::line_unary::<u64, u64>(lines, l, op, |a| a.times(Line::same(1 << (op.imm & 63))))
        }),
        32 => run.or(|lines, l, op| {
            once::line_unary::<u32, u32>(lines, l, op, |a| a.times(Line::same(1 << (op.imm & 31))))
        }),
        _ => run,
    })
}

/// The first source where the bits are set, else the second.
#[inline(always)]
fn choose<T: Value>(lanes: &mut Lanes<'_>, op: &Op, which: u32) {
    let (a, b) = (T::source(lanes, op.s[0]), T::source(lanes, op.s[1]));
    let which = bits(which);
    let mut results = [T::Raw::default(); WIDTH];
    for lane in 0..WIDTH {
        results[lane] = if which[lane] { a[lane] } else { b[lane] };
    }
    T::leave(lanes, op.d[0], &results);
}

/// Parts of a register. The immediate holds how many, and four bits for the index of each.
#[inline(always)]
fn take_apart<A: Value, R: Value>(lanes: &mut Lanes<'_>, op: &Op, f: impl Fn(A, u32) -> R) {
    let a = *A::source(lanes, op.s[0]);
    for result in 0..(op.imm >> 32) as usize {
        let index = (op.imm >> (4 * result)) as u32 & 15;
        let mut part = [R::Raw::default(); WIDTH];
        for lane in 0..WIDTH {
            part[lane] = f(A::of(a[lane]), index).raw();
        }
        R::leave(lanes, op.d[result], &part);
    }
}
