//! Rounds: the faults of waiting multiprocessors, from one replay to the next.
//!
//! A multiprocessor says when its next fault comes and which it is. The rounds draw when each
//! begins, read a batch as the driver does, and keep what is left over for the next.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "faults are counted; a batch has as many as were read"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};

use super::faults::{FaultBatch, RaisedFault};
use super::missing::Nearby;
use super::params::{ArrivalParams, ReadingParams};

/// Rounds in which no thread gets further, as when pages push each other out, before faults come
/// one by one, so that one thread does.
const ROUNDS_IN_VAIN_MAX: u32 = 16;

/// Faults for which there is room before the first is read.
const READ_AT_ONCE: usize = 256;

/// The kernel and the pages that it misses, as multiprocessors and rounds see them.
pub(super) trait Around {
    /// The mapping of the device nearest to a page.
    fn mapped_near(&self, page: u64) -> Nearby;

    /// Whether all multiprocessors begin to fault at once in the first round, as in a fill or copy
    /// (TIMING-35).
    fn begins_at_once(&self) -> bool;
}

/// When the next fault of a multiprocessor comes, and the number of that. The soonest is the
/// greatest. Of one number each, so that they are compared without a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Next(Reverse<u128>);

impl Next {
    fn new(ns: u64, multiprocessor: usize) -> Self {
        Self(Reverse(u128::from(ns) << 64 | multiprocessor as u128))
    }

    fn ns(self) -> u64 {
        (self.0.0 >> 64) as u64
    }

    fn multiprocessor(self) -> usize {
        self.0.0 as usize
    }
}

/// When the next fault of each multiprocessor comes, the soonest first.
type Coming = BinaryHeap<Next>;

/// When a multiprocessor faults, in nanoseconds after the replay.
#[derive(Debug, Clone, Copy, Default)]
struct Timing {
    /// When it begins to fault.
    start_ns: u64,
    /// Time that is left of the last start, if that was not reached.
    carried_ns: Option<u64>,
}

/// A multiprocessor that raises faults.
pub(super) trait Raises<A> {
    /// Whether a thread waits.
    fn is_waiting(&self) -> bool;
    /// Begins a round.
    fn begin(&mut self);
    /// The fault of the first thread that waits.
    fn first_fault(&self) -> Option<RaisedFault>;
    /// The page of the first fault of a round that has begun.
    fn first_page(&mut self, around: &A) -> Option<u64>;
    /// From its start to the next fault of this round.
    fn delay_ns(&self, params: &ArrivalParams, around: &A) -> u64;
    /// The next fault of this round.
    fn raise(&mut self, params: &ArrivalParams, around: &A) -> Option<RaisedFault>;
}

/// Multiprocessors in a round.
struct Raising<'a, M, A> {
    params: &'a ArrivalParams,
    around: &'a A,
    multiprocessors: &'a mut [M],
    timings: &'a [Timing],
}

impl<M: Raises<A>, A> Raising<'_, M, A> {
    /// Lets multiprocessors fault in the order in which their faults come, as long as the next one comes
    /// before then. `take` gets when a fault comes and the fault, and says before when the next has to
    /// come. Returns which faults come next.
    #[inline]
    fn run(
        &mut self,
        coming: Vec<Next>,
        mut before_ns: u64,
        mut take: impl FnMut(u64, RaisedFault) -> u64,
    ) -> Vec<Next> {
        let Self { params, around, multiprocessors, timings } = self;
        let mut others = Coming::from(coming);
        // The multiprocessor that faulted last often is the next one, too.
        let mut last = None;
        while let Some(mut next) = soonest(&mut others, last.take()) {
            if next.ns() >= before_ns {
                others.push(next);
                break;
            }
            let at = next.multiprocessor();
            let (multiprocessor, start_ns) = (&mut multiprocessors[at], timings[at].start_ns);
            let other = others.peek().copied();
            // One that has no room for another fault is through with the round.
            while let Some(fault) = multiprocessor.raise(params, around) {
                before_ns = take(next.ns(), fault);
                let delay_ns = multiprocessor.delay_ns(params, around);
                next = Next::new(start_ns.saturating_add(delay_ns), at);
                if next.ns() >= before_ns || other > Some(next) {
                    last = Some(next);
                    break;
                }
            }
        }
        others.into_vec()
    }
}

