//! One multiprocessor: the units that it holds, and the faults that they raise.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "faults, lines and turns are counted; a unit only goes on from where it waits"
)]

use super::faults::RaisedFault;
use super::grid::{Grid, Miss, PageAccess, PageAccesses, Position, Unit, WARP};
use super::missing::{Missing, Nearby};
use super::params::ArrivalParams;
use super::rounds::{Around, Raises};
use super::sectors::Sectors;
use super::waiters::Then;

/// Parts of a multiprocessor with a scheduler each; warps are dealt out to them in turn
/// (published: Hopper tuning guide).
pub(super) const PARTITIONS: usize = 4;
/// Warps of one partition that come before those of another. Fitted.
pub(super) const TURN: usize = 2;
/// A unit that does not wait for its accesses is at most this many iterations ahead of the first
/// that faults. A bound on work: sectors run out long before.
const AHEAD_MAX: u64 = 64;

/// A unit at an access that faults.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    unit: Unit,
    /// The thread block that it belongs to.
    block: u64,
    at: Position,
    /// The page that it misses.
    page: u64,
    /// The walk that the access is of.
    walk: usize,
    /// The last replay before it got here, by number.
    moved_after: u64,
    /// Whether it has no more accesses that fault.
    is_through: bool,
}

impl Waiting {
    fn fault(&self) -> RaisedFault {
        RaisedFault { page: self.page, walk: self.walk }
    }

    /// Goes on to the next access that faults, if there is one.
    #[inline(never)]
    fn go_on(&mut self, grid: &Grid, missing: &impl Missing, replays: u64) {
        let Some(Miss { at, page, walk }) = grid.seek(&self.unit, self.at, missing) else {
            self.is_through = true;
            return;
        };
        let place = |at: Position| (at.iteration, at.part);
        if place(at) != place(self.at) {
            self.moved_after = replays;
        }
        (self.at, self.page, self.walk) = (at, page, walk);
    }
}

/// One multiprocessor.
#[derive(Debug, Clone, Default)]
pub(super) struct Multiprocessor {
    /// Those that have no more accesses that fault stay until they are most.
    units: Vec<Waiting>,
    /// How many have none.
    through: usize,
    round: RoundFaults,
}

/// The faults of one round, in order, made as they are asked for.
#[derive(Debug, Clone, Default)]
struct RoundFaults {
    queue: Queue,
    /// Where units that do not wait go on, once the queue is through.
    ahead: Vec<(u32, Position)>,
    /// Accesses that those in the queue wait for.
    ahead_by: u64,
    sectors: Sectors,
    /// The fault that comes next, if there is one.
    next: Option<NextFaults>,
    /// The replays before the round; `None` before the first.
    after: Option<u64>,
    /// Turns taken.
    slots: u64,
}

/// Units in the order in which they fault, and where each is.
#[derive(Debug, Clone, Default)]
struct Queue {
    first: Option<Turn>,
    then: Behind,
}

/// The unit that faults now.
#[derive(Debug, Clone)]
struct Turn {
    /// Its number.
    unit: u32,
    at: Position,
    /// Its accesses there that are still to come.
    accesses: PageAccesses,
    /// The warp of it that faulted last.
    warp: Option<u64>,
}

impl Turn {
    /// The unit makes the access where it stands, misses the page and goes on. Returns the faults.
    #[inline]
    fn misses(&mut self, from_lane: u64, access: &PageAccess) -> NextFaults {
        let &PageAccess { lanes, page, walk, faults, is_write } = access;
        let warps = lanes.div_ceil(WARP);
        let last = Some((from_lane + lanes - 1) / WARP);
        let goes_on = std::mem::replace(&mut self.warp, last) == Some(from_lane / WARP);
        let of_warp = if warps == 1 { faults } else { (faults / warps).max(1) };
        let fault = RaisedFault { page, walk };
        NextFaults { fault, left: faults, of_warp, come: u64::from(goes_on), is_write }
    }
}

/// The units behind the first of a queue.
#[derive(Debug, Clone)]
enum Behind {
    /// All units from this one on that moved since the last replay, or that did not, and behind those
    /// that did not the others. Rounds seldom get far in it, so it is not written down.
    Units { from: u32, moved: bool, replays: u64 },
    /// These, from this place on.
    Listed { list: Vec<(u32, Position)>, from: usize },
}

impl Default for Behind {
    fn default() -> Self {
        Self::Units { from: 0, moved: true, replays: 0 }
    }
}

impl Queue {
    /// All units: those that stayed where they were fault before those that moved.
    fn of(units: &[Waiting], replays: u64, grid: &Grid) -> Self {
        let then = Behind::Units { from: 0, moved: false, replays };
        let mut queue = Self { first: None, then };
        queue.step(units, grid);
        queue
    }

