//! Limits of the work, memory and time of a trace, so that a small file cannot keep a machine busy
//! for hours.
//!
//! A trace of a few hundred bytes can name 8 TiB. The work of an operation is estimated from its
//! bytes and the live buffers, before it is carried out. For a simulator the estimate is never too
//! low, and often too high. It depends on the file alone, so a file is refused everywhere or
//! nowhere.
//!
//! # Units
//!
//! Work is counted in pages of 4 KiB:
//!
//! | what | units |
//! | --- | --- |
//! | a page that an operation touches, fills, copies, moves or discards | 1 |
//! | 512 accesses to one page, or 32 of a kernel of several threads | 1 |
//! | 4 bytes of the accesses of a launch, unpacked | 1 |
//! | a strided range of a walk of a kernel; twice if the walk reads and writes | 1 |
//! | 2 MiB that were touched, of what advice, attachment and attribute reads name | 1 |
//! | 32 MiB that they or allocations name | 1 |
//! | an operation | 1, and 1 for each 2 MiB of which the page table is looked at after it |
//! | a case, which gets a machine of its own | 1000 |
//! | 256 bytes of text; a record | 1 |
//! | a millisecond of sleep | 16 |
//!
//! The memory of a case is the memory that it may take on the host: the pages that it writes, once
//! for each processor that may keep an older copy, and 128 bytes for each page and 512 for each 2
//! MiB that it touches.
//!
//! Time is the one limit that is measured, in [`time_limit`](crate::time_limit). Only a sleep that
//! is longer than a file's whole time is refused before it begins.

use std::collections::HashMap;
use std::time::Duration;

use pagewise_hal::{BLOCK_BYTES, DeviceAccess, HostAccess, KernelAccess, PAGE_BYTES};

use crate::error::Reason;
use crate::format::{Launch, MAX_MAPPED_BYTES, Op, RecordedOp, Walk};

/// The limits of a trace. The [module](self) explains the units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkLimits {
    /// Units of work of a whole file.
    pub work: u64,
    /// Bytes of memory of each case.
    pub memory_bytes: u64,
    /// Wall time of a whole file. [`Duration::MAX`] is no limit.
    pub time: Duration,
}

impl WorkLimits {
    /// No limit, for trusted files.
    pub const UNLIMITED: Self =
        Self { work: u64::MAX, memory_bytes: u64::MAX, time: Duration::MAX };
}

impl Default for WorkLimits {
    /// 100 million units, 16 GiB and 10 minutes. The largest recording that ships with pagewise
    /// needs 4.4 million units and 0.8 GiB; all together take seconds.
    fn default() -> Self {
        Self { work: 100_000_000, memory_bytes: 16 << 30, time: Duration::from_secs(600) }
    }
}

/// Making a machine, reading and reporting take 30 us at most on a busy machine with two cores,
/// where moving a page takes 0.35 us: 80 units. The rest bounds a file of nothing but cases to some
/// seconds, and is next to nothing for recordings, which have 400 cases at most.
const CASE_WORK: u64 = 1000;
const TEXT_BYTES_PER_WORK: u64 = 256;
const SLEEP_WORK_PER_MS: u64 = 16;
/// An access takes three bytes at least. It is read twice, and looked for in the page tables.
const LAUNCH_BYTES_PER_WORK: u64 = 4;
const LEAST_ACCESS_BYTES: u64 = 3;
const SERIAL_ACCESSES_PER_WORK: u64 = 512;
const PARALLEL_ACCESSES_PER_WORK: u64 = 32;

/// No process has more address space than this, so no larger allocation succeeds.
const MOST_BYTES: u64 = 1 << 47;

/// The state that a machine keeps of 2 MiB that was touched.
const BLOCK_STATE_BYTES: u64 = 512;

/// The state that a machine keeps of a page that thrashes, with its records.
const PAGE_STATE_BYTES: u64 = 128;

/// Counts what a file asks for.
#[derive(Debug)]
pub(crate) struct Meter {
    limits: WorkLimits,
    /// The number of times that each case is carried out.
    times: u64,
    /// The number of processors with memory that may hold a version of a page.
    processors: u64,
    work: u64,
    case: CaseState,
}

