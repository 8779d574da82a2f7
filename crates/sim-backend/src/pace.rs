//! The recorded pace of faults. A page thrashes if its thrashing events lie within half a
//! millisecond of each other, also within one call.

use std::collections::VecDeque;

/// How long one fault takes, in nanoseconds: until the driver looks at it, and from then on.
pub(crate) type FaultPace = (u64, u64);

/// How long the faults of the call that is being carried out take.
#[derive(Debug, Default)]
pub(crate) struct FaultPacer {
    /// The times of the faults that are still to come.
    faults: VecDeque<FaultPace>,
    /// The rest of the one that is being served.
    service_ns: Option<u64>,
}

impl FaultPacer {
    pub(crate) fn new(faults: VecDeque<FaultPace>) -> Self {
        Self { faults, service_ns: None }
    }

    /// Whether it knows the time of any fault, or the rest of one.
    #[inline]
    pub(crate) fn knows_any(&self) -> bool {
        self.service_ns.is_some() || !self.faults.is_empty()
    }

    /// The times of the faults that are still to come.
    pub(crate) fn into_faults(self) -> VecDeque<FaultPace> {
        self.faults
    }

    /// The time until the next fault is looked at, if it is known.
    pub(crate) fn latency_ns(&mut self) -> Option<u64> {
        let &(wait_ns, service_ns) = self.faults.front()?;
        self.service_ns = Some(service_ns);
        Some(wait_ns)
    }

    /// A fault was recorded.
    pub(crate) fn recorded(&mut self) {
        self.faults.pop_front();
    }

    /// The time of a step of the service, if it is known: the first step takes it all.
    pub(crate) fn service_ns(&mut self) -> Option<u64> {
        self.service_ns.as_mut().map(std::mem::take)
    }
}
