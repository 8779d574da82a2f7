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
    blocks: u64,
    /// The blocks of a cluster, 1 without clusters.
    each: u32,
    /// How many are resident at first. The first step fills them: a launch that only repeats one before
    /// makes no step.
    to_fill: u32,
    order: Order,
    /// The bytes of shared memory of a block, and whether the kernel writes them.
    shared: (u32, bool),
    resident: Vec<Resident>,
    /// Blocks that have ended. The next ones to begin use their memory.
    ended: Vec<Box<Block>>,
}

impl Slots {
    /// The blocks of a grid, of which so many are resident at a time, with so many bytes of shared memory
    /// each, which the kernel may write. None is resident yet.
    pub(super) fn new(
        (blocks, slots): (u64, u32),
        shape: &Shape,
        shared: (u32, bool),
        seed: u64,
    ) -> Self {
        Self {
            blocks,
            each: shape.cluster_size(),
            to_fill: slots,
            order: Order::new(blocks / u64::from(shape.cluster_size()), seed),
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
        self.order.taken * u64::from(self.each)
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
        let slots = std::mem::take(&mut self.to_fill);
        if self.each == 1 {
            let (count, order) = (u64::from(slots).min(self.order.left()), &mut self.order);
            let next = (0..count as u32).map(|slot| Placed::alone(order.advance(), slot));
            let placed = next.map(Resident::Placed);
            self.resident.extend(placed);
        } else {
            (0..slots / self.each).for_each(|nth| self.make_resident(shape, nth * self.each));
        }
    }

    /// The next block of the grid, or all blocks of the next cluster, become resident from a slot on.
    fn make_resident(&mut self, shape: &Shape, slot: u32) {
        let Some(index) = self.order.next() else { return };
        let each = self.each;
        if each == 1 {
            self.resident.push(Resident::Placed(Placed::alone(index, slot)));
            return;
        }
        let cluster = Arc::new(Cluster::new(slot, each, each * shape.threads));
        self.resident.extend((0..each).map(|rank| {
            let (linear, cluster) = (shape.linear(index, rank), Arc::clone(&cluster));
            let cluster = Some((cluster, rank));
            Resident::Placed(Placed { linear, slot: slot + rank, cluster })
        }));
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

    /// A block has ended, and the one that takes its index begins in its memory. Returns whether it does: not, and
    /// nothing is changed, if there is none, one of them is in a cluster, or the other one has begun.
    #[inline(always)]
    pub(super) fn takes_over(&mut self, index: usize, shape: &Shape) -> bool {
        let Some(Resident::Begun(ended)) = self.resident.get(index) else { return false };
        if self.each > 1 || ended.common.cluster.is_some() {
            return false;
        }
        let slot = ended.common.slot;
        let next = match self.resident[index + 1..].last_mut() {
            None => match self.order.next() {
                Some(linear) => Placed::alone(linear, slot),
                None => return false,
            },
            Some(Resident::Begun(_)) => return false,
            Some(Resident::Placed(last)) => match self.order.next() {
                Some(linear) => std::mem::replace(last, Placed::alone(linear, slot)),
                None => {
                    let last = std::mem::take(last);
                    self.resident.pop();
                    last
                }
            },
        };
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
        !is_last || self.order.left() > 0 && frees()
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

/// The order in which blocks become resident, or clusters: ascending without a seed, else one that the seed gives.
#[derive(Debug)]
struct Order {
    /// How many there are, and how many were taken.
    count: u64,
    taken: u64,
    next: u64,
    step: u64,
}

impl Order {
    fn new(count: u64, seed: u64) -> Self {
        if seed == 0 || count == 0 {
            return Self { count, taken: 0, next: 0, step: 1 };
        }
        // A step without a common divisor visits each once.
        let mut step = (seed % count) | 1;
        while greatest_common_divisor(step, count) != 1 {
            step += 2;
        }
        Self { count, taken: 0, next: (seed >> 32) % count, step: step % count }
    }

    fn left(&self) -> u64 {
        self.count - self.taken
    }

    /// Takes the next one. There is one left.
    #[inline(always)]
    fn advance(&mut self) -> u64 {
        self.taken += 1;
        let next = self.next + self.step;
        let next = if next < self.count { next } else { next - self.count };
        std::mem::replace(&mut self.next, next)
    }
}

impl Iterator for Order {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        (self.left() > 0).then(|| self.advance())
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(count: u64, seed: u64) -> Vec<u64> {
        Order::new(count, seed).collect()
    }

    #[test]
    fn blocks_start_once_each_from_the_place_and_by_the_step_that_the_seed_gives() {
        for count in 1..=60 {
            assert_eq!(order(count, 0), (0..count).collect::<Vec<_>>());
            for seed in [1, 2, 15, 59, 0x0007_0000_0006, 0xffff_ffff_ffff_fffe, u64::MAX] {
                let started = order(count, seed);
                let mut all = started.clone();
                all.sort_unstable();
                assert_eq!(all, (0..count).collect::<Vec<_>>(), "{count} {seed:#x}");
                assert_eq!(started[0], (seed >> 32) % count, "{count} {seed:#x}");
                let steps = started.windows(2).map(|two| (two[1] + count - two[0]) % count);
                assert!(steps.clone().all(|step| Some(step) == steps.clone().next()));
            }
        }
        assert_eq!(order(7, 0x0007_0000_0003)[..3], [0, 3, 6]);
    }
}
