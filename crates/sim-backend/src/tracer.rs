//! Notes what executed code accesses, for a launch that can be carried out again without the code.
//!
//! Of each block the first access of each kind to each page is noted, and of each warp every access
//! that waits for its page, in their order. A warp that goes on although none of its own pages came
//! was held by something else, such as a barrier: a resumption says in which round it went on.

use std::collections::{BTreeMap, BTreeSet};

use pagewise_hal::{
    DevicePtr, FaultAccess, PAGE_BYTES, RecordedBlock, RecordedBlocksWriter, RecordedLaunch,
    RecordedStep, Span,
};

use crate::code_place::{CodePlace, DeviceWait};

/// The most steps that are noted one by one. Later ones are noted only for pages that the launch did
/// not access before.
const STEPS_MAX: usize = 3 << 20;

/// More than a block's steps take, if they are not far more than those of others.
const BLOCK_BYTES_MAX: usize = 4 << 20;

/// Bytes of a line, the unit of addresses in a record.
const LINE_BYTES: u64 = 128;

/// The accesses of a launch, as they were noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedAccesses {
    /// The managed allocations that were accessed.
    pub ranges: Vec<Span>,
    /// The accesses, as [`RecordedLaunch::accesses`] has them.
    pub accesses: Vec<u8>,
    /// Whether every step is there. A launch of millions of steps is noted page by page.
    pub is_whole: bool,
}

/// A page by its number, and the kind of access.
type Touch = (u64, u8);

