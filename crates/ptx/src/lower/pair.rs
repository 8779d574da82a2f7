//! Values of 128 bits: a register of them is a pair of slots of 64.

use super::builder::Builder;
use super::modifiers::Refusal;
use super::operands::Address;
use crate::code::{Access, AtomicPair, Code, File, Fill, Modify, Place, Slot};
use crate::syntax::tree::Operand;
use crate::types::Type;

/// An access to both halves.
fn access(place: Place, address: &Address, shared: bool) -> Access {
    let (wide, fill) = (address.wide, Fill::Zero);
    Access { place, bytes: 8, count: 2, wide, fill, doubles: 0b11, shared }
}

impl<'t> Builder<'_, 't> {
    /// The halves of a register that is read.
    fn pair_source(&mut self, operand: &Operand<'t>) -> Result<[Slot; 2], Refusal> {
        match self.any_register(operand)? {
            Some(register) if register.bits == 128 => Ok(register.halves()),
            _ => Err("a register of 128 bits is expected".to_owned()),
        }
    }

    /// The halves of a register that is written.
    fn pair_dest(&mut self, operand: &Operand<'t>) -> Result<[Slot; 2], Refusal> {
        if matches!(operand, Operand::Name("_")) {
            return Ok([self.temporary(File::Double), self.temporary(File::Double)]);
        }
        self.pair_source(operand)
    }

    /// `mov.b128`: between registers, or between a register and its halves
    pub(super) fn move_pair(
        &mut self,
        to: &Operand<'t>,
        from: &Operand<'t>,
    ) -> Result<(), Refusal> {
        let source = match from {
            Operand::Vector(_) if matches!(to, Operand::Vector(_)) => {
                return Err("one side is a register of 128 bits".to_owned());
            }
            Operand::Vector(parts) => {
                let [low, high] = &parts[..] else { return Err(halves_expected()) };
                [self.source(low, Type::B64)?, self.source(high, Type::B64)?]
            }
            from => self.pair_source(from)?,
        };
        let result = match to {
            Operand::Vector(parts) => {
                let [low, high] = &parts[..] else { return Err(halves_expected()) };
                [self.dest(low, Type::B64)?, self.dest(high, Type::B64)?]
            }
            to => self.pair_dest(to)?,
        };
        for (to, from) in result.into_iter().zip(source) {
            self.copy(to, from);
        }
        Ok(())
    }

    /// `ld.b128`
    pub(super) fn load_pair(
        &mut self,
        to: &Operand<'t>,
        address: &Address,
        place: Place,
        shared: bool,
    ) -> Result<(), Refusal> {
        let results = self.pair_dest(to)?;
        let access = access(place, address, shared);
        self.emit(Code::Load(access), &results, &[address.base], address.offset);
        Ok(())
    }

    /// `st.b128`
    pub(super) fn store_pair(
        &mut self,
        address: &Address,
        place: Place,
        from: &Operand<'t>,
        shared: bool,
    ) -> Result<(), Refusal> {
        let [low, high] = self.pair_source(from)?;
        let access = access(place, address, shared);
        self.emit(Code::Store(access), &[], &[address.base, low, high], address.offset);
        Ok(())
    }

    /// `atom.exch.b128`, `atom.cas.b128`
    pub(super) fn atomic_pair(
        &mut self,
        (modify, named): (Modify, Option<Place>),
        o: &[Operand<'t>],
        result: bool,
    ) -> Result<(), Refusal> {
        let swap = modify == Modify::CompareAndSwap;
        if !result || !(swap || modify == Modify::Exchange) {
            return Err(format!("an atomic {modify:?} of .b128 is not supported"));
        }
        let (to, address, values) = match (swap, o) {
            (false, [to, address, value]) => (to, address, vec![value]),
            (true, [to, address, old, new]) => (to, address, vec![old, new]),
            _ => return Err("operands are missing".to_owned()),
        };
        let address = self.address(address)?;
        let place = self.place(named, &address)?;
        if !(matches!(place, Place::Generic | Place::Global) || place.is_shared()) {
            return Err("atomics are in global and shared memory".to_owned());
        }
        let mut slots = vec![address.base];
        for value in values {
            slots.extend(self.pair_source(value)?);
        }
        let results = self.pair_dest(to)?;
        let code = AtomicPair { place, wide: address.wide, swap };
        self.emit(Code::AtomicPair(code), &results, &slots, address.offset);
        Ok(())
    }
}

fn halves_expected() -> Refusal {
    "two halves of 64 bits are expected".to_owned()
}
