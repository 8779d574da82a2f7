//! The way of blocks' warps into compiled pieces.

use super::block::Common;
use super::report::Stats;
use super::tally::{Tally, Way};
use crate::code::FIRST_TURN;
use crate::jit::{Left, Own, Piece, Position, State};

/// The way of blocks' warps into pieces.
pub(super) struct Entrance<'a> {
    /// The state that they are entered with.
    pub(super) state: State,
    /// The registers of the warp that enters one.
    pub(super) of_warp: Option<Own>,
    /// The same of the members of a phase, in the order of their turns: those behind the last one are the first
    /// ones again, so each is there twice.
    pub(super) of_block: Vec<Own>,
    /// The same of all warps that a sample stands for.
    pub(super) of_sample: Vec<Own>,
    /// The whole warps that came to a barrier or to their end.
    pub(super) tally: Tally,
    /// The turn of a warp before, if that was all of the kernel.
    pub(super) whole: Option<Whole<'a>>,
    pub(super) repeated: Repeated,
    /// How the next warp has left the first piece of its turn, if it has run that already.
    pub(super) entered: Option<Left>,
    /// Whether this turn of a warp is a short one, behind a barrier.
    pub(super) is_short: bool,
}

/// A piece at a position.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) pc: u32,
    pub(super) position: &'a Position,
    pub(super) piece: &'a Piece,
}

/// A turn of one piece that is all of the kernel.
#[derive(Clone, Copy)]
pub(super) struct Whole<'a> {
    pub(super) found: Found<'a>,
    pub(super) way: Way,
    /// How many instructions it could have.
    pub(super) quantum: u32,
    /// Whether the state is laid out for it and the sample.
    pub(super) is_ready: bool,
}

/// Warps of repeated blocks that are not in the figures yet. All of them came the same way.
#[derive(Default)]
pub(super) struct Repeated {
    pub(super) way: Way,
    pub(super) warps: u64,
    /// The instructions that they executed.
    pub(super) executed: u64,
}

impl Repeated {
    #[inline(always)]
    pub(super) fn add(&mut self, way: Way, warps: u64, executed: u64) {
        self.way = way;
        (self.warps, self.executed) = (self.warps + warps, self.executed + executed);
    }
}

impl Entrance<'_> {
    /// One warp is next, with these registers.
    #[inline(always)]
    pub(super) fn set_warp(&mut self, own: Own) {
        self.state.warp = self.of_warp.insert(own);
        self.state.last = self.state.warp;
    }

    /// The warps of a block come.
    #[inline(always)]
    pub(super) fn enter_block(&mut self, common: &mut Common) {
        self.state.shared = common.shared.pointer();
        self.state.shared_bytes = common.shared_bytes.into();
        self.state.block = &raw const common.coordinates;
    }

    /// A turn begins, of `quantum` instructions or fewer. Gives how many.
    #[inline(always)]
    pub(super) fn begin_turn(&mut self, is_short: bool, quantum: u32) -> u32 {
        self.is_short = is_short;
        if is_short { quantum.min(FIRST_TURN) } else { quantum }
    }

    /// Whether the next warp has run the first piece of its turn already.
    #[inline(always)]
    pub(super) fn has_entered(&self) -> bool {
        self.entered.is_some()
    }

    /// The bytes that pieces read and wrote are added to the figures, and the instructions that threads did not
    /// execute are taken from them.
    #[inline(always)]
    pub(super) fn take_figures(&mut self, stats: &mut Stats) {
        // A lap takes those of the warp that left it, too, before all that this one executed is added.
        let idle = std::mem::take(&mut self.state.idle);
        stats.thread_instructions = stats.thread_instructions.wrapping_sub(idle);
        stats.bytes_read += std::mem::take(&mut self.state.read);
        stats.bytes_written += std::mem::take(&mut self.state.written);
    }
}
