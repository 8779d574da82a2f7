//! Faults of code that is executed: the executor lists the accesses that wait, and these
//! multiprocessors raise their faults in the same rhythm as those of declared kernels.
#![allow(clippy::arithmetic_side_effects, reason = "partitions and warps of a block are few")]

use std::collections::{BTreeMap, BTreeSet};

use super::faults::{FaultBatch, RaisedFault};
use super::missing::Nearby;
use super::multiprocessor::{PARTITIONS, TURN, partition_order};
use super::params::ArrivalParams;
use super::rounds::{Around, Raises, Rounds};
use super::sectors::Sectors;

/// A page that an access of a warp waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The page and the kind of access.
    pub(crate) fault: RaisedFault,
    /// The block, by its number in the grid.
    pub(crate) block: u64,
    /// The warp in the block.
    pub(crate) warp: u32,
    /// The faults that the access raises on the page, at least 1.
    pub(crate) faults: u64,
    /// How many accesses the warp issued before this one that still wait.
    pub(crate) ahead: u64,
    /// Whether the warp got here since the last replay.
    pub(crate) moved: bool,
    /// Whether the access is one with the one before it in the list, on another page.
    pub(crate) goes_on: bool,
    /// Whether it writes.
    pub(crate) is_write: bool,
}

/// The multiprocessors of a device that executes a kernel.
#[derive(Debug)]
pub(crate) struct ExecutedArrival<'a> {
    rounds: Rounds<'a>,
    params: &'a ArrivalParams,
    /// None before the first fault: many kernels have none.
    multiprocessors: Vec<Multiprocessor>,
    turns: Turns,
}

/// The random order of the partitions of a multiprocessor, for each turn of warps of each block that
/// faulted.
#[derive(Debug, Default)]
struct Turns(BTreeMap<(u64, u32), [usize; PARTITIONS]>);

/// Waves of blocks, one on each multiprocessor, among which the order is random: a block comes before all
/// that are more of them behind it. Fitted.
const MIXED_WAVES: u64 = 24;

/// Orders that are kept. Those of blocks that wait no more are dropped then.
const ORDERS: usize = 1 << 16;

impl Turns {
    /// Draws the orders of warps that wait and have none.
    fn draw(&mut self, waiting: &[Waiting], rounds: &mut Rounds<'_>) {
        for access in waiting {
            let known = self.0.entry((access.block, turn(access.warp)));
            known.or_insert_with(|| partition_order(|limit| rounds.below(limit)));
        }
    }

    /// Drops the orders of blocks that do not wait, if there are many.
    fn forget(&mut self, multiprocessors: &[Multiprocessor]) {
        if self.0.len() > ORDERS {
            let all = multiprocessors.iter().flat_map(|one| &one.waiting);
            let waiting: BTreeSet<u64> = all.map(|access| access.block).collect();
            self.0.retain(|(block, _), _| waiting.contains(block));
        }
    }

    /// The place of an access among those of its multiprocessor. Warps that stayed where they were come
    /// before those that moved. Blocks come in no order of their numbers, but before those that began
    /// much later. The warps of a turn issue their first accesses, then their second ones, and so on,
    /// before the warps of the next turn. So groups of faults are as many as an H200's.
    fn place(&self, access: &Waiting, multiprocessors: u64) -> impl Ord + use<> {
        let Waiting { block, warp, ahead, moved, .. } = *access;
        let order = self.0.get(&(block, turn(warp)));
        let partition = warp as usize % PARTITIONS;
        let comes = order.and_then(|order| order.iter().position(|one| *one == partition));
        let of_block = (mixed_place(block, multiprocessors), block);
        (moved, of_block, turn(warp), ahead, comes.unwrap_or(0), warp)
    }
}

