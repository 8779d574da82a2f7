//! A block: its shared memory, its barriers, its place in the grid.

use std::sync::Arc;

use super::cluster::Cluster;
use super::report::Cause;
use super::warp::{Bytes, Old, Round, State, Warp};
use crate::code::{Axis, BARRIERS, Barrier, Line, Program, RANK_SHIFT, Special, WIDTH};

/// The index of the cluster's barrier.
pub(super) const OF_CLUSTER: u8 = BARRIERS;

/// Shared memory is given to a block in multiples of this many bytes.
const SHARED_UNIT: u32 = 128;

/// Where the used part of the system's shared memory ends on an H200.
const RESERVED_END: u32 = 288;

/// A barrier of a block.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    /// How many times it is complete.
    round: u64,
    arrived: u32,
    /// How many threads it takes; zero for all of the block.
    expected: u32,
    /// Predicates that held, and all predicates, of the round.
    held: u32,
    asked: u32,
    /// The held and asked ones of the round before.
    last: (u32, u32),
}

impl Count {
    /// Completes the round. Gives the threads that had arrived.
    fn complete(&mut self) -> u32 {
        self.round += 1;
        self.last = (self.held, self.asked);
        (self.held, self.asked) = (0, 0);
        std::mem::take(&mut self.arrived)
    }
}

/// The parts of a block that its warps share.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// The linear index in the grid.
    pub(super) linear: u64,
    pub(super) coordinates: [u32; 3],
    pub(super) sm: u32,
    /// The place among the resident blocks.
    pub(super) slot: u32,
    /// The block in its cluster.
    pub(super) rank: u32,
    /// `None` if the launch has no clusters, and nothing of the block's own is needed.
    pub(super) cluster: Option<Arc<Cluster>>,
    pub(super) shared: Bytes,
    /// The bytes of shared memory that the launch has.
    pub(super) shared_bytes: u32,
    /// The threads that have not ended.
    pub(super) live: u32,
    /// How many rounds of barriers are complete.
    pub(super) rounds: u64,
    barriers: Vec<Count>,
    /// The threads that have arrived at barriers that are not complete.
    arrived: u32,
}

/// A block that is resident and has not begun: it has no memory.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// The linear index in the grid.
    pub(super) linear: u64,
    /// The place among the resident blocks.
    pub(super) slot: u32,
    /// The cluster, and the block in it, if the launch has clusters.
    pub(super) cluster: Option<(Arc<Cluster>, u32)>,
}

impl Placed {
    /// A block of a launch without clusters.
    #[inline(always)]
    pub(super) fn alone(linear: u64, slot: u32) -> Self {
        Self { linear, slot, cluster: None }
    }
}

/// A block that has begun.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) common: Common,
    pub(super) warps: Vec<Warp>,
}

/// The shape of a launch, for special registers and coordinates.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) threads: u32,
    /// The coordinates of the lanes of each warp: x, y, z.
    pub(super) coordinates: Vec<[Column; 3]>,
    /// The same for compiled code.
    pub(super) axes: Vec<[Axis; 3]>,
    pub(super) sms: u32,
    pub(super) grid_id: u64,
    pub(super) workspace: u64,
    pub(super) dynamic_shared: u32,
    /// Bytes at the beginning of shared memory that are the system's.
    pub(super) reserved_shared: u32,
    /// The blocks of a cluster; without clusters each block is one of its own.
    pub(super) cluster: [u32; 3],
    pub(super) has_clusters: bool,
}

impl Shape {
    /// How many blocks a cluster has.
    pub(super) fn cluster_size(&self) -> u32 {
        self.cluster.iter().product()
    }

    /// The coordinates of a block in the grid.
    fn coordinates_of(&self, linear: u64) -> [u32; 3] {
        let (x, y) = (u64::from(self.grid[0]), u64::from(self.grid[1]));
        if linear < x {
            return [linear as u32, 0, 0];
        }
        [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32]
    }

