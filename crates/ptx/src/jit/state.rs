//! The data that compiled code and the interpreter share.

use std::ffi::c_void;

use super::sites::Site;
use crate::code::{Axis, BARRIERS, Held, Line, Shuffle};

/// The registers and the local memory of a warp as compiled code reaches them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) words: *mut u32,
    pub(crate) doubles: *mut u64,
    pub(crate) predicates: *mut u32,
    pub(crate) line_words: *mut Line<u32>,
    pub(crate) line_doubles: *mut Line<u64>,
    pub(crate) held: *mut Held,
    /// The local memory of the first lane: the lanes follow one another.
    pub(crate) local: *mut u8,
    /// The bytes of local memory of a lane.
    pub(crate) local_bytes: u64,
    /// The coordinates of the warp's threads.
    pub(crate) thread: *const [Axis; 3],
    /// Its place among the warps of the caller.
    pub(crate) place: usize,
}

/// The warps that run, and all that they reach but their own registers and local memory.
#[repr(C)]
pub(crate) struct State {
    /// The warp that runs, and the last one that may run by this call of the piece. They lie side by side.
    pub(crate) warp: *const Own,
    pub(crate) last: *const Own,
    /// The most instructions of the turns of the warps behind the first one.
    pub(crate) quantum: u64,
    /// The way to a barrier or to the end by which a warp makes room for the next one, and the first
    /// instruction of the extent that is left so.
    pub(crate) way: u64,
    pub(crate) way_begin: u64,
    /// The instructions that the warps before the last one could have executed before they came there.
    pub(crate) rest: u64,
    pub(crate) params: *const u8,
    pub(crate) shared: *mut u8,
    pub(crate) shared_bytes: u64,
    /// The memory that the accesses of the piece found last.
    pub(crate) sites: *mut Site,
    /// Bytes of the caller's memory that were read. Not beside those that were written: the caller would
    /// load both as one vector, which waits for two stores of the piece.
    pub(crate) read: u64,
    /// The counts of instructions that begin and end runs, by position.
    pub(crate) counts: *mut u64,
    /// Bytes of the caller's memory that were written.
    pub(crate) written: u64,
    /// The instructions that the warp may still execute, without those since `begin`.
    pub(crate) left: u64,
    /// The first instruction of the extent that was left.
    pub(crate) begin: u64,
    /// The lanes that run, for pieces of parts of warps, and the instruction before which these are left. A
    /// piece that is left within a detour names the lanes of it, and where the others wait.
    pub(crate) lanes: u64,
    pub(crate) meeting: u64,
    /// How often such a piece jumped back.
    pub(crate) spins: u64,
    /// News of the warp that runs.
    pub(crate) noted: Noted,
    /// The coordinates of the block, the threads of a block, and the blocks of the grid.
    pub(crate) block: *const [u32; 3],
    pub(crate) threads: *const [u32; 3],
    pub(crate) blocks: *const [u32; 3],
    /// How many instructions of threads were not executed that a whole warp would have, as these took no part
    /// in a detour.
    pub(crate) idle: u64,
    /// The visit of the caller, for its functions.
    pub(crate) visit: *mut c_void,
}

/// News of a warp for the caller. Compiled code looks at both at once.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Noted {
    /// One more than the position of an instruction with a result that is not the line that the piece
    /// takes it for; 0 if there is none.
    pub(crate) no_line: u32,
    /// Whether lanes of a detour met the others: 0 or 1.
    pub(crate) has_met: u32,
}

impl State {
    /// These warps run by one call of a piece, as long as each comes this way: how it leaves the piece, and the
    /// first instruction of the extent that it leaves.
    #[inline(always)]
    pub(crate) fn go_through(&mut self, warps: &[Own], (way, begin): (Left, u32)) {
        let warps = warps.as_ptr_range();
        (self.warp, self.last) = (warps.start, warps.end.wrapping_sub(1));
        (self.way, self.way_begin) = (way.bits(), begin.into());
    }

    /// How many of these warps came that way, each before another one, and the instructions of their turns.
    #[inline(always)]
    pub(crate) fn passed(&self, warps: &[Own]) -> (usize, u64) {
        let count = (self.warp.addr() - warps.as_ptr().addr()) / size_of::<Own>();
        // Each executes the instruction to which it came, too.
        (count, count as u64 * (self.quantum + 1) - self.rest)
    }

    /// The lanes that a piece was left with within a detour, and the instruction before which the others wait.
    pub(crate) fn apart(&self) -> (u32, u32) {
        (self.lanes as u32, self.meeting as u32)
    }
}

/// The warps that a piece is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// Whole ones: all lanes are together.
    Whole,
    /// Any lanes of a warp, while others may be elsewhere.
    Part,
    /// Whole ones that may execute fewer instructions than a piece takes, as their turn ends.
    Tail,
}

impl Of {
    /// How many there are.
    pub(super) const ALL: usize = Self::Tail as usize + 1;

    /// The least instructions of a piece: what it takes to enter it has to be worth it. A part of a warp
    /// looks at the others first, and keeps their lanes.
    pub(super) fn least(self) -> u32 {
        match self {
            Self::Whole => 2,
            Self::Part => 8,
            Self::Tail => 4,
        }
    }

    /// The most instructions of an extent: pieces overlap where warps' turns end, and each is compiled.
    pub(super) fn most(self) -> u32 {
        match self {
            Self::Whole | Self::Part => 96,
            // Of those that a turn has left, the interpreter executes fewer.
            Self::Tail => 16,
        }
    }