/// The place of a block among others, in thousandths of a wave: its own, and a random number of waves more.
const fn mixed_place(block: u64, multiprocessors: u64) -> u64 {
    // Steele, Lea and Flood's SplitMix: neighbours have numbers that do not depend on each other.
    let mut bits = block.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let wave = block / multiprocessors;
    wave.saturating_mul(1000).saturating_add((bits ^ bits >> 31) % (1000 * MIXED_WAVES))
}

/// The turn of a warp: so many of each partition come before those of another.
fn turn(warp: u32) -> u32 {
    warp / (PARTITIONS * TURN) as u32
}

/// How near the device's mappings are to a page.
struct Nearness<F>(F);

impl<F: Fn(u64) -> Nearby> Around for Nearness<F> {
    fn mapped_near(&self, page: u64) -> Nearby {
        self.0(page)
    }

    fn begins_at_once(&self) -> bool {
        false
    }
}

impl<'a> ExecutedArrival<'a> {
    /// The faults of a kernel. `nth` tells the kernels of one seed apart.
    pub(crate) fn new(params: &'a ArrivalParams, seed: u64, nth: u64) -> Self {
        let (multiprocessors, turns) = (Vec::new(), Turns::default());
        let rounds = Rounds::executed(params, seed, nth);
        Self { rounds, params, multiprocessors, turns }
    }

    /// The next batch; `None` if no access waits. `waiting` lists the accesses that do, each with
    /// its multiprocessor, in the order in which they were issued. Multiprocessors that the device
    /// does not have count as its last.
    pub(crate) fn next_batch(
        &mut self,
        progress: bool,
        waiting: impl Iterator<Item = (u32, Waiting)>,
        near: impl Fn(u64) -> Nearby,
    ) -> Option<FaultBatch> {
        let count = self.params.multiprocessors.max(1) as usize;
        self.multiprocessors.resize_with(count, Multiprocessor::default);
        self.multiprocessors.iter_mut().for_each(|one| one.waiting.clear());
        let last = self.multiprocessors.len().saturating_sub(1);
        for (number, access) in waiting {
            self.multiprocessors[last.min(number as usize)].waiting.push(access);
        }
        self.turns.forget(&self.multiprocessors);
        for one in &mut self.multiprocessors {
            self.turns.draw(&one.waiting, &mut self.rounds);
            one.waiting.sort_by_cached_key(|access| self.turns.place(access, count as u64));
        }
        self.rounds.next_batch(progress, &mut self.multiprocessors, &Nearness(near))
    }
}

/// One multiprocessor.
#[derive(Debug, Clone, Default)]
struct Multiprocessor {
    waiting: Vec<Waiting>,
    /// The access that raises its faults now, and how many of them were raised.
    turn: usize,
    raised: u64,
    /// The faults of that access for which there is room; `None` before the multiprocessor looked.
    room: Option<u64>,
    /// Turns taken.
    slots: u64,
    sectors: Sectors,
}

impl Multiprocessor {
    /// Goes on to the next access on a page that has room for faults. Returns whether there is one.
    fn admit(&mut self, params: &ArrivalParams) -> bool {
        while let Some(next) = self.waiting.get(self.turn) {
            if let Some(room) = self.room {
                if self.raised < room {
                    return true;
                }
                self.turn = self.turn.saturating_add(1);
                (self.raised, self.room) = (0, None);
                continue;
            }
            let Some(on_page) = self.sectors.admit(params, next.fault.page) else { return false };
            let most = if next.is_write { u64::from(params.page_writes) } else { u64::MAX };
            self.room = Some(on_page.take_room(next.faults, most));
        }
        false
    }

    /// The turn of the next fault. A warp's access takes a turn before its faults.
    fn slot(&self) -> u64 {
        let begins = |next: &Waiting| self.raised == 0 && !next.goes_on;
        self.slots.saturating_add(self.waiting.get(self.turn).is_some_and(begins).into())
    }
}

impl<F: Fn(u64) -> Nearby> Raises<Nearness<F>> for Multiprocessor {
    fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn begin(&mut self) {
        (self.turn, self.raised, self.room, self.slots) = (0, 0, None, 0);
        self.sectors.clear();
    }

