//! Video instructions: on words and parts of them, and on two or four lanes of a word.

use super::builder::{Builder, Local};
use super::compare::OF_ALL_TYPES;
use super::macros::slow_ter;
use super::modifiers::{Modifiers, Refusal};
use crate::math::video::{Form, Operation, Part, Scalar, Third, WordForm, apply, apply_word};
use crate::syntax::tree::Operand;
use crate::types::Type;

/// The names of operations, in the order of their numbers in an immediate. The comparisons of `vset` follow.
const OPERATIONS: [(&str, Operation); 6] = [
    ("vadd", Operation::Add),
    ("vsub", Operation::Subtract),
    ("vavrg", Operation::Average),
    ("vabsdiff", Operation::Difference),
    ("vmin", Operation::Min),
    ("vmax", Operation::Max),
];

/// The numbers of the operations that only words have. A product follows that is negated.
const SHIFT_LEFT: u64 = 12;
const SHIFT_RIGHT: u64 = 13;
const PRODUCT: u64 = 14;

/// The operation of a number, if lanes have it.
fn operation(number: usize) -> Operation {
    match number.checked_sub(OPERATIONS.len()) {
        None => OPERATIONS[number].1,
        Some(compared) => Operation::Set(OF_ALL_TYPES[compared % OF_ALL_TYPES.len()].1),
    }
}

/// Bits of an immediate.
fn field(imm: u64, at: u32, bits: u32) -> u32 {
    (imm >> at) as u32 & ((1 << bits) - 1)
}

/// The form of an immediate: the operation, the bits of a lane, three signs, `.sat`, `.add`, the mask, and
/// twice the lanes that are chosen.
fn form(imm: u64) -> Form {
    let flag = |bit: u32| field(imm, bit, 1) != 0;
    Form {
        operation: operation(field(imm, 0, 4) as usize),
        bits: if flag(8) { 16 } else { 8 },
        signed: [flag(9), flag(10), flag(11)],
        saturate: flag(12),
        accumulate: flag(13),
        mask: field(imm, 16, 4),
        chosen: [field(imm, 20, 12), field(imm, 32, 12)],
    }
}

/// The parts of words by their numbers.
const PARTS: [(&str, Part); 7] = [
    ("", Part::WORD),
    ("b0", Part { at: 0, bits: 8 }),
    ("b1", Part { at: 8, bits: 8 }),
    ("b2", Part { at: 16, bits: 8 }),
    ("b3", Part { at: 24, bits: 8 }),
    ("h0", Part { at: 0, bits: 16 }),
    ("h1", Part { at: 16, bits: 16 }),
];

/// The form of an immediate: the operation, two signs, `.wrap`, the use of the third operand, and the parts
/// of the operands and of the result.
fn word_form(imm: u64) -> WordForm {
    let flag = |bit: u32| field(imm, bit, 1) != 0;
    let part = |at: u32| PARTS[field(imm, at, 3) as usize % PARTS.len()].1;
    let number = field(imm, 0, 4);
    let shift = |left| Scalar::Shift { left, wrap: flag(10) };
    WordForm {
        operation: match u64::from(number) {
            SHIFT_LEFT => shift(true),
            SHIFT_RIGHT => shift(false),
            PRODUCT.. => Scalar::Product { negative: u64::from(number) > PRODUCT },
            _ => Scalar::Of(operation(number as usize)),
        },
        signed: [flag(8), flag(9)],
        parts: [part(16), part(19)],
        third: match field(imm, 12, 3) {
            0 => Third::None,
            1 => Third::Add,
            2 => Third::AddWithOne,
            3 => Third::Subtract,
            _ => Third::Merge(part(22)),
        },
    }
}

/// The reason that a form is refused of which `ptxas` makes code with other results than PTX's manual has.
fn differs(what: &str) -> Refusal {
    format!("{what} is not supported: ptxas's code for it gives other results than PTX's manual")
}

fn is_negative(operand: &Operand<'_>) -> bool {
    matches!(operand, Operand::Negative(_))
}

/// An operand without its sign.
fn positive<'t>(operand: &Operand<'t>) -> Operand<'t> {
    match operand {
        Operand::Negative(name) => Operand::Name(name),
        other => other.clone(),
    }
}

