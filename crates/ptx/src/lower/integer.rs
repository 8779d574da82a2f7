//! Integer arithmetic.

use super::builder::Builder;
use super::macros::{bin, by_integer, by_whole, line_bin, line_ter, slow_bin, slow_ter, ter, un};
use super::modifiers::{Modifiers, Refusal};
use crate::code::{
    Code, Form, Line, Narrow, OnLanes, Pure, Value, Width, bits, has_wide_vectors, once, pack,
};
use crate::math::integer::{self, Integer};
use crate::math::packed;
use crate::syntax::tree::Operand;
use crate::types::Type;

impl<'t> Builder<'_, 't> {
    /// `add`, `sub`, `mul`, `mad` … of integers.
    pub(super) fn integer(
        &mut self,
        name: &str,
        kind: Type,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        match name {
            "add" | "sub" | "min" | "max" | "div" | "rem" => self.integer_binary(name, kind, m, o),
            "mul" | "mad" => self.multiply(name, kind, m, o),
            "abs" | "neg" => {
                let run = match name {
                    "abs" => by_integer!(kind, T => un!(T => T, |a| Integer::absolute(a))),
                    _ => by_integer!(kind, T => un!(T => T, |a| a.wrapping_neg())),
                };
                let form = if name == "abs" { Form::Absolute } else { Form::Negate };
                self.one(with_form(run, kind, |width| Some(form(width))), kind, o)
            }
            "sad" => {
                let run = by_integer!(kind, T => ter!(T, T, T => T, |a, b, c| a.sum_of_absolute_difference(b, c)));
                self.plain(run, kind, &[kind, kind, kind], o, 0)
            }
            _ => Err(format!("`{name}` is not supported for integers")),
        }
    }

    /// One result of one source of the same type.
    pub(super) fn one(&mut self, run: Pure, kind: Type, o: &[Operand<'t>]) -> Result<(), Refusal> {
        self.plain(run, kind, &[kind], o, 0)
    }

    /// A result and sources of given types.
    pub(super) fn plain(
        &mut self,
        run: Pure,
        result: Type,
        sources: &[Type],
        o: &[Operand<'t>],
        imm: u64,
    ) -> Result<(), Refusal> {
        if o.len() != sources.len() + 1 {
            return Err(format!("{} operands are expected", sources.len() + 1));
        }
        let mut slots = Vec::with_capacity(sources.len());
        for (operand, &kind) in o[1..].iter().zip(sources) {
            slots.push(self.source(operand, kind)?);
        }
        let d = self.dest(&o[0], result)?;
        self.emit(Code::Pure(run), &[d], &slots, imm);
        Ok(())
    }

    fn integer_binary(
        &mut self,
        name: &str,
        kind: Type,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        if matches!(name, "add" | "sub") && m.take("cc") {
            return self.carrying(name, kind, o, true, false);
        }
        if m.take("sat") {
            let run = match (name, kind) {
                ("add", Type::S32) => bin!(i32, i32 => i32, |a, b| a.saturating_add(b)),
                ("sub", Type::S32) => bin!(i32, i32 => i32, |a, b| a.saturating_sub(b)),
                _ => return Err("`.sat` is of .s32 sums and differences".to_owned()),
            };
            return self.plain(run, kind, &[kind, kind], o, 0);
        }
        let relu = matches!(name, "min" | "max") && m.take("relu");
        let run = match (name, kind, relu) {
            ("add", Type::U16x2 | Type::S16x2, _) => {
                bin!(u32, u32 => u32, |a, b| packed::add_16x2(a, b))
            }
            ("min", Type::U16x2, false) => bin!(u32, u32 => u32, |a, b| packed::min_u16x2(a, b)),
            ("max", Type::U16x2, false) => bin!(u32, u32 => u32, |a, b| packed::max_u16x2(a, b)),
            ("min", Type::S16x2, false) => {
                bin!(u32, u32 => u32, |a, b| packed::min_s16x2::<false>(a, b))
            }
            ("max", Type::S16x2, false) => {
                bin!(u32, u32 => u32, |a, b| packed::max_s16x2::<false>(a, b))
            }
            ("min", Type::S16x2, true) => {
                bin!(u32, u32 => u32, |a, b| packed::min_s16x2::<true>(a, b))
            }
            ("max", Type::S16x2, true) => {
                bin!(u32, u32 => u32, |a, b| packed::max_s16x2::<true>(a, b))
            }
            ("min", Type::S32, true) => bin!(i32, i32 => i32, |a, b| a.min(b).max(0)),
            ("max", Type::S32, true) => bin!(i32, i32 => i32, |a, b| a.max(b).max(0)),
            (_, _, true) => return Err("`.relu` is of .s32 and .s16x2".to_owned()),
            ("add", ..) => by_whole!(kind, T =>
                line_bin!(T, T => T, |a, b| Some(a.plus(b)), a.wrapping_add(b)),
                bin!(T, T => T, |a, b| a.wrapping_add(b))
            ),
            ("sub", ..) => by_whole!(kind, T =>
                line_bin!(T, T => T, |a, b| Some(a.minus(b)), a.wrapping_sub(b)),
                bin!(T, T => T, |a, b| a.wrapping_sub(b))
            ),
            ("min", ..) => by_integer!(kind, T => bin!(T, T => T, |a, b| a.min(b))),
            ("max", ..) => by_integer!(kind, T => bin!(T, T => T, |a, b| a.max(b))),
            ("div", ..) => by_whole!(kind, T =>
                slow_bin!(T, T => T, |_op, a, b| a.divide(b)).or(|lines, l, op| {
                    once::line_binary::<T, T, T>(lines, l, op, |a, b| {
                        let divisor = b.value()?;
                        a.level(|a| a.divide(divisor)).map(Line::same)
                    })
                }),
                slow_bin!(T, T => T, |_op, a, b| a.divide(b))
            ),
            _ => by_whole!(kind, T =>
                slow_bin!(T, T => T, |_op, a, b| a.remainder(b)).or(|lines, l, op| {
                    once::line_binary::<T, T, T>(lines, l, op, |a, b| {
                        // With one quotient, the remainders rise as the dividends do.
                        let divisor = b.value().filter(|divisor| *divisor != 0)?;
                        a.level(|a| a.divide(divisor))?;
                        Some(Line { first: a.first.remainder(divisor), ..a })
                    })
                }),
                slow_bin!(T, T => T, |_op, a, b| a.remainder(b))
            ),
        };
        let run = match relu {
            true => run,
            false => with_form(run, kind, |width| binary_form(name, width, kind.is_signed())),
        };
        self.plain(run, kind, &[kind, kind], o, 0)
    }

    fn multiply(
        &mut self,
        name: &str,
        kind: Type,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let part = m.must(&[("lo", 0), ("hi", 1), ("wide", 2)])?;
        let add = name == "mad";
        if add && m.take("cc") {
            return self.multiply_carrying(part, kind, o, true, false);
        }
        if add && part == 1 && m.take("sat") {
            if kind != Type::S32 {
                return Err("`.sat` is of mad.hi.s32".to_owned());
            }
            let run = ter!(i32, i32, i32 => i32, |a, b, c| integer::multiply_high_add_saturating(a, b, c));
            return self.plain(run, kind, &[kind; 3], o, 0);
        }
        if part == 2 {
            let (run, wide) = match (kind, add) {
                (Type::U16, false) => (bin!(u16, u16 => u32, |a, b| a.multiply_wide(b)), Type::U32),
                (Type::S16, false) => (bin!(i16, i16 => i32, |a, b| a.multiply_wide(b)), Type::S32),
                (Type::U32, false) => (
                    line_bin!(u32, u32 => u64, |a, b| Some(a.times_wide(b)?.unsigned()), a.multiply_wide(b)),
                    Type::U64,
                ),
                (Type::S32, false) => (
                    line_bin!(i32, i32 => i64, |a, b| a.times_wide(b), a.multiply_wide(b)),
                    Type::S64,
                ),
                (Type::U16, true) => (
                    ter!(u16, u16, u32 => u32, |a, b, c| a.multiply_wide(b).wrapping_add(c)),
                    Type::U32,
                ),
                (Type::S16, true) => (
                    ter!(i16, i16, i32 => i32, |a, b, c| a.multiply_wide(b).wrapping_add(c)),
                    Type::S32,
                ),
                (Type::U32, true) => (
                    line_ter!(
                        u32, u32, u64 => u64,
                        |a, b, c| Some(a.times_wide(b)?.unsigned().plus(c)),
                        a.multiply_wide(b).wrapping_add(c)
                    ),
                    Type::U64,
                ),
                (Type::S32, true) => (
                    line_ter!(
                        i32, i32, i64 => i64,
                        |a, b, c| Some(a.times_wide(b)?.plus(c)),
                        a.multiply_wide(b).wrapping_add(c)
                    ),
                    Type::S64,
                ),
                _ => return Err("`.wide` is of 16 and 32 bits".to_owned()),
            };
            let signed = kind.is_signed();
            let form = match add {
                false => Form::MultiplyWide { signed },
                true => Form::MultiplyWideAdd { signed },
            };
            let run = match (kind, add) {
                (Type::U16 | Type::S16, false) => run
                    .as_narrow(Form::Multiply(Width::Word), Narrow { bits: 16, signed, kept: 32 }),
                _ => run.as_form(whole(kind).map(|_| form)),
            };
            let sources = [kind, kind, wide];
            return self.plain(run, wide, &sources[..if add { 3 } else { 2 }], o, 0);
        }
        let run = match (part, add) {
            (0, false) => by_whole!(kind, T =>
                line_bin!(T, T => T, |a, b| a.times(b), a.wrapping_mul(b)),
                bin!(T, T => T, |a, b| a.wrapping_mul(b))
            ),
            (0, true) => by_whole!(kind, T =>
                line_ter!(
                    T, T, T => T,
                    |a, b, c| Some(a.times(b)?.plus(c)),
                    a.wrapping_mul(b).wrapping_add(c)
                ),
                ter!(T, T, T => T, |a, b, c| a.wrapping_mul(b).wrapping_add(c))
            ),
            (_, false) => by_integer!(kind, T => bin!(T, T => T, |a, b| a.multiply_high(b))),
            (_, true) => {
                by_integer!(kind, T => ter!(T, T, T => T, |a, b, c| a.multiply_high(b).wrapping_add(c)))
            }
        };
        let run = with_form(run, kind, |width| match (part, add, kind) {
            (0, false, _) => Some(Form::Multiply(width)),
            (0, true, _) => Some(Form::MultiplyAdd(width)),
            (_, false, Type::U32) => Some(Form::MultiplyHigh { signed: false }),
            (_, false, Type::S32) => Some(Form::MultiplyHigh { signed: true }),
            _ => None,
        });
        self.plain(run, kind, &[kind; 3][..if add { 3 } else { 2 }], o, 0)
    }

    /// `mul24` and `mad24`
    pub(super) fn multiply_24(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let kind = m.kind()?;
        let high = m.must(&[("lo", false), ("hi", true)])?;
        if !matches!(kind, Type::U32 | Type::S32) {
            return Err("24-bit products are of .u32 and .s32".to_owned());
        }
        let signed = kind == Type::S32;
        if name == "mul24" {
            let run = match (high, signed) {
                (false, false) => bin!(u32, u32 => u32, |a, b| integer::multiply_24_low(a, b)),
                (true, false) => bin!(u32, u32 => u32, |a, b| integer::multiply_24_high(a, b)),
                (false, true) => {
                    bin!(i32, i32 => i32, |a, b| integer::multiply_24_low_signed(a, b))
                }
                (true, true) => {
                    bin!(i32, i32 => i32, |a, b| integer::multiply_24_high_signed(a, b))
                }
            };
            return self.plain(run, kind, &[kind; 2], o, 0);
        }
        let run = match (high, signed, high && m.take("sat")) {
            (true, true, true) => {
                ter!(i32, i32, i32 => i32, |a, b, c| integer::multiply_24_high_signed(a, b).saturating_add(c))
            }
            (_, _, true) => return Err("`.sat` is of mad24.hi.s32".to_owned()),
            (false, false, _) => {
                ter!(u32, u32, u32 => u32, |a, b, c| integer::multiply_24_low(a, b).wrapping_add(c))
            }
            (true, false, _) => {
                ter!(u32, u32, u32 => u32, |a, b, c| integer::multiply_24_high(a, b).wrapping_add(c))
            }
            (false, true, _) => {
                ter!(i32, i32, i32 => i32, |a, b, c| integer::multiply_24_low_signed(a, b).wrapping_add(c))
            }
            (true, true, _) => {
                ter!(i32, i32, i32 => i32, |a, b, c| integer::multiply_24_high_signed(a, b).wrapping_add(c))
            }
        };
        self.plain(run, kind, &[kind; 3], o, 0)
    }

    /// `add.cc`, `addc`, `sub.cc`, `subc`. The carry is a predicate of the function.
    pub(super) fn carrying(
        &mut self,
        name: &str,
        kind: Type,
        o: &[Operand<'t>],
        sets: bool,
        reads: bool,
    ) -> Result<(), Refusal> {
        if o.len() != 3 {
            return Err("3 operands are expected".to_owned());
        }
        let (a, b) = (self.source(&o[1], kind)?, self.source(&o[2], kind)?);
        let d = self.dest(&o[0], kind)?;
        let carry = self.carry();
        let subtract = name.starts_with("sub");
        let run: OnLanes = match (super::operands::width(kind), subtract) {
            (32, false) => |l, op| carry_through::<u32>(l, op, integer::add_carry_32),
            (32, true) => |l, op| {
                carry_through::<u32>(l, op, |a, b, carry| {
                    let (result, borrow) = integer::subtract_borrow_32(a, b, !carry);
                    (result, !borrow)
                })
            },
            (64, false) => |l, op| carry_through::<u64>(l, op, integer::add_carry_64),
            (64, true) => |l, op| {
                carry_through::<u64>(l, op, |a, b, carry| {
                    let (result, borrow) = integer::subtract_borrow_64(a, b, !carry);
                    (result, !borrow)
                })
            },
            _ => return Err("carries are of 32 and 64 bits".to_owned()),
        };
        let results = [d, carry];
        // Hardware keeps the carry of a + !b + 1 of a difference: no borrow.
        let flags = u64::from(reads) | u64::from(subtract) << 2;
        self.emit(
            Code::Pure(Pure::of(run)),
            &results[..if sets { 2 } else { 1 }],
            &[a, b, carry],
            flags | u64::from(sets) << 1,
        );
        Ok(())
    }

    /// `mad.cc`, `madc`
    pub(super) fn multiply_carrying(
        &mut self,
        part: u32,
        kind: Type,
        o: &[Operand<'t>],
        sets: bool,
        reads: bool,
    ) -> Result<(), Refusal> {
        if o.len() != 4 || part == 2 {
            return Err("4 operands, and `.lo` or `.hi`, are expected".to_owned());
        }
        let wide = super::operands::width(kind) == 64;
        let product =
            self.temporary(if wide { crate::code::File::Double } else { crate::code::File::Word });
        let (a, b) = (self.source(&o[1], kind)?, self.source(&o[2], kind)?);
        let run = if part == 0 {
            by_integer!(kind, T => bin!(T, T => T, |a, b| a.wrapping_mul(b)))
        } else {
            by_integer!(kind, T => bin!(T, T => T, |a, b| a.multiply_high(b)))
        };
        self.emit(Code::Pure(run), &[product], &[a, b], 0);
        let c = self.source(&o[3], kind)?;
        let d = self.dest(&o[0], kind)?;
        let carry = self.carry();
        let run: OnLanes = if wide {
            |l, op| carry_through::<u64>(l, op, integer::add_carry_64)
        } else {
            |l, op| carry_through::<u32>(l, op, integer::add_carry_32)
        };
        let results = [d, carry];
        let flags = u64::from(reads) | u64::from(sets) << 1;
        self.emit(
            Code::Pure(Pure::of(run)),
            &results[..if sets { 2 } else { 1 }],
            &[product, c, carry],
            flags,
        );
        Ok(())
    }

    /// `dp4a` and `dp2a`
    pub(super) fn dot(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let (a, b) = (m.kind()?, m.kind()?);
        let signs = match (a, b) {
            (Type::U32 | Type::S32, Type::U32 | Type::S32) => (a == Type::S32, b == Type::S32),
            _ => return Err("dot products are of .u32 and .s32".to_owned()),
        };
        let run: Pure = if name == "dp4a" {
            match signs {
                (false, false) => {
                    ter!(u32, u32, u32 => u32, |a, b, c| packed::dot_4::<false, false>(a, b, c))
                }
                (false, true) => {
                    ter!(u32, u32, u32 => u32, |a, b, c| packed::dot_4::<false, true>(a, b, c))
                }
                (true, false) => {
                    ter!(u32, u32, u32 => u32, |a, b, c| packed::dot_4::<true, false>(a, b, c))
                }
                (true, true) => {
                    ter!(u32, u32, u32 => u32, |a, b, c| packed::dot_4::<true, true>(a, b, c))
                }
            }
        } else {
            match signs {
                (false, false) => {
                    slow_ter!(u32, u32, u32 => u32, |op, a, b, c| packed::dot_2::<false, false>(a, b, c, op.imm != 0))
                }
                (false, true) => {
                    slow_ter!(u32, u32, u32 => u32, |op, a, b, c| packed::dot_2::<false, true>(a, b, c, op.imm != 0))
                }
                (true, false) => {
                    slow_ter!(u32, u32, u32 => u32, |op, a, b, c| packed::dot_2::<true, false>(a, b, c, op.imm != 0))
                }
                (true, true) => {
                    slow_ter!(u32, u32, u32 => u32, |op, a, b, c| packed::dot_2::<true, true>(a, b, c, op.imm != 0))
                }
            }
        };
        let upper = name == "dp2a" && m.must(&[("lo", false), ("hi", true)])?;
        self.plain(run, Type::U32, &[Type::U32; 3], o, u64::from(upper))
    }
}

/// The width of integers that fill a register.
pub(super) fn whole(kind: Type) -> Option<Width> {
    match kind {
        Type::U32 | Type::S32 | Type::B32 => Some(Width::Word),
        Type::U64 | Type::S64 | Type::B64 => Some(Width::Double),
        _ => None,
    }
}

/// A function of integers of a type with its form: they fill their registers, or are 16 bits of words.
pub(super) fn with_form(run: Pure, kind: Type, form: impl FnOnce(Width) -> Option<Form>) -> Pure {
    match (whole(kind), kind) {
        (Some(width), _) => run.as_form(form(width)),
        (None, Type::U16 | Type::S16 | Type::B16) => {
            let narrow = Narrow { bits: 16, signed: kind.is_signed(), kept: 16 };
            run.as_narrow(form(Width::Word), narrow)
        }
        _ => run,
    }
}

/// The form of a function of two integers.
fn binary_form(name: &str, width: Width, signed: bool) -> Option<Form> {
    match (name, width) {
        ("add", _) => Some(Form::Add(width)),
        ("sub", _) => Some(Form::Subtract(width)),
        ("min", Width::Word) => Some(Form::Minimum { signed }),
        ("max", Width::Word) => Some(Form::Maximum { signed }),
        ("div", Width::Word) => has_wide_vectors().then_some(Form::Divide { signed }),
        ("rem", Width::Word) => has_wide_vectors().then_some(Form::Remainder { signed }),
        _ => None,
    }
}

/// A sum or difference through the carry of each lane. Bit 0 of the immediate says whether it is
/// read, bit 1 whether it is written, bit 2 its value if it is not read.
fn carry_through<T: Value>(
    lanes: &mut crate::code::Lanes<'_>,
    op: &crate::code::Op,
    f: impl Fn(T, T, bool) -> (T, bool),
) {
    let (a, b) = (T::source(lanes, op.s[0]), T::source(lanes, op.s[1]));
    let carries = bits(if op.imm & 1 != 0 {
        lanes.predicate(op.s[2])
    } else if op.imm & 4 != 0 {
        u32::MAX
    } else {
        0
    });
    let mut results = [T::Raw::default(); crate::code::WIDTH];
    let mut out = [false; crate::code::WIDTH];
    for lane in 0..crate::code::WIDTH {
        let (result, carry) = f(T::of(a[lane]), T::of(b[lane]), carries[lane]);
        (results[lane], out[lane]) = (result.raw(), carry);
    }
    T::leave(lanes, op.d[0], &results);
    if op.imm & 2 != 0 {
        lanes.set_predicate(op.d[1], pack(&out));
    }
}