    /// The next unit has its turn.
    fn step(&mut self, units: &[Waiting], grid: &Grid) {
        let next = match &mut self.then {
            Behind::Listed { list, from } => {
                let next = list.get(*from).copied();
                *from += 1;
                next
            }
            Behind::Units { from, moved, replays } => loop {
                match units.get(*from as usize) {
                    Some(waiting) => {
                        *from += 1;
                        if (waiting.moved_after == *replays) == *moved && !waiting.is_through {
                            break Some((*from - 1, waiting.at));
                        }
                    }
                    None if *moved => break None,
                    None => (*from, *moved) = (0, true),
                }
            },
        };
        self.first = next.map(|(unit, at)| {
            let accesses = grid.accesses(&units[unit as usize].unit, at);
            Turn { unit, at, accesses, warp: None }
        });
    }
}

/// Faults of a unit on a page that are still to come.
#[derive(Debug, Clone, Copy)]
struct NextFaults {
    fault: RaisedFault,
    left: u64,
    /// Faults of one of its warps, and those of the warp at hand that have come.
    of_warp: u64,
    come: u64,
    is_write: bool,
}

impl Multiprocessor {
    /// Thread blocks that are not through.
    pub(super) fn blocks(&self) -> usize {
        let blocks = self.units.chunk_by(|a, b| a.block == b.block);
        blocks.filter(|units| units.iter().any(|unit| !unit.is_through)).count()
    }

    /// Takes a thread block. Returns whether it faults anywhere; if not, it is through. `draw`
    /// gives a random number below its argument.
    pub(super) fn take(
        &mut self,
        block: u64,
        &OnGrid { grid, missing, replays }: &OnGrid<'_, impl Missing>,
        mut draw: impl FnMut(u64) -> u64,
    ) -> bool {
        let before = self.units.len();
        let units: Vec<Unit> = grid.units(block).collect();
        for turn in units.chunks(PARTITIONS * TURN) {
            for partition in partition_order(&mut draw) {
                let own = turn.iter().skip(partition).step_by(PARTITIONS);
                self.units.extend(own.filter_map(|unit| {
                    let miss = grid.seek(unit, Position::default(), missing)?;
                    let Miss { at, page, walk } = miss;
                    let (unit, moved_after, is_through) = (*unit, replays, false);
                    Some(Waiting { unit, block, at, page, walk, moved_after, is_through })
                }));
            }
        }
        self.units.len() > before
    }

    /// The units that wait.
    fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.units.iter().filter(|unit| !unit.is_through)
    }

    /// The faults of units, each with the number of the unit, from this one on.
    pub(super) fn misses(&self, from: usize) -> impl Iterator<Item = (RaisedFault, u32)> {
        let units = self.units.iter().zip(0..).skip(from).filter(|(unit, _)| !unit.is_through);
        units.map(|(unit, number)| (unit.fault(), number))
    }

    /// How many units wait.
    pub(super) fn count(&self) -> usize {
        self.units.len() - self.through
    }

    /// The number of the next unit that it takes.
    pub(super) fn next_unit(&self) -> usize {
        self.units.len()
    }

    /// Lets a unit go on, as its page came, to its next access that faults. `None` if no unit with this
    /// number waits for that fault.
    pub(super) fn run(
        &mut self,
        unit: u32,
        fault: RaisedFault,
        &OnGrid { grid, missing, replays }: &OnGrid<'_, impl Missing>,
    ) -> Option<Then> {
        let waiting = self.units.get_mut(unit as usize);
        let waiting = waiting.filter(|unit| unit.fault() == fault && !unit.is_through)?;
        waiting.go_on(grid, missing, replays);
        let Waiting { page, walk, is_through, .. } = *waiting;
        self.through += usize::from(is_through);
        Some(if is_through { Then::Leaves } else { Then::Waits { page, walk: walk as u32 } })
    }

    /// Drops units that have no more accesses that fault, if they are most. Returns whether it did:
    /// then others have new numbers.
    pub(super) fn drop_those_through(&mut self) -> bool {
        let drops = 2 * self.through > self.units.len();
        if drops {
            self.units.retain(|unit| !unit.is_through);
            self.through = 0;
        }
        drops
    }

    fn queue(&mut self, grid: &Grid, replays: u64) {
        self.round.queue = Queue::of(&self.units, replays, grid);
        self.round.ahead.clear();
        self.round.sectors.clear();
        self.round.ahead_by = 0;
    }

    /// Goes on to the next faults for which the multiprocessor has room.
    #[inline(never)]
    fn admit(&mut self, params: &ArrivalParams, around: &OnGrid<'_, impl Missing>) {
        self.round.next = loop {
            let Some(mut next) = self.next_fault(around) else { break None };
            let sectors = &mut self.round.sectors;
            let Some(on_page) = sectors.admit(params, next.fault.page) else { break None };
            if next.is_write {
                next.left = on_page.take_room(next.left, params.page_writes.into());
            }
            if next.left > 0 {
                break Some(next);
            }
        };
    }

    /// The next page that a unit misses, and its faults on it.
    #[inline(always)]
    fn next_fault(&mut self, around: &OnGrid<'_, impl Missing>) -> Option<NextFaults> {
        let &OnGrid { grid, missing, .. } = around;
        let round = &mut self.round;
        loop {
            let Some(turn) = &mut round.queue.first else {
                if round.ahead.is_empty() {
                    return None;
                }
                let list = std::mem::take(&mut round.ahead);
                round.queue.then = Behind::Listed { list, from: 0 };
                round.queue.step(&self.units, grid);
                round.ahead_by += 1;
                continue;
            };
            let from_lane = turn.accesses.lane;
            if let Some(access) = turn.accesses.next(grid) {
                if missing.contains(access.walk, access.page) {
                    return Some(turn.misses(from_lane, &access));
                }
                continue;
            }
            let waiting = &self.units[turn.unit as usize];
            let at = Position { lane: from_lane, ..turn.at };
            if grid.may_run_ahead(at)
                && let Some(Miss { at: next, .. }) = grid.seek(&waiting.unit, at, missing)
                && grid.runs_ahead(at, next)
                && next.iteration - waiting.at.iteration <= AHEAD_MAX
            {
                round.ahead.push((turn.unit, next));
            }
            round.queue.step(&self.units, grid);
        }
    }
}

