//! Phases of a block: its warps go from one barrier to the next, and one call of a piece runs many of them.
//!
//! Between two barriers most warps of a block do the same, in the order of their turns: the last one that came
//! to the barrier goes on at once, and the others follow. So it is known where all of them are without a look
//! at each. It is noted in them when they go apart.

use super::block::Common;
use super::compiled::{Begun, Went};
use super::engine::Engine;
use super::entrance::{Entrance, Found, Whole};
use super::registers::fill_kernel_lines;
use super::tally::Way;
use super::turns::Cursor;
use super::visit::{Visit, Warps};
use super::warp::{State, Warp};
use crate::code::Set;
use crate::jit::{Behind, Left, Own};

/// Where a whole warp is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    pc: u32,
    state: State,
}

impl Place {
    /// Where a warp is; `None` if its lanes are not together, or have ended.
    #[inline(always)]
    fn of(warp: &Warp) -> Option<Self> {
        warp.together().map(|fragment| Self { pc: fragment.pc, state: fragment.state })
    }

    /// Puts a warp there.
    #[inline(always)]
    fn put(self, warp: &mut Warp) {
        if let Some(fragment) = warp.fragments.first_mut() {
            (fragment.pc, fragment.state, fragment.alone) = (self.pc, self.state, false);
        }
    }
}

/// Where the warps are that have gone through a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// None has.
    Unknown,
    At(Place),
    /// They have ended.
    End,
}

impl Ahead {
    /// Where a warp is behind its turn, if it waits at a barrier or has ended.
    #[inline(always)]
    fn of(warp: &Warp) -> Self {
        if warp.fragments.is_empty() {
            return Self::End;
        }
        match Place::of(warp) {
            Some(at) if matches!(at.state, State::Barrier(_)) => Self::At(at),
            _ => Self::Unknown,
        }
    }

    /// Where a warp is that came some way, and not as the last one.
    #[inline(always)]
    fn by(way: Way, common: &Common) -> Self {
        match way.left.behind() {
            Behind::Barrier(index) => {
                Self::At(Place { pc: way.left.position() + 1, state: common.wait(index) })
            }
            Behind::End => Self::End,
            _ => Self::Unknown,
        }
    }
}

/// A phase of a block. Its members take turns in order; a place in that is counted from the first of them.
struct Phase {
    /// The first member, by its number.
    first: usize,
    /// The instructions that it executed of its turn before.
    spent: u32,
    /// How many have gone through it.
    done: usize,
    /// Where the others are.
    at: Place,
    /// Where those are that have gone through.
    ahead: Ahead,
    /// The rounds of barriers that the block had completed before.
    rounds: u64,
}

/// The end of a member's turn.
#[derive(Clone, Copy)]
enum End {
    /// The next one may take its turn.
    Turn,
    /// It came last to the barrier at which all others wait, and goes on after so many instructions.
    Met(u32),
    /// It left a piece, and goes on. Without a way there was no piece that fits.
    Left(Option<Left>),
    /// It went elsewhere.
    Apart(Apart),
}

/// Members of a phase go apart.
#[derive(Clone, Copy)]
struct Apart {
    /// The place of the next one, and how many instructions that has executed of its turn.
    next: usize,
    spent: Option<u32>,
    /// The place of the first one that has not run.
    rest: usize,
}

/// How a warp goes on behind phases.
pub(super) enum Then {
    /// Its turn begins.
    Begins,
    /// Its turn goes on by pieces, after so many instructions.
    GoesOn(u32),
    /// Its turn goes on so, after so many instructions.
    Went(u32, Went),
}

/// The outcome of phases.
pub(super) struct Phased {
    /// The instructions of the turns that are over.
    pub(super) executed: u64,
    /// The next warp, or behind the last one.
    pub(super) warp: usize,
    pub(super) then: Then,
}

/// The turns of phases.
struct Turns {
    /// The most instructions of each.
    quantum: u32,
    /// The instructions of those that are over.
    executed: u64,
    /// Whether a piece went on with another warp since the last look.
    has_gone_on: bool,
    /// How the last one goes on that did not go by pieces alone.
    stopped: Option<Went>,
}

