//! Runs a fragment of a warp, instruction by instruction.

use super::access::{Blocked, Reach, Trap};
use super::block::{Column, Common, Shape};
use super::entrance::Entrance;
use super::host::Host;
use super::pieces::Pieces;
use super::registers::{Results, lanes_and_lines, leave_lines};
use super::report::Cause;
use super::warp::{Fragment, SPIN, State, Warp};
use crate::code::{Barrier, Code, Line, Op, Program, Special, UNGUARDED, WIDTH};
use crate::math::product::Room;

/// The rules of a run that instructions look at.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) shape: Shape,
    /// The most bytes of local memory of a thread.
    pub(super) local_limit: u32,
    /// Whether the machine has the instructions of the wide forms.
    pub(super) wide_vectors: bool,
}

/// All that a warp reaches while it runs.
pub(super) struct Engine<'a> {
    pub(super) program: &'a Program,
    pub(super) rules: &'a Rules,
    pub(super) reach: Reach<'a>,
    pub(super) host: &'a mut dyn Host,
    /// Room for products of matrices, once there is one.
    pub(super) room: &'a mut Option<Box<Room>>,
    /// `None` if all is interpreted.
    pub(super) pieces: Option<Pieces<'a>>,
    /// The reason that an instruction of a piece stopped, until the piece is left.
    pub(super) blocked: Option<Blocked>,
}

/// The effect of an instruction on its fragment.
pub(super) enum Next {
    /// It goes on with the next instruction.
    Go,
    /// It goes on elsewhere: the fragment's position is set.
    Jump,
    /// It stops for now: the fragment's state is set.
    Stop,
    /// Its lanes have ended.
    End,
}

/// How a warp's turn went by compiled pieces, and how many instructions they executed.
pub(super) enum ByPieces {
    /// The turn is over.
    Turn(u32),
    /// The interpreter goes on with it.
    Rest(u32),
    /// The kernel ends by an instruction.
    Trap(u32, (u32, Box<Trap>)),
}

/// How a warp's turn ended.
pub(super) struct Turn {
    pub(super) executed: u64,
    /// The end of the kernel, and its instruction.
    pub(super) trap: Option<(u32, Box<Trap>)>,
}

impl Turn {
    /// A turn after which the kernel goes on.
    #[inline(always)]
    pub(super) fn of(executed: u32) -> Self {
        Self { executed: executed.into(), trap: None }
    }
}

impl<'a> Engine<'a> {
    /// Runs a warp for up to `quantum` instructions, or few where all warps of the block go on evenly.
    #[inline(always)]
    pub(super) fn turn(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warp: &mut Warp,
        quantum: u32,
    ) -> Turn {
        let is_short =
            common.wake(warp) && warp.fragments.iter().any(|f| self.program.goes_evenly(f.pc));
        let quantum = entrance.begin_turn(is_short, quantum);
        let by = self.by_pieces(entrance, common, warp, quantum);
        self.go_on(entrance, common, warp, (quantum, by))
    }

    /// The rest of a turn that began by pieces.
    #[inline(always)]
    pub(super) fn go_on(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warp: &mut Warp,
        (quantum, by): (u32, ByPieces),
    ) -> Turn {
        match by {
            ByPieces::Turn(executed) => Turn::of(executed),
            ByPieces::Rest(spent) => self.rest(entrance, common, warp, (quantum, spent)),
            ByPieces::Trap(executed, trap) => Turn { executed: executed.into(), trap: Some(trap) },
        }
    }

    /// The rest of a turn, of which `spent` instructions are spent.
    #[inline(never)]
    fn rest(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warp: &mut Warp,
        (quantum, spent): (u32, u32),
    ) -> Turn {
        let mut left = quantum - spent;
        while left > 0 {
            let Some(mut fragment) = warp.pick() else { break };
            let slice = if warp.taking_turns() { left.min(256) } else { left };
            let mut spent = 0;
            let is_over = self.run(entrance, common, warp, &mut fragment, (slice, &mut spent));
            left = left.saturating_sub(spent.max(1));
            match is_over {
                Ok(true) => warp.give_back(fragment),
                Ok(false) => {
                    let waits = matches!(fragment.state, State::Barrier(_));
                    warp.fragments.push(fragment);
                    if waits && warp.fragments.len() == 1 {
                        break;
                    }
                }
                Err(blocked) => {
                    if let Some(trap) = self.block(common, warp, fragment, blocked) {
                        return Turn { executed: u64::from(quantum - left), trap: Some(trap) };
                    }
                }
            }
            // Its fragments may have arrived at a barrier one after the other, the last of all threads.
            let have_met = |warp: &Warp| warp.fragments.iter().any(|f| common.is_over(f.state));
            if left == 0 || warp.fragments.len() > 1 && have_met(warp) {
                break;
            }
            match self.by_pieces(entrance, common, warp, left) {
                ByPieces::Turn(spent) => return Turn::of(quantum - left + spent),
                ByPieces::Rest(spent) => left -= spent,
                ByPieces::Trap(spent, trap) => {
                    let executed = quantum - left + spent;
                    return Turn { executed: executed.into(), trap: Some(trap) };
                }
            }
        }
        Turn::of(quantum - left)
    }

