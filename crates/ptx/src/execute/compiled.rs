//! Enters compiled pieces of a kernel, and serves them.
//!
//! A piece is entered where the interpreter would go on with all 32 lanes of a warp. It leaves registers,
//! memory and figures as the interpreter would have left them at the instruction that it names. If a piece
//! begins there, it follows at once.

use super::access::{Blocked, Reach};
use super::block::Common;
use super::engine::{End, Engine, Next, Ran, calculate, guarded};
use super::memory::Kind;
use super::registers::{fill_lines, leave_lines};
use super::warp::{Fragment, Warp};
use crate::code::{Barrier, CONSTANT, Code, Special, UNGUARDED, WIDTH, is_constant};
use crate::jit::{Calls, Left, Piece, Seen, Site, State};

/// Pieces that run one after the other, and all that their calls reach.
#[repr(C)]
struct Visit<'v, 'e> {
    state: State,
    engine: &'v mut Engine<'e>,
    common: &'v mut Common,
    warp: &'v mut Warp,
    fragment: &'v mut Fragment,
    /// Whether no piece begins where the last one was left.
    is_over: bool,
    /// The reason that an instruction stopped.
    blocked: Option<Blocked>,
}

const CALLS: Calls = Calls { instruction, span };

impl Engine<'_> {
    /// Runs pieces from the fragment's position on, while one fits and `left` instructions are enough for
    /// it. The fragment has all lanes of the kernel, and is alone in its warp.
    #[inline(always)]
    pub(super) fn run_pieces(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        (left, spent): (u32, &mut u32),
    ) -> Ran {
        let Some(pieces) = &self.pieces else { return Ran::Nothing };
        match pieces.compiled.at(fragment.pc) {
            Some(position) if position.piece(0).is_some() => {}
            Some(position) if position.is_closed() => return Ran::Nothing,
            _ => {
                self.want_piece(common, warp, fragment);
                return Ran::Nothing;
            }
        }
        self.chain(common, warp, fragment, (left, spent))
    }

    /// Runs a fragment that holds all lanes of its warp by pieces, and by the barriers and the ends between
    /// them, for up to `slice` instructions. `None` if the interpreter goes on.
    pub(super) fn run_whole(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        (slice, spent): (u32, &mut u32),
    ) -> Option<End> {
        if fragment.mask != u32::MAX || !warp.fragments.is_empty() || !fragment.is_kernel() {
            return None;
        }
        match self.run_pieces(common, warp, fragment, (slice, spent)) {
            Ran::Pieces if *spent < slice => {}
            Ran::Pieces => return Some(End::Stopped),
            Ran::Nothing => return None,
            Ran::Blocked(blocked) => return Some(End::Blocked(blocked)),
        }
        let position = fragment.pc;
        let op = &self.program.ops[position as usize];
        let end = match op.code {
            _ if op.guard != UNGUARDED => return None,
            Code::Barrier { kind: Barrier::Sync, counted: false } if is_constant(op.s[0]) => {
                let index = self.program.constant_words[usize::from(op.s[0] & !CONSTANT)][0];
                let round = common.arrive(index, 0, WIDTH as u32, (0, 0));
                fragment.state = common.waiting(round);
                (fragment.alone, fragment.pc) = (false, position + 1);
                End::Stopped
            }
            Code::Exit => match self.control(common, warp, fragment, op, fragment.mask) {
                Ok(Next::End) => End::Over,
                _ => End::Stopped,
            },
            _ => return None,
        };
        *spent += 1;
        self.reach.counts.note(position, position + 1);
        self.reach.stats.thread_instructions += 32;
        Some(end)
    }

    #[inline(never)]
    fn chain(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        (left, spent): (u32, &mut u32),
    ) -> Ran {
        let state = self.state(common, warp);
        let (is_over, blocked) = (false, None);
        let mut visit = Visit { state, engine: self, common, warp, fragment, is_over, blocked };
        let before = *spent;
        loop {
            let executed = visit.next_piece(left - (*spent - before));
            *spent += executed;
            if visit.is_over || visit.blocked.is_some() || executed == 0 {
                break;
            }
        }
        let State { read, written, .. } = visit.state;
        visit.engine.reach.stats.bytes_read += read;
        visit.engine.reach.stats.bytes_written += written;
        match visit.blocked {
            Some(blocked) => Ran::Blocked(blocked),
            None if *spent > before => Ran::Pieces,
            None => Ran::Nothing,
        }
    }

    /// The state of a warp for pieces.
    #[inline(always)]
    fn state(&mut self, common: &mut Common, warp: &mut Warp) -> State {
        let (held, line_words, line_doubles) = warp.lines.pointers();
        State {
            words: warp.words.as_mut_ptr().cast(),
            doubles: warp.doubles.as_mut_ptr().cast(),
            predicates: warp.predicates.as_mut_ptr(),
            line_words,
            line_doubles,
            held,
            params: self.reach.params.pointer(),
            shared: common.shared.pointer(),
            shared_bytes: common.shared_bytes.into(),
            sites: std::ptr::null_mut(),
            round: self.reach.kept.round(),
            read: 0,
            written: 0,
            left: 0,
            counts: self.reach.counts.pointer(),
            begin: 0,
            no_line: 0,
            thread: &raw const self.rules.shape.axes[warp.index as usize],
            block: &raw const common.coordinates,
            threads: &raw const self.rules.shape.block,
            blocks: &raw const self.rules.shape.grid,
        }
    }

    #[inline(never)]
    fn want_piece(&mut self, common: &Common, warp: &Warp, fragment: &Fragment) {
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
        pieces.compiled.want(self.program, fragment.pc, pieces.after, CALLS, &seen);
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
        (axis.is_halves != 0).then(|| axis.step.cast_signed().into())
    }

    /// The windows of a piece's accesses.
    fn sites_of(&mut self, piece: &Piece) -> *mut Site {
        let Some(pieces) = &mut self.pieces else { return std::ptr::null_mut() };
        if pieces.sites.len() < (piece.first_site + piece.sites) as usize {
            pieces.sites.resize(pieces.compiled.sites(), Site::default());
        }
        pieces.sites.as_mut_ptr().wrapping_add(piece.first_site as usize)
    }
}

