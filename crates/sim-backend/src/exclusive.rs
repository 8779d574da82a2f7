//! Machines whose devices have no concurrent managed access: Windows, WSL 2, and devices before
//! Pascal.
//!
//! Such a device cannot fault, so what it may touch has to be there before it starts, and the host
//! has to keep away until it is done. What is modelled:
//!
//! - Managed memory lives on the device and can fill it, but not exceed it (PAGING-260). With
//!   several devices that are no peers it lives on the host, and they reach it there.
//! - The host's accesses fault page by page with the usual prefetch tree; before each program of the
//!   device everything that it may touch comes back as a whole (PAGING-261).
//! - Until work in flight is waited for, the host may touch only managed memory that is attached to
//!   it or to an idle stream (PAGING-262). Where a real process ends with a segmentation fault, the
//!   program here is refused.
//! - Prefetching and advice that names a device fail, as do batch calls, default and current
//!   managed pools (CONTRACT-110). Other advice is remembered and changes nothing.
//!
//! None of it was compared with hardware by this project.

use std::collections::BTreeMap;
use std::ops::Range;

use pagewise_hal::{Advice, AllocationType, EventHandle, Processor, Span, StreamHandle};

use crate::attachments::{Attached, key};
use crate::config::SimConfig;
use crate::link::PeerLink;
use crate::locate::Located;
use crate::refusal::{Checked, bad_device, illegal_address, unsupported};
use crate::sim::Sim;
use crate::space::{Allocation, ManagedRange};

/// What a machine without concurrent managed access has to remember.
#[derive(Debug)]
pub(crate) struct Exclusive {
    /// Where managed memory lives.
    home: Processor,
    /// Memory that managed memory takes there, in bytes.
    managed_bytes: u64,
    /// Work that nobody waited for: the number of a stream's last, by stream.
    working: BTreeMap<u64, u64>,
    /// What an event waits for: stream and number of its last work, by event.
    recorded: BTreeMap<u64, (u64, u64)>,
    last_work: u64,
}

impl Exclusive {
    /// `None` if the machine's devices have concurrent managed access, or it has no devices.
    pub(crate) fn of(config: &SimConfig) -> Option<Self> {
        if config.gpu.attributes.concurrent_managed_access || config.devices == 0 {
            return None;
        }
        let peers = config.devices == 1 || config.gpu.peer_link != PeerLink::None;
        Some(Self {
            home: if peers { Processor::device(0) } else { Processor::HOST },
            managed_bytes: 0,
            working: BTreeMap::new(),
            recorded: BTreeMap::new(),
            last_work: 0,
        })
    }

    /// Where managed memory lives.
    pub(crate) fn home(&self) -> Processor {
        self.home
    }

    /// Memory of a processor that managed memory takes, in bytes.
    pub(crate) fn bytes_on(&self, processor: Processor) -> u64 {
        if processor == self.home { self.managed_bytes } else { 0 }
    }

    /// Work was given to a stream, and the call returns before it is done.
    fn started(&mut self, stream: StreamHandle) {
        self.last_work += 1;
        self.working.insert(key(stream), self.last_work);
    }

    /// An event was recorded.
    fn recorded(&mut self, event: EventHandle, stream: StreamHandle) {
        let stream = key(stream);
        let work = self.working.get(&stream).copied().unwrap_or(0);
        self.recorded.insert(event.as_raw(), (stream, work));
    }

    /// Somebody waited for an event, or learnt that it has happened.
    fn waited_for_event(&mut self, event: EventHandle) {
        let Some((stream, work)) = self.recorded.get(&event.as_raw()) else { return };
        if self.working.get(stream).is_some_and(|last| last <= work) {
            self.working.remove(stream);
        }
    }

    /// Whether the host has to keep away from an allocation that is attached so.
    fn is_in_use(&self, attached: Attached) -> bool {
        match attached {
            Attached::Global => !self.working.is_empty(),
            Attached::Host => false,
            Attached::Stream(stream) => self.working.contains_key(&stream),
        }
    }
}

/// What begins in a stream, by what it touches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work<'a> {
    /// An access program.
    Program(Span),
    /// A fill, or a copy.
    FillOrCopy(&'a [Span]),
}

/// Whether a stream's work may touch an allocation that is attached so.
fn check_reach(attached: Attached, stream: StreamHandle) -> Checked<()> {
    match attached {
        Attached::Host => illegal_address(
            "the memory is attached to the host: attach it GLOBAL or to the stream first",
        ),
        Attached::Stream(owner) if owner != key(stream) => {
            illegal_address("the memory is attached to another stream")
        }
        _ => Ok(()),
    }
}

