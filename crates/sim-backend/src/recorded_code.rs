//! A recorded launch as code of a device: its warps make the accesses that were observed.
//!
//! On the machine that was observed, with the same seed, they wait in the same rounds as the code
//! did. Elsewhere they go on by their own pages, and in place of what held the code back by the
//! rounds of their block.

use std::collections::{BTreeSet, VecDeque};

use pagewise_hal::{
    DevicePtr, FaultAccess, RecordedBlock, RecordedBlocks, RecordedLaunch, RecordedStep, Span,
    StreamHandle,
};

use crate::code_place::DeviceWait;
use crate::device_code::{CodeState, DeviceCode, DeviceMemory};
use crate::kernel_time::kernel_ns;
use crate::profile::GpuProfile;
use crate::programs::GridLimits;
use crate::refusal::{Checked, bad_device, illegal_address, invalid};
use crate::sim::Sim;

/// How many blocks of a launch a device holds, and on how many multiprocessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) multiprocessors: u32,
    pub(crate) blocks_each: u32,
}

impl Slots {
    /// The room of a GPU for the blocks of a launch.
    pub(crate) fn of(launch: &RecordedLaunch, gpu: &GpuProfile) -> Self {
        let limits = GridLimits::of(gpu);
        if limits.multiprocessors == launch.multiprocessors {
            let (multiprocessors, blocks_each) = (launch.multiprocessors, launch.blocks_each);
            return Self { multiprocessors, blocks_each };
        }
        let warps = u32::try_from(launch.block_warps()).unwrap_or(u32::MAX).max(1);
        // Registers are handed out to warps in pieces of 256.
        let registers =
            launch.registers.saturating_mul(32).max(1).div_ceil(256).saturating_mul(256);
        let shared = launch.shared_bytes.saturating_add(limits.reserved_bytes).max(1);
        let by_threads = limits.threads / warps.saturating_mul(32).max(1);
        let by_registers = limits.registers / registers.saturating_mul(warps).max(1);
        let most = by_threads.min(by_registers).min(limits.shared_bytes / shared);
        // A launch that the GPU would refuse gets room for one block.
        let blocks_each = most.min(limits.blocks).max(1);
        Self { multiprocessors: limits.multiprocessors.max(1), blocks_each }
    }
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    address: u64,
    access: FaultAccess,
    /// The number of its instruction.
    instruction: u32,
}

#[derive(Debug)]
struct Warp {
    number: u32,
    steps: VecDeque<RecordedStep>,
    waits: Vec<Wait>,
    /// The number of the instruction that made the last access.
    last: u32,
}

#[derive(Debug)]
struct Block {
    number: u64,
    slot: u32,
    warps: Vec<Warp>,
    /// Rounds in which pages came that its warps waited for.
    rounds: u64,
}

/// The code.
#[derive(Debug)]
pub(crate) struct RecordedCode<'a> {
    launch: &'a RecordedLaunch,
    ran_ns: u64,
    slots: Slots,
    /// Whether blocks take the slots that were observed.
    follows: bool,
    blocks: RecordedBlocks<'a>,
    next: Option<RecordedBlock>,
    free: BTreeSet<u32>,
    resident: Vec<Block>,
    rounds: u64,
    waits: Vec<DeviceWait>,
}

/// Checks the accesses of a launch: blocks, warps and addresses that there are.
pub(crate) fn check(launch: &RecordedLaunch) -> Result<(), &'static str> {
    launch.check()?;
    for block in RecordedBlocks::new(&launch.accesses) {
        let block = block?;
        if block.block >= launch.blocks() {
            return Err("the accesses of a launch name a block that its grid does not have");
        }
        for (number, steps) in &block.warps {
            if u64::from(*number) >= launch.block_warps() {
                return Err("the accesses of a launch name a warp that its blocks do not have");
            }
            steps.iter().try_for_each(|step| check_step(launch, step))?;
        }
    }
    Ok(())
}

