//! Without a compiler there are no pieces to enter.

use super::block::Common;
use super::engine::{End, Engine, Ran};
use super::warp::{Fragment, Warp};

impl Engine<'_> {
    /// The interpreter runs the fragment.
    #[inline(always)]
    pub(super) fn run_whole(
        &mut self,
        _: &mut Common,
        _: &mut Warp,
        _: &mut Fragment,
        _: (u32, &mut u32),
    ) -> Option<End> {
        None
    }

    /// No piece runs.
    #[inline(always)]
    pub(super) fn run_pieces(
        &mut self,
        _: &mut Common,
        _: &mut Warp,
        _: &mut Fragment,
        _: (u32, &mut u32),
    ) -> Ran {
        Ran::Nothing
    }
}
