//! The operands of one kernel: tuples of up to eight.

use pagewise_hal::Result;

use super::operand::{Declare, Declared, Operand};

/// All operands as the launch needs them. Only this crate implements it.
pub trait DeclareAll {
    /// The memory and the accesses of each, in order.
    fn declare(&self) -> Result<Vec<Declared<'_>>>;
}

/// The operands of a kernel: a tuple of one to eight [`Operand`]s, in the order in which a thread
/// accesses them.
pub trait Operands: DeclareAll {
    /// The views that the closure gets: a tuple, one for each operand.
    type Views<'v>;

    /// Shows the elements of all.
    ///
    /// # Safety
    /// As [`Operand::view`] for each.
    #[doc(hidden)]
    unsafe fn views<'v>(&self) -> Self::Views<'v>;
}

macro_rules! operands {
    ($($operand:ident $index:tt),+) => {
        impl<$($operand: Declare),+> DeclareAll for ($($operand,)+) {
            fn declare(&self) -> Result<Vec<Declared<'_>>> {
                Ok(vec![$(self.$index.declare()?),+])
            }
        }

        impl<$($operand: Operand),+> Operands for ($($operand,)+) {
            type Views<'v> = ($($operand::View<'v>,)+);

            unsafe fn views<'v>(&self) -> Self::Views<'v> {
                // SAFETY: each call asks for what the caller of this one promised for its operand.
                unsafe { ($(self.$index.view(),)+) }
            }
        }
    };
}

operands!(A 0);
operands!(A 0, B 1);
operands!(A 0, B 1, C 2);
operands!(A 0, B 1, C 2, D 3);
operands!(A 0, B 1, C 2, D 3, E 4);
operands!(A 0, B 1, C 2, D 3, E 4, F 5);
operands!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
operands!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
