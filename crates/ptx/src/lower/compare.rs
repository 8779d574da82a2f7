//! Comparisons: `setp`, `set`, `testp`.

use super::builder::Builder;
use super::integer::with_form;
use super::macros::{by_integer, by_whole, pure};
use super::modifiers::{Modifiers, Refusal};
use super::operands::width;
use crate::code::{
    Code, Compared, File, Form, Lanes, Logic, OnLanes, Op, Pure, Slot, Value, WIDTH, Width,
    compare, once, pack,
};
use crate::math::compare::{Comparison, Property};
use crate::math::half::{self, Binary16, Brain16, Half};
use crate::math::single;
use crate::syntax::tree::Operand;
use crate::types::Type;

const COMPARISONS: &[(&str, Comparison)] = &[
    ("eq", Comparison::Equal),
    ("ne", Comparison::NotEqual),
    ("lt", Comparison::Less),
    ("le", Comparison::LessOrEqual),
    ("gt", Comparison::Greater),
    ("ge", Comparison::GreaterOrEqual),
    ("lo", Comparison::Less),
    ("ls", Comparison::LessOrEqual),
    ("hi", Comparison::Greater),
    ("hs", Comparison::GreaterOrEqual),
    ("equ", Comparison::EqualOrUnordered),
    ("neu", Comparison::NotEqualOrUnordered),
    ("ltu", Comparison::LessOrUnordered),
    ("leu", Comparison::LessOrEqualOrUnordered),
    ("gtu", Comparison::GreaterOrUnordered),
    ("geu", Comparison::GreaterOrEqualOrUnordered),
    ("num", Comparison::Ordered),
    ("nan", Comparison::Unordered),
];

/// The comparisons that numbers of all types have.
pub(super) const OF_ALL_TYPES: &[(&str, Comparison)] = COMPARISONS.split_at(6).0;

/// One function for each comparison, with `$c` as the comparison.
macro_rules! by_comparison {
    ($comparison:expr, $c:ident => $body:expr) => {
        by_comparison!(@ $comparison, $c, $body, Equal NotEqual Less LessOrEqual Greater GreaterOrEqual
            EqualOrUnordered NotEqualOrUnordered LessOrUnordered LessOrEqualOrUnordered
            GreaterOrUnordered GreaterOrEqualOrUnordered Ordered Unordered)
    };
    (@ $comparison:expr, $c:ident, $body:expr, $($name:ident)*) => {
        match $comparison {
            $(Comparison::$name => { const $c: Comparison = Comparison::$name; $body })*
        }
    };
}

/// A comparison with its form.
fn known(run: Pure, kind: Type, comparison: Comparison, ftz: bool) -> Pure {
    let of_floats = |compared| run.as_form(Form::Compare(compared, comparison));
    match kind {
        Type::F32 if ftz => of_floats(Compared::Flushed),
        Type::F32 => of_floats(Compared::Float(Width::Word)),
        Type::F64 => of_floats(Compared::Float(Width::Double)),
        _ => with_form(run, kind, |width| {
            let signed = kind.is_signed();
            let compared = if signed { Compared::Signed(width) } else { Compared::Unsigned(width) };
            Some(Form::Compare(compared, comparison))
        }),
    }
}

