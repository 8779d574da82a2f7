//! Turns of the warps of a block, one after the other, by compiled pieces.
//!
//! Where all warps of a block go from barrier to barrier together, phases run them. Each other warp goes by a
//! chain of pieces.

use super::block::Common;
use super::compiled::{Begun, Went};
use super::engine::Engine;
use super::entrance::{Entrance, Found};
use super::phases::Then;
use super::turns::{Cursor, Lap};
use super::warp::{State as Waits, Warp};
use crate::jit::Of;

impl<'a> Engine<'a> {
    /// Turns of the warps of a block from the one of the cursor on, of up to `quantum` instructions each, up to the
    /// first one that does not go by pieces alone. The kernel executes fewer than `most` instructions in them.
    #[inline(always)]
    pub(super) fn lap(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warps: &mut [Warp],
        cursor: &mut Cursor,
        (quantum, most): (u32, u64),
    ) -> Lap {
        let mut lap = Lap::default();
        if self.pieces.is_none() || entrance.has_entered() {
            return lap;
        }
        self.reach.renew();
        let mut goes_on = None;
        let stopped = loop {
            let mut begun = match goes_on.take() {
                Some(begun) => begun,
                None if cursor.warp == warps.len() => break None,
                None if lap.executed + u64::from(quantum) >= most => break None,
                None => match self.begins(entrance, common, &mut warps[cursor.warp], quantum) {
                    Some(0) => {
                        cursor.warp += 1;
                        continue;
                    }
                    Some(quantum) => Begun { quantum, spent: 0, first: None },
                    None => break None,
                },
            };
            let own = begun.quantum;
            if self.may_be_together(entrance, &warps[cursor.warp], &begun) {
                let turn = (cursor.warp, begun.spent);
                let bounds = (quantum, most - lap.executed);
                if let Some(phased) = self.phases(entrance, common, warps, turn, bounds, cursor) {
                    lap.executed += phased.executed;
                    cursor.warp = phased.warp;
                    match phased.then {
                        Then::Begins => continue,
                        Then::GoesOn(spent) => begun.spent = spent,
                        Then::Went(spent, went) => break Some((own, spent, went)),
                    }
                }
            }
            let (spent, went) = self.chain(entrance, common, &mut warps[cursor.warp], begun);
            match went {
                Went::Turn => {
                    (lap.executed, cursor.warp) = (lap.executed + u64::from(spent), cursor.warp + 1)
                }
                Went::Met => goes_on = Some(Begun { quantum: own, spent, first: None }),
                went => break Some((own, spent, went)),
            }
        };
        let spent = stopped.as_ref().map_or(0, |(_, spent, _)| u64::from(*spent));
        self.add_up(entrance, common, lap.executed + spent);
        lap.begun = stopped.map(|(own, spent, went)| {
            (own, self.went(common, &mut warps[cursor.warp], (spent, went)))
        });
        lap
    }

    /// Whether all warps of the block may be where one is, which begins its turn or goes on with it: at the start
    /// of the kernel, or behind a barrier to which it came last.
    #[inline(always)]
    fn may_be_together(&self, entrance: &Entrance<'_>, warp: &Warp, begun: &Begun) -> bool {
        let is_at_start = || {
            let at = warp.fragments.first().map(|fragment| fragment.pc);
            warp.index == 0 && at == Some(self.program.functions[0].start)
        };
        !entrance.is_short && (begun.spent > 0 || is_at_start())
    }

    /// The piece that was entered last where a whole warp is, if a turn has room for it.
    #[inline(always)]
    pub(super) fn found(&self, pc: u32, quantum: u32) -> Option<Found<'a>> {
        let position = self.pieces.as_ref()?.compiled.at(Of::Whole, pc)?;
        let piece = position.last()?;
        (piece.most <= quantum && !piece.is_retired()).then_some(Found { pc, position, piece })
    }

    /// Begins a turn that may go by pieces. Gives its most instructions: none if the warp waits, or has ended.
    /// `None` if only a part of the warp can go on.
    #[inline(always)]
    fn begins(
        &self,
        entrance: &mut Entrance<'_>,
        common: &Common,
        warp: &mut Warp,
        quantum: u32,
    ) -> Option<u32> {
        if warp.fragments.is_empty() {
            return Some(0);
        }
        let fragment = warp.together()?;
        let is_short = match fragment.state {
            Waits::Ready => false,
            before @ Waits::Barrier(_) if !common.is_over(before) => return Some(0),
            Waits::Barrier(_) => self.program.goes_evenly(fragment.pc),
            _ => return None,
        };
        if let Some(fragment) = warp.fragments.first_mut() {
            fragment.state = Waits::Ready;
        }
        Some(entrance.begin_turn(is_short, quantum))
    }
}
