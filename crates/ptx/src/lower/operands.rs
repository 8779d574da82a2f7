//! Operands as slots: registers, constants, special registers, addresses.

use super::builder::{Builder, Local, Register};
use super::macros::un;
use super::modifiers::Refusal;
use super::special::special;
use super::symbols::Symbol;
use crate::code::{Code, Constant, File, Form, OnLanes, Place, Pure, Slot, Special};
use crate::syntax::tree::{Operand, Variable};
use crate::types::Type;

/// The address operand of an access.
pub(super) struct Address {
    /// The register or constant; of a frame's or parameter's variable, an unused constant.
    pub(super) base: Slot,
    pub(super) wide: bool,
    pub(super) offset: u64,
    /// The space that the name itself implies.
    pub(super) implied: Option<Place>,
    /// Whether a variable is named that is no parameter.
    pub(super) is_own: bool,
}

/// The width of a type's registers in bits.
pub(super) fn width(kind: Type) -> u32 {
    kind.register_bits()
}

/// The width of the narrowest register that takes a type that has one slot.
fn narrow(kind: Type) -> Result<u32, Refusal> {
    match kind {
        Type::B128 => Err("the instruction has no .b128".to_owned()),
        Type::B8 | Type::U8 | Type::S8 => Ok(8),
        kind => Ok(width(kind)),
    }
}

