//! The pieces of a program, made when they are wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use cranelift_codegen::ir::{AbiParam, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};

use super::emit::Emit;
use super::extent::{Extent, Targets};
use super::live::Live;
use super::observed::{Observed, Seen};
use super::state::{Calls, Left, Of, State};
use super::translate::{Task, Translate};
use crate::code::{Program, Register, Set};

/// The most pieces that begin at one position.
const VARIANTS: usize = 6;
/// The most pieces of a program: each takes a few KiB of code, and a hostile program could ask for many.
const MOST_PIECES: u32 = 4096;
/// After how many times as many visits a piece is made within straight code: most warps come there because
/// a turn ended, which it does in many places, and the code is in the pieces of others already.
const WITHIN: u32 = 4;
/// After how many times that the first of several warps went elsewhere a piece is called for one warp, and how
/// seldom for several then.
const APART: u32 = 8;
const AGAIN: u32 = 64;
/// A piece is made anew after an instruction gave no line so often.
const PATIENCE: u32 = 100;

/// A piece of a kernel as machine code.
#[derive(Debug)]
pub(crate) struct Piece {
    code: unsafe extern "C" fn(*mut State) -> u64,
    /// Registers of which lanes are needed.
    pub(crate) lanes: Set,
    /// The instructions of its first extent: it begins only if the warp may execute so many.
    pub(crate) most: u32,
    /// The numbers of its accesses among those of the program, one at least.
    pub(crate) sites: Range<usize>,
    /// How often instructions gave no line, by their positions.
    failures: Mutex<BTreeMap<u32, u32>>,
    is_retired: AtomicBool,
    /// How the last whole warp left it that came to a barrier or to its end, and the first instruction of the
    /// extent that it left. A guess of how the next one does.
    way: [AtomicU64; 2],
    /// How often in a row no warp came so that was called with others behind it, and then was not called so.
    apart: AtomicU32,
}

impl Piece {
    /// Whether it is worth calling it for several warps: not if the first ones of them often went elsewhere, but
    /// now and then.
    #[inline(always)]
    pub(crate) fn goes_on(&self) -> bool {
        let apart = self.apart.load(Ordering::Relaxed);
        if apart >= APART {
            self.apart.store(apart.wrapping_add(1).max(APART), Ordering::Relaxed);
        }
        apart < APART || apart.is_multiple_of(AGAIN)
    }

    /// Of several warps the first one did not come to a barrier or to its end.
    pub(crate) fn note_apart(&self) {
        let apart = self.apart.load(Ordering::Relaxed);
        self.apart.store(apart.wrapping_add(1).max(1), Ordering::Relaxed);
    }

    /// How the next whole warp is likely to leave it: the way, and the first instruction of the extent.
    #[inline(always)]
    pub(crate) fn likely_way(&self) -> (Left, u32) {
        let [way, begin] = [0, 1].map(|at: usize| self.way[at].load(Ordering::Relaxed));
        (Left::of(way), begin as u32)
    }

    /// A whole warp left it so.
    #[inline(always)]
    pub(crate) fn note_way(&self, left: Left, begin: u32) {
        let values = [left.bits(), begin.into()];
        self.way.iter().zip(values).for_each(|(way, value)| way.store(value, Ordering::Relaxed));
        self.apart.store(0, Ordering::Relaxed);
    }

    /// Whether another one has taken its place.
    #[inline(always)]
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Runs the piece.
    ///
    /// # Safety
    /// The state is that of a warp of the program, with all lanes at the piece's first instruction, and
    /// its sites are those of the piece. The functions that it calls may use the state's warp.
    #[inline(always)]
    pub(crate) unsafe fn enter(&self, state: *mut State) -> Left {
        // SAFETY: the code was made for such a state, and the program that owns it lives.
        Left::of(unsafe { (self.code)(state) })
    }
}

/// The pieces that begin at a position.
#[derive(Debug, Default)]
pub(crate) struct Position {
    /// How often a warp was here and no piece fitted; the most if no piece will ever be made.
    visits: AtomicU32,
    /// The next position at which a piece begins; 0 if there is none.
    next: AtomicU32,
    /// Whether a piece holds it that begins elsewhere.
    is_held: AtomicBool,
    /// There if a piece was made: most positions have none, and few of them fit in a processor's cache.
    variants: OnceLock<Box<Variants>>,
}

/// Pieces for registers of different kinds.
#[derive(Debug, Default)]
struct Variants {
    pieces: [OnceLock<Piece>; VARIANTS],
    /// The piece that was entered last: the next warp is likely to have registers of the same kinds.
    last: AtomicUsize,
    /// Instructions that gave no lines often.
    cautious: Mutex<BTreeSet<u32>>,
}

impl Position {
    /// A piece by its index.
    #[inline(always)]
    pub(crate) fn piece(&self, index: usize) -> Option<&Piece> {
        self.variants.get()?.pieces.get(index)?.get()
    }

    /// The piece that was entered last, or the first one.
    #[inline(always)]
    pub(crate) fn last(&self) -> Option<&Piece> {
        let variants = self.variants.get()?;
        variants.pieces.get(variants.last.load(Ordering::Relaxed))?.get()
    }

