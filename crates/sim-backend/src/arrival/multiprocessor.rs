//! One multiprocessor: the units that it holds, and the faults that they raise.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "faults, lines and turns are counted; a unit only goes on from where it waits"
)]

use super::faults::RaisedFault;
use super::grid::{Grid, Missing, Nearby, Position, Unit, WARP};
use super::params::ArrivalParams;
use super::rounds::{Around, Raises, Timing};
use super::sectors::Sectors;

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
    /// Whether it got here since the last replay.
    moved: bool,
}

/// One multiprocessor.
#[derive(Debug, Clone, Default)]
pub(super) struct Multiprocessor {
    units: Vec<Waiting>,
    timing: Timing,
    round: RoundFaults,
}

/// The faults of one round, in order, made as they are asked for.
#[derive(Debug, Clone, Default)]
struct RoundFaults {
    /// Units by the order in which they fault, and where each is.
    queue: Vec<(u32, Position)>,
    /// The next one in the queue.
    turn: usize,
    /// Where those that do not wait go on, once the queue is through.
    ahead: Vec<(u32, Position)>,
    /// Accesses that those in the queue wait for.
    ahead_by: u64,
    sectors: Sectors,
    /// The warp that faulted last, by its unit and where that was.
    warp: Option<(u32, Position)>,
    /// The fault that comes next, if there is one.
    next: Option<NextFaults>,
    raised: u64,
    /// Turns taken.
    slots: u64,
}

/// Faults of a unit on a page that are still to come.
#[derive(Debug, Clone, Copy)]
struct NextFaults {
    fault: RaisedFault,
    left: u64,
    /// Faults of one of its warps, and those of the warp at hand that have come.
    of_warp: u64,
    come: u64,
    /// Accesses that the unit waits for before this one.
    ahead: u64,
    is_write: bool,
}

impl Multiprocessor {
    /// Thread blocks that are not through.
    pub(super) fn blocks(&self) -> usize {
        self.units.chunk_by(|a, b| a.block == b.block).count()
    }

    /// Takes a thread block. Returns whether it faults anywhere; if not, it is through. `draw`
    /// gives a random number below its argument.
    pub(super) fn take(
        &mut self,
        block: u64,
        grid: &Grid,
        missing: &impl Missing,
        mut draw: impl FnMut(u64) -> u64,
    ) -> bool {
        let before = self.units.len();
        let units: Vec<Unit> = grid.units(block).collect();
        for turn in units.chunks(PARTITIONS * TURN) {
            for partition in partition_order(&mut draw) {
                let own = turn.iter().skip(partition).step_by(PARTITIONS);
                self.units.extend(own.filter_map(|unit| {
                    let at = grid.seek(unit, Position::default(), missing)?;
                    let (_, page, _) = grid.page(unit, at)?;
                    let walk = grid.walk(at);
                    Some(Waiting { unit: *unit, block, at, page, walk, moved: true })
                }));
            }
        }
        self.units.len() > before
    }

    /// Lets units go on to their next access that faults. Returns whether one did.
    pub(super) fn run(&mut self, grid: &Grid, missing: &impl Missing) -> bool {
        let mut progress = false;
        self.units.retain_mut(|waiting| {
            waiting.moved = false;
            if !missing.may_have_come(waiting.page) || missing.contains(waiting.walk, waiting.page)
            {
                return true;
            }
            progress = true;
            let Some(at) = grid.seek(&waiting.unit, waiting.at, missing) else { return false };
            let Some((_, page, _)) = grid.page(&waiting.unit, at) else { return false };
            let place = |at: Position| (at.iteration, at.part);
            waiting.moved = place(at) != place(waiting.at);
            (waiting.at, waiting.page, waiting.walk) = (at, page, grid.walk(at));
            true
        });
        progress
    }

    /// Queues the units: those that stayed where they were fault before those that moved.
    fn queue(&mut self) {
        let RoundFaults { queue, turn, ahead, sectors, .. } = &mut self.round;
        queue.clear();
        for moved in [false, true] {
            let units = self.units.iter().enumerate().filter(|(_, w)| w.moved == moved);
            queue.extend(units.map(|(index, waiting)| (index as u32, waiting.at)));
        }
        ahead.clear();
        sectors.clear();
        *turn = 0;
        self.round.ahead_by = 0;
        self.round.warp = None;
    }

    /// The next faults that the multiprocessor has room for.
    fn admitted(
        &mut self,
        params: &ArrivalParams,
        grid: &Grid,
        missing: &impl Missing,
    ) -> Option<NextFaults> {
        loop {
            let next = self.next_fault(grid, missing)?;
            if !self.round.sectors.admits(params, next.fault.page) {
                return None;
            }
            let most = u64::from(params.page_writes);
            let left = match next.is_write {
                true => self.round.sectors.take_room(next.fault.page, next.left, most),
                false => next.left,
            };
            if left > 0 {
                return Some(NextFaults { left, ..next });
            }
        }
    }

