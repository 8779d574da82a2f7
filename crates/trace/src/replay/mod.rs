//! Replaying: a case carried out on a back end, observed as a recorder would have observed it.
//!
//! - After every asynchronous call its stream is synchronised; the code is the first failure of
//!   call and synchronisation.
//! - An id that is not live, never allocated or freed, stands for the null address; a pool that
//!   was never made, for the null handle. A buffer stays live if its free failed.
//! - Calls that use contents or give memory up get memory of the case only. A range that is not
//!   within the buffer it names stands for one at the null address.
//! - After each operation: records, and the host page table of every live buffer of at most
//!   [`MAX_MAPPED_BYTES`](crate::format::MAX_MAPPED_BYTES) that the back end allocated; imports and
//!   the process's own memory are no such buffers.
//! - Records are named after the buffer that owns their address when the case *ends*, before the
//!   clean-up. An address that no buffer owns is -1 with its offset modulo 2 MiB.
//! - At the end every live buffer is freed by [`Backend::free`], those of pools too, and the
//!   streams and the pools that the case made are destroyed: driver 580 reserves 265 GiB of address
//!   space for each managed pool, and ends a process that makes one more than there is room for.

pub(crate) mod call;
pub(crate) mod code;
mod copies;
pub(crate) mod names;
mod running;
mod shared;
mod sharing;

use std::collections::BTreeMap;
use std::fmt;

use pagewise_hal::{Backend, MemoryEvent};

pub use code::code_of;
pub(crate) use running::page_map_of;

use running::Running;
use shared::CaseMemory;

use crate::error::Reason;
use crate::format::{Case, Observed, Op, OpLine};
use crate::time_limit::TimeLimit;

/// The observations of a case on a back end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseReplay {
    /// One for each operation. `ns` is the back end's own clock over the call, three times the
    /// same number, `start_ns` is by that clock too; `ns_profiled` is absent.
    pub observed: Vec<Observed>,
    /// Time on the back end's clock from the first operation to the last.
    pub elapsed_ns: u64,
    /// Whether the back end reports unified-memory records.
    pub has_events: bool,
    /// Whether the back end shows the host's page table.
    pub has_host_mapped: bool,
}

/// When a watcher of a replay is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The next call of the back end is the operation's.
    Before,
    /// All calls of the operation were made.
    After,
}

/// Carries out a case. `watch` is called before and after each operation.
///
/// The back end must hold no buffers of this caller's: what the case left, the clean-up freed.
///
/// # Panics
/// Never by itself; a panic of the back end passes through.
pub fn replay_case(
    backend: &dyn Backend,
    case: &Case,
    watch: impl FnMut(Moment, &OpLine),
) -> CaseReplay {
    replay_until(backend, case, &TimeLimit::NONE, watch).0
}

/// [`replay_case`], for a case of a file with limited time.
///
/// # Errors
/// The line and [`Reason::TooMuchTime`] if the time is over before an operation. What the case
/// allocated is freed all the same.
///
/// # Panics
/// Never by itself; a panic of the back end passes through.
pub fn replay_within(
    backend: &dyn Backend,
    case: &Case,
    time: &TimeLimit,
    watch: impl FnMut(Moment, &OpLine),
) -> std::result::Result<CaseReplay, (u64, Reason)> {
    let (replay, stopped) = replay_until(backend, case, time, watch);
    stopped.map(|()| replay)
}

/// Carries out as many operations as there is time for; says where it stopped early.
fn replay_until(
    backend: &dyn Backend,
    case: &Case,
    time: &TimeLimit,
    mut watch: impl FnMut(Moment, &OpLine),
) -> (CaseReplay, std::result::Result<(), (u64, Reason)>) {
    let _busy = time.busy();
    let mut run = CaseRun::new(backend, Observation::Full);
    let stopped = case.ops.iter().try_for_each(|line| {
        let op = &line.recorded.op;
        time.check(op.name()).map_err(|reason| (line.line, reason))?;
        run.prepare(op);
        watch(Moment::Before, line);
        run.step(op);
        watch(Moment::After, line);
        Ok(())
    });
    (run.finish(), stopped)
}

