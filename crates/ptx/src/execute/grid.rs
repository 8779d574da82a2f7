//! A run of a grid: blocks become resident, their warps take turns.

use std::sync::Arc;

use super::access::{Reach, Trap};
use super::block::{Block, Common};
use super::count::{Counts, InstructionCounts};
use super::engine::{Engine, Rules};
use super::host::Host;
use super::launch::Config;
use super::memory::{Memory, Outstanding};
use super::pieces::Pieces;
use super::report::{Cause, Report, Stats, Step};
use super::slots::Slots;
use super::turns::{Cursor, Stopped, Turns};
use super::warp::{Bytes, State, Warp};
use super::windows::Kept;
use crate::code::WIDTH;
use crate::jit::{Compiled, Sites};
use crate::math::product::Room;
use crate::module::{Kernel, Parameter};

/// For so many instructions of warps a kernel goes on at most after an illegal address: some of its
/// warps may wait for one that was halted. A GPU ends such a kernel after about 0.1 s.
const AFTER_FAULT: u64 = 1 << 26;

/// A kernel that runs.
pub struct Run {
    kernel: Kernel,
    rules: Rules,
    quantum: u32,
    limit: Option<u64>,
    params: Bytes,
    param_bytes: u32,
    slots: Slots,
    /// The warp that stands for those of blocks that run at once. It is large, and most launches of small
    /// grids need none.
    sample: Option<Box<Warp>>,
    kept: Kept,
    /// Room for products of matrices, once there is one.
    room: Option<Box<Room>>,
    outstanding: Vec<Outstanding>,
    stats: Stats,
    counts: Counts,
    compile_after: Option<u32>,
    /// The pieces of the kernel for launches of this size.
    compiled: Arc<Compiled>,
    /// The memory that the accesses of compiled pieces found last.
    sites: Sites,
    cursor: Cursor,
    /// The first illegal address, and the count of instructions at which the kernel ends at latest.
    fault: Option<(Box<Report>, u64)>,
    end: Option<Box<Report>>,
}

/// The sizes of a launch: its block, and the parameters that are too short for an address.
fn sizes_of(kernel: &Kernel, rules: &Rules, params: &[u8]) -> Vec<u32> {
    let short = kernel.info.params.iter().filter(|param| param.bytes <= 4);
    let value = |param: &Parameter| {
        let bytes = params.iter().skip(param.offset as usize).take(param.bytes as usize);
        bytes.rev().fold(0, |all, byte| all << 8 | u32::from(*byte))
    };
    rules.shape.block.into_iter().chain(short.map(value)).collect()
}

impl std::fmt::Debug for Run {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Run")
            .field("kernel", &self.kernel.info.name)
            .field("blocks", &self.slots.blocks())
            .field("started", &self.slots.started())
            .field("resident", &self.slots.resident())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Run {
    /// A run of so many blocks, of which so many are resident at a time. `params` and `shared` are the bytes
    /// of the launch's parameters, and how many bytes of shared memory a block has.
    pub(super) fn new(
        kernel: &Kernel,
        rules: Rules,
        (params, shared): (&[u8], u32),
        blocks: (u64, u32),
        config: &Config,
    ) -> Self {
        let mut bytes = Bytes::default();
        bytes.fill(params);
        let compiled = kernel.compiled.of(sizes_of(kernel, &rules, params));
        let shared = (shared, kernel.program.writes_shared);
        let slots = Slots::new(blocks, &rules.shape, shared, config.seed);
        Self {
            kernel: kernel.clone(),
            rules,
            quantum: config.quantum.max(1),
            limit: config.instruction_limit,
            params: bytes,
            param_bytes: params.len() as u32,
            slots,
            sample: None,
            kept: Kept::default(),
            room: None,
            outstanding: Vec::new(),
            stats: Stats::default(),
            counts: Counts::new(&kernel.program),
            compile_after: config.compile_after,
            compiled,
            sites: Default::default(),
            cursor: Cursor::default(),
            fault: None,
            end: None,
        }
    }

    /// Runs until the grid is complete, every warp waits, the kernel ends early, or about `budget`
    /// instructions of warps are executed.
    ///
    /// A step after the end gives the end again.
    pub fn step(&mut self, memory: &mut dyn Memory, host: &mut dyn Host, budget: u64) -> Step {
        if let Some(report) = &self.end {
            return Step::Trap(report.clone());
        }
        self.slots.fill(&self.rules.shape);
        // Warps that waited try again first. Without them, the next one has its turn as if without a pause.
        if !self.outstanding.is_empty() {
            self.cursor.go_to(0);
            self.cursor.progress = false;
        }
        self.forget_memory();
        self.wake();
        let target = self.stats.warp_instructions.saturating_add(budget);
        loop {
            if self.slots.resident() == 0 {
                return Step::Done(self.stats);
            }
            if self.cursor.block >= self.slots.resident() {
                let progress = std::mem::replace(&mut self.cursor.progress, false);
                self.cursor.go_to(0);
                if !progress && !self.outstanding.is_empty() {
                    return Step::Waiting;
                }
                if !progress {
                    let fault = self.fault.take().map(|(report, _)| report);
                    let report = fault.unwrap_or_else(|| self.deadlock());
                    return self.ended(report);
                }
            }
            if let Some(report) = self.turns(memory, host, target) {
                return self.ended(report);
            }
            if self.stats.warp_instructions >= target {
                return if self.slots.resident() == 0 {
                    Step::Done(self.stats)
                } else {
                    Step::Paused
                };
            }
        }
    }

    /// The accesses that wait, in the order of their instructions. The next step repeats them.
    #[must_use]
    pub fn outstanding(&self) -> &[Outstanding] {
        &self.outstanding
    }

    /// How many blocks of the grid have become resident so far.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.slots.started()
    }

