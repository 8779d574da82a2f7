//! Lowered instructions.

use super::access::{Access, Atomic, AtomicPair, Bulk, Place, Tiles};
use super::file::File;
use super::form::{Form, Narrow};
use super::lanes::{CONSTANT, Lanes, WIDTH};
use super::lines::{Lines, Set};
use super::matrix::{MatrixAccess, Product, Quads};

/// A function over the lanes of an instruction.
pub(crate) type OnLanes = fn(&mut Lanes<'_>, &Op);

/// A function of registers that hold lines, which all lanes execute. It returns whether its results are
/// lines, too; if not, it has done nothing.
pub(crate) type OnLines = fn(&mut Lines, &mut Lanes<'_>, &Op) -> bool;

/// An instruction that reads and writes registers only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pure {
    pub(crate) on_lanes: OnLanes,
    /// Its form for registers that hold lines, if it has one.
    pub(crate) on_lines: Option<OnLines>,
    /// The function, if a compiler knows it.
    pub(crate) form: Option<Form>,
    /// Its integers, if they do not fill their words.
    pub(crate) narrow: Option<Narrow>,
}

impl Pure {
    /// An instruction on lanes only.
    pub(crate) const fn of(on_lanes: OnLanes) -> Self {
        Self { on_lanes, on_lines: None, form: None, narrow: None }
    }

    /// The instruction with its form for lines.
    pub(crate) const fn or(self, on_lines: OnLines) -> Self {
        Self { on_lines: Some(on_lines), ..self }
    }

    /// The instruction with its function.
    pub(crate) fn as_form(self, form: impl Into<Option<Form>>) -> Self {
        Self { form: form.into(), ..self }
    }

    /// The instruction with its function, of integers that do not fill their words.
    pub(crate) fn as_narrow(self, form: impl Into<Option<Form>>, narrow: Narrow) -> Self {
        Self { form: form.into(), narrow: Some(narrow), ..self }
    }
}

/// A register before it has its place, or a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) file: File,
    pub(crate) index: u32,
}

impl Slot {
    /// The slot as instructions hold it.
    pub(crate) fn encoded(self) -> u16 {
        let flag = match self.file {
            File::Word | File::Double | File::Predicate => 0,
            File::ConstantWord | File::ConstantDouble => CONSTANT,
        };
        // The lowering refuses functions with more registers or constants.
        self.index as u16 | flag
    }

    /// The registers of slots that may hold lines; `None` if one of them never does.
    pub(crate) fn set(slots: &[Self]) -> Option<Set> {
        slots.iter().try_fold(Set::default(), |set, slot| {
            Some(set.with(match slot.file {
                File::Word => Set::word(slot.index)?,
                File::Double => Set::double(slot.index)?,
                File::Predicate | File::ConstantWord | File::ConstantDouble => Set::default(),
            }))
        })
    }

    /// Whether the slot is a constant.
    pub(crate) fn is_constant(self) -> bool {
        matches!(self.file, File::ConstantWord | File::ConstantDouble)
    }
}

/// The most registers of one file, and the most constants, of a program.
pub(crate) const MOST_SLOTS: u32 = CONSTANT as u32 - 1;

/// In guards: the instruction has none.
pub(crate) const UNGUARDED: u16 = u16::MAX;

/// An instruction before its registers have places.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) code: Code,
    pub(crate) guard: Option<(Slot, bool)>,
    pub(crate) d: Vec<Slot>,
    pub(crate) s: Vec<Slot>,
    pub(crate) imm: u64,
    /// The statement that it comes from.
    pub(crate) origin: Origin,
}

/// Where an instruction comes from.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Origin {
    /// The line of the module's text.
    pub(crate) line: u32,
    /// The file and the line of `.loc`; 0 if there is none.
    pub(crate) file: u32,
    pub(crate) source: u32,
    pub(crate) class: Class,
    /// How many instructions of the class a GPU makes of it.
    pub(crate) weight: u8,
}

/// The unit of a multiprocessor that carries an instruction out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Class {
    Fp32,
    Fp64,
    Integer,
    Special,
    Memory,
    Shared,
    Tensor,
    #[default]
    Control,
}

