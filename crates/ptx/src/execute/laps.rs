//! Turns of the warps of a block, one after the other, by compiled pieces.
//!
//! Where all warps of a block go from barrier to barrier together, phases run them. Each other warp goes by a
//! chain of pieces.
//!
//! Many kernels are one piece from their start to their end. Then one warp, the *sample*, stands for all warps of
//! a block in turn: its registers hold values of the warp before, which the kernel never reads. So no warp of the
//! block begins or ends.

use super::block::Common;
use super::compiled::{Begun, Went};
use super::engine::Engine;
use super::entrance::{Entrance, Found, Whole};
use super::phases::Then;
use super::pieces::Pieces;
use super::registers::fill_kernel_lines;
use super::tally::Way;
use super::turns::{Cursor, Ended, Lap};
use super::visit::{Visit, Warps};
use super::warp::{Old, State as Waits, Warp};
use crate::code::WIDTH;
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

    /// Turns of the warps of a block that has none yet, as far as each does as the one before: it runs one
    /// piece from the start of the kernel to its end. All of their threads have ended. The kernel executes
    /// fewer than `most` instructions in them.
    ///
    /// Where a warp does not, the entrance holds how it left the piece, and the sample is that warp.
    pub(super) fn at_once(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        sample: &mut Option<Box<Warp>>,
        most: u64,
    ) -> Ended {
        let mut ended = Ended::default();
        let may_begin = |whole: &Whole<'_>| self.may_begin_so(whole);
        let Some(whole) = entrance.whole.filter(may_begin) else { return ended };
        let warps = self.rules.shape.threads / WIDTH as u32;
        let room = entrance.tally.expect(common, self.reach.counts, whole.way).min(warps);
        let most = most.saturating_sub(1) / u64::from(whole.quantum);
        let count = u64::from(room).min(most) as usize;
        if count == 0 {
            return ended;
        }
        let sample = sample.get_or_insert_with(|| {
            let mut sample = Box::<Warp>::default();
            sample.begin(self.program, 0, WIDTH as u32, Old::Any);
            sample
        });
        if !whole.is_ready {
            self.line_up_sample(entrance, sample, warps);
            entrance.state.sites = self.sites_of(whole.found.piece);
            fill_kernel_lines(self.program, sample, whole.found.piece.lanes);
        }
        while ended.warps < count && entrance.whole.is_some() {
            self.samples(entrance, common, sample, (&whole, count), &mut ended);
        }
        if let Some(whole) = &mut entrance.whole {
            // Others run before the next block if they have not all ended.
            whole.is_ready = ended.warps == warps as usize;
        }
        self.add_up(entrance, common, ended.executed);
        ended
    }

    /// Turns of the warps that a sample stands for, behind those that have ended, up to so many and the first that does
    /// not as the one before.
    #[inline(always)]
    fn samples(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        sample: &mut Warp,
        (whole, count): (&Whole<'a>, usize),
        ended: &mut Ended,
    ) {
        let Whole { found, way: likely, quantum, .. } = *whole;
        let (state, owns) = (&mut entrance.state, &entrance.of_sample);
        state.go_through(&owns[ended.warps..count], (likely.left, likely.begin));
        let warps = Warps::Sample(&mut *sample);
        let visit = Visit { engine: self, common, warps, part: None, found };
        let left = visit.run(state, (quantum, quantum));
        let (mut done, mut executed) = state.passed(&owns[ended.warps..]);
        let spent = quantum - state.left as u32 + likely.left.last();
        let way = left.map(|left| Way { left, begin: state.begin as u32 });
        if way == Some(likely) && spent < quantum {
            (done, executed) = (done + 1, executed + u64::from(spent) + 1);
        } else {
            sample.index = (ended.warps + done) as u32;
            (entrance.entered, entrance.whole) = (left, None);
        }
        entrance.tally.add_expected(done as u32);
        (ended.warps, ended.executed) = (ended.warps + done, ended.executed + executed);
    }

    /// The entrance gets the registers of the sample as those of each warp of the block.
    #[inline(always)]
    fn line_up_sample(&self, entrance: &mut Entrance<'_>, sample: &mut Warp, warps: u32) {
        let mut owns = (0..warps).map(|index| self.own(sample, index as usize, index));
        let first = owns.next();
        if entrance.of_sample.first() != first.as_ref() {
            entrance.of_sample.clear();
            entrance.of_sample.extend(first.into_iter().chain(owns));
        }
    }

    /// Whether warps of the kernel can begin without what a warp has when it begins.
    fn may_begin_so(&self, whole: &Whole<'_>) -> bool {
        let may_run = !whole.found.piece.is_retired();
        may_run && self.program.functions[0].frame == 0 && self.old_registers() == Old::Any
    }

    /// The values that registers need when a warp begins.
    pub(super) fn old_registers(&self) -> Old {
        let reads_none = |pieces: &Pieces<'_>| pieces.compiled.reads_nothing_old();
        if self.pieces.as_ref().is_some_and(reads_none) { Old::Any } else { Old::Zero }
    }
}