/// The partitions in a random order. `draw` gives a random number below its argument.
pub(super) fn partition_order(mut draw: impl FnMut(u64) -> u64) -> [usize; PARTITIONS] {
    let mut order: [usize; PARTITIONS] = std::array::from_fn(|partition| partition);
    for last in (1..PARTITIONS).rev() {
        order.swap(last, draw(last as u64 + 1) as usize);
    }
    order
}

/// A grid and the pages that its kernel misses, after so many replays.
pub(super) struct OnGrid<'a, M> {
    pub(super) grid: &'a Grid,
    pub(super) missing: &'a M,
    pub(super) replays: u64,
}

impl<M: Missing> Around for OnGrid<'_, M> {
    fn mapped_near(&self, page: u64) -> Nearby {
        self.missing.mapped_near(page)
    }

    fn begins_at_once(&self) -> bool {
        self.grid.is_bulk()
    }
}

impl<M: Missing> Raises<OnGrid<'_, M>> for Multiprocessor {
    fn is_waiting(&self) -> bool {
        self.count() > 0
    }

    /// A round begins with its first fault: most multiprocessors have none in most rounds.
    fn begin(&mut self) {}

    fn first_fault(&self) -> Option<RaisedFault> {
        self.waiting().next().map(Waiting::fault)
    }

    fn first_page(&mut self, around: &OnGrid<'_, M>) -> Option<u64> {
        self.queue(around.grid, around.replays);
        self.next_fault(around).map(|next| next.fault.page)
    }

    #[inline]
    fn delay_ns(&self, params: &ArrivalParams, around: &OnGrid<'_, M>) -> u64 {
        let (nth, ahead) = match &self.round.next {
            Some(next) => (self.round.slots + u64::from(next.takes_a_turn()), self.round.ahead_by),
            None => (0, 0),
        };
        params.delay_ns(around.grid.turn_ns(), nth, ahead)
    }

    #[inline]
    fn raise(&mut self, params: &ArrivalParams, around: &OnGrid<'_, M>) -> Option<RaisedFault> {
        if self.round.after != Some(around.replays) {
            (self.round.after, self.round.slots) = (Some(around.replays), 0);
            self.queue(around.grid, around.replays);
            self.admit(params, around);
        }
        let RoundFaults { next, slots, .. } = &mut self.round;
        let next = next.as_mut()?;
        *slots += u64::from(next.takes_a_turn()) + 1;
        let fault = next.fault;
        if next.left > 1 {
            next.left -= 1;
            next.come = (next.come + 1) % next.of_warp;
        } else {
            self.admit(params, around);
        }
        Some(fault)
    }
}

impl NextFaults {
    /// Whether a turn comes before the next of them: a warp's access takes one before its faults.
    fn takes_a_turn(&self) -> bool {
        self.come == 0
    }
}
