//! The cost of memory that the paging engine does not manage, and of streams and events
//! (TIMING-50 to TIMING-53).
//!
//! A call on a pool pays for the 32 MiB chunks that appear or go with it, by the memory behind
//! them: page-locked host memory is zeroed and pinned, which takes milliseconds.

use super::params::{
    ControlCosts, CopyCosts, CostParams, PlainMemoryCosts, PoolCosts, PoolMemoryCosts,
};
use super::state::Warmth;

/// The memory behind a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolMemory {
    Device,
    Host,
    /// Managed, and prefers a device.
    ManagedDevice,
    /// Managed, and prefers the host.
    ManagedHost,
    /// Managed, without a preferred location.
    ManagedAnywhere,
}

/// Memory of a call that the paging engine knows nothing of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryStep {
    /// A pool was made, with a limit on its bytes or without.
    PoolMade {
        memory: PoolMemory,
        is_limited: bool,
    },
    /// A pool was destroyed that has had chunks or none.
    PoolGone {
        memory: PoolMemory,
        was_used: bool,
    },
    /// A pool took chunks: `fresh` for the first time, `again` at addresses that it had before.
    ChunksMade {
        memory: PoolMemory,
        fresh: u64,
        again: u64,
    },
    /// A pool gave chunks back.
    ChunksGone {
        memory: PoolMemory,
        chunks: u64,
    },
    /// `cuMemHostAlloc` of so many bytes, and its end.
    PinnedMade(u64),
    PinnedGone(u64),
    /// `cuMemHostRegister` of so many bytes, and its end.
    Registered(u64),
    Unregistered(u64),
    /// A copy or a fill of so many bytes.
    Moved(Transfer, u64),
}

/// The ends of a copy, or a fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    ToDevice,
    ToHost,
    WithinDevice,
    BetweenDevices,
    /// Between devices of which the one has no access to the other's memory.
    ByHost,
    WithinHost,
    Fill,
}

/// Calls that take the time of their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    StreamCreate,
    StreamDestroy,
    StreamWaitEvent,
    StreamAttach,
    EventCreate,
    EventDestroy,
    EventRecord,
    EventQuery,
    EventElapsed,
    MemoryInfo,
    DeviceAttribute,
}

/// Calls on pools, without the memory that they take or give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolCall {
    /// Make, destroy, import: all of their time is that of [`MemoryStep`]s.
    Whole,
    Alloc,
    Free,
    Trim,
    /// One attribute, read or set; access, read or set; a device's default or current pool.
    Query,
}

impl PoolCosts {
    fn of(&self, memory: PoolMemory) -> &PoolMemoryCosts {
        match memory {
            PoolMemory::Device => &self.device,
            PoolMemory::Host => &self.host,
            PoolMemory::ManagedDevice => &self.managed_device,
            PoolMemory::ManagedHost => &self.managed_host,
            PoolMemory::ManagedAnywhere => &self.managed_anywhere,
        }
    }

    pub(super) fn call(&self, call: PoolCall, warmth: Warmth) -> f64 {
        let own = match call {
            PoolCall::Whole => 0.0,
            PoolCall::Alloc => self.alloc,
            PoolCall::Free => self.free,
            PoolCall::Trim => self.trim,
            PoolCall::Query => self.query,
        };
        own + warmth.ns(&self.warmth)
    }
}

impl PlainMemoryCosts {
    pub(super) fn call(&self, warmth: Warmth) -> f64 {
        self.call + warmth.if_after_sleep(self.after_sleep)
    }
}

impl CopyCosts {
    /// The time of a byte.
    fn of(&self, transfer: Transfer) -> f64 {
        match transfer {
            Transfer::ToDevice => self.to_device_byte,
            Transfer::ToHost => self.to_host_byte,
            Transfer::WithinDevice => self.within_device_byte,
            Transfer::BetweenDevices => self.between_devices_byte,
            Transfer::ByHost => self.between_devices_by_host_byte,
            Transfer::WithinHost => self.pageable_to_host_byte,
            Transfer::Fill => self.fill_byte,
        }
    }
}

impl ControlCosts {
    pub(super) fn call(&self, call: Control, warmth: Warmth) -> f64 {
        let own = match call {
            Control::StreamCreate => self.stream_create,
            Control::StreamDestroy => self.stream_destroy,
            Control::StreamWaitEvent => self.stream_wait_event,
            Control::StreamAttach => self.stream_attach,
            Control::EventCreate => self.event_create,
            Control::EventDestroy => self.event_destroy,
            Control::EventRecord => self.event_record,
            Control::EventQuery => self.event_query,
            Control::EventElapsed => self.event_elapsed,
            Control::MemoryInfo => self.memory_info,
            Control::DeviceAttribute => self.device_attribute,
        };
        own + warmth.if_after_sleep(self.after_sleep)
    }
}

/// The time of memory that came or went with a call.
pub(super) fn step(params: &CostParams, step: MemoryStep) -> f64 {
    let (pools, plain) = (&params.pool, &params.plain_memory);
    match step {
        MemoryStep::PoolMade { memory, is_limited: false } => pools.of(memory).create,
        MemoryStep::PoolMade { memory, is_limited: true } => pools.of(memory).create_limited,
        MemoryStep::PoolGone { memory, was_used } => {
            let costs = pools.of(memory);
            costs.destroy + if was_used { costs.destroy_used } else { 0.0 }
        }
        MemoryStep::ChunksMade { memory, fresh, again } => {
            let costs = pools.of(memory);
            costs.chunk * fresh as f64 + costs.chunk_again * again as f64
        }
        MemoryStep::ChunksGone { memory, chunks } => pools.of(memory).chunk_release * chunks as f64,
        MemoryStep::PinnedMade(bytes) => plain.pinned_byte * bytes as f64,
        MemoryStep::PinnedGone(bytes) => plain.pinned_free_byte * bytes as f64,
        MemoryStep::Registered(bytes) => plain.registered_byte * bytes as f64,
        MemoryStep::Unregistered(bytes) => plain.unregistered_byte * bytes as f64,
        MemoryStep::Moved(transfer, bytes) => params.copies.of(transfer) * bytes as f64,
    }
}