    /// After how many times as many visits its pieces are made. Parts of warps are elsewhere soon, and a tail
    /// saves little.
    pub(super) fn patience(self) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Part | Self::Tail => 4,
        }
    }
}

/// The functions of the interpreter that compiled code calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calls {
    /// Executes the instruction at a position for all lanes. Returns whether it stopped: an access waits
    /// or a lane ends the kernel. The last argument says whether results that are lines stay lines only.
    pub(crate) instruction: unsafe extern "C" fn(*mut State, u32, u32) -> u32,
    /// Carries a shuffle out, from the first register of the warp, the places of rows in it, the offset and the
    /// control. Returns the lanes that are inside of their segments. See [`Exchange`].
    pub(crate) exchange: unsafe extern "C" fn(*mut u32, u64, u32, u32) -> u32,
    /// Where the bytes of a span are; null if the warp is not known to reach them. The arguments are an address,
    /// a site, the bytes and the alignment, and whether they are written.
    pub(crate) span: unsafe extern "C" fn(*mut State, u64, u32, u32, u32, u32) -> *mut u8,
    /// The same for the shared memory of the block.
    pub(crate) shared: unsafe extern "C" fn(*mut State, u64, u32, u32, u32, u32) -> *mut u8,
}

/// A shuffle of a row of words by offsets: those of a row, or one for all lanes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange {
    pub(crate) mode: Shuffle,
    pub(crate) result: u16,
    pub(crate) source: u16,
    pub(crate) offsets: Option<u16>,
}

impl Exchange {
    /// As compiled code passes it. No register has the place of all ones.
    pub(super) fn packed(self) -> u64 {
        let places = [self.result, self.source, self.offsets.unwrap_or(u16::MAX)];
        places.into_iter().fold(self.mode as u64, |all, place| all << 16 | u64::from(place))
    }

    #[inline(always)]
    pub(crate) fn unpacked(packed: u64) -> Self {
        let [result, source, offsets] = [32, 16, 0].map(|at| (packed >> at) as u16);
        let mode = match packed >> 48 {
            0 => Shuffle::Up,
            1 => Shuffle::Down,
            2 => Shuffle::Butterfly,
            _ => Shuffle::Index,
        };
        Self { mode, result, source, offsets: (offsets != u16::MAX).then_some(offsets) }
    }
}

/// How a piece was left, as compiled code returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Left(u64);

/// The instruction behind a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// A piece may begin there.
    Piece,
    /// A barrier of all threads of the block: its index.
    Barrier(u8),
    /// The end of the kernel for all lanes.
    End,
    /// Another one that no piece holds.
    Other,
}

impl Behind {
    /// As compiled code returns it.
    fn packed(self) -> u64 {
        match self {
            Self::Piece => 0,
            Self::Barrier(index) => 1 << BEHIND | u64::from(index) << INDEX,
            Self::End => 2 << BEHIND,
            Self::Other => 3 << BEHIND,
        }
    }

    #[inline(always)]
    fn unpacked(packed: u64) -> Self {
        match packed >> BEHIND & 3 {
            0 => Self::Piece,
            1 => Self::Barrier((packed >> INDEX) as u8 % BARRIERS),
            2 => Self::End,
            _ => Self::Other,
        }
    }
}

/// In what compiled code returns: the next instruction stopped.
pub(super) const STOPPED: u64 = 1 << 63;
/// The registers are not as the piece expects them.
pub(super) const UNFIT: u64 = 1 << 62;
/// Some lanes are in a detour.
pub(super) const APART: u64 = 1 << 61;
/// Where the count of executed instructions is, and its bits.
const EXECUTED: u32 = 32;
const COUNT: u64 = 0xfff;
/// Where the instruction behind is, and the index of its barrier.
const BEHIND: u32 = 48;
const INDEX: u32 = 44;

impl Left {
    pub(crate) fn of(packed: u64) -> Self {
        Self(packed)
    }

    /// As compiled code returns it.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The next instruction.
    #[inline(always)]
    pub(crate) fn position(self) -> u32 {
        self.0 as u32
    }

    /// The instructions that count of the extent that was left: those executed, and one that stopped.
    #[inline(always)]
    pub(crate) fn last(self) -> u32 {
        (self.0 >> EXECUTED & COUNT) as u32 + u32::from(self.0 & STOPPED != 0)
    }

    /// Whether the registers are not as the piece expects them.
    #[inline(always)]
    pub(crate) fn is_unfit(self) -> bool {
        self.0 & UNFIT != 0
    }

    /// Whether some lanes are in a detour, and the others wait.
    #[inline(always)]
    pub(crate) fn is_apart(self) -> bool {
        self.0 & APART != 0
    }

    /// Whether all lanes are at a barrier, or at the end.
    #[inline(always)]
    pub(crate) fn has_come(self) -> bool {
        let is_whole = self.0 & (STOPPED | UNFIT | APART) == 0;
        is_whole && matches!(self.behind(), Behind::Barrier(_) | Behind::End)
    }

    /// The next instruction's kind.
    #[inline(always)]
    pub(crate) fn behind(self) -> Behind {
        Behind::unpacked(self.0)
    }

    /// A way without flags, as compiled code returns it.
    pub(super) fn packed(position: u32, executed: u32, behind: Behind) -> u64 {
        u64::from(position) | u64::from(executed) << EXECUTED | behind.packed()
    }
}
