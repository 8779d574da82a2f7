//! Records that CUPTI has delivered to the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::MemoryEvent;

use super::record::UnifiedMemoryCounter;

/// The records of the process: CUPTI's callbacks carry no context.
pub(super) static RECORDS: Mutex<Records> =
    Mutex::new(Records { events: Vec::new(), unknown: None });

/// Records that CUPTI has delivered and that no call has taken.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) events: Vec<MemoryEvent>,
    /// The first record that could not be understood.
    pub(super) unknown: Option<UnifiedMemoryCounter>,
}

impl Records {
    pub(super) fn add(&mut self, counter: UnifiedMemoryCounter) {
        match counter.event() {
            Some(event) => self.events.push(event),
            None => _ = self.unknown.get_or_insert(counter),
        }
    }
}

pub(super) fn locked<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
