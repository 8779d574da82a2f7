//! Faults of code that the caller executes, in rounds: the code runs until it waits, then a batch of
//! its faults is serviced.
#![allow(clippy::arithmetic_side_effects, reason = "granules are not 0; pages of one block of 512")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use pagewise_hal::{PAGE_BYTES, Processor};

use super::access::Access;
use super::engine::Paging;
use super::processor::ProcId;
use super::report::ReportSink;
use super::walk::{HeldOff, Touched};
use crate::arrival::{ExecutedArrival, RaisedFault, Waiting};

/// The accesses of a kernel's code, by the numbers that its faults name them with.
const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::Atomic];

/// Bytes of a line. Each line that is written raises its own fault, and each pair of lines that is
/// read (TIMING-32).
const LINE: u64 = 128;

/// An access of a lane of a warp to a page that its device does not map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneWait {
    pub(crate) multiprocessor: u32,
    /// The block, by its number in the grid.
    pub(crate) block: u64,
    /// The warp in the block.
    pub(crate) warp: u32,
    /// The number of the instruction: lanes of a warp that begin to wait together are of one
    /// instruction if it is equal.
    pub(crate) nth: u32,
    pub(crate) address: u64,
    pub(crate) access: Access,
}

/// An access that waits, by the line of its address.
type WaitingLine = (u64, u32, u64, Access);

impl LaneWait {
    fn line(&self) -> WaitingLine {
        (self.block, self.warp, self.address / LINE, self.access)
    }

    fn is_of_warp_of(&self, other: &Self) -> bool {
        (self.block, self.warp) == (other.block, other.warp)
    }
}

/// A kernel of executed code.
#[derive(Debug)]
pub(crate) struct ExecutedKernel<'a> {
    by: ProcId,
    arrival: ExecutedArrival<'a>,
    held: HeldOff,
    touched: Touched,
    /// The accesses that waited in the last round, with the numbers of their instructions.
    before: BTreeMap<WaitingLine, u64>,
    /// Instructions that waited.
    instructions: u64,
}

impl<'a> ExecutedKernel<'a> {
    /// A kernel that begins at `now_ns`.
    pub(crate) fn new(by: Processor, arrival: ExecutedArrival<'a>, now_ns: u64) -> Self {
        let touched = Touched { now_ns, ..Touched::default() };
        let (held, before) = (HeldOff::default(), BTreeMap::new());
        Self { by: by.into(), arrival, held, touched, before, instructions: 0 }
    }

    /// The time when the last batch was serviced.
    pub(crate) fn now_ns(&self) -> u64 {
        self.touched.now_ns
    }

    /// The pages that lanes wait for, in the order in which their warps issued the accesses, and
    /// whether other lanes wait than in the last round.
    fn waiting(&mut self, lanes: &[LaneWait]) -> (Vec<(u32, Waiting)>, bool) {
        let mut waiting: Vec<(u32, Waiting)> = Vec::new();
        let mut now = BTreeMap::new();
        for warp in lanes.chunk_by(LaneWait::is_of_warp_of) {
            let numbered = self.numbered(warp);
            now.extend(numbered.iter().map(|(number, lane)| (lane.line(), *number)));
            let instructions = numbered.chunk_by(|(a, _), (b, _)| a == b);
            for (ahead, instruction) in (0..).zip(instructions) {
                self.wait(instruction, ahead, &mut waiting);
            }
        }
        let progress = !now.keys().eq(self.before.keys());
        self.before = now;
        (waiting, progress)
    }

    /// A warp's lanes with the numbers of their instructions. Lanes that waited before keep theirs; of the
    /// others, neighbours at one place are of one instruction.
    fn numbered(&mut self, warp: &[LaneWait]) -> Vec<(u64, LaneWait)> {
        let mut latest = None;
        let mut number = |lane: &LaneWait| {
            self.before.get(&lane.line()).copied().unwrap_or_else(|| {
                if latest.replace(lane.nth) != Some(lane.nth) {
                    self.instructions += 1;
                }
                self.instructions
            })
        };
        warp.iter().map(|lane| (number(lane), *lane)).collect()
    }

    /// Lists the pages that an instruction waits for, `ahead` others of its warp before it.
    fn wait(&self, instruction: &[(u64, LaneWait)], ahead: u64, waiting: &mut Vec<(u32, Waiting)>) {
        let mut pages: Vec<(u64, Access, BTreeSet<u64>)> = Vec::new();
        for (_, lane) in instruction {
            let page = lane.address / PAGE_BYTES;
            let granule = if lane.access.writes() { LINE } else { 2 * LINE };
            let granule = lane.address / granule;
            match pages.iter_mut().find(|(known, ..)| *known == page) {
                Some((.., granules)) => _ = granules.insert(granule),
                None => pages.push((page, lane.access, BTreeSet::from([granule]))),
            }
        }
        let (_, first) = instruction[0];
        let moved = !self.before.contains_key(&first.line());
        for (nth, (page, access, granules)) in pages.into_iter().enumerate() {
            let walk = ACCESSES.iter().position(|known| *known == access).unwrap_or(0);
            let access = Waiting {
                fault: RaisedFault { page, walk },
                block: first.block,
                warp: first.warp,
                faults: granules.len() as u64,
                ahead,
                moved,
                goes_on: nth > 0,
                is_write: access.writes(),
            };
            waiting.push((first.multiprocessor, access));
        }
    }
}

impl Paging {
    /// Whether a device accesses a page without a fault, and if so the pages around it for which
    /// this holds too, within its va_block. `None` if there is no managed memory at the page.
    pub(crate) fn reached(
        &self,
        by: Processor,
        page: u64,
        access: Access,
    ) -> Option<Result<Range<u64>, Missing>> {
        let by = ProcId::from(by);
        let range = self.ranges.containing(page)?;
        let needs = access.needs(by, &self.params);
        let Some(block) = range.block(page) else { return Some(Err(Missing)) };
        let first = block.first_page();
        let at = page.saturating_sub(first) as usize;
        let mapped = block.mapped(by, needs);
        if !mapped.contains(at) {
            return Some(Err(Missing));
        }
        let end = mapped.next_clear(at).min(block.len());
        let clear = !mapped;
        let start = clear.pages().take_while(|page| *page < at).last().map_or(0, |page| page + 1);
        Some(Ok(first.saturating_add(start as u64)..first.saturating_add(end as u64)))
    }

    /// Services a batch of the faults of lanes that wait, which are in the order of issue. Returns
    /// whether there was one.
    pub(crate) fn service_executed(
        &mut self,
        kernel: &mut ExecutedKernel<'_>,
        lanes: &[LaneWait],
        sink: &mut dyn ReportSink,
    ) -> bool {
        let (waiting, progress) = kernel.waiting(lanes);
        self.advance(kernel.touched.now_ns, sink);
        let near = |page| self.mapped_near(kernel.by, page);
        let batch = kernel.arrival.next_batch(progress, waiting.into_iter(), near);
        let Some(batch) = batch else { return false };
        let who = (kernel.by, &ACCESSES[..]);
        self.batch(who, &batch, &mut kernel.held, &mut kernel.touched, sink);
        true
    }

    /// Notes pages that a device accessed: it has read their entries of the page tables.
    pub(crate) fn note_accessed(&mut self, by: Processor, pages: Range<u64>) {
        self.walked.note(by.into(), Some(pages));
    }
}

/// A page that a device does not map, or not for the access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missing;
