//! Parts of warps that run by compiled pieces, while other lanes are elsewhere or have ended.
//!
//! The interpreter runs a fragment up to where it meets another, and lets the others come first that are
//! behind it. A piece for parts of warps is left before the instruction at which the next fragment is. So it
//! is entered only where no fragment is behind.

use super::access::Blocked;
use super::block::Common;
use super::engine::Engine;
use super::entrance::Entrance;
use super::warp::{Fragment, Warp};
use crate::jit::Of;

impl<'a> Engine<'a> {
    /// Runs a fragment by a piece from its position on, until `slice` instructions are spent at most.
    /// Returns whether it has executed any.
    #[inline(always)]
    pub(super) fn by_part(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        (slice, spent): (u32, &mut u32),
    ) -> Result<bool, Blocked> {
        let Some(pieces) = &self.pieces else { return Ok(false) };
        let position = pieces.compiled.at(Of::Part, fragment.pc);
        if !fragment.is_kernel() || position.is_some_and(|at| at.is_closed() && !at.has_pieces()) {
            return Ok(false);
        }
        let Some(meeting) = warp.next_ahead(fragment) else { return Ok(false) };
        let left = slice - *spent;
        let state = &mut entrance.state;
        (state.lanes, state.meeting) = (fragment.mask.into(), meeting.into());
        self.approach(entrance, warp);
        let state = &mut entrance.state;
        let at = (Of::Part, fragment.pc);
        let part = (&mut *warp, Some(&mut *fragment));
        let entered = self.enter_at(state, common, part, at, left);
        let Some(way) = entered else { return Ok(false) };
        let state = &mut entrance.state;
        let executed = left - state.left as u32 + way.last();
        self.reach.counts.note(state.begin as u32, state.begin as u32 + way.last());
        let spins = std::mem::take(&mut state.spins);
        if !warp.fragments.is_empty() {
            fragment.spin += spins as u32;
        }
        fragment.pc = way.position();
        *spent += executed;
        let stats = &mut *self.reach.stats;
        stats.thread_instructions += u64::from(fragment.mask.count_ones()) * u64::from(executed);
        if way.is_apart() {
            let (lanes, meeting) = state.apart();
            let others = fragment.split_off(lanes, meeting);
            warp.add(others);
        }
        entrance.take_figures(stats);
        self.blocked.take().map_or(Ok(executed > 0), Err)
    }
}