    /// A fragment does not go on: an access waits, or the kernel ends by the instruction.
    #[cold]
    pub(super) fn block(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        mut fragment: Box<Fragment>,
        blocked: Blocked,
    ) -> Option<(u32, Box<Trap>)> {
        match blocked {
            Blocked::Memory => {
                // It is executed once the bytes are there.
                self.reach.counts.note(fragment.pc + 1, fragment.pc);
                let threads = u64::from(fragment.mask.count_ones());
                self.reach.stats.thread_instructions -= threads;
                self.look_ahead(common, warp, &fragment);
                fragment.state = State::Memory;
                warp.fragments.push(fragment);
                None
            }
            Blocked::Trap(trap) => Some((fragment.pc, trap)),
        }
    }

    /// Runs a fragment until it stops, meets another, or has spent its instructions. True if its
    /// lanes have ended.
    #[inline(never)]
    fn run(
        &mut self,
        entrance: &mut Entrance<'a>,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        (slice, spent): (u32, &mut u32),
    ) -> Result<bool, Blocked> {
        let program = self.program;
        let mut meeting = warp.meeting(fragment);
        let (mut mask, mut threads) = (0, 0);
        while *spent < slice {
            if fragment.pc >= meeting {
                let turns = warp.taking_turns();
                warp.merge(fragment);
                if !turns
                    && warp.fragments.iter().any(|f| f.state == State::Ready && f.pc < fragment.pc)
                {
                    return Ok(false);
                }
                meeting = warp.meeting(fragment);
            }
            // Few machines count bits as fast as they compare.
            if fragment.mask != mask {
                (mask, threads) = (fragment.mask, u64::from(fragment.mask.count_ones()));
            }
            let is_whole = mask == u32::MAX && warp.fragments.is_empty() && fragment.is_kernel();
            // Pieces were tried where the run begins.
            if is_whole && *spent > 0 && self.may_enter(fragment.pc) {
                return Ok(false);
            }
            if !is_whole && self.by_part(entrance, common, warp, fragment, (slice, spent))? {
                // It may have come apart.
                meeting = meeting.min(warp.meeting(fragment));
                continue;
            }
            let mut end = fragment.pc.saturating_add(slice - *spent).min(meeting);
            if fragment.is_kernel() {
                end = end.min(self.next_piece(is_whole, fragment.pc));
            }
            let begin = fragment.pc;
            let straight = self.straight(common, warp, fragment, end);
            let is_over = straight.is_ok() && fragment.pc >= end;
            let executed = fragment.pc - begin + u32::from(!is_over);
            *spent += executed;
            self.reach.counts.note(begin, begin + executed);
            self.reach.stats.thread_instructions += u64::from(executed) * threads;
            straight?;
            if is_over {
                continue;
            }
            let op = &program.ops[fragment.pc as usize];
            let mask = guarded(op, mask, || {
                warp.predicates[fragment.frame.predicates as usize + usize::from(op.guard)]
            });
            if mask == 0 {
                fragment.pc += 1;
                continue;
            }
            match op.code {
                Code::Barrier { kind: Barrier::Sync, counted } if mask == fragment.mask => {
                    leave_lines(program, warp, fragment, op, mask);
                    fragment.alone = false;
                    // It does not go on at once: the turn looks whether the barrier is complete.
                    self.barrier(common, warp, fragment, op, (Barrier::Sync, counted));
                    return Ok(false);
                }
                _ => {}
            }
            if let Code::Branch(target) = op.code {
                if mask == fragment.mask {
                    self.jump(warp, fragment, target);
                } else {
                    self.split(warp, fragment, mask, target);
                }
                if !warp.fragments.is_empty() {
                    if warp.fragments.iter().any(|f| precedes(f, fragment)) && !warp.taking_turns()
                    {
                        return Ok(false);
                    }
                    meeting = warp.meeting(fragment);
                }
                continue;
            }
            leave_lines(program, warp, fragment, op, mask);
            match self.other(common, warp, fragment, op, mask)? {
                Next::Go => fragment.pc += 1,
                Next::Jump => {
                    if !warp.fragments.is_empty() {
                        return Ok(fragment.mask == 0);
                    }
                    meeting = u32::MAX;
                }
                Next::Stop => return Ok(false),
                Next::End => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Runs instructions of registers, loads and stores from the fragment's position on, before `end`,
    /// up to one of another kind.
    fn straight(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        end: u32,
    ) -> Result<(), Blocked> {
        let program = self.program;
        let is_kernel = fragment.is_kernel();
        loop {
            if is_kernel {
                calculate::<true>(program, warp, fragment, end);
            } else {
                calculate::<false>(program, warp, fragment, end);
            }
            if fragment.pc >= end {
                return Ok(());
            }
            let op = &program.ops[fragment.pc as usize];
            let (access, is_load) = match op.code {
                Code::Load(access) if !access.shared || warp.fragments.is_empty() => (access, true),
                Code::Store(access) => (access, false),
                _ => return Ok(()),
            };
            let mask = guarded(op, fragment.mask, || {
                warp.predicates[fragment.frame.predicates as usize + usize::from(op.guard)]
            });
            if mask != 0 && is_load {
                self.load(common, warp, fragment, op, access, mask)?;
            } else if mask != 0 {
                self.store(common, warp, fragment, op, access, mask)?;
            }
            fragment.pc += 1;
        }
    }

    /// All lanes jump.
    #[inline(always)]
    pub(super) fn jump(&mut self, warp: &Warp, fragment: &mut Fragment, target: u32) {
        if target <= fragment.pc && !warp.fragments.is_empty() {
            fragment.spin += 1;
        }
        fragment.pc = target;
    }

    /// The lanes of the mask jump, and the others go on. The fragment becomes the one with the lower
    /// position.
    fn split(&mut self, warp: &mut Warp, fragment: &mut Fragment, mask: u32, target: u32) {
        let mut other = fragment.split_off(mask, fragment.pc + 1);
        self.jump(warp, fragment, target);
        if other.pc < fragment.pc {
            std::mem::swap(&mut other, fragment);
        }
        warp.add(other);
    }

    /// Keeps only the lanes of the mask in the fragment; the others go on behind the instruction.
    pub(super) fn only(&mut self, warp: &mut Warp, fragment: &mut Fragment, mask: u32) {
        if mask != fragment.mask {
            let others = fragment.split_off(mask, fragment.pc + 1);
            warp.add(others);
        }
    }

    pub(super) fn other(
        &mut self,
        common: &mut Common,
        warp: &mut Warp,
        fragment: &mut Fragment,
        op: &Op,
        mask: u32,
    ) -> Result<Next, Blocked> {
        match op.code {
            Code::Load(access) => {
                if access.shared && !warp.fragments.is_empty() {
                    fragment.spin += SPIN;
                }
                self.load(common, warp, fragment, op, access, mask)?;
            }
            Code::Atomic(atomic) => {
                fragment.spin += SPIN;
                self.atomic(common, warp, fragment, op, atomic, mask)?;
            }
            Code::AtomicPair(atomic) => {
                fragment.spin += SPIN;
                self.atomic_pair(common, warp, fragment, op, atomic, mask)?;
            }
            Code::Special(special) => self.special(common, warp, fragment, op, special, mask),
            Code::FrameAddress { wide } => {
                let base = u64::from(fragment.frame.local).wrapping_add(op.imm);
                let mut results = Results::of(self.program, warp, fragment, mask);
                if wide {
                    results.set_double(op.d[0], Line::same(base));
                } else {
                    results.set_word(op.d[0], Line::same(base as u32));
                }
            }
            Code::Fence | Code::Sleep => {
                if matches!(op.code, Code::Sleep) {
                    fragment.spin += SPIN;
                }
            }
            Code::Trap => return Err(Blocked::trap(first(mask), None, Cause::Trap)),
            Code::Exit
            | Code::Return
            | Code::Call(_)
            | Code::CallIndirect(_)
            | Code::BranchTable(_) => {
                return self.control(common, warp, fragment, op, mask);
            }
            Code::Alloca | Code::StackSave | Code::StackRestore => {
                self.stack(warp, fragment, op, mask)?
            }
            Code::Service(service) => {
                self.service(common, warp, fragment, op, service, mask)?;
                self.reach.renew();
            }
            Code::Copy { bytes, sized } => {
                self.copy(common, warp, fragment, op, (bytes, sized), mask)?
            }
            Code::Bulk(bulk) => self.bulk(common, warp, fragment, op, bulk, mask)?,
            Code::Mbarrier { what, place } => {
                fragment.spin += SPIN;
                self.mbarrier(common, warp, fragment, op, (what, place), mask)?;
            }
            _ => return self.together(common, warp, fragment, op, mask),
        }
        Ok(Next::Go)
    }

    pub(super) fn special(
        &mut self,
        common: &Common,
        warp: &mut Warp,
        fragment: &Fragment,
        op: &Op,
        special: Special,
        mask: u32,
    ) {
        let (now, index) = (self.reach.stats.warp_instructions, warp.index);
        let mut results = Results::of(self.program, warp, fragment, mask);
        let wide = match special {
            Special::Clock64 => now,
            Special::Grid => self.rules.shape.grid_id,
            Special::GlobalTimer => self.host.nanoseconds(now),
            Special::Thread(axis) => {
                let coordinates = &self.rules.shape.coordinates[index as usize];
                return results.set_column(op.d[0], &coordinates[usize::from(axis)]);
            }
            other => {
                let same = match other {
                    Special::Clock => Some(now as u32),
                    Special::ClockHigh => Some((now >> 32) as u32),
                    Special::GlobalTimerLow => Some(self.host.nanoseconds(now) as u32),
                    Special::GlobalTimerHigh => Some((self.host.nanoseconds(now) >> 32) as u32),
                    other => common.same_for_all(&self.rules.shape, index, other),
                };
                return match same {
                    Some(same) => results.set_word(op.d[0], Line::same(same)),
                    None => results
                        .set_column(op.d[0], &Column::of(other.of_lane().unwrap_or_default())),
                };
            }
        };
        results.set_double(op.d[0], Line::same(wide));
    }
}

/// Runs the instructions of registers only from the fragment's position on, before `end`. `LINES` says
/// that the fragment is in the kernel itself, so that its registers may hold lines.
#[inline(always)]
pub(super) fn calculate<const LINES: bool>(
    program: &Program,
    warp: &mut Warp,
    fragment: &mut Fragment,
    end: u32,
) {
    let from = fragment.pc as usize;
    let ops = &program.ops[from..(end as usize).min(program.ops.len())];
    if !matches!(ops.first(), Some(Op { code: Code::Pure(_), .. })) {
        return;
    }
    let (mut lanes, lines) = lanes_and_lines(program, warp, &fragment.frame, fragment.mask);
    let (mut calculated, mut held) = (0, lines.held);
    for op in ops {
        let Code::Pure(run) = &op.code else { break };
        calculated += 1;
        let mask = guarded(op, fragment.mask, || lanes.predicate(op.guard));
        if mask == 0 {
            continue;
        }
        lanes.mask = mask;
        if LINES {
            if held.all(op.reads)
                && mask == u32::MAX
                && let Some(on_lines) = run.on_lines
                && on_lines(lines, &mut lanes, op)
            {
                held.keep(op.writes);
                continue;
            }
            lines.leave(&mut held, &mut lanes, [op.reads, op.writes], mask);
        }
        (run.on_lanes)(&mut lanes, op);
    }
    lines.held = held;
    fragment.pc += calculated;
}

/// The lanes of a mask that execute an instruction, by its predicate.
#[inline(always)]
pub(super) fn guarded(op: &Op, mask: u32, predicate: impl FnOnce() -> u32) -> u32 {
    match (op.guard, op.negated) {
        (UNGUARDED, _) => mask,
        (_, false) => mask & predicate(),
        (_, true) => mask & !predicate(),
    }
}

/// Whether a fragment that can run is behind another.
fn precedes(other: &Fragment, fragment: &Fragment) -> bool {
    other.state == State::Ready
        && (usize::MAX - other.stack.len(), other.pc)
            < (usize::MAX - fragment.stack.len(), fragment.pc)
}

/// The first lane of a mask.
pub(super) fn first(mask: u32) -> usize {
    mask.trailing_zeros() as usize % WIDTH
}