const fn kind(access: FaultAccess) -> u8 {
    match access {
        FaultAccess::Write => 1,
        FaultAccess::Atomic => 2,
        _ => 0,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wait {
    line: u64,
    access: FaultAccess,
}

impl Wait {
    fn touch(self) -> Touch {
        (self.line / (PAGE_BYTES / LINE_BYTES), kind(self.access))
    }
}

/// An access or another step, before its range is known.
#[derive(Debug)]
enum Step {
    Access { line: u64, access: FaultAccess, ahead: u32, waited: bool, joined: bool },
    Resumption { of_grid: bool, round: u64 },
    Order(Box<[u32]>),
}

#[derive(Debug, Default)]
struct Warp {
    steps: Vec<Step>,
    waits: Vec<Wait>,
    /// Whether a step of this round needs no reason: a page came, or one was noted.
    explained: bool,
}

#[derive(Debug, Default)]
struct Block {
    block: u64,
    slot: u32,
    warps: BTreeMap<u32, Warp>,
    touched: BTreeSet<Touch>,
    /// Rounds in which pages came that warps of the block waited for.
    rounds: u64,
    /// Whether this round is one of them.
    advanced: bool,
    is_new: bool,
}

/// The notes of a launch.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    blocks: Vec<Block>,
    /// The latest block of each slot, and the place of a block that is there.
    slots: BTreeMap<u32, usize>,
    places: BTreeMap<u64, usize>,
    current: Option<(usize, u32)>,
    /// Rounds in which pages came that any warp waited for.
    rounds: u64,
    steps: usize,
    /// The pages of the launch, once there are too many steps.
    coarse: Option<BTreeSet<Touch>>,
}

impl Tracer {
    /// The code goes on. `reaches` says whether the device maps a page now.
    pub(crate) fn begin_round(&mut self, reaches: impl Fn(u64, FaultAccess) -> bool) {
        let mut any = false;
        for &place in self.slots.values() {
            let block = &mut self.blocks[place];
            (block.advanced, block.is_new) = (false, false);
            for warp in block.warps.values_mut() {
                let before = warp.waits.len();
                warp.waits
                    .retain(|wait| !reaches(wait.line * LINE_BYTES / PAGE_BYTES, wait.access));
                warp.explained = warp.waits.len() < before;
                block.advanced |= warp.explained;
            }
            block.rounds += u64::from(block.advanced);
            any |= block.advanced;
        }
        self.rounds += u64::from(any);
    }

    /// A warp takes its turn. Returns whether its block is another than before: windows that were
    /// given for that one hide first accesses of this one.
    pub(crate) fn turn(&mut self, CodePlace { slot, block, warp }: CodePlace) -> bool {
        let before = self.current;
        let known = self.slots.get(&slot).copied().filter(|at| self.blocks[*at].block == block);
        let at = known.unwrap_or_else(|| {
            let at = self.blocks.len();
            self.blocks.push(Block { block, slot, is_new: true, ..Block::default() });
            if let Some(ended) = self.slots.insert(slot, at) {
                self.places.remove(&self.blocks[ended].block);
                self.blocks[ended].touched = BTreeSet::new();
            }
            self.places.insert(block, at);
            at
        });
        self.current = Some((at, warp));
        before.is_none_or(|(before, _)| before != at)
    }

    /// The warp that has its turn accesses a page that the device maps.
    pub(crate) fn touch(&mut self, address: u64, access: FaultAccess) {
        let Some((at, warp)) = self.current else { return };
        let wait = Wait { line: address / LINE_BYTES, access };
        if !self.is_first(at, wait) {
            return;
        }
        let ahead = self.explain(at, warp).waits.len() as u32;
        let Wait { line, access } = wait;
        self.push(at, warp, Step::Access { line, access, ahead, waited: false, joined: false });
    }

    /// Whether the block accesses a page for the first time; of the launch, if it has many steps.
    fn is_first(&mut self, at: usize, wait: Wait) -> bool {
        let first = self.blocks[at].touched.insert(wait.touch());
        first && self.coarse.as_mut().is_none_or(|pages| pages.insert(wait.touch()))
    }

    /// The warp has a step in this round: notes why it went on, if its own pages do not say so.
    fn explain(&mut self, at: usize, warp: u32) -> &mut Warp {
        let block = &mut self.blocks[at];
        let (advanced, of_block, is_new) = (block.advanced, block.rounds, block.is_new);
        let warp = block.warps.entry(warp).or_default();
        if !std::mem::replace(&mut warp.explained, true) && !is_new {
            let round = if advanced { of_block } else { self.rounds };
            warp.steps.push(Step::Resumption { of_grid: !advanced, round });
            self.steps += 1;
        }
        warp
    }

    fn push(&mut self, at: usize, warp: u32, step: Step) {
        self.blocks[at].warps.entry(warp).or_default().steps.push(step);
        self.steps += 1;
        if self.steps >= STEPS_MAX && self.coarse.is_none() {
            let waits = self.blocks.iter().flat_map(|block| block.warps.values());
            let steps = waits.flat_map(|warp| &warp.steps);
            let pages = steps.filter_map(|step| match *step {
                Step::Access { line, access, .. } => Some(Wait { line, access }.touch()),
                _ => None,
            });
            self.coarse = Some(pages.collect());
        }
    }

    /// All warps wait: for these pages.
    pub(crate) fn end_round(&mut self, waits: &[DeviceWait]) {
        let of_warp = |a: &DeviceWait, b: &DeviceWait| (a.block, a.warp) == (b.block, b.warp);
        for waits in waits.chunk_by(of_warp) {
            let Some(&at) = self.places.get(&waits[0].block) else { continue };
            let wait = |wait: &DeviceWait| {
                (Wait { line: wait.address / LINE_BYTES, access: wait.access }, wait.nth)
            };
            self.wait(at, waits[0].warp, waits.iter().map(wait).collect());
        }
    }

    /// A warp waits for these accesses of numbered instructions: those that it waited for before, and
    /// new ones.
    fn wait(&mut self, at: usize, warp: u32, listed: Vec<(Wait, u32)>) {
        let state = self.blocks[at].warps.entry(warp).or_default();
        if state.waits.iter().eq(listed.iter().map(|(wait, _)| wait)) {
            return;
        }
        let (came, old) = (state.explained, std::mem::take(&mut state.waits));
        let mut left: Vec<Option<(Wait, u32)>> = listed.iter().copied().map(Some).collect();
        let mut take = |is_it: &dyn Fn(&Wait) -> bool| {
            let place = left.iter().position(|one| one.as_ref().is_some_and(|(one, _)| is_it(one)));
            left[place?] = None;
            place
        };
        // The places in the list of those that waited before, and then of new ones.
        let kept = old.iter().filter_map(|wait| {
            take(&|one| one == wait).or_else(|| take(&|one| one.touch() == wait.touch()))
        });
        let mut order: Vec<usize> = kept.collect();
        let new = left.iter().enumerate().filter_map(|(place, one)| Some((place, (*one)?)));
        let mut before = None;
        for (place, (wait, nth)) in new {
            if !self.is_first(at, wait) && self.coarse.is_some() {
                continue;
            }
            self.explain(at, warp);
            let (ahead, joined) = (order.len() as u32, before == Some(nth));
            let Wait { line, access } = wait;
            self.push(at, warp, Step::Access { line, access, ahead, waited: true, joined });
            order.push(place);
            before = Some(nth);
        }
        let mut sorted: Vec<u32> = (0..order.len() as u32).collect();
        sorted.sort_by_key(|place| order[*place as usize]);
        let state = self.blocks[at].warps.entry(warp).or_default();
        state.waits = sorted.iter().map(|place| listed[order[*place as usize]].0).collect();
        let moved = !sorted.is_sorted() && (came || state.explained);
        if moved {
            self.push(at, warp, Step::Order(sorted.into()));
        }
    }

    /// The notes, with addresses as offsets in the managed allocations, which are sorted.
    pub(crate) fn finish(self, managed: &[Span]) -> TracedAccesses {
        let holder = |line: u64| {
            let after =
                managed.partition_point(|span| span.ptr.0 <= line.saturating_mul(LINE_BYTES));
            after.saturating_sub(1)
        };
        let mut is_whole = self.coarse.is_none();
        let warps = || self.blocks.iter().flat_map(|block| block.warps.values());
        let lines = warps().flat_map(|warp| &warp.steps).filter_map(|step| match step {
            Step::Access { line, .. } => Some(*line),
            _ => None,
        });
        let used: BTreeSet<usize> = lines.map(holder).collect();
        let used: Vec<usize> = used.into_iter().collect();
        let ranges: Vec<Span> = used.iter().filter_map(|at| managed.get(*at).copied()).collect();
        let recorded = |step: &Step| match *step {
            Step::Access { line, access, ahead, waited, joined } => {
                let range = used.binary_search(&holder(line)).unwrap_or(0);
                let span = ranges.get(range).copied().unwrap_or(Span::new(DevicePtr::NULL, 1));
                let offset = line.saturating_mul(LINE_BYTES).saturating_sub(span.ptr.0);
                let offset = offset.min(span.bytes.saturating_sub(1)) / LINE_BYTES * LINE_BYTES;
                RecordedStep::Access { range: range as u32, offset, access, ahead, waited, joined }
            }
            Step::Resumption { of_grid, round } => RecordedStep::Resumption { of_grid, round },
            Step::Order(ref places) => RecordedStep::Order(places.to_vec()),
        };
        let mut writer = RecordedBlocksWriter::default();
        for Block { block, slot, warps, .. } in &self.blocks {
            if writer.len() > RecordedLaunch::ACCESSES_MAX - BLOCK_BYTES_MAX {
                is_whole = false;
                break;
            }
            let warps = warps.iter().filter(|(_, warp)| !warp.steps.is_empty());
            let steps = |warp: &Warp| warp.steps.iter().map(recorded).collect();
            let warps = warps.map(|(number, warp)| (*number, steps(warp))).collect();
            writer.push(&RecordedBlock { block: *block, slot: *slot, warps });
        }
        TracedAccesses { ranges, accesses: writer.finish(), is_whole }
    }
}
