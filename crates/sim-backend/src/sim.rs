//! The simulated process: everything behind the lock.
//!
//! One module per group of calls (`allocation`, `movement`, `queries`, `touching`) adds methods to
//! [`Sim`]. Each method is one call of the driver: it checks in the driver's order, then acts; a
//! refusal leaves everything as it was.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use pagewise_hal::{
    AttachFlags, DeviceId, DevicePtr, DriverVersion, MemoryInfo, Span, StreamHandle,
};

use crate::arena::Arena;
use crate::attachments::Attachments;
use crate::attributes::Attributes;
use crate::book::{self, Book, LentBook};
use crate::config::{DiscardedContents, SimConfig};
use crate::contents::Contents;
use crate::exclusive::Exclusive;
use crate::host_faults::gate::Gate;
use crate::host_view::HostView;
use crate::lendable::Lendable;
use crate::locate::{Topology, processor_of};
use crate::mappings::Mappings;
use crate::pace::FaultPace;
use crate::pager::Pager;
use crate::paging::Asker;
use crate::peer_access::PeerAccess;
use crate::pools::Pools;
use crate::reads_beside::{ReadGroup, ReadsBeside};
use crate::refusal::{Checked, bad_device, invalid};
use crate::repeats::Repeats;
use crate::shared::Sharing;
use crate::space::{Allocation, MemoryKind, Space};
use crate::streams::Streams;

/// Work on so much memory may be long.
const LONG_BYTES: u64 = 256 << 10;

/// How often reads are collected that may come while those before them are counted.
const COLLECTIONS_MAX: u8 = 8;

/// The simulated process.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) config: SimConfig,
    pub(crate) topology: Topology,
    pub(crate) arena: Arena,
    pub(crate) space: Space,
    pub(crate) attributes: Lendable<Attributes>,
    pub(crate) pools: Lendable<Pools>,
    pub(crate) streams: Streams,
    pub(crate) pager: Pager,
    pub(crate) contents: Contents,
    pub(crate) attachments: Attachments,
    pub(crate) sharing: Sharing,
    pub(crate) mappings: Lendable<Mappings>,
    pub(crate) peer_access: PeerAccess,
    /// Present without concurrent managed access.
    pub(crate) exclusive: Option<Box<Exclusive>>,
    /// Present with genuine faults of the host.
    pub(crate) host_view: Option<HostView>,
    pub(crate) repeats: Repeats,
    pub(crate) clock_ns: u64,
    /// The time that the next call and its faults are to take, if a replay said so.
    pub(crate) pace: Option<(u64, VecDeque<FaultPace>)>,
    /// Whether a listener wants each call's records.
    pub(crate) listened: bool,
    /// Whether calls are checked and not carried out: see `submission`.
    pub(crate) rehearses: bool,
    /// Whether the call under way lends what reads of attributes ask for.
    pub(crate) lends: bool,
    pub(crate) reads_beside: Arc<ReadsBeside>,
    /// Bytes of `cuMemAlloc` by device.
    pub(crate) device_bytes: Vec<u64>,
}

impl Sim {
    pub(crate) fn new(config: SimConfig, gate: Option<&Arc<Gate>>) -> Self {
        let arena = Arena::new(config.contents, gate.cloned());
        let topology =
            Topology { devices: config.devices, host_numa_nodes: config.host_numa_nodes };
        let mut pager = Pager::new(&config);
        if gate.is_some() {
            pager.watch_slots(Asker::Gate);
        }
        Self {
            topology,
            space: Space::default(),
            attributes: Lendable::default(),
            pools: Lendable::new(Pools::new(
                topology,
                config.driver_version,
                config.gpu.memory_bytes,
            )),
            streams: Streams::new(),
            pager,
            host_view: gate.cloned().map(HostView::new),
            repeats: Repeats::default(),
            contents: Contents::default(),
            attachments: Attachments::default(),
            sharing: Sharing::default(),
            mappings: Lendable::default(),
            peer_access: PeerAccess::default(),
            exclusive: Exclusive::of(&config).map(Box::new),
            clock_ns: 0,
            pace: None,
            listened: false,
            rehearses: false,
            lends: false,
            reads_beside: Arc::default(),
            device_bytes: vec![0; config.devices as usize],
            arena,
            config,
        }
    }

    /// Lets the call that begins take the time that a replay gave it and its faults, if one did;
    /// returns the call's.
    #[inline]
    pub(crate) fn take_pace(&mut self) -> Option<u64> {
        if self.pace.is_none() {
            self.pager.forget_pace();
            return None;
        }
        let (pace_ns, faults) = self.pace.take()?;
        self.pager.pace(faults);
        Some(pace_ns)
    }

    pub(crate) fn has(&self, since: DriverVersion) -> bool {
        self.config.driver_version >= since
    }