/// The facts about the case that is being read.
#[derive(Debug, Default)]
struct CaseState {
    buffers: HashMap<u32, AskedBuffer>,
    live_bytes: u64,
    /// Blocks of which the page table is looked at after each operation.
    observed_blocks: u64,
    /// Handles of pools that the case asked for: each answer names those that are alike.
    pools: u64,
    written_bytes: u64,
    touched_blocks: u64,
    state_bytes: u64,
    peak_bytes: u64,
    work: u64,
}

/// A buffer that lives if its allocation succeeds, whatever the file says of it.
#[derive(Debug, Clone, Copy)]
struct AskedBuffer {
    bytes: u64,
    freed_by: FreedBy,
}

/// The call that can free a buffer. Any other leaves it allocated, whatever the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FreedBy {
    Driver,
    Pinned,
    Pool,
    /// The process's own, or its id was allocated twice, in different ways: it counts to the end of
    /// the case.
    Unknown,
}

impl FreedBy {
    fn is_by(self, op: &Op) -> bool {
        match op {
            Op::Free { .. } => matches!(self, Self::Driver | Self::Pool),
            Op::FreePinned { .. } => self == Self::Pinned,
            Op::PoolFree { .. } => self == Self::Pool,
            _ => false,
        }
    }
}

impl Meter {
    pub(crate) fn new(devices: u32) -> Self {
        Self {
            limits: WorkLimits::default(),
            times: 1,
            processors: u64::from(devices).saturating_add(1),
            work: 0,
            case: CaseState::default(),
        }
    }

    /// From now on with these limits, for a file with cases that are carried out so many times.
    pub(crate) fn limit(&mut self, limits: WorkLimits, times: u64) {
        (self.limits, self.times) = (limits, times);
    }

    /// Units of work so far.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Units of work of the case read last, carried out once.
    pub(crate) fn case_work(&self) -> u64 {
        self.case.work
    }

    /// Memory that the case read last may take.
    pub(crate) fn case_memory_bytes(&self) -> u64 {
        self.case.peak_bytes
    }

    /// Text was read.
    pub(crate) fn text(&mut self, bytes: u64) -> Result<(), Reason> {
        let work = bytes / TEXT_BYTES_PER_WORK;
        self.case.work = self.case.work.saturating_add(work);
        self.spend(work, "line")
    }

    /// A case begins.
    pub(crate) fn case(&mut self) -> Result<(), Reason> {
        self.case = CaseState { work: CASE_WORK, ..CaseState::default() };
        self.spend(CASE_WORK.saturating_mul(self.times), "case")
    }

    /// An operation is about to become part of the case.
    pub(crate) fn op(&mut self, record: &RecordedOp) -> Result<(), Reason> {
        let name = record.op.name();
        self.spend(record.observed.events.len() as u64, name)?;
        let work = self.case.add(&record.op, self.processors);
        self.spend(work.saturating_mul(self.times), name)?;
        let (needed, limit) = (self.case.peak_bytes, self.limits.memory_bytes);
        if needed > limit && self.times > 0 {
            return Err(Reason::TooMuchMemory { at: name, needed, limit });
        }
        self.sleep(&record.op)
    }

    /// The time cannot be looked at during a sleep.
    fn sleep(&self, op: &Op) -> Result<(), Reason> {
        let Op::Sleep { ms } = op else { return Ok(()) };
        let (needed, limit) = (Duration::from_millis(*ms), self.limits.time);
        if needed > limit && self.times > 0 {
            return Err(Reason::TooMuchTime { at: op.name(), needed, limit });
        }
        Ok(())
    }

    fn spend(&mut self, work: u64, at: &'static str) -> Result<(), Reason> {
        self.work = self.work.saturating_add(work);
        let (needed, limit) = (self.work, self.limits.work);
        if needed > limit { Err(Reason::TooMuchWork { at, needed, limit }) } else { Ok(()) }
    }
}