    /// The figures so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The instructions so far, by class.
    #[must_use]
    pub fn instructions(&self) -> InstructionCounts {
        self.counts.by_class(&self.kernel.program)
    }

    /// The kernel.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Memory may have changed: the windows of the last step hold no more.
    pub(super) fn forget_memory(&mut self) {
        self.outstanding.clear();
        self.kept.forget();
    }

    /// Whether the grid ends after some count of instructions.
    pub(super) fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// A resident block that has begun.
    pub(super) fn block(&self, index: usize) -> Option<&Block> {
        self.slots.get(index)
    }

    /// The resident blocks, all of which have begun; `None` if one has not.
    pub(super) fn begun(&self) -> Option<Vec<&Block>> {
        self.slots.each().collect()
    }

    /// One warp executes one instruction. Returns whether the grid goes on.
    pub(super) fn single(
        &mut self,
        at: (usize, usize),
        memory: &mut dyn Memory,
        host: &mut dyn Host,
    ) -> bool {
        let before = (self.quantum, self.cursor);
        let blocks = |run: &Self| (run.slots.started(), run.slots.resident());
        let blocks_before = blocks(self);
        (self.quantum, self.cursor.block, self.cursor.warp) = (1, at.0, at.1);
        let report = self.turns(memory, host, 0);
        let progress = self.cursor.progress;
        (self.quantum, self.cursor) = before;
        self.cursor.progress = progress;
        if blocks(self) != blocks_before {
            self.cursor.go_to(0);
        }
        report.map(|report| self.ended(report)).is_none()
    }

    /// Fragments that wait for memory try again.
    fn wake(&mut self) {
        let warps = self.slots.begun_mut().flat_map(|block| &mut block.warps);
        for fragment in warps.flat_map(|warp| &mut warp.fragments) {
            if fragment.state == State::Memory {
                fragment.state = State::Ready;
            }
        }
    }

    /// Turns of the next warps of a block, and of the blocks that take its place, until one of them is through
    /// or `target` instructions of warps are executed. Gives the report if the kernel ends by it.
    fn turns(
        &mut self,
        memory: &mut dyn Memory,
        host: &mut dyn Host,
        target: u64,
    ) -> Option<Box<Report>> {
        let stopped = self.turns_of_blocks(memory, host, target);
        let Cursor { block: index, warp, .. } = self.cursor;
        if let Some(Stopped { trap: (pc, trap), waiting }) = stopped {
            let Trap { lane, address, cause } = *trap;
            let halts_warp = matches!(cause, Cause::IllegalAddress { .. });
            let report = Box::new(self.report(index, warp, pc, lane, address, cause));
            if !halts_warp {
                return Some(report);
            }
            self.outstanding.truncate(waiting);
            self.halt(index, warp, report);
        }
        if let Some((report, last)) = &self.fault
            && self.stats.warp_instructions >= *last
        {
            return Some(report.clone());
        }
        let block = self.slots.get(index)?;
        if self.limit.is_some_and(|limit| self.stats.warp_instructions >= limit) {
            let pc = block.warps[warp].fragments.first().map_or(0, |f| f.pc);
            let report = self.report(index, warp, pc, 0, None, Cause::InstructionLimit);
            return Some(Box::new(report));
        }
        if block.common.live == 0 {
            self.slots.end(index, &self.rules.shape);
            self.cursor.end_block();
        } else if warp + 1 < block.warps.len() {
            self.cursor.warp += 1;
        } else if block.common.rounds != self.cursor.rounds {
            // Warps may go on behind a barrier, and their registers are at hand now.
            self.cursor.go_to(index);
        } else {
            self.cursor.go_to(index + 1);
        }
        None
    }

