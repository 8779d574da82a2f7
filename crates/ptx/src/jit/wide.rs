//! Functions of registers over four lanes.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::emit::{Emit, WORDS, plain};
use super::segment::Source;
use super::value::{Four, GROUPS};
use crate::code::{Compared, Form, Register, Width};
use crate::math::compare::Comparison;

impl Emit<'_> {
    /// The value of a form in four lanes.
    pub(super) fn four(&mut self, form: Form, imm: u64, s: &[Four]) -> Four {
        match form {
            Form::Copy(_) => s[0],
            Form::Low => Four::Word(self.low_halves(s[0].double())),
            Form::High => Four::Word(self.high_halves(s[0].double())),
            Form::CountOnes => Four::Word(self.ones(s[0].word())),
            Form::LeadingZeros { finds } => Four::Word(self.leading_zeros(s[0].word(), finds)),
            Form::Widen { signed } => Four::Double(self.widened(s[0].word(), signed)),
            Form::Pair => {
                let ([low, high], [a, b]) =
                    (self.widened(s[0].word(), false), self.widened(s[1].word(), false));
                Four::Double([(low, a), (high, b)].map(|(low, high)| {
                    let upper = self.build.ins().ishl_imm(high, 32);
                    self.build.ins().bor(low, upper)
                }))
            }
            Form::Offset => {
                let offset = self.doubles(imm);
                Four::Double(s[0].double().map(|value| self.build.ins().iadd(value, offset)))
            }
            Form::MultiplyWide { signed } => Four::Double(self.wide_product(s, signed)),
            Form::MultiplyHigh { signed } => {
                let product = self.wide_product(s, signed);
                Four::Word(self.high_halves(product))
            }
            Form::MultiplyWideAdd { signed } => {
                let (product, other) = (self.wide_product(s, signed), s[2].double());
                Four::Double([0, 1].map(|half| self.build.ins().iadd(product[half], other[half])))
            }
            Form::Select(width) => match width {
                Width::Word => self.choose(s[2].word(), s[0], s[1]),
                Width::Double => self.choose(s[2].word(), Four::Double(s[0].double()), s[1]),
            },
            Form::Compare(compared, comparison) => {
                Four::Mask(self.compared(compared, comparison, s))
            }
            Form::FloatOf { signed } => {
                let value = s[0].word();
                let float = match signed {
                    true => self.build.ins().fcvt_from_sint(types::F32X4, value),
                    false => self.build.ins().fcvt_from_uint(types::F32X4, value),
                };
                Four::Word(self.cast(WORDS, float))
            }
            Form::Funnel => Four::Word(self.funnel(s[0].word(), s[1].word(), imm)),
            Form::Permute => Four::Word(self.permuted(s[0].word(), s[1].word(), imm)),
            Form::Extract { signed } => Four::Word(self.extracted(s[0].word(), signed, imm)),
            Form::Insert => Four::Word(self.inserted(s[0].word(), s[1].word(), imm)),
            Form::Table => {
                Four::Word(self.by_table(imm as u8, [0, 1, 2].map(|source| s[source].word())))
            }
            Form::DoubleOf => Four::Double(self.integers_as_doubles(s[0].word())),
            Form::IntegerOf { signed, rounding } => {
                Four::Word(self.integers_of(s[0].word(), signed, rounding, imm))
            }
            Form::Divide { signed } => Four::Word(self.quotients(s[0].word(), s[1].word(), signed)),
            Form::Remainder { signed } => {
                Four::Word(self.remainders(s[0].word(), s[1].word(), signed))
            }
            Form::FloatClamp => Four::Word(self.clamped(s[0].word(), imm)),
            Form::FloatFusedDown => {
                Four::Word(self.fused_down([0, 1, 2].map(|source: usize| s[source].word())))
            }
            Form::FloatOfHalf => Four::Word(self.floats_of_halves(s[0].word())),
            Form::HalfOf => Four::Word(self.halves_of_floats(s[0].word())),
            Form::Promote => Four::Double(self.promoted(s[0].word())),
            Form::Demote => Four::Word(self.demoted(s[0].double())),
            _ => self.each_vector(form, imm, s),
        }
    }

    /// A function that works on vectors of words as it does on vectors of doubles.
    fn each_vector(&mut self, form: Form, imm: u64, s: &[Four]) -> Four {
        if let Some(width) = form.float_width() {
            return match width {
                Width::Word => {
                    let values: Vec<Value> = s.iter().map(|four| four.word()).collect();
                    Four::Word(self.single(form, imm, &values))
                }
                Width::Double => Four::Double(self.double_floats(form, imm, s)),
            };
        }
        match form.integer_width() {
            Width::Word => {
                let values: Vec<Value> = s.iter().map(|four| four.word()).collect();
                Four::Word(self.integers(form, imm, &values))
            }
            Width::Double => Four::Double([0, 1].map(|half| {
                let values: Vec<Value> = s.iter().map(|four| four.double()[half]).collect();
                self.integers(form, imm, &values)
            })),
        }
    }

    /// Arithmetic and logic of integers: of vectors, or of single numbers.
    pub(super) fn integers(&mut self, form: Form, imm: u64, s: &[Value]) -> Value {
        let amount = (imm & 63).cast_signed();
        let ins = self.build.ins();
        match form {
            Form::Add(_) => ins.iadd(s[0], s[1]),
            Form::Subtract(_) => ins.isub(s[0], s[1]),
            Form::Multiply(_) => ins.imul(s[0], s[1]),
            Form::MultiplyAdd(_) => {
                let product = ins.imul(s[0], s[1]);
                self.build.ins().iadd(product, s[2])
            }
            Form::Negate(_) => ins.ineg(s[0]),
            Form::Absolute(_) => ins.iabs(s[0]),
            Form::Minimum { signed: true } => ins.smin(s[0], s[1]),
            Form::Minimum { signed: false } => ins.umin(s[0], s[1]),
            Form::Maximum { signed: true } => ins.smax(s[0], s[1]),
            Form::Maximum { signed: false } => ins.umax(s[0], s[1]),
            Form::And(_) => ins.band(s[0], s[1]),
            Form::Or(_) => ins.bor(s[0], s[1]),
            Form::Xor(_) => ins.bxor(s[0], s[1]),
            Form::Not(_) => ins.bnot(s[0]),
            Form::ShiftLeft(_) => ins.ishl_imm(s[0], amount),
            Form::ShiftRight { signed: true, .. } => ins.sshr_imm(s[0], amount),
            Form::ShiftRight { signed: false, .. } => ins.ushr_imm(s[0], amount),
            _ => s[0],
        }
    }

    /// A shift of a number, or of vectors, by an amount that all lanes share.
    pub(super) fn shift_by(&mut self, form: Form, value: Value, amount: Value) -> Value {
        let Form::ShiftBy { width, left, signed } = form else { return value };
        let bits = if width == Width::Word { 32 } else { 64 };
        if signed && !left {
            let most = self.word(bits - 1);
            let amount = self.build.ins().umin(amount, most);
            return self.build.ins().sshr(value, amount);
        }
        let limit = self.word(bits);
        let fits = self.compare(IntCC::UnsignedLessThan, amount, limit);
        let mut keep = self.all_or_none(fits);
        if width == Width::Double {
            keep = self.build.ins().sextend(types::I64, keep);
        }
        let kind = self.build.func.dfg.value_type(value);
        if kind.is_vector() {
            keep = self.build.ins().splat(kind, keep);
        }
        let shifted = match left {
            true => self.build.ins().ishl(value, amount),
            false => self.build.ins().ushr(value, amount),
        };
        self.build.ins().band(shifted, keep)
    }

    /// Shifts a source by the amount in a register if all lanes share it, or else the interpreter does.
    pub(super) fn shift_if_same(
        &mut self,
        form: Form,
        (value, amounts): (Source, u16),
        result: Register,
        position: u32,
    ) {
        let (base, offset) = self.lanes_of_word(amounts, 0);
        let amount = self.build.ins().load(types::I32, plain(), base, offset);
        let all = self.build.ins().splat(WORDS, amount);
        let mut differing = self.words(0);
        for group in 0..GROUPS {
            let own = self.load_word(amounts, group).word();
            let bits = self.build.ins().bxor(own, all);
            differing = self.build.ins().bor(differing, bits);
        }
        let differs = self.build.ins().vany_true(differing);
        let (here, away) = (self.build.create_block(), self.build.create_block());
        let done = self.build.create_block();
        self.build.ins().brif(differs, away, &[], here, &[]);
        self.build.switch_to_block(here);
        for group in 0..GROUPS {
            let four = self.group_of(value, group);
            let four = self.shifted(form, four, amount);
            self.store(result.place, group, four);
        }
        self.forget_lines(&[result]);
        self.build.ins().jump(done, &[]);
        self.build.switch_to_block(away);
        self.call_instruction(position, false);
        self.build.ins().jump(done, &[]);
        self.build.switch_to_block(done);
    }

    /// A shift of four lanes by an amount that all share.
    pub(super) fn shifted(&mut self, form: Form, value: Four, amount: Value) -> Four {
        match value {
            Four::Double(halves) => {
                Four::Double(halves.map(|half| self.shift_by(form, half, amount)))
            }
            Four::Word(value) | Four::Mask(value) => Four::Word(self.shift_by(form, value, amount)),
        }
    }

    /// How many bits of four words are 1: sums of pairs, of four, and of bytes.
    fn ones(&mut self, value: Value) -> Value {
        let [pairs, fours, bytes] = [0x5555_5555, 0x3333_3333, 0x0f0f_0f0f].map(|m| self.words(m));
        let half = self.build.ins().ushr_imm(value, 1);
        let half = self.build.ins().band(half, pairs);
        let value = self.build.ins().isub(value, half);
        let (low, high) =
            (self.build.ins().band(value, fours), self.build.ins().ushr_imm(value, 2));
        let high = self.build.ins().band(high, fours);
        let value = self.build.ins().iadd(low, high);
        let high = self.build.ins().ushr_imm(value, 4);
        let value = self.build.ins().iadd(value, high);
        let value = self.build.ins().band(value, bytes);
        let each = self.words(0x0101_0101);
        let sums = self.build.ins().imul(value, each);
        self.build.ins().ushr_imm(sums, 24)
    }

    /// The zeros above the highest 1 of four words, or its place.
    fn leading_zeros(&mut self, mut value: Value, finds: bool) -> Value {
        for distance in [1, 2, 4, 8, 16] {
            let below = self.build.ins().ushr_imm(value, distance);
            value = self.build.ins().bor(value, below);
        }
        let ones = self.ones(value);
        let [one, all] = [1, 32].map(|number| self.words(number));
        match finds {
            true => self.build.ins().isub(ones, one),
            false => self.build.ins().isub(all, ones),
        }
    }

    fn widened(&mut self, value: Value, signed: bool) -> [Value; 2] {
        if signed {
            [self.build.ins().swiden_low(value), self.build.ins().swiden_high(value)]
        } else {
            [self.build.ins().uwiden_low(value), self.build.ins().uwiden_high(value)]
        }
    }

    fn wide_product(&mut self, s: &[Four], signed: bool) -> [Value; 2] {
        let (a, b) = (self.widened(s[0].word(), signed), self.widened(s[1].word(), signed));
        [0, 1].map(|half| self.build.ins().imul(a[half], b[half]))
    }

    /// A comparison in four lanes, as a mask of words.
    fn compared(&mut self, compared: Compared, comparison: Comparison, s: &[Four]) -> Value {
        if compared.width() == Width::Word {
            return self.compared_vector(compared, comparison, s[0].word(), s[1].word());
        }
        let (a, b) = (s[0].double(), s[1].double());
        let halves =
            [0, 1].map(|half| self.compared_vector(compared, comparison, a[half], b[half]));
        self.low_halves(halves)
    }

    fn compared_vector(
        &mut self,
        compared: Compared,
        comparison: Comparison,
        a: Value,
        b: Value,
    ) -> Value {
        match compared {
            Compared::Float(Width::Word) => {
                let (a, b) = (self.cast(types::F32X4, a), self.cast(types::F32X4, b));
                self.ordered(comparison, a, b)
            }
            Compared::Flushed => {
                let (a, b) = (self.flushed(a), self.flushed(b));
                self.compared_vector(Compared::Float(Width::Word), comparison, a, b)
            }
            Compared::Float(Width::Double) => {
                let (a, b) = (self.cast(types::F64X2, a), self.cast(types::F64X2, b));
                self.ordered(comparison, a, b)
            }
            Compared::Unsigned(Width::Double) => {
                // There is no unsigned order of vectors of doubles.
                let sign = self.doubles(1 << 63);
                let (a, b) = (self.build.ins().bxor(a, sign), self.build.ins().bxor(b, sign));
                self.build.ins().icmp(order(comparison, true), a, b)
            }
            Compared::Unsigned(Width::Word) => {
                self.build.ins().icmp(order(comparison, false), a, b)
            }
            Compared::Signed(_) => self.build.ins().icmp(order(comparison, true), a, b),
        }
    }

    /// A comparison of floats.
    fn ordered(&mut self, comparison: Comparison, a: Value, b: Value) -> Value {
        let mut holds = |order| self.build.ins().fcmp(order, a, b);
        let (negated, mask) = match comparison {
            Comparison::Equal => (false, holds(FloatCC::Equal)),
            Comparison::NotEqualOrUnordered => (false, holds(FloatCC::NotEqual)),
            Comparison::Less => (false, holds(FloatCC::LessThan)),
            Comparison::LessOrEqual => (false, holds(FloatCC::LessThanOrEqual)),
            Comparison::Greater => (false, holds(FloatCC::GreaterThan)),
            Comparison::GreaterOrEqual => (false, holds(FloatCC::GreaterThanOrEqual)),
            Comparison::LessOrUnordered => (true, holds(FloatCC::GreaterThanOrEqual)),
            Comparison::LessOrEqualOrUnordered => (true, holds(FloatCC::GreaterThan)),
            Comparison::GreaterOrUnordered => (true, holds(FloatCC::LessThanOrEqual)),
            Comparison::GreaterOrEqualOrUnordered => (true, holds(FloatCC::LessThan)),
            Comparison::NotEqual | Comparison::EqualOrUnordered => {
                let (less, greater) = (holds(FloatCC::LessThan), holds(FloatCC::GreaterThan));
                let apart = self.build.ins().bor(less, greater);
                (comparison == Comparison::EqualOrUnordered, apart)
            }
            Comparison::Ordered | Comparison::Unordered => {
                let (a, b) = (self.is_nan(a), self.is_nan(b));
                let unordered = self.build.ins().bor(a, b);
                (comparison == Comparison::Ordered, unordered)
            }
        };
        if negated { self.build.ins().bnot(mask) } else { mask }
    }
}

/// The order of two integers.
pub(super) fn order(comparison: Comparison, signed: bool) -> IntCC {
    let order = match comparison {
        Comparison::Equal | Comparison::EqualOrUnordered => IntCC::Equal,
        Comparison::Less | Comparison::LessOrUnordered => IntCC::SignedLessThan,
        Comparison::LessOrEqual | Comparison::LessOrEqualOrUnordered => {
            IntCC::SignedLessThanOrEqual
        }
        Comparison::Greater | Comparison::GreaterOrUnordered => IntCC::SignedGreaterThan,
        Comparison::GreaterOrEqual | Comparison::GreaterOrEqualOrUnordered => {
            IntCC::SignedGreaterThanOrEqual
        }
        _ => IntCC::NotEqual,
    };
    if signed { order } else { order.unsigned() }
}