    /// A piece was entered, by its index.
    pub(crate) fn set_last(&self, index: usize) {
        if let Some(variants) = self.variants.get() {
            variants.last.store(index, Ordering::Relaxed);
        }
    }

    /// Whether a piece was made.
    #[inline(always)]
    pub(crate) fn has_pieces(&self) -> bool {
        self.variants.get().is_some()
    }

    /// Whether a warp was here for which no piece fitted.
    fn was_visited(&self) -> bool {
        self.has_pieces() || self.visits.load(Ordering::Relaxed) > 0
    }

    /// The next position at which a piece begins, if there is one.
    #[inline(always)]
    pub(crate) fn next_piece(&self) -> Option<u32> {
        Some(self.next.load(Ordering::Relaxed)).filter(|next| *next > 0)
    }

    /// A piece that begins elsewhere holds it. The warps that were here may run by that piece now, so their
    /// visits say nothing more.
    fn hold(&self) {
        if !self.is_closed() {
            self.visits.store(0, Ordering::Relaxed);
        }
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// Whether a piece holds it that begins elsewhere.
    fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Whether no piece will be made.
    #[inline(always)]
    pub(crate) fn is_closed(&self) -> bool {
        self.visits.load(Ordering::Relaxed) == u32::MAX
    }

    /// An instruction gave no line. Returns whether the piece is retired for it.
    fn note_no_line(&self, piece: &Piece, instruction: u32) -> bool {
        let Some(variants) = self.variants.get() else { return false };
        let mut failures = piece.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(instruction).or_default();
        *count += 1;
        let is_retired = *count == PATIENCE;
        if is_retired {
            let mut cautious = variants.cautious.lock().unwrap_or_else(PoisonError::into_inner);
            cautious.insert(instruction);
            piece.is_retired.store(true, Ordering::Relaxed);
        }
        is_retired
    }
}

/// The pieces of a program.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    /// The positions where warps of each kind go on.
    positions: [OnceLock<Box<[Position]>>; Of::ALL],
    maker: Mutex<Option<Maker>>,
    live: OnceLock<Live>,
    targets: OnceLock<Targets>,
    made: AtomicU32,
    has_failed: AtomicBool,
}

impl Compiled {
    /// A position, if pieces have been asked for.
    #[inline(always)]
    pub(crate) fn at(&self, of: Of, position: u32) -> Option<&Position> {
        self.positions[of as usize].get()?.get(position as usize)
    }

    /// Whether registers were often no lines where pieces took them for some.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    pub(super) fn note_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// An instruction gave no line where a piece took its result for one. After many times another piece
    /// takes its place.
    #[cold]
    pub(crate) fn note_no_line(&self, position: &Position, piece: &Piece, instruction: u32) {
        if position.note_no_line(piece, instruction) {
            self.note_failure();
        }
    }

    /// The registers that the kernel may read before it writes them. Only known once there are pieces.
    #[inline(always)]
    pub(crate) fn read_at_start(&self) -> Option<&[Register]> {
        self.live.get()?.at_start()
    }

    /// Notes that a warp is at a position for which no piece fits, and makes one after so many times.
    pub(crate) fn want(
        &self,
        program: &Program,
        (of, position): (Of, u32),
        after: u32,
        calls: Calls,
        seen: &Seen<'_>,
    ) {
        let positions = self.positions[of as usize].get_or_init(|| {
            let each = || Position::default();
            std::iter::repeat_with(each).take(program.ops.len()).collect()
        });
        let Some(at) = positions.get(position as usize) else { return };
        let visits = at.visits.load(Ordering::Relaxed);
        let mut after = after.saturating_mul(of.patience());
        let targets = self.targets.get_or_init(|| Targets::of(program));
        let is_tail = of == Of::Tail;
        let is_within = !is_tail && visits >= after && targets.is_within(program, of, position);
        if is_within {
            after = after.saturating_mul(WITHIN);
        }
        if visits < after {
            return at.visits.store(visits + 1, Ordering::Relaxed);
        }
        // The positions that are visited as often are worth their code in this piece, too. But a turn that
        // begins within straight code, or in the code of another piece, comes to that piece and goes on by it.
        let is_whole = !is_tail && !is_within && !at.is_held();
        let is_worth = |other: u32| {
            let is_visited = |at: &Position| {
                let visits = at.visits.load(Ordering::Relaxed);
                at.has_pieces() || at.is_held() || visits >= after / 16
            };
            is_whole && positions.get(other as usize).is_some_and(is_visited)
        };
        let end = at.next_piece().filter(|_| is_within);
        let parts = self.positions[Of::Part as usize].get();
        let has_parts = |other: u32| {
            parts.and_then(|all| all.get(other as usize)).is_some_and(Position::was_visited)
        };
        let of_piece = (of, position, end.unwrap_or(u32::MAX));
        let live = self.live.get_or_init(|| Live::of(program));
        let extents = Extent::all((program, targets), live, of_piece, is_worth, has_parts);
        let held: Vec<_> = extents.iter().flatten().map(|e| e.start..e.end).collect();
        self.make((program, live), (of, extents), at, calls, seen);
        if at.has_pieces() && !is_tail {
            note_piece(&positions[..position as usize], position);
            let others = held.into_iter().flatten().filter(|held| *held != position);
            others.filter_map(|other| positions.get(other as usize)).for_each(Position::hold);
        }
    }

