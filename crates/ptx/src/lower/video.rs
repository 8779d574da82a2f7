//! Video instructions on two or four lanes of a word.

use super::builder::Builder;
use super::macros::slow_ter;
use super::modifiers::{Modifiers, Refusal};
use crate::math::video::{Form, Operation, apply};
use crate::syntax::tree::Operand;
use crate::types::Type;

const OPERATIONS: [(&str, Operation); 6] = [
    ("vadd", Operation::Add),
    ("vsub", Operation::Subtract),
    ("vavrg", Operation::Average),
    ("vabsdiff", Operation::Difference),
    ("vmin", Operation::Min),
    ("vmax", Operation::Max),
];

/// The form of an immediate.
fn form(imm: u64) -> Form {
    let flag = |bit: u32| imm >> bit & 1 != 0;
    Form {
        operation: OPERATIONS[imm as usize & 7].1,
        bits: if flag(8) { 16 } else { 8 },
        signed: [flag(9), flag(10), flag(11)],
        saturate: flag(12),
        accumulate: flag(13),
    }
}

impl<'t> Builder<'_, 't> {
    /// `vadd4`, `vadd2` and so on, without selectors and masks
    pub(super) fn video(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let (operation, count) = name.split_at(name.len() - 1);
        let index = OPERATIONS.iter().position(|(known, _)| *known == operation);
        let index = index.ok_or_else(|| format!("the instruction `{name}` is not supported"))?;
        let mut imm = index as u64 | u64::from(count == "2") << 8;
        for bit in 9..12 {
            match m.kind()? {
                Type::U32 => {}
                Type::S32 => imm |= 1 << bit,
                _ => return Err(format!("`{name}` is of .u32 and .s32")),
            }
        }
        imm |= m.choose(&[("sat", 1 << 12), ("add", 1 << 13)]).unwrap_or(0);
        let run = slow_ter!(u32, u32, u32 => u32, |op, a, b, c| apply(form(op.imm), a, b, c));
        self.plain(run, Type::B32, &[Type::B32; 3], o, imm)
    }
}