impl<'a> Engine<'a> {
    /// Phases from the turn of a warp on, of which it has executed `spent` instructions: none means that it
    /// begins. The kernel executes fewer than `most` in all turns. `None` if warps of the block are elsewhere.
    pub(super) fn phases(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warps: &mut [Warp],
        (index, spent): (usize, u32),
        (quantum, most): (u32, u64),
        cursor: &mut Cursor,
    ) -> Option<Phased> {
        let pc = warps.get(index)?.fragments.first()?.pc;
        if !self.goes_on(pc, quantum - spent) {
            return None;
        }
        let (first, at) = self.line_up(entrance, common, warps, (index, spent))?;
        let count = entrance.of_block.len() / 2;
        let (ahead, rounds) = (Ahead::Unknown, common.rounds);
        let mut phase = Phase { first, spent, done: 0, at, ahead, rounds };
        let mut turns = Turns { quantum, executed: 0, has_gone_on: false, stopped: None };
        let in_one_phase = u64::from(spent) + count as u64 * u64::from(quantum);
        if in_one_phase >= most {
            return None;
        }
        let apart = loop {
            let spent = match self.phase(entrance, common, warps, &mut phase, &mut turns) {
                Err(apart) => break apart,
                Ok(spent) => spent,
            };
            phase.note_lap(count - 1, count, cursor);
            phase.begin_next(count, spent, common.rounds);
            let has_room = turns.executed + in_one_phase + u64::from(quantum) < most;
            let has_gone_on = std::mem::take(&mut turns.has_gone_on);
            if !has_room || !has_gone_on && !self.goes_on(phase.at.pc, quantum - spent) {
                break Apart { next: 0, spent: Some(spent), rest: 1 };
            }
        };
        let Apart { next, spent, rest } = apart;
        let last = if spent.is_none() { next.checked_sub(1) } else { Some(next) };
        last.into_iter().for_each(|place| phase.note_lap(place, count, cursor));
        phase.settle(warps, &entrance.of_block, rest);
        let is_behind = phase.first + next == count && spent.is_none();
        let next = if is_behind { warps.len() } else { phase.member_at(next, &entrance.of_block) };
        let then = match (spent, turns.stopped) {
            (None, _) => Then::Begins,
            (Some(spent), None) => Then::GoesOn(spent),
            (Some(spent), Some(went)) => Then::Went(spent, went),
        };
        Some(Phased { executed: turns.executed, warp: next, then })
    }

    /// Whether it is worth calling a piece at a position for several warps.
    #[inline(always)]
    fn goes_on(&self, pc: u32, most: u32) -> bool {
        self.found(pc, most).is_some_and(|found| found.piece.goes_on())
    }

    /// Finds the members of a phase: all warps of the block that have not ended. Gives the number of the one that
    /// is first, and where the others are; `None` if they are elsewhere.
    fn line_up(
        &self,
        entrance: &mut Entrance<'_>,
        common: &Common,
        warps: &mut [Warp],
        (index, spent): (usize, u32),
    ) -> Option<(usize, Place)> {
        let Place { pc, state } = Place::of(warps.get(index)?)?;
        let (mut at, mut first) = ((spent == 0).then_some(state), 0);
        entrance.of_block.clear();
        for (place, warp) in warps.iter_mut().enumerate() {
            if warp.fragments.is_empty() {
                continue;
            }
            let own = Place::of(warp)?;
            if place == index {
                first = entrance.of_block.len();
            } else {
                let state = *at.get_or_insert(own.state);
                let may_run = state == State::Ready || common.is_over(state);
                if own != (Place { pc, state }) || !may_run {
                    return None;
                }
            }
            let thread = warp.index;
            entrance.of_block.push(self.own(warp, place, thread));
        }
        let count = entrance.of_block.len();
        entrance.of_block.extend_from_within(..);
        (count > 1).then_some((first, Place { pc, state: at? }))
    }

    /// Turns of the members of a phase, up to its end. Gives the instructions that the last one executed of its
    /// turn, which goes on.
    fn phase(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warps: &mut [Warp],
        phase: &mut Phase,
        turns: &mut Turns,
    ) -> Result<u32, Apart> {
        let count = entrance.of_block.len() / 2;
        self.reach.renew();
        while phase.done < count {
            let most = turns.quantum - phase.spent_before();
            let mut end = match self.found(phase.at.pc, most) {
                Some(found) => self.go_through(entrance, common, warps, (phase, found), turns),
                None => End::Left(None),
            };
            if let End::Left(first) = end {
                let warp = &mut warps[phase.member(&entrance.of_block)];
                Place { state: State::Ready, ..phase.at }.put(warp);
                let begun = Begun { quantum: turns.quantum, spent: phase.spent_before(), first };
                let (spent, went) = self.chain(entrance, common, warp, begun);
                end = phase.took_turn(warp, (spent, went), count, turns);
            }
            match end {
                End::Met(spent) => return Ok(spent),
                End::Apart(apart) => return Err(apart),
                End::Turn | End::Left(_) => {}
            }
        }
        Err(Apart { next: count, spent: None, rest: count })
    }