impl Sim {
    /// The host is about to touch memory.
    pub(crate) fn check_host_may_touch(&self, span: Span) -> Checked<()> {
        let (Some(exclusive), Some(allocation)) =
            (&self.exclusive, self.space.containing(span.ptr))
        else {
            return Ok(());
        };
        if self.is_managed(allocation) && exclusive.is_in_use(self.attachments.of(allocation)) {
            return illegal_address(
                "without concurrent managed access the host may not touch managed memory while a \
                 device works: synchronise its streams first",
            );
        }
        Ok(())
    }

    /// A device is about to touch memory, in a stream: what has to be there comes, once for all
    /// that the call touches. Does nothing if the access will be refused.
    ///
    /// With concurrent access, fills and copies bring what is attached to the stream only if they
    /// touch managed memory (PAGING-251). It is a guess that one managed range of a copy is enough.
    pub(crate) fn launch(
        &mut self,
        by: Processor,
        work: Work<'_>,
        stream: StreamHandle,
    ) -> Checked<()> {
        let spans = match &work {
            Work::Program(span) => std::slice::from_ref(span),
            Work::FillOrCopy(spans) => spans,
        };
        let mut touched: Vec<&Allocation> = Vec::new();
        for span in spans.iter().filter(|span| span.bytes > 0) {
            let allocation = self.space.containing(span.ptr).filter(|a| a.contains(*span));
            touched.extend(allocation.filter(|a| self.reaches(by, a)));
        }
        if touched.is_empty() {
            return Ok(());
        }
        let Some(exclusive) = &self.exclusive else {
            let is_program = matches!(work, Work::Program(_));
            if is_program || touched.iter().any(|allocation| self.is_managed(allocation)) {
                self.bring_attached(by, stream);
            }
            return Ok(());
        };
        for allocation in touched {
            check_reach(self.attachments.of(allocation), stream)?;
        }
        let home = exclusive.home;
        let away: Vec<Range<u64>> = if home == Processor::HOST {
            Vec::new()
        } else {
            let managed = self.space.managed();
            let comes = managed.filter(|a| check_reach(self.attachments.of(a), stream).is_ok());
            let pages = comes.map(|allocation| allocation.span().pages_outward());
            pages.filter(|pages| self.is_touched_by_host(pages)).collect()
        };
        if !away.is_empty() {
            self.clock_ns = self.pager.bring(&away, home, self.clock_ns);
            self.settle_contents();
        }
        Ok(())
    }

