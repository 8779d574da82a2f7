//! Enters compiled pieces of a kernel.
//!
//! A piece is entered where the interpreter would go on with all 32 lanes of a warp. It leaves registers,
//! memory and figures as the interpreter would have left them at the instruction that it names. If a piece
//! begins there, it follows at once.

use super::access::Blocked;
use super::block::Common;
use super::engine::{ByPieces, Engine, calculate, guarded};
use super::entrance::{Entrance, Found, Repeated};
use super::registers::{fill_kernel_lines, leave_lines};
use super::tally::{Tally, Way};
use super::visit::{CALLS, Visit, Warps};
use super::warp::{Fragment, State as Waits, Warp};
use crate::code::{Code, NO_STEP, Op, Special, UNGUARDED, WIDTH};
use crate::jit::{Behind, Left, Noted, Of, Own, Piece, Position, Seen, Site, State};

/// A turn that goes on by pieces.
pub(super) struct Begun {
    /// The most instructions.
    pub(super) quantum: u32,
    /// Those that are executed.
    pub(super) spent: u32,
    /// How the warp has left the next piece, if it has run that already.
    pub(super) first: Option<Left>,
}

/// How pieces ended.
pub(super) enum Went {
    /// The turn is over.
    Turn,
    /// The warp came last to a barrier, and goes on with its turn.
    Met,
    /// The interpreter goes on with it.
    Rest,
    /// An instruction stopped.
    Blocked(Blocked),
}