    /// Members go through a phase by a piece, as many as do so in a row.
    #[inline(always)]
    fn go_through(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warps: &mut [Warp],
        (phase, found): (&mut Phase, Found<'a>),
        turns: &mut Turns,
    ) -> End {
        let (count, quantum) = (entrance.of_block.len() / 2, turns.quantum);
        let likely = Way::likely(found.piece);
        let ahead = Ahead::by(likely, common);
        let room = match phase.may_come(ahead) {
            true => entrance.tally.expect(common, self.reach.counts, likely) as usize,
            false => 0,
        };
        let places = phase.done..count.min(phase.done + room + 1);
        entrance.state.sites = self.sites_of(found.piece);
        let owns = &entrance.of_block[phase.first + places.start..phase.first + places.end];
        let (state, before) = (&mut entrance.state, phase.spent_before());
        state.go_through(owns, (likely.left, likely.begin));
        let visit = Visit { engine: self, common, warps: Warps::Each(warps), part: None, found };
        let left = visit.run(state, (quantum - before, quantum));
        let (more, executed) = state.passed(owns);
        if more > 0 {
            turns.executed += executed;
            turns.has_gone_on = true;
            entrance.tally.add_expected(more as u32);
            phase.came(warps, &entrance.of_block, more, ahead);
        }
        let Some(left) = left else {
            let lanes = found.piece.lanes;
            let has_filled = self.fill(warps, (phase, &entrance.of_block), lanes);
            return if has_filled { End::Turn } else { End::Left(None) };
        };
        let spent = quantum - state.left as u32 + left.last();
        if spent >= quantum || !left.has_come() {
            if places.start == 0 && more == 0 {
                found.piece.note_apart();
            }
            return End::Left(Some(left));
        }
        let way = Way { left, begin: state.begin as u32 };
        found.piece.note_way(left, way.begin);
        if left.behind() == Behind::End && found.pc == self.program.functions[0].start {
            entrance.whole = Some(Whole { found, way, quantum, is_ready: false });
        }
        let warp = &mut warps[phase.member(&entrance.of_block)];
        let went = match self.come(entrance, common, warp, way) && spent + 1 < quantum {
            true => Went::Met,
            false => Went::Turn,
        };
        phase.took_turn(warp, (spent + 1, went), count, turns)
    }

    /// The next member and those behind it get the lanes of registers. Returns whether the next one lacked any.
    #[cold]
    fn fill(&self, warps: &mut [Warp], (phase, owns): (&Phase, &[Own]), lanes: Set) -> bool {
        let has_filled = warps[phase.member(owns)].lines.held.has_stale(lanes);
        for place in phase.done..owns.len() / 2 {
            fill_kernel_lines(self.program, &mut warps[phase.member_at(place, owns)], lanes);
        }
        has_filled
    }
}

impl Phase {
    /// The instructions that the next member executed of its turn before.
    #[inline(always)]
    fn spent_before(&self) -> u32 {
        if self.done == 0 { self.spent } else { 0 }
    }

    /// The member at a place, by its index in the block.
    #[inline(always)]
    fn member_at(&self, place: usize, owns: &[Own]) -> usize {
        owns[self.first + place].place
    }

    /// The next member.
    #[inline(always)]
    fn member(&self, owns: &[Own]) -> usize {
        self.member_at(self.done, owns)
    }

    /// Whether a member that comes somewhere comes to where the others did.
    #[inline(always)]
    fn may_come(&self, ahead: Ahead) -> bool {
        ahead != Ahead::Unknown && (self.ahead == Ahead::Unknown || self.ahead == ahead)
    }

    /// So many members came somewhere.
    #[inline(always)]
    fn came(&mut self, warps: &mut [Warp], owns: &[Own], more: usize, ahead: Ahead) {
        if ahead == Ahead::End {
            for place in self.done..self.done + more {
                warps[self.member_at(place, owns)].end();
            }
        }
        (self.ahead, self.done) = (ahead, self.done + more);
    }

    /// The next member took its turn, of so many instructions.
    #[inline(always)]
    fn took_turn(
        &mut self,
        warp: &Warp,
        (spent, went): (u32, Went),
        count: usize,
        turns: &mut Turns,
    ) -> End {
        let (next, rest) = (self.done, self.done + 1);
        match went {
            Went::Turn => {
                turns.executed += u64::from(spent);
                let ahead = Ahead::of(warp);
                if self.may_come(ahead) {
                    (self.ahead, self.done) = (ahead, rest);
                    return End::Turn;
                }
                return End::Apart(Apart { next: rest, spent: None, rest });
            }
            Went::Met => {
                let pc = warp.fragments.first().map(|fragment| fragment.pc);
                let is_there = matches!(self.ahead, Ahead::At(at) if Some(at.pc) == pc);
                if is_there && rest == count {
                    return End::Met(spent);
                }
            }
            went => turns.stopped = Some(went),
        }
        End::Apart(Apart { next, spent: Some(spent), rest })
    }

    /// All members came to a barrier, and the last one has executed so many instructions of its turn.
    fn begin_next(&mut self, count: usize, spent: u32, rounds: u64) {
        let first = (self.first + count - 1) % count;
        if let Ahead::At(at) = self.ahead {
            *self = Self { first, spent, done: 0, at, ahead: Ahead::Unknown, rounds };
        }
    }

    /// The member at a place has begun its turn: the first one of the block may have, too.
    fn note_lap(&self, place: usize, count: usize, cursor: &mut Cursor) {
        if self.first + place >= count {
            cursor.rounds = self.rounds;
        }
    }

    /// Notes in each member where it is, but for those that ran last.
    fn settle(&self, warps: &mut [Warp], owns: &[Own], rest: usize) {
        for place in 0..owns.len() / 2 {
            let warp = &mut warps[self.member_at(place, owns)];
            match self.ahead {
                Ahead::At(at) if place < self.done => at.put(warp),
                _ if place >= rest => self.at.put(warp),
                _ => {}
            }
        }
    }
}