/// Takes out what comes first: of these, or the one beside them.
#[inline(always)]
fn soonest(others: &mut Coming, last: Option<Next>) -> Option<Next> {
    let Some(last) = last else { return others.pop() };
    match others.peek_mut() {
        Some(mut first) if *first > last => Some(std::mem::replace(&mut first, last)),
        _ => Some(last),
    }
}

/// The rounds of one kernel.
#[derive(Debug)]
pub(super) struct Rounds<'a> {
    params: &'a ArrivalParams,
    reading: ReadingParams,
    /// Whether the driver takes the faults that came until it looked, and leaves all that come later
    /// (TIMING-37). If not it reads on while faults come, and leaves those of multiprocessors that
    /// began after it looked.
    reads_once: bool,
    rng: ChaCha8Rng,
    /// When each multiprocessor faults.
    timings: Vec<Timing>,
    /// The multiprocessors with a thread that waits.
    waiting: Vec<usize>,
    left_over: Vec<RaisedFault>,
    in_vain: u32,
    /// Whether a round has begun.
    faulted: bool,
}

impl<'a> Rounds<'a> {
    /// The rounds of a kernel that is declared by what it accesses. `nth` tells the kernels of one
    /// seed apart.
    pub(super) fn declared(params: &'a ArrivalParams, seed: u64, nth: u64) -> Self {
        Self::new(params, (params.declared(), false), (seed, nth))
    }

    /// The same for code that is executed.
    pub(super) fn executed(params: &'a ArrivalParams, seed: u64, nth: u64) -> Self {
        Self::new(params, (params.executed, true), (seed, nth))
    }

