//! The blocks of a grid that are resident, and those that take their places.

use std::sync::Arc;

use super::block::{Block, Placed, Shape};
use super::cluster::Cluster;
use super::warp::Old;
use crate::code::Program;

/// A resident block.
#[derive(Debug)]
enum Resident {
    Placed(Placed),
    Begun(Box<Block>),
}

impl Resident {
    fn begun(&self) -> Option<&Block> {
        match self {
            Self::Placed(_) => None,
            Self::Begun(block) => Some(block),
        }
    }

    fn begun_mut(&mut self) -> Option<&mut Block> {
        match self {
            Self::Placed(_) => None,
            Self::Begun(block) => Some(block),
        }
    }

    /// The cluster of a block that has not begun.
    fn next_cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            Self::Placed(Placed { cluster: Some((cluster, _)), .. }) => Some(cluster),
            _ => None,
        }
    }
}

/// The blocks of a grid.
#[derive(Debug)]
#[expect(clippy::vec_box, reason = "a block leaves this list for the other one, and comes back")]
pub(super) struct Slots {
    /// All blocks, and how many of them have become resident so far.
    blocks: u64,
    started: u64,
    /// How many are resident at first. The first step fills them: a launch that only repeats one before
    /// makes no step.
    to_fill: u32,
    seed: u64,
    /// The bytes of shared memory of a block, and whether the kernel writes them.
    shared: (u32, bool),
    resident: Vec<Resident>,
    /// Blocks that have ended. The next ones to begin use their memory.
    ended: Vec<Box<Block>>,
}