/// A lowered instruction.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    pub(crate) code: Code,
    /// The predicate, or [`UNGUARDED`].
    pub(crate) guard: u16,
    pub(crate) negated: bool,
    /// The first results.
    pub(crate) d: [u16; 4],
    /// The first sources.
    pub(crate) s: [u16; 4],
    /// The results and sources beyond four each: all results, then all sources.
    pub(crate) more: Option<Box<(Vec<u16>, Vec<u16>)>>,
    pub(crate) imm: u64,
    /// The registers among the sources, among those behind the first, and among the results.
    pub(crate) reads: Set,
    pub(crate) data: Set,
    pub(crate) writes: Set,
}

impl Op {
    /// A source by its index.
    #[inline(always)]
    pub(crate) fn source(&self, index: usize) -> u16 {
        match (self.s.get(index), &self.more) {
            (Some(&slot), _) => slot,
            (None, Some(more)) => more.1[index - 4],
            (None, None) => 0,
        }
    }

    /// A result by its index.
    #[inline(always)]
    pub(crate) fn result(&self, index: usize) -> u16 {
        match (self.d.get(index), &self.more) {
            (Some(&slot), _) => slot,
            (None, Some(more)) => more.0[index - 4],
            (None, None) => 0,
        }
    }
}

/// The mode of `shfl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

impl Shuffle {
    /// The lane that another one takes its value from, and whether it is inside of its segment: of the
    /// offset, and of the operand that holds the segment's mask and the clamp.
    #[inline(always)]
    pub(crate) fn source(self, lane: u32, offset: u32, control: u32) -> (u32, bool) {
        let (offset, segment, clamp) = (offset & 31, control >> 8 & 31, control & 31);
        let first = lane & segment;
        let last = first | (clamp & !segment);
        let (from, valid) = match self {
            Self::Up => {
                let from = lane.wrapping_sub(offset);
                (from, from.cast_signed() >= last.cast_signed())
            }
            Self::Down => (lane + offset, lane + offset <= last),
            Self::Butterfly => (lane ^ offset, lane ^ offset <= last),
            Self::Index => {
                let from = first | (offset & !segment);
                (from, from <= last)
            }
        };
        (if valid { from & 31 } else { lane }, valid)
    }
}

/// The mode of `vote`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// The operation of `redux`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Add,
    MinUnsigned,
    MaxUnsigned,
    MinSigned,
    MaxSigned,
    And,
    Or,
    Xor,
}

/// The barriers of a block.
pub(crate) const BARRIERS: u8 = 16;

/// How many instructions the first turn of a warp behind a barrier has where warps go on evenly: they
/// have loaded shared memory by then.
pub(crate) const FIRST_TURN: u32 = 64;

/// The operation of a barrier of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    Sync,
    Arrive,
    /// `.red.popc`
    Count,
    /// `.red.and`
    And,
    /// `.red.or`
    Or,
}

/// A special register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    Thread(u8),
    Threads(u8),
    Block(u8),
    Blocks(u8),
    Lane,
    Warp,
    Warps,
    Sm,
    Sms,
    Grid,
    Clock,
    ClockHigh,
    Clock64,
    GlobalTimer,
    GlobalTimerLow,
    GlobalTimerHigh,
    MaskEqual,
    MaskLessOrEqual,
    MaskLess,
    MaskGreaterOrEqual,
    MaskGreater,
    DynamicShared,
    TotalShared,
    /// `%envreg1`: the upper half of the address of the grid's workspace.
    WorkspaceHigh,
    /// `%envreg2`: the lower half.
    WorkspaceLow,
    /// The cluster of the block, and how many there are.
    Cluster(u8),
    Clusters(u8),
    /// The block in its cluster, and how many a cluster has.
    ClusterBlock(u8),
    ClusterBlocks(u8),
    /// As the two before, counted over all axes.
    ClusterRank,
    ClusterSize,
    /// Whether the launch has clusters.
    InCluster,
    /// Where the system's part of shared memory ends (`%reserved_smem_offset_end`).
    ReservedEnd,
    /// The bytes of the system's part of shared memory (`%reserved_smem_offset_cap`).
    ReservedBytes,
    /// The bytes of shared memory of a block, with the system's part (`%aggr_smem_size`).
    AllShared,
    /// A register that is always zero here.
    Zero,
}

impl Special {
    /// The values of a register that are the same in all warps, but differ by lane.
    pub(crate) fn of_lane(self) -> Option<[u32; WIDTH]> {
        let lanes = |value: fn(u32) -> u32| Some(std::array::from_fn(|lane| value(lane as u32)));
        match self {
            Self::Lane => lanes(|lane| lane),
            Self::MaskEqual => lanes(|lane| 1 << lane),
            Self::MaskLessOrEqual => lanes(|lane| u32::MAX >> (31 - lane)),
            Self::MaskLess => lanes(|lane| (1 << lane) - 1),
            Self::MaskGreaterOrEqual => lanes(|lane| u32::MAX << lane),
            Self::MaskGreater => lanes(|lane| (u32::MAX << lane) << 1),
            _ => None,
        }
    }
}

