//! Launches that repeat one before.
//!
//! Programs that measure a kernel launch it many times with the same parameters. Its code is
//! deterministic. If it reads nothing that it writes, and that memory is as the launch before left
//! it, a second execution would write the bytes that are there. Such a launch takes its virtual
//! time, and its code does not run.
//!
//! Only memory of `cuMemAlloc` is known not to change between calls, and only where the machine
//! sees the host's accesses. A launch that accesses other memory is executed each time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pagewise_hal::{DeviceId, FaultAccess, LaunchShape, Operation};

/// The most launches that are remembered. Loops of benchmarks have fewer kernels.
const LAUNCHES_MAX: usize = 8;

/// The most ranges of memory that a launch is remembered with.
const RANGES_MAX: usize = 32;

/// A kernel of a program in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KernelIdentity {
    program: u64,
    name: Arc<str>,
}

/// A number for a program that no other one of this process has.
pub(crate) fn new_program() -> u64 {
    static PROGRAMS: AtomicU64 = AtomicU64::new(0);
    PROGRAMS.fetch_add(1, Ordering::Relaxed)
}

impl KernelIdentity {
    pub(crate) fn new(program: u64, name: &str) -> Self {
        Self { program, name: name.into() }
    }
}

/// A launch. Two that are equal execute the same instructions where they read the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchIdentity {
    pub(crate) kernel: KernelIdentity,
    pub(crate) device: DeviceId,
    pub(crate) shape: LaunchShape,
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) stack_bytes: u32,
    pub(crate) parameters: Box<[u8]>,
}

/// The memory that a launch reached.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    read: Vec<Range<u64>>,
    written: Vec<Range<u64>>,
    /// Whether there is more: too many ranges, or memory that changes unseen.
    has_more: bool,
}

impl Reached {
    /// Notes a range of memory that changes by calls only.
    pub(crate) fn note(&mut self, range: Range<u64>, access: FaultAccess) {
        if access != FaultAccess::Write {
            Self::add(&mut self.read, &range, &mut self.has_more);
        }
        if access != FaultAccess::Read {
            Self::add(&mut self.written, &range, &mut self.has_more);
        }
    }

    /// Notes memory that may change between calls.
    pub(crate) fn note_other(&mut self) {
        self.has_more = true;
    }

    fn add(ranges: &mut Vec<Range<u64>>, range: &Range<u64>, has_more: &mut bool) {
        if ranges.contains(range) {
            return;
        }
        if ranges.len() == RANGES_MAX {
            *has_more = true;
        } else {
            ranges.push(range.clone());
        }
    }
}

fn overlap(some: &[Range<u64>], others: &[Range<u64>]) -> bool {
    let meets =
        |one: &Range<u64>, other: &Range<u64>| one.start < other.end && other.start < one.end;
    some.iter().any(|one| others.iter().any(|other| meets(one, other)))
}

/// A launch that may be repeated.
#[derive(Debug)]
struct Remembered {
    launch: LaunchIdentity,
    reached: Reached,
    ran_ns: u64,
}

/// The launches since which their memory did not change.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// The oldest first.
    launches: VecDeque<Remembered>,
    /// Whether code outside of the machine may write memory of `cuMemAlloc`.
    is_exposed: bool,
    count: u64,
}

impl Repeats {
    /// A call begins.
    #[inline]
    pub(crate) fn begin_call(&mut self, operation: Operation) {
        if !self.launches.is_empty() && !keeps_memory(operation) {
            self.launches.clear();
        }
    }

    /// From now on, code outside of the machine may write memory of `cuMemAlloc`.
    pub(crate) fn expose(&mut self) {
        self.launches.clear();
        self.is_exposed = true;
    }

    /// Whether code outside of the machine may write memory of `cuMemAlloc`.
    pub(crate) fn is_exposed(&self) -> bool {
        self.is_exposed
    }

    /// The nanoseconds of a launch's code, if the launch need not be executed.
    pub(crate) fn time_of(&mut self, launch: &LaunchIdentity) -> Option<u64> {
        let found = self.launches.iter().find(|one| one.launch == *launch)?;
        self.count = self.count.saturating_add(1);
        Some(found.ran_ns)
    }

    /// A launch was executed to its end. `None` for one that did more than access memory.
    pub(crate) fn ran(&mut self, launch: Option<LaunchIdentity>, reached: Reached, ran_ns: u64) {
        if reached.has_more {
            return self.launches.clear();
        }
        self.launches.retain(|one| {
            !overlap(&one.reached.read, &reached.written)
                && !overlap(&one.reached.written, &reached.written)
        });
        if let Some(launch) = launch
            && !overlap(&reached.read, &reached.written)
            && !self.is_exposed
        {
            if self.launches.len() == LAUNCHES_MAX {
                self.launches.pop_front();
            }
            self.launches.push_back(Remembered { launch, reached, ran_ns });
        }
    }

    /// Memory may have changed in any way.
    pub(crate) fn forget(&mut self) {
        self.launches.clear();
    }

    /// How many launches were not executed.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

/// Whether a call leaves memory of `cuMemAlloc` as it is. A launch says itself what it writes.
fn keeps_memory(operation: Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::Launch
            | O::DriverVersion
            | O::DeviceCount
            | O::DeviceAttribute
            | O::CanAccessPeer
            | O::MemoryInfo
            | O::RangeAttribute
            | O::RangeAccessedBy
            | O::PointerAttribute
            | O::PoolDefault
            | O::PoolCurrent
            | O::PoolAttribute
            | O::PoolAccess
            | O::MemoryGranularity
            | O::MemoryAccess
            | O::StreamCreate
            | O::StreamSynchronize
            | O::StreamWaitEvent
            | O::EventCreate
            | O::EventDestroy
            | O::EventRecord
            | O::EventQuery
            | O::EventSynchronize
            | O::EventElapsedNs
            | O::ModuleFunction
            | O::ModuleGlobal
            | O::FunctionParams
            | O::FunctionAttribute
            | O::OccupancyBlocks
            | O::OccupancyBestBlock
            | O::HostPageMap
            | O::TakeEvents
            | O::EventsSince
    )
}