impl CaseState {
    /// Notes what the operation does to the case; returns its work.
    fn add(&mut self, op: &Op, processors: u64) -> u64 {
        if let Some(id) = op.frees() {
            self.free(id, op);
        }
        let work = match op {
            Op::AllocManaged { buf, bytes, .. } | Op::AllocDevice { buf, bytes, .. } => {
                self.alloc(*buf, *bytes, FreedBy::Driver)
            }
            Op::AllocPinned { buf, bytes, .. } => self.alloc(*buf, *bytes, FreedBy::Pinned),
            Op::PoolAlloc { buf, bytes, .. } => self.alloc(*buf, *bytes, FreedBy::Pool),
            Op::HostMemory { buf, bytes } => {
                // The process's own memory is there from the start to the end of the case.
                self.state_bytes = self.state_bytes.saturating_add(*bytes);
                self.alloc(*buf, *bytes, FreedBy::Unknown)
            }
            Op::PoolGetDefault(_)
            | Op::PoolGetCurrent(_)
            | Op::PoolCreate { .. }
            | Op::PoolImport { .. } => {
                self.pools = self.pools.saturating_add(1);
                self.pools
            }
            Op::Sleep { ms } => ms.saturating_mul(SLEEP_WORK_PER_MS),
            Op::Advise { part, .. }
            | Op::StreamAttach { part, .. }
            | Op::RangeAttributes { part, .. } => {
                let named = self.named(part.bytes);
                blocks(named).min(self.touched_blocks).saturating_add(only_named(named))
            }
            op => self.moved(op),
        };
        let written = self.live_bytes.saturating_mul(processors).min(self.written_bytes);
        self.peak_bytes = self.peak_bytes.max(written.saturating_add(self.state_bytes));
        let work = work.saturating_add(1).saturating_add(self.observed_blocks);
        self.work = self.work.saturating_add(work);
        work
    }

    /// The bytes that an operation names, limited to those that may exist.
    fn named(&self, bytes: u64) -> u64 {
        bytes.min(self.live_bytes)
    }

    fn alloc(&mut self, id: u32, bytes: u64, freed_by: FreedBy) -> u64 {
        if bytes > MOST_BYTES {
            return 0;
        }
        let mut buffer = AskedBuffer { bytes, freed_by };
        if let Some(old) = self.forget(id) {
            // The old buffer goes if this allocation succeeds, and stays if it does not.
            buffer.bytes = bytes.max(old.bytes);
            buffer.freed_by = if freed_by == old.freed_by { freed_by } else { FreedBy::Unknown };
        }
        self.live_bytes = self.live_bytes.saturating_add(whole_pages(buffer.bytes));
        self.observed_blocks = self.observed_blocks.saturating_add(observed(buffer.bytes));
        self.buffers.insert(id, buffer);
        only_named(bytes)
    }