    fn make(
        &self,
        (program, live): (&Program, &Live),
        (of, extents): (Of, Option<Vec<Extent>>),
        at: &Position,
        calls: Calls,
        seen: &Seen<'_>,
    ) {
        let mut maker = self.maker.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = self.made.fetch_add(1, Ordering::Relaxed) < MOST_PIECES;
        let made = extents.filter(|_| has_room).and_then(|extents| {
            let variants = at.variants.get_or_init(Box::default);
            let free = variants.pieces.iter().position(|piece| piece.get().is_none())?;
            let cautious = variants.cautious.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if maker.is_none() {
                *maker = Maker::new();
            }
            let observed = &Observed { seen, cautious };
            let task = Task { program, of, extents, live, observed };
            let piece = maker.as_mut()?.make(task, calls)?;
            // The lock makes this the only one that sets it.
            let _ = variants.pieces[free].set(piece);
            Some(free)
        });
        // Without a piece now, none will ever be made here.
        let is_last = made.is_none_or(|free| free + 1 == VARIANTS);
        at.visits.store(if is_last { u32::MAX } else { 0 }, Ordering::Relaxed);
    }
}

/// A piece begins behind some positions: it is the next one of the last of them.
fn note_piece(before: &[Position], position: u32) {
    for at in before.iter().rev() {
        if at.next_piece().is_some_and(|next| next <= position) {
            break;
        }
        at.next.store(position, Ordering::Relaxed);
    }
}

/// The compiler, and the memory of the code that it made.
struct Maker {
    /// `None` only while it is dropped.
    module: Option<JITModule>,
    /// How many sites the pieces have.
    sites: usize,
}

// SAFETY: the module stays with its thread only because of its provider of memory, which is behind a
// pointer. The provider is the library's own, and its mappings belong to the process. The lock lets one
// thread at a time use it.
unsafe impl Send for Maker {}

impl std::fmt::Debug for Maker {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Maker").finish_non_exhaustive()
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: the pieces are dropped with the program that they belong to, and no run of it is
            // left: a run holds the program.
            unsafe { module.free_memory() };
        }
    }
}

impl Maker {
    /// A compiler for this machine; `None` if there is none, and kernels are interpreted.
    fn new() -> Option<Self> {
        let mut flags = settings::builder();
        flags.set("opt_level", "speed").ok()?;
        flags.set("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }).ok()?;
        let machine = cranelift_native::builder().ok()?;
        let machine = machine.finish(settings::Flags::new(flags)).ok()?;
        let builder = JITBuilder::with_isa(machine, default_libcall_names());
        Some(Self { module: Some(JITModule::new(builder)), sites: 0 })
    }

    fn make(&mut self, task: Task<'_>, calls: Calls) -> Option<Piece> {
        let module = self.module.as_mut()?;
        let start = task.extents[0].start;
        let most = task.extents[0].end - start;
        let mut context = module.make_context();
        context.func.signature.params.push(AbiParam::new(types::I64));
        context.func.signature.returns.push(AbiParam::new(types::I64));
        let convention = context.func.signature.call_conv;
        let mut scratch = FunctionBuilderContext::new();
        let build = FunctionBuilder::new(&mut context.func, &mut scratch);
        let emit = Emit::new(build, calls, convention, (task.of, start));
        let (expected, sites) = Translate::new(emit, task).translate();
        let signature = context.func.signature.clone();
        let id = module.declare_anonymous_function(&signature).ok()?;
        module.define_function(id, &mut context).ok()?;
        module.finalize_definitions().ok()?;
        let code = module.get_finalized_function(id);
        // SAFETY: the function was made with just this signature, and its code stays until the maker is
        // dropped.
        let code = unsafe {
            std::mem::transmute::<*const u8, unsafe extern "C" fn(*mut State) -> u64>(code)
        };
        let failures = Mutex::default();
        let is_retired = AtomicBool::default();
        let lanes = expected.lanes;
        let way = Default::default();
        let apart = AtomicU32::default();
        let sites = self.sites..self.sites + sites.max(1) as usize;
        self.sites = sites.end;
        Some(Piece { code, lanes, most, sites, failures, is_retired, way, apart })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_knows_the_next_piece() {
        let positions: Vec<Position> = std::iter::repeat_with(Position::default).take(9).collect();
        for begins in [5, 8, 2, 3] {
            note_piece(&positions[..begins], begins as u32);
        }
        let next: Vec<_> = positions.iter().map(Position::next_piece).collect();
        let expected = [2, 2, 3, 5, 5, 8, 8, 8].map(Some);
        assert_eq!(next, [&expected[..], &[None]].concat());
    }
}
