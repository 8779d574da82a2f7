//! The calls that made the records of a log.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{MemoryEvent, Operation, StreamHandle};

/// A thread of this process, by a number that no other thread of the process gets.
///
/// ```
/// use pagewise_hal::ThreadNumber;
///
/// let here = ThreadNumber::current();
/// assert_eq!(here, ThreadNumber::current());
/// assert_ne!(std::thread::spawn(ThreadNumber::current).join().unwrap(), here);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ThreadNumber(u64);

impl ThreadNumber {
    /// The number of the calling thread.
    #[must_use]
    pub fn current() -> Self {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
        }
        Self(NUMBER.with(|number| *number))
    }
}

/// A call as messages name it: the method, and the stream if it takes one.
///
/// ```
/// use pagewise_hal::{CallName, Operation, StreamHandle};
///
/// let call = CallName::from((Operation::Prefetch, StreamHandle::checked(16)));
/// assert_eq!(call.to_string(), "prefetch on stream 0x10");
/// assert_eq!(CallName::from(Operation::HostTouch).to_string(), "host_touch");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CallName {
    /// The method that was called.
    pub operation: Operation,
    /// The stream that it named; `None` if it takes none.
    pub stream: Option<StreamHandle>,
}

impl From<Operation> for CallName {
    fn from(operation: Operation) -> Self {
        Self { operation, stream: None }
    }
}

impl From<(Operation, StreamHandle)> for CallName {
    fn from((operation, stream): (Operation, StreamHandle)) -> Self {
        Self { operation, stream: Some(stream) }
    }
}

impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operation.fmt(f)?;
        match self.stream {
            Some(stream) => write!(f, " on stream {:#x}", stream.as_raw()),
            None => Ok(()),
        }
    }
}

/// A call and the number of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CallRecords {
    /// The call.
    pub call: CallName,
    /// The thread that called.
    pub thread: ThreadNumber,
    /// The number of its records.
    pub records: u64,
}

impl CallRecords {
    /// A call of the present thread.
    #[must_use]
    pub fn new(call: CallName, records: u64) -> Self {
        Self { call, thread: ThreadNumber::current(), records }
    }

    /// Each call with its own records, where the calls are those of the records, in order, as in
    /// [`EventsSince`](crate::EventsSince).
    ///
    /// ```
    /// use pagewise_hal::{CallRecords, FaultAccess, MemoryEvent, Operation};
    ///
    /// let fault = |address| MemoryEvent::CpuFault { address, access: FaultAccess::Read };
    /// let call = |records| CallRecords::new(Operation::HostTouch.into(), records);
    /// let (calls, events) = ([call(1), call(2)], [fault(0), fault(4096), fault(8192)]);
    /// let parts: Vec<_> = CallRecords::split(&calls, &events).map(|(_, part)| part).collect();
    /// assert_eq!(parts, [&events[..1], &events[1..]]);
    /// ```
    pub fn split<'a>(
        calls: &'a [Self],
        events: &'a [MemoryEvent],
    ) -> impl Iterator<Item = (&'a Self, &'a [MemoryEvent])> {
        let mut rest = events;
        calls.iter().map(move |call| {
            let records = usize::try_from(call.records).unwrap_or(usize::MAX);
            let (own, after) = rest.split_at(records.min(rest.len()));
            rest = after;
            (call, own)
        })
    }
}

/// The calls of the records that a log keeps, in order: each record belongs to one.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallLog {
    /// The call that is being carried out.
    current: Option<CallName>,
    /// Whether the last of `calls` is the current one.
    listed: bool,
    calls: VecDeque<CallRecords>,
}

impl CallLog {
    pub(crate) fn begin(&mut self, call: CallName) {
        self.current = Some(call);
        self.listed = false;
    }

    /// Counts a record of the current call; false if there is none.
    pub(crate) fn count(&mut self) -> bool {
        let Some(call) = self.current else { return false };
        match self.calls.back_mut() {
            Some(last) if self.listed => last.records = last.records.saturating_add(1),
            _ => self.calls.push_back(CallRecords::new(call, 1)),
        }
        self.listed = true;
        true
    }

    /// The oldest record is gone, and with its last record a call.
    pub(crate) fn forget_oldest(&mut self) {
        let Some(oldest) = self.calls.front_mut() else { return };
        oldest.records = oldest.records.saturating_sub(1);
        if oldest.records == 0 {
            self.calls.pop_front();
            self.listed &= !self.calls.is_empty();
        }
    }

    /// No record is left.
    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.listed = false;
    }

    /// The calls of the last records. Of the oldest of them, only records among these count.
    pub(crate) fn of_last(&self, records: u64) -> Vec<CallRecords> {
        let mut left = records;
        let mut calls = Vec::new();
        for call in self.calls.iter().rev() {
            if left == 0 {
                break;
            }
            let part = call.records.min(left);
            calls.push(CallRecords { records: part, ..*call });
            left = left.saturating_sub(part);
        }
        calls.reverse();
        calls
    }
}