    fn free(&mut self, id: u32, op: &Op) {
        if self.buffers.get(&id).is_some_and(|buffer| buffer.freed_by.is_by(op)) {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u32) -> Option<AskedBuffer> {
        let buffer = self.buffers.remove(&id)?;
        self.live_bytes = self.live_bytes.saturating_sub(whole_pages(buffer.bytes));
        self.observed_blocks = self.observed_blocks.saturating_sub(observed(buffer.bytes));
        Some(buffer)
    }

    /// The work of operations that touch or move pages.
    fn moved(&mut self, op: &Op) -> u64 {
        match op {
            Op::Prefetch { part, .. } => self.pages(part.bytes, false),
            Op::PrefetchBatch(batch) | Op::DiscardPrefetchBatch(batch) => {
                batch.ranges.iter().fold(0, |work: u64, part| {
                    work.saturating_add(self.pages(part.bytes, false)).saturating_add(1)
                })
            }
            Op::DiscardBatch { ranges, .. } => ranges.iter().fold(0, |work: u64, part| {
                work.saturating_add(self.pages(part.bytes, false)).saturating_add(1)
            }),
            Op::Memset { part, .. } | Op::MemsetD16 { part, .. } | Op::MemsetD32 { part, .. } => {
                self.pages(part.bytes, true)
            }
            Op::MemcpyBatch(batch) => batch.copies.iter().fold(0, |work: u64, copy| {
                let pages = self.pages(copy.bytes, false);
                let written = self.pages(copy.bytes, true);
                work.saturating_add(pages).saturating_add(written).saturating_add(1)
            }),
            Op::Memcpy { bytes, .. } => {
                self.pages(*bytes, false).saturating_add(self.pages(*bytes, true))
            }
            Op::HostTouch { part, stride, access, .. } => {
                let writes = matches!(access, HostAccess::Write(_));
                self.touch(part.bytes, *stride, SERIAL_ACCESSES_PER_WORK, writes)
            }
            Op::DeviceTouch { part, stride, access, .. } => {
                let writes = !matches!(access, DeviceAccess::Read);
                let per_work = match op.is_parallel() {
                    true => PARALLEL_ACCESSES_PER_WORK,
                    false => SERIAL_ACCESSES_PER_WORK,
                };
                self.touch(part.bytes, *stride, per_work, writes)
            }
            Op::KernelAccesses { walks, .. } => {
                let per_work = match op.is_parallel() {
                    true => PARALLEL_ACCESSES_PER_WORK,
                    false => SERIAL_ACCESSES_PER_WORK,
                };
                walks
                    .iter()
                    .fold(0, |work: u64, walk| work.saturating_add(self.walk(walk, per_work)))
            }
            Op::Launch(launch) => self.launch(launch),
            _ => 0,
        }
    }

    /// A launch: its accesses are fewer than their bytes, and touch a page each at most.
    fn launch(&mut self, launch: &Launch) -> u64 {
        let accesses = launch.accesses.len() / LEAST_ACCESS_BYTES;
        let all = launch.ranges.iter().fold(0, |all: u64, part| all.saturating_add(part.bytes));
        let bytes = self.named(all).min(accesses.saturating_mul(PAGE_BYTES));
        let touched = self.pages(bytes, true);
        self.state_bytes = self.state_bytes.saturating_add(launch.accesses.len());
        let read = launch.accesses.len() / LAUNCH_BYTES_PER_WORK;
        touched.saturating_add(read).saturating_add(launch.ranges.len() as u64)
    }

    /// A walk of a kernel. Each of its ranges counts as work, as it is looked up by itself.
    fn walk(&mut self, walk: &Walk, per_work: u64) -> u64 {
        let writes = walk.access.writes();
        // An update is two accesses.
        let times = if walk.access == KernelAccess::Update { 2 } else { 1 };
        walk.ranges.iter().fold(0, |work: u64, (part, stride)| {
            let touched = self.touch(part.bytes, *stride, per_work, writes);
            work.saturating_add(touched.saturating_add(1).saturating_mul(times))
        })
    }

    fn pages(&mut self, bytes: u64, writes: bool) -> u64 {
        self.touch(bytes, PAGE_BYTES, 1, writes)
    }

    /// Touches one place each `stride` bytes; `per_work` of them on one page count as one page.
    fn touch(&mut self, bytes: u64, stride: u64, per_work: u64, writes: bool) -> u64 {
        let bytes = self.named(bytes);
        let accesses = bytes.div_ceil(stride.max(1));
        let pages = bytes.div_ceil(PAGE_BYTES).min(accesses);
        if writes {
            let written = pages.saturating_mul(PAGE_BYTES);
            self.written_bytes = self.written_bytes.saturating_add(written);
        }
        let blocks = blocks(bytes).min(accesses);
        self.touched_blocks = self.touched_blocks.saturating_add(blocks);
        let of_blocks = blocks.saturating_mul(BLOCK_STATE_BYTES);
        let state = pages.saturating_mul(PAGE_STATE_BYTES).saturating_add(of_blocks);
        self.state_bytes = self.state_bytes.saturating_add(state);
        pages.max(accesses.checked_div(per_work).unwrap_or(accesses))
    }
}

fn whole_pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES)
}

/// The work of bytes that are named, if they are not touched.
fn only_named(bytes: u64) -> u64 {
    bytes.div_ceil(32 << 20)
}

fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

/// Blocks of which the page table is looked at after each operation while a buffer lives.
fn observed(bytes: u64) -> u64 {
    if bytes <= MAX_MAPPED_BYTES { blocks(bytes) } else { 0 }
}
