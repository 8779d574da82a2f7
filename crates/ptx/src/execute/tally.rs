//! Warps that come to a barrier or to their end the same way, one after the other.
//!
//! Between two barriers most warps of a block run the same piece, and leave it the same way. What that changes
//! for the block is added up once for all of them.

use super::block::Common;
use super::count::Counts;
use super::warp::State;
use crate::code::WIDTH;
use crate::jit::{Behind, Left, Piece};

/// How a whole warp left a piece before a barrier or its end, which it executed, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Way {
    pub(super) left: Left,
    /// The first instruction of the extent that was left.
    pub(super) begin: u32,
}

impl Way {
    /// How the next warp is likely to leave a piece.
    #[inline(always)]
    pub(super) fn likely(piece: &Piece) -> Self {
        let (left, begin) = piece.likely_way();
        Self { left, begin }
    }

    /// Notes the instructions of so many warps.
    pub(super) fn note(self, counts: &mut Counts, warps: u64) {
        let pc = self.left.position();
        counts.note_of(warps, self.begin, self.begin + self.left.last());
        counts.note_of(warps, pc, pc + 1);
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

    /// Warps are likely to come this way. Gives how many can before one has effects on others.
    #[inline(always)]
    pub(super) fn expect(&mut self, common: &mut Common, counts: &mut Counts, way: Way) -> u32 {
        if self.room == 0 || self.way != way {
            self.begin(common, counts, way);
        }
        self.room - self.warps
    }

    /// So many warps came the way that was expected.
    #[inline(always)]
    pub(super) fn add_expected(&mut self, warps: u32) {
        self.warps += warps;
    }

    /// The next warps come another way.
    fn begin(&mut self, common: &mut Common, counts: &mut Counts, way: Way) {
        self.finish(common, counts);
        (self.room, self.waits) = match way.left.behind() {
            Behind::Barrier(index) => (common.room(index), common.wait(index)),
            _ => (common.room_to_end(), State::Ready),
        };
        self.way = way;
    }

    /// The first warp of its way came.
    fn add_other(&mut self, common: &mut Common, counts: &mut Counts, way: Way) -> Option<State> {
        self.begin(common, counts, way);
        if self.room == 0 {
            way.note(counts, 1);
            return None;
        }
        self.warps = 1;
        Some(self.waits)
    }

    /// The block and the figures get what the warps did.
    #[inline(always)]
    pub(super) fn finish(&mut self, common: &mut Common, counts: &mut Counts) {
        self.room = 0;
        let warps = std::mem::take(&mut self.warps);
        if warps == 0 {
            return;
        }
        self.way.note(counts, warps.into());
        match self.way.left.behind() {
            Behind::Barrier(index) => {
                common.arrive(index.into(), 0, WIDTH as u32 * warps, (0, 0));
            }
            _ => common.live -= WIDTH as u32 * warps,
        }
    }
}
