//! Stretches of memory on which one thing happened, from records: for messages that people read.

use std::fmt;

use pagewise_hal::{
    BLOCK_BYTES, CallName, CallRecords, CopyCause, DevicePtr, MemoryEvent, PAGE_BYTES, Processor,
    Span,
};

use super::buffers::Buffers;

/// Records of one kind on neighbouring memory, made by calls of one kind, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    what: What,
    /// The calls that it is due to; `None` if that is not known.
    by: Option<CallName>,
    /// The first buffer that it is of, by its index in the observation.
    of: Option<usize>,
    first: u64,
    end: u64,
    records: u64,
    bytes: u64,
}

/// The kind of a record, with the processors that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Copy {
        from: Processor,
        to: Processor,
        cause: CopyCause,
    },
    GpuFault {
        device: Processor,
    },
    CpuFault,
    RemoteMap {
        by: Processor,
        at: Processor,
    },
    Thrashing,
    Throttling {
        processor: Processor,
    },
    /// A kind that a later back end reports.
    Other,
}

impl What {
    /// The kind of a record, and the bytes that it is about.
    fn of(event: &MemoryEvent) -> (Self, u64) {
        match *event {
            MemoryEvent::Copy { bytes, from, to, cause, .. } => {
                (Self::Copy { from, to, cause }, bytes)
            }
            MemoryEvent::GpuFault { device, .. } => (Self::GpuFault { device }, PAGE_BYTES),
            MemoryEvent::CpuFault { .. } => (Self::CpuFault, PAGE_BYTES),
            MemoryEvent::RemoteMap { bytes, by, at, .. } => (Self::RemoteMap { by, at }, bytes),
            MemoryEvent::Thrashing { bytes, .. } => (Self::Thrashing, bytes),
            MemoryEvent::Throttling { processor, .. } => {
                (Self::Throttling { processor }, PAGE_BYTES)
            }
            _ => (Self::Other, 0),
        }
    }

    pub(super) fn is_fault(self) -> bool {
        matches!(self, Self::GpuFault { .. } | Self::CpuFault)
    }

    pub(super) fn is_copy_to_device(self) -> bool {
        matches!(self, Self::Copy { from: Processor::HOST, .. })
    }

    pub(super) fn is_copy_to_host(self) -> bool {
        matches!(self, Self::Copy { to: Processor::HOST, .. })
    }

    pub(super) fn is_copy(self) -> bool {
        matches!(self, Self::Copy { .. })
    }
}

impl Stretch {
    /// The stretches of records, those with most bytes first; with the calls of the records where
    /// they are known. Records of one buffer that are less than a va_block apart are on one stretch.
    pub(super) fn all_of(
        events: &[MemoryEvent],
        calls: Option<&[CallRecords]>,
        buffers: &Buffers<'_>,
    ) -> Vec<Self> {
        let mut parts: Vec<Self> = match calls {
            Some(calls) => {
                let by_call = CallRecords::split(calls, events);
                by_call.flat_map(|(made, events)| Self::of_call(made.call, events)).collect()
            }
            None => events.iter().map(Self::of).collect(),
        };
        for part in &mut parts {
            part.of = buffers.first_in(part.first, part.end);
        }
        parts.sort_by_key(|part| (part.what, part.by, part.of, part.first));
        let mut all: Vec<Self> = Vec::new();
        for part in parts {
            match all.last_mut() {
                Some(last) if last.continues_with(&part) => last.add(&part),
                _ => all.push(part),
            }
        }
        all.sort_by_key(|one| std::cmp::Reverse(one.bytes));
        all
    }

    /// The record as a stretch.
    fn of(event: &MemoryEvent) -> Self {
        let (what, bytes) = What::of(event);
        let first = event.address();
        Self {
            what,
            by: None,
            of: None,
            first,
            end: first.saturating_add(bytes),
            records: 1,
            bytes,
        }
    }

    /// The records of a call as stretches.
    fn of_call(call: CallName, events: &[MemoryEvent]) -> impl Iterator<Item = Self> {
        events.iter().map(move |event| Self { by: Some(call), ..Self::of(event) })
    }

    fn continues_with(&self, next: &Self) -> bool {
        (self.what, self.by, self.of) == (next.what, next.by, next.of)
            && next.first <= self.end.saturating_add(BLOCK_BYTES)
    }

    fn add(&mut self, part: &Self) {
        self.end = self.end.max(part.end);
        self.records = self.records.saturating_add(1);
        self.bytes = self.bytes.saturating_add(part.bytes);
    }

    pub(super) fn what(&self) -> What {
        self.what
    }

    /// The bytes of a range that records of this kind are about.
    pub(super) fn bytes_within(events: &[MemoryEvent], span: Span, kind: fn(What) -> bool) -> u64 {
        let parts = events.iter().map(Self::of).filter(|part| kind(part.what));
        parts.map(|part| part.shared_with(span)).fold(0, u64::saturating_add)
    }

    /// The first address that a record is about, and the one after the last.
    pub(super) fn bounds_of(event: &MemoryEvent) -> (u64, u64) {
        let Self { first, end, .. } = Self::of(event);
        (first, end)
    }

    /// The stretch as a line, with the names of its buffers.
    pub(super) fn line(&self, buffers: &Buffers<'_>) -> String {
        format!("{}: {self}", buffers.describe(self.span()))
    }

    /// The memory from its first byte to its last.
    pub(super) fn span(&self) -> Span {
        Span::new(DevicePtr(self.first), self.end.saturating_sub(self.first))
    }

    /// The bytes that its records are about.
    #[cfg(feature = "tracing")]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of its records.
    #[cfg(feature = "tracing")]
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// The calls that it is due to.
    #[cfg(feature = "tracing")]
    pub(super) fn call(&self) -> Option<CallName> {
        self.by
    }

    /// How many bytes of a range it covers.
    pub(super) fn shared_with(&self, span: Span) -> u64 {
        let end = span.ptr.0.saturating_add(span.bytes);
        self.end.min(end).saturating_sub(self.first.max(span.ptr.0))
    }
}

/// The records without the place.
impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, by, records, bytes, .. } = *self;
        match what {
            What::Copy { from, to, .. } => write!(f, "{bytes} bytes from {from} to {to}"),
            What::GpuFault { device } => write!(f, "{records} faults of {device}"),
            What::CpuFault => write!(f, "{records} faults of the host"),
            What::RemoteMap { by, at } => {
                write!(f, "{by} mapped {bytes} bytes of the memory of {at}")
            }
            What::Thrashing => write!(f, "{bytes} bytes thrash"),
            What::Throttling { processor } => {
                write!(f, "{processor} had to wait {records} times for thrashing pages")
            }
            What::Other => write!(f, "{records} records of another kind"),
        }?;
        match (what, by) {
            // The call itself says more.
            (What::Copy { cause: CopyCause::User, .. }, Some(_)) => {}
            (What::Copy { cause, .. }, _) => write!(f, ", {}", cause_of_copy(cause))?,
            _ => {}
        }
        by.map_or(Ok(()), |call| write!(f, ", in {call}"))
    }
}

/// The cause of a copy in words.
fn cause_of_copy(cause: CopyCause) -> &'static str {
    match cause {
        CopyCause::User => "by a prefetch or an advice",
        CopyCause::Coherence => "by faults",
        CopyCause::Prefetch => "by the prefetcher, beside faults",
        CopyCause::Eviction => "by an eviction",
        CopyCause::AccessCounters => "by access counters",
        _ => "by another cause",
    }
}