    /// The linear index of a block, by that of its cluster and its rank there.
    pub(super) fn linear(&self, cluster: u64, rank: u32) -> u64 {
        let (mut cluster, mut rank) = (cluster, u64::from(rank));
        let (mut linear, mut step) = (0, 1);
        for (blocks, each) in self.grid.iter().zip(self.cluster) {
            let (blocks, each) = (u64::from(*blocks), u64::from(each));
            linear += step * (cluster % (blocks / each) * each + rank % each);
            (cluster, rank) = (cluster / (blocks / each), rank / each);
            step *= blocks;
        }
        linear
    }
}

/// The values of a special register in the lanes of a warp.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) values: [u32; WIDTH],
    pub(super) line: Option<Line<u32>>,
}

impl Column {
    pub(super) fn of(values: [u32; WIDTH]) -> Self {
        Self { values, line: Line::through(&values) }
    }
}

/// The coordinates of the lanes of each warp of a block.
pub(super) fn coordinates([x, y, z]: [u32; 3]) -> Vec<[Column; 3]> {
    let mut warps = vec![[[0; WIDTH]; 3]; (x * y * z).div_ceil(WIDTH as u32) as usize];
    let [mut at_x, mut at_y, mut at_z] = [0; 3];
    for [xs, ys, zs] in &mut warps {
        for lane in 0..WIDTH {
            (xs[lane], ys[lane], zs[lane]) = (at_x, at_y, at_z);
            at_x += 1;
            if at_x == x {
                (at_x, at_y) = (0, at_y + 1);
            }
            if at_y == y {
                (at_y, at_z) = (0, at_z + 1);
            }
        }
    }
    warps.into_iter().map(|axes| axes.map(Column::of)).collect()
}

impl Block {
    /// Begins in the memory of a block that has ended, if it was one. Its warps have yet to begin.
    ///
    /// Its shared memory has so many bytes. They are zero still if the kernel does not write them.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        placed: Placed,
        shape: &Shape,
        (shared, is_written): (u32, bool),
    ) {
        let Placed { linear, slot, cluster } = placed;
        let common = &mut self.common;
        (common.linear, common.slot, common.sm) = (linear, slot, slot % shape.sms.max(1));
        common.coordinates = shape.coordinates_of(linear);
        if is_written || common.shared.len() == 0 {
            common.shared.begin(shared as usize);
        }
        (common.shared_bytes, common.live) = (shared, shape.threads);
        let have_met = common.rounds > 0 || common.arrived > 0;
        if have_met || common.barriers.is_empty() {
            common.barriers.clear();
            common.barriers.resize(BARRIERS.into(), Count::default());
            (common.rounds, common.arrived) = (0, 0);
        }
        (common.rank, common.cluster) = (0, None);
        if let Some((cluster, rank)) = cluster {
            cluster.begin(rank, common.shared.pointer());
            (common.rank, common.cluster) = (rank, Some(cluster));
        }
    }

    /// The warps begin, but for the first so many, which have ended.
    pub(super) fn begin_warps(
        &mut self,
        program: &Program,
        shape: &Shape,
        (ended, old): (usize, Old<'_>),
    ) {
        let warps = shape.threads.div_ceil(32);
        self.warps.resize_with(warps as usize, Warp::default);
        for (index, warp) in self.warps.iter_mut().enumerate() {
            warp.begin(program, index as u32, shape.threads - 32 * index as u32, old);
            if index < ended {
                warp.end();
            }
        }
    }
}

impl Common {
    /// The block has ended. Gives the slot at which new blocks can be resident: that of the block, or
    /// the first of its cluster when all blocks of that have ended.
    pub(super) fn free_slot(&mut self) -> Option<u32> {
        self.cluster.take().map_or(Some(self.slot), |cluster| cluster.end(self.rank))
    }

