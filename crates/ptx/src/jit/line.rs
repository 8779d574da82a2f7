//! Functions of registers that hold lines, on two numbers. The step of each is known to the compiler.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::{Emit, vector_of};
use super::translate::Mask;
use super::value::{Four, GROUPS, LineOf};
use super::wide::order;
use crate::code::{Compared, Form, WIDTH, Width};
use crate::math::compare::Comparison;

/// A step in the width of its register.
fn stepped(width: Width, step: i64) -> i64 {
    match width {
        Width::Word => i64::from(step as i32),
        Width::Double => step,
    }
}

/// The bits of a constant as a number.
fn number(constant: u64, signed: bool) -> i64 {
    let bits = constant as u32;
    if signed { i64::from(bits.cast_signed()) } else { i64::from(bits) }
}

impl Emit<'_> {
    /// The line of a form of lines. `None` if it may be none, or the lanes are needed to tell. What only
    /// the values of a run tell is checked: the piece is left before the instruction `at` if it does not
    /// hold.
    pub(super) fn line(&mut self, form: Form, imm: u64, s: &[LineOf], at: u32) -> Option<LineOf> {
        if s.iter().all(|line| line.is_same()) {
            return self.line_of_same(form, imm, s);
        }
        match form {
            Form::Copy(_) => Some(s[0]),
            Form::Low => {
                let first = self.build.ins().ireduce(types::I32, s[0].first);
                Some(LineOf { first, step: stepped(Width::Word, s[0].step), constant: None })
            }
            Form::Offset => {
                let first = self.build.ins().iadd_imm(s[0].first, imm.cast_signed());
                Some(LineOf { first, constant: None, ..s[0] })
            }
            Form::Widen { signed } => self.wide_line(s[0], 1, signed, at),
            Form::Add(width) => Some(self.sum(width, s[0], s[1])),
            Form::Subtract(width) => {
                let first = self.build.ins().isub(s[0].first, s[1].first);
                let step = stepped(width, s[0].step.wrapping_sub(s[1].step));
                Some(LineOf { first, step, constant: None })
            }
            Form::Multiply(width) => self.product(width, s[0], s[1]),
            Form::MultiplyAdd(width) => {
                let product = self.product(width, s[0], s[1])?;
                Some(self.sum(width, product, s[2]))
            }
            Form::MultiplyWide { signed } => self.wide_product_of_lines(s, signed, at),
            Form::MultiplyWideAdd { signed } => {
                let product = self.wide_product_of_lines(s, signed, at)?;
                Some(self.sum(Width::Double, product, s[2]))
            }
            Form::ShiftLeft(width) => {
                let amount = (imm & 63) as u32;
                let first = self.build.ins().ishl_imm(s[0].first, i64::from(amount));
                let step = stepped(width, s[0].step.checked_shl(amount)?);
                Some(LineOf { first, step, constant: None })
            }
            Form::ShiftRight { width, signed } => {
                self.level_shift(s[0], width, signed, imm & 63, at)
            }
            Form::And(width) => self.masked(width, s[0], s[1], at),
            Form::Negate(width) => {
                let first = self.build.ins().ineg(s[0].first);
                let step = stepped(width, s[0].step.wrapping_neg());
                Some(LineOf { first, step, constant: None })
            }
            Form::Divide { signed } | Form::Remainder { signed } => {
                self.level_quotient(form, [s[0], s[1]], signed, at)
            }
            _ => None,
        }
    }

    /// The upper half of 64 bits.
    fn upper_word(&mut self, value: Value) -> Value {
        let high = self.build.ins().ushr_imm(value, 32);
        self.build.ins().ireduce(types::I32, high)
    }

    /// A form of values that all lanes share.
    fn line_of_same(&mut self, form: Form, imm: u64, s: &[LineOf]) -> Option<LineOf> {
        let firsts: Vec<Value> = s.iter().map(|line| line.first).collect();
        let first = match form {
            Form::Copy(_) => return Some(s[0]),
            Form::Compare(..) | Form::Select(_) => return None,
            Form::Low => self.build.ins().ireduce(types::I32, firsts[0]),
            Form::High => self.upper_word(firsts[0]),
            Form::ShiftBy { .. } => self.shift_by(form, firsts[0], firsts[1]),
            Form::CountOnes | Form::LeadingZeros { .. } => self.once(form, imm, &firsts),
            Form::Widen { signed } => self.extended(firsts[0], signed),
            Form::Offset => self.build.ins().iadd_imm(firsts[0], imm.cast_signed()),
            Form::Pair => {
                let [low, high] = [0, 1].map(|at| self.extended(firsts[at], false));
                let upper = self.build.ins().ishl_imm(high, 32);
                self.build.ins().bor(low, upper)
            }
            Form::MultiplyHigh { signed }
            | Form::MultiplyWide { signed }
            | Form::MultiplyWideAdd { signed } => {
                let [a, b] = [0, 1].map(|at| self.extended(firsts[at], signed));
                let product = self.build.ins().imul(a, b);
                match (form, firsts.get(2)) {
                    (Form::MultiplyHigh { .. }, _) => self.upper_word(product),
                    (_, Some(&other)) => self.build.ins().iadd(product, other),
                    (_, None) => product,
                }
            }
            Form::FloatAdd(_)
            | Form::FloatSubtract(_)
            | Form::FloatMultiply(_)
            | Form::FloatFused(_)
            | Form::FloatContracted(_)
            | Form::FloatNegate(_)
            | Form::FloatAbsolute(_)
            | Form::FloatMinimum
            | Form::FloatMaximum
            | Form::FloatClamp
            | Form::FloatFusedDown
            | Form::FloatOfHalf
            | Form::HalfOf
            | Form::Divide { .. }
            | Form::Remainder { .. }
            | Form::FloatDivide(_)
            | Form::FloatReciprocal(_)
            | Form::FloatRoot(_)
            | Form::FloatIntegral(..)
            | Form::FloatOf { .. }
            | Form::DoubleOf
            | Form::Funnel
            | Form::Permute
            | Form::Extract { .. }
            | Form::Insert
            | Form::Table
            | Form::IntegerOf { .. }
            | Form::Promote
            | Form::Demote => self.once(form, imm, &firsts),
            _ => self.integers(form, imm, &firsts),
        };
        Some(LineOf::same(first))
    }

    /// A form of four equal lanes, of which one is the result.
    pub(super) fn once(&mut self, form: Form, imm: u64, firsts: &[Value]) -> Value {
        let fours: Vec<Four> = firsts
            .iter()
            .map(|&first| {
                let is_double = self.build.func.dfg.value_type(first) == types::I64;
                let vector = self.build.ins().splat(vector_of(is_double), first);
                if is_double { Four::Double([vector; 2]) } else { Four::Word(vector) }
            })
            .collect();
        let vector = match self.four(form, imm, &fours) {
            Four::Word(vector) | Four::Mask(vector) | Four::Double([vector, _]) => vector,
        };
        self.build.ins().extractlane(vector, 0)
    }

    fn extended(&mut self, value: Value, signed: bool) -> Value {
        match signed {
            true => self.build.ins().sextend(types::I64, value),
            false => self.build.ins().uextend(types::I64, value),
        }
    }

    fn sum(&mut self, width: Width, a: LineOf, b: LineOf) -> LineOf {
        let first = self.build.ins().iadd(a.first, b.first);
        LineOf { first, step: stepped(width, a.step.wrapping_add(b.step)), constant: None }
    }

    /// The product of a line and a constant, or of two values that all lanes share.
    fn product(&mut self, width: Width, a: LineOf, b: LineOf) -> Option<LineOf> {
        let step = match (a.is_same(), b.is_same(), a.constant, b.constant) {
            (true, true, ..) => 0,
            (_, true, _, Some(factor)) => a.step.wrapping_mul(factor.cast_signed()),
            (true, _, Some(factor), _) => b.step.wrapping_mul(factor.cast_signed()),
            _ => return None,
        };
        let first = self.build.ins().imul(a.first, b.first);
        Some(LineOf { first, step: stepped(width, step), constant: None })
    }

    /// The last lane of a line, and whether no lane wraps in an order.
    pub(super) fn ends(
        &mut self,
        line: LineOf,
        width: Width,
        signed: bool,
    ) -> Option<(Value, Value)> {
        let rise = line.step.checked_mul(self.steps)?;
        if width == Width::Word && i32::try_from(rise).is_err() {
            return None;
        }
        let last = self.build.ins().iadd_imm(line.first, rise);
        let order = match (rise >= 0, signed) {
            (true, true) => IntCC::SignedGreaterThanOrEqual,
            (true, false) => IntCC::UnsignedGreaterThanOrEqual,
            (false, true) => IntCC::SignedLessThanOrEqual,
            (false, false) => IntCC::UnsignedLessThanOrEqual,
        };
        Some((last, self.compare(order, last, line.first)))
    }

    /// The line of 64 bits of a line of 32 times a factor.
    fn wide_line(&mut self, line: LineOf, factor: i64, signed: bool, at: u32) -> Option<LineOf> {
        if self.is_cautious {
            return None;
        }
        let (_, fits) = self.ends(line, Width::Word, signed)?;
        self.check_line(fits, at);
        let first = self.extended(line.first, signed);
        let first = if factor == 1 { first } else { self.build.ins().imul_imm(first, factor) };
        Some(LineOf { first, step: line.step.wrapping_mul(factor), constant: None })
    }

    fn wide_product_of_lines(&mut self, s: &[LineOf], signed: bool, at: u32) -> Option<LineOf> {
        match (s[0].is_same(), s[1].is_same()) {
            (true, true) => {
                let [a, b] = [0, 1].map(|at| self.extended(s[at].first, signed));
                Some(LineOf::same(self.build.ins().imul(a, b)))
            }
            (false, true) => self.wide_line(s[0], number(s[1].constant?, signed), signed, at),
            (true, false) => self.wide_line(s[1], number(s[0].constant?, signed), signed, at),
            (false, false) => None,
        }
    }

    /// A shift to the right of a line that stays within one result.
    fn level_shift(
        &mut self,
        line: LineOf,
        width: Width,
        signed: bool,
        amount: u64,
        at: u32,
    ) -> Option<LineOf> {
        let rise = line.step.checked_mul(self.steps)?.unsigned_abs();
        if rise >= 1 << amount || self.is_cautious {
            return None;
        }
        let (last, fits) = self.ends(line, width, signed)?;
        let form = Form::ShiftRight { width, signed };
        let [first, last] = [line.first, last].map(|end| self.integers(form, amount, &[end]));
        let level = self.compare(IntCC::Equal, first, last);
        let holds = self.both(fits, level);
        self.check_line(holds, at);
        Some(LineOf::same(first))
    }

    /// The lower bits of a line, if no carry passes their end.
    fn masked(&mut self, width: Width, a: LineOf, b: LineOf, at: u32) -> Option<LineOf> {
        let (line, mask) = if b.is_same() { (a, b) } else { (b, a) };
        let rise = line.step.checked_mul(self.steps)?.unsigned_abs();
        let may_be = |mask: u64| mask & mask.wrapping_add(1) == 0 && rise <= mask;
        if !mask.is_same() || !mask.constant.is_none_or(may_be) || self.is_cautious {
            return None;
        }
        let first = self.build.ins().band(line.first, mask.first);
        let rest = LineOf { first, step: line.step, constant: None };
        let (last, fits) = self.ends(rest, width, false)?;
        let inside = self.compare(IntCC::UnsignedLessThanOrEqual, last, mask.first);
        let mut holds = self.both(fits, inside);
        if mask.constant.is_none() {
            let next = self.build.ins().iadd_imm(mask.first, 1);
            let above = self.both(next, mask.first);
            let is_lower = self.build.ins().icmp_imm(IntCC::Equal, above, 0);
            holds = self.both(holds, is_lower);
        }
        self.check_line(holds, at);
        Some(rest)
    }

    /// The predicate of all lanes of a comparison of values that they share.
    pub(super) fn compare_same(
        &mut self,
        compared: Compared,
        comparison: Comparison,
        a: LineOf,
        b: LineOf,
    ) -> Mask {
        let signed = match compared {
            Compared::Signed(_) => true,
            Compared::Unsigned(_) => false,
            Compared::Float(_) | Compared::Flushed => {
                let value = self.once(Form::Compare(compared, comparison), 0, &[a.first, b.first]);
                let holds = self.build.ins().icmp_imm(IntCC::NotEqual, value, 0);
                return Mask { value, same: Some(holds) };
            }
        };
        let holds = self.compare(order(comparison, signed), a.first, b.first);
        Mask { value: self.all_or_none(holds), same: Some(holds) }
    }

    /// The predicate of all lanes of a comparison of lines.
    pub(super) fn compare_lines(
        &mut self,
        compared: Compared,
        comparison: Comparison,
        a: LineOf,
        b: LineOf,
    ) -> Option<Value> {
        let (width, signed) = match compared {
            Compared::Signed(width) => (width, true),
            Compared::Unsigned(width) => (width, false),
            Compared::Float(_) | Compared::Flushed => return None,
        };
        if matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
            let mask = self.equal_lanes(width, a, b)?;
            let is_equal = comparison == Comparison::Equal;
            return Some(if is_equal { mask } else { self.build.ins().bnot(mask) });
        }
        self.order_of_lines((width, signed), comparison, a, b)
    }

    /// The lanes in which lines are equal: one at most, if their steps differ by a power of two.
    fn equal_lanes(&mut self, width: Width, a: LineOf, b: LineOf) -> Option<Value> {
        let (distance, power) = self.distance(a, b)?;
        // Bits below the power come first, so that a distance between lanes is beyond the last one.
        let lane = self.build.ins().rotr_imm(distance, power);
        let is_lane = self.build.ins().icmp_imm(IntCC::UnsignedLessThan, lane, WIDTH as i64);
        let (mask, none) = (self.lane_bit(width, lane), self.word(0));
        Some(self.build.ins().select(is_lane, mask, none))
    }

    /// The predicate of an order: along lines that do not wrap, it changes at most once.
    fn order_of_lines(
        &mut self,
        (width, signed): (Width, bool),
        comparison: Comparison,
        a: LineOf,
        b: LineOf,
    ) -> Option<Value> {
        let ((last_a, a_fits), (last_b, b_fits)) =
            (self.ends(a, width, signed)?, self.ends(b, width, signed)?);
        let order = order(comparison, signed);
        let begins = self.compare(order, a.first, b.first);
        let ends = self.compare(order, last_a, last_b);
        let (fit, agree) = (self.both(a_fits, b_fits), self.compare(IntCC::Equal, begins, ends));
        let (holds, fast) = (self.both(fit, agree), self.all_or_none(begins));
        let compared = if signed { Compared::Signed(width) } else { Compared::Unsigned(width) };
        Some(self.either(holds, fast, |emit| {
            let changed = emit.lanes_before_change(width, comparison, a, b);
            let Some(before) = changed else {
                return emit.compare_each(compared, comparison, a, b);
            };
            let after = emit.build.ins().bnot(before);
            let changed = emit.build.ins().select(begins, before, after);
            emit.either(fit, changed, |emit| emit.compare_each(compared, comparison, a, b))
        }))
    }

    /// The lanes before the one in which an order of lines changes, if their steps differ by a power of two:
    /// the lines do not wrap, and their order changes.
    fn lanes_before_change(
        &mut self,
        width: Width,
        comparison: Comparison,
        a: LineOf,
        b: LineOf,
    ) -> Option<Value> {
        let (distance, power) = self.distance(a, b)?;
        // One line comes from below, is level with the other in some lane or between two, and is above then.
        let is_less = matches!(comparison, Comparison::Less | Comparison::LessOrEqual);
        let holds_level =
            matches!(comparison, Comparison::LessOrEqual | Comparison::GreaterOrEqual);
        let holds_before = (a.step.wrapping_sub(b.step) > 0) == is_less;
        let with_level = holds_level == holds_before;
        let up = if with_level { 0 } else { (1 << power) - 1 };
        let distance = self.build.ins().iadd_imm(distance, up);
        let lanes = self.build.ins().ushr_imm(distance, power);
        let lanes = if with_level { self.build.ins().iadd_imm(lanes, 1) } else { lanes };
        let mask = self.lane_bit(width, lanes);
        Some(self.build.ins().iadd_imm(mask, -1))
    }

    /// How far the line that comes from below has to go to the other one, and the power of two that it comes
    /// closer by in each lane. `None` if it is no power of two.
    fn distance(&mut self, a: LineOf, b: LineOf) -> Option<(Value, i64)> {
        let approach = a.step.wrapping_sub(b.step);
        let power = power_of(approach)?;
        let (from, to) = if approach > 0 { (a, b) } else { (b, a) };
        Some((self.build.ins().isub(to.first, from.first), power))
    }

    /// The bit of a lane, which is a number of a width.
    fn lane_bit(&mut self, width: Width, lane: Value) -> Value {
        let lane = match width {
            Width::Word => lane,
            Width::Double => self.build.ins().ireduce(types::I32, lane),
        };
        let one = self.word(1);
        self.build.ins().ishl(one, lane)
    }

    /// The predicate of a comparison of lines, lane by lane.
    fn compare_each(
        &mut self,
        compared: Compared,
        comparison: Comparison,
        a: LineOf,
        b: LineOf,
    ) -> Value {
        let is_double =
            matches!(compared, Compared::Signed(Width::Double) | Compared::Unsigned(Width::Double));
        let mut mask = self.word(0);
        for group in 0..GROUPS {
            let fours = [a, b].map(|line| self.line_in_group(is_double, line, group));
            let four = self.four(Form::Compare(compared, comparison), 0, &fours);
            let bits = self.bits_of_group(four.word(), group);
            mask = self.build.ins().bor(mask, bits);
        }
        mask
    }
}

/// The power of two that a step is, up or down; at most 2^16.
fn power_of(step: i64) -> Option<i64> {
    let size = step.unsigned_abs();
    (size.is_power_of_two() && size <= 1 << 16).then(|| size.trailing_zeros().into())
}