/// The observations to make after each operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// Results, records and page tables, as far as the back end shows them.
    Full,
    /// Results only, so that looking does not disturb the time that operations take.
    ResultsOnly,
}

/// As many operations as most cases have: there is room for them when a case begins.
const OPERATIONS_OF_MOST_CASES: usize = 32;

/// A case in progress, one operation after another.
///
/// Dropped before [`finish`](Self::finish), it leaves the case's buffers allocated.
pub struct CaseRun<'a> {
    running: Running<'a>,
    has_events: bool,
    has_host_mapped: bool,
    start_ns: u64,
    /// Whether the profiler delivers records yet.
    profiled: bool,
    observed: Vec<Observed>,
    events: Vec<Vec<MemoryEvent>>,
}

impl fmt::Debug for CaseRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = self.running.backend;
        f.debug_struct("CaseRun")
            .field("backend", &backend)
            .field("steps", &self.observed.len())
            .finish_non_exhaustive()
    }
}

impl<'a> CaseRun<'a> {
    /// Starts a case without buffers. The back end must hold no buffers of this caller's.
    #[must_use]
    pub fn new(backend: &'a dyn Backend, observation: Observation) -> Self {
        let capabilities = backend.capabilities();
        let full = observation == Observation::Full;
        let running = Running {
            backend,
            devices: backend.device_count().unwrap_or(0),
            buffers: BTreeMap::new(),
            pools: Vec::new(),
            made_pools: Vec::new(),
            streams: BTreeMap::new(),
            shared: CaseMemory::default(),
        };
        if capabilities.events {
            // Leftovers of an earlier user of the back end belong to no operation of this case.
            _ = backend.take_events();
        }
        Self {
            running,
            has_events: full && capabilities.events,
            has_host_mapped: full && capabilities.host_page_map,
            start_ns: backend.clock_ns(),
            profiled: false,
            observed: Vec::with_capacity(OPERATIONS_OF_MOST_CASES),
            events: Vec::with_capacity(OPERATIONS_OF_MOST_CASES),
        }
    }

    /// Makes the streams that the operation needs, so that their time is not the operation's.
    /// [`step`](Self::step) does so too.
    pub fn prepare(&mut self, op: &Op) {
        self.running.prepare(op);
    }

    /// Carries out one operation and gives what was observed, but for its records: those are named
    /// when the case ends.
    pub fn step(&mut self, op: &Op) -> &Observed {
        self.profiled |= matches!(op, Op::AllocManaged { .. });
        self.running.prepare(op);
        let observed = self.running.timed(op, self.start_ns, self.has_host_mapped);
        let taken = if self.has_events { self.running.backend.take_events().ok() } else { None };
        // The profiler delivers no record, of pool memory either, before a managed allocation was
        // made (CONTRACT-104), so recordings hold none.
        self.events.push(taken.filter(|_| self.profiled).unwrap_or_default());
        let at = self.observed.len();
        self.observed.push(observed);
        &self.observed[at]
    }

    /// Ends the case: names its records and frees what is left.
    #[must_use]
    pub fn finish(mut self) -> CaseReplay {
        let elapsed_ns = self.running.backend.clock_ns().saturating_sub(self.start_ns);
        let buffers = self.running.buffers.iter();
        let owners = names::Owners::new(buffers.map(|(&id, &span)| (id, span)));
        for (observed, events) in self.observed.iter_mut().zip(self.events) {
            observed.events = events.iter().map(|event| owners.name(event)).collect();
        }
        self.running.clean_up();
        CaseReplay {
            observed: self.observed,
            elapsed_ns,
            has_events: self.has_events,
            has_host_mapped: self.has_host_mapped,
        }
    }
}
