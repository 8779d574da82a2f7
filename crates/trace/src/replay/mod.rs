//! Carrying out a case on a back end, and observing what a recorder would have observed.
//!
//! - After every asynchronous call its stream is synchronised; the code is the first failure of
//!   call and synchronisation.
//! - An id that is not live, never allocated or freed, stands for the null address; a pool that
//!   was never made, for the null handle. A buffer stays live if its free failed.
//! - Calls that use contents or give memory up get memory of the case only. A range that is not
//!   within the buffer it names stands for one at the null address.
//! - After each operation: records, and the host page table of every live buffer of at most
//!   [`MAX_MAPPED_BYTES`] that the back end allocated; imports and the process's own memory are no
//!   such buffers.
//! - Records are named after the buffer that owns their address when the case *ends*, before the
//!   clean-up. An address that no buffer owns is -1 with its offset modulo 2 MiB.
//! - At the end every live buffer is freed by [`Backend::free`], those of pools too, and the
//!   streams and the pools that the case made are destroyed: driver 580 reserves 265 GiB of address
//!   space for each managed pool, and ends a process that makes one more than there is room for.

pub(crate) mod call;
pub(crate) mod names;
mod shared;

use std::collections::BTreeMap;
use std::fmt;

use pagewise_hal::{
    Backend, DeviceId, DevicePtr, ErrorKind, MemoryEvent, PAGE_BYTES, PoolHandle, Result, Span,
    StreamFlags, StreamHandle,
};

use crate::error::Reason;
use crate::format::{Case, MAX_MAPPED_BYTES, Observed, Op, OpLine, PageMap, Part, Stream, Timing};
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
        let op = &line.record.op;
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
            shared: shared::Shared::default(),
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
            observed: Vec::new(),
            events: Vec::new(),
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

/// The `CUresult` of a call. Errors that never came from a driver get the number that a driver
/// returns for the same kind.
#[must_use]
pub fn code_of<T>(result: &Result<T>) -> i32 {
    use pagewise_hal::Code;
    let Err(error) = result else { return Code::SUCCESS };
    error.code().unwrap_or(match error.kind() {
        ErrorKind::InvalidValue => Code::INVALID_VALUE,
        ErrorKind::InvalidDevice => Code::INVALID_DEVICE,
        ErrorKind::InvalidHandle => Code::INVALID_HANDLE,
        ErrorKind::OutOfMemory => Code::OUT_OF_MEMORY,
        ErrorKind::Unsupported => Code::NOT_SUPPORTED,
        ErrorKind::NotPermitted => Code::NOT_PERMITTED,
        ErrorKind::NotReady => Code::NOT_READY,
        ErrorKind::IllegalAddress => Code::ILLEGAL_ADDRESS,
        _ => 999,
    })
}

/// As many pages as the buffer's size has, from the page of its first byte on: the last page of an
/// unaligned buffer may be missing, as it is in recordings. `None` if the back end refuses.
pub(crate) fn page_map_of(backend: &dyn Backend, span: Span) -> Option<PageMap> {
    let runs = backend.host_page_map(span).ok()?;
    let mut left = span.bytes.div_ceil(PAGE_BYTES);
    let cut = runs.into_iter().map_while(|mut run| {
        run.pages = run.pages.min(left);
        left = left.saturating_sub(run.pages);
        (run.pages > 0).then_some(run)
    });
    Some(PageMap::new(cut))
}

/// A case in progress.
struct Running<'a> {
    backend: &'a dyn Backend,
    devices: u32,
    /// Live buffers. Never empty ranges: a pool allocation of 0 bytes is the null address.
    buffers: BTreeMap<u32, Span>,
    /// Pools in the order in which the case got them.
    pools: Vec<(u32, PoolHandle)>,
    /// Those of them that it made and did not destroy.
    made_pools: Vec<PoolHandle>,
    /// The non-blocking stream of each device, once it is needed.
    streams: BTreeMap<i32, StreamHandle>,
    shared: shared::Shared,
}