    /// The block's cluster. A block of a launch without clusters is alone in its own.
    pub(super) fn own_cluster(&mut self) -> &Cluster {
        let (slot, live) = (self.slot, self.live);
        let (rank, shared) = (self.rank, self.shared.pointer());
        self.cluster.get_or_insert_with(|| {
            let alone = Cluster::new(slot, 1, live);
            alone.begin(rank, shared);
            alone.into()
        })
    }

    /// Threads of a warp end: no barrier waits for them any longer.
    pub(super) fn end_threads(&mut self, warp: &mut Warp, mask: u32) {
        warp.live &= !mask;
        let threads = mask.count_ones();
        self.leave(threads);
        if let Some(cluster) = &self.cluster {
            let arrived = warp.arrivals.of(cluster.phase()) & mask;
            cluster.leave(threads, arrived.count_ones());
        }
    }

    /// Where bytes of the shared memory of a block of the cluster are, by their address without the
    /// window.
    pub(super) fn in_cluster(&mut self, address: u64, bytes: u64) -> Result<*mut u8, Cause> {
        let (rank, offset) = (address >> RANK_SHIFT, address & ((1 << RANK_SHIFT) - 1));
        if offset + bytes > u64::from(self.shared_bytes) {
            return Err(Cause::OutsideShared { bytes: self.shared_bytes });
        }
        let Some(rank) = rank.checked_sub(1) else {
            return Ok(self.shared.pointer().wrapping_add(offset as usize));
        };
        let Some(cluster) = &self.cluster else {
            return Err(Cause::OutsideShared { bytes: self.shared_bytes });
        };
        match cluster.shared(rank) {
            None => Err(Cause::OutsideCluster { blocks: cluster.blocks() }),
            Some(shared) if shared.is_null() => Err(Cause::EndedBlock { rank: rank as u32 }),
            Some(shared) => Ok(shared.wrapping_add(offset as usize)),
        }
    }

    /// Whether a fragment that waited may go on.
    #[inline(always)]
    pub(super) fn is_over(&self, state: State) -> bool {
        match state {
            State::Barrier(round) => match self.barriers.get(usize::from(round.barrier())) {
                Some(barrier) => round.is_over(barrier.round),
                None => self.cluster.as_ref().is_none_or(|cluster| round.is_over(cluster.phase())),
            },
            _ => false,
        }
    }

    /// Fragments of a warp that waited for a barrier may go on if that is over. Returns whether there
    /// are any.
    #[inline(always)]
    pub(super) fn wake(&self, warp: &mut Warp) -> bool {
        let mut is_any = false;
        for fragment in &mut warp.fragments {
            if self.is_over(fragment.state) {
                fragment.state = State::Ready;
                is_any = true;
            }
        }
        is_any
    }

    /// The state of a fragment that has arrived at a barrier. The last one to arrive goes on, but waits
    /// for its next turn where all warps of the block go on evenly.
    #[inline(always)]
    pub(super) fn waiting(&self, round: Round, is_even: impl FnOnce() -> bool) -> State {
        let state = State::Barrier(round);
        let goes_on = || self.live <= WIDTH as u32 || !is_even();
        if self.is_over(state) && goes_on() { State::Ready } else { state }
    }

    /// How many whole warps can arrive at a barrier of all threads before the last one.
    #[inline(always)]
    pub(super) fn room(&self, index: u8) -> u32 {
        let arrived = self.barriers[usize::from(index)].arrived;
        self.live.saturating_sub(arrived).saturating_sub(1) / WIDTH as u32
    }

    /// How many whole warps can end, if nothing but their count looks at that.
    #[inline(always)]
    pub(super) fn room_to_end(&self) -> u32 {
        let is_free = self.cluster.is_none() && self.arrived == 0;
        if is_free { self.live / WIDTH as u32 } else { 0 }
    }