impl<'a> Engine<'a> {
    /// The way of blocks' warps into pieces.
    pub(super) fn entrance(&mut self) -> Entrance<'a> {
        let state = State {
            warp: std::ptr::null(),
            last: std::ptr::null(),
            quantum: 0,
            way: 0,
            way_begin: 0,
            rest: 0,
            params: self.reach.params.pointer(),
            shared: std::ptr::null_mut(),
            shared_bytes: 0,
            sites: std::ptr::null_mut(),
            read: 0,
            counts: self.reach.counts.pointer(),
            written: 0,
            left: 0,
            begin: 0,
            lanes: 0,
            meeting: 0,
            spins: 0,
            noted: Noted::default(),
            block: std::ptr::null(),
            threads: &raw const self.rules.shape.block,
            blocks: &raw const self.rules.shape.grid,
            idle: 0,
            visit: std::ptr::null_mut(),
        };
        Entrance {
            state,
            of_warp: None,
            of_block: Vec::new(),
            of_sample: Vec::new(),
            tally: Tally::default(),
            whole: None,
            repeated: Repeated::default(),
            entered: None,
            is_short: false,
        }
    }

    /// Whether a piece may begin at a position, now or once it is made.
    #[inline(always)]
    pub(super) fn may_enter(&self, pc: u32) -> bool {
        self.pieces.as_ref().is_some_and(|pieces| {
            pieces.compiled.at(Of::Whole, pc).is_none_or(|position| !position.is_closed())
        })
    }

    /// The next position behind another at which a piece begins, for whole warps or for parts. The interpreter
    /// goes no further, as a turn may have ended within the code of a piece.
    #[inline(always)]
    pub(super) fn next_piece(&self, is_whole: bool, pc: u32) -> u32 {
        let of = if is_whole { Of::Whole } else { Of::Part };
        let position = self.pieces.as_ref().and_then(|pieces| pieces.compiled.at(of, pc));
        position.and_then(Position::next_piece).unwrap_or(u32::MAX)
    }

    /// Runs a warp by pieces, and by the barriers and the ends between them, for up to `quantum`
    /// instructions: as far as all of its lanes are together.
    #[inline(never)]
    pub(super) fn by_pieces(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warp: &mut Warp,
        quantum: u32,
    ) -> ByPieces {
        if self.pieces.is_none() {
            return ByPieces::Rest(0);
        }
        let [fragment] = &warp.fragments[..] else { return ByPieces::Rest(0) };
        match fragment.state {
            Waits::Barrier(_) => return ByPieces::Turn(0),
            Waits::Ready if warp.together().is_some() => {}
            _ => return ByPieces::Rest(0),
        }
        let mut begun = Begun { quantum, spent: 0, first: entrance.entered.take() };
        loop {
            let (spent, went) = self.chain(entrance, common, warp, begun);
            if let Went::Met = went {
                begun = Begun { quantum, spent, first: None };
                continue;
            }
            self.add_up(entrance, common, spent.into());
            return self.went(common, warp, (spent, went));
        }
    }

    /// Adds what whole warps did by pieces to the figures, but for the instructions of warps.
    #[inline(always)]
    pub(super) fn add_up(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        executed: u64,
    ) {
        entrance.tally.finish(common, self.reach.counts);
        self.add_figures(entrance, executed);
    }

    /// Adds so many instructions of whole warps to the figures of threads, and what pieces count themselves.
    #[inline(always)]
    pub(super) fn add_figures(&mut self, entrance: &mut Entrance<'a>, executed: u64) {
        let stats = &mut *self.reach.stats;
        stats.thread_instructions = stats.thread_instructions.wrapping_add(WIDTH as u64 * executed);
        entrance.take_figures(stats);
    }

    /// How a warp's turn goes on after its pieces, and how many instructions they executed.
    pub(super) fn went(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        (spent, went): (u32, Went),
    ) -> ByPieces {
        match went {
            Went::Turn => ByPieces::Turn(spent),
            Went::Rest | Went::Met => ByPieces::Rest(spent),
            Went::Blocked(blocked) => {
                let Some(fragment) = warp.fragments.pop() else { return ByPieces::Rest(spent) };
                match self.block(common, warp, fragment, blocked) {
                    Some(trap) => ByPieces::Trap(spent, trap),
                    None => ByPieces::Turn(spent),
                }
            }
        }
    }

    /// Runs pieces one after the other from the position of a whole warp on. Gives how many instructions of the
    /// turn are executed.
    #[inline(never)]
    pub(super) fn chain(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warp: &mut Warp,
        begun: Begun,
    ) -> (u32, Went) {
        let Some(fragment) = warp.fragments.first() else { return (0, Went::Rest) };
        let Begun { quantum, mut spent, mut first } = begun;
        let mut pc = fragment.pc;
        self.approach(entrance, warp);
        let went = loop {
            let entered = match first.take() {
                Some(first) => Some(first),
                None => {
                    let (state, at, left) = (&mut entrance.state, (Of::Whole, pc), quantum - spent);
                    self.enter_at(state, common, (&mut *warp, None), at, left)
                }
            };
            let Some(left) = entered else {
                if spent >= quantum {
                    break Went::Turn;
                }
                let Some(done) = self.step(common, warp, pc) else { break Went::Rest };
                self.reach.counts.note(pc, pc + 1);
                spent += 1;
                match done {
                    Ok(()) => pc += 1,
                    Err(blocked) => break Went::Blocked(blocked),
                }
                continue;
            };
            let before = spent;
            let way = Way { left, begin: entrance.state.begin as u32 };
            (spent, pc) = (quantum - entrance.state.left as u32 + left.last(), left.position());
            if spent >= quantum || !left.has_come() {
                self.reach.counts.note(way.begin, way.begin + left.last());
                if let Some(blocked) = self.blocked.take() {
                    break Went::Blocked(blocked);
                }
                if left.is_apart() {
                    let (lanes, meeting) = entrance.state.apart();
                    if let Some(fragment) = warp.fragments.first_mut() {
                        let others = fragment.split_off(lanes, meeting);
                        warp.add(others);
                    }
                    break if spent >= quantum { Went::Turn } else { Went::Rest };
                }
                match left.behind() {
                    _ if spent >= quantum => break Went::Turn,
                    Behind::Piece if spent == before => break Went::Rest,
                    _ => continue,
                }
            }
            (spent, pc) = (spent + 1, pc + 1);
            let goes_on = self.come(entrance, common, warp, way);
            break if goes_on && spent < quantum { Went::Met } else { Went::Turn };
        };
        if let Some(fragment) = warp.fragments.first_mut() {
            fragment.pc = pc;
        }
        (spent, went)
    }

    /// A whole warp comes to a barrier of all threads, or to its end. Returns whether it goes on at once.
    #[inline(always)]
    pub(super) fn come(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warp: &mut Warp,
        way: Way,
    ) -> bool {
        let waits = entrance.tally.add(common, self.reach.counts, way);
        let waits = match (waits, way.left.behind()) {
            (Some(waits), _) => waits,
            (None, Behind::Barrier(index)) => {
                let round = common.arrive(index.into(), 0, WIDTH as u32, (0, 0));
                common.waiting(round, || self.program.goes_evenly(way.left.position() + 1))
            }
            (None, _) => {
                common.end_threads(warp, u32::MAX);
                Waits::Ready
            }
        };
        if way.left.behind() == Behind::End {
            warp.end();
            return false;
        }
        if let Some(fragment) = warp.fragments.first_mut() {
            let next = way.left.position() + 1;
            (fragment.state, fragment.alone, fragment.pc) = (waits, false, next);
        }
        waits == Waits::Ready
    }

    /// Executes an instruction that no piece holds and behind which all lanes go on together. `None` for
    /// another one.
    #[inline(never)]
    fn step(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        pc: u32,
    ) -> Option<Result<(), Blocked>> {
        self.program.ops.get(pc as usize).filter(|op| keeps_lanes_together(op))?;
        let mut fragment = warp.fragments.pop()?;
        let done = self.execute(common, warp, &mut fragment, pc);
        warp.fragments.push(fragment);
        Some(done)
    }

    /// Executes an instruction behind which the lanes of a fragment go on together.
    pub(super) fn execute(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        position: u32,
    ) -> Result<(), Blocked> {
        let program = self.program;
        fragment.pc = position;
        let op = &program.ops[position as usize];
        let mask = guarded(op, fragment.mask, || warp.predicates[usize::from(op.guard)]);
        match op.code {
            Code::Pure(_) => {
                calculate::<true>(program, warp, fragment, position + 1);
                Ok(())
            }
            _ if mask == 0 => Ok(()),
            Code::Load(access) => self.load(common, warp, fragment, op, access, mask),
            Code::Store(access) => self.store(common, warp, fragment, op, access, mask),
            _ => {
                leave_lines(program, warp, fragment, op, mask);
                self.other(common, warp, fragment, op, mask).map(drop)
            }
        }
    }

    /// A warp is the next one that enters pieces.
    #[inline(always)]
    pub(super) fn approach(&self, entrance: &mut Entrance<'_>, warp: &mut Warp) {
        let thread = warp.index;
        entrance.set_warp(self.own(warp, 0, thread));
    }

    /// The registers of a warp at a place, with the coordinates of one of the block's warps.
    #[inline(always)]
    pub(super) fn own(&self, warp: &mut Warp, place: usize, thread: u32) -> Own {
        let (held, line_words, line_doubles) = warp.lines.pointers();
        Own {
            words: warp.words.as_mut_ptr().cast(),
            doubles: warp.doubles.as_mut_ptr().cast(),
            predicates: warp.predicates.as_mut_ptr(),
            line_words,
            line_doubles,
            held,
            local: warp.local_pointer(0, 0),
            local_bytes: warp.local_bytes.into(),
            thread: &raw const self.rules.shape.axes[thread as usize],
            place,
        }
    }

    /// Runs a piece at a position for up to `left` instructions, for a part of the warp if one is named: the one
    /// that was entered there last, if it fits, or another one. `None` if none does.
    #[inline(always)]
    pub(super) fn enter_at(
        &mut self,
        state: &mut State,
        common: &mut Common,
        (warp, mut part): (&mut Warp, Option<&mut Fragment>),
        (of, pc): (Of, u32),
        left: u32,
    ) -> Option<Left> {
        let position = self.pieces.as_ref()?.compiled.at(of, pc);
        let last = position.and_then(Position::last);
        if let (Some(position), Some(piece)) = (position, last)
            && piece.most <= left
            && !piece.is_retired()
        {
            let (found, lanes) = (Found { pc, position, piece }, (&mut *warp, part.as_deref_mut()));
            state.sites = self.sites_of(piece);
            let entered = self.enter(state, common, lanes, found, left);
            if entered.is_some() {
                return entered;
            }
        }
        if last.is_none() && position.is_some_and(Position::is_closed) {
            return None;
        }
        self.enter_another(state, common, (warp, part), (of, pc, position), left)
    }

    /// Runs the first other piece of a position that fits, likewise. If there is none, one is asked for. A turn
    /// that has too few instructions left for any goes on by a piece for its tail.
    #[inline(never)]
    fn enter_another(
        &mut self,
        state: &mut State,
        common: &mut Common,
        (warp, mut part): (&mut Warp, Option<&mut Fragment>),
        (of, pc, position): (Of, u32, Option<&'a Position>),
        left: u32,
    ) -> Option<Left> {
        let (mut is_tight, mut index) = (false, 0);
        let last = position.and_then(Position::last);
        while let Some(position) = position
            && let Some(piece) = position.piece(index)
        {
            let at = index;
            index += 1;
            let is_long = piece.most > left;
            is_tight |= is_long;
            if is_long || piece.is_retired() || last.is_some_and(|last| std::ptr::eq(last, piece)) {
                continue;
            }
            let (found, lanes) = (Found { pc, position, piece }, (&mut *warp, part.as_deref_mut()));
            state.sites = self.sites_of(piece);
            let entered = self.enter(state, common, lanes, found, left);
            if entered.is_some() {
                position.set_last(at);
                return entered;
            }
        }
        if is_tight && of == Of::Whole {
            return self.enter_at(state, common, (warp, part), (Of::Tail, pc), left);
        }
        if !is_tight && !position.is_some_and(Position::is_closed) {
            self.want_piece(common, warp, (of, pc));
        }
        None
    }

    /// Runs a piece for up to `most` instructions, for a part of the warp if one is named. The state has the
    /// windows of its accesses. `None` if it does not fit.
    #[inline(always)]
    pub(super) fn enter(
        &mut self,
        state: &mut State,
        common: &mut Common,
        (warp, part): (&mut Warp, Option<&mut Fragment>),
        found: Found<'a>,
        most: u32,
    ) -> Option<Left> {
        fill_kernel_lines(self.program, warp, found.piece.lanes);
        let warps = Warps::Each(std::slice::from_mut(warp));
        Visit { engine: self, common, warps, part, found }.run(state, (most, most))
    }

    #[inline(never)]
    fn want_piece(&mut self, common: &Common, warp: &Warp, (of, pc): (Of, u32)) {
        let Some(pieces) = &self.pieces else { return };
        let special = |special| self.special_step(common, warp, special);
        let half_special = |special| self.half_special_step(warp, special);
        let seen = Seen {
            lines: &warp.lines,
            words: &warp.words,
            doubles: &warp.doubles,
            special: &special,
            half_special: &half_special,
            param_bytes: self.reach.param_bytes,
        };
        pieces.compiled.want(self.program, (of, pc), pieces.after, CALLS, &seen);
    }

    /// The step of a special register in the lanes of a warp.
    fn special_step(&self, common: &Common, warp: &Warp, special: Special) -> Option<i64> {
        match special {
            Special::Thread(axis) => {
                let coordinates = &self.rules.shape.coordinates[warp.index as usize];
                let line = coordinates[usize::from(axis)].line?;
                Some(line.step.cast_signed().into())
            }
            Special::Lane => Some(1),
            other => common.same_for_all(&self.rules.shape, warp.index, other).map(|_| 0),
        }
    }

    /// The step of a coordinate in each half of a warp.
    fn half_special_step(&self, warp: &Warp, special: Special) -> Option<i64> {
        let Special::Thread(axis) = special else { return None };
        let axis = &self.rules.shape.axes[warp.index as usize][usize::from(axis)];
        (axis.half_step != NO_STEP).then(|| axis.half_step.cast_signed().into())
    }

    /// The memory that a piece's accesses found last.
    #[inline(always)]
    pub(super) fn sites_of(&mut self, piece: &Piece) -> *mut Site {
        let Some(pieces) = &mut self.pieces else { return std::ptr::null_mut() };
        pieces.sites.of(&piece.sites, self.reach.kept.round())
    }
}

/// Whether a whole warp stays so behind an instruction that no piece holds.
fn keeps_lanes_together(op: &Op) -> bool {
    match op.code {
        Code::Atomic(_) | Code::AtomicPair(_) | Code::Copy { .. } | Code::Fence => true,
        // A lane that does not execute it is another fragment.
        Code::Shuffle { .. }
        | Code::Vote { .. }
        | Code::Match { .. }
        | Code::Reduce(_)
        | Code::WarpBarrier
        | Code::ActiveMask
        | Code::Elect => op.guard == UNGUARDED,
        code => code.is_of_matrices() && op.guard == UNGUARDED,
    }
}
