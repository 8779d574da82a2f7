//! A function as it is being lowered: its names, registers, constants and instructions.

use std::collections::HashMap;

use super::body::Body;
use super::modifiers::{Refusal, kind};
use super::symbols::{Symbol, Symbols, bits, element_bytes, extent};
use super::target::Isa;
use crate::code::{Code, Constant, Draft, File, Origin, Slot};
use crate::error::LoadError;
use crate::syntax::tree::{Operand, Signature, Variable};
use crate::types::Type;

/// A register as it was declared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Register {
    pub(super) slot: Slot,
    /// The width in bits; 1 of a predicate. One of 8 bits is in the file of words, with any bits above. One
    /// of 128 bits is a pair ([`Register::halves`]).
    pub(super) bits: u32,
}

impl Register {
    /// The lower and the upper half of a register of 128 bits.
    pub(super) fn halves(self) -> [Slot; 2] {
        [self.slot, Slot { index: self.slot.index + 1, ..self.slot }]
    }
}

/// A thing that a name of a function stands for.
#[derive(Debug, Clone)]
pub(super) enum Local<'t> {
    Register(Register),
    /// The elements of a vector register.
    Vector(Vec<Register>),
    /// A variable of local memory: its offset in the frame.
    Own(u32),
    /// A variable of a call's parameters: its offset in the frame and its size.
    Frame(u32, u32),
    /// A parameter of the kernel: its offset.
    Parameter(u32),
    /// A shared or static variable.
    Symbol(Symbol),
    /// The labels of `.branchtargets`.
    Targets(&'t [&'t str]),
    /// A `.callprototype`.
    Prototype(&'t Signature<'t>),
}

/// The most bytes of local memory of a function.
pub(super) const MOST_LOCAL: u32 = 1 << 24;

/// Registers that one declaration names: `%r<100>`.
#[derive(Debug, Clone, Copy)]
struct Family {
    count: u32,
    bits: u32,
}

#[derive(Debug, Default)]
struct Scope<'t> {
    names: HashMap<&'t str, Local<'t>>,
    /// The bytes of an element of each name that is an array.
    arrays: HashMap<&'t str, u32>,
    families: HashMap<&'t str, Family>,
    /// The registers of families that an instruction has named.
    members: HashMap<String, Register>,
}

/// A piece of arithmetic that does not say how it rounds, and so may be fused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Product,
    Sum,
    Difference,
}

/// A function that is being lowered.
pub(super) struct Builder<'m, 't> {
    pub(super) symbols: &'m mut Symbols<'t>,
    pub(super) isa: Isa,
    pub(super) entry: bool,
    scopes: Vec<Scope<'t>>,
    pub(super) body: Body,
    pub(super) origin: Origin,
    /// The guard of the instruction that is being lowered.
    pub(super) guard: Option<(Slot, bool)>,
    carry: Option<Slot>,
    /// Instructions that do not say how they round, by position.
    pub(super) parts: HashMap<usize, Part>,
    /// Values of `.reg` results that `ret` leaves in the frame.
    pub(super) returns: Vec<(Register, u32)>,
}

impl<'m, 't> Builder<'m, 't> {
    pub(super) fn new(symbols: &'m mut Symbols<'t>, isa: Isa, entry: bool) -> Self {
        Self {
            symbols,
            isa,
            entry,
            scopes: vec![Scope::default()],
            body: Body::default(),
            origin: Origin::default(),
            guard: None,
            carry: None,
            parts: HashMap::new(),
            returns: Vec::new(),
        }
    }

    pub(super) fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    pub(super) fn close(&mut self) {
        if self.scopes.len() > 1 {
            self.scopes.pop();
        }
    }

    /// Adds an instruction under the current guard.
    pub(super) fn emit(&mut self, code: Code, d: &[Slot], s: &[Slot], imm: u64) {
        let (d, s) = (d.to_vec(), s.to_vec());
        self.body.drafts.push(Draft { code, guard: self.guard, d, s, imm, origin: self.origin });
        // An instruction that is lowered to several counts once.
        self.origin.weight = 0;
    }