    fn new(
        params: &'a ArrivalParams,
        (reading, reads_once): (ReadingParams, bool),
        (seed, nth): (u64, u64),
    ) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(bytes);
        rng.set_stream(nth);
        Self {
            params,
            reading,
            reads_once,
            rng,
            timings: Vec::new(),
            waiting: Vec::new(),
            left_over: Vec::new(),
            in_vain: 0,
            faulted: false,
        }
    }

    /// A random number below `limit`, by fixed-point multiplication: the same on every machine.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// The next batch; `None` if no thread waits. `progress` says whether a thread got further since
    /// the last one.
    pub(super) fn next_batch<A: Around>(
        &mut self,
        progress: bool,
        multiprocessors: &mut [impl Raises<A>],
        around: &A,
    ) -> Option<FaultBatch> {
        self.in_vain = if progress { 0 } else { self.in_vain + 1 };
        let waits = |(_, one): &(usize, &_)| Raises::is_waiting(*one);
        let waiting = multiprocessors.iter().enumerate().filter(waits);
        self.waiting.clear();
        self.waiting.extend(waiting.map(|(at, _)| at));
        if self.waiting.is_empty() {
            return None;
        }
        if self.in_vain > ROUNDS_IN_VAIN_MAX {
            // One fault alone.
            self.left_over.clear();
            let fault = multiprocessors.iter().find_map(Raises::first_fault)?;
            return Some(FaultBatch::of(&[fault]));
        }
        let coming = self.start(multiprocessors, around);
        Some(self.collect(coming, multiprocessors, around))
    }

    /// The time that the walk of the page tables to a page takes.
    fn walk_ns(&self, page: u64, around: &impl Around) -> u64 {
        let [group, pair, block, nothing] = self.reading.walk_ns;
        match around.mapped_near(page) {
            Nearby::Group => group,
            Nearby::Pair => pair,
            Nearby::Block => block,
            Nearby::Nothing => nothing,
        }
    }

    /// Draws when each multiprocessor begins to fault, unless that is known from the last round. In
    /// the first round of a fill or copy they all begin at once (TIMING-35). Returns their first faults.
    fn start<A: Around>(
        &mut self,
        multiprocessors: &mut [impl Raises<A>],
        around: &A,
    ) -> Vec<Next> {
        self.timings.resize(multiprocessors.len(), Timing::default());
        let first = !std::mem::replace(&mut self.faulted, true);
        let spread_ns = if first && around.begins_at_once() { 0 } else { self.reading.spread_ns };
        let within_ns = spread_ns.saturating_mul(self.waiting.len() as u64);
        let first_delay_ns = self.params.delay_ns(0, 0, 0);
        let mut coming = Vec::with_capacity(self.waiting.len());
        for nth in 0..self.waiting.len() {
            let at = self.waiting[nth];
            multiprocessors[at].begin();
            let carried_ns = self.timings[at].carried_ns.take();
            let start_ns = carried_ns.unwrap_or_else(|| self.below(within_ns));
            self.timings[at].start_ns = start_ns;
            coming.push(Next::new(start_ns.saturating_add(first_delay_ns), at));
        }
        coming
    }

    /// Reads a batch, and notes what is left over from before the replay.
    fn collect<A: Around>(
        &mut self,
        mut coming: Vec<Next>,
        multiprocessors: &mut [impl Raises<A>],
        around: &A,
    ) -> FaultBatch {
        let params = self.params;
        let read_ns = if self.reads_once { 0 } else { params.fault_ns };
        let most = params.batch_faults.max(1) as usize;
        let mut read = std::mem::take(&mut self.left_over);
        let looks_ns = match read.is_empty() {
            true => self.first_look_ns(&coming, multiprocessors, around),
            false => self.reading.reads_late_after_ns,
        };
        let mut now_ns = looks_ns.saturating_add(read_ns.saturating_mul(read.len() as u64));
        let timings = &self.timings;
        let mut raising = Raising { params, around, multiprocessors, timings };
        // Most batches are full of what was left over.
        if read.len() < most {
            read.reserve(most.min(READ_AT_ONCE).saturating_sub(read.len()));
            coming = raising.run(coming, now_ns.saturating_add(1), |_, fault| {
                read.push(fault);
                now_ns = now_ns.saturating_add(read_ns);
                if read.len() < most { now_ns.saturating_add(1) } else { 0 }
            });
        }
        let batch = FaultBatch::of(&read);
        let blocks = batch.blocks().count() as u64;
        let replay_ns = now_ns.saturating_add(params.service_block_ns.saturating_mul(blocks));
        read.clear();
        if batch.duplicate_percent() <= params.drop_all_percent {
            let all_leave = self.reads_once;
            coming.retain(|next| {
                let start_ns = timings[next.multiprocessor()].start_ns;
                next.ns() < replay_ns && (all_leave || start_ns > looks_ns)
            });
            leave(raising, coming, looks_ns..replay_ns, &mut read);
        }
        self.left_over = read;
        for &at in &self.waiting {
            let timing = &mut self.timings[at];
            timing.carried_ns = timing.start_ns.checked_sub(replay_ns);
        }
        batch
    }

    /// When the driver looks, if no fault was left over: behind the walk to the page of the first.
    fn first_look_ns<A: Around>(
        &self,
        coming: &[Next],
        multiprocessors: &mut [impl Raises<A>],
        around: &A,
    ) -> u64 {
        let Some(soonest) = coming.iter().max() else { return 0 };
        let first = multiprocessors[soonest.multiprocessor()].first_page(around);
        soonest.ns().saturating_add(first.map_or(0, |page| self.walk_ns(page, around)))
    }
}

/// The faults left over: those of these multiprocessors that come before the replay and after the driver
/// looked. What came before and was not read is dropped.
fn leave<M: Raises<A>, A>(
    mut raising: Raising<'_, M, A>,
    coming: Vec<Next>,
    Range { start: looks_ns, end: replay_ns }: Range<u64>,
    left_over: &mut Vec<RaisedFault>,
) {
    let most = raising.params.batch_faults as usize;
    raising.run(coming, replay_ns, |ns, fault| {
        if ns > looks_ns {
            left_over.push(fault);
        }
        if left_over.len() < most { replay_ns } else { 0 }
    });
}