fn check_step(launch: &RecordedLaunch, step: &RecordedStep) -> Result<(), &'static str> {
    match step {
        RecordedStep::Access { range, offset, .. } => {
            let range = launch.ranges.get(*range as usize);
            if range.is_none_or(|range| *offset >= range.bytes) {
                return Err("an access of a launch is in none of its ranges");
            }
        }
        RecordedStep::Order(places) => {
            let mut sorted = places.clone();
            sorted.sort_unstable();
            if (0..).zip(&sorted).any(|(place, one): (u32, &u32)| place != *one) {
                return Err("an order in the accesses of a launch names places twice");
            }
        }
        RecordedStep::Resumption { .. } => {}
    }
    Ok(())
}

impl<'a> RecordedCode<'a> {
    /// The code of a launch that passed its check, on a device with these slots.
    pub(crate) fn new(launch: &'a RecordedLaunch, slots: Slots, ran_ns: u64) -> Self {
        let follows = launch.multiprocessors == slots.multiprocessors;
        let mut blocks = RecordedBlocks::new(&launch.accesses);
        let next = blocks.next().and_then(Result::ok);
        let count = slots.multiprocessors.saturating_mul(slots.blocks_each.max(1));
        let free = (0..count.max(1)).collect();
        let (resident, waits) = (Vec::new(), Vec::new());
        Self { launch, ran_ns, slots, follows, blocks, next, free, resident, rounds: 0, waits }
    }

    /// Blocks begin in their order. Returns whether one did.
    fn begin_blocks(&mut self, anywhere: bool) -> bool {
        let mut began = false;
        while let Some(next) = self.next.take() {
            let own = Some(next.slot).filter(|slot| self.follows && self.free.contains(slot));
            let any = || self.free.first().copied().filter(|_| anywhere || !self.follows);
            let Some(slot) = own.or_else(any) else {
                self.next = Some(next);
                break;
            };
            self.free.remove(&slot);
            let warp = |(number, steps): (u32, Vec<RecordedStep>)| Warp {
                number,
                steps: steps.into(),
                waits: Vec::new(),
                last: 0,
            };
            let warps = next.warps.into_iter().map(warp).collect();
            self.resident.push(Block { number: next.block, slot, warps, rounds: 0 });
            self.next = self.blocks.next().and_then(Result::ok);
            began = true;
        }
        began
    }

    /// Pages that are there are waited for no more.
    fn receive(&mut self, memory: &DeviceMemory<'_>) {
        let mut any = false;
        for block in &mut self.resident {
            let mut advanced = false;
            for warp in &mut block.warps {
                let before = warp.waits.len();
                warp.waits.retain(|wait| !memory.reaches(wait.address, wait.access));
                advanced |= warp.waits.len() < before;
            }
            block.rounds = block.rounds.saturating_add(advanced.into());
            any |= advanced;
        }
        self.rounds = self.rounds.saturating_add(any.into());
    }

    /// Runs the resident blocks from one on. Returns whether any ended.
    fn advance(&mut self, memory: &DeviceMemory<'_>) -> bool {
        let (ranges, rounds) = (&self.launch.ranges, self.rounds);
        let before = self.resident.len();
        let free = &mut self.free;
        self.resident.retain_mut(|block| {
            let of_block = block.rounds;
            block.warps.retain_mut(|warp| warp.run(memory, ranges, (of_block, rounds)));
            if block.warps.is_empty() {
                free.insert(block.slot);
            }
            !block.warps.is_empty()
        });
        self.resident.len() < before
    }

    /// Nothing waits for a page, and blocks are left: those that were held the least go on.
    fn release(&mut self) {
        let held = |warp: &Warp| match warp.steps.front() {
            Some(RecordedStep::Resumption { of_grid, round }) => Some((*of_grid, *round)),
            _ => None,
        };
        for block in &mut self.resident {
            let least = block.warps.iter().filter_map(held).min();
            for warp in &mut block.warps {
                if held(warp).is_some() && held(warp) == least {
                    warp.steps.pop_front();
                }
            }
        }
    }