    /// The most instructions of the next turn.
    fn turn_length(&self) -> u32 {
        let left = self.limit.map(|limit| limit.saturating_sub(self.stats.warp_instructions));
        left.map_or(self.quantum, |left| u64::from(self.quantum).min(left).max(1) as u32)
    }

    /// Turns of the warps of a block, and of those that take its place, up to one after which more is to be
    /// done than to take the next warp or the next block.
    fn turns_of_blocks(
        &mut self,
        memory: &mut dyn Memory,
        host: &mut dyn Host,
        target: u64,
    ) -> Option<Stopped> {
        let watches = memory.watches_turns();
        let is_plain = self.limit.is_none() && self.fault.is_none();
        let turns = Turns { quantum: self.turn_length(), target, watches, is_plain };
        let (program, shape) = (&self.kernel.program, &self.rules.shape);
        let mut engine = Engine {
            program,
            rules: &self.rules,
            reach: Reach {
                memory,
                kept: &mut self.kept,
                params: &mut self.params,
                param_bytes: self.param_bytes,
                outstanding: &mut self.outstanding,
                stats: &mut self.stats,
                counts: &mut self.counts,
                nth: 0,
            },
            host,
            room: &mut self.room,
            pieces: self.compile_after.map(|after| Pieces {
                compiled: &self.compiled,
                after,
                sites: &mut self.sites,
            }),
            blocked: None,
        };
        let mut entrance = engine.entrance();
        let index = self.cursor.block;
        // Only now, so that a block that is through leaves its memory to the next.
        let mut next = self.slots.begin(index, program, shape);
        let stopped = loop {
            let waiting = engine.reach.outstanding.len();
            let Some((block, is_new)) = next else { break None };
            let cursor = &mut self.cursor;
            entrance.enter_block(&mut block.common);
            if is_new {
                cursor.warp = engine.begin_warps(&mut entrance, block, &mut self.sample, &turns);
                cursor.rounds = block.common.rounds;
            }
            let stopped = match block.common.live {
                0 => None,
                _ => engine.turns_of_block(&mut entrance, block, cursor, (&turns, waiting)),
            };
            let has_ended = block.common.live == 0;
            let may_go_on = is_plain && engine.reach.stats.warp_instructions < target;
            if stopped.is_some() || !has_ended || !may_go_on {
                break stopped;
            }
            next = if self.slots.takes_over(index, shape) {
                self.slots.get_mut(index).map(|block| (block, true))
            } else if self.slots.has_next(index) {
                self.slots.end(index, shape);
                self.slots.begin(index, program, shape)
            } else {
                break None;
            };
            self.cursor.end_block();
        };
        engine.settle(&mut entrance);
        stopped
    }

    /// An illegal address halts its warp. The kernel ends with the first report when no other warp
    /// can go on: so it is on an H200, where 16,376 of 16,384 blocks ended beside one that read
    /// nothing's memory, all but those of its multiprocessor.
    fn halt(&mut self, block: usize, warp: usize, report: Box<Report>) {
        if let Some(block) = self.slots.get_mut(block) {
            block.warps[warp].fragments.clear();
        }
        let last = self.stats.warp_instructions.saturating_add(AFTER_FAULT);
        self.fault.get_or_insert((report, last));
    }

    fn ended(&mut self, report: Box<Report>) -> Step {
        self.end = Some(report.clone());
        self.slots.clear();
        Step::Trap(report)
    }

    fn deadlock(&self) -> Box<Report> {
        let warps = self.slots.get(0).map_or(&[][..], |block| &block.warps);
        let warp = warps.iter().position(|warp| warp.live != 0).unwrap_or(0);
        let (pc, lane) = warps.get(warp).map_or((0, 0), |warp| {
            let pc = warp.fragments.first().map_or(0, |fragment| fragment.pc.saturating_sub(1));
            (pc, warp.live.trailing_zeros() as usize % WIDTH)
        });
        Box::new(self.report(0, warp, pc, lane, None, Cause::Deadlock))
    }

    fn report(
        &self,
        block: usize,
        warp: usize,
        pc: u32,
        lane: usize,
        address: Option<u64>,
        cause: Cause,
    ) -> Report {
        let origin = self.kernel.program.origins.get(pc as usize).copied().unwrap_or_default();
        let file =
            self.kernel.files.iter().find(|(index, _)| *index == origin.file && origin.file != 0);
        let block = self.slots.get(block).map_or([0; 3], |block| block.common.coordinates);
        Report {
            cause,
            kernel: self.kernel.info.name.clone(),
            line: origin.line,
            source: file.map(|(_, name)| (name.clone(), origin.source)),
            block,
            thread: Common::thread(&self.rules.shape, warp as u32, lane as u32),
            address,
        }
    }
}
