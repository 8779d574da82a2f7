//! The way of blocks' warps into compiled pieces.

use super::access::Blocked;
use super::block::Common;
use super::report::Stats;
use crate::code::FIRST_TURN;
use crate::jit::{Left, Piece, Position, State};

/// The way of blocks' warps into pieces.
pub(super) struct Entrance<'a> {
    /// The state that they are entered with.
    pub(super) state: State,
    /// The turn before, if a warp may do the same.
    pub(super) same: Option<Same<'a>>,
    /// How the next warp has left the first piece of its turn, if it has run that already.
    pub(super) entered: Option<Entered<'a>>,
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

/// A piece that was entered, how it was left, and the reason if an instruction stopped.
pub(super) struct Entered<'a> {
    pub(super) found: Found<'a>,
    pub(super) left: Left,
    pub(super) blocked: Option<Blocked>,
}

/// A turn of one piece, and of the barrier or the end behind it.
#[derive(Clone, Copy)]
pub(super) struct Same<'a> {
    pub(super) found: Found<'a>,
    pub(super) left: Left,
    /// The instructions that were left in the turn, and the first one of the extent that was left.
    pub(super) rest: u64,
    pub(super) begin: u64,
    /// All instructions of the turn, and how many it could have.
    pub(super) spent: u32,
    pub(super) quantum: u32,
    /// Whether the turn was a short one, behind a barrier.
    pub(super) is_short: bool,
}

impl Same<'_> {
    /// Whether a warp that left the piece so did the same.
    #[inline(always)]
    pub(super) fn is_repeated(&self, left: Left, state: &State) -> bool {
        (left, state.left, state.begin) == (self.left, self.rest, self.begin)
    }
}

impl Entrance<'_> {
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
        match (&self.entered, self.same) {
            // It has entered a piece with that many.
            (Some(_), Some(same)) => same.quantum,
            _ if is_short => quantum.min(FIRST_TURN),
            _ => quantum,
        }
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
