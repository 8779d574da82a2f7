//! The observer of moved pages, which the driver does not report by itself.

use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagewise_hal::{EventLog, EventsSince, MemoryEvent, Result};

/// A source of unified-memory records, such as the profiling library.
pub trait Observer: Debug + Send + Sync + 'static {
    /// The records since the last call, in order. Called when all work has been waited for.
    ///
    /// # Errors
    /// If records were lost or cannot be had.
    fn take_events(&self) -> Result<Vec<MemoryEvent>>;
}

/// An observer, and the log of the records that it has delivered: the observer gives each record
/// once, and several readers want it.
#[derive(Debug)]
pub(crate) struct ObserverLog {
    observer: Box<dyn Observer>,
    log: Mutex<EventLog>,
}

impl ObserverLog {
    pub(crate) fn new(observer: Box<dyn Observer>) -> Self {
        Self { observer, log: Mutex::new(EventLog::new(EventLog::DEFAULT_CAPACITY)) }
    }

    pub(crate) fn take(&self) -> Result<Vec<MemoryEvent>> {
        Ok(self.up_to_date()?.take())
    }

    pub(crate) fn since(&self, position: u64) -> Result<EventsSince> {
        Ok(self.up_to_date()?.since(position))
    }

    /// The log with all records that there are. Its lock is taken first, so that records of two
    /// threads stay in order.
    fn up_to_date(&self) -> Result<MutexGuard<'_, EventLog>> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        self.observer.take_events()?.into_iter().for_each(|event| log.push(event));
        Ok(log)
    }
}

#[cfg(test)]
mod tests {
    use pagewise_hal::FaultAccess;

    use super::*;

    /// An observer that sees a fault whenever it is asked.
    #[derive(Debug)]
    struct Faulting;

    impl Observer for Faulting {
        fn take_events(&self) -> Result<Vec<MemoryEvent>> {
            Ok(vec![MemoryEvent::CpuFault { address: 4096, access: FaultAccess::Read }])
        }
    }

    #[test]
    fn a_driver_counts_its_records_and_cannot_tell_their_calls() -> Result<()> {
        let log = ObserverLog::new(Box::new(Faulting));
        let begin = log.since(u64::MAX)?;
        let seen = log.since(begin.position)?;
        assert_eq!((seen.events.len(), seen.lost, seen.calls), (1, 0, None));
        Ok(())
    }
}
