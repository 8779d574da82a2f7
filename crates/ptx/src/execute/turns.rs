//! Turns of the warps of a resident block.

use super::access::Trap;
use super::block::Block;
use super::engine::{ByPieces, Engine};
use super::entrance::Entrance;
use super::memory::Turn;
use super::warp::Warp;

/// The place at which a run goes on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    /// The next block among the resident ones, and its next warp.
    pub(super) block: usize,
    pub(super) warp: usize,
    /// Whether a warp has run since the first block had its turn.
    pub(super) progress: bool,
    /// The rounds of barriers that the block had completed when its first warp began its turn.
    pub(super) rounds: u64,
}

impl Cursor {
    /// The next block is this one, from its first warp on.
    pub(super) fn go_to(&mut self, block: usize) {
        (self.block, self.warp) = (block, 0);
    }

    /// The block has ended. The one that takes its index is next.
    pub(super) fn end_block(&mut self) {
        (self.warp, self.progress) = (0, true);
    }
}

/// The bounds of turns.
pub(super) struct Turns {
    /// The most instructions of a turn.
    pub(super) quantum: u32,
    /// Turns stop when warps have executed so many instructions in all.
    pub(super) target: u64,
    /// Whether the memory looks at who accesses it.
    pub(super) watches: bool,
    /// Whether the grid has no limit of instructions, and no warp was halted.
    pub(super) is_plain: bool,
}

/// Turns of warps of a block, one after the other, that went by pieces alone.
#[derive(Default)]
pub(super) struct Lap {
    /// The instructions that they executed.
    pub(super) executed: u64,
    /// The turn of the next warp, if it has begun: its most instructions, and how it went so far.
    pub(super) begun: Option<(u32, ByPieces)>,
}

/// Warps of a block that ran from their beginning to their end.
#[derive(Default)]
pub(super) struct Ended {
    /// How many there are.
    pub(super) warps: usize,
    /// The instructions that they executed.
    pub(super) executed: u64,
}

/// A turn after which the kernel ends, or a warp of it.
pub(super) struct Stopped {
    /// The instruction that stopped, and the reason.
    pub(super) trap: (u32, Box<Trap>),
    /// How many accesses waited before the turn.
    pub(super) waiting: usize,
}

impl<'a> Engine<'a> {
    /// How many instructions warps may still execute.
    fn left(&self, turns: &Turns) -> u64 {
        turns.target.saturating_sub(self.reach.stats.warp_instructions)
    }

    /// The warps of a block begin, but for the first ones that can run at once, to their ends. Gives how many
    /// have ended.
    #[inline(always)]
    pub(super) fn begin_warps(
        &mut self,
        entrance: &mut Entrance<'a>,
        block: &mut Block,
        sample: &mut Option<Box<Warp>>,
        turns: &Turns,
    ) -> usize {
        let mut ended = 0;
        if turns.is_plain && !turns.watches {
            let most = self.left(turns);
            let at_once = self.at_once(entrance, &mut block.common, sample, most);
            self.reach.stats.warp_instructions += at_once.executed;
            ended = at_once.warps;
        }
        if block.common.live > 0 {
            self.begin_others(entrance, block, sample, ended);
        }
        ended
    }

    /// The warps of a block begin, but for the first ones, which have ended. The next one is the sample if that has
    /// entered a piece.
    #[inline(never)]
    fn begin_others(
        &self,
        entrance: &Entrance<'a>,
        block: &mut Block,
        sample: &mut Option<Box<Warp>>,
        ended: usize,
    ) {
        block.begin_warps(self.program, &self.rules.shape, (ended, self.old_registers()));
        if let Some(sample) = sample.as_mut().filter(|_| entrance.has_entered()) {
            std::mem::swap(&mut **sample, &mut block.warps[ended]);
        }
    }

    /// Turns of the warps of a block, up to one after which more is to be done than to take the next warp.
    /// `waiting` is how many accesses wait before the first one.
    pub(super) fn turns_of_block(
        &mut self,
        entrance: &mut Entrance<'a>,
        block: &mut Block,
        cursor: &mut Cursor,
        (turns, mut waiting): (&Turns, usize),
    ) -> Option<Stopped> {
        let Block { common, warps } = block;
        let (slot, linear) = (common.slot, common.linear);
        loop {
            if cursor.warp == 0 {
                cursor.rounds = common.rounds;
            }
            let mut lap = Lap::default();
            if turns.is_plain && !turns.watches {
                let bounds = (turns.quantum, self.left(turns));
                lap = self.lap(entrance, common, warps, cursor, bounds);
                self.reach.stats.warp_instructions += lap.executed;
                cursor.progress |= lap.executed > 0;
            }
            if let Some(next) = warps.get_mut(cursor.warp) {
                let turn = match lap.begun {
                    Some(begun) => self.go_on(entrance, common, next, begun),
                    None => {
                        if turns.watches {
                            let index = cursor.warp as u32;
                            self.reach.memory.turn(Turn { slot, block: linear, warp: index });
                        }
                        self.reach.renew();
                        self.turn(entrance, common, next, turns.quantum)
                    }
                };
                self.reach.stats.warp_instructions += turn.executed;
                cursor.progress |= turn.executed > 0;
                if let Some(trap) = turn.trap {
                    return Some(Stopped { trap, waiting });
                }
                let executed = self.reach.stats.warp_instructions;
                if !turns.is_plain || common.live == 0 || executed >= turns.target {
                    return None;
                }
                cursor.warp += 1;
                waiting = self.reach.outstanding.len();
            }
            if cursor.warp == warps.len() {
                if common.rounds == cursor.rounds {
                    cursor.warp -= 1;
                    return None;
                }
                cursor.warp = 0;
            }
        }
    }
}