    fn list_waits(&mut self) {
        self.waits.clear();
        let multiprocessors = self.slots.multiprocessors.max(1);
        for block in &self.resident {
            for warp in &block.warps {
                let listed = warp.waits.iter().map(|wait| DeviceWait {
                    multiprocessor: block.slot % multiprocessors,
                    block: block.number,
                    warp: warp.number,
                    nth: wait.instruction,
                    address: wait.address,
                    access: wait.access,
                });
                self.waits.extend(listed);
            }
        }
        self.waits.sort_by_key(|wait| (wait.multiprocessor, wait.block, wait.warp));
    }
}

impl Warp {
    /// Makes accesses as far as it goes; `false` once it is through. `rounds`: those of the block and
    /// of the grid.
    fn run(&mut self, memory: &DeviceMemory<'_>, ranges: &[Span], rounds: (u64, u64)) -> bool {
        while let Some(step) = self.steps.front() {
            match *step {
                RecordedStep::Access { range, offset, access, ahead, joined, .. } => {
                    if self.waits.len() > ahead as usize {
                        break;
                    }
                    let range = ranges.get(range as usize).map_or(DevicePtr::NULL, |span| span.ptr);
                    let address = range.0.saturating_add(offset);
                    self.last = self.last.saturating_add(u32::from(!joined));
                    if !memory.reaches(address, access) {
                        self.waits.push(Wait { address, access, instruction: self.last });
                    }
                }
                RecordedStep::Resumption { of_grid, round } => {
                    if round > if of_grid { rounds.1 } else { rounds.0 } {
                        break;
                    }
                }
                RecordedStep::Order(ref places) => {
                    if self.waits.len() > places.len() {
                        break;
                    }
                    if self.waits.len() == places.len() {
                        let wait = |place: &u32| self.waits.get(*place as usize).copied();
                        self.waits = places.iter().filter_map(wait).collect();
                    }
                }
            }
            self.steps.pop_front();
        }
        !(self.steps.is_empty() && self.waits.is_empty())
    }
}

impl DeviceCode for RecordedCode<'_> {
    fn run(&mut self, memory: &DeviceMemory<'_>) -> CodeState {
        self.receive(memory);
        loop {
            let ended = self.advance(memory);
            let began = self.begin_blocks(false) || (!ended && self.begin_blocks(true));
            if ended || began {
                continue;
            }
            if self.resident.is_empty() {
                return CodeState::Ended { ran_ns: self.ran_ns };
            }
            self.list_waits();
            if !self.waits.is_empty() {
                return CodeState::Waits;
            }
            self.release();
        }
    }

    fn waiting(&self) -> Vec<DeviceWait> {
        self.waits.clone()
    }
}

impl Sim {
    /// Carries out the accesses of a launch that was observed.
    pub(crate) fn launch_recorded(
        &mut self,
        launch: &RecordedLaunch,
        stream: StreamHandle,
    ) -> Checked<()> {
        if !self.topology.has_device(launch.device) {
            return bad_device("the device does not exist");
        }
        self.streams.check_for(stream, launch.device)?;
        if let Err(why) = check(launch) {
            return invalid(why);
        }
        for range in &launch.ranges {
            let found = self.space.containing(range.ptr).filter(|found| found.contains(*range));
            if !found.is_some_and(|found| self.is_managed(found)) {
                return illegal_address("a range is not within one managed allocation");
            }
        }
        let slots = Slots::of(launch, self.config.gpu());
        let Slots { multiprocessors, blocks_each } = slots;
        let kernels = &self.config.gpu().kernels;
        let ran_ns = kernel_ns(&launch.work, kernels, multiprocessors, blocks_each);
        let mut code = RecordedCode::new(launch, slots, ran_ns);
        self.run_code(launch.device, &mut code, stream, None)?;
        // Its contents are not known: memory that pages have left keeps its own.
        launch.ranges.iter().for_each(|range| self.before_write(*range));
        Ok(())
    }
}
