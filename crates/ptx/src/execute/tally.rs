//! Warps that come to a barrier or to their end the same way, one after the other.
//!
//! Between two barriers most warps of a block run the same piece, and leave it the same way. What that changes
//! for the block is added up once for all of them.

use super::block::Common;
use super::count::Counts;
use super::warp::State;
use crate::code::WIDTH;
use crate::jit::{Behind, Left};

/// How a whole warp left a piece before a barrier or its end, which it executed, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Way {
    pub(super) left: Left,
    /// The first instruction of the extent that was left.
    pub(super) begin: u32,
}

impl Way {
    /// Notes the instructions of so many warps.
    fn note(self, counts: &mut Counts, warps: u32) {
        let (times, pc) = (u64::from(warps), self.left.position());
        counts.note_of(times, self.begin, self.begin + self.left.last());
        counts.note_of(times, pc, pc + 1);
    }
}

/// How many warps in a row came the same way.
#[derive(Debug, Default)]
pub(super) struct Tally {
    way: Way,
    warps: u32,
    /// The most of them: the last arrival at a barrier has effects on others.
    room: u32,
    /// The state of those that wait.
    waits: State,
}

impl Tally {
    /// A warp came. Gives its state, or `None` if it is the last that a barrier waits for, or others look at
    /// its end.
    #[inline(always)]
    pub(super) fn add(
        &mut self,
        common: &mut Common,
        counts: &mut Counts,
        way: Way,
    ) -> Option<State> {
        if self.warps == self.room || self.way != way {
            return self.add_other(common, counts, way);
        }
        self.warps += 1;
        Some(self.waits)
    }

    /// So many warps have ended that nothing waits for.
    #[inline(always)]
    pub(super) fn have_ended(&mut self, way: Way, warps: u32) {
        (self.way, self.warps) = (way, warps);
    }

    /// The first warp of its way came.
    fn add_other(&mut self, common: &mut Common, counts: &mut Counts, way: Way) -> Option<State> {
        self.finish(common, counts);
        (self.room, self.waits) = match way.left.behind() {
            Behind::Barrier(index) => (common.room(index), common.wait(index)),
            _ => (common.room_to_end(), State::Ready),
        };
        if self.room == 0 {
            way.note(counts, 1);
            return None;
        }
        (self.way, self.warps) = (way, 1);
        Some(self.waits)
    }

    /// The block and the figures get what the warps did.
    #[inline(always)]
    pub(super) fn finish(&mut self, common: &mut Common, counts: &mut Counts) {
        let warps = std::mem::take(&mut self.warps);
        if warps == 0 {
            return;
        }
        self.room = 0;
        self.way.note(counts, warps);
        match self.way.left.behind() {
            Behind::Barrier(index) => {
                common.arrive(index.into(), 0, WIDTH as u32 * warps, (0, 0));
            }
            _ => common.live -= WIDTH as u32 * warps,
        }
    }
}
