//! Walks: what a kernel accesses, before it is spread over threads.

use crate::places::Places;

/// How many threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One: each access is complete before the next.
    One,
    /// Blocks of threads, in a grid-stride loop.
    Grid {
        /// Blocks.
        blocks: u32,
        /// Threads of each.
        threads: u32,
    },
    /// The driver's kernel that fills.
    Fill,
    /// The driver's kernel that copies.
    Copy,
}

/// The memory of a kernel with one walk and what it does there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accesses {
    /// Address of the first access.
    pub(crate) first_byte: u64,
    /// Length of the memory.
    pub(crate) bytes: u64,
    /// Bytes between accesses, at least 1.
    pub(crate) stride_bytes: u64,
    /// Whether a thread goes on while its accesses wait, as after a write.
    pub(crate) runs_ahead: bool,
}

impl Accesses {
    /// The kernel of so many threads that makes these accesses.
    pub(crate) fn by(self, threads: Threads) -> KernelWalks {
        let Self { first_byte, bytes, stride_bytes, runs_ahead } = self;
        let runs_ahead = if runs_ahead { RunsAhead::Freely } else { RunsAhead::No };
        let (blocks, threads) = match threads {
            Threads::Fill | Threads::Copy => {
                let copies = threads == Threads::Copy;
                return KernelWalks::Bulk { first_byte, bytes, copies, runs_ahead };
            }
            Threads::One => (1, 1),
            Threads::Grid { blocks, threads } => (blocks, threads),
        };
        let stride = stride_bytes.max(1);
        let places = Places::even(first_byte, stride, bytes.div_ceil(stride));
        let walks = vec![WalkAccesses { places, runs_ahead }];
        KernelWalks::Program { blocks, threads, walks }
    }
}

/// How far a thread goes on while an access of its waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunsAhead {
    /// Not at all, as after a read that is used at once.
    No,
    /// To the next reads of the same iteration: a thread waits where it uses what it read.
    ToReads,
    /// To all that follows, as after a write.
    Freely,
}

/// One walk of a kernel over memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WalkAccesses {
    /// The places, in the order in which the threads of the grid take them.
    pub(crate) places: Places,
    /// How far a thread goes on while its access waits.
    pub(crate) runs_ahead: RunsAhead,
}

/// The accesses of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KernelWalks {
    /// A kernel of a program, which makes the accesses of each walk in turn.
    Program {
        /// Blocks.
        blocks: u32,
        /// Threads of each.
        threads: u32,
        /// The walks of an iteration, in order.
        walks: Vec<WalkAccesses>,
    },
    /// The driver's kernel that fills and copies.
    Bulk {
        /// Address of the first byte.
        first_byte: u64,
        /// Length of the memory.
        bytes: u64,
        /// Whether it copies.
        copies: bool,
        /// How far a thread goes on while its access waits.
        runs_ahead: RunsAhead,
    },
}
