//! A machine under attack.

use pagewise_hal::{Backend, DeviceId, Error, PoolAttribute, Result, Span, StreamHandle};
use pagewise_sim::SimBackend;

use super::known::Known;
use crate::{Choices, Log, NO_CODE};

/// One machine under attack.
pub(super) struct Round<'a, 'b> {
    /// The callee: the machine, or a wrapper around it.
    pub(super) backend: &'a dyn Backend,
    pub(super) sim: &'a SimBackend,
    pub(super) known: Known,
    pub(super) choices: &'a mut Choices<'b>,
    pub(super) log: &'a mut Log,
}

impl Round<'_, '_> {
    pub(super) fn step(&mut self) {
        match self.choices.below(12) {
            0..=2 => self.allocate(),
            3 => self.free(),
            4 => self.advise(),
            5 | 6 => self.prefetch(),
            7 | 8 => self.touch(),
            9 => self.pool(),
            10 => self.stream_or_event(),
            _ => self.query(),
        }
    }

    /// Makes a call of the back end and counts its answer.
    pub(super) fn call<T>(
        &mut self,
        name: &'static str,
        act: impl FnOnce(&dyn Backend) -> Result<T>,
    ) -> Option<T> {
        let backend = self.backend;
        self.log.call(name, || act(backend), code).ok()
    }

    pub(super) fn free_bytes(&self) -> Vec<u64> {
        let devices = 0..self.sim.config().device_count();
        let info = |device: u32| self.sim.memory_info(DeviceId(device.cast_signed()));
        devices.filter_map(|device| info(device).ok()).map(|info| info.free_bytes).collect()
    }

    /// Frees what lives, in the order in which it was made, and gives all pools back.
    pub(super) fn free_all(&mut self) {
        for Span { ptr, .. } in std::mem::take(&mut self.known.live) {
            // SAFETY: only this round uses the memory, and the round ends here.
            unsafe {
                if self.sim.free(ptr).is_err() && self.sim.free_pinned(ptr).is_err() {
                    let _ = self.sim.host_unregister(ptr);
                }
            }
        }
        for pool in std::mem::take(&mut self.known.pools) {
            // A default pool cannot be destroyed, and may have been told to keep what it has.
            let _ = self.sim.pool_set_attribute(pool, PoolAttribute::RELEASE_THRESHOLD, 0);
            // SAFETY: the round ends here, so no code uses the handle again.
            let _ = unsafe { self.sim.pool_destroy(pool) };
        }
        let _ = self.sim.stream_synchronize(StreamHandle::NULL);
    }
}

/// The code of an answer.
pub(crate) fn code<T>(answer: &Result<T>) -> i32 {
    answer.as_ref().err().map_or(0, |error: &Error| error.code().unwrap_or(NO_CODE))
}
