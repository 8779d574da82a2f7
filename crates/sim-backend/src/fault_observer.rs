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

/// A fault of the host that waits for its service: see
/// [`SimBackend::observe_host_faults`](crate::SimBackend::observe_host_faults).
pub struct PendingFault<'a> {
    address: u64,
    moves_pages: &'a dyn Fn() -> bool,
    service: &'a mut dyn FnMut() -> Option<HostFault>,
}

impl PendingFault<'_> {
    /// An address in the page that the host accesses.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Whether the service moves pages, maps them or ends a duplicate. `false` if the host may
    /// access the page already, or may never.
    #[must_use]
    pub fn moves_pages(&self) -> bool {
        (self.moves_pages)()
    }

    /// Services the fault, and returns what was done: `None` if the service
    /// [moved nothing](Self::moves_pages), or was done before.
    pub fn service(&mut self) -> Option<HostFault> {
        (self.service)()
    }
}

impl fmt::Debug for PendingFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingFault").field("address", &self.address).finish_non_exhaustive()
    }
}

type Observe = dyn Fn(PendingFault<'_>) + Send + Sync;

/// The place for an observer.
#[derive(Default)]
pub(crate) struct FaultObserver(RwLock<Option<Arc<Observe>>>);

impl FaultObserver {
    /// Replaces the observer.
    pub(crate) fn set(&self, observer: Arc<Observe>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(observer);
    }

    /// Lets the observer call `service`, if there is one.
    pub(crate) fn around(
        &self,
        address: u64,
        moves_pages: &dyn Fn() -> bool,
        service: &mut dyn FnMut() -> Option<HostFault>,
    ) {
        let observer = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(observer) = observer {
            observer(PendingFault { address, moves_pages, service });
        }
    }
}

impl fmt::Debug for FaultObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultObserver").finish_non_exhaustive()
    }
}
