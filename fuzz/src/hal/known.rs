//! The values that calls are made with: live ones, and some that were live.

use pagewise_hal::{DevicePtr, EventHandle, PoolHandle, Span, StreamHandle};
use pagewise_sim::SimBackend;

/// Most bytes of host memory that a round registers.
const HOST_BYTES: usize = 64 << 10;

/// The values that a round knows of: live ones, and some that were live.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) live: Vec<Span>,
    pub(super) freed: Vec<DevicePtr>,
    pub(super) streams: Vec<StreamHandle>,
    pub(super) events: Vec<EventHandle>,
    pub(super) pools: Vec<PoolHandle>,
    /// Whether a default pool of managed memory is used: what it has got it keeps.
    pub(super) keeps_memory: bool,
    pub(super) devices: u32,
    /// Host memory that is registered: alive as long as the machine is used.
    host: Box<[u8]>,
}

impl Known {
    pub(super) fn new(sim: &SimBackend) -> Self {
        Self {
            live: Vec::new(),
            freed: Vec::new(),
            streams: vec![StreamHandle::NULL, StreamHandle::LEGACY, StreamHandle::PER_THREAD],
            events: Vec::new(),
            pools: Vec::new(),
            keeps_memory: false,
            devices: sim.config().device_count(),
            host: vec![0; HOST_BYTES].into(),
        }
    }

    pub(super) fn host_start(&mut self) -> u64 {
        self.host.as_mut_ptr().expose_provenance() as u64
    }
}
