//! The functions that compiled pieces call while they run: the interpreter executes instructions for them, and
//! finds bytes that no window of theirs has.

use super::access::Reach;
use super::block::Common;
use super::collective::shuffled;
use super::engine::Engine;
use super::entrance::Found;
use super::memory::Kind;
use super::registers::fill_kernel_lines;
use super::warp::{Fragment, Warp};
use crate::code::{WIDTH, signs};
use crate::jit::{Calls, Exchange, Left, Noted, Site, State};

/// The functions that pieces call.
pub(super) const CALLS: Calls = Calls { instruction, exchange, span, shared };

/// The warps of which some run by a piece, one after the other.
pub(super) enum Warps<'v> {
    Each(&'v mut [Warp]),
    /// One that stands for all warps of a block.
    Sample(&'v mut Warp),
}

impl Warps<'_> {
    /// The warp that runs.
    #[inline(always)]
    fn running(&mut self, state: &State) -> &mut Warp {
        // SAFETY: the state points to the registers of a warp of the visit, which the caller keeps.
        let place = unsafe { (*state.warp).place };
        match self {
            Self::Each(warps) => &mut warps[place],
            Self::Sample(warp) => {
                warp.index = place as u32;
                warp
            }
        }
    }
}

/// Warps while a piece runs for them, and all that its calls reach.
pub(super) struct Visit<'v, 'e> {
    pub(super) engine: &'v mut Engine<'e>,
    pub(super) common: &'v mut Common,
    pub(super) warps: Warps<'v>,
    /// The part of the one warp that runs; `None` if it is all of it.
    pub(super) part: Option<&'v mut Fragment>,
    pub(super) found: Found<'e>,
}

impl<'e> Visit<'_, 'e> {
    /// Runs a piece for the warps from the first to the last one of the state, as long as they leave it the way
    /// that the state names: the first for up to `most` instructions, and each other one for up to `quantum`.
    /// The state is laid out for the piece. `None` if it does not fit the next of them.
    #[inline(always)]
    pub(super) fn run(mut self, state: &mut State, (most, quantum): (u32, u32)) -> Option<Left> {
        let found = self.found;
        (state.left, state.quantum) = (most.into(), quantum.into());
        (state.noted, state.rest) = (Noted::default(), 0);
        state.visit = (&raw mut self).cast();
        // SAFETY: the state has the pointers of the warps and of their block, which nothing else uses until
        // the piece is left; its calls get the visit from the state.
        let left = unsafe { found.piece.enter(state) };
        if left.is_unfit() {
            return None;
        }
        if state.noted != Noted::default() {
            self.note(state);
        }
        Some(left)
    }

    /// Notes that lanes met, and that a result is no line.
    #[cold]
    fn note(&mut self, state: &mut State) {
        let found = self.found;
        let Noted { no_line, has_met } = state.noted;
        if has_met != 0 {
            self.has_met(state);
        }
        if let Some(instruction) = no_line.checked_sub(1)
            && let Some(pieces) = &self.engine.pieces
        {
            pieces.compiled.note_no_line(found.position, found.piece, instruction);
        }
    }

    /// Lanes that came apart are together again. They begin anew to count how long they loop.
    fn has_met(&mut self, state: &State) {
        let fragment = match &mut self.part {
            Some(part) => Some(&mut **part),
            None => self.warps.running(state).fragments.first_mut().map(Box::as_mut),
        };
        if let Some(fragment) = fragment {
            fragment.spin = 0;
        }
    }

    /// Executes one instruction. Returns whether it stopped.
    fn execute(&mut self, state: &mut State, position: u32, keeps: bool) -> bool {
        let (engine, warp) = (&mut *self.engine, self.warps.running(state));
        let done = match &mut self.part {
            Some(part) => engine.execute(self.common, warp, part, position),
            None => {
                let Some(mut whole) = warp.fragments.pop() else { return true };
                let done = engine.execute(self.common, warp, &mut whole, position);
                warp.fragments.push(whole);
                done
            }
        };
        engine.blocked = done.err();
        if !keeps && engine.blocked.is_none() {
            fill_kernel_lines(engine.program, warp, engine.program.ops[position as usize].writes);
        }
        state.sites = engine.sites_of(self.found.piece);
        engine.blocked.is_some()
    }
}

impl Reach<'_> {
    /// The window that has a span, for an access of a piece.
    fn site(&self, address: u64, (bytes, align): (u32, u32), writes: bool) -> Option<Site> {
        let kind = if writes { Kind::Write } else { Kind::Read };
        let window = self.kept.find(address, bytes.into(), kind)?;
        Site::of((window.start(), window.bytes()), window.host(), (bytes, align))
    }
}

/// Executes an instruction for a piece.
unsafe extern "C" fn instruction(state: *mut State, position: u32, keeps: u32) -> u32 {
    // SAFETY: the state is that of the piece, which waits, and has the visit that entered it.
    let (state, visit) = unsafe { (&mut *state, &mut *(*state).visit.cast::<Visit<'_, '_>>()) };
    visit.execute(state, position, keeps != 0).into()
}

/// Carries a shuffle of a whole warp out for a piece.
unsafe extern "C" fn exchange(words: *mut u32, rows: u64, offset: u32, control: u32) -> u32 {
    let Exchange { mode, result, source, offsets } = Exchange::unpacked(rows);
    // SAFETY: the piece names registers of its warp, of which it has the first.
    let row = |place: u16| unsafe { words.cast::<[u32; WIDTH]>().add(place.into()) };
    let same = [offset; WIDTH];
    // SAFETY: the rows are registers of the warp, which nothing writes before the results are there.
    let (values, offsets) = unsafe { (&*row(source), offsets.map_or(&same, |place| &*row(place))) };
    let (results, inside) = shuffled(mode, values, offsets, &[control; WIDTH]);
    // SAFETY: the row is a register of the warp, and the references to others have been used.
    unsafe { row(result).write(results) };
    signs(&inside)
}

/// Finds a span for a piece.
unsafe extern "C" fn span(
    state: *mut State,
    address: u64,
    site: u32,
    bytes: u32,
    align: u32,
    writes: u32,
) -> *mut u8 {
    // SAFETY: the state is that of the piece, which waits, and has the visit that entered it.
    let (state, visit) = unsafe { (&mut *state, &mut *(*state).visit.cast::<Visit<'_, '_>>()) };
    let Some(found) = visit.engine.reach.site(address, (bytes, align), writes != 0) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the piece numbers its own sites, of which the state has the first.
    unsafe { state.sites.add(site as usize).write(found) };
    found.host.wrapping_add((address - found.start) as usize)
}

/// Finds a span in shared memory for a piece.
unsafe extern "C" fn shared(
    state: *mut State,
    address: u64,
    site: u32,
    bytes: u32,
    align: u32,
    _: u32,
) -> *mut u8 {
    // SAFETY: the state is that of the piece, which waits.
    let state = unsafe { &mut *state };
    let memory = Site::of((0, state.shared_bytes), std::ptr::null_mut(), (bytes, align));
    let Some(found) = memory.filter(|found| address <= found.last) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the piece numbers its own sites, of which the state has the first.
    unsafe { state.sites.add(site as usize).write(found) };
    state.shared.wrapping_add(address as usize)
}
