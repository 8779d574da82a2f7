//! The page-locked memory that is kept for the next copy of other memory of the host.

use std::sync::{Mutex, PoisonError};

use pagewise_hal::DevicePtr;

/// Page-locked memory of the simulator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageLocked {
    pub(crate) start: DevicePtr,
    pub(crate) bytes: u64,
}

/// The memory that is kept, if there is some.
#[derive(Debug, Default)]
pub(crate) struct KeptBuffer(Mutex<Option<PageLocked>>);

impl KeptBuffer {
    /// Keeps this memory, or none; returns what was kept before.
    pub(crate) fn exchange(&self, memory: Option<PageLocked>) -> Option<PageLocked> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut kept, memory)
    }
}