    /// The state of a fragment that waits for the present round of a barrier.
    #[inline(always)]
    pub(super) fn wait(&self, index: u8) -> State {
        State::Barrier(Round::of(index, self.barriers[usize::from(index)].round))
    }

    /// `threads` threads arrive, some of which may hold a predicate, and ask for it. Gives the round that
    /// they wait for.
    #[inline(always)]
    pub(super) fn arrive(
        &mut self,
        index: u32,
        expected: u32,
        threads: u32,
        (held, asked): (u32, u32),
    ) -> Round {
        let index = usize::from(index as u8 % BARRIERS);
        let live = self.live;
        let barrier = &mut self.barriers[index];
        let round = Round::of(index as u8, barrier.round);
        barrier.arrived += threads;
        self.arrived += threads;
        barrier.expected = expected;
        barrier.held += held;
        barrier.asked += asked;
        let wanted = if expected == 0 { live } else { expected };
        if barrier.arrived >= wanted {
            self.arrived -= barrier.complete();
            self.rounds += 1;
        }
        round
    }

    /// Threads end: barriers of the whole block no longer wait for them.
    fn leave(&mut self, threads: u32) {
        self.live -= threads;
        if self.arrived == 0 {
            return;
        }
        let live = self.live;
        for barrier in &mut self.barriers {
            if barrier.arrived > 0 && barrier.expected == 0 && barrier.arrived >= live {
                self.arrived -= barrier.complete();
                self.rounds += 1;
            }
        }
    }

    /// The result of a barrier that is complete.
    pub(super) fn result(&self, index: u8, kind: Barrier) -> u32 {
        let (held, asked) = self.barriers[usize::from(index)].last;
        match kind {
            Barrier::And => u32::from(held == asked),
            Barrier::Or => u32::from(held > 0),
            _ => held,
        }
    }

    /// The thread of a lane: x, y, z.
    pub(super) fn thread(shape: &Shape, warp: u32, lane: u32) -> [u32; 3] {
        let linear = warp * 32 + lane;
        let [x, y, _] = shape.block;
        [linear % x, linear / x % y, linear / x / y]
    }

    /// A special register that is the same for all lanes of a warp, but for clocks.
    pub(super) fn same_for_all(&self, shape: &Shape, warp: u32, special: Special) -> Option<u32> {
        let in_cluster = |axis: usize| self.coordinates[axis] % shape.cluster[axis];
        Some(match special {
            Special::Threads(axis) => shape.block[usize::from(axis)],
            Special::Block(axis) => self.coordinates[usize::from(axis)],
            Special::Blocks(axis) => shape.grid[usize::from(axis)],
            Special::Warp => warp,
            Special::Warps => 64,
            Special::Sm => self.sm,
            Special::Sms => shape.sms,
            Special::Grid => shape.grid_id as u32,
            Special::DynamicShared => shape.dynamic_shared,
            Special::TotalShared => {
                (self.shared_bytes - shape.reserved_shared).next_multiple_of(SHARED_UNIT)
            }
            Special::AllShared => self.shared_bytes,
            Special::ReservedEnd => RESERVED_END.min(shape.reserved_shared),
            Special::ReservedBytes => shape.reserved_shared,
            Special::WorkspaceHigh => (shape.workspace >> 32) as u32,
            Special::WorkspaceLow => shape.workspace as u32,
            Special::Cluster(axis) => {
                self.coordinates[usize::from(axis)] / shape.cluster[usize::from(axis)]
            }
            Special::Clusters(axis) => {
                shape.grid[usize::from(axis)] / shape.cluster[usize::from(axis)]
            }
            Special::ClusterBlock(axis) => in_cluster(axis.into()),
            Special::ClusterBlocks(axis) => shape.cluster[usize::from(axis)],
            Special::ClusterRank => self.rank,
            Special::ClusterSize => shape.cluster_size(),
            Special::InCluster => u32::from(shape.has_clusters),
            Special::Zero => 0,
            _ => return None,
        })
    }
}