impl<'t> Builder<'_, 't> {
    /// `vadd4`, `vset2` and so on: on lanes.
    pub(super) fn video_lanes(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let (operation, count) = name.split_at(name.len() - 1);
        let lanes = if count == "2" { 2 } else { 4 };
        let (mut imm, signs) = self.video_operation(operation, m)?;
        imm |= u64::from(lanes == 2) << 8 | signs << 9;
        imm |= m.choose(&[("sat", 1 << 12), ("add", 1 << 13)]).unwrap_or(0);
        if operation == "vset" && imm >> 12 & 1 != 0 {
            return Err(format!("`{name}` has no `.sat`"));
        }
        let [d, a, b, c] = o else { return Err("4 operands are expected".to_owned()) };
        let own = |first: u64| (0..lanes).map(|lane| (first + lane) << (3 * lane)).sum::<u64>();
        let letter = if lanes == 2 { 'h' } else { 'b' };
        let (d, mask) = self.lanes_of(d, letter, lanes)?;
        let (a, first) = self.lanes_of(a, letter, 2 * lanes)?;
        let (b, second) = self.lanes_of(b, letter, 2 * lanes)?;
        let chosen = |list: Option<Vec<u64>>, first: u64| match list {
            None => Ok(own(first)),
            Some(list) if list.len() as u64 == lanes => {
                Ok(list.iter().enumerate().map(|(lane, chosen)| chosen << (3 * lane)).sum())
            }
            Some(_) => Err(format!("a lane is chosen for each of {lanes}")),
        };
        let mask = mask.map_or(15, |list| list.iter().fold(0, |mask, lane| mask | 1 << lane));
        imm |= mask << 16 | chosen(first, 0)? << 20 | chosen(second, lanes)? << 32;
        let run = slow_ter!(u32, u32, u32 => u32, |op, a, b, c| apply(form(op.imm), a, b, c));
        self.plain(run, Type::B32, &[Type::B32; 3], &[d, a, b, c.clone()], imm)
    }

    /// The number of an operation, and the signs of its result (`vset` has none) and of its operands.
    fn video_operation(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
    ) -> Result<(u64, u64), Refusal> {
        let sign = |m: &mut Modifiers<'t>| match m.kind()? {
            Type::U32 => Ok(0),
            Type::S32 => Ok(1),
            _ => Err(format!("`{name}` is of .u32 and .s32")),
        };
        let to = if name == "vset" { 0 } else { sign(m)? };
        let signs = to | sign(m)? << 1 | sign(m)? << 2;
        let number = match name {
            "vset" => {
                let compared = m.must(OF_ALL_TYPES)?;
                let place = OF_ALL_TYPES.iter().position(|(_, known)| *known == compared);
                (OPERATIONS.len() + place.unwrap_or_default()) as u64
            }
            "vshl" => SHIFT_LEFT,
            "vshr" => SHIFT_RIGHT,
            "vmad" => PRODUCT,
            _ => OPERATIONS.iter().position(|(known, _)| *known == name).unwrap_or_default() as u64,
        };
        Ok((number, signs))
    }

    /// `vadd`, `vset`, `vmad` and so on: on words or parts of them.
    pub(super) fn video_words(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let (number, signs) = self.video_operation(name, m)?;
        if name.starts_with("vsh") && signs & 4 != 0 {
            return Err(format!("the distance of `{name}` is of .u32"));
        }
        for modifier in ["sat", "min", "max", "shr7", "shr15"] {
            if m.has(modifier) {
                return Err(differs(&format!("`.{modifier}` of `{name}`")));
            }
        }
        let mut imm = number | (signs >> 1) << 8;
        if name.starts_with("vsh") {
            imm |= m.must(&[("clamp", 0), ("wrap", 1 << 10)])?;
        }
        let ([d, a, b], c) = match o {
            [d, a, b] => ([d, a, b], None),
            [d, a, b, c] => ([d, a, b], Some(c)),
            _ => return Err("3 or 4 operands are expected".to_owned()),
        };
        let (d, to) = self.part_of(d)?;
        let third = if name == "vmad" {
            let negative = [a, b].map(is_negative);
            imm += u64::from(negative[0] != negative[1]);
            Self::use_of_addend(m, negative, c)?
        } else if o.iter().any(is_negative) {
            return Err(format!("`{name}` does not negate its operands"));
        } else {
            Self::use_of_third(m, to, c)?
        };
        let ((a, first), (b, second)) = (self.part_of(&positive(a))?, self.part_of(&positive(b))?);
        if third < 4 && to != 0 {
            return Err("a part of the result takes the rest of a fourth operand".to_owned());
        }
        imm |= third << 12 | first << 16 | second << 19 | to << 22;
        let c = c.map_or_else(|| a.clone(), positive);
        let run =
            slow_ter!(u32, u32, u32 => u32, |op, a, b, c| apply_word(word_form(op.imm), a, b, c));
        self.plain(run, Type::B32, &[Type::B32; 3], &[d, a, b, c], imm)
    }

    /// The number of the third operand's use in `vmad`.
    fn use_of_addend(
        m: &mut Modifiers<'t>,
        negative: [bool; 2],
        c: Option<&Operand<'t>>,
    ) -> Result<u64, Refusal> {
        let c = c.ok_or("4 operands are expected")?;
        match (m.take("po"), is_negative(c), negative) {
            (true, false, [false, false]) => Ok(2),
            (true, ..) => Err("`.po` and a negative operand exclude each other".to_owned()),
            (false, true, [first, second]) if first != second => {
                Err("either the product or the addend is negated".to_owned())
            }
            (false, true, _) => Ok(3),
            (false, false, _) => Ok(1),
        }
    }

    /// The number of the third operand's use, in others than `vmad`; `to` is the part of the result.
    fn use_of_third(
        m: &mut Modifiers<'t>,
        to: u64,
        c: Option<&Operand<'t>>,
    ) -> Result<u64, Refusal> {
        match (m.take("add"), c) {
            (true, Some(_)) => Ok(1),
            (true, None) => Err("4 operands are expected".to_owned()),
            (false, None) => Ok(0),
            (false, Some(_)) if to == 0 => {
                Err("a fourth operand needs `.add`, or a part of the result".to_owned())
            }
            (false, Some(_)) if PARTS[to as usize % PARTS.len()].0 == "h1" => {
                Err(differs("a result in `.h1`"))
            }
            (false, Some(_)) => Ok(4),
        }
    }

    /// The register of `register.part`, and what stands behind the dot.
    fn with_suffix(&mut self, operand: &Operand<'t>) -> (Operand<'t>, &'t str) {
        let Operand::Name(name) = operand else { return (operand.clone(), "") };
        match name.rsplit_once('.') {
            Some((base, suffix)) if matches!(self.find(base), Some(Local::Register(_))) => {
                (Operand::Name(base), suffix)
            }
            _ => (Operand::Name(name), ""),
        }
    }

    /// A register, and the number of its part.
    fn part_of(&mut self, operand: &Operand<'t>) -> Result<(Operand<'t>, u64), Refusal> {
        let (register, suffix) = self.with_suffix(operand);
        let place = PARTS.iter().position(|(name, _)| *name == suffix);
        let place = place.ok_or_else(|| format!("`.{suffix}` is no part of a word"))?;
        Ok((register, place as u64))
    }

    /// A register, and its lanes of so many that are named, the last one first: `.b3210`, `.h10`.
    fn lanes_of(
        &mut self,
        operand: &Operand<'t>,
        letter: char,
        count: u64,
    ) -> Result<(Operand<'t>, Option<Vec<u64>>), Refusal> {
        let (register, suffix) = self.with_suffix(operand);
        if suffix.is_empty() {
            return Ok((register, None));
        }
        let wrong = || format!("`.{suffix}` names no lanes of this instruction");
        let digits = suffix.strip_prefix(letter).ok_or_else(wrong)?;
        let lane = |digit: char| digit.to_digit(10).map(u64::from).filter(|lane| *lane < count);
        let lanes: Option<Vec<u64>> = digits.chars().rev().map(lane).collect();
        Ok((register, Some(lanes.filter(|lanes| !lanes.is_empty()).ok_or_else(wrong)?)))
    }
}
