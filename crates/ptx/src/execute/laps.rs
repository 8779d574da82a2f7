//! Turns of the warps of a block, one after the other, by compiled pieces.
//!
//! Between two barriers most warps run the same piece. A lap runs it for one warp after the other, and adds up
//! once what warps did that left it the same way.
//!
//! Many kernels are one such piece from their start to their end. Then one warp, the *sample*, stands for all
//! warps of a block in turn: its registers hold values of the warp before, which the kernel never reads. So
//! no warp of the block begins or ends.

use super::block::Common;
use super::compiled::{Begun, Went};
use super::engine::Engine;
use super::entrance::{Entrance, Found, Whole};
use super::pieces::Pieces;
use super::registers::fill_kernel_lines;
use super::tally::Way;
use super::turns::Lap;
use super::visit::Visit;
use super::warp::{Fragment, Old, State as Waits, Warp};
use crate::code::WIDTH;
use crate::jit::{Behind, Of};

/// Turns of warps of a block that begin by the same piece.
struct Row<'a> {
    found: Found<'a>,
    /// The state of each warp before.
    before: Waits,
    /// The most instructions of each turn.
    quantum: u32,
    /// The kernel executes fewer instructions in all of them.
    most: u64,
}

impl Row<'_> {
    /// Whether a warp can begin such a turn.
    #[inline(always)]
    fn has(&self, warp: &Warp) -> bool {
        let is_at = |at: &Fragment| at.pc == self.found.pc && at.state == self.before;
        warp.together().is_some_and(is_at)
    }
}

impl<'a> Engine<'a> {
    /// Turns of warps of up to `quantum` instructions each, in order, up to the first one that does not go by
    /// pieces alone. The kernel executes fewer than `most` instructions in them.
    #[inline(always)]
    pub(super) fn lap(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warps: &mut [Warp],
        (quantum, most): (u32, u64),
    ) -> Lap {
        let mut lap = Lap::default();
        if self.pieces.is_none() || entrance.has_entered() {
            return lap;
        }
        self.reach.renew();
        while let Some(warp) = warps.get_mut(lap.turns)
            && lap.executed + u64::from(quantum) < most
        {
            let Some((before, quantum)) = self.begins(entrance, common, warp, quantum) else {
                break;
            };
            if quantum == 0 {
                lap.turns += 1;
                continue;
            }
            let mut begun = Begun { quantum, spent: 0, first: None };
            if let Some(found) = self.found(warp, quantum) {
                let row = Row { found, before, quantum, most: most - lap.executed };
                let of = &mut warps[lap.turns..];
                let (turns, executed, next) = self.row(entrance, common, of, &row);
                (lap.turns, lap.executed) = (lap.turns + turns, lap.executed + executed);
                match next {
                    Some(next) => begun = next,
                    None => continue,
                }
            }
            let warp = &mut warps[lap.turns];
            if let Some(fragment) = warp.fragments.first_mut() {
                fragment.state = Waits::Ready;
            }
            let (executed, went) = self.chain(entrance, common, warp, begun);
            if let Went::Turn = went {
                lap.turns += 1;
                lap.executed += u64::from(executed);
                continue;
            }
            self.add_up(entrance, common, lap.executed + u64::from(executed));
            lap.begun = Some((quantum, self.went(common, warp, (executed, went))));
            return lap;
        }
        self.add_up(entrance, common, lap.executed);
        lap
    }