/// A service of the process around the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Print,
    Allocate,
    Free,
    Assert,
    /// Sets the value of a conditional node of a graph.
    SetCondition,
}

/// An operation of an mbarrier object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mbarrier {
    Init,
    Invalidate,
    /// Arrives with the count of the second source.
    Arrive,
    /// Arrives without letting the next phase wait for the thread.
    ArriveDrop,
    /// Expects the transactions of the second source.
    Expect,
    /// Completes the transactions of the second source.
    Complete,
    /// The same, by an access to shared memory of the cluster.
    CompleteByAccess,
    /// Expects the transactions of the second source, and arrives with a count of one.
    ArriveExpect,
    /// As the one before, without letting the next phase wait for the thread.
    ArriveDropExpect,
    /// Whether the phase of the state's token is complete.
    Test,
    /// Whether the phase of that parity is complete.
    TestParity,
    /// Counts of a token.
    Pending,
}

/// The operation of an instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Code {
    Pure(Pure),
    Special(Special),
    /// The address in local memory of an offset of the function's frame.
    FrameAddress {
        wide: bool,
    },
    Load(Access),
    Store(Access),
    Atomic(Atomic),
    AtomicPair(AtomicPair),
    /// `cp.async`: from global to shared memory; the sources are both addresses and the source size.
    Copy {
        bytes: u8,
        sized: bool,
    },
    Bulk(Bulk),
    /// Jumps to an instruction.
    Branch(u32),
    /// Jumps by a table.
    BranchTable(u32),
    /// Calls by a call of the program.
    Call(u32),
    /// Calls the function that the first source is the address of.
    CallIndirect(u32),
    Service(Service),
    Return,
    Exit,
    Barrier {
        kind: Barrier,
        counted: bool,
    },
    WarpBarrier,
    ClusterArrive,
    ClusterWait,
    Shuffle {
        mode: Shuffle,
        sync: bool,
        predicate: bool,
    },
    Vote {
        mode: Vote,
        sync: bool,
    },
    Match {
        all: bool,
        wide: bool,
        predicate: bool,
    },
    Reduce(Reduce),
    Product(Product),
    Quads(Quads),
    Tiles(Tiles),
    Matrix(Place, MatrixAccess),
    /// `movmatrix`: a matrix of 8 by 8 halves with its rows as columns.
    Transpose,
    ActiveMask,
    Elect,
    Mbarrier {
        what: Mbarrier,
        place: Place,
    },
    Fence,
    Sleep,
    Trap,
    Alloca,
    StackSave,
    StackRestore,
}

impl Code {
    /// The positions to which it jumps.
    pub(crate) fn targets<'a>(&'a self, tables: &'a [Vec<u32>]) -> &'a [u32] {
        match self {
            Self::Branch(target) => std::slice::from_ref(target),
            Self::BranchTable(table) => &tables[*table as usize],
            _ => &[],
        }
    }

    /// Whether lanes that execute it never go on with the next position.
    pub(crate) fn leads_away(&self) -> bool {
        matches!(self, Self::Branch(_) | Self::BranchTable(_) | Self::Return | Self::Exit)
    }
}

impl Code {
    /// Whether it may write shared memory.
    pub(crate) fn may_write_shared(self) -> bool {
        match self {
            Self::Store(Access { place, .. }) | Self::Atomic(Atomic { place, .. }) => {
                matches!(place, Place::Shared | Place::Generic | Place::Cluster)
            }
            Self::AtomicPair(_) | Self::Copy { .. } | Self::Bulk(_) | Self::Service(_) => true,
            Self::Matrix(..) | Self::Tiles(_) | Self::Mbarrier { .. } => true,
            Self::ClusterArrive | Self::ClusterWait => true,
            _ => false,
        }
    }

    /// Whether all lanes of a warp hold parts of its operands, those that have ended too.
    pub(crate) fn is_of_matrices(self) -> bool {
        matches!(
            self,
            Self::Product(_) | Self::Quads(_) | Self::Tiles(_) | Self::Matrix(..) | Self::Transpose
        )
    }
}
