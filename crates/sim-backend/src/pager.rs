//! The paging engine with its sink, which keeps records and says how long work takes.
//!
//! Calls carry no time and no sink; both are here, so that the modules of calls read as what they
//! do.

use std::collections::VecDeque;
use std::ops::Range;

use pagewise_hal::{
    CopyCause, Counters, DeviceId, MemoryEvent, PAGE_BYTES, PageRun, Processor, Span, StridedSpan,
};

use crate::arrival::{
    Accesses, Arrival, ArrivalParams, KernelWalks, RunsAhead, Threads, WalkAccesses,
};
use crate::config::{DiscardedContents, MemoryContents, SimConfig};
use crate::contents::HoldingChange;
use crate::cost::{Call, CostObservation, MemoryStep, Meter};
use crate::pace::{FaultPace, FaultPacer};
use crate::paging::{
    self, Asker, CHUNK_BYTES, CopySums, Covered, GpuMemory, Holding, PageMask, Paging, Relations,
    ReportSink, TurnWalk, WalkReach, Wants, Work, WorkCause,
};
pub(crate) use crate::paging::{
    Access, Discard, ExecutedKernel, Group, HostAccess, LaneWait, Missing,
};
use crate::places::Places;
use crate::pressure::Pressure;
use crate::records::Records;

/// An access program on managed memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccessProgram {
    pub(crate) by: Processor,
    pub(crate) span: Span,
    pub(crate) stride_bytes: u64,
    pub(crate) access: Access,
    pub(crate) threads: Threads,
}

impl AccessProgram {
    fn walk(self) -> paging::Walk {
        let Self { by, span, stride_bytes, access, .. } = self;
        paging::Walk { by, first_byte: span.ptr.0, bytes: span.bytes, stride_bytes, access }
    }
}

/// The accesses of a kernel: those of each walk in turn.
#[derive(Debug, Clone)]
pub(crate) struct KernelProgram<'a> {
    pub(crate) by: Processor,
    pub(crate) threads: Threads,
    pub(crate) walks: Vec<(Access, &'a [StridedSpan])>,
}

impl KernelProgram<'_> {
    /// Each strided range of each walk, as a walk of its own.
    fn each(&self) -> impl Iterator<Item = paging::Walk> {
        let by = self.by;
        self.walks.iter().flat_map(move |&(access, ranges)| {
            ranges.iter().map(move |&StridedSpan { span, stride_bytes }| {
                let (first_byte, bytes) = (span.ptr.0, span.bytes);
                paging::Walk { by, first_byte, bytes, stride_bytes, access }
            })
        })
    }
}

/// Where pages are, and what moved them since the records were last taken.
#[derive(Debug)]
pub(crate) struct Pager {
    paging: Paging,
    reports: Reports,
    /// The call that is being carried out.
    call: Call,
    now_ns: u64,
    arrival: ArrivalParams,
    seed: u64,
    /// Kernels of many threads that ran so far.
    kernels: u64,
}

/// The sink of the engine: keeps records and holdings, and knows the time of work.
#[derive(Debug)]
struct Reports {
    meter: Meter,
    pacer: FaultPacer,
    records: Records,
    /// Changes of what memory holds of pages; `None` if no caller wants to know.
    holdings: Option<Vec<HoldingChange>>,
}

impl ReportSink for Reports {
    #[inline]
    fn wants(&self) -> Wants {
        Wants { copies: self.records.are_wanted(), holdings: self.holdings.is_some() }
    }

    fn copies(&mut self, copies: &CopySums) {
        let &CopySums { way, cause, asked, prefetched } = copies;
        for (kind, cause) in [(asked, cause), (prefetched, CopyCause::Prefetch)] {
            let (runs, bytes) = (kind.runs as u64, (kind.pages as u64).saturating_mul(PAGE_BYTES));
            if runs > 0 {
                let count = |sums: &mut Counters| sums.count_copies(way, cause, runs, bytes);
                self.records.log.push_counted(runs, count);
            }
        }
    }

    fn record(&mut self, record: MemoryEvent) {
        if matches!(record, MemoryEvent::GpuFault { .. } | MemoryEvent::CpuFault { .. }) {
            self.pacer.recorded();
        }
        self.records.push(record);
    }