impl Slots {
    /// The blocks of a grid, of which so many are resident at a time, with so many bytes of shared memory
    /// each, which the kernel may write. None is resident yet.
    pub(super) fn new((blocks, slots): (u64, u32), shared: (u32, bool), seed: u64) -> Self {
        Self {
            blocks,
            started: 0,
            to_fill: slots,
            seed,
            shared,
            resident: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// All blocks of the grid.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many blocks have become resident so far.
    pub(super) fn started(&self) -> u64 {
        self.started
    }

    /// How many blocks are resident.
    pub(super) fn resident(&self) -> usize {
        self.resident.len()
    }

    /// Each resident block; `None` for one that has not begun.
    pub(super) fn each(&self) -> impl ExactSizeIterator<Item = Option<&Block>> + Clone {
        self.resident.iter().map(Resident::begun)
    }

    /// The resident blocks that have begun.
    pub(super) fn begun_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.resident.iter_mut().filter_map(Resident::begun_mut)
    }

    /// A resident block; `None` if it has not begun.
    pub(super) fn get(&self, index: usize) -> Option<&Block> {
        self.resident.get(index)?.begun()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Block> {
        self.resident.get_mut(index)?.begun_mut()
    }

    /// The grid has ended.
    pub(super) fn clear(&mut self) {
        self.resident.clear();
    }

    /// The first blocks of the grid become resident.
    pub(super) fn fill(&mut self, shape: &Shape) {
        // Hardware gives each multiprocessor one block, and then each a second one.
        let each = shape.cluster_size();
        for first in 0..std::mem::take(&mut self.to_fill) / each {
            self.make_resident(shape, first * each);
        }
    }

    /// The next block of the grid, or all blocks of the next cluster, become resident from a slot on.
    fn make_resident(&mut self, shape: &Shape, slot: u32) {
        if self.started == self.blocks {
            return;
        }
        let each = shape.cluster_size();
        if each == 1 {
            self.resident.push(Resident::Placed(self.next_at(slot)));
        } else {
            let (next, all) = (self.started / u64::from(each), self.blocks / u64::from(each));
            let index = scattered(next, all, self.seed);
            let cluster = Arc::new(Cluster::new(slot, each, each * shape.threads));
            self.resident.extend((0..each).map(|rank| {
                let (linear, cluster) = (shape.linear(index, rank), Arc::clone(&cluster));
                let cluster = Some((cluster, rank));
                Resident::Placed(Placed { linear, slot: slot + rank, cluster })
            }));
        }
        self.started += u64::from(each);
    }

    /// The next block of a grid without clusters, at a slot.
    fn next_at(&self, slot: u32) -> Placed {
        let linear = scattered(self.started, self.blocks, self.seed);
        Placed { linear, slot, cluster: None }
    }

    /// A block begins, if it has not. Gives it, and whether its warps have yet to begin.
    ///
    /// The other blocks of its cluster begin with it, and all of their warps: they may access its memory from
    /// now on.
    pub(super) fn begin(
        &mut self,
        index: usize,
        program: &Program,
        shape: &Shape,
    ) -> Option<(&mut Block, bool)> {
        let is_new = matches!(self.resident.get(index)?, Resident::Placed(_));
        let Some(cluster) = self.resident[index].next_cluster().cloned() else {
            self.begin_block(index, shape);
            return Some((self.get_mut(index)?, is_new));
        };
        for index in 0..self.resident.len() {
            let other = self.resident[index].next_cluster();
            if other.is_some_and(|other| Arc::ptr_eq(other, &cluster)) {
                self.begin_block(index, shape);
                self.get_mut(index)?.begin_warps(program, shape, (0, Old::Zero));
            }
        }
        Some((self.get_mut(index)?, false))
    }

    /// A block gets its memory, if it has not begun.
    fn begin_block(&mut self, index: usize, shape: &Shape) {
        let Some(Resident::Placed(placed)) = self.resident.get_mut(index) else { return };
        let mut block = self.ended.pop().unwrap_or_default();
        block.begin(std::mem::take(placed), shape, self.shared);
        self.resident[index] = Resident::Begun(block);
    }

    /// A block has ended, and the one that takes its index begins. Gives that as [`Self::begin`] does.
    #[inline(always)]
    pub(super) fn follow(
        &mut self,
        index: usize,
        program: &Program,
        shape: &Shape,
    ) -> Option<(&mut Block, bool)> {
        if self.takes_over(index, shape) {
            return Some((self.get_mut(index)?, true));
        }
        self.end(index, shape);
        self.begin(index, program, shape)
    }

    /// The block that takes the index of one that has ended begins in its memory. Returns whether it does: not if
    /// one of them is in a cluster, or that block has begun.
    #[inline(always)]
    fn takes_over(&mut self, index: usize, shape: &Shape) -> bool {
        let (count, is_new) = (self.resident.len(), self.started < self.blocks);
        let Some(Resident::Begun(ended)) = self.resident.get(index) else { return false };
        if shape.cluster_size() > 1 || ended.common.cluster.is_some() {
            return false;
        }
        let new = is_new.then(|| self.next_at(ended.common.slot));
        let next = match (self.resident.last_mut(), new) {
            (Some(Resident::Placed(last)), Some(new)) => std::mem::replace(last, new),
            (Some(Resident::Placed(last)), None) => {
                let last = std::mem::take(last);
                self.resident.pop();
                last
            }
            (_, Some(new)) if index + 1 == count => new,
            _ => return false,
        };
        self.started += u64::from(is_new);
        if let Some(Resident::Begun(block)) = self.resident.get_mut(index) {
            block.begin(next, shape, self.shared);
        }
        true
    }

    /// Whether another block has this index when the one that has it now ends.
    pub(super) fn has_next(&self, index: usize) -> bool {
        let is_last = index + 1 == self.resident.len();
        // The last block of a cluster alone makes room for others.
        let frees = || self.get(index).is_some_and(|block| block.common.cluster.is_none());
        !is_last || self.started < self.blocks && frees()
    }

    /// A block has ended. The last resident one takes its index, and the next of the grid its slot.
    pub(super) fn end(&mut self, index: usize, shape: &Shape) {
        let Resident::Begun(mut block) = self.resident.swap_remove(index) else { return };
        let free = block.common.free_slot();
        self.ended.push(block);
        if let Some(slot) = free {
            self.make_resident(shape, slot);
        }
    }
}

/// The `index`th block to start: ascending without a seed, else in an order that the seed gives.
fn scattered(index: u64, blocks: u64, seed: u64) -> u64 {
    if seed == 0 {
        return index;
    }
    // A step without a common divisor visits each block once.
    let mut step = (seed % blocks) | 1;
    while greatest_common_divisor(step, blocks) != 1 {
        step += 2;
    }
    let start = (seed >> 32) % blocks;
    ((u128::from(index) * u128::from(step) + u128::from(start)) % u128::from(blocks)) as u64
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
