//! One multiprocessor: the units that it holds, and the faults that they raise.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "faults, lines and turns are counted; a unit only goes on from where it waits"
)]

use super::grid::{Grid, Missing, Position, Unit, WARP};
use super::params::ArrivalParams;

/// Pages of a sector (see [`ArrivalParams::sectors_per_multiprocessor`]).
const SECTOR_PAGES: u64 = 4;
/// Parts of a multiprocessor with a scheduler each; warps are dealt out to them in turn
/// (published: Hopper tuning guide).
const PARTITIONS: usize = 4;
/// Warps of one partition that come before those of another. Fitted.
const TURN: usize = 2;
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

/// A fault of a walk on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct RaisedFault {
    pub(crate) page: u64,
    /// The number of the walk.
    pub(crate) walk: usize,
}

/// One multiprocessor.
#[derive(Debug, Clone, Default)]
pub(super) struct Multiprocessor {
    units: Vec<Waiting>,
    /// When it begins to fault, after the replay.
    pub(super) start_ns: u64,
    /// Time that is left of the last start, if that was not reached.
    pub(super) carried_ns: Option<u64>,
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
    sectors: Vec<u64>,
    /// The warp that faulted last, by its unit and where that was.
    warp: Option<(u32, Position)>,
    /// The fault that comes next, if there is one.
    next: Option<NextFaults>,
    /// Faults raised on each page.
    on_pages: Vec<(u64, u64)>,
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
    /// Whether a unit waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.units.is_empty()
    }

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
            let mut order: [usize; PARTITIONS] = std::array::from_fn(|partition| partition);
            for last in (1..PARTITIONS).rev() {
                order.swap(last, draw(last as u64 + 1) as usize);
            }
            for partition in order {
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
            if missing.contains(waiting.walk, waiting.page) {
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

    /// Begins a round.
    pub(super) fn begin(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        (self.round.raised, self.round.slots, self.round.next) = (0, 0, None);
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
        self.round.on_pages.clear();
    }

    /// The fault of the first unit that waits.
    pub(super) fn first_fault(&self) -> Option<RaisedFault> {
        self.units.first().map(|&Waiting { page, walk, .. }| RaisedFault { page, walk })
    }

    /// When the next fault of this round is raised.
    pub(super) fn next_ns(&self, params: &ArrivalParams, grid: &Grid) -> u64 {
        let first = u64::from(params.wave_slots[0]);
        let both = first + u64::from(params.wave_slots[1]);
        let round = &self.round;
        let nth = round.next.map_or(0, |next| round.slot_of(next));
        let turn_ns = grid.turn_ns();
        let delay_ns = if nth < first {
            turn_ns.saturating_mul(nth)
        } else if nth < both {
            params.wave_ns.saturating_add(turn_ns.saturating_mul(nth - first))
        } else {
            let others_ns = (nth - both).saturating_mul(params.fault_ns);
            params.wave_ns.saturating_mul(2).saturating_add(others_ns)
        };
        let before = round.next.and_then(|next| next.ahead.checked_sub(1));
        let written_ns = before.map_or(0, |before| {
            params.wave_ns.saturating_mul(2).saturating_add(params.write_ns.saturating_mul(before))
        });
        let delay_ns = delay_ns.max(written_ns);
        self.start_ns.saturating_add(delay_ns)
    }

    /// The page of the first fault of a round that has begun.
    pub(super) fn first_page(&mut self, grid: &Grid, missing: &impl Missing) -> Option<u64> {
        self.queue();
        self.next_fault(grid, missing).map(|next| next.fault.page)
    }

    /// The next fault of this round.
    pub(super) fn raise(
        &mut self,
        params: &ArrivalParams,
        grid: &Grid,
        missing: &impl Missing,
    ) -> Option<RaisedFault> {
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

    /// The next faults that the multiprocessor has room for.
    fn admitted(
        &mut self,
        params: &ArrivalParams,
        grid: &Grid,
        missing: &impl Missing,
    ) -> Option<NextFaults> {
        loop {
            let next = self.next_fault(grid, missing)?;
            if !self.round.admits(params, next.fault.page) {
                return None;
            }
            let most = u64::from(params.page_writes);
            let left = match next.is_write {
                true => self.round.take_room(next.fault.page, next.left, most),
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

impl RoundFaults {
    /// The turn at which a fault comes. A warp's access takes a turn before its faults.
    fn slot_of(&self, next: NextFaults) -> u64 {
        self.slots + u64::from(next.come == 0)
    }

    /// The faults for which there is room on a page that may have so many.
    fn take_room(&mut self, page: u64, faults: u64, most: u64) -> u64 {
        let known = self.on_pages.iter().position(|(known, _)| *known == page);
        let at = known.unwrap_or(self.on_pages.len());
        if known.is_none() {
            self.on_pages.push((page, 0));
        }
        let on_page = &mut self.on_pages[at].1;
        let taken = faults.min(most.saturating_sub(*on_page));
        *on_page += taken;
        taken
    }

    /// Whether faults on a page are raised. If not, the multiprocessor is stuck.
    fn admits(&mut self, params: &ArrivalParams, page: u64) -> bool {
        let sector = page / SECTOR_PAGES;
        let known = self.sectors.contains(&sector);
        let room = self.sectors.len() < params.sectors_per_multiprocessor.max(1) as usize;
        if !known && room {
            self.sectors.push(sector);
        }
        known || room
    }
}