    /// Whether an allocation is managed: by itself or through its pool.
    #[inline]
    pub(crate) fn is_managed(&self, allocation: &Allocation) -> bool {
        book::is_managed(allocation, &self.pools)
    }

    /// The state that reads of attributes ask for.
    #[inline]
    pub(crate) fn book(&self) -> Book<'_> {
        let state = (&**self.space.live(), &*self.attributes, &*self.pools, &*self.mappings);
        Book::new(state, &self.config)
    }

    /// The pages of a range that passes the range rule: see [`Book::managed_pages`].
    pub(crate) fn managed_pages(&self, span: Span) -> Checked<Range<u64>> {
        self.book().managed_pages(span)
    }

    /// From here on the call under way changes nothing that reads of attributes ask for: those of
    /// other threads need not wait for its end. Work on a few pages is over before one could look.
    #[inline]
    pub(crate) fn lend_during(&mut self, bytes: u64) {
        if bytes >= LONG_BYTES {
            self.lend();
        }
    }

    /// The same, for work of unknown length.
    pub(crate) fn lend(&mut self) {
        if !self.lends {
            self.lends = true;
            let Self { space, attributes, pools, mappings, config, .. } = self;
            let state = (space.live(), &*attributes, &*pools, &*mappings);
            self.reads_beside.lend(LentBook::new(state, config));
        }
    }

    /// The call is over: takes back what it lent, and lets the time pass of the reads that were made
    /// meanwhile.
    pub(crate) fn end_lending(&mut self) {
        self.lends = false;
        let mut collections = 0;
        while let Some(made) = self.reads_beside.collect(collections >= COLLECTIONS_MAX) {
            for ReadGroup { call, refused, times } in made {
                self.clock_ns = self.pager.pass_alike(call, refused, times, self.clock_ns);
            }
            collections = collections.saturating_add(1);
        }
    }

    /// Lets the arena hold what the pages hold after they moved.
    #[inline]
    pub(crate) fn settle_contents(&mut self) {
        if self.host_view.is_some() || self.pager.has_holdings() {
            self.settle_moved();
        }
    }

    fn settle_moved(&mut self) {
        let writable = self.settle_host_view();
        if self.config.discarded_contents == DiscardedContents::Kept {
            return; // The arena holds what pages hold wherever they are.
        }
        for change in self.pager.drain_holdings() {
            self.contents.follow(&mut self.arena, &change);
        }
        // The host may write these at any time.
        writable.into_iter().for_each(|span| self.before_write(span));
    }

    /// A range is about to be written.
    pub(crate) fn before_write(&mut self, span: Span) {
        self.contents.before_write(&self.arena, span);
    }

    /// Code outside of the machine gets an address at which it may write memory at any time.
    pub(crate) fn note_host_address(&mut self, ptr: DevicePtr) {
        let found = self.space.containing(ptr);
        if found.is_none_or(|allocation| matches!(allocation.kind, MemoryKind::Device(_))) {
            self.repeats.expose();
        }
    }

    pub(crate) fn check_device(&self, device: DeviceId) -> Checked<()> {
        if self.topology.has_device(device) {
            Ok(())
        } else {
            bad_device("the device does not exist")
        }
    }

    /// `cuStreamAttachMemAsync`: CONTRACT-100, PAGING-250.
    pub(crate) fn stream_attach(
        &mut self,
        stream: StreamHandle,
        span: Span,
        flags: AttachFlags,
    ) -> Checked<()> {
        self.streams.check(stream)?;
        let single = flags == AttachFlags::SINGLE;
        if !single && flags != AttachFlags::GLOBAL && flags != AttachFlags::HOST {
            return invalid("attach flags are exactly one of GLOBAL, HOST and SINGLE");
        }
        if single && stream.is_legacy() {
            return invalid("memory cannot be attached to the legacy default stream alone");
        }
        match self.space.starting(span.ptr).copied() {
            Some(allocation)
                if allocation.kind == MemoryKind::Managed
                    && (span.bytes == 0 || span.bytes == allocation.bytes) =>
            {
                if !self.rehearses {
                    self.attach(&allocation, flags, stream);
                }
                Ok(())
            }
            _ => invalid("give one whole managed allocation, with its size or 0"),
        }
    }

    /// `cuMemGetInfo`
    pub(crate) fn memory_info(&self, device: DeviceId) -> Checked<MemoryInfo> {
        self.check_device(device)?;
        let total_bytes = self.config.gpu.memory_bytes;
        let home = processor_of(device);
        let managed = self.pager.bytes_behind(home);
        let context_bytes = self.config.gpu.context_bytes;
        let used = context_bytes.saturating_add(self.plain_bytes(device)).saturating_add(managed);
        Ok(MemoryInfo { free_bytes: total_bytes.saturating_sub(used), total_bytes })
    }
}