    /// Work was given to a stream, and the call returns before it is done.
    pub(crate) fn started(&mut self, stream: StreamHandle) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.started(stream);
        }
    }

    /// A stream's work is done, and the program knows. The legacy default stream waits for all
    /// others; destroying a stream waits for nothing (cuda-python issue 1539).
    pub(crate) fn waited_for(&mut self, stream: StreamHandle) {
        let Some(exclusive) = &mut self.exclusive else { return };
        if stream.is_legacy() {
            exclusive.working.clear();
        }
        exclusive.working.remove(&key(stream));
    }

    /// An event was recorded.
    pub(crate) fn recorded(&mut self, event: EventHandle, stream: StreamHandle) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.recorded(event, stream);
        }
    }

    /// An event was destroyed.
    pub(crate) fn forget_event(&mut self, event: EventHandle) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.recorded.remove(&event.as_raw());
        }
    }

    /// An event has happened, and the program knows.
    pub(crate) fn waited_for_event(&mut self, event: EventHandle) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.waited_for_event(event);
        }
    }

    /// The host maps what it touched, and nothing else.
    fn is_touched_by_host(&self, pages: &Range<u64>) -> bool {
        self.pager.host_page_map(pages.clone()).iter().any(|run| run.mapped)
    }

    /// Managed memory appeared: it lives at home from the start, and every device reaches it there.
    pub(crate) fn settle_at_home(&mut self, range: ManagedRange) {
        let Some(exclusive) = &mut self.exclusive else { return };
        exclusive.managed_bytes += range.device_bytes();
        let home = exclusive.home;
        let pages = range.first_page..range.first_page + range.pages;
        for device in (0..self.config.devices).map(Processor::device) {
            if device != home {
                self.pager.set_accessed_by(pages.clone(), device, true);
            }
        }
        self.pager.migrate(pages, home);
    }

    /// An allocation went, and perhaps its range.
    pub(crate) fn leave_home(&mut self, gone: Option<ManagedRange>) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.managed_bytes -= gone.map_or(0, ManagedRange::device_bytes);
        }
    }

    /// Advice that names a device needs one with concurrent managed access.
    pub(crate) fn check_advised_device(&self, advice: Advice, place: Located) -> Checked<()> {
        let is_device = matches!(place, Located::Device(_)) && advice.uses_location();
        if is_device && self.exclusive.is_some() {
            return bad_device("the device has no concurrent managed access");
        }
        Ok(())
    }

    /// Prefetching needs devices with concurrent managed access, whatever the destination: the
    /// stream has one, too.
    pub(crate) fn check_prefetch_works(&self) -> Checked<()> {
        if self.exclusive.is_some() {
            return bad_device("the stream's device has no concurrent managed access");
        }
        Ok(())
    }

    /// The machine has no default pool of managed memory.
    pub(crate) fn check_pool_kind(&self, kind: AllocationType) -> Checked<()> {
        if kind == AllocationType::MANAGED { self.check_concurrent() } else { Ok(()) }
    }

    /// So do the batch calls and the pools of managed memory.
    pub(crate) fn check_concurrent(&self) -> Checked<()> {
        if self.exclusive.is_some() {
            return unsupported("a device of this machine has no concurrent managed access");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::{CopyCause, MemoryEvent, PAGE_BYTES};

    use super::*;
    use crate::paging::{Access, EventSink, GpuMemory, Holding, PageMask, Paging, Relations, Work};
    use crate::profile::GpuProfile;

    const GPU: Processor = Processor::device(0);

    #[derive(Default)]
    struct Log {
        to_device_kib: Vec<u64>,
        to_host_kib: Vec<u64>,
        cpu_faults: u64,
    }

    impl EventSink for Log {
        fn event(&mut self, event: MemoryEvent) {
            match event {
                MemoryEvent::Copy { bytes, to: GPU, cause, .. } => {
                    assert_eq!(cause, CopyCause::User);
                    self.to_device_kib.push(bytes / 1024);
                }
                MemoryEvent::Copy { bytes, .. } => self.to_host_kib.push(bytes / 1024),
                MemoryEvent::CpuFault { .. } => self.cpu_faults += 1,
                other => panic!("unexpected record {other:?}"),
            }
        }

        fn work(&mut self, _: &Work) -> u64 {
            0
        }

        fn fault_latency_ns(&mut self, _: Processor, _: u64) -> u64 {
            0
        }

        fn holding(&mut self, _: u64, _: PageMask, _: Processor, _: Holding) {}
    }

    /// `y = x + y` over 2 x 2^20 floats, as NVIDIA's "Unified Memory for CUDA Beginners" prints it
    /// for a K80, and public nvprof logs of the same program for a TITAN X, an 840M and an M1200: 6
    /// copies to the device of at most 2 MiB, 8 MiB in all; 102 copies to the host of 4 to 1020 KiB,
    /// 12 MiB in all; 51 CPU faults. The smallest copy tells where in its 2 MiB each array began.
    #[test]
    fn the_published_add_on_devices_without_faults_is_reproduced() {
        for smallest_kib in [768, 896] {
            let profile = GpuProfile::named("wsl").expect("a shipped profile");
            let relations = Relations::new(profile.host_link, profile.peer_link, 1);
            let gpus = [GpuMemory { capacity_bytes: profile.usable_bytes() }];
            let mut paging = Paging::new(profile.paging, &gpus, relations);
            let mut log = Log::default();
            let offset = 512 - smallest_kib * 1024 / PAGE_BYTES;
            let [x, y] = [offset, 4096 + offset].map(|first| first..first + 1024);
            for array in [&x, &y] {
                paging.create_range(array.start, 1024);
                paging.migrate(array.clone(), GPU, 0, &mut log);
            }
            let host = |paging: &mut Paging, array: &Range<u64>, access, log: &mut Log| {
                array.clone().for_each(|page| {
                    paging.touch(Processor::HOST, page, access, 0, log);
                });
            };
            host(&mut paging, &x, Access::Write, &mut log);
            host(&mut paging, &y, Access::Write, &mut log);
            for array in [&x, &y] {
                paging.migrate(array.clone(), GPU, 0, &mut log);
            }
            for (array, access) in [(&x, Access::Read), (&y, Access::Write)] {
                for page in array.clone() {
                    assert_eq!(paging.touch(GPU, page, access, 0, &mut log).faults, 0);
                }
            }
            host(&mut paging, &y, Access::Read, &mut log);

            let bounds =
                |copies: &[u64]| (copies.iter().min().copied(), copies.iter().max().copied());
            assert_eq!(log.to_device_kib.len(), 6);
            assert_eq!(log.to_device_kib.iter().sum::<u64>(), 8 * 1024);
            assert_eq!(bounds(&log.to_device_kib), (Some(smallest_kib), Some(2048)));
            assert_eq!(log.to_host_kib.len(), 102);
            assert_eq!(log.to_host_kib.iter().sum::<u64>(), 12 * 1024);
            assert_eq!(bounds(&log.to_host_kib), (Some(4), Some(1020)));
            assert_eq!(log.cpu_faults, 51);
        }
    }
}