impl Running<'_> {
    /// Carries out an operation of a case that began at a moment of the back end's clock.
    fn timed(&mut self, op: &Op, case_start_ns: u64, observe_pages: bool) -> Observed {
        let before = self.backend.clock_ns();
        let mut observed = self.call(op);
        let ns = self.backend.clock_ns().saturating_sub(before);
        observed.ns = Some(Timing { min: ns, median: ns, max: ns });
        observed.start_ns = Some(before.saturating_sub(case_start_ns));
        if observe_pages {
            observed.host_mapped = self.host_mapped();
        }
        observed
    }

    fn host_mapped(&self) -> BTreeMap<u32, PageMap> {
        let small = self.buffers.iter().filter(|(_, span)| span.bytes <= MAX_MAPPED_BYTES);
        small.filter_map(|(&id, &span)| Some((id, page_map_of(self.backend, span)?))).collect()
    }

    fn ptr(&self, buf: u32, offset: u64) -> DevicePtr {
        let buffer = self.buffers.get(&buf).map(|span| span.ptr);
        let start = buffer.or_else(|| self.shared.start(buf));
        start.unwrap_or(DevicePtr::NULL).offset(offset)
    }

    fn span(&self, part: Part) -> Span {
        Span::new(self.ptr(part.buf, part.offset), part.bytes)
    }

    /// Whether a range is within the live buffer, or the memory of the process, that it names. An
    /// import is within the buffer that was exported, which is of this case too.
    fn holds(&self, part: Part) -> bool {
        let span = self.span(part);
        let within = |known: Span| {
            let ends = known.end().zip(span.end());
            known.ptr <= span.ptr && ends.is_some_and(|(known, end)| end <= known)
        };
        let named = self.buffers.get(&part.buf).copied().or_else(|| self.shared.pages(part.buf));
        match named {
            Some(named) => within(named),
            None => {
                let is_import = self.shared.start(part.buf).is_some();
                is_import && self.buffers.values().copied().any(within)
            }
        }
    }

    /// A range for a call that uses or gives up its contents. An offset in a trace may lead to any
    /// address: a range that is not the case's becomes one at the null address, which every back
    /// end refuses. So no memory outside the case is used by such a call.
    fn own_span(&self, part: Part) -> Span {
        if self.holds(part) { self.span(part) } else { Span::new(DevicePtr::NULL, part.bytes) }
    }

    fn own_spans(&self, parts: &[Part]) -> Vec<Span> {
        parts.iter().map(|&part| self.own_span(part)).collect()
    }

    fn spans(&self, parts: &[Part]) -> Vec<Span> {
        parts.iter().map(|&part| self.span(part)).collect()
    }

    fn pool(&self, id: u32) -> PoolHandle {
        let latest = self.pools.iter().rev().find(|(pool, _)| *pool == id);
        latest.map_or(PoolHandle::NULL, |&(_, handle)| handle)
    }

    fn stream(&mut self, stream: Option<Stream>) -> Result<StreamHandle> {
        match stream.unwrap_or(Stream::NonBlocking) {
            Stream::Legacy => Ok(StreamHandle::NULL),
            Stream::NonBlocking => self.device_stream(DeviceId(0)),
        }
    }

    fn device_stream(&mut self, device: DeviceId) -> Result<StreamHandle> {
        if let Some(&stream) = self.streams.get(&device.0) {
            return Ok(stream);
        }
        let stream = self.backend.stream_create(device, StreamFlags::NON_BLOCKING)?;
        self.streams.insert(device.0, stream);
        Ok(stream)
    }

    /// Makes the stream that the operation needs, so that its time is not the operation's.
    fn prepare(&mut self, op: &Op) {
        let device = match op {
            Op::DeviceTouch { device, .. } => DeviceId(*device),
            op if op.is_asynchronous() => DeviceId(0),
            _ => return,
        };
        // A failure is the operation's result: it tries again.
        _ = self.device_stream(device);
    }

    fn clean_up(&mut self) {
        self.shared.clean_up(self.backend);
        for span in std::mem::take(&mut self.buffers).into_values() {
            // Pinned memory is freed by its own call; any other failure leaves the buffer to the
            // back end, as the recorder left it to the driver.
            // SAFETY: the case allocated the buffer and never gave its address out. Every call of
            // the case was waited for, and the map that held the address is gone.
            unsafe {
                _ = self.backend.free(span.ptr).or_else(|_| self.backend.free_pinned(span.ptr));
            }
        }
        for stream in std::mem::take(&mut self.streams).into_values() {
            // SAFETY: the case made the stream and never gave its handle out; the map that held
            // the handle is gone.
            _ = unsafe { self.backend.stream_destroy(stream) };
        }
        for pool in std::mem::take(&mut self.made_pools) {
            // SAFETY: the case made or imported the pool. `finish` takes the case by value, so no
            // later operation of it can name the handle.
            _ = unsafe { self.backend.pool_destroy(pool) };
        }
    }
}