    /// The next page that a unit misses, and its faults on it.
    fn next_fault(&mut self, grid: &Grid, missing: &impl Missing) -> Option<NextFaults> {
        let round = &mut self.round;
        loop {
            let Some((index, at)) = round.queue.get_mut(round.turn) else {
                if round.ahead.is_empty() {
                    return None;
                }
                std::mem::swap(&mut round.queue, &mut round.ahead);
                round.ahead.clear();
                (round.turn, round.ahead_by) = (0, round.ahead_by + 1);
                continue;
            };
            let waiting = &self.units[*index as usize];
            if let Some((behind, page, lines)) = grid.page(&waiting.unit, *at) {
                let walk = grid.walk(*at);
                let warps = (behind.lane - at.lane).div_ceil(WARP);
                let warp_of = |lane: u64| Some((*index, Position { lane: lane / WARP, ..*at }));
                let (first, last) = (warp_of(at.lane), warp_of(behind.lane - 1));
                let from = std::mem::replace(at, behind);
                if missing.contains(walk, page) {
                    let goes_on = round.warp == first;
                    round.warp = last;
                    return Some(NextFaults {
                        fault: RaisedFault { page, walk },
                        left: lines,
                        of_warp: (lines / warps.max(1)).max(1),
                        come: u64::from(goes_on),
                        ahead: round.ahead_by,
                        is_write: grid.is_write(from),
                    });
                }
                continue;
            }
            round.turn += 1;
            if grid.may_run_ahead(*at)
                && let Some(next) = grid.seek(&waiting.unit, *at, missing)
                && grid.runs_ahead(*at, next)
                && next.iteration - waiting.at.iteration <= AHEAD_MAX
            {
                round.ahead.push((*index, next));
            }
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

/// A grid and the pages that its kernel misses.
pub(super) struct OnGrid<'a, M> {
    pub(super) grid: &'a Grid,
    pub(super) missing: &'a M,
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
        !self.units.is_empty()
    }

    fn timing(&mut self) -> &mut Timing {
        &mut self.timing
    }

    fn begin(&mut self) {
        (self.round.raised, self.round.slots, self.round.next) = (0, 0, None);
    }

    fn first_fault(&self) -> Option<RaisedFault> {
        self.units.first().map(|&Waiting { page, walk, .. }| RaisedFault { page, walk })
    }

    fn first_page(&mut self, around: &OnGrid<'_, M>) -> Option<u64> {
        self.queue();
        self.next_fault(around.grid, around.missing).map(|next| next.fault.page)
    }

    fn next_ns(&self, params: &ArrivalParams, around: &OnGrid<'_, M>) -> u64 {
        let next = self.round.next;
        let nth = next.map_or(0, |next| self.round.slot_of(next));
        let ahead = next.map_or(0, |next| next.ahead);
        let delay_ns = delay_ns(params, around.grid.turn_ns(), nth, ahead);
        self.timing.start_ns.saturating_add(delay_ns)
    }

    fn raise(&mut self, params: &ArrivalParams, around: &OnGrid<'_, M>) -> Option<RaisedFault> {
        let OnGrid { grid, missing } = *around;
        if self.round.raised == 0 {
            self.queue();
            self.round.next = self.admitted(params, grid, missing);
        }
        let next = self.round.next?;
        self.round.slots = self.round.slot_of(next) + 1;
        self.round.raised += 1;
        let come = (next.come + 1) % next.of_warp;
        self.round.next = match next.left {
            ..=1 => self.admitted(params, grid, missing),
            left => Some(NextFaults { left: left - 1, come, ..next }),
        };
        Some(next.fault)
    }
}

/// From the start of a multiprocessor to the fault in its turn `nth`, `ahead` accesses of its warp
/// after one that waits. Turns of a wave are `turn_ns` apart.
pub(super) fn delay_ns(params: &ArrivalParams, turn_ns: u64, nth: u64, ahead: u64) -> u64 {
    let first = u64::from(params.wave_slots[0]);
    let both = first + u64::from(params.wave_slots[1]);
    let delay_ns = if nth < first {
        turn_ns.saturating_mul(nth)
    } else if nth < both {
        params.wave_ns.saturating_add(turn_ns.saturating_mul(nth - first))
    } else {
        let others_ns = (nth - both).saturating_mul(params.fault_ns);
        params.wave_ns.saturating_mul(2).saturating_add(others_ns)
    };
    let written_ns = ahead.checked_sub(1).map_or(0, |before| {
        params.wave_ns.saturating_mul(2).saturating_add(params.write_ns.saturating_mul(before))
    });
    delay_ns.max(written_ns)
}

impl RoundFaults {
    /// The turn at which a fault comes. A warp's access takes a turn before its faults.
    fn slot_of(&self, next: NextFaults) -> u64 {
        self.slots + u64::from(next.come == 0)
    }
}
