//! A run of a grid: blocks become resident, their warps take turns.

use std::sync::Arc;

use super::access::{Reach, Trap};
use super::block::{Block, Buffers, Common};
use super::cluster::Cluster;
use super::count::{Counts, InstructionCounts};
use super::engine::{Engine, Rules};
use super::host::Host;
use super::launch::Config;
use super::memory::{Memory, Outstanding, Turn};
use super::pieces::Pieces;
use super::report::{Cause, Report, Stats, Step};
use super::warp::{Bytes, State};
use super::windows::Kept;
use crate::jit::{Compiled, Site};
use crate::math::product::Room;
use crate::module::{Kernel, Parameter};

/// For so many instructions of warps a kernel goes on at most after an illegal address: some of its
/// warps may wait for one that was halted. A GPU ends such a kernel after about 0.1 s.
const AFTER_FAULT: u64 = 1 << 26;

/// A kernel that runs.
#[expect(
    clippy::vec_box,
    reason = "a block leaves its list and another takes its place all the time"
)]
pub struct Run {
    kernel: Kernel,
    rules: Rules,
    quantum: u32,
    limit: Option<u64>,
    seed: u64,
    shared: u32,
    params: Bytes,
    param_bytes: u32,
    blocks: u64,
    started: u64,
    /// The slots of resident blocks that the first step fills. A launch that only repeats one before
    /// makes no step.
    slots_to_fill: u32,
    resident: Vec<Box<Block>>,
    /// The memory of blocks that have ended: their buffers, and their places.
    buffers: Vec<Buffers>,
    places: Vec<Box<Block>>,
    kept: Kept,
    /// Room for products of matrices, once there is one.
    room: Option<Box<Room>>,
    outstanding: Vec<Outstanding>,
    stats: Stats,
    counts: Counts,
    compile_after: Option<u32>,
    /// The pieces of the kernel for launches of this size.
    compiled: Arc<Compiled>,
    /// The windows of the accesses of compiled pieces.
    sites: Vec<Site>,
    /// The next block and warp, and whether a warp of this round has run.
    cursor: (usize, usize),
    progress: bool,
    /// The rounds of barriers that the block had completed when its first warp began its turn.
    rounds: u64,
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
            .field("blocks", &self.blocks)
            .field("started", &self.started)
            .field("resident", &self.resident.len())
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
        (blocks, slots): (u64, u32),
        config: &Config,
    ) -> Self {
        let mut bytes = Bytes::default();
        bytes.fill(params);
        let compiled = kernel.compiled.of(sizes_of(kernel, &rules, params));
        Self {
            kernel: kernel.clone(),
            rules,
            quantum: config.quantum.max(1),
            limit: config.instruction_limit,
            seed: config.seed,
            shared,
            params: bytes,
            param_bytes: params.len() as u32,
            blocks,
            started: 0,
            slots_to_fill: slots,
            resident: Vec::new(),
            buffers: Vec::new(),
            places: Vec::new(),
            kept: Kept::default(),
            room: None,
            outstanding: Vec::new(),
            stats: Stats::default(),
            counts: Counts::new(&kernel.program),
            compile_after: config.compile_after,
            compiled,
            sites: Vec::new(),
            cursor: (0, 0),
            progress: false,
            rounds: 0,
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
        self.fill_slots();
        // Warps that waited try again first. Without them, the next one has its turn as if without a pause.
        if !self.outstanding.is_empty() {
            (self.cursor, self.progress) = ((0, 0), false);
        }
        self.forget_memory();
        self.wake();
        let target = self.stats.warp_instructions.saturating_add(budget);
        loop {
            if self.resident.is_empty() {
                return Step::Done(self.stats);
            }
            if self.cursor.0 >= self.resident.len() {
                let progress = std::mem::replace(&mut self.progress, false);
                self.cursor = (0, 0);
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
                return if self.resident.is_empty() {
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
        self.started
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

    /// The resident blocks that have begun; `None` if one has not.
    pub(super) fn begun(&self) -> Option<impl ExactSizeIterator<Item = &Block>> {
        let blocks = self.resident.iter().map(Box::as_ref);
        blocks.clone().all(Block::has_begun).then_some(blocks)
    }

    /// One warp executes one instruction. Returns whether the grid goes on.
    pub(super) fn single(
        &mut self,
        at: (usize, usize),
        memory: &mut dyn Memory,
        host: &mut dyn Host,
    ) -> bool {
        let before = (self.quantum, self.cursor, self.rounds);
        let blocks = (self.started, self.resident.len());
        (self.quantum, self.cursor) = (1, at);
        let report = self.turns(memory, host, 0);
        (self.quantum, self.cursor, self.rounds) = before;
        if (self.started, self.resident.len()) != blocks {
            self.cursor = (0, 0);
        }
        report.map(|report| self.ended(report)).is_none()
    }

    /// Fragments that wait for memory try again.
    fn wake(&mut self) {
        for fragment in
            self.resident.iter_mut().flat_map(|b| &mut b.warps).flat_map(|w| &mut w.fragments)
        {
            if fragment.state == State::Memory {
                fragment.state = State::Ready;
            }
        }
    }

    /// The first blocks of the grid become resident.
    fn fill_slots(&mut self) {
        // Hardware gives each multiprocessor one block, and then each a second one.
        let each = self.rules.shape.cluster_size();
        for first in 0..std::mem::take(&mut self.slots_to_fill) / each {
            self.make_resident(first * each);
        }
    }

    /// The next block of the grid, or all blocks of the next cluster, become resident from a slot on.
    fn make_resident(&mut self, slot: u32) {
        if self.started == self.blocks {
            return;
        }
        let shape = &self.rules.shape;
        let each = shape.cluster_size();
        if each == 1 {
            let linear = scattered(self.started, self.blocks, self.seed);
            let mut block = self.places.pop().unwrap_or_default();
            block.place(linear, slot, shape.sms);
            self.resident.push(block);
        } else {
            let (next, all) = (self.started / u64::from(each), self.blocks / u64::from(each));
            let index = scattered(next, all, self.seed);
            let cluster = Arc::new(Cluster::new(slot, each, each * shape.threads));
            self.resident.extend((0..each).map(|rank| {
                let mut block = self.places.pop().unwrap_or_default();
                let linear = shape.linear(index, rank);
                block.place_in(&cluster, rank, linear, (slot + rank, shape.sms));
                block
            }));
        }
        self.started += u64::from(each);
    }

    /// A block begins, with all others of its cluster: they may access its memory from now on.
    fn begin_cluster(&mut self, index: usize) {
        let Some(cluster) = self.resident[index].common.cluster.clone() else {
            return self.begin_block(index);
        };
        for index in 0..self.resident.len() {
            let other = self.resident[index].common.cluster.as_ref();
            if other.is_some_and(|other| Arc::ptr_eq(other, &cluster)) {
                self.begin_block(index);
            }
        }
    }

    /// A block gets its registers and its shared memory.
    fn begin_block(&mut self, index: usize) {
        let buffers = self.buffers.pop().unwrap_or_default();
        let (program, shape) = (&self.kernel.program, &self.rules.shape);
        self.resident[index].begin(program, shape, self.shared, buffers);
    }

    /// Turns of the next warps of one block, until the block is through or `target` instructions of warps
    /// are executed. Gives the report if the kernel ends by it.
    fn turns(
        &mut self,
        memory: &mut dyn Memory,
        host: &mut dyn Host,
        target: u64,
    ) -> Option<Box<Report>> {
        let index = self.cursor.0;
        if !self.resident[index].has_begun() {
            // Only now, so that a block that is through leaves its buffers to the next.
            self.begin_cluster(index);
        }
        if let Some((trap, waiting)) = self.turns_of_block(memory, host, target) {
            let (pc, trap) = trap;
            let Trap { lane, address, cause } = *trap;
            let warp = self.cursor.1;
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
        if self.limit.is_some_and(|limit| self.stats.warp_instructions >= limit) {
            let warp = self.cursor.1;
            let pc = self.resident[index].warps[warp].fragments.first().map_or(0, |f| f.pc);
            let report = self.report(index, warp, pc, 0, None, Cause::InstructionLimit);
            return Some(Box::new(report));
        }
        if self.resident[index].common.live == 0 {
            let mut ended = self.resident.swap_remove(index);
            let free = ended.common.free_slot();
            self.buffers.push(ended.take_buffers());
            self.places.push(ended);
            if let Some(slot) = free {
                self.make_resident(slot);
            }
            self.cursor.1 = 0;
            self.progress = true;
        } else {
            self.cursor = self.after(self.cursor);
        }
        None
    }

    /// The place of the warp that is next.
    fn after(&self, (index, warp): (usize, usize)) -> (usize, usize) {
        let block = &self.resident[index];
        if warp + 1 < block.warps.len() {
            (index, warp + 1)
        } else if block.common.rounds != self.rounds {
            // Warps may go on behind a barrier, and their registers are at hand now.
            (index, 0)
        } else {
            (index + 1, 0)
        }
    }

    /// The most instructions of the next turn.
    fn turn_length(&self) -> u32 {
        let left = self.limit.map(|limit| limit.saturating_sub(self.stats.warp_instructions));
        left.map_or(self.quantum, |left| u64::from(self.quantum).min(left).max(1) as u32)
    }

    /// Turns of the warps of a block, up to one after which more is to be done than to take the next
    /// warp. Gives the trap of that one, and how many accesses waited before its turn.
    fn turns_of_block(
        &mut self,
        memory: &mut dyn Memory,
        host: &mut dyn Host,
        target: u64,
    ) -> Option<((u32, Box<Trap>), usize)> {
        let (quantum, (index, mut warp)) = (self.turn_length(), self.cursor);
        let is_plain = self.limit.is_none() && self.fault.is_none();
        let Block { common, warps } = &mut *self.resident[index];
        let mut engine = Engine {
            program: &self.kernel.program,
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
        };
        let mut entrance = engine.entrance(common);
        let (slot, block) = (common.slot, common.linear);
        let watches = engine.reach.memory.watches_turns();
        loop {
            if warp == 0 {
                self.rounds = common.rounds;
            }
            if !watches {
                let most = target.saturating_sub(engine.reach.stats.warp_instructions);
                warp += engine.lap(&mut entrance, common, &mut warps[warp..], most);
            }
            if warp < warps.len() {
                let waiting = engine.reach.outstanding.len();
                if watches {
                    engine.reach.memory.turn(Turn { slot, block, warp: warp as u32 });
                }
                engine.reach.renew();
                let turn = engine.turn(&mut entrance, common, &mut warps[warp], quantum);
                engine.reach.stats.warp_instructions += turn.executed;
                self.progress |= turn.executed > 0;
                self.cursor.1 = warp;
                if let Some(trap) = turn.trap {
                    return Some((trap, waiting));
                }
                let executed = engine.reach.stats.warp_instructions;
                if !is_plain || common.live == 0 || executed >= target {
                    return None;
                }
                warp += 1;
            }
            if warp == warps.len() {
                self.cursor.1 = warp - 1;
                if common.rounds == self.rounds {
                    return None;
                }
                warp = 0;
            }
        }
    }

    /// An illegal address halts its warp. The kernel ends with the first report when no other warp
    /// can go on: so it is on an H200, where 16,376 of 16,384 blocks ended beside one that read
    /// nothing's memory, all but those of its multiprocessor.
    fn halt(&mut self, block: usize, warp: usize, report: Box<Report>) {
        self.resident[block].warps[warp].fragments.clear();
        let last = self.stats.warp_instructions.saturating_add(AFTER_FAULT);
        self.fault.get_or_insert((report, last));
    }

    fn ended(&mut self, report: Box<Report>) -> Step {
        self.end = Some(report.clone());
        self.resident.clear();
        Step::Trap(report)
    }

    fn deadlock(&self) -> Box<Report> {
        let block = &self.resident[0];
        let warp = block.warps.iter().position(|warp| warp.live != 0).unwrap_or(0);
        let pc =
            block.warps[warp].fragments.first().map_or(0, |fragment| fragment.pc.saturating_sub(1));
        let lane = block.warps[warp].live.trailing_zeros() as usize % 32;
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
        let block = &self.resident[block];
        Report {
            cause,
            kernel: self.kernel.info.name.clone(),
            line: origin.line,
            source: file.map(|(_, name)| (name.clone(), origin.source)),
            block: block.common.coordinates,
            thread: Common::thread(&self.rules.shape, warp as u32, lane as u32),
            address,
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