    pub(super) fn define(&mut self, name: &'t str, local: Local<'t>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.insert(name, local);
        }
    }

    /// A register that no name stands for.
    pub(super) fn temporary(&mut self, file: File) -> Slot {
        self.body.register(file)
    }

    /// The predicate that holds the carry between `add.cc` and `addc`.
    pub(super) fn carry(&mut self) -> Slot {
        if let Some(carry) = self.carry {
            return carry;
        }
        let carry = self.temporary(File::Predicate);
        self.carry = Some(carry);
        carry
    }

    fn register(&mut self, bits: u32) -> Register {
        let file = match bits {
            1 => File::Predicate,
            64 | 128 => File::Double,
            _ => File::Word,
        };
        let slot = self.temporary(file);
        if bits == 128 {
            // The upper half is the next slot.
            self.temporary(file);
        }
        Register { slot, bits }
    }

    /// Declares a variable of the function.
    pub(super) fn declare(&mut self, variable: &'t Variable<'t>) -> Result<(), LoadError> {
        use crate::syntax::tree::Space;
        if let (Some(scope), Some(bytes)) = (self.scopes.last_mut(), element_bytes(variable)) {
            scope.arrays.insert(variable.name, bytes);
        }
        match variable.space {
            Space::Register => self.declare_register(variable),
            Space::Local | Space::Parameter => {
                let (bytes, align) = extent(variable)?;
                let offset = self.room(bytes, align).map_err(|why| variable.place.error(why))?;
                let local = match variable.space {
                    Space::Local => Local::Own(offset),
                    _ => {
                        self.body.variables.push((offset, bytes as u32));
                        Local::Frame(offset, bytes as u32)
                    }
                };
                self.define(variable.name, local);
                Ok(())
            }
            Space::Shared | Space::Global | Space::Constant => {
                let symbol = self.symbols.variable(variable, false)?;
                self.define(variable.name, Local::Symbol(symbol));
                Ok(())
            }
            Space::Special => Err(variable.place.error("special registers are not declared")),
        }
    }

    fn declare_register(&mut self, variable: &'t Variable<'t>) -> Result<(), LoadError> {
        let bits = match kind(variable.kind) {
            Some(Type::Pred) => 1,
            Some(kind) => kind.bytes() * 8,
            None => return Err(variable.place.error("the register's type is not known here")),
        };
        if let Some(count) = variable.count {
            if variable.vector > 1 {
                return Err(variable.place.error("numbered vector registers are not supported"));
            }
            if let Some(scope) = self.scopes.last_mut() {
                scope.families.insert(variable.name, Family { count, bits });
            }
            return Ok(());
        }
        let local = if variable.vector > 1 {
            Local::Vector((0..variable.vector).map(|_| self.register(bits)).collect())
        } else {
            Local::Register(self.register(bits))
        };
        self.define(variable.name, local);
        Ok(())
    }

    /// Room in the frame.
    pub(super) fn room(&mut self, bytes: u64, align: u64) -> Result<u32, Refusal> {
        let start = u64::from(self.body.frame).next_multiple_of(align.max(1));
        let end = start.saturating_add(bytes);
        if end > MOST_LOCAL.into() {
            return Err("a function has at most 16 MiB of local memory".to_owned());
        }
        self.body.frame = end as u32;
        Ok(start as u32)
    }

    /// Room for a variable of a call's parameters, of up to 8 bytes, that has no name.
    pub(super) fn unnamed_variable(&mut self) -> Result<u32, Refusal> {
        let at = self.room(8, 8)?;
        self.body.variables.push((at, 8));
        Ok(at)
    }

    /// The meaning of a name in the function.
    pub(super) fn find(&mut self, name: &str) -> Option<Local<'t>> {
        for level in (0..self.scopes.len()).rev() {
            if let Some(local) = self.scopes[level].names.get(name) {
                return Some(local.clone());
            }
            if let Some(&register) = self.scopes[level].members.get(name) {
                return Some(Local::Register(register));
            }
            if let Some(register) = self.family_member(level, name) {
                return Some(Local::Register(register));
            }
        }
        self.symbols.names.get(name).map(|&symbol| Local::Symbol(symbol))
    }

    /// The bytes of an element; `None` if the name is of no array.
    pub(super) fn array(&self, name: &str) -> Option<u32> {
        let has_name = |scope: &&Scope<'t>| scope.names.contains_key(name);
        match self.scopes.iter().rev().find(has_name) {
            Some(scope) => scope.arrays.get(name).copied(),
            None => self.symbols.arrays.get(name).copied(),
        }
    }

    /// A register of a numbered family. It gets its slot when it is first named.
    fn family_member(&mut self, level: usize, name: &str) -> Option<Register> {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count().min(10);
        for length in 1..=digits {
            let (prefix, number) = name.split_at(name.len() - length);
            if length > 1 && number.starts_with('0') {
                continue;
            }
            let found =
                self.scopes[level].families.get_key_value(prefix).map(|(_, &family)| family);
            let Some(family) = found else { continue };
            let index: u64 = number.parse().ok()?;
            if index < u64::from(family.count) {
                let register = self.register(family.bits);
                self.scopes[level].members.insert(name.to_owned(), register);
                return Some(register);
            }
        }
        None
    }

    /// A constant's slot.
    pub(super) fn constant(&mut self, constant: Constant, wide: bool) -> Slot {
        self.body.constant(constant, wide)
    }

    /// The slot of a constant number.
    pub(super) fn number(&mut self, value: u64, wide: bool) -> Slot {
        let value = if wide { value } else { value & 0xffff_ffff };
        self.constant(Constant::Bits(value), wide)
    }

    /// The bits of a number operand as a type.
    pub(super) fn literal(
        &self,
        operand: &Operand<'_>,
        kind: Type,
    ) -> Option<Result<u64, Refusal>> {
        let Operand::Number(number) = operand else { return None };
        Some(
            bits(*number, kind)
                .ok_or_else(|| "the number is of another type than the instruction".to_owned()),
        )
    }
}