    fn work(&mut self, work: &Work) -> u64 {
        let modelled_ns = self.meter.work(work);
        match work.cause {
            WorkCause::Fault => self.pacer.service_ns().unwrap_or(modelled_ns),
            _ => modelled_ns,
        }
    }

    fn fault_latency_ns(&mut self, by: Processor, access: u64) -> u64 {
        let modelled_ns = self.meter.fault_latency_ns(by, access);
        self.pacer.latency_ns().unwrap_or(modelled_ns)
    }

    fn holding(&mut self, first_page: u64, pages: PageMask, processor: Processor, now: Holding) {
        if let Some(holdings) = &mut self.holdings {
            holdings.push(HoldingChange { first_page, pages, processor, now });
        }
    }
}

impl Pager {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let gpu = GpuMemory { capacity_bytes: config.gpu.usable_bytes() };
        let gpus = vec![gpu; config.devices as usize];
        let wanted = config.discarded_contents == DiscardedContents::Driver
            && config.contents != MemoryContents::Skipped;
        let holdings = wanted.then(Vec::new);
        let relations =
            Relations::new(config.gpu.host_link, config.gpu.peer_link, config.devices as usize);
        Self {
            paging: Paging::new(config.gpu.paging.clone(), &gpus, relations),
            reports: Reports {
                meter: Meter::new(config.gpu.cost).with_devices(config.devices),
                pacer: FaultPacer::default(),
                records: Records::new(config.events),
                holdings,
            },
            call: Call::Other,
            now_ns: 0,
            arrival: config.gpu.arrival.clone(),
            seed: config.seed,
            kernels: 0,
        }
    }

    /// Managed memory appeared.
    pub(crate) fn add_range(&mut self, first_page: u64, pages: u64) {
        self.paging.create_range(first_page, pages);
        self.reports.meter.range_made();
    }

    /// Memory appeared or went that the engine knows nothing of.
    pub(crate) fn note_memory(&mut self, step: MemoryStep) {
        self.reports.meter.memory(step);
    }

    /// Whether there is managed memory at a page.
    pub(crate) fn has_range(&self, page: u64) -> bool {
        self.paging.has_range(page)
    }

    /// It went, with where its pages were.
    pub(crate) fn remove_range(&mut self, first_page: u64, pages: u64) {
        let held = self.paging.held_blocks(&(first_page..first_page + pages));
        self.reports.meter.range_gone(&held);
        self.paging.destroy_range(first_page, pages);
    }

    pub(crate) fn set_preferred(&mut self, pages: Range<u64>, to: Option<Processor>) {
        self.paging.set_preferred(pages, to, self.now_ns, &mut self.reports);
    }

    pub(crate) fn set_accessed_by(&mut self, pages: Range<u64>, by: Processor, on: bool) {
        self.paging.set_accessed_by(pages, by, on, self.now_ns, &mut self.reports);
    }

    pub(crate) fn set_read_mostly(&mut self, pages: Range<u64>, on: bool) {
        self.paging.set_read_mostly(pages, on, self.now_ns, &mut self.reports);
    }

    /// Withdraws all advice.
    pub(crate) fn forget_advice(&mut self, pages: Range<u64>, devices: u32) {
        self.set_read_mostly(pages.clone(), false);
        self.set_preferred(pages.clone(), None);
        let processors = (0..devices).map(Processor::device).chain([Processor::HOST]);
        processors.for_each(|by| self.set_accessed_by(pages.clone(), by, false));
    }

    pub(crate) fn migrate(&mut self, pages: Range<u64>, to: Processor) {
        self.paging.migrate(pages, to, self.now_ns, &mut self.reports);
    }

    /// Puts pages of small allocations in a group, or takes them out: see `paging::groups`.
    pub(crate) fn group(&mut self, pages: Range<u64>, group: Option<Group>) {
        self.paging.group(pages, group);
    }

    /// Whether there are pages in groups.
    #[inline]
    pub(crate) fn has_groups(&self) -> bool {
        self.paging.has_groups()
    }

    /// The runs of pages in a group.
    pub(crate) fn grouped(&self, group: Group) -> Vec<Range<u64>> {
        self.paging.grouped(group)
    }

    pub(crate) fn discard(&mut self, pages: Range<u64>, manner: Discard) {
        self.paging.discard(pages, manner, self.now_ns, &mut self.reports);
    }

    /// Runs an access program that begins at `now_ns`; returns when it ends.
    pub(crate) fn run_program(&mut self, program: AccessProgram, now_ns: u64) -> u64 {
        let walk = program.walk();
        if program.threads == Threads::One {
            return self.run_walk(&walk, now_ns);
        }
        self.now_ns = now_ns;
        self.reports.meter.walks(&walk);
        let end_ns = self.run_kernel(walk, program.threads);
        self.walked(&walk, end_ns);
        end_ns
    }

    /// Runs an access program of one thread that begins at `now_ns`; returns when it ends.
    #[inline]
    fn run_walk(&mut self, walk: &paging::Walk, now_ns: u64) -> u64 {
        self.now_ns = now_ns;
        self.reports.meter.walks(walk);
        let end_ns = self.paging.walk(*walk, now_ns, &mut self.reports).now_ns;
        self.walked(walk, end_ns);
        end_ns
    }

    /// A walk ended, with its faults.
    #[inline]
    fn walked(&mut self, walk: &paging::Walk, end_ns: u64) {
        let covered = self.paging.covered(*walk);
        self.reports.meter.walked(walk, covered);
        self.paging.count_accesses(walk, end_ns, &mut self.reports);
    }

    /// Runs an access program of one thread as a call of its own that begins at `now_ns`, and takes
    /// `pace_ns` if that is given. Returns when the call ends; `None`, and nothing is done, unless
    /// the program makes one access, no pace of a fault is given for it, and costs are not observed.
    #[inline]
    pub(crate) fn access_at_once(
        &mut self,
        call: Call,
        walk: &paging::Walk,
        now_ns: u64,
        pace_ns: Option<u64>,
    ) -> Option<u64> {
        if self.reports.meter.is_observed() {
            return None;
        }
        let Some(covered) = self.paging.touch_mapped(walk) else {
            let faults = pace_ns.is_none() && walk.only_page().is_some();
            return faults.then(|| self.fault_at_once(call, walk, now_ns));
        };
        self.forget_pace();
        (self.call, self.now_ns) = (call, now_ns);
        Some(self.reports.meter.walk(call, walk, covered, (now_ns, pace_ns)))
    }

    /// Runs an access program of one thread as a call of its own. Returns when the call ends.
    fn fault_at_once(&mut self, call: Call, walk: &paging::Walk, now_ns: u64) -> u64 {
        self.forget_pace();
        self.begin(call, now_ns);
        let faulted_ns = self.run_walk(walk, now_ns);
        let end_ns = self.end(now_ns, faulted_ns, false);
        self.remember(end_ns);
        end_ns
    }

    fn run_kernel(&mut self, walk: paging::Walk, threads: Threads) -> u64 {
        let paging::Walk { first_byte, bytes, stride_bytes, access, .. } = walk;
        let runs_ahead = access != Access::Read;
        let accesses = Accesses { first_byte, bytes, stride_bytes, runs_ahead };
        let arrival = Arrival::new(&self.arrival, accesses.by(threads), self.seed, self.kernels);
        self.kernels += 1;
        self.paging.run_kernel(walk, arrival, self.now_ns, &mut self.reports).now_ns
    }

    /// Runs a kernel of several walks that begins at `now_ns`; returns when it ends.
    pub(crate) fn run_walks(&mut self, kernel: &KernelProgram<'_>, now_ns: u64) -> u64 {
        self.now_ns = now_ns;
        if let Some(first) = kernel.each().next() {
            self.reports.meter.walks(&first);
        }
        let end_ns = match kernel.threads {
            Threads::Grid { blocks, threads } => self.run_grid(kernel, blocks, threads),
            _ => {
                let in_turn =
                    |&(access, ranges): &_| TurnWalk { access, places: Places::of(ranges) };
                let walks: Vec<TurnWalk> = kernel.walks.iter().map(in_turn).collect();
                self.paging.walk_in_turn(kernel.by, &walks, now_ns, &mut self.reports).now_ns
            }
        };
        for walk in kernel.each() {
            let covered = self.paging.covered(walk);
            self.reports.meter.walked(&walk, covered);
            self.paging.count_accesses(&walk, end_ns, &mut self.reports);
        }
        end_ns
    }

    fn run_grid(&mut self, kernel: &KernelProgram<'_>, blocks: u32, threads: u32) -> u64 {
        let accesses = |&(access, ranges): &(Access, &[StridedSpan])| {
            let runs_ahead =
                if access == Access::Read { RunsAhead::ToReads } else { RunsAhead::Freely };
            WalkAccesses { places: Places::of(ranges), runs_ahead }
        };
        let reach = |&(access, ranges): &(Access, &[StridedSpan])| {
            let end_page = ranges.iter().map(|range| range.span.pages_outward().end).max();
            WalkReach { access, end_page: end_page.unwrap_or(0) }
        };
        let walks = kernel.walks.iter().map(accesses).collect();
        let reaches: Vec<WalkReach> = kernel.walks.iter().map(reach).collect();
        let walks = KernelWalks::Program { blocks, threads, walks };
        let arrival = Arrival::new(&self.arrival, walks, self.seed, self.kernels);
        self.kernels += 1;
        let (now_ns, sink) = (self.now_ns, &mut self.reports);
        self.paging.run_walks(kernel.by, &reaches, arrival, now_ns, sink).now_ns
    }

    /// The part of it that is state: see [`State`](crate::state::State). Waiting records count
    /// by their number.
    pub(crate) fn state(&self) -> impl std::fmt::Debug {
        let Self { paging, reports, call: _, now_ns: _, arrival: _, seed: _, kernels } = self;
        let Reports { meter: _, pacer: _, records, holdings } = reports;
        let log = &records.log;
        (paging, log.counters(), log.kept(), log.pushed_out(), holdings, kernels)
    }

    /// An access program ran on memory that does not migrate.
    pub(crate) fn ran_on_plain_memory(&mut self, program: AccessProgram) {
        let walk = program.walk();
        self.reports.meter.walked(&walk, Covered::of_plain(&walk));
    }

    /// The faults of the call that is about to begin take this long, as far as is known.
    pub(crate) fn pace(&mut self, faults: VecDeque<FaultPace>) {
        self.reports.pacer = FaultPacer::new(faults);
    }

    /// Faults take what the model says, whatever [`pace`](Self::pace) said before.
    #[inline]
    pub(crate) fn forget_pace(&mut self) {
        if self.reports.pacer.knows_any() {
            self.reports.pacer = FaultPacer::default();
        }
    }

    /// Takes the times of faults that are still to come.
    pub(crate) fn take_pace(&mut self) -> VecDeque<FaultPace> {
        std::mem::take(&mut self.reports.pacer).into_faults()
    }

    /// A call begins.
    #[inline]
    pub(crate) fn begin(&mut self, call: Call, now_ns: u64) {
        (self.call, self.now_ns) = (call, now_ns);
        self.reports.meter.begin(call, now_ns);
    }

    /// The figures by which faults of a kernel arrive, and the kernel's number, which no other has.
    pub(crate) fn arrival_of_next(&mut self) -> (ArrivalParams, u64, u64) {
        let nth = self.kernels;
        self.kernels += 1;
        (self.arrival.clone(), self.seed, nth)
    }

    /// Whether a device accesses a page without a fault, and the pages around it for which this
    /// holds too. `None` if there is no managed memory at the page.
    pub(crate) fn reached(
        &self,
        by: Processor,
        page: u64,
        access: Access,
    ) -> Option<Result<Range<u64>, Missing>> {
        self.paging.reached(by, page, access)
    }

    /// A kernel of executed code begins at `now_ns`.
    pub(crate) fn begin_executed(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Services a batch of the faults of lanes that wait. Returns whether there was one.
    pub(crate) fn service_executed(
        &mut self,
        kernel: &mut ExecutedKernel<'_>,
        lanes: &[LaneWait],
    ) -> bool {
        self.paging.service_executed(kernel, lanes, &mut self.reports)
    }

    /// Notes pages that the code of a device accessed.
    pub(crate) fn note_accessed(&mut self, by: Processor, pages: Range<u64>) {
        self.paging.note_accessed(by, pages);
    }

    /// Brings ranges to a processor, as a prefetch would, before the call that is being carried out
    /// goes on. Returns when they are there.
    pub(crate) fn bring(&mut self, ranges: &[Range<u64>], to: Processor, now_ns: u64) -> u64 {
        let call = self.call;
        self.begin(Call::Prefetch { ranges: ranges.len() as u64, batch: true }, now_ns);
        ranges.iter().for_each(|pages| self.migrate(pages.clone(), to));
        let end_ns = self.end(now_ns, now_ns, false);
        self.remember(end_ns);
        self.begin(call, end_ns);
        end_ns
    }

    /// It ends: see [`Meter::end`].
    #[inline]
    pub(crate) fn end(&mut self, start_ns: u64, now_ns: u64, refused: bool) -> u64 {
        self.reports.meter.end(start_ns, now_ns, refused)
    }

    /// Remembers the call that ended then.
    #[inline]
    pub(crate) fn remember(&mut self, end_ns: u64) {
        self.reports.meter.remember(end_ns);
    }

    /// Calls of one kind that do nothing but ask, one after another: see [`Meter::alike`].
    pub(crate) fn pass_alike(&mut self, call: Call, refused: bool, times: u64, now_ns: u64) -> u64 {
        self.forget_pace();
        self.reports.meter.alike(call, refused, times, now_ns)
    }

    /// How long a sleep really takes.
    pub(crate) fn sleep(&mut self, duration_ns: u64) -> u64 {
        self.reports.meter.sleep(duration_ns)
    }

    /// Keeps what calls take their time for.
    pub(crate) fn observe_costs(&mut self) {
        self.reports.meter.observe();
    }

    /// Hands over what was kept since the last call.
    pub(crate) fn take_cost_observations(&mut self) -> Vec<CostObservation> {
        self.reports.meter.take_observations()
    }

    pub(crate) fn host_page_map(&self, pages: Range<u64>) -> Vec<PageRun> {
        self.paging.host_mapped(pages)
    }

    /// How many of these pages are resident on a processor.
    pub(crate) fn resident_among(&self, pages: Range<u64>, on: Processor) -> u64 {
        self.paging.resident_among(pages, on.into())
    }

    /// Notes the 2 MiB slots that change, for a caller, from now on.
    pub(crate) fn watch_slots(&mut self, asker: Asker) {
        self.paging.watch_slots(asker);
    }

    /// The 2 MiB slots that may have changed since the caller last asked, ascending.
    pub(crate) fn take_changed_slots(&mut self, asker: Asker) -> Vec<u64> {
        self.paging.take_changed_slots(asker)
    }

    /// The host's access to the managed pages of a 2 MiB slot.
    pub(crate) fn host_access(&self, slot: u64) -> HostAccess {
        self.paging.host_access(slot)
    }

    /// Bytes of a device's memory that stand behind managed memory, whether its pages are there
    /// now or were once.
    pub(crate) fn bytes_behind(&self, device: Processor) -> u64 {
        self.paging.device_chunks_in_use(device) * CHUNK_BYTES
    }

    /// The use that managed pages made of a device's memory so far.
    pub(crate) fn pressure(&self, device: DeviceId) -> Option<Pressure> {
        self.paging.pressure(usize::try_from(device.0).ok()?)
    }

    /// Leaves this much of a device to memory that does not migrate; managed pages make way.
    pub(crate) fn claim(&mut self, device: Processor, bytes: u64) {
        self.paging.claim(device, bytes, self.now_ns, &mut self.reports);
    }

    /// Whether anything changed in processors' memory since the last call of
    /// [`drain_holdings`](Self::drain_holdings).
    #[inline]
    pub(crate) fn has_holdings(&self) -> bool {
        self.reports.holdings.as_ref().is_some_and(|holdings| !holdings.is_empty())
    }

    /// Hands over what changed in processors' memory since the last call.
    pub(crate) fn drain_holdings(&mut self) -> impl Iterator<Item = HoldingChange> {
        self.reports.holdings.iter_mut().flat_map(|holdings| holdings.drain(..))
    }

    /// The records.
    #[inline]
    pub(crate) fn records(&mut self) -> &mut Records {
        &mut self.reports.records
    }
}