impl<'t> Builder<'_, 't> {
    /// The comparison as a function that sets a predicate.
    fn comparison(kind: Type, comparison: Comparison, ftz: bool) -> Result<Pure, Refusal> {
        let is_equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        if matches!(kind, Type::B16 | Type::B32 | Type::B64) && !is_equality {
            return Err(
                "bits have no order: compare them by `.eq` or `.ne`, or as `.u32` and its kin"
                    .to_owned(),
            );
        }
        if ftz && !matches!(kind, Type::F32 | Type::F16) {
            return Err("`.ftz` is for .f32 and .f16: leave it out".to_owned());
        }
        let kind = match kind {
            Type::B16 => Type::U16,
            Type::B32 => Type::U32,
            Type::B64 => Type::U64,
            other => other,
        };
        let run = match kind {
            Type::F32 if ftz => by_comparison!(comparison, C => pure!(|l, op| {
                let of = |bits| f32::from_bits(single::flush(bits));
                l.set_predicate(op.d[0], compare::<u32>(l, op, |a, b| C.holds(of(a), of(b))));
            })),
            Type::F32 => by_comparison!(comparison, C => pure!(|l, op| {
                l.set_predicate(op.d[0], compare::<u32>(l, op, |a, b| C.holds(f32::from_bits(a), f32::from_bits(b))));
            })),
            Type::F64 => by_comparison!(comparison, C => pure!(|l, op| {
                l.set_predicate(op.d[0], compare::<u64>(l, op, |a, b| C.holds(f64::from_bits(a), f64::from_bits(b))));
            })),
            Type::F16 => {
                by_comparison!(comparison, C => pure!(|l, op| halves::<Binary16>(l, op, C)))
            }
            Type::Bf16 => {
                by_comparison!(comparison, C => pure!(|l, op| halves::<Brain16>(l, op, C)))
            }
            _ => match comparison {
                Comparison::Equal => {
                    by_integer!(kind, T => pure!(|l, op| integers::<T>(l, op, |a, b| a == b))
                        .or(|lines, l, op| once::compare::<T>(lines, l, op, |a, b| a == b)))
                }
                Comparison::NotEqual => {
                    by_integer!(kind, T => pure!(|l, op| integers::<T>(l, op, |a, b| a != b))
                        .or(|lines, l, op| once::compare::<T>(lines, l, op, |a, b| a != b)))
                }
                Comparison::Less => {
                    by_whole!(kind, T =>
                        pure!(|l, op| integers::<T>(l, op, |a, b| a < b)).or(|lines, l, op| {
                            once::compare_order::<T>(lines, l, op, |a, b| a < b)
                        }),
                        pure!(|l, op| integers::<T>(l, op, |a, b| a < b))
                    )
                }
                Comparison::LessOrEqual => {
                    by_whole!(kind, T =>
                        pure!(|l, op| integers::<T>(l, op, |a, b| a <= b)).or(|lines, l, op| {
                            once::compare_order::<T>(lines, l, op, |a, b| a <= b)
                        }),
                        pure!(|l, op| integers::<T>(l, op, |a, b| a <= b))
                    )
                }
                Comparison::Greater => {
                    by_whole!(kind, T =>
                        pure!(|l, op| integers::<T>(l, op, |a, b| a > b)).or(|lines, l, op| {
                            once::compare_order::<T>(lines, l, op, |a, b| a > b)
                        }),
                        pure!(|l, op| integers::<T>(l, op, |a, b| a > b))
                    )
                }
                Comparison::GreaterOrEqual => {
                    by_whole!(kind, T =>
                        pure!(|l, op| integers::<T>(l, op, |a, b| a >= b)).or(|lines, l, op| {
                            once::compare_order::<T>(lines, l, op, |a, b| a >= b)
                        }),
                        pure!(|l, op| integers::<T>(l, op, |a, b| a >= b))
                    )
                }
                _ => return Err("integers are always ordered".to_owned()),
            },
        };
        Ok(known(run, kind, comparison, ftz))
    }

    /// Modifiers that `set` and `setp` share: the comparison, how it joins, `.ftz`.
    fn comparing(m: &mut Modifiers<'t>) -> Result<(Comparison, Option<Logic>, bool), Refusal> {
        let is_of_unsigned = ["lo", "ls", "hi", "hs"].iter().any(|name| m.has(name));
        let last = m.names().last().unwrap_or_default();
        let comparison = m.must(COMPARISONS)?;
        let join = m.choose(&[("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)]);
        if is_of_unsigned && !matches!(last, "u16" | "u32" | "u64") {
            return Err(
                "`.lo`, `.ls`, `.hi` and `.hs` compare unsigned integers: use `.lt` and its kin"
                    .to_owned(),
            );
        }
        Ok((comparison, join, m.take("ftz")))
    }

    /// The predicate `(a cmp b) join c`, and the one of the negated comparison if it is wanted.
    fn joined(
        &mut self,
        to: Slot,
        join: Option<Logic>,
        c: Option<Slot>,
        negated: bool,
        from: Slot,
    ) {
        let run: OnLanes = match (join, negated) {
            (None, false) => |l, op| l.set_predicate(op.d[0], l.predicate(op.s[0])),
            (None, true) => |l, op| l.set_predicate(op.d[0], !l.predicate(op.s[0])),
            (Some(Logic::And), false) => {
                |l, op| l.set_predicate(op.d[0], l.predicate(op.s[0]) & l.predicate(op.s[1]))
            }
            (Some(Logic::And), true) => {
                |l, op| l.set_predicate(op.d[0], !l.predicate(op.s[0]) & l.predicate(op.s[1]))
            }
            (Some(Logic::Or), false) => {
                |l, op| l.set_predicate(op.d[0], l.predicate(op.s[0]) | l.predicate(op.s[1]))
            }
            (Some(Logic::Or), true) => {
                |l, op| l.set_predicate(op.d[0], !l.predicate(op.s[0]) | l.predicate(op.s[1]))
            }
            (Some(Logic::Xor), false) => {
                |l, op| l.set_predicate(op.d[0], l.predicate(op.s[0]) ^ l.predicate(op.s[1]))
            }
            (Some(Logic::Xor), true) => {
                |l, op| l.set_predicate(op.d[0], !l.predicate(op.s[0]) ^ l.predicate(op.s[1]))
            }
        };
        let form = match join {
            None => Form::Predicate { negated },
            Some(logic) => Form::Join { logic, negated },
        };
        let sources: Vec<Slot> = [Some(from), c].into_iter().flatten().collect();
        self.emit(Code::Pure(Pure::of(run).as_form(form)), &[to], &sources, 0);
    }

    /// The third source, and whether it is there.
    fn third(&mut self, join: Option<Logic>, o: &[Operand<'t>]) -> Result<Option<Slot>, Refusal> {
        match (join, o.get(3)) {
            (None, None) => Ok(None),
            (Some(_), Some(operand)) => self.source(operand, Type::Pred).map(Some),
            _ => Err("a third source comes with `.and`, `.or` or `.xor`".to_owned()),
        }
    }

    /// `setp`
    pub(super) fn set_predicate(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let (comparison, join, ftz) = Self::comparing(m)?;
        let kind = m.kind()?;
        if o.len() < 3 {
            return Err("3 operands are expected".to_owned());
        }
        if matches!(kind, Type::F16x2 | Type::Bf16x2) {
            return self.set_two_predicates(comparison, join, ftz, kind, o);
        }
        let run = Self::comparison(kind, comparison, ftz)?;
        let (a, b) = (self.source(&o[1], kind)?, self.source(&o[2], kind)?);
        let c = self.third(join, o)?;
        let (p, q) = self.dest_pair(&o[0], Type::Pred)?;
        if join.is_none() && q.is_none() {
            self.emit(Code::Pure(run), &[p], &[a, b], u64::from(ftz));
            return Ok(());
        }
        let result = self.temporary(File::Predicate);
        self.emit(Code::Pure(run), &[result], &[a, b], u64::from(ftz));
        // The third source may be one of the results.
        let c = c.map(|c| {
            let kept = self.temporary(File::Predicate);
            self.copy(kept, c);
            kept
        });
        self.joined(p, join, c, false, result);
        if let Some(q) = q {
            self.joined(q, join, c, true, result);
        }
        Ok(())
    }

    /// `setp.f16x2`: a predicate for each half.
    fn set_two_predicates(
        &mut self,
        comparison: Comparison,
        join: Option<Logic>,
        ftz: bool,
        kind: Type,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let one = if kind == Type::F16x2 { Type::F16 } else { Type::Bf16 };
        let run = Self::comparison(one, comparison, ftz)?;
        let (a, b) = (self.source(&o[1], kind)?, self.source(&o[2], kind)?);
        let c = self.third(join, o)?;
        let (p, q) = self.dest_pair(&o[0], Type::Pred)?;
        let q = q.ok_or("a predicate for each half is expected: `p|q`")?;
        let c = c.map(|c| {
            let kept = self.temporary(File::Predicate);
            self.copy(kept, c);
            kept
        });
        let (low, high) = self.compare_halves(run, a, b, ftz);
        self.joined(p, join, c, false, low);
        self.joined(q, join, c, false, high);
        Ok(())
    }

    /// The comparisons of the low halves and of the high halves of two registers.
    fn compare_halves(&mut self, run: Pure, a: Slot, b: Slot, ftz: bool) -> (Slot, Slot) {
        let (low, high) = (self.temporary(File::Predicate), self.temporary(File::Predicate));
        self.emit(Code::Pure(run), &[low], &[a, b], u64::from(ftz));
        let shift = super::macros::un!(u32 => u32, |a| a >> 16);
        let (upper_a, upper_b) = (self.temporary(File::Word), self.temporary(File::Word));
        self.emit(Code::Pure(shift), &[upper_a], &[a], 0);
        self.emit(Code::Pure(shift), &[upper_b], &[b], 0);
        self.emit(Code::Pure(run), &[high], &[upper_a, upper_b], u64::from(ftz));
        (low, high)
    }

    /// `set`: all bits or 1.0 where the comparison holds
    pub(super) fn set_value(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let (comparison, join, ftz) = Self::comparing(m)?;
        let (to, kind) = (m.kind()?, m.kind()?);
        if matches!(kind, Type::F16x2 | Type::Bf16x2) {
            return self.set_two_values(comparison, join, ftz, (to, kind), o);
        }
        let is_known = match kind {
            Type::F16 | Type::Bf16 => to != Type::F32 && (to == kind || !to.is_half()),
            _ => matches!(to, Type::U32 | Type::S32 | Type::F32),
        };
        if !is_known {
            return Err(format!("`set` has no result of {to:?} for {kind:?}"));
        }
        let ones = match to {
            Type::U32 | Type::S32 => u32::MAX,
            Type::F32 => 1.0_f32.to_bits(),
            Type::U16 | Type::S16 => 0xffff,
            Type::F16 => 0x3c00,
            Type::Bf16 => 0x3f80,
            _ => return Err("this result of set is not supported".to_owned()),
        };
        if o.len() < 3 {
            return Err("3 operands are expected".to_owned());
        }
        let run = Self::comparison(kind, comparison, ftz)?;
        let (a, b) = (self.source(&o[1], kind)?, self.source(&o[2], kind)?);
        let c = self.third(join, o)?;
        let d = self.dest(&o[0], to)?;
        let (result, last) = (self.temporary(File::Predicate), self.temporary(File::Predicate));
        self.emit(Code::Pure(run), &[result], &[a, b], u64::from(ftz));
        self.joined(last, join, c, false, result);
        let fill = pure!(|l, op| {
            let values = crate::code::bits(l.predicate(op.s[0]))
                .map(|set| if set { op.imm as u32 } else { 0 });
            l.set_word(op.d[0], &values);
        });
        debug_assert!(width(to) <= 32);
        self.emit(Code::Pure(fill), &[d], &[last], u64::from(ones));
        Ok(())
    }

    /// `set.f16x2`: all bits or 1.0 in each half
    fn set_two_values(
        &mut self,
        comparison: Comparison,
        join: Option<Logic>,
        ftz: bool,
        (to, kind): (Type, Type),
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let (ones, one) = match (to, kind) {
            (Type::U32 | Type::S32, Type::F16x2) => (0xffff, Type::F16),
            (Type::U32 | Type::S32, _) => (0xffff, Type::Bf16),
            (Type::F16x2, Type::F16x2) => (0x3c00, Type::F16),
            (Type::Bf16x2, Type::Bf16x2) => (0x3f80, Type::Bf16),
            _ => return Err("this result of set is not supported".to_owned()),
        };
        if o.len() < 3 {
            return Err("3 operands are expected".to_owned());
        }
        let run = Self::comparison(one, comparison, ftz)?;
        let (a, b) = (self.source(&o[1], kind)?, self.source(&o[2], kind)?);
        let c = self.third(join, o)?;
        let d = self.dest(&o[0], to)?;
        let (low, high) = self.compare_halves(run, a, b, ftz);
        let last = [self.temporary(File::Predicate), self.temporary(File::Predicate)];
        self.joined(last[0], join, c, false, low);
        self.joined(last[1], join, c, false, high);
        let fill = pure!(|l, op| {
            let [low, high] = [op.s[0], op.s[1]].map(|slot| crate::code::bits(l.predicate(slot)));
            let half = |set: bool| if set { op.imm as u32 } else { 0 };
            let values = std::array::from_fn(|lane| half(low[lane]) | half(high[lane]) << 16);
            l.set_word(op.d[0], &values);
        });
        self.emit(Code::Pure(fill), &[d], &last, ones);
        Ok(())
    }

    /// `testp`
    pub(super) fn test_property(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let property = m.must(&[
            ("finite", 0),
            ("infinite", 1),
            ("number", 2),
            ("notanumber", 3),
            ("normal", 4),
            ("subnormal", 5),
        ])?;
        let kind = m.kind()?;
        let run: OnLanes = match kind {
            Type::F32 => |l, op| {
                let held = l.word(op.s[0]).map(|a| property_of(op.imm).of_f32(f32::from_bits(a)));
                l.set_predicate(op.d[0], pack(&held));
            },
            Type::F64 => |l, op| {
                let held = l.double(op.s[0]).map(|a| property_of(op.imm).of_f64(f64::from_bits(a)));
                l.set_predicate(op.d[0], pack(&held));
            },
            _ => return Err("testp is of .f32 and .f64".to_owned()),
        };
        self.plain(Pure::of(run), Type::Pred, &[kind], o, property)
    }
}

fn property_of(imm: u64) -> Property {
    match imm {
        0 => Property::Finite,
        1 => Property::Infinite,
        2 => Property::Number,
        3 => Property::NotANumber,
        4 => Property::Normal,
        _ => Property::Subnormal,
    }
}

#[inline(always)]
fn integers<T: Value>(lanes: &mut Lanes<'_>, op: &Op, f: impl Fn(T, T) -> bool) {
    let result = compare::<T>(lanes, op, f);
    lanes.set_predicate(op.d[0], result);
}

/// Compares the low halves of two registers. The immediate says whether subnormal ones are zero.
#[inline(always)]
fn halves<H: Half>(lanes: &mut Lanes<'_>, op: &Op, comparison: Comparison) {
    let of = |bits: u32| {
        let bits = bits as u16;
        H::widen(if op.imm != 0 { half::flush::<H>(bits) } else { bits })
    };
    let (a, b) = (lanes.word(op.s[0]), lanes.word(op.s[1]));
    let mut held = [false; WIDTH];
    for lane in 0..WIDTH {
        held[lane] = comparison.holds(of(a[lane]), of(b[lane]));
    }
    lanes.set_predicate(op.d[0], pack(&held));
}
