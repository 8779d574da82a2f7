//! The simulated process: everything behind the lock.
//!
//! One module per group of calls (`allocation`, `movement`, `queries`, `touching`) adds methods to
//! [`Sim`]. Each method is one call of the driver: it checks in the driver's order, then acts; a
//! refusal leaves everything as it was.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use pagewise_hal::{
    AttachFlags, DeviceId, DriverVersion, MemoryInfo, PoolHandle, Span, StreamHandle,
};

use crate::arena::Arena;
use crate::attachments::Attachments;
use crate::attributes::Attributes;
use crate::config::{DiscardedContents, SimConfig};
use crate::contents::Contents;
use crate::exclusive::Exclusive;
use crate::host_faults::gate::Gate;
use crate::host_view::HostView;
use crate::locate::{Topology, processor_of};
use crate::mappings::Mappings;
use crate::pace::FaultPace;
use crate::pager::Pager;
use crate::peer_access::PeerAccess;
use crate::pools::{Pool, Pools};
use crate::refusal::{Checked, bad_device, invalid};
use crate::shared::Sharing;
use crate::space::{Allocation, MemoryKind, Space};
use crate::streams::Streams;

/// The simulated process.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) config: SimConfig,
    pub(crate) topology: Topology,
    pub(crate) arena: Arena,
    pub(crate) space: Space,
    pub(crate) attributes: Attributes,
    pub(crate) pools: Pools,
    pub(crate) streams: Streams,
    pub(crate) pager: Pager,
    pub(crate) contents: Contents,
    pub(crate) attachments: Attachments,
    pub(crate) sharing: Sharing,
    pub(crate) mappings: Mappings,
    pub(crate) peer_access: PeerAccess,
    /// Present without concurrent managed access.
    pub(crate) exclusive: Option<Exclusive>,
    /// Present with genuine faults of the host.
    pub(crate) host_view: Option<HostView>,
    pub(crate) clock_ns: u64,
    /// The time that the next call and its faults are to take, if a replay said so.
    pub(crate) pace: Option<(u64, VecDeque<FaultPace>)>,
    /// Whether a listener wants each call's records.
    pub(crate) listened: bool,
    /// Whether calls are checked and not carried out: see `submission`.
    pub(crate) rehearses: bool,
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
            pager.watch_host_access();
        }
        Self {
            topology,
            space: Space::default(),
            attributes: Attributes::default(),
            pools: Pools::new(topology, config.driver_version, config.gpu.memory_bytes),
            streams: Streams::new(),
            pager,
            host_view: gate.cloned().map(HostView::new),
            contents: Contents::default(),
            attachments: Attachments::default(),
            sharing: Sharing::default(),
            mappings: Mappings::default(),
            peer_access: PeerAccess::default(),
            exclusive: Exclusive::of(&config),
            clock_ns: 0,
            pace: None,
            listened: false,
            rehearses: false,
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
        match allocation.kind {
            MemoryKind::Managed => true,
            MemoryKind::Device(_)
            | MemoryKind::Opened(_)
            | MemoryKind::Pinned
            | MemoryKind::Mapped(_)
            | MemoryKind::Registered => false,
            MemoryKind::Pool(pool) => self.pool_is_managed(pool),
        }
    }

    fn pool_is_managed(&self, pool: PoolHandle) -> bool {
        self.pools.any(pool.as_raw()).is_some_and(Pool::is_managed)
    }

    /// The range rule: at least one byte, starting in a live managed allocation and ending in the
    /// same one, by the bytes requested.
    pub(crate) fn managed_range(&self, span: Span) -> Checked<&Allocation> {
        if span.bytes == 0 || span.ptr.is_null() {
            return invalid("the range is empty or starts at the null address");
        }
        match self.space.containing(span.ptr) {
            Some(allocation) if !self.is_managed(allocation) => {
                invalid("the range is not managed memory")
            }
            Some(allocation) if allocation.contains(span) => Ok(allocation),
            Some(_) => invalid("the range passes the end of its allocation"),
            None => invalid("the range does not start in a live allocation"),
        }
    }

    /// The pages of a range that passed the range rule.
    pub(crate) fn managed_pages(&self, span: Span) -> Checked<Range<u64>> {
        self.managed_range(span)?;
        Ok(span.pages_outward())
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
