//! Enters compiled pieces of a kernel, and serves them.
//!
//! A piece is entered where the interpreter would go on with all 32 lanes of a warp. It leaves registers,
//! memory and figures as the interpreter would have left them at the instruction that it names.

use super::access::{Blocked, Reach};
use super::block::Common;
use super::engine::{Engine, calculate, guarded};
use super::memory::Kind;
use super::registers::{fill_lines, leave_lines};
use super::warp::{Fragment, Warp};
use crate::code::{Code, Special};
use crate::jit::{Calls, Left, Piece, Seen, Site, State};

/// A piece that runs, and all that its calls reach.
#[repr(C)]
struct Visit<'v, 'e> {
    state: State,
    engine: &'v mut Engine<'e>,
    common: *mut Common,
    warp: *mut Warp,
    fragment: *mut Fragment,
    /// The reason that an instruction stopped.
    blocked: *mut Option<Blocked>,
}

const CALLS: Calls = Calls { instruction, span };

impl Engine<'_> {
    /// Runs the piece at the fragment's position, if one fits and `left` instructions are enough for it.
    /// Returns whether one has run. The fragment has all lanes of the kernel, and is alone in its warp.
    #[inline(always)]
    pub(super) fn run_piece(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        (left, spent): (u32, &mut u32),
    ) -> Result<bool, Blocked> {
        let Some(pieces) = &self.pieces else { return Ok(false) };
        let Some(position) = pieces.compiled.at(fragment.pc) else {
            self.want_piece(common, warp, fragment);
            return Ok(false);
        };
        let mut is_tight = false;
        for piece in position.pieces() {
            if piece.most > left {
                is_tight = true;
                continue;
            }
            let begin = fragment.pc;
            let mut blocked = None;
            let (way, passes) = self.enter(piece, common, warp, fragment, (left, &mut blocked));
            if way.unfit {
                continue;
            }
            if let Some(offset) = way.no_line {
                position.note_no_line(piece, offset);
            }
            fragment.pc = way.position;
            let threads = 32 * u64::from(piece.most) * passes;
            self.reach.stats.thread_instructions += threads;
            self.reach.counts.note_times(begin, begin + piece.most, passes);
            let executed = way.executed + u32::from(way.stopped);
            self.reach.counts.note(begin, begin + executed);
            self.reach.stats.thread_instructions += 32 * u64::from(executed);
            *spent += passes as u32 * piece.most + executed;
            return match blocked {
                Some(blocked) if way.stopped => Err(blocked),
                _ => Ok(passes > 0 || executed > 0),
            };
        }
        if !is_tight && !position.is_closed() {
            self.want_piece(common, warp, fragment);
        }
        Ok(false)
    }

    #[inline(never)]
    fn want_piece(&mut self, common: &Common, warp: &Warp, fragment: &Fragment) {
        let Some(pieces) = &self.pieces else { return };
        let special = |special| self.special_step(common, warp, special);
        let seen =
            Seen { lines: &warp.lines, special: &special, param_bytes: self.reach.param_bytes };
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

    #[inline(never)]
    fn enter(
        &mut self,
        piece: &Piece,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        (left, blocked): (u32, &mut Option<Blocked>),
    ) -> (Left, u64) {
        fill_lines(self.program, warp, fragment, piece.lanes);
        let sites = self.sites_of(piece);
        let (held, line_words, line_doubles) = warp.lines.pointers();
        let state = State {
            words: warp.words.as_mut_ptr().cast(),
            doubles: warp.doubles.as_mut_ptr().cast(),
            predicates: warp.predicates.as_mut_ptr(),
            line_words,
            line_doubles,
            held,
            params: self.reach.params.pointer(),
            shared: common.shared.pointer(),
            shared_bytes: common.shared_bytes.into(),
            sites,
            round: self.reach.kept.round(),
            read: 0,
            written: 0,
            left: left.into(),
            passes: 0,
            thread: &raw const self.rules.shape.axes[warp.index as usize],
            block: &raw const common.coordinates,
            threads: &raw const self.rules.shape.block,
            blocks: &raw const self.rules.shape.grid,
        };
        let mut visit = Visit { state, engine: self, common, warp, fragment, blocked };
        // SAFETY: the pointers are those of the warp and of its block, which nothing else uses until the
        // piece is left; its calls get the visit back from the state, which is its first field.
        let way = unsafe { piece.enter((&raw mut visit).cast()) };
        let State { read, written, passes, .. } = visit.state;
        self.reach.stats.bytes_read += read;
        self.reach.stats.bytes_written += written;
        (way, passes)
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
    /// Executes one instruction. Returns whether it stopped.
    fn execute(&mut self, position: u32, keeps: bool) -> bool {
        // SAFETY: the caller of the piece lent all four for the time of the piece, which waits for this
        // call.
        let (common, warp, fragment, blocked) = unsafe {
            (&mut *self.common, &mut *self.warp, &mut *self.fragment, &mut *self.blocked)
        };
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
        fragment.pc = position;
        *blocked = done.err();
        if !keeps && blocked.is_none() {
            fill_lines(program, warp, fragment, op.writes);
        }
        self.state.round = self.engine.reach.kept.round();
        blocked.is_some()
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