    fn first_fault(&self) -> Option<RaisedFault> {
        self.waiting.first().map(|access| access.fault)
    }

    fn first_page(&mut self, _: &Nearness<F>) -> Option<u64> {
        self.waiting.first().map(|access| access.fault.page)
    }

    fn delay_ns(&self, params: &ArrivalParams, _: &Nearness<F>) -> u64 {
        let begun = self.slots > 0;
        let next = self.waiting.get(self.turn).filter(|_| begun);
        let ahead = next.map_or(0, |next| next.ahead);
        let nth = if begun { self.slot() } else { 0 };
        params.delay_ns(0, nth, ahead)
    }

    fn raise(&mut self, params: &ArrivalParams, _: &Nearness<F>) -> Option<RaisedFault> {
        if !self.admit(params) {
            return None;
        }
        let fault = self.waiting.get(self.turn)?.fault;
        self.slots = self.slot().saturating_add(1);
        self.raised = self.raised.saturating_add(1);
        // The time of the next fault depends on which it is.
        self.admit(params);
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::GpuProfile;

    /// Warps of the first multiprocessor that each wait to read one page, of 16 KiB of its own.
    fn warps(pages: Range<u64>) -> impl Iterator<Item = (u32, Waiting)> {
        let read = |(warp, page)| {
            let fault = RaisedFault { page: 4 * page, walk: 0 };
            let (block, faults, ahead) = (0, 1, 0);
            let (moved, goes_on, is_write) = (true, false, false);
            (0, Waiting { fault, block, warp, faults, ahead, moved, goes_on, is_write })
        };
        (0..).zip(pages).map(read)
    }

    fn pages(batch: &FaultBatch) -> BTreeSet<u64> {
        batch.pages().iter().map(|page| page / 4).collect()
    }

    /// Two batches of warps that wait: of these, and then of one on a page far off. So what else is in
    /// the second was left over.
    fn two_batches(params: &ArrivalParams, pages_of_warps: Range<u64>) -> [BTreeSet<u64>; 2] {
        let mut arrival = ExecutedArrival::new(params, 1, 0);
        [pages_of_warps, 100..101].map(|waiting| {
            let batch = arrival.next_batch(true, warps(waiting), |_| Nearby::Group);
            pages(&batch.expect("a batch"))
        })
    }

    #[test]
    fn a_block_comes_before_those_that_began_much_later_and_not_before_others() {
        let place = |block| mixed_place(block, 132);
        let later = |waves| move |block: &u64| place(*block) < place(*block + waves * 132);
        let blocks = 0..10_000;
        assert!(blocks.clone().all(|block| later(MIXED_WAVES)(&block)));
        let in_order = [1, 4, 12].map(|waves| blocks.clone().filter(later(waves)).count() / 100);
        assert!(matches!(in_order, [50..58, 60..70, 82..92]), "{in_order:?} %");
    }

    #[test]
    fn faults_that_come_after_the_driver_looked_are_in_the_next_batch() {
        let [first, second] = two_batches(&GpuProfile::h200().arrival, 0..12);
        assert!(!first.is_empty() && first.len() < 12, "{first:?}");
        let left: BTreeSet<u64> = (0..12).filter(|page| !first.contains(page)).collect();
        assert!(second.is_superset(&left) && second.is_disjoint(&first), "{second:?}");
    }

    #[test]
    fn faults_that_had_come_and_found_no_room_in_the_batch_are_dropped() {
        // Eight warps fault at once before the driver looks, and six after it.
        let wave_slots = [16, 16];
        let params = ArrivalParams { batch_faults: 4, wave_slots, ..GpuProfile::h200().arrival };
        let [first, second] = two_batches(&params, 0..14);
        assert!(first.len() == 4 && first.is_subset(&(0..8).collect()), "{first:?}");
        assert!(second.len() == 4 && second.is_subset(&(8..14).collect()), "{second:?}");
    }
}
