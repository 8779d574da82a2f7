//! Elements of arrays as operands: `name[2]`, `name[%r]`, `name[%r+1]`.
//!
//! An index counts elements of the declared type, whichever the array's dimensions and vectors. Its bytes
//! are a number of 32 bits, as an H100 has it: an element before a variable of global memory is 4 GiB
//! behind it.

use super::builder::{Builder, Local};
use super::macros::{bin, slow_un, un};
use super::modifiers::Refusal;
use super::operands::Address;
use super::symbols::Symbol;
use crate::code::{Code, File, Place, Slot};
use crate::syntax::tree::{Instruction, Operand};

/// Refuses elements where an instruction takes none.
pub(super) fn check(name: &str, instruction: &Instruction<'_>) -> Result<(), Refusal> {
    let takes_elements = matches!(name, "mov" | "cvta" | "ld" | "st");
    let is_element = |operand: &Operand<'_>| matches!(operand, Operand::Element { .. });
    if !takes_elements && instruction.operands.iter().any(is_element) {
        return Err(format!("`{name}` takes no element of an array: get its address by `mov`"));
    }
    Ok(())
}

impl Builder<'_, '_> {
    /// The address of an element, as an access takes it.
    pub(super) fn element(
        &mut self,
        array: &str,
        register: Option<&str>,
        number: i64,
    ) -> Result<Address, Refusal> {
        let offset = self.offset_of(array, number)?;
        let first = self.address(&Operand::Address { base: Some(array), offset, more: false })?;
        if register.is_none() {
            return Ok(first);
        }
        let base = self.element_source(array, register, number, true)?;
        // An address in a register is one of local memory, and not of the frame.
        let implied = first.implied.map(|place| match place {
            Place::Frame => Place::Local,
            place => place,
        });
        Ok(Address { base, wide: true, offset: 0, implied, is_own: true })
    }

    /// The address of an element as a value.
    pub(super) fn element_source(
        &mut self,
        array: &str,
        register: Option<&str>,
        number: i64,
        wide: bool,
    ) -> Result<Slot, Refusal> {
        let offset = self.offset_of(array, number)?;
        let Some(register) = register else { return self.named_source(array, offset, wide) };
        let first = self.named_source(array, 0, wide)?;
        let bytes = self.element_bytes(array)?;
        let index = self.index(register)?;
        let file = if wide { File::Double } else { File::Word };
        let (scaled, sum) = (self.temporary(File::Word), self.temporary(file));
        let scale = slow_un!(u32 => u32, |op, a| {
            let (bytes, offset) = (op.imm as u32, (op.imm >> 32) as u32);
            a.wrapping_mul(bytes).wrapping_add(offset)
        });
        let imm = u64::from(bytes) | u64::from(offset as u32) << 32;
        self.emit(Code::Pure(scale), &[scaled], &[index], imm);
        let add = match (wide, self.is_shared(array)) {
            (false, _) => bin!(u32, u32 => u32, |a, b| a.wrapping_add(b)),
            // Addresses of shared memory have 32 bits.
            (true, true) => bin!(u64, u32 => u64, |a, b| u64::from((a as u32).wrapping_add(b))),
            (true, false) => bin!(u64, u32 => u64, |a, b| a.wrapping_add(b.into())),
        };
        self.emit(Code::Pure(add), &[sum], &[first, scaled], 0);
        Ok(sum)
    }

    fn is_shared(&mut self, array: &str) -> bool {
        matches!(self.find(array), Some(Local::Symbol(Symbol::Shared(_))))
    }

    fn element_bytes(&self, array: &str) -> Result<u32, Refusal> {
        self.array(array).ok_or_else(|| format!("`{array}` is no array: it has no elements"))
    }

    /// The bytes before an element.
    fn offset_of(&mut self, array: &str, number: i64) -> Result<i64, Refusal> {
        let bytes = (number as u32).wrapping_mul(self.element_bytes(array)?);
        Ok(if self.is_shared(array) { bytes.cast_signed().into() } else { bytes.into() })
    }

    /// The lower 32 bits of an index.
    fn index(&mut self, register: &str) -> Result<Slot, Refusal> {
        match self.any_register(&Operand::Name(register))? {
            Some(found) if found.bits == 32 => Ok(found.slot),
            Some(found) if found.bits == 64 => {
                let narrow = self.temporary(File::Word);
                let low = un!(u64 => u32, |a| a as u32);
                self.emit(Code::Pure(low), &[narrow], &[found.slot], 0);
                Ok(narrow)
            }
            Some(found) => {
                Err(format!("an index has 32 or 64 bits, and `{register}` has {}", found.bits))
            }
            None => Err(format!("the index `{register}` is no register")),
        }
    }
}
