//! Walks over memory: the accesses of one thread, and their results.
#![allow(clippy::arithmetic_side_effects, reason = "page numbers of live memory")]

use std::collections::BTreeMap;

use pagewise_hal::{MemoryEvent, PAGE_BYTES, Processor};

use super::access::Access;
use super::processor::ProcId;
use crate::clock;

/// Pages on which a processor is held off, with since when.
pub(super) type HeldOff = BTreeMap<u64, u64>;

/// A walk over memory by one thread: one access at `first_byte`, and one every `stride_bytes`
/// below `first_byte + bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The processor that walks.
    pub(crate) by: Processor,
    /// Address of the first access.
    pub(crate) first_byte: u64,
    /// Length of the memory walked over.
    pub(crate) bytes: u64,
    /// Bytes between accesses; 0 counts as 1.
    pub(crate) stride_bytes: u64,
    /// The access at each place.
    pub(crate) access: Access,
}

/// The outcome of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Touched {
    /// The time afterwards: the start, and what the sink said the faults took, and waits of
    /// throttled processors.
    pub(crate) now_ns: u64,
    /// Faults serviced.
    pub(crate) faults: u64,
    /// Times that the processor was held off a thrashing page.
    pub(crate) throttles: u64,
}

impl Touched {
    /// Lets time pass.
    #[inline]
    pub(super) fn pass(&mut self, duration_ns: u64) {
        self.now_ns = clock::after(self.now_ns, duration_ns);
    }
}

/// The record of faults on a page.
#[inline]
pub(super) fn fault_record(page: u64, by: ProcId, access: Access, merged: u64) -> MemoryEvent {
    let (address, access) = (page * PAGE_BYTES, access.into());
    if by.is_host() {
        MemoryEvent::CpuFault { address, access }
    } else {
        MemoryEvent::GpuFault { device: by.into(), address, access, merged, duration_ns: 0 }
    }
}
