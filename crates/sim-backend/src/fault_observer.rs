//! The observer of genuine host faults: it stands around the service of each.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use pagewise_hal::{HostTouch, Result};

/// A fault of the host that the simulator serviced: see
/// [`SimBackend::observe_host_faults`](crate::SimBackend::observe_host_faults).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HostFault {
    /// The access program that moves what the fault moved: one byte. The value of a write is the
    /// byte that is there, because the program writes its own only when it goes on.
    pub touch: HostTouch,
    /// The program's answer. After an error the access ends in a segmentation fault.
    pub answer: Result<u64>,
}

type Observe = dyn Fn(&mut dyn FnMut() -> Option<HostFault>) + Send + Sync;

/// The place for an observer.
#[derive(Default)]
pub(crate) struct FaultObserver(RwLock<Option<Arc<Observe>>>);

impl FaultObserver {
    /// Replaces the observer.
    pub(crate) fn set(&self, observer: Arc<Observe>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(observer);
    }

    /// Lets the observer call `service`, if there is one.
    pub(crate) fn around(&self, service: &mut dyn FnMut() -> Option<HostFault>) {
        let observer = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(observer) = observer {
            observer(service);
        }
    }
}

impl fmt::Debug for FaultObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultObserver").finish_non_exhaustive()
    }
}