    /// The turns of a row. Gives how many there are, the instructions that they executed, and the one after them
    /// if that has begun and goes on after its piece.
    #[inline(never)]
    fn row(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warps: &mut [Warp],
        row: &Row<'a>,
    ) -> (usize, u64, Option<Begun>) {
        let Row { found, quantum, most, .. } = *row;
        let is_start = found.pc == self.program.functions[0].start;
        entrance.state.round = self.reach.kept.round();
        entrance.state.sites = self.sites_of(found.piece);
        let (mut turns, mut executed) = (0, 0);
        for warp in warps {
            if !row.has(warp) || executed + u64::from(quantum) >= most {
                break;
            }
            let state = &mut entrance.state;
            self.lay_out(state, warp);
            let first = self.enter(state, common, (&mut *warp, None), found, quantum);
            let Some(left) = first else {
                return (turns, executed, Some(Begun { quantum, spent: 0, first }));
            };
            let spent = quantum - state.left as u32 + left.last();
            if spent >= quantum || !left.has_come() {
                return (turns, executed, Some(Begun { quantum, spent: 0, first }));
            }
            let way = Way { left, begin: state.begin as u32 };
            if is_start && left.behind() == Behind::End {
                let rest = state.left;
                entrance.whole = Some(Whole { found, way, rest, spent: spent + 1, quantum });
            }
            if self.come(entrance, common, warp, way) && spent + 1 < quantum {
                return (turns, executed, Some(Begun { quantum, spent: spent + 1, first: None }));
            }
            (turns, executed) = (turns + 1, executed + u64::from(spent) + 1);
        }
        (turns, executed, None)
    }

    /// The piece that was entered last where a whole warp is, if a turn has room for it.
    #[inline(always)]
    fn found(&self, warp: &Warp, quantum: u32) -> Option<Found<'a>> {
        let pc = warp.fragments.first()?.pc;
        let position = self.pieces.as_ref()?.compiled.at(Of::Whole, pc)?;
        let piece = position.last()?;
        (piece.most <= quantum && !piece.is_retired()).then_some(Found { pc, position, piece })
    }

    /// The state of a warp before a turn that may go by pieces, and the most instructions of that: none if the
    /// warp waits, or has ended. `None` if only a part of the warp can go on.
    #[inline(always)]
    fn begins(
        &self,
        entrance: &mut Entrance<'_>,
        common: &Common,
        warp: &Warp,
        quantum: u32,
    ) -> Option<(Waits, u32)> {
        if warp.fragments.is_empty() {
            return Some((Waits::Ready, 0));
        }
        let fragment = warp.together()?;
        let before = fragment.state;
        let is_short = match before {
            Waits::Ready => false,
            Waits::Barrier(_) if !common.is_over(before) => return Some((before, 0)),
            Waits::Barrier(_) => self.program.goes_evenly(fragment.pc),
            _ => return None,
        };
        Some((before, entrance.begin_turn(is_short, quantum)))
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
    ) -> Lap {
        let mut lap = Lap::default();
        let may_begin = |whole: &Whole<'_>| self.may_begin_so(whole);
        let Some(whole) = entrance.whole.filter(may_begin) else { return lap };
        let (warps, piece) = (self.rules.shape.threads / WIDTH as u32, whole.found.piece);
        let room = u64::from(warps).min(most.saturating_sub(1) / u64::from(whole.spent)) as u32;
        let sample = sample.get_or_insert_with(|| {
            let mut sample = Box::<Warp>::default();
            sample.begin(self.program, 0, WIDTH as u32, Old::Any);
            sample
        });
        let state = &mut entrance.state;
        self.approach(state, sample);
        state.sites = self.sites_of(piece);
        fill_kernel_lines(self.program, sample, piece.lanes);
        let mut visit = Visit { engine: self, common, warp: sample, part: None };
        let mut done = 0;
        while done < room {
            visit.warp.index = done;
            state.thread = &raw const visit.engine.rules.shape.axes[done as usize];
            let left = visit.run(state, piece, whole.quantum);
            if !whole.is_repeated(left, state) {
                entrance.entered = (!left.is_unfit()).then(|| visit.end(state, whole.found, left));
                entrance.whole = None;
                break;
            }
            done += 1;
        }
        entrance.tally.have_ended(whole.way, done);
        lap.turns = done as usize;
        lap.executed = u64::from(done) * u64::from(whole.spent);
        self.add_up(entrance, common, lap.executed);
        lap
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