impl Visit<'_, '_> {
    /// Runs a piece at the fragment's position for up to `left` instructions. Returns how many it has
    /// executed: none if none fits.
    #[inline(always)]
    fn next_piece(&mut self, left: u32) -> u32 {
        let Some(pieces) = &self.engine.pieces else { return 0 };
        let Some(position) = pieces.compiled.at(self.fragment.pc) else { return 0 };
        let (mut is_tight, mut index) = (false, 0);
        while let Some(piece) = position.piece(index) {
            index += 1;
            if piece.most > left || piece.is_retired() {
                is_tight |= piece.most > left;
                continue;
            }
            let way = self.enter(piece, left);
            if way.unfit {
                continue;
            }
            if let Some(instruction) = self.state.no_line.checked_sub(1) {
                position.note_no_line(piece, instruction as u32);
            }
            return self.account(left, way);
        }
        if !is_tight && !position.is_closed() {
            self.engine.want_piece(self.common, self.warp, self.fragment);
        }
        0
    }

    #[inline(always)]
    fn enter(&mut self, piece: &Piece, left: u32) -> Left {
        fill_lines(self.engine.program, self.warp, self.fragment, piece.lanes);
        self.state.sites = self.engine.sites_of(piece);
        let State { held, line_words, line_doubles, .. } = &mut self.state;
        (*held, *line_words, *line_doubles) = self.warp.lines.pointers();
        (self.state.left, self.state.no_line) = (left.into(), 0);
        // SAFETY: the state has the pointers of the warp and of its block, which nothing else uses until
        // the piece is left; its calls get the visit back from the state, which is its first field.
        unsafe { piece.enter((&raw mut *self).cast()) }
    }

    /// Adds what a piece has executed to the figures, and goes where it left. Returns how many of the `left`
    /// instructions it has executed.
    #[inline(always)]
    fn account(&mut self, left: u32, way: Left) -> u32 {
        let begin = self.state.begin as u32;
        let reach = &mut self.engine.reach;
        let last = way.executed + u32::from(way.stopped);
        reach.counts.note(begin, begin + last);
        let executed = left - self.state.left as u32 + last;
        reach.stats.thread_instructions += 32 * u64::from(executed);
        (self.fragment.pc, self.is_over) = (way.position, way.is_over);
        executed
    }

    /// Executes one instruction. Returns whether it stopped.
    fn execute(&mut self, position: u32, keeps: bool) -> bool {
        let (common, warp) = (&mut *self.common, &mut *self.warp);
        let fragment = &mut *self.fragment;
        let begin = fragment.pc;
        fragment.pc = position;
        let program = self.engine.program;
        let op = &program.ops[position as usize];
        let done = match op.code {
            Code::Pure(_) => {
                calculate::<true>(program, warp, fragment, position + 1);
                Ok(())
            }
            _ => {
                let mask = guarded(op, fragment.mask, || warp.predicates[usize::from(op.guard)]);
                match op.code {
                    _ if mask == 0 => Ok(()),
                    Code::Load(access) => {
                        self.engine.load(common, warp, fragment, op, access, mask)
                    }
                    Code::Store(access) => {
                        self.engine.store(common, warp, fragment, op, access, mask)
                    }
                    Code::Special(special) => {
                        leave_lines(program, warp, fragment, op, mask);
                        self.engine.special(common, warp, fragment, op, special, mask);
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
        };
        self.blocked = done.err();
        if !keeps && self.blocked.is_none() {
            fill_lines(program, warp, fragment, op.writes);
        }
        // The piece counts from where it began.
        fragment.pc = begin;
        self.state.round = self.engine.reach.kept.round();
        self.blocked.is_some()
    }
}

impl Reach<'_> {
    /// The window that has a span, for an access of a piece.
    fn site(&self, address: u64, bytes: u32, writes: bool) -> Option<Site> {
        let kind = if writes { Kind::Write } else { Kind::Read };
        let window = self.kept.find(address, bytes.into(), kind)?;
        Some(Site {
            start: window.start(),
            last: window.bytes() - u64::from(bytes),
            host: window.host(),
            round: self.kept.round(),
        })
    }
}

/// Executes an instruction for a piece.
unsafe extern "C" fn instruction(state: *mut State, position: u32, keeps: u32) -> u32 {
    // SAFETY: the state is the first field of the visit that entered the piece, which waits.
    let visit = unsafe { &mut *state.cast::<Visit<'_, '_>>() };
    visit.execute(position, keeps != 0).into()
}

/// Finds a span for a piece.
unsafe extern "C" fn span(
    state: *mut State,
    address: u64,
    site: u32,
    bytes: u32,
    writes: u32,
) -> *mut u8 {
    // SAFETY: the state is the first field of the visit that entered the piece, which waits.
    let visit = unsafe { &mut *state.cast::<Visit<'_, '_>>() };
    let Some(found) = visit.engine.reach.site(address, bytes, writes != 0) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the piece numbers its own sites, of which the state has the first.
    unsafe { visit.state.sites.add(site as usize).write(found) };
    found.host.wrapping_add((address - found.start) as usize)
}