impl<'t> Builder<'_, 't> {
    /// A register operand, whichever its width.
    pub(super) fn any_register(
        &mut self,
        operand: &Operand<'_>,
    ) -> Result<Option<Register>, Refusal> {
        let Operand::Name(name) = operand else { return Ok(None) };
        match self.find(name) {
            Some(Local::Register(register)) => return Ok(Some(register)),
            Some(Local::Vector(_)) => return Err(format!("`{name}` is a vector; name an element")),
            Some(_) => return Ok(None),
            None => {}
        }
        if let Some((base, element)) = name.rsplit_once('.')
            && let Some(Local::Vector(elements)) = self.find(base)
        {
            let index = match element {
                "x" | "r" => 0,
                "y" | "g" => 1,
                "z" | "b" => 2,
                "w" | "a" => 3,
                _ => usize::MAX,
            };
            let register = elements.get(index).copied();
            return register
                .map(Some)
                .ok_or_else(|| format!("`{base}` has no element `.{element}`"));
        }
        Ok(None)
    }

    /// A source of a type: a register of its width, a number, a special register, or an address.
    pub(super) fn source(&mut self, operand: &Operand<'_>, kind: Type) -> Result<Slot, Refusal> {
        let want = narrow(kind)?;
        if let Some(register) = self.any_register(operand)? {
            if register.bits != want {
                return Err(wrong_width(operand, register.bits, want));
            }
            return Ok(register.slot);
        }
        self.other_source(operand, kind)
    }

    /// Whether an operand is a register of 8 bits.
    pub(super) fn is_byte(&mut self, operand: &Operand<'_>) -> Result<bool, Refusal> {
        Ok(self.any_register(operand)?.is_some_and(|register| register.bits == 8))
    }

    /// A source that may be in a wider register than its type: of `ld`, `st` and `cvt`.
    pub(super) fn relaxed_source(
        &mut self,
        operand: &Operand<'_>,
        kind: Type,
    ) -> Result<Slot, Refusal> {
        if let Some(register) = self.any_register(operand)? {
            if register.bits < narrow(kind)? || matches!(register.bits, 1 | 128) {
                return Err(wrong_width(operand, register.bits, width(kind)));
            }
            return Ok(register.slot);
        }
        self.other_source(operand, kind)
    }

    fn other_source(&mut self, operand: &Operand<'_>, kind: Type) -> Result<Slot, Refusal> {
        if kind == Type::Pred {
            return self.predicate_source(operand);
        }
        let wide = width(kind) == 64;
        if let Some(value) = self.literal(operand, kind) {
            let value = value?;
            let value = if width(kind) == 16 { value & 0xffff } else { value };
            return Ok(self.number(value, wide));
        }
        match operand {
            Operand::Name(name) => self.named_source(name, 0, wide),
            Operand::Sum(name, offset) => self.named_source(name, *offset, wide),
            Operand::Element { array, register, number } => {
                self.element_source(array, *register, *number, wide)
            }
            _ => Err("this operand is no register, number or name".to_owned()),
        }
    }

    fn predicate_source(&mut self, operand: &Operand<'_>) -> Result<Slot, Refusal> {
        match operand {
            Operand::Number(_) => {
                let value = self.literal(operand, Type::B32).unwrap_or(Ok(0))?;
                let slot = self.temporary(File::Predicate);
                let set: OnLanes = if value == 0 {
                    |lanes, op| lanes.set_predicate(op.d[0], 0)
                } else {
                    |lanes, op| lanes.set_predicate(op.d[0], u32::MAX)
                };
                let run = Pure::of(set).as_form(Form::Always { holds: value != 0 });
                self.emit(Code::Pure(run), &[slot], &[], 0);
                Ok(slot)
            }
            Operand::Not(name) => {
                let inner = self.source(&Operand::Name(name), Type::Pred)?;
                let slot = self.temporary(File::Predicate);
                let not: OnLanes =
                    |lanes, op| lanes.set_predicate(op.d[0], !lanes.predicate(op.s[0]));
                let run = Pure::of(not).as_form(Form::Predicate { negated: true });
                self.emit(Code::Pure(run), &[slot], &[inner], 0);
                Ok(slot)
            }
            Operand::Name("%is_explicit_cluster") => {
                let word = self.special_source(Special::InCluster, 32, false);
                let slot = self.temporary(File::Predicate);
                let run: OnLanes = |lanes, op| {
                    let held = lanes.word(op.s[0]).map(|word| word != 0);
                    lanes.set_predicate(op.d[0], crate::code::pack(&held));
                };
                self.emit(Code::Pure(Pure::of(run)), &[slot], &[word], 0);
                Ok(slot)
            }
            Operand::Name(name) => Err(format!("`{name}` is no predicate that is declared here")),
            _ => Err("a predicate is expected".to_owned()),
        }
    }

    pub(super) fn named_source(
        &mut self,
        name: &str,
        offset: i64,
        wide: bool,
    ) -> Result<Slot, Refusal> {
        if let Some((special, native)) = special(name) {
            return Ok(self.special_source(special, native, wide));
        }
        match self.find(name) {
            Some(Local::Symbol(symbol)) => {
                let constant = self.symbol_constant(symbol, offset);
                Ok(self.constant(constant, wide))
            }
            Some(Local::Own(at) | Local::Frame(at, _)) => {
                let file = if wide { File::Double } else { File::Word };
                let slot = self.temporary(file);
                let at = u64::from(at).wrapping_add(offset.cast_unsigned());
                self.emit(Code::FrameAddress { wide }, &[slot], &[], at);
                Ok(slot)
            }
            Some(Local::Parameter(at)) => {
                Ok(self.number(u64::from(at).wrapping_add(offset.cast_unsigned()), wide))
            }
            Some(_) => Err(format!("`{name}` is no value")),
            None if name == "WARP_SZ" => Ok(self.number(32, wide)),
            None => Err(format!("`{name}` is not declared")),
        }
    }

    pub(super) fn special_source(&mut self, special: Special, native: u32, wide: bool) -> Slot {
        let file = if native == 64 { File::Double } else { File::Word };
        let slot = self.temporary(file);
        self.emit(Code::Special(special), &[slot], &[], u64::from(native));
        match (native == 64, wide) {
            (false, true) => {
                let out = self.temporary(File::Double);
                let widen = un!(u32 => u64, |a| u64::from(a));
                self.emit(Code::Pure(widen), &[out], &[slot], 0);
                out
            }
            (true, false) => {
                let out = self.temporary(File::Word);
                let narrow = un!(u64 => u32, |a| a as u32);
                self.emit(Code::Pure(narrow), &[out], &[slot], 0);
                out
            }
            _ => slot,
        }
    }

    pub(super) fn symbol_constant(&self, symbol: Symbol, offset: i64) -> Constant {
        match symbol {
            Symbol::Variable(index) => Constant::Variable(index, offset),
            Symbol::Shared(index) => Constant::Shared(index, offset),
            Symbol::Function(index) => Constant::Function(index),
        }
    }

    /// A result of a type; `_` is a register that nothing reads.
    pub(super) fn dest(&mut self, operand: &Operand<'_>, kind: Type) -> Result<Slot, Refusal> {
        let want = narrow(kind)?;
        if matches!(operand, Operand::Name("_")) {
            return Ok(self.temporary(file(want)));
        }
        match self.any_register(operand)? {
            Some(register) if register.bits == want => Ok(register.slot),
            Some(register) => Err(wrong_width(operand, register.bits, want)),
            None => Err("the result is no register that is declared here".to_owned()),
        }
    }

    /// A result that may be in a wider register than its type.
    pub(super) fn relaxed_dest(
        &mut self,
        operand: &Operand<'_>,
        kind: Type,
    ) -> Result<Register, Refusal> {
        let want = narrow(kind)?;
        if matches!(operand, Operand::Name("_")) {
            return Ok(Register { slot: self.temporary(file(want)), bits: want });
        }
        match self.any_register(operand)? {
            Some(register) if register.bits >= want && !matches!(register.bits, 1 | 128) => {
                Ok(register)
            }
            Some(register) => Err(wrong_width(operand, register.bits, want)),
            None => Err("the result is no register that is declared here".to_owned()),
        }
    }

    /// `d` or `d|p`: a result and the predicate beside it.
    pub(super) fn dest_pair(
        &mut self,
        operand: &Operand<'_>,
        kind: Type,
    ) -> Result<(Slot, Option<Slot>), Refusal> {
        match operand {
            Operand::Pair(first, second) => {
                let first = self.dest(&Operand::Name(first), kind)?;
                Ok((first, Some(self.dest(&Operand::Name(second), Type::Pred)?)))
            }
            _ => Ok((self.dest(operand, kind)?, None)),
        }
    }

    /// The elements of a vector operand; a single operand is one element.
    pub(super) fn elements<'o>(&self, operand: &'o Operand<'t>) -> &'o [Operand<'t>] {
        match operand {
            Operand::Vector(elements) => elements,
            one => std::slice::from_ref(one),
        }
    }

    /// An address operand.
    pub(super) fn address(&mut self, operand: &Operand<'_>) -> Result<Address, Refusal> {
        if let Operand::Element { array, register, number } = operand {
            return self.element(array, *register, *number);
        }
        let Operand::Address { base, offset, more } = operand else {
            return Err("an address between brackets is expected".to_owned());
        };
        if *more {
            return Err("addresses of tensors are not supported".to_owned());
        }
        let number = offset.cast_unsigned();
        let Some(name) = base else {
            let base = self.number(number, true);
            return Ok(Address { base, wide: true, offset: 0, implied: None, is_own: false });
        };
        if let Some(register) = self.any_register(&Operand::Name(name))? {
            let wide = match register.bits {
                64 => true,
                32 => false,
                bits => {
                    return Err(format!("an address has 32 or 64 bits, and `{name}` has {bits}"));
                }
            };
            return Ok(Address {
                base: register.slot,
                wide,
                offset: number,
                implied: None,
                is_own: false,
            });
        }
        let (at, place, is_own) = match self.find(name) {
            Some(Local::Own(at)) => (at, Place::Frame, true),
            Some(Local::Frame(at, _)) => (at, Place::Frame, false),
            Some(Local::Parameter(at)) => (at, Place::Parameter, false),
            Some(Local::Symbol(symbol)) => {
                let constant = self.symbol_constant(symbol, 0);
                let place =
                    if matches!(symbol, Symbol::Shared(_)) { Place::Shared } else { Place::Global };
                let base = self.constant(constant, true);
                let implied = Some(place);
                return Ok(Address { base, wide: true, offset: number, implied, is_own: true });
            }
            _ => return Err(format!("`{name}` is not declared")),
        };
        let (base, offset) = (self.number(0, true), u64::from(at).wrapping_add(number));
        Ok(Address { base, wide: true, offset, implied: Some(place), is_own })
    }

    /// The offset of a parameter declared in a signature, laid out one after another.
    pub(super) fn signature_offset(
        at: &mut u32,
        variable: &Variable<'_>,
    ) -> Result<(u32, u32), Refusal> {
        let (bytes, align) = super::symbols::extent(variable).map_err(|error| error.message)?;
        let start = u64::from(*at).next_multiple_of(align);
        let end = start.saturating_add(bytes);
        if end > 32768 {
            return Err("parameters have at most 32 KiB".to_owned());
        }
        *at = end as u32;
        Ok((start as u32, bytes as u32))
    }
}

/// The file of registers of a width.
pub(super) fn file(bits: u32) -> File {
    match bits {
        1 => File::Predicate,
        64 => File::Double,
        _ => File::Word,
    }
}

fn wrong_width(operand: &Operand<'_>, has: u32, want: u32) -> Refusal {
    let name = match operand {
        Operand::Name(name) => name,
        _ => "the operand",
    };
    format!("`{name}` has {has} bits, and the instruction wants {want}")
}
