//! Without a compiler there is no way into pieces.

use std::marker::PhantomData;

use super::block::Common;
use crate::code::FIRST_TURN;

/// The way into pieces: there are none.
pub(super) struct Entrance<'a>(pub(super) PhantomData<&'a ()>);

impl Entrance<'_> {
    /// A turn begins, of `quantum` instructions or fewer. Gives how many.
    #[inline(always)]
    pub(super) fn begin_turn(&mut self, is_short: bool, quantum: u32) -> u32 {
        if is_short { quantum.min(FIRST_TURN) } else { quantum }
    }

    /// There is nothing to enter.
    #[inline(always)]
    pub(super) fn enter_block(&mut self, _: &mut Common) {}

    /// No warp has entered a piece.
    #[inline(always)]
    pub(super) fn has_entered(&self) -> bool {
        false
    }
}
